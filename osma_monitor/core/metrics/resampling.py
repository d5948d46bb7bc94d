"""Bootstrap over cells: a cell is drawn with everything that was measured in it.

The tasks of one layout-route cell share geometry and route, so they are not independent draws; the cells are.

Cells are few. A percentile interval takes the normal quantile of a spread that is too small by sqrt((n - 1) / n), where
a t interval takes Student's quantile of the unbiased one: with five cells a nominal 95 % interval holds the mean in
about 83 % of samples. The expanded percentile interval (Hesterberg 2015, The American Statistician 69(4)) reads the
quantiles further out, at the levels where the two agree for symmetric data.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

RESAMPLES = 10_000
FEW = 100  #: units up to which counts are drawn once and kept
_BLOCK = 1 << 20  #: elements of one block of draws
_PRODUCT = 1 << 17  #: multiplications of one matrix product


@lru_cache(maxsize=8)
def draw_counts(units: int, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """(resamples, units): how often each unit is drawn when ``units`` are drawn with replacement. Read-only, shared."""
    draws = np.random.default_rng(seed).multinomial(units, np.full(units, 1.0 / units), size=resamples)
    counts = draws.astype(np.float64)
    counts.flags.writeable = False
    return counts


def expanded_tail(units: int, confidence: float = 0.95) -> float:
    """Share of the replicates beyond each end of an expanded percentile interval over ``units`` drawn units.

    Phi(-sqrt(n / (n - 1)) t), with t the quantile of Student's t with n - 1 degrees of freedom for this confidence.
    """
    t = float(special.stdtrit(units - 1, (1 + confidence) / 2))
    return float(special.ndtr(-math.sqrt(units / (units - 1)) * t))


def percentile_interval(
    replicates: ArrayLike, confidence: float = 0.95, units: int | None = None
) -> tuple[float, float]:
    """Percentile interval of the defined replicates; NaN where under half of them are defined.

    ``units``, at least two: how many were drawn for each replicate. Then the interval is the expanded one.
    """
    values = np.asarray(replicates, dtype=np.float64)
    defined = values[~np.isnan(values)]
    if 2 * len(defined) < len(values) or not len(defined):
        return math.nan, math.nan
    tail = (1 - confidence) / 2 if units is None else expanded_tail(units, confidence)
    low, high = np.quantile(defined, (tail, 1 - tail))
    return float(low), float(high)


def cluster_mean_interval(
    values: ArrayLike,
    clusters: ArrayLike,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Expanded interval of the mean of ``values`` (N,), drawn by ``clusters`` (N,); NaN values are left out.

    (NaN, NaN) with fewer than two clusters that hold a defined value.
    """
    value = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(value)
    names, code = np.unique(np.asarray(clusters)[known], return_inverse=True)
    if len(names) < 2:
        return math.nan, math.nan
    sums, sizes = np.bincount(code, value[known]), np.bincount(code)
    drawn = drawn_sums(np.column_stack((sums, sizes)).astype(np.float64), resamples, seed)
    return percentile_interval(drawn[:, 0] / drawn[:, 1], confidence, len(names))


def drawn_sums(totals: NDArray[np.float64], resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """(resamples, K) sums over as many rows as ``totals`` (units, K) has, drawn with replacement.

    In blocks: memory stays bounded, and products stay under the size at which BLAS starts threads that cost more than
    they bring.
    """
    units, columns = totals.shape
    out = np.empty((resamples, columns))
    if units <= FEW:
        counts = draw_counts(units, resamples, seed)
        step = max(1, _PRODUCT // (units * columns))
        for start in range(0, resamples, step):
            out[start : start + step] = counts[start : start + step] @ totals
        return out
    rng = np.random.default_rng(seed)
    step = max(1, _BLOCK // units)
    for start in range(0, resamples, step):
        rows = rng.integers(0, units, (min(step, resamples - start), units))
        for k in range(columns):
            out[start : start + step, k] = totals[:, k][rows].sum(axis=1)
    return out
