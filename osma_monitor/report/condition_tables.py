"""Tables of what changes between instruction conditions, and of target selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import get_args

from osma_monitor.core.metrics import selection
from osma_monitor.core.metrics.flips import outcome_flips
from osma_monitor.core.metrics.navigation_episode import NavigationEpisode
from osma_monitor.core.metrics.scores import ScoreTable, natural
from osma_monitor.io.scoring import OWN_NAME
from osma_monitor.report.table import Column, Table, frame

#: Attributes of an episode that say which target was chosen, and whether motion towards it earns soft credit.
VERDICT, CREDIT = "target_selection", "target_credit"

#: Outcome -> (policy, condition) -> task and seed -> success; None: not known.
Outcomes = Mapping[str, Mapping[tuple[str, str], Mapping[str, bool | None]]]


def outcomes_of(table: ScoreTable, episodes: Sequence[NavigationEpisode]) -> Outcomes:
    """Successes, and collision-free ones of navigation, of every policy under every condition.

    A task and seed that ran twice with different outcomes is not known; an aborted episode did not run.
    """
    found: dict[str, dict[tuple[str, str], dict[str, bool | None]]] = {"success": {}, "collision-free success": {}}

    def put(outcome: str, policy: str, condition: str, name: str, value: bool | None) -> None:
        tasks = found[outcome].setdefault((policy, condition), {})
        tasks[name] = value if tasks.get(name, value) == value else None

    if "condition" not in table.keys:
        return {}
    # two runs of one policy under two conditions are told apart by a label, and belong together here
    own = table.keys.get(OWN_NAME, table.keys["policy"])
    names = {str(p): str(name) or str(p) for p, name in zip(table.keys["policy"], own, strict=True)}
    columns = (table.keys[key] for key in ("policy", "condition", "task", "seed"))
    for *row, success, aborted in zip(*columns, table.success.tolist(), table.aborted.tolist(), strict=True):
        policy, condition, task, seed = map(str, row)
        if condition and not aborted:
            put("success", names[policy], condition, f"{task} {seed}", bool(success) if success >= 0 else None)
    for e in episodes:
        if e.condition and not e.aborted:
            put(
                "collision-free success",
                names.get(e.policy, e.policy),
                e.condition,
                f"{e.task} {e.seed}",
                e.collision_free,
            )
    return found


def flips(outcomes: Outcomes) -> Table:
    """Matched tasks and seeds whose outcome changed from one condition to another (OSMA-Bench Tables 4 and 25)."""
    rows = []
    for outcome, its in outcomes.items():
        for policy in sorted({policy for policy, _ in its}, key=natural):
            conditions = sorted({c for p, c in its if p == policy}, key=natural)
            for before, after in combinations(conditions, 2):
                f = outcome_flips(its[policy, before], its[policy, after])
                rows.append(
                    {
                        "policy": policy,
                        "outcome": outcome,
                        "before": before,
                        "after": after,
                        "n": f.n,
                        "successes_before": f.before,
                        "successes_after": f.after,
                        "lost": len(f.success_to_failure),
                        "gained": len(f.failure_to_success),
                        "difference": f.difference,
                        "difference_low": f.interval[0],
                        "difference_high": f.interval[1],
                        "p": f.p_value,
                        "n_unknown": f.unmatched,
                    }
                )
    columns = (
        Column("policy", "policy"),
        Column("outcome", "outcome"),
        Column("before", "from"),
        Column("after", "to"),
        Column("n", "n", "count"),
        Column("successes_before", "before", "count"),
        Column("successes_after", "after", "count"),
        Column("lost", "success to failure", "count"),
        Column("gained", "failure to success", "count"),
        Column("difference", "difference", "percent", interval=True),
        Column("p", "p", "p", 4, help="two-sided exact McNemar test"),
        Column("n_unknown", "unmatched", "count", help="tasks and seeds of one side only, or of unknown outcome"),
    )
    said = "n counts tasks and seeds that ran under both conditions with a known outcome."
    title = "Outcome flips between conditions"
    return Table("flips", title, columns, frame(rows, columns), (said,), keys=4)


def selections(table: ScoreTable) -> Mapping[str, Sequence[tuple[str, selection.Selection]]]:
    """Policy -> (task, selection) of the episodes whose attributes say one; aborted ones are left out.

    Raises ValueError for a word that is no verdict.
    """
    verdicts = table.keys.get(VERDICT)
    if verdicts is None:
        return {}
    credits = table.keys.get(CREDIT, [""] * len(verdicts))
    known = get_args(selection.Verdict)
    found: dict[str, list[tuple[str, selection.Selection]]] = {}
    rows = zip(table.keys["policy"], table.keys["task"], verdicts, credits, table.aborted.tolist(), strict=True)
    for policy, task, verdict, credit, aborted in rows:
        if verdict == "" or aborted:
            continue
        if verdict not in known or credit not in ("", "true", "false"):
            raise ValueError(
                f"task {task!r}: {VERDICT} is {verdict!r} and {CREDIT} {credit!r}; "
                f"expected one of {', '.join(known)}, and true or false"
            )
        found.setdefault(str(policy), []).append((str(task), selection.Selection(verdict, credit == "true")))
    return found


def target_selection(found: Mapping[str, Sequence[tuple[str, selection.Selection]]]) -> Table:
    """Did policies act on the instructed target? (BEHAVIOR-Spatial 5.1, Table S4)"""
    rows = []
    for policy in sorted(found, key=natural):
        s = selection.summarize(found[policy])
        row: dict[str, object] = {"policy": policy, "episodes": s.n, "tasks": len(s.by_task)}
        row["undecided"] = s.undecided
        for name in ("strict", "soft", "wrong"):
            row[name], row[f"{name}_macro"] = getattr(s, name), s.macro[name]
            row[f"{name}_low"], row[f"{name}_high"] = s.intervals[name]
        rows.append(row)
    columns = (
        Column("policy", "policy"),
        Column("episodes", "n", "count"),
        Column("tasks", "tasks", "count"),
        Column("strict", "strict", "percent", better=1, interval=True),
        Column("soft", "soft", "percent", better=1, interval=True),
        Column("wrong", "wrong", "percent", better=-1, interval=True),
        Column("undecided", "undecided", "percent"),
        Column("strict_macro", "strict, mean of tasks", "percent", better=1),
        Column("soft_macro", "soft, mean of tasks", "percent", better=1),
        Column("wrong_macro", "wrong, mean of tasks", "percent", better=-1),
    )
    return Table("target_selection", "Target selection", columns, frame(rows, columns), keys=1)


def all_tables(table: ScoreTable, episodes: Sequence[NavigationEpisode]) -> list[Table]:
    """The tables that the episodes give."""
    tables = (flips(outcomes_of(table, episodes)), target_selection(selections(table)))
    return [t for t in tables if not t.empty]
