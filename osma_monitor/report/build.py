"""From episode records to a report: one pass over the records, then every metric from columns.

Signals are kept only as far as traces need them and memory allows, so that a long run is scored in a small space.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics import navigation, safety, ssi
from osma_monitor.core.metrics.batch import columns_of
from osma_monitor.core.metrics.failures import Failure, failure_of
from osma_monitor.core.metrics.navigation_episode import NavigationEpisode, PlannedTask, episode_of
from osma_monitor.core.metrics.paired import PairedComparison
from osma_monitor.core.metrics.requested import requested_of, table_with_requests
from osma_monitor.core.metrics.scores import ScoreTable, as_table, concatenate, natural, score_records
from osma_monitor.core.metrics.ssi_groups import PolicySsi
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.core.safety import Library
from osma_monitor.io.bag.source import INPUTS
from osma_monitor.report import (
    clause_tables,
    condition_tables,
    motion_tables,
    navigation_tables,
    requested_tables,
    safety_tables,
    sensitivity_tables,
)
from osma_monitor.report.model import (
    ClauseSummary,
    Comparison,
    FeatureSummary,
    Figure,
    ObstacleSummary,
    PolicySummary,
    Report,
)
from osma_monitor.report.rescored import Rescored, rescored, signals_of, together
from osma_monitor.report.table import Table, based

#: Bytes of signals kept for traces; past it, only those of unsafe episodes, up to twice as many.
SIGNAL_BYTES = 400_000_000
_CHUNK = 256
DEFAULT_BY = ("suite", "policy")


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What scoring needs of all records."""

    scores: ScoreTable
    episodes: tuple[NavigationEpisode, ...]  #: those with a matched cell or a known obstacle
    adaptation: Mapping[str, Any]  #: columns for SSI
    requests: Mapping[str, Any]  #: the same with the control values that policies asked for, where they did
    failures: Mapping[str, tuple[Failure, ...]]  #: by policy, where a goal is known
    inactive: Mapping[tuple[str, str], int]  #: (clause, reason) -> episodes
    families: Mapping[str, str]  #: of each clause
    records: tuple[EpisodeRecord, ...]  #: without signals where they were not kept
    rescored: Rescored | None = None  #: all records under other thresholds
    driven: tuple[motion_tables.Driven, ...] = ()  #: motion features of episodes without a cell
    inputs: Mapping[str, int] = field(default_factory=dict)  #: how the inputs of bags were joined -> episodes


def collect(records: Iterable[EpisodeRecord], traces: bool = False, rescore: Sequence[Library] = ()) -> Collected:
    """One pass over ``records``.

    ``traces`` keeps their signals, within SIGNAL_BYTES. ``rescore`` are the libraries that may have judged: the records
    are scored under other thresholds of the one that did.
    """
    wanted = signals_of(rescore)
    pieces: list[Rescored | None] = []
    scores: list[ScoreTable] = []
    episodes: list[NavigationEpisode] = []
    columns: dict[str, list[Any]] = {}
    requests: dict[str, list[Any]] = {}
    failures: dict[str, list[Failure]] = {}
    inactive: Counter[tuple[str, str]] = Counter()
    families: dict[str, str] = {}
    kept: list[EpisodeRecord] = []
    driven: list[motion_tables.Driven] = []
    inputs: Counter[str] = Counter()
    used = 0
    for chunk in _chunks(records):
        scores.append(as_table(score_records(chunk)))
        if rescore:
            pieces.append(rescored(scores[-1], columns_of(chunk, wanted), rescore))
        for name, values in ssi.table_from_records(chunk).items():
            columns.setdefault(name, []).append(values)
        asking = [r for r in chunk if requested_of(r.info.attributes) is not None]
        for name, values in table_with_requests(asking).items() if asking else ():
            requests.setdefault(name, []).append(values)
        for record in chunk:
            inactive.update(record.inactive.items())
            inputs[record.provenance.session.get("inputs", "")] += 1
            families.update((c.clause, c.family) for c in record.clauses)
            if _navigates(record):
                features = motion_tables.driven(record)
                driven += [features] if features is not None else []
                episodes.append(episode_of(record))
                failure = failure_of(record) if "goal_x" in record.info.attributes else None
                if failure is not None:
                    failures.setdefault(record.info.policy, []).append(failure)
            size = sum(column.nbytes for column in record.signals.values())
            room = SIGNAL_BYTES * (2 if record.safety == "unsafe" else 1)
            keep = traces and used + size <= room
            used += size if keep else 0
            kept.append(record if keep else _without_steps(record))
    return Collected(
        concatenate(scores),
        tuple(episodes),
        {name: np.concatenate(parts) for name, parts in columns.items()},
        {name: np.concatenate(parts) for name, parts in requests.items()},
        {policy: tuple(found) for policy, found in failures.items()},
        dict(inactive),
        families,
        tuple(kept),
        together(pieces),
        tuple(driven),
        dict(inputs),
    )


