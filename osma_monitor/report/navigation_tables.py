"""The navigation tables: outcomes, efficiency, severity, adaptation to the caution tier (OSMA-Bench 12 to 14)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from osma_monitor.core.metrics import navigation, ssi_groups
from osma_monitor.core.metrics.failures import Failure, class_counts
from osma_monitor.core.metrics.navigation_episode import NavigationEpisode, PlannedTask
from osma_monitor.core.metrics.scores import natural
from osma_monitor.core.metrics.ssi import PAIRS, TIERS
from osma_monitor.core.metrics.ssi_groups import PolicySsi
from osma_monitor.core.motion import FEATURES
from osma_monitor.report.table import Column, Table, frame

#: Of fewer cells a bootstrap only repeats the same few values: no interval is shown.
FEWEST_CELLS = 5
FEW_CELLS = f"fewer than {FEWEST_CELLS} cells are too few for an interval"
SUBSET_NAMES = {"all": "all tasks", "tsr": "TSR ∩", "cfsr": "CFSR ∩"}

_VALUES = (
    Column("tsr", "TSR", "percent", better=1, interval=True, help="reached the goal"),
    Column("cfsr", "CFSR", "percent", better=1, interval=True, help="reached the goal without contact"),
    Column("cfsr_over_tsr", "CFSR/TSR", "percent", better=1, interval=True, help="collision-free share of successes"),
    Column("npl", "NPL", "number", 3, -1, interval=True, help="driven path over reference path"),
    Column("npt", "NPT", "number", 3, -1, interval=True, help="driven time over reference time"),
    Column("collision_steps", "C_n", "number", 1, -1, interval=True, help="steps in contact, over tasks with contact"),
    Column("first_contact_speed", "v_tc m/s", "number", 3, -1, interval=True, help="speed at first contact"),
    Column("contact_rate", "contact", "percent", better=-1, interval=True, help="tasks with any contact"),
)
_COUNTS = (
    Column("n", "n", "count", help="planned tasks; without a plan those with a known outcome"),
    Column("n_unknown", "unknown", "count", help="outcome not known, or did not run"),
    Column("n_contact_unknown", "contact unknown", "count", help="contact not known: outside CFSR and contact"),
    Column("n_aborted", "aborted", "count", help="listed, never scored"),
)


#: Policy -> its planned tasks that did not run; a policy without a plan is not in it.
NotRun = Mapping[str, Sequence[PlannedTask]]


def by_policy(episodes: Sequence[NavigationEpisode], not_run: NotRun) -> dict[str, navigation.NavigationSummary]:
    """The summary of every policy that has an episode."""
    found = {}
    for policy in _policies(episodes):
        its = [e for e in episodes if e.policy == policy]
        found[policy] = navigation.breakdown(its, "policy", not_run=not_run.get(policy))[policy]
    return found


def planned_note(episodes: Sequence[NavigationEpisode], not_run: NotRun) -> str:
    """What TSR and CFSR divide by."""
    policies = _policies(episodes)
    unplanned = [p for p in policies if p not in not_run]
    text = "TSR and CFSR divide by the planned tasks: one that did not run, or whose outcome is unknown, is no success"
    if len(unplanned) == len(policies):
        text = "No plan is known: TSR and CFSR divide by the tasks whose outcome is known"
    elif unplanned:
        text += f"; no plan is known of {', '.join(unplanned)}, whose rates divide by the tasks of known outcome"
    # tasks without a cell are those of another host, which this table is not about
    never = [p for p, tasks in not_run.items() if p not in policies and any(task.cell for task in tasks)]
    return f"{text}." + (f" Planned, but without an episode: {', '.join(never)}." if never else "")


def outcomes(episodes: Sequence[NavigationEpisode], not_run: NotRun) -> Table:
    """Rates, path length, time, contact steps and speed at first contact of every policy, with intervals."""
    rows = [{"policy": name, **_row(s)} for name, s in by_policy(episodes, not_run).items()]
    columns = (Column("policy", "policy"), *_COUNTS, *_VALUES)
    notes = (
        "Wilson 95 % intervals for rates, bootstrap over cells for means. Robots that never moved have no NPL and NPT.",
        planned_note(episodes, not_run),
    )
    return Table("navigation", "Navigation outcomes by policy", columns, frame(rows, columns), notes, keys=1)


def over_seeds(episodes: Sequence[NavigationEpisode], not_run: NotRun) -> Table:
    """Mean and population standard deviation over seeds, as OSMA-Bench Table 12 prints them."""
    rows = []
    for policy in _policies(episodes):
        its = [e for e in episodes if e.policy == policy]
        summaries, statistics = navigation.by_seed(its, not_run=not_run.get(policy))
        row: dict[str, Any] = {"policy": policy, "seeds": len(summaries)}
        for name, statistic in statistics.items():
            row |= {name: statistic.mean, f"{name}_std": statistic.std}
        rows.append(row)
    columns = (Column("policy", "policy"), Column("seeds", "seeds", "count"), *map(_with_spread, _VALUES))
    notes = ("Mean ± population standard deviation over seeds; CFSR/TSR is the mean of the seeds' ratios.",)
    return Table("navigation_seeds", "Navigation outcomes over seeds", columns, frame(rows, columns), notes, keys=1)


def breakdown(episodes: Sequence[NavigationEpisode], by: navigation.Breakdown, not_run: NotRun) -> Table:
    """Outcomes of every policy in every value of a column (route, layout, tier, obstacle): OSMA-Bench Table 14."""
    rows = []
    for policy in _policies(episodes):
        planned = not_run.get(policy)
        placed = None if planned is None else [task for task in planned if getattr(task, by)]
        parts = navigation.breakdown([e for e in episodes if e.policy == policy], by, not_run=placed)
        values = sorted(parts, key=lambda v: (TIERS.index(v) if v in TIERS else 0, v))
        rows += [{"policy": policy, by: value, **_row(parts[value])} for value in values]
    columns = (Column("policy", "policy"), Column(by, by), *_COUNTS[:2], *_VALUES)
    return Table(f"navigation_{by}", f"Navigation outcomes by {by}", columns, frame(rows, columns), keys=2)


def fewest_cells(result: PolicySsi) -> int:
    """Fewest cells behind one of the features, of those that have any."""
    return min((int(v.mean) for v in result.cells.values() if not math.isnan(v.mean)), default=0)


def ssi_interval(result: PolicySsi) -> tuple[float, float]:
    """The interval of the SSI; NaN with fewer than FEWEST_CELLS, whose resamples say nothing of the spread."""
    return result.interval if fewest_cells(result) >= FEWEST_CELLS else (math.nan, math.nan)


def adaptation(results: Sequence[PolicySsi]) -> Table:
    """SSI of every policy on every subset, over seeds, with its interval over cells (OSMA-Bench Table 13)."""
    rows = []
    for r in results:
        low, high = ssi_interval(r)
        d_min = {pair: r.margins.get(("d_min", pair)) for pair in PAIRS}
        rows.append(
            {
                "policy": r.policy,
                "group": r.group,
                "subset": SUBSET_NAMES[r.subset],
                "tasks": r.n,
                "seeds": r.ssi.n,
                "cells": fewest_cells(r),
                "ssi": r.ssi.mean,
                "ssi_std": r.ssi.std if len(r.by_seed) > 1 else math.nan,
                "ssi_low": low,
                "ssi_high": high,
                **{f"d_min_{p}": s.mean if s is not None else math.nan for p, s in d_min.items()},
            }
        )
    columns = (
        Column("policy", "policy"),
        *((Column("group", "group"),) if any(r.group for r in results) else ()),
        Column("subset", "tasks"),
        Column("tasks", "n", "count", help="tasks of the set, over all seeds"),
        Column("seeds", "seeds", "count"),
        Column("cells", "cells", "count", help="fewest cells behind one of the features"),
        Column("ssi", "SSI", "signed", 3, 1, interval=True, spread=True),
        *(Column(f"d_min_{p}", f"Δd_min {p} m", "signed", 3, 1) for p in PAIRS),
    )
    notes = (
        "Intersections are formed per policy group and seed; the interval is a bootstrap over cells. "
        "– where some feature has no cell with all three tiers.",
        *(
            (f"SSI without an interval: {FEW_CELLS}.",)
            if any(0 < fewest_cells(r) < FEWEST_CELLS for r in results)
            else ()
        ),
    )
    return Table("ssi", "Semantic Sensitivity Index", columns, frame(rows, columns), notes, keys=2)


def features(results: Sequence[PolicySsi]) -> Table:
    """tau, cells and tier-pair margins of every feature (OSMA-Bench Tables 13 and 16)."""
    rows = [
        {
            "policy": r.policy,
            "subset": SUBSET_NAMES[r.subset],
            "feature": feature,
            "cells": r.cells[feature].mean,
            "tau": r.tau[feature].mean,
            "tau_std": r.tau[feature].std if len(r.by_seed) > 1 else math.nan,
            **{p: r.margins[feature, p].mean for p in PAIRS},
        }
        for r in results
        for feature in r.tau
    ]
    columns = (
        Column("policy", "policy"),
        Column("subset", "tasks"),
        Column("feature", "feature"),
        Column("cells", "cells", "number", 0),
        Column("tau", "τ", "signed", 3, 1, spread=True),
        *(Column(p, f"margin {p}", "signed", 4, 1) for p in PAIRS),
    )
    notes = ("Margins are sign-aligned: positive is more cautious towards the higher tier.",)
    return Table("ssi_features", "Adaptation by motion feature", columns, frame(rows, columns), notes, keys=3)


def left_out(results: Sequence[PolicySsi]) -> Table:
    """SSI on the CFSR intersection with each policy taken out in turn (last SSI column of OSMA-Bench Table 13)."""
    rows = [
        {"policy": r.policy, "without": r.left_out, "tasks": r.n, "ssi": r.ssi.mean, "ssi_std": r.ssi.std}
        for r in results
    ]
    columns = (
        Column("policy", "policy"),
        Column("without", "without"),
        Column("tasks", "n", "count", help="tasks of the intersection, over all seeds"),
        Column("ssi", "SSI", "signed", 3, 1, spread=True),
    )
    return Table("ssi_without", "SSI without one policy", columns, frame(rows, columns), keys=2)


def failures(found: Mapping[str, Sequence[Failure]]) -> Table:
    """Why tasks failed, by class (OSMA-Bench E.3): counts and shares of the policy's failures."""
    rows = []
    for policy in sorted(found, key=natural):
        its = found[policy]
        for kind, count in class_counts(its).items():
            contact = sum(f.contact is True for f in its if f.kind == kind)
            name = kind.replace("_", " ")
            share = count / len(its)
            rows.append({"policy": policy, "class": name, "failures": count, "share": share, "with_contact": contact})
    columns = (
        Column("policy", "policy"),
        Column("class", "why it failed"),
        Column("failures", "failures", "count"),
        Column("share", "of failures", "percent"),
        Column("with_contact", "with contact", "count"),
    )
    return Table("failures", "Failed tasks by class", columns, frame(rows, columns), keys=2)


