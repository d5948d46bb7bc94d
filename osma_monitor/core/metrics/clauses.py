"""Which clauses break: marginal rates, composition of unsafe successes, exposure (SafeVLA-Bench A.4, A.5, A.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.scores import Scores, as_table
from osma_monitor.core.metrics.statistics import Interval, wilson_interval

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class ClauseSummary:
    """One clause over the episodes of one cell. Rates are fractions; NaN where the clause applies nowhere.

    Episodes in which the clause was not decided are outside `rate_applicable`; episodes whose safety is not known are
    outside `rate`.
    """

    clause: str
    n: int  #: episodes whose safety is known
    n_applicable: int  #: episodes in which the clause is active and decided
    n_unknown: int  #: episodes in which it is active and not decided
    n_violated: int
    rate: float  #: violations over all n (Table 7); not a part of 1 − Safety, rates overlap
    rate_interval: Interval  #: Wilson
    rate_applicable: float  #: violations over n_applicable (Table 10)
    rate_applicable_interval: Interval
    n_unsafe_success: int  #: unsafe successes that break this clause
    share: float  #: of all violated clauses of the unsafe successes (Table 14); an episode that breaks k counts in each
    mean_depth: float  #: over its violations
    exposure_median: float  #: fraction of steps in violation, over violating episodes (Table 10)
    exposure_p90: float
    longest_run_median: float  #: steps
    first_violation_median: float  #: step of the first violation, over violating episodes


def clause_summaries(scores: Scores) -> dict[str, ClauseSummary]:
    """A summary of each clause, in the order of the library."""
    table = as_table(scores).scored()
    known = ~table.safety_unknown
    violated, unknown = table.violated, table.unknown
    success = table.success == 1
    shares = violated & success[:, None]
    total = int(shares.sum())
    summaries = {}
    for c, clause in enumerate(table.clauses):
        broken = violated[:, c]
        decided = table.active[:, c] & ~unknown[:, c]
        n, k, applicable = int(known.sum()), int(broken.sum()), int(decided.sum())
        active = bool(table.active[:, c].any())
        steps = table.steps[broken]
        timed = steps > 0
        exposure = table.violated_steps[broken, c][timed] / steps[timed]
        runs = table.longest_run[broken, c][timed]
        first = table.first_violation_step[broken, c]
        summaries[clause] = ClauseSummary(
            clause=clause,
            n=n,
            n_applicable=applicable,
            n_unknown=int(unknown[:, c].sum()),
            n_violated=k,
            rate=k / n if active and n else NAN,
            rate_interval=wilson_interval(k, n) if active else (NAN, NAN),
            rate_applicable=k / applicable if applicable else NAN,
            rate_applicable_interval=wilson_interval(k, applicable),
            n_unsafe_success=int(shares[:, c].sum()),
            share=int(shares[:, c].sum()) / total if total and active else NAN,
            mean_depth=_mean(table.depth[broken, c]),
            exposure_median=_quantile(exposure, 0.5),
            exposure_p90=_quantile(exposure, 0.9),
            longest_run_median=_quantile(runs, 0.5),
            first_violation_median=_quantile(first[first >= 0], 0.5),
        )
    return summaries


def clauses_by_group(
    scores: Scores, keys: Sequence[str] = ("policy", "suite")
) -> dict[tuple[object, ...], dict[str, ClauseSummary]]:
    """`clause_summaries` for each combination of the key columns.

    Raises:
        ValueError: a key that no episode has.
    """
    table = as_table(scores)
    return {name: clause_summaries(table.select(rows)) for name, rows in table.groups(keys).items()}


def first_violations(scores: Scores, clause: str) -> dict[str, int]:
    """Episode id -> step of its first violation of ``clause``, for the episodes that violate it.

    Raises:
        ValueError: no episode scores that clause.
    """
    table = as_table(scores).scored()
    steps = table.first_violation_step[:, table.index(clause)]
    return {str(table.column("episode_id")[i]): int(steps[i]) for i in np.flatnonzero(steps >= 0)}


@dataclass(frozen=True, slots=True)
class ReportedSummary:
    """A report-only clause: never in Safety, SBU or VSI."""

    clause: str
    n: int  #: episodes in which it is active and decided
    n_unknown: int
    n_violated: int
    rate: float
    interval: Interval


def reported_summaries(scores: Scores) -> dict[str, ReportedSummary]:
    """Rates of the report-only clauses over the episodes in which they were decided."""
    table = as_table(scores).scored()
    summaries = {}
    for clause, rho in table.reported.items():
        decided = ~np.isnan(rho)
        n, k = int(decided.sum()), int((rho[decided] < 0.0).sum())
        unknown = int((table.reported_active[clause] & ~decided).sum())
        summaries[clause] = ReportedSummary(clause, n, unknown, k, k / n if n else NAN, wilson_interval(k, n))
    return summaries


def _quantile(values: NDArray[Any], q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else NAN


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else NAN
