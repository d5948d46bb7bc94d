"""What changes between two conditions on the same tasks (OSMA-Bench B.1, Table 4; G.1, Table 25)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from osma_monitor.core.metrics.statistics import mcnemar_exact, paired_bootstrap


@dataclass(frozen=True, slots=True)
class Flips:
    """Matched tasks whose outcome changed. failure_to_success - success_to_failure is the change in successes."""

    n: int  #: matched tasks, with a known outcome on both sides
    before: int  #: successes
    after: int
    success_to_failure: tuple[str, ...]  #: tasks
    failure_to_success: tuple[str, ...]
    difference: float  #: of the success fractions, after - before
    interval: tuple[float, float]  #: 95 %, paired bootstrap of tasks
    p_value: float  #: two-sided exact McNemar test
    unmatched: int  #: tasks on one side only, or not known on one


def outcome_flips(before: Mapping[str, bool | None], after: Mapping[str, bool | None]) -> Flips:
    """Compare two conditions task by task; the values are successes (Table 4: collision-free ones), None not known."""
    matched = [t for t in before if before[t] is not None and after.get(t) is not None]
    lost = tuple(t for t in matched if before[t] and not after[t])
    gained = tuple(t for t in matched if after[t] and not before[t])
    change = paired_bootstrap([float(before[t] or 0) for t in matched], [float(after[t] or 0) for t in matched])
    return Flips(
        len(matched),
        sum(bool(before[t]) for t in matched),
        sum(bool(after[t]) for t in matched),
        lost,
        gained,
        change.difference,
        change.interval,
        mcnemar_exact(len(lost), len(gained)).p,
        len(set(before) | set(after)) - len(matched),
    )
