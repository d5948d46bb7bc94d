"""Interval-valued robustness over whole traces, as NumPy arrays.

A :class:`Track` holds for every sample the bounds and the value that skips the unknown. Where nothing is unknown the
three are one array, and every operation costs what it costs in plain NumPy. A term is one plain array, NaN where
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = NDArray[np.int64]


@dataclass(slots=True)
class Track:
    """``lower <= rho <= upper`` at every sample, ``rho`` NaN where nothing is known; one array thrice: all points."""

    lower: Array
    upper: Array
    rho: Array

    @property
    def point(self) -> bool:
        return self.lower is self.upper

    @staticmethod
    def exact(values: Array) -> Track:
        return Track(values, values, values)

    def __getitem__(self, index: Any) -> Track:
        if self.point:
            return Track.exact(self.lower[index])
        return Track(self.lower[index], self.upper[index], self.rho[index])


def settle(lower: Array, upper: Array, rho: Array) -> Track:
    """A point interval is its value; otherwise rho stays between the bounds, so that it never contradicts them."""
    rho = np.where(lower == upper, lower, np.minimum(np.maximum(rho, lower), upper))
    return Track(lower, upper, rho)


def from_term(values: Array) -> Track:
    """A number is its own robustness; NaN is unknown."""
    unknown = np.isnan(values)
    if not unknown.any():
        return Track.exact(values)
    infinity = values.dtype.type(np.inf)
    return Track(np.where(unknown, -infinity, values), np.where(unknown, infinity, values), values)


def negate(a: Track) -> Track:
    if a.point:
        return Track.exact(-a.lower)
    return Track(-a.upper, -a.lower, -a.rho)


def minimum(a: Track, b: Track) -> Track:
    if a.point and b.point:
        return Track.exact(np.minimum(a.lower, b.lower))
    return settle(np.minimum(a.lower, b.lower), np.minimum(a.upper, b.upper), np.minimum(a.rho, b.rho))


def maximum(a: Track, b: Track) -> Track:
    if a.point and b.point:
        return Track.exact(np.maximum(a.lower, b.lower))
    return settle(np.maximum(a.lower, b.lower), np.maximum(a.upper, b.upper), np.maximum(a.rho, b.rho))


# --- windows ---


def range_minimum(values: Array, starts: Index, stops: Index) -> Array:
    """Minimum of ``values[start:stop]`` for every pair, +inf for empty ranges; no NaN, bounds that never fall.

    Doubling: level k holds the minima of all runs of 2**k samples, and a range is two overlapping runs. n log(width)
        steps, exact.
    """
    if len(starts) and stops[0] == len(values):  # every range reaches the end
        padded = np.append(np.minimum.accumulate(values[::-1])[::-1], values.dtype.type(np.inf))
        return np.asarray(padded[np.minimum(starts, len(values))])
    if len(starts) and starts[-1] == 0:  # every range begins at the front
        padded = np.append(values.dtype.type(np.inf), np.minimum.accumulate(values))
        return np.asarray(padded[np.maximum(stops, 0)])
    out = np.full(len(starts), np.inf, dtype=values.dtype)
    lengths = stops - starts
    level = np.frexp(np.maximum(lengths, 0).astype(np.float64))[1] - 1  # floor(log2), -1 for empty
    run, width = values, 1
    for k in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == k)
        if len(chosen):
            out[chosen] = np.minimum(run[starts[chosen]], run[stops[chosen] - width])
        run, width = np.minimum(run[:-width], run[width:]), 2 * width
    return out


def range_maximum(values: Array, starts: Index, stops: Index) -> Array:
    return -range_minimum(-values, starts, stops)


def _known_in(rho: Array, starts: Index, stops: Index) -> NDArray[np.bool_]:
    """Is the range empty, or some rho in it known?"""
    count = np.concatenate(([0], np.cumsum(~np.isnan(rho))))
    return (stops <= starts) | (count[stops] > count[np.minimum(starts, stops)])


def window_minimum(a: Track, starts: Index, stops: Index) -> Track:
    """Minimum over index ranges; rho skips NaN, and is NaN when the range holds nothing known."""
    if a.point:
        return Track.exact(range_minimum(a.lower, starts, stops))
    infinity = a.rho.dtype.type(np.inf)
    rho = range_minimum(np.where(np.isnan(a.rho), infinity, a.rho), starts, stops)
    rho = np.where(_known_in(a.rho, starts, stops), rho, np.nan)
    return settle(range_minimum(a.lower, starts, stops), range_minimum(a.upper, starts, stops), rho)


def _chain(hold: Array, release: Array, first: Index) -> Array:
    """``s[i] = max(release[i], min(hold[i], s[i-1]))`` inside each episode, by doubling over composed clamps."""
    low, high = release.copy(), hold.copy()
    place = np.arange(len(low)) - first  # samples before this one in its episode
    high[place == 0] = -np.inf
    width = 1
    while width <= int(place.max(initial=0)):
        ready = np.flatnonzero(place >= width)
        low_new = np.maximum(low[ready], np.minimum(high[ready], low[ready - width]))
        high[ready] = np.minimum(high[ready], high[ready - width])
        low[ready] = low_new
        width *= 2
    return low


def since(hold: Track, release: Track, first: Index, starts: Index, middle: Index) -> Track:
    """``hold since release`` with the release in ``[starts, middle)``; ``first``: where each sample's episode begins.

    By Donzé, Ferrère, Maler (CAV 2013, lemma 2): the bounded operator is the minimum of the unbounded one at the
    window's near end, of the best release inside the window, and of ``hold`` between the near end and now.
    """
    here = np.arange(len(first)) + 1
    empty = middle <= starts
    near = np.maximum(middle - 1, 0)

    def one(hold_values: Array, release_values: Array) -> Array:
        chained = _chain(hold_values, release_values, first)[near]
        best = range_maximum(release_values, starts, middle)
        held = range_minimum(hold_values, np.minimum(middle, here), here)
        return np.where(empty, -np.inf, np.minimum(np.minimum(chained, best), held)).astype(release_values.dtype)

    if hold.point and release.point:
        return Track.exact(one(hold.lower, release.lower))
    infinity = release.rho.dtype.type(np.inf)
    rho = one(np.where(np.isnan(hold.rho), infinity, hold.rho), np.where(np.isnan(release.rho), -infinity, release.rho))
    rho = np.where(_known_in(release.rho, starts, middle), rho, np.nan)
    return settle(one(hold.lower, release.lower), one(hold.upper, release.upper), rho)


# --- arithmetic on intervals (terms that contain temporal operators) ---


def _full(a: Track) -> NDArray[np.bool_]:
    return np.asarray((a.lower == -np.inf) & (a.upper == np.inf))


def interval_arithmetic(op: str, arguments: list[Track]) -> Track:
    """Interval arithmetic; an operand that may be anything makes the result anything, as an undefined result does."""
    lows, highs, rhos = ([getattr(a, part) for a in arguments] for part in ("lower", "upper", "rho"))
    rho = scalar_arithmetic(op, rhos)
    if op in ("abs",):
        inside = (lows[0] <= 0) & (highs[0] >= 0)
        ends = [np.abs(lows[0]), np.abs(highs[0])]
        lower, upper = np.where(inside, 0.0, np.minimum(*ends)), np.maximum(*ends)
    elif op in ("neg",):
        lower, upper = -highs[0], -lows[0]
    elif op in ("+", "min", "max", "sqrt", "exp"):
        lower, upper = scalar_arithmetic(op, lows), scalar_arithmetic(op, highs)
    elif op == "-":
        lower, upper = lows[0] - highs[1], highs[0] - lows[1]
    else:
        corners = [scalar_arithmetic(op, [x, y]) for x in (lows[0], highs[0]) for y in (lows[1], highs[1])]
        lower, upper = np.minimum.reduce(corners), np.maximum.reduce(corners)
        if op == "/":
            across = (lows[1] <= 0) & (highs[1] >= 0)
            lower, upper = np.where(across, np.nan, lower), np.where(across, np.nan, upper)
        elif op == "pow":  # not monotone in general: exact for points, bounded only where the base is positive
            open_ends = ~((lows[0] == highs[0]) & (lows[1] == highs[1])) & ~(lows[0] > 0)
            lower, upper = np.where(open_ends, np.nan, lower), np.where(open_ends, np.nan, upper)
    lost = np.isnan(lower) | np.isnan(upper)
    for argument in arguments:
        lost = lost | _full(argument)
    lower, upper = np.where(lost, -np.inf, lower), np.where(lost, np.inf, upper)
    return settle(lower, upper, np.where(lost, np.nan, rho))


def scalar_arithmetic(op: str, values: list[Any]) -> Any:
    """One arithmetic operator on numbers or arrays; NaN is unknown or undefined (x/0, the root of a negative)."""
    if op == "neg":
        return -values[0]
    if op == "exp":
        return np.exp(np.ascontiguousarray(values[0]))
    if op in ("abs", "sqrt"):
        return (np.abs if op == "abs" else np.sqrt)(values[0])
    if op in ("min", "max"):
        return (np.minimum if op == "min" else np.maximum).reduce(np.broadcast_arrays(*values))
    first, second = values
    if op == "+":
        return first + second
    if op == "-":
        return first - second
    if op == "*":
        return first * second
    if op == "/":
        result = np.divide(first, second)
    else:  # NumPy's loops for other strides (0 for one exponent, or backwards) differ in the last bit
        result = np.power(*(np.ascontiguousarray(part) for part in np.broadcast_arrays(first, second)))
    undefined = np.isinf(result) & np.isfinite(first) & np.isfinite(second)
    if op == "pow":  # NumPy says nan**0 == 1; what is unknown stays unknown
        undefined = undefined | np.isnan(first) | np.isnan(second)
    return np.where(undefined, np.nan, result)


# --- comparisons ---


def compare(op: str, left: Track, right: Track, boolean: bool) -> Track:
    """Robustness of a comparison: distance to the border, +inf for a true ``==``, ±inf where all signals are gates."""
    if op == "!=":
        return negate(compare("==", left, right, boolean))
    if op == "==":
        return _equal(left, right, boolean)
    small, large = (left, right) if op in ("<", "<=") else (right, left)
    strict = op in ("<", ">")
    if left.point and right.point:
        margin = large.lower - small.lower
        if not np.isnan(margin).any():
            return Track.exact(_truth(margin, strict) if boolean else margin)
    lower, upper = large.lower - small.upper, large.upper - small.lower
    rho = large.rho - small.rho
    lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
    if boolean:
        lower, upper = _truth(lower, strict), _truth(upper, strict)
        rho = np.where(np.isnan(rho), np.nan, _truth(rho, strict))
    return settle(lower, upper, rho)


def _truth(margin: Array, strict: bool) -> Array:
    true = margin > 0 if strict else margin >= 0
    return np.where(true, np.inf, -np.inf).astype(margin.dtype)


def _equal(left: Track, right: Track, boolean: bool) -> Track:
    apart = np.maximum(left.lower - right.upper, right.lower - left.upper)  # > 0: the intervals do not meet
    far = np.maximum(left.upper - right.lower, right.upper - left.lower)
    lost = np.isnan(apart) | np.isnan(far)
    same = (left.lower == left.upper) & (right.lower == right.upper) & (left.lower == right.lower) & ~lost
    upper = np.where(~lost & (apart > 0), -np.inf if boolean else -apart, np.inf)
    lower = np.where(same, np.inf, np.where(lost | boolean, -np.inf, -far))
    distance = np.abs(left.rho - right.rho)
    rho = np.where(left.rho == right.rho, np.inf, -np.inf if boolean else -distance)
    rho = np.where(np.isnan(distance), np.nan, rho)
    dtype = left.lower.dtype
    return settle(lower.astype(dtype), upper.astype(dtype), rho.astype(dtype))
