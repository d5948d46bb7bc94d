"""Time to violation of each clause from its current trend.

A least-squares line through the robustness of the last ``window`` seconds; where it falls, the time until it meets
zero, with the
standard deviation that the fit's residuals give (first-order propagation; Draper and Smith, Applied Regression
Analysis, ch. 1).
A trend warns when that time is under the horizon and the slope differs from zero by more than two standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SECOND = 1e9
_LEAST_SAMPLES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Per clause; NaN where there is no falling trend or an input was unknown."""

    time_to_violation: Floats  #: (n,) s, 0 while violated
    deviation: Floats  #: (n,) s, standard deviation of time_to_violation
    warn: NDArray[np.bool_]  #: (n,)


class TrendPredictor:
    """Feed the robustness of each instant; take the prediction. O(window) per update, one pass for all clauses."""

    def __init__(self, clauses: int, window: float = 0.5, horizon: float = 1.0, most_samples: int = 32) -> None:
        self.window_ns = round(window * _SECOND)
        self.horizon = horizon
        self._stamps = np.zeros(most_samples, np.int64)
        self._values = np.full((most_samples, clauses), np.nan)
        self._count = 0

    def update(self, stamp_ns: int, rho: Floats) -> Prediction:
        """``rho`` (n,) is the robustness of this instant, NaN where unknown."""
        size = len(self._stamps)
        self._stamps[self._count % size] = stamp_ns
        self._values[self._count % size] = rho
        self._count += 1
        filled = min(self._count, size)
        age = stamp_ns - self._stamps[:filled]
        recent = age <= self.window_ns
        return self._fit(-age[recent] / _SECOND, self._values[:filled][recent], rho)

    def _fit(self, t: Floats, y: Floats, now: Floats) -> Prediction:
        m = len(t)
        nothing = np.full(y.shape[1], np.nan)
        violated = now < 0
        if m < _LEAST_SAMPLES:
            return Prediction(
                np.where(violated, 0.0, nothing), np.where(violated, 0.0, nothing), np.zeros(len(now), bool)
            )
        with np.errstate(all="ignore"):
            mean_t = t.sum() / m
            centred = t - mean_t
            spread = (centred * centred).sum()
            mean_y = y.sum(axis=0) / m
            slope = (centred[:, None] * (y - mean_y)).sum(axis=0) / spread
            level = mean_y - slope * mean_t
            residual = y - mean_y - slope * centred[:, None]
            variance = (residual * residual).sum(axis=0) / (m - 2)
            error = np.sqrt(variance / spread)
            time = -level / slope
            # the line meets zero where level + slope * time = 0; its variance there, over the slope squared
            reach = time - mean_t
            deviation = np.sqrt(variance / m + reach * reach * variance / spread) / np.abs(slope)
            falls = np.isfinite(slope) & np.isfinite(now) & (slope < 0) & (level > 0) & ~violated
            time = np.where(falls, time, np.where(violated, 0.0, np.nan))
            deviation = np.where(falls, deviation, np.where(violated, 0.0, np.nan))
            warn = falls & (time <= self.horizon) & (-slope > 2.0 * error)
        return Prediction(time, deviation, warn)