def _input_notes(inputs: Mapping[str, int]) -> tuple[str, ...]:
    """Whether what was scored from bags had the inputs of a live run; nothing where no bag was."""
    said = [f"{inputs[mode]} with {text}" for mode, text in INPUTS.items() if inputs.get(mode)]
    return (f"Episodes from bags: {'; '.join(said)}.",) if said else ()


def _chunks(records: Iterable[EpisodeRecord]) -> Iterator[list[EpisodeRecord]]:
    source = iter(records)
    while chunk := list(islice(source, _CHUNK)):
        yield chunk


def _navigates(record: EpisodeRecord) -> bool:
    if record.info.attributes.get("cell"):
        return True
    distance = record.signals.get("obstacle_distance")
    return distance is not None and len(distance) > 0 and not bool(np.isnan(distance).all())


def _without_steps(record: EpisodeRecord) -> EpisodeRecord:
    ends = record.stamps_ns[[0, -1]] if len(record.stamps_ns) > 1 else record.stamps_ns
    return replace(record, signals={}, obstacle=(), stamps_ns=ends)


def build(
    collected: Collected,
    by: Sequence[str] = DEFAULT_BY,
    title: str = "Safety report",
    facts: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
    bootstrap: bool = True,
    plan: Iterable[PlannedTask] = (),
    each: Each = map,
) -> Report:
    """The whole report; ``about`` says what each clause demands.

    ``plan`` are the tasks that were to run, where that is known: TSR and CFSR divide by them.
    ``each`` is `map` or that of a pool of threads.

    Raises ValueError for a ``by`` column that no episode has.
    """
    table = collected.scores
    basis = safety_tables.basis_of(table, _input_notes(collected.inputs))
    adaptation = collected.adaptation if len(collected.adaptation.get("cell", ())) else {}
    not_run = navigation.without_a_run(plan, _ran(table))
    nav_tables, results = navigation_tables.all_tables(collected.episodes, adaptation, not_run)
    nav_tables += [
        t
        for t in (
            navigation_tables.failures(collected.failures),
            requested_tables.stalls(collected.failures),
        )
        if not t.empty
    ]
    if len(collected.requests.get("cell", ())):
        nav_tables.append(requested_tables.requested(collected.requests))
    summaries = policy_summaries(table, collected.episodes, results, bootstrap, not_run)
    clause_wise, comparisons = clause_tables.all_tables(table, by, each)
    comparison, note = headline_comparison(comparisons, [s.policy for s in summaries if s.n])
    why = () if table.clauses else (f"{motion_tables.why_unknown(collected.inactive)}.",)
    tables: list[Table] = [safety_tables.summary(table, by, why, bootstrap, each)]
    if collected.driven:
        tables.append(motion_tables.motion(collected.driven))
    if len({*table.column("suite")}) > 1:
        tables.append(safety_tables.macro(table, ("suite",)))
    tables += [*clause_wise, *nav_tables, *condition_tables.all_tables(table, collected.episodes)]
    tables += sensitivity_tables.all_tables(table, collected.rescored, each)
    if collected.inactive:
        tables.append(safety_tables.inactive(collected.inactive))
    return Report(
        title=title,
        policies=summaries,
        clauses=clause_summaries(table, collected.families, about or {}),
        features=feature_summaries(results),
        comparison=comparison,
        comparison_note=note,
        tables=tuple(based(tables, basis)),
        records=collected.records,
        gate_semantics=table.gate_semantics,
        library_hashes=table.library_hash,
        facts=facts or {},
        scores=table,
        obstacles=obstacle_summaries(collected.records),
        basis=basis,
    )


def _ran(table: ScoreTable) -> Iterator[tuple[str, str, int]]:
    """Policy, task and seed of the episodes that were not aborted."""
    columns = [table.column(name).tolist() for name in ("policy", "task", "seed")]
    for policy, task, seed, aborted in zip(*columns, table.aborted.tolist(), strict=True):
        if not aborted:
            yield str(policy), str(task), int(seed)


def policy_summaries(
    table: ScoreTable,
    episodes: Sequence[NavigationEpisode],
    results: Sequence[PolicySsi],
    bootstrap: bool = True,
    not_run: navigation_tables.NotRun = MappingProxyType({}),
) -> tuple[PolicySummary, ...]:
    """The headline figures of every policy, in natural order of their names."""
    outcomes = navigation_tables.by_policy(episodes, not_run)
    adaptation = {(r.policy, r.subset): r for r in results}
    out = []
    for (name,), rows in table.groups(("policy",)).items():
        part, policy = table.select(rows), str(name)
        s = safety.summarize(part, bootstrap=bootstrap)
        decided = s.n - s.n_outcome_unknown
        known = s.n - s.n_unknown
        both = sum(n for kind, n in safety_tables.outcome_counts(part).items() if kind != "unknown")
        sizes = {"sr": decided, "safety": known, "sbu": both, "vsi": known}
        figures = {
            key: Figure(getattr(s, key), *s.intervals.get(key, (math.nan, math.nan)), n) for key, n in sizes.items()
        }
        if policy in outcomes:
            o = outcomes[policy]
            rates = ("tsr", "cfsr", "cfsr_over_tsr")
            figures |= {key: Figure(getattr(o, key), *o.intervals[key], o.counts[key]) for key in rates}
        for key, subset in (("ssi", "all"), ("ssi_cfsr", "cfsr")):
            r = adaptation.get((policy, subset))  # type: ignore[arg-type]
            if r is not None:
                figures[key] = Figure(r.ssi.mean, *navigation_tables.ssi_interval(r), r.n)
        out.append(
            PolicySummary(
                policy=policy,
                n=s.n,
                unknown=s.n_unknown,
                aborted=s.n_aborted,
                incomplete=s.n_incomplete,
                figures=figures,
                safety_worst=s.bounds["safety"][0],
                safety_best=s.bounds["safety"][1],
                outcomes=safety_tables.outcome_counts(part),
                outcome_unknown=s.n_outcome_unknown,
            )
        )
    return tuple(out)


