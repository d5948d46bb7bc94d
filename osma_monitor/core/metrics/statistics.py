"""Intervals, tests and rank correlations. Seeded, vectorised, bounded in memory; NaN where a value is not defined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Interval = tuple[float, float]

#: `map`, or the map of a pool of threads: calls that do not depend on each other, results in their order. Everything
#: that is drawn at random has a seed of its own, so that the number of threads changes no bit.
Each = Callable[..., Iterable[Any]]

NAN = float("nan")
UNDEFINED: Interval = (NAN, NAN)

#: Elements that a resampling holds at once: small enough for the processor's cache.
_BLOCK = 1 << 18
#: Distinct values up to which their counts are drawn instead of the values.
_FEW = 16


def _vector(values: ArrayLike, name: str) -> Floats:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must have one dimension, found shape {vector.shape}")
    return vector


def _pair(x: ArrayLike, y: ArrayLike, names: tuple[str, str] = ("x", "y")) -> tuple[Floats, Floats]:
    a, b = _vector(x, names[0]), _vector(y, names[1])
    if len(a) != len(b):
        raise ValueError(f"{names[0]} has {len(a)} values and {names[1]} has {len(b)}; they must be equally long")
    return a, b


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, found {confidence}")


# ---- proportions


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a proportion, as fractions; (nan, nan) without trials.

    Raises:
        ValueError: counts that are negative or no whole numbers, more successes than trials.
    """
    _check_confidence(confidence)
    k, n = _count(successes, "successes"), _count(trials, "trials")
    if k > n:
        raise ValueError(f"{k} successes in {n} trials")
    if n == 0:
        return UNDEFINED
    z = float(special.ndtri(0.5 + confidence / 2.0))
    p = k / n
    denominator = 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / denominator
    half = z * math.sqrt(p * (1.0 - p) / n + z * z / (4 * n * n)) / denominator
    # at 0 and n of n the bound is exact; rounding must not move it
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return low, high


def _count(value: int, name: str) -> int:
    if not (math.isfinite(value) and value >= 0 and int(value) == value):
        raise ValueError(f"{name} must be a whole number of at least 0, found {value}")
    return int(value)


# ---- bootstrap


def bootstrap_interval(values: ArrayLike, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95) -> Interval:
    """Percentile bootstrap interval of the mean over episodes (SafeVLA-Bench 4.1); (nan, nan) without values.

    Raises:
        ValueError: a NaN or inf among the values.
    """
    sample = _finite(values, "values")
    if not len(sample):
        return UNDEFINED
    return _percentiles(bootstrap_means(sample, resamples, seed), confidence)


