"""Bootstrap over cells: a cell is drawn with everything that was measured in it.

The tasks of one layout-route cell share geometry and route, so they are not independent draws; the cells are.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def percentile_interval(replicates: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the defined replicates; NaN where under half of them are defined."""
    values = np.asarray(replicates, dtype=np.float64)
    defined = values[~np.isnan(values)]
    if 2 * len(defined) < len(values) or not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


def cluster_mean_interval(
    values: ArrayLike,
    clusters: ArrayLike,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Interval of the mean of ``values`` (N,), drawn by ``clusters`` (N,); NaN values are left out.

    (NaN, NaN) with fewer than two clusters that hold a defined value.
    """
    value = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(value)
    names, code = np.unique(np.asarray(clusters)[known], return_inverse=True)
    if len(names) < 2:
        return math.nan, math.nan
    sums, sizes = np.bincount(code, value[known]), np.bincount(code)
    drawn = drawn_sums(np.column_stack((sums, sizes)).astype(np.float64), resamples, seed)
    return percentile_interval(drawn[:, 0] / drawn[:, 1], confidence)


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
