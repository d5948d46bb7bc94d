"""The seven proximity-normalized motion features of an episode (OSMA-Bench 3.2.2 and C.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import savgol_filter

#: Feature names in the order of the paper; +1 where a larger value is more cautious.
FEATURES: dict[str, int] = {"d_min": 1, "mu_v": -1, "M_v": -1, "mu_a": -1, "M_a": -1, "mu_j": -1, "M_j": -1}

SAVGOL_WINDOW = 15
SAVGOL_ORDER = 3


@dataclass(frozen=True, slots=True)
class MotionFeatures:
    """NaN where undefined. Units: m, 1/s, 1/s, 1/s^2, 1/s^2, 1/s^3, 1/s^3."""

    d_min: float = float("nan")
    mu_v: float = float("nan")
    M_v: float = float("nan")
    mu_a: float = float("nan")
    M_a: float = float("nan")
    mu_j: float = float("nan")
    M_j: float = float("nan")


def _norm(v: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sqrt(v[:, 0] * v[:, 0] + v[:, 1] * v[:, 1])
    return total


def _ratio(
    quantity: NDArray[np.float64], distance: NDArray[np.float64], radius: float, floor: float
) -> tuple[float, float]:
    d = distance[: len(quantity)]
    with np.errstate(invalid="ignore"):
        inside = (d <= radius) & ~np.isnan(quantity)
    if not inside.any():
        return float("nan"), float("nan")
    ratio = quantity[inside] / np.maximum(d[inside], floor)
    return float(ratio.mean()), float(ratio.max())


def motion_features(
    xy: ArrayLike,
    distance: ArrayLike,
    in_contact: ArrayLike,
    dt: float = 0.05,
    radius: float = 1.25,
    floor: float = 0.05,
) -> MotionFeatures:
    """The seven features of one episode.

    ``xy`` (T, 2) m, ``distance`` (T,) m signed surface distance, ``in_contact`` (T,) bool, ``dt`` s, ``radius`` of the
    boundary and ``floor`` of the divisor in m. Speed is the forward difference (T - 1 values), acceleration the vector second
    difference (T - 2), jerk the third derivative of a cubic Savitzky-Golay fit over 15 samples; each is paired with the
    distance at its own index. Raises ValueError on unequal lengths.
    """
    p = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
    d = np.asarray(distance, dtype=np.float64)
    c = np.asarray(in_contact, dtype=bool)
    if not len(p) == len(d) == len(c):
        raise ValueError(f"unequal lengths: {len(p)} positions, {len(d)} distances, {len(c)} contact flags")
    nan = float("nan")
    known = d[~np.isnan(d)]
    d_min = 0.0 if c.any() else (max(float(known.min()), 0.0) if len(known) else nan)
    mu_v, top_v = _ratio(_norm(p[1:] - p[:-1]) / dt, d, radius, floor)
    mu_a, top_a = _ratio(_norm(p[2:] - 2.0 * p[1:-1] + p[:-2]) / (dt * dt), d, radius, floor)
    mu_j = top_j = nan
    if len(p) >= SAVGOL_WINDOW:
        third = savgol_filter(p, SAVGOL_WINDOW, SAVGOL_ORDER, deriv=3, delta=dt, axis=0, mode="interp")
        mu_j, top_j = _ratio(_norm(third), d, radius, floor)
    return MotionFeatures(d_min, mu_v, top_v, mu_a, top_a, mu_j, top_j)