def bootstrap_means(values: ArrayLike, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Means of ``resamples`` samples drawn with replacement.

    Of few distinct values only their counts are drawn (a multinomial, the same distribution). Of many, the most common
    one needs no drawing of its own: a binomial says how many of a resample are others, and only those are drawn. Where
    most episodes are safe (depth 0) that is most of the work.
    """
    sample = np.sort(_finite(values, "values"))  # the order of the episodes must not matter
    n = len(sample)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, found {resamples}")
    if n == 0:
        return np.full(resamples, NAN)
    rng = np.random.default_rng(seed)
    base, counts = np.unique(sample, return_counts=True)
    if len(base) == 1:
        return np.full(resamples, base[0])
    if len(base) <= _FEW:
        drawn_counts = rng.multinomial(n, counts / n, size=resamples)
        return np.asarray(np.clip((drawn_counts * base).sum(axis=1) / n, base[0], base[-1]))
    common = float(base[counts.argmax()])
    others = sample[sample != common] - common
    drawn = rng.binomial(n, len(others) / n, size=resamples)
    means = np.full(resamples, common)
    for block in _blocks(resamples, max(1, int(drawn.max()))):
        size = drawn[block]
        total = int(size.sum())
        picks = others[rng.integers(0, len(others), size=total, dtype=np.int32)]
        some = np.flatnonzero(size)  # an empty segment has no sum to reduce
        starts = (np.cumsum(size) - size)[some]
        means[block.start + some] += np.add.reduceat(picks, starts) / n if len(some) else 0.0
    return means


def _blocks(count: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def _percentiles(values: Floats, confidence: float) -> Interval:
    _check_confidence(confidence)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)


def _finite(values: ArrayLike, name: str) -> Floats:
    sample = _vector(values, name)
    bad = np.flatnonzero(~np.isfinite(sample))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {sample[bad[0]]}: leave unknown episodes out first")
    return sample


# ---- paired comparison


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of b − a over the same tasks and seeds."""

    n: int
    difference: float
    interval: Interval  #: bootstrap over pairs


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> PairedDifference:
    """Mean difference b − a with its bootstrap interval over pairs; NaN without pairs.

    Raises:
        ValueError: unequal lengths, NaN or inf.
    """
    first, second = _pair(a, b, ("a", "b"))
    difference = _finite(second, "b") - _finite(first, "a")
    if not len(difference):
        return PairedDifference(0, NAN, UNDEFINED)
    return PairedDifference(
        len(difference), float(difference.mean()), bootstrap_interval(difference, resamples, seed, confidence)
    )


@dataclass(frozen=True, slots=True)
class McNemar:
    """Discordant pairs of two policies on the same episodes and the exact two-sided p."""

    only_a: int
    only_b: int
    p: float


def mcnemar_exact(only_a: int, only_b: int) -> McNemar:
    """Exact (binomial) McNemar test of discordant counts; p = 1 without discordant pairs."""
    a, b = _count(only_a, "only_a"), _count(only_b, "only_b")
    n = a + b
    p = 1.0 if n == 0 else min(1.0, 2.0 * float(stats.binom.cdf(min(a, b), n, 0.5)))
    return McNemar(a, b, p)


# ---- rank correlation


def _sign(values: Floats) -> NDArray[np.int8]:
    first, second = np.triu_indices(len(values), 1)
    return np.sign(values[first] - values[second]).astype(np.int8)


def _tau(x: NDArray[np.int8], y: NDArray[np.int8]) -> float:
    both = math.sqrt(float(np.count_nonzero(x)) * float(np.count_nonzero(y)))
    return float(np.dot(x.astype(np.int64), y.astype(np.int64))) / both if both else NAN


def kendall_tau_b(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's tau_b; NaN with fewer than two values, when one side is all ties, or for a NaN.

    Raises:
        ValueError: unequal lengths.
    """
    a, b = _pair(x, y)
    if len(a) < 2 or np.isnan(a).any() or np.isnan(b).any():
        return NAN
    if len(a) > 3000:  # the pair table would not stay small
        return float(stats.kendalltau(a, b, variant="b").statistic)
    return _tau(_sign(_ranked(a)), _sign(_ranked(b)))


def _ranked(values: Floats) -> Floats:
    """Ranks (average of ties), so that a difference of infinities is defined."""
    ranks: Floats = stats.rankdata(values)
    return ranks


def spearman_rho(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation with average ranks for ties; NaN as for `kendall_tau_b`."""
    a, b = _pair(x, y)
    if len(a) < 2 or np.isnan(a).any() or np.isnan(b).any():
        return NAN
    return _pearson(_ranked(a), _ranked(b))


def _pearson(a: Floats, b: Floats) -> float:
    da, db = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(np.dot(da, da)) * float(np.dot(db, db)))
    return max(-1.0, min(1.0, float(np.dot(da, db)) / scale)) if scale else NAN


Statistic = Literal["kendall", "spearman"]


def permutation_p(
    x: ArrayLike,
    y: ArrayLike,
    statistic: Statistic = "kendall",
    resamples: int = 10_000,
    seed: int = 0,
    groups: Sequence[object] | None = None,
    between: bool = False,
) -> float:
    """Two-sided permutation p of a rank correlation: (1 + as extreme) / (1 + resamples); NaN when it is not defined.

    ``groups`` permutes inside each group alone and takes the statistic over the pairs inside groups (kendall) or over
    the ranks inside groups (spearman). ``between`` permutes over all values and takes Kendall's statistic over the
    pairs of different groups.

    Raises:
        ValueError: unequal lengths, fewer than one resample, ``between`` for another statistic or without groups.
    """
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, found {resamples}")
    a, b = _pair(x, y)
    if between:
        if statistic != "kendall" or groups is None:
            raise ValueError("a permutation p between groups needs groups and Kendall's statistic")
        return _between_p(a, b, _labels(groups, len(a)), resamples, seed)
    labels = _labels(groups, len(a))
    observed = _grouped(a, b, labels, statistic)
    if math.isnan(observed):
        return NAN
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == g) for g in range(labels.max() + 1)]
    compute = _permuted(a, b, labels, statistic)
    width = len(a) * (len(a) - 1) // 2 if statistic == "kendall" else len(a)
    extreme = 0
    for block in _blocks(resamples, 4 * width):
        order = np.tile(np.arange(len(a)), (block.stop - block.start, 1))
        for rows in members:
            order[:, rows] = rng.permuted(order[:, rows], axis=1)
        extreme += int(np.count_nonzero(np.abs(compute(order)) >= abs(observed) - 1e-12))
    return (1 + extreme) / (1 + resamples)


