"""Time to violation of each clause from its current trend.

A least-squares line through the robustness of the last ``window`` seconds; where it falls, the time until it meets
zero, with the
standard deviation that the fit's residuals give (first-order propagation; Draper and Smith, Applied Regression
Analysis, ch. 1).
A trend warns when that time is under the horizon and the slope differs from zero by more than two standard errors.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SECOND = 1e9
_LEAST_SAMPLES = 5


class Prediction:
    """Per clause; NaN where there is no falling trend or an input was unknown. Worked out when somebody asks."""

    def __init__(self, line: _Line | None, now: Floats, warn: NDArray[np.bool_]) -> None:
        self._line, self._now = line, now
        self.warn = warn  #: (n,)

    @cached_property
    def time_to_violation(self) -> Floats:
        """(n,) s, 0 while violated."""
        return self._known(0)

    @cached_property
    def deviation(self) -> Floats:
        """(n,) s, standard deviation of time_to_violation."""
        return self._known(1)

    @cached_property
    def _crossing(self) -> tuple[Floats, Floats, Floats] | None:
        return None if self._line is None else self._line.crossing(slice(None))

    def _known(self, which: int) -> Floats:
        rest = np.where(self._now < 0, 0.0, np.nan)
        return (
            rest
            if self._line is None or self._crossing is None
            else np.where(self._line.falls, self._crossing[which], rest)
        )


class _Line:
    """Least-squares lines through the columns of ``rise``, the robustness (m, n) less that of the newest sample.

    Constants have an exact slope of zero that way, and what is unknown or infinite falls nowhere.
    """

    __slots__ = ("centred", "falls", "level", "mean_rise", "mean_t", "now", "rise", "slope", "spread")

    def __init__(self, t: Floats, rise: Floats, now: Floats) -> None:
        m = len(t)
        self.now, self.rise = now, rise
        self.mean_t = t.sum() / m
        self.centred = t - self.mean_t
        self.spread = (self.centred * self.centred).sum()
        self.slope: Floats = (self.centred[:, None] * rise).sum(axis=0) / self.spread
        self.mean_rise: Floats = rise.sum(axis=0) / m
        self.level: Floats = now + (self.mean_rise - self.slope * self.mean_t)
        self.falls: NDArray[np.bool_] = (self.slope < 0) & (self.level > 0) & (now >= 0)

    def crossing(self, which: NDArray[np.intp] | slice) -> tuple[Floats, Floats, Floats]:
        """Time to zero, its deviation, and the standard error of the slope of some columns."""
        with np.errstate(all="ignore"):
            slope, m = self.slope[which], len(self.centred)
            residual = self.rise[:, which] - self.mean_rise[which] - self.centred[:, None] * slope
            variance = (residual * residual).sum(axis=0) / (m - 2)
            time = -self.level[which] / slope
            # the line meets zero where level + slope * time = 0; its variance there, over the slope squared
            reach = time - self.mean_t
            deviation = np.sqrt(variance / m + reach * reach * variance / self.spread) / np.abs(slope)
            return time, deviation, np.sqrt(variance / self.spread)


class TrendPredictor:
    """Feed the robustness of each instant; take the prediction. O(window) per update, one pass for all clauses."""

    def __init__(self, clauses: int, window: float = 0.5, horizon: float = 1.0, most_samples: int = 32) -> None:
        self.window_ns = round(window * _SECOND)
        self.horizon = horizon
        # the window is a slice [start, end) that moves through twice its size and is then moved back
        self._most = most_samples
        self._stamps = np.zeros(2 * most_samples, np.int64)
        self._values = np.full((2 * most_samples, clauses), np.nan)
        self._start = self._end = 0
        self._none = np.zeros(clauses, np.bool_)
        self._none.flags.writeable = False

    def update(self, stamp_ns: int, rho: Floats) -> Prediction:
        """``rho`` (n,) is the robustness of this instant, NaN where unknown."""
        end = self._end
        if end == len(self._stamps):
            kept = end - self._start
            self._stamps[:kept], self._values[:kept] = self._stamps[self._start :], self._values[self._start :]
            self._start, end = 0, kept
        self._stamps[end], self._values[end] = stamp_ns, rho
        self._end = end = end + 1
        start = max(self._start, end - self._most)
        oldest = stamp_ns - self.window_ns
        while self._stamps.item(start) < oldest:
            start += 1
        self._start = start
        if end - start < _LEAST_SAMPLES:
            return Prediction(None, rho, self._none)
        with np.errstate(all="ignore"):
            line = _Line((self._stamps[start:end] - stamp_ns) / _SECOND, self._values[start:end] - rho, rho)
            soon = line.falls & (line.level <= -self.horizon * line.slope)
        which = soon.nonzero()[0]
        if not len(which):
            return Prediction(line, rho, self._none)
        time, _, error = line.crossing(which)
        warn = self._none.copy()
        warn[which] = (time <= self.horizon) & (-line.slope[which] > 2.0 * error)
        return Prediction(line, rho, warn)
