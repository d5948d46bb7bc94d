"""Motion features of an episode with its own stamps, on the 0.05 s grid of the definition (OSMA-Bench C.1, C.4)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osma_monitor.core.motion.features import (
    BOUNDARY_RADIUS,
    DISTANCE_FLOOR,
    JERK_WINDOW,
    PERIOD,
    MotionFeatures,
    minimum_clearance,
    motion_features,
)

PERIOD_NS = 50_000_000
SNAP_NS = 1_000  #: a sample this close to a grid time is taken as it is
BRIDGE_NS = 1_000_000_000  #: across a longer gap nothing is known: a straight line would be invented motion


def episode_motion(
    stamps_ns: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    distance: ArrayLike,
    in_contact: ArrayLike,
    radius: float = BOUNDARY_RADIUS,
    floor: float = DISTANCE_FLOOR,
) -> MotionFeatures:
    """The seven features of one episode from its stored steps.

    All arguments (T,): stamps in ns, strictly increasing; position and distance in m (NaN unknown); contact flags
    (NaN unknown). Position and distance are interpolated linearly to every 0.05 s from the first stamp on, unless the
    stamps lie there already; a missing sample and a gap over one second stay unknown. ``d_min`` and contact come from
    the samples themselves.

    Raises ValueError on unequal lengths and on stamps that do not increase.
    """
    stamps = np.asarray(stamps_ns, dtype=np.int64).reshape(-1)
    columns = [np.asarray(c, dtype=np.float64).reshape(-1) for c in (x, y, distance, in_contact)]
    if any(len(c) != len(stamps) for c in columns):
        raise ValueError(f"unequal lengths: {len(stamps)} stamps, columns of {[len(c) for c in columns]}")
    check_increasing(stamps)
    if not len(stamps):
        return MotionFeatures()
    grid_x, grid_y, grid_d = resample(stamps, columns[:3])
    ratios = motion_features(
        np.column_stack((grid_x, grid_y)), grid_d, np.zeros(len(grid_d), dtype=bool), PERIOD, radius, floor
    )
    d_min = minimum_clearance(columns[2], columns[3])
    return MotionFeatures(d_min, ratios.mu_v, ratios.M_v, ratios.mu_a, ratios.M_a, ratios.mu_j, ratios.M_j)


def resample(stamps_ns: NDArray[np.int64], columns: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The columns at every 0.05 s from the first stamp to the last; (T,) each in, (G,) each out.

    Of a gap that is not bridged only one jerk window of unknown samples is kept: more would say no more.
    """
    grid = _grid(stamps_ns)
    left = np.searchsorted(stamps_ns, grid + SNAP_NS, side="right") - 1
    offset = grid - stamps_ns[left]
    exact = np.abs(offset) <= SNAP_NS
    if exact.all():
        return [c[left] for c in columns]
    right = np.minimum(left + 1, len(stamps_ns) - 1)
    gap = stamps_ns[right] - stamps_ns[left]
    weight = np.where(exact, 0.0, offset / np.maximum(gap, 1))
    known = exact | (gap <= BRIDGE_NS)
    out = []
    for c in columns:
        with np.errstate(invalid="ignore"):
            between = c[left] + weight * (c[right] - c[left])
        out.append(np.where(exact, c[left], np.where(known, between, math.nan)))
    return out


def _grid(stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Grid times in ns, long gaps cut to one jerk window."""
    first = stamps_ns[0]
    before = np.flatnonzero(np.diff(stamps_ns) > BRIDGE_NS)
    starts = np.concatenate((stamps_ns[:1], stamps_ns[before + 1]))
    ends = np.concatenate((stamps_ns[before], stamps_ns[-1:]))
    low = -((first - starts + SNAP_NS) // PERIOD_NS)  # first step of the grid not before the start
    high = (ends - first + SNAP_NS) // PERIOD_NS
    parts = []
    for i in range(len(starts)):
        begin = low[i] if i == 0 else max(low[i] - JERK_WINDOW, high[i - 1] + 1)
        parts.append(np.arange(begin, high[i] + 1, dtype=np.int64))
    grid: NDArray[np.int64] = first + PERIOD_NS * np.concatenate(parts)
    return grid


def check_increasing(stamps_ns: NDArray[np.int64]) -> None:
    """Raise ValueError naming the first stamp that is not after the one before it."""
    steps = np.diff(stamps_ns)
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0)) + 1
        raise ValueError(f"stamp {at} ({stamps_ns[at]} ns) is not after stamp {at - 1} ({stamps_ns[at - 1]} ns)")