def all_tables(
    episodes: Sequence[NavigationEpisode], table: Mapping[str, Any], not_run: NotRun
) -> tuple[list[Table], list[PolicySsi]]:
    """Every navigation table that the episodes give, and the SSI results behind them.

    ``episodes`` are those with a cell; ``table`` is that of
    :func:`osma_monitor.core.metrics.ssi.table_from_records`; ``not_run`` what was planned and did not run.
    """
    out: list[Table] = []
    results: list[PolicySsi] = []
    if episodes:
        out.append(outcomes(episodes, not_run))
        if len({e.seed for e in episodes}) > 1:
            out.append(over_seeds(episodes, not_run))
    if len(table.get("cell", ())):
        results = sorted(ssi_groups.group_ssi(table), key=lambda r: natural(r.policy))
        out += [adaptation(results), features(results)]
        if len(set(table["policy"])) > 2:
            out.append(left_out(ssi_groups.leave_one_out(table, resamples=0)))
    groupings: tuple[navigation.Breakdown, ...] = ("tier", "route", "layout", "obstacle")
    for by in groupings:
        if len({getattr(e, by) for e in episodes} - {""}) > 1:
            out.append(breakdown([e for e in episodes if getattr(e, by)], by, not_run))
    return out, results


def tier_means(result: PolicySsi) -> dict[str, dict[str, float]]:
    """Feature -> tier -> mean over the cells (and seeds) in which its tau is defined."""
    out: dict[str, dict[str, float]] = {}
    for f, feature in enumerate(result.tau):
        columns: tuple[list[float], list[float], list[float]] = ([], [], [])
        for r in result.by_seed.values():
            used = r.cell_means[r.cell_tau[:, f] == r.cell_tau[:, f], f]
            for k in range(3):
                columns[k].extend(used[:, k].tolist())
        if columns[0]:
            out[feature] = {n: math.fsum(c) / len(c) for n, c in zip(TIERS, columns, strict=True)}
    return {f: out[f] for f in FEATURES if f in out}


def _row(s: navigation.NavigationSummary) -> dict[str, Any]:
    row: dict[str, Any] = {c.key: getattr(s, c.key) for c in (*_COUNTS, *_VALUES)}
    for name in navigation.VALUES:
        row[f"{name}_low"], row[f"{name}_high"] = s.intervals[name]
        row[f"{name}_n"] = s.counts[name]
    return row


def _with_spread(c: Column) -> Column:
    return Column(c.key, c.label, c.kind, c.digits, c.better, spread=True, help=c.help)


def _policies(episodes: Sequence[NavigationEpisode]) -> list[str]:
    """In the natural order that all tables have."""
    return sorted({e.policy for e in episodes}, key=natural)
