"""Rankings of policies: does success predict safety (F1), and do rankings survive other thresholds (F3, Table 12)?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from osma_monitor.core.metrics.safety import SafetySummary
from osma_monitor.core.metrics.statistics import (
    Each,
    Floats,
    GroupedTau,
    Statistic,
    group_means,
    grouped_kendall,
    grouped_spearman,
    kendall_tau_b,
    permutation_p,
    spearman_rho,
)

NAN = float("nan")

#: Metrics that policies are ranked by; +1 where larger is better.
DIRECTION: Mapping[str, int] = {"safety": 1, "sbu": -1, "vsi": -1}


@dataclass(frozen=True, slots=True)
class Correlation:
    """Rank correlation of two values of the cells, pooled, within suites and between suites (SafeVLA-Bench F1)."""

    x: str
    y: str
    n: int  #: cells in which both values are defined
    kendall: float
    kendall_p: float  #: permutation, two-sided
    spearman: float
    spearman_p: float
    kendall_within: float  #: over the pairs of cells of one suite
    kendall_within_p: float  #: permuting inside suites
    kendall_between: float  #: over the pairs of cells of different suites
    kendall_between_p: float  #: permuting over all cells
    spearman_within: float  #: of the ranks inside suites
    spearman_within_p: float  #: permuting inside suites
    spearman_between: float  #: of the suites' means
    spearman_between_p: float  #: permuting the suites' means
    pairs_within: int
    pairs_between: int
    per_suite: Mapping[str, float]  #: Kendall tau_b
    per_suite_p: Mapping[str, float]
    same_top: Mapping[str, bool]  #: whether a best policy by one is also a best by the other; ties count as best


def correlate(
    cells: Mapping[tuple[object, ...], SafetySummary | Mapping[str, float]],
    x: str = "sr",
    y: str = "safety",
    resamples: int = 10_000,
    seed: int = 0,
    each: Each = map,
) -> Correlation:
    """Rank correlation of two values over (suite, policy) cells.

    Args:
        cells: what `safety.by_group(scores, ("suite", "policy"))` gives; the first part of the key is the suite.
        x: name of the first value, such as sr.
        y: name of the second, such as safety or vsi.
        resamples: of the permutation tests.
        seed: of the permutation tests.
        each: runs the permutation tests; a pool's map runs them at once, with the same result.
    """
    rows = [(str(key[0]), _value(cell, x), _value(cell, y)) for key, cell in cells.items()]
    rows = [row for row in rows if not (math.isnan(row[1]) or math.isnan(row[2]))]
    suites = [row[0] for row in rows]
    a, b = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    grouped: GroupedTau = grouped_kendall(a, b, suites)
    within, between = grouped_spearman(a, b, suites)
    inside = {suite: np.array([s == suite for s in suites]) for suite in dict.fromkeys(suites)}

    def p_of(x: Floats, y: Floats, statistic: Statistic, grouped: bool = False, between: bool = False) -> Test:
        groups = suites if grouped else None
        return lambda: permutation_p(x, y, statistic, resamples, seed, groups=groups, between=between)

    tests: dict[str, Test] = {
        "kendall_between_p": p_of(a, b, "kendall", grouped=True, between=True),
        "kendall_within_p": p_of(a, b, "kendall", grouped=True),
        "kendall_p": p_of(a, b, "kendall"),
        "spearman_p": p_of(a, b, "spearman"),
        "spearman_within_p": p_of(a, b, "spearman", grouped=True),
        "spearman_between_p": p_of(group_means(a, suites), group_means(b, suites), "spearman"),
    }
    per_suite = {suite: p_of(a[chosen], b[chosen], "kendall") for suite, chosen in inside.items()}
    p = list(each(_run, [*tests.values(), *per_suite.values()]))
    return Correlation(
        x=x,
        y=y,
        n=len(rows),
        kendall=grouped.pooled,
        spearman=spearman_rho(a, b),
        kendall_within=grouped.within,
        kendall_between=grouped.between,
        spearman_within=within,
        spearman_between=between,
        **dict(zip(tests, p, strict=False)),
        pairs_within=grouped.n_within,
        pairs_between=grouped.n_between,
        per_suite={str(name): tau for name, tau in grouped.per_group.items()},
        per_suite_p=dict(zip(per_suite, p[len(tests) :], strict=True)),
        same_top={suite: _same_top(a[rows] * _sign(x), b[rows] * _sign(y)) for suite, rows in inside.items()},
    )


Test = Callable[[], float]


def _run(test: Test) -> float:
    return test()


def _sign(value: str) -> int:
    return DIRECTION.get(value, -1 if value.startswith(("vsi", "sbu", "unsafe")) else 1)


def _same_top(a: Floats, b: Floats) -> bool:
    return bool(((a == a.max()) & (b == b.max())).any())


def _value(cell: SafetySummary | Mapping[str, float], name: str) -> float:
    value = cell.get(name, NAN) if isinstance(cell, Mapping) else getattr(cell, name)
    return float(value)


@dataclass(frozen=True, slots=True)
class RankingCell:
    """One suite and metric: the order of the policies under a variant against the default."""

    variant: str
    suite: str
    metric: str
    n: int  #: policies
    tau: float  #: Kendall tau_b; 1 where no value moved
    binding: bool  #: the variant changed at least one value
    top_unchanged: bool  #: the set of best policies is the same; a unique top that becomes a tie has changed


@dataclass(frozen=True, slots=True)
class RankingAgreement:
    """Means over cells (Table 12)."""

    cells: int
    binding: int
    tau: float  #: mean over all cells in which it is defined
    tau_binding: float  #: mean over binding cells
    top_unchanged: int
    top_unchanged_binding: int
    undefined: int  #: cells in which tau is not defined, because every policy ties


def ranking_cells(
    default: Mapping[tuple[object, ...], SafetySummary | Mapping[str, float]],
    variants: Mapping[str, Mapping[tuple[object, ...], SafetySummary | Mapping[str, float]]],
    metrics: Sequence[str] = tuple(DIRECTION),
) -> list[RankingCell]:
    """Compare the ranking of policies under each variant with the default ranking, in each suite and by each metric.

    A policy without a known value on either side is left out; fewer than two others have no order and give no cell.

    Args:
        default: (suite, policy) -> values, as from `safety.by_group`.
        variants: name -> the same cells under other thresholds.
        metrics: names of the values.

    Raises:
        ValueError: a variant has other cells than the default.
    """
    suites = list(dict.fromkeys(str(key[0]) for key in default))
    found = []
    for variant, cells in variants.items():
        if cells.keys() != default.keys():
            odd = next(iter(cells.keys() ^ default.keys()))
            raise ValueError(f"variant {variant} and the default have different cells: only one of them has {odd}")
        for suite in suites:
            keys = [key for key in default if str(key[0]) == suite]
            for metric in metrics:
                a = np.array([_value(default[key], metric) for key in keys])
                b = np.array([_value(cells[key], metric) for key in keys])
                known = ~(np.isnan(a) | np.isnan(b))
                a, b = a[known] * _sign(metric), b[known] * _sign(metric)
                if len(a) < 2:
                    continue
                binding = bool((a != b).any())
                tau = kendall_tau_b(a, b) if binding else 1.0
                same = bool(np.array_equal(a == a.max(), b == b.max()))
                found.append(RankingCell(variant, suite, metric, len(a), tau, binding, same))
    return found


def agreement(cells: Iterable[RankingCell]) -> RankingAgreement:
    """Means and counts over cells, all of them and the binding ones."""
    rows = list(cells)
    binding = [row for row in rows if row.binding]
    return RankingAgreement(
        len(rows),
        len(binding),
        _mean([row.tau for row in rows]),
        _mean([row.tau for row in binding]),
        sum(row.top_unchanged for row in rows),
        sum(row.top_unchanged for row in binding),
        sum(math.isnan(row.tau) for row in rows),
    )


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else NAN