def _between_p(a: Floats, b: Floats, labels: NDArray[np.intp], resamples: int, seed: int) -> float:
    """Ties inside the chosen pairs change with the permutation, so every permutation has a denominator of its own."""
    if len(a) < 2 or np.isnan(a).any() or np.isnan(b).any():
        return NAN
    first, second = np.triu_indices(len(a), 1)
    across = labels[first] != labels[second]
    first, second = first[across], second[across]
    rank_a, rank_b = (np.unique(v, return_inverse=True)[1].astype(np.int32) for v in (a, b))
    sx = np.sign(rank_a[first] - rank_a[second]).astype(np.float32)
    ties_x = float(np.count_nonzero(sx))

    def taus(order: NDArray[np.intp]) -> Floats:
        permuted = rank_b[order]
        signs = np.sign(permuted[:, first] - permuted[:, second]).astype(np.float32)
        ties = np.sqrt(ties_x * np.count_nonzero(signs, axis=1))
        return np.asarray(np.divide(signs @ sx, ties, out=np.zeros(len(order)), where=ties > 0))

    observed = _tau(sx.astype(np.int8), np.sign(rank_b[first] - rank_b[second]).astype(np.int8))
    if math.isnan(observed):
        return NAN
    rng = np.random.default_rng(seed)
    extreme = 0
    for block in _blocks(resamples, 4 * len(first)):
        order = rng.permuted(np.tile(np.arange(len(a)), (block.stop - block.start, 1)), axis=1)
        extreme += int(np.count_nonzero(np.abs(taus(order)) >= abs(observed) - 1e-6))  # single precision
    return (1 + extreme) / (1 + resamples)


def grouped_spearman(x: ArrayLike, y: ArrayLike, groups: Sequence[object]) -> tuple[float, float]:
    """Spearman's rho inside groups (ranks inside each group, centred there) and between them (of the groups' means).

    Raises:
        ValueError: unequal lengths.
    """
    a, b = _pair(x, y)
    labels = _labels(groups, len(a))
    within = _grouped(a, b, labels, "spearman")
    return within, spearman_rho(group_means(a, groups), group_means(b, groups))


def group_means(values: ArrayLike, groups: Sequence[object]) -> Floats:
    """Mean of the values of each group, in the order in which the groups first occur."""
    vector = _vector(values, "values")
    labels = _labels(groups, len(vector))
    return np.array([math.fsum(vector[labels == g]) / np.count_nonzero(labels == g) for g in np.unique(labels)])


