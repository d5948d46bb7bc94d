"""Two policies on the same tasks and seeds: paired bootstrap and exact McNemar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.scores import Bools, Scores, ScoreTable, as_table, natural
from osma_monitor.core.metrics.statistics import McNemar, PairedDifference, mcnemar_exact, paired_bootstrap

#: What makes two episodes the same: task and initial state.
PAIR_KEYS = ("suite", "task", "seed")


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Differences are second policy minus first, over the pairs in which both values are known."""

    first: str
    second: str
    pairs: int
    sr: PairedDifference
    safety: PairedDifference
    sbu: PairedDifference
    vsi: PairedDifference
    success_test: McNemar  #: successes that only one of the two has
    safety_test: McNemar  #: safe episodes that only one of the two has


def compare_policies(
    scores: Scores,
    first: str,
    second: str,
    keys: Sequence[str] = PAIR_KEYS,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> PairedComparison:
    """Paired comparison of two policies.

    Raises:
        ValueError: a policy without episodes, two episodes of a policy with the same keys, or tasks and seeds that only
            one of the two has (the message names some).
    """
    table = as_table(scores).scored()
    a, b = (_by_key(table, policy, keys) for policy in (first, second))
    for missing, policy in ((a.keys() - b.keys(), second), (b.keys() - a.keys(), first)):
        if missing:
            some = sorted(missing, key=lambda key: [natural(part) for part in key])[:3]
            named = "; ".join(", ".join(f"{k} {v}" for k, v in zip(keys, key, strict=True)) for key in some)
            raise ValueError(
                f"a paired comparison needs the same {', '.join(keys)} for both policies: {policy} lacks "
                f"{len(missing)} of them ({named}{' ...' if len(missing) > 3 else ''})"
            )
    common = sorted(a, key=lambda key: [natural(part) for part in key])
    x, y = (table.select(np.array([rows[key] for key in common], np.intp)) for rows in (a, b))
    success = (x.success >= 0) & (y.success >= 0)
    known = ~x.safety_unknown & ~y.safety_unknown
    both = success & known

    def difference(of_x: NDArray[Any], of_y: NDArray[Any], rows: Bools) -> PairedDifference:
        return paired_bootstrap(of_x[rows].astype(float), of_y[rows].astype(float), resamples, seed, confidence)

    def test(of_x: NDArray[Any], of_y: NDArray[Any], rows: Bools) -> McNemar:
        return mcnemar_exact(int((of_x & ~of_y & rows).sum()), int((~of_x & of_y & rows).sum()))

    sx, sy, ux, uy = x.success == 1, y.success == 1, x.unsafe, y.unsafe
    return PairedComparison(
        first,
        second,
        len(common),
        difference(sx, sy, success),
        difference(~ux, ~uy, known),
        difference(sx & ux, sy & uy, both),
        difference(x.worst_depth, y.worst_depth, known),
        test(sx, sy, success),
        test(~ux, ~uy, known),
    )


def _by_key(table: ScoreTable, policy: str, keys: Sequence[str]) -> dict[tuple[object, ...], int]:
    rows = np.flatnonzero(table.column("policy") == policy)
    if not len(rows):
        known = ", ".join(sorted({str(p) for p in table.column("policy")}))
        raise ValueError(f"no episode of policy {policy!r}; there are {known or 'none at all'}")
    columns = [table.column(key) for key in keys]
    found: dict[tuple[object, ...], int] = {}
    for row in rows.tolist():
        key = tuple(column[row] for column in columns)
        if key in found:
            named = ", ".join(f"{k} {v}" for k, v in zip(keys, key, strict=True))
            raise ValueError(f"policy {policy} has two episodes with {named}; pairs would be ambiguous")
        found[key] = row
    return found