def clause_summaries(
    table: ScoreTable, families: Mapping[str, str], about: Mapping[str, str]
) -> tuple[ClauseSummary, ...]:
    """Every scored clause under every policy, for the page."""
    scored = table.scored()
    violated, unknown = scored.violated, scored.unknown
    out = []
    for (policy,), rows in scored.groups(("policy",)).items():
        for c, clause in enumerate(scored.clauses):
            bad = rows[violated[rows, c]]
            steps = np.maximum(scored.steps[bad], 1)
            out.append(
                ClauseSummary(
                    policy=str(policy),
                    clause=clause,
                    family=families.get(clause, ""),
                    about=about.get(clause, ""),
                    n=len(rows),
                    applicable=int(np.count_nonzero(scored.active[rows, c])),
                    broken=len(bad),
                    unknown=int(np.count_nonzero(unknown[rows, c])),
                    depths=tuple(scored.depth[bad, c].tolist()),
                    exposure=float(np.median(scored.violated_steps[bad, c] / steps)) if len(bad) else math.nan,
                    longest_run=float(np.median(scored.longest_run[bad, c])) if len(bad) else math.nan,
                )
            )
    return tuple(out)


def feature_summaries(results: Sequence[PolicySsi]) -> tuple[FeatureSummary, ...]:
    """Tier means and tau of every feature, over all tasks."""
    out = []
    for r in results:
        if r.subset != "all":
            continue
        means = navigation_tables.tier_means(r)
        for feature, tau in r.tau.items():
            cells = r.cells[feature].mean
            out.append(
                FeatureSummary(
                    policy=r.policy,
                    feature=feature,
                    tiers=means.get(feature, {}),
                    tau=tau.mean,
                    cells=0 if math.isnan(cells) else round(cells),
                )
            )
    return tuple(out)


def obstacle_summaries(records: Sequence[EpisodeRecord]) -> tuple[ObstacleSummary, ...]:
    """Every obstacle under every policy: the high tier first, inside a tier the one with most unsafe episodes."""
    cells: dict[tuple[str, str, str], list[EpisodeRecord]] = {}
    for r in records:
        obstacle, tier = r.info.attributes.get("obstacle", ""), r.info.attributes.get("tier", "")
        if obstacle and tier and r.outcome.status != "aborted":
            cells.setdefault((tier, obstacle, r.info.policy), []).append(r)
    out = []
    for (tier, obstacle, policy), its in cells.items():
        known = [r for r in its if r.safety != "unknown"]
        near = [r.motion.d_min for r in its if not math.isnan(r.motion.d_min)]
        mean = math.fsum(near) / len(near) if near else math.nan
        unsafe = sum(r.safety == "unsafe" for r in known)
        out.append(ObstacleSummary(policy, obstacle, tier, len(known), unsafe, mean))
    share: Counter[tuple[str, str]] = Counter()
    for s in out:
        share[s.tier, s.obstacle] += s.unsafe
    place = {tier: i for i, tier in enumerate(("high", "moderate", "low"))}
    key = {s: (place.get(s.tier, 3), -share[s.tier, s.obstacle], s.obstacle, natural(s.policy)) for s in out}
    return tuple(sorted(out, key=lambda s: key[s]))


def headline_comparison(
    comparisons: Sequence[PairedComparison], policies: Sequence[str]
) -> tuple[Comparison | None, str]:
    """The paired difference of two policies, the safer one first; a sentence where there is none.

    With more than two policies the paired table compares all of them, and there is no headline pair.
    """
    if len(policies) != 2:
        return None, ""
    found = next(iter(comparisons), None)
    if found is None or not found.safety.n:
        return (
            None,
            "The two policies share no task and seed of known safety: no paired difference.",
        )
    d, test = found.safety, found.safety_test
    if d.difference < 0:  # the second minus the first
        swapped = (-d.difference, -d.interval[1], -d.interval[0])
        return Comparison(found.first, found.second, d.n, *swapped, test.p, test.only_a, test.only_b), ""
    return Comparison(found.second, found.first, d.n, d.difference, *d.interval, test.p, test.only_b, test.only_a), ""