def _labels(groups: Sequence[object] | None, n: int) -> NDArray[np.intp]:
    if groups is None:
        return np.zeros(n, np.intp)
    if len(groups) != n:
        raise ValueError(f"groups has {len(groups)} labels for {n} values; they must be equally long")
    codes: dict[object, int] = {}
    return np.array([codes.setdefault(g, len(codes)) for g in groups], np.intp)


def _grouped(a: Floats, b: Floats, labels: NDArray[np.intp], statistic: Statistic) -> float:
    if len(a) < 2 or np.isnan(a).any() or np.isnan(b).any():
        return NAN
    if statistic == "kendall":
        first, second = np.triu_indices(len(a), 1)
        within = labels[first] == labels[second]
        return _tau(_sign(_ranked(a))[within], _sign(_ranked(b))[within])
    return _pearson(*(_group_ranks(v, labels) for v in (a, b)))


def _group_ranks(values: Floats, labels: NDArray[np.intp]) -> Floats:
    ranks = np.empty_like(values)
    for g in range(labels.max() + 1):
        rows = labels == g
        inside = stats.rankdata(values[rows])
        ranks[rows] = inside - inside.mean()
    return ranks


def _permuted(
    a: Floats, b: Floats, labels: NDArray[np.intp], statistic: Statistic
) -> Callable[[NDArray[np.intp]], Floats]:
    if statistic == "spearman":
        ra, rb = _group_ranks(a, labels), _group_ranks(b, labels)
        ra, rb = ra - ra.mean(), rb - rb.mean()
        scale = math.sqrt(float(np.dot(ra, ra)) * float(np.dot(rb, rb)))
        return lambda order: np.asarray(rb[order] @ ra / scale)
    first, second = np.triu_indices(len(a), 1)
    within = labels[first] == labels[second]
    first, second = first[within], second[within]
    # small whole ranks: their differences and signs cost a fraction of floats
    rank_a, rank_b = (np.unique(v, return_inverse=True)[1].astype(np.int32) for v in (a, b))
    sx = np.sign(rank_a[first] - rank_a[second]).astype(np.float32)
    ties = math.sqrt(float(np.count_nonzero(sx)) * float(np.count_nonzero(rank_b[first] != rank_b[second])))

    def taus(order: NDArray[np.intp]) -> Floats:
        permuted = rank_b[order]
        signs = np.sign(permuted[:, first] - permuted[:, second]).astype(np.float32)
        return np.asarray(signs @ sx, np.float64) / ties

    return taus


@dataclass(frozen=True, slots=True)
class GroupedTau:
    """Kendall's tau_b over all pairs, those inside a group, and those between groups (SafeVLA-Bench F1)."""

    pooled: float
    within: float
    between: float
    n_within: int  #: pairs
    n_between: int
    per_group: dict[object, float]


def grouped_kendall(x: ArrayLike, y: ArrayLike, groups: Sequence[object]) -> GroupedTau:
    """Kendall's tau_b on the pooled set of within-group and of between-group pairs, and per group.

    Raises:
        ValueError: unequal lengths.
    """
    a, b = _pair(x, y)
    labels = _labels(groups, len(a))
    names = list(dict.fromkeys(groups))
    per_group = {name: kendall_tau_b(a[labels == g], b[labels == g]) for g, name in enumerate(names)}
    if np.isnan(a).any() or np.isnan(b).any() or len(a) < 2:
        return GroupedTau(NAN, NAN, NAN, 0, 0, per_group)
    first, second = np.triu_indices(len(a), 1)
    within = labels[first] == labels[second]
    sx, sy = _sign(_ranked(a)), _sign(_ranked(b))
    return GroupedTau(
        pooled=_tau(sx, sy),
        within=_tau(sx[within], sy[within]),
        between=_tau(sx[~within], sy[~within]),
        n_within=int(np.count_nonzero(within)),
        n_between=int(np.count_nonzero(~within)),
        per_group=per_group,
    )
