"""The seven proximity-normalized motion features of an episode (OSMA-Bench 3.2.2, C.4 and Table 8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Feature names in the order of the paper; +1 where a larger value is more cautious (Table 9).
FEATURES: dict[str, int] = {"d_min": 1, "mu_v": -1, "M_v": -1, "mu_a": -1, "M_a": -1, "mu_j": -1, "M_j": -1}

PERIOD = 0.05  #: s, the control step at which the features are defined (C.1)
BOUNDARY_RADIUS = 1.25  #: m, Eq. 2
DISTANCE_FLOOR = 0.05  #: m, smallest divisor of a ratio (C.4)

FARTHEST = 1e12  #: m, a coordinate beyond this is no measurement: unknown, like NaN

JERK_WINDOW = 15  #: samples of one Savitzky-Golay fit (C.4)
JERK_HALF = JERK_WINDOW // 2


def _third_derivative_weights() -> tuple[float, ...]:
    """Weights w_k, k = 1..7, of x[t + k] - x[t - k] in the third derivative of a cubic least-squares fit, times dt^3.

    The cubic term of such a fit is the projection on the orthogonal polynomial k^3 - k * (sum k^4 / sum k^2). Its
    third derivative is the same all over the window, so the first and the last seven samples of an episode take the
    value of the nearest full window: that is what fitting the edges by interpolation gives.
    """
    ks = range(1, JERK_HALF + 1)
    square, fourth = sum(k**2 for k in ks), sum(k**4 for k in ks)
    basis = [k**3 * square - k * fourth for k in ks]
    norm = 2 * sum(b * b for b in basis)
    return tuple(6 * square * b / norm for b in basis)


JERK_WEIGHTS = _third_derivative_weights()


@dataclass(frozen=True, slots=True)
class MotionFeatures:
    """NaN where undefined. Units: m, 1/s, 1/s, 1/s^2, 1/s^2, 1/s^3, 1/s^3."""

    d_min: float = math.nan
    mu_v: float = math.nan
    M_v: float = math.nan
    mu_a: float = math.nan
    M_a: float = math.nan
    mu_j: float = math.nan
    M_j: float = math.nan


def motion_features(
    xy: ArrayLike,
    distance: ArrayLike,
    in_contact: ArrayLike,
    dt: float = PERIOD,
    radius: float = BOUNDARY_RADIUS,
    floor: float = DISTANCE_FLOOR,
) -> MotionFeatures:
    """The seven features of one episode whose samples are ``dt`` seconds apart.

    ``xy`` (T, 2) m, ``distance`` (T,) m signed surface distance, ``in_contact`` (T,) bool, ``radius`` of the boundary
    and ``floor`` of the divisor in m. A NaN or infinite sample is unknown: whatever needs it is left out, in
    ``distance`` and ``in_contact`` too.

    Speed is the forward difference (T - 1 values), acceleration the norm of the vector second difference (T - 2),
    jerk the norm of the third derivative of a cubic Savitzky-Golay fit over 15 samples (T values, none for T < 15).
    Each is divided by the distance at its own index and taken over the steps inside the boundary; without such a step
    the ratio is NaN. ``d_min`` runs over the whole episode and is 0 after any contact.

    Raises ValueError on unequal lengths, positions that are not (T, 2), or a ``dt`` that is not positive.
    """
    p = np.asarray(xy, dtype=np.float64)
    if p.size == 0:
        p = p.reshape(0, 2)
    if p.ndim != 2 or p.shape[1] != 2:
        raise ValueError(f"xy must have the shape (T, 2), got {p.shape}")
    p = _known(p)
    d = _known(np.asarray(distance, dtype=np.float64).reshape(-1))
    contact = _flags(in_contact)
    if not len(p) == len(d) == len(contact):
        raise ValueError(f"unequal lengths: {len(p)} positions, {len(d)} distances, {len(contact)} contact flags")
    if not dt > 0:
        raise ValueError(f"dt must be positive, got {dt!r}")
    x, y = p[:, 0], p[:, 1]
    mu_v, top_v = _ratio(_norm(x[1:] - x[:-1], y[1:] - y[:-1]) / dt, d, radius, floor)
    mu_a, top_a = _ratio(
        _norm(x[2:] - 2.0 * x[1:-1] + x[:-2], y[2:] - 2.0 * y[1:-1] + y[:-2]) / (dt * dt), d, radius, floor
    )
    mu_j, top_j = _ratio(jerk(x, y, dt), d, radius, floor)
    return MotionFeatures(minimum_clearance(d, contact), mu_v, top_v, mu_a, top_a, mu_j, top_j)


def minimum_clearance(distance: ArrayLike, in_contact: ArrayLike) -> float:
    """Smallest known distance, 0 after any contact, NaN when neither is known (C.4)."""
    if _flags(in_contact).any():
        return 0.0
    d = np.asarray(distance, dtype=np.float64)
    d = d[np.abs(d) < FARTHEST]
    return float(d.min()) if d.size else math.nan


def jerk(x: NDArray[np.float64], y: NDArray[np.float64], dt: float = PERIOD) -> NDArray[np.float64]:
    """(T,) jerk magnitude, m/s^3; empty for T < 15, NaN where a sample of the window is unknown."""
    if len(x) < JERK_WINDOW:
        return np.empty(0)
    inside = _norm(_third_difference(x), _third_difference(y)) / (dt * dt * dt)
    return np.concatenate((np.full(JERK_HALF, inside[0]), inside, np.full(JERK_HALF, inside[-1])))


def _third_difference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    centre = slice(JERK_HALF, len(x) - JERK_HALF)
    total = x[centre] - x[centre]  # zero, or NaN where the centre, whose weight is zero, is unknown
    for k, weight in enumerate(JERK_WEIGHTS, start=1):
        ahead = x[JERK_HALF + k : len(x) - JERK_HALF + k]
        behind = x[JERK_HALF - k : len(x) - JERK_HALF - k]
        total = total + weight * (ahead - behind)
    return total


def _norm(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sqrt(x * x + y * y)
    return total


def _ratio(
    quantity: NDArray[np.float64], distance: NDArray[np.float64], radius: float, floor: float
) -> tuple[float, float]:
    d = distance[: len(quantity)]
    inside = (d <= radius) & ~np.isnan(quantity)  # a comparison with NaN is False
    if not inside.any():
        return math.nan, math.nan
    ratio = quantity[inside] / np.maximum(d[inside], floor)
    return math.fsum(ratio.tolist()) / len(ratio), float(ratio.max())


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.abs(values) < FARTHEST
    return values if known.all() else np.where(known, values, math.nan)


def _flags(values: ArrayLike) -> NDArray[np.bool_]:
    """True where a flag is known to be set; numbers count from 0.5, NaN is not known."""
    flags = np.asarray(values).reshape(-1)
    return flags if flags.dtype == np.bool_ else np.asarray(flags, dtype=np.float64) > 0.5
