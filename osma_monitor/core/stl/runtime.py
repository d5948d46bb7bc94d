"""What generated monitors call: sliding windows and interval rules on plain floats."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np

from osma_monitor.core.stl.verdict import Bounds

INF: Final = math.inf
NAN: Final = math.nan
_FULL: Final = (-INF, INF, NAN)


class SlidingMinimum:
    """Minimum over the samples aged ``near`` to ``far`` nanoseconds, O(1) amortised (Lemire 2006: a monotonic wedge).

    Holds only samples inside the window, or younger than ``near``.
    """

    __slots__ = ("_far", "_near", "_stamps", "_values", "_waiting")

    def __init__(self, near: int, far: int) -> None:
        self._near = near
        self._far = far
        self._stamps: deque[int] = deque()
        self._values: deque[float] = deque()
        self._waiting: deque[tuple[int, float]] = deque()

    def push(self, stamp: int, value: float) -> float:
        """Takes the sample at ``stamp``; gives the minimum of the known samples in the window, +inf for none."""
        stamps, values = self._stamps, self._values
        if self._near:
            waiting = self._waiting
            waiting.append((stamp, value))
            old_enough = stamp - self._near
            while waiting and waiting[0][0] <= old_enough:
                self._admit(*waiting.popleft())
        elif value == value:
            while values and values[-1] >= value:
                values.pop()
                stamps.pop()
            values.append(value)
            stamps.append(stamp)
        oldest = stamp - self._far
        while stamps and stamps[0] < oldest:
            stamps.popleft()
            values.popleft()
        return values[0] if values else INF

    def _admit(self, stamp: int, value: float) -> None:
        if value != value:
            return  # unknown: skipped
        stamps, values = self._stamps, self._values
        while values and values[-1] >= value:
            values.pop()
            stamps.pop()
        values.append(value)
        stamps.append(stamp)

    @property
    def empty(self) -> bool:
        """No known sample in the window."""
        return not self._values

    def clone(self) -> SlidingMinimum:
        other = SlidingMinimum(self._near, self._far)
        other.load(self.state())
        return other

    def state(self) -> list[Any]:
        return [list(self._stamps), list(self._values), [list(w) for w in self._waiting]]

    def load(self, state: list[Any]) -> None:
        self._stamps = deque(state[0])
        self._values = deque(state[1])
        self._waiting = deque((stamp, value) for stamp, value in state[2])

    def __len__(self) -> int:
        return len(self._values) + len(self._waiting)


class SlidingSince:
    """``hold since[near,far] release`` on one track; the identity is explained at :func:`tracks.since`."""

    __slots__ = ("_best", "_chain", "_delayed", "_far", "_held", "_near", "_reached")

    def __init__(self, near: int, far: int) -> None:
        self._near = near
        self._far = far
        self._best = SlidingMinimum(near, far)  # of -release
        self._held = SlidingMinimum(0, max(near - 1, 0))
        self._chain = NAN  # the unbounded operator at the newest sample; NaN while no release is known
        self._delayed: deque[tuple[int, float]] = deque()
        self._reached = NAN  # the unbounded operator at the window's near end

    def push(self, stamp: int, hold: float, release: float) -> float:
        """The value with unknown holds and releases skipped; -inf when no known release lies in the window."""
        chain = self._chain
        if chain == chain and hold == hold and hold < chain:
            chain = hold
        if release == release and not release <= chain:
            chain = release
        self._chain = chain
        held = INF
        if self._near:
            held = self._held.push(stamp, hold)
            delayed = self._delayed
            delayed.append((stamp, chain))
            old_enough = stamp - self._near
            while delayed and delayed[0][0] <= old_enough:
                self._reached = delayed.popleft()[1]
        else:
            self._reached = chain
        best = -self._best.push(stamp, -release)
        if self._best.empty:
            return -INF
        return min(best, self._reached, held)

    @property
    def empty(self) -> bool:
        """No known release in the window."""
        return self._best.empty

    def clone(self) -> SlidingSince:
        other = SlidingSince(self._near, self._far)
        other.load(self.state())
        return other

    def state(self) -> list[Any]:
        delayed = [list(d) for d in self._delayed]
        return [self._best.state(), self._held.state(), self._chain, delayed, self._reached]

    def load(self, state: list[Any]) -> None:
        self._best.load(state[0])
        self._held.load(state[1])
        self._chain = state[2]
        self._delayed = deque((stamp, value) for stamp, value in state[3])
        self._reached = state[4]

    def __len__(self) -> int:
        return len(self._best) + len(self._held) + len(self._delayed)


# --- numbers: NaN is unknown or undefined ---


def divide(a: float, b: float) -> float:
    """a / b; undefined for b = 0 and where the quotient overflows, as :func:`tracks.scalar_arithmetic`."""
    if b == 0:
        return a * math.copysign(INF, b) if math.isinf(a) else NAN
    result = a / b
    return NAN if math.isinf(result) and math.isfinite(a) and math.isfinite(b) else result


def root(a: float) -> float:
    return math.sqrt(a) if a >= 0 else NAN


def exponential(a: float) -> float:
    # NumPy's own exp and pow on arrays, as over whole traces: on single numbers, and in math, the last bit differs
    with np.errstate(all="ignore"):
        return float(np.exp(np.array([a], dtype=np.float64))[0])


def power(a: float, b: float) -> float:
    if a != a or b != b:
        return NAN
    with np.errstate(all="ignore"):
        result = float(np.power(np.array([a], dtype=np.float64), np.array([b], dtype=np.float64))[0])
    return NAN if math.isinf(result) and math.isfinite(a) and math.isfinite(b) else result


def least(*values: float) -> float:
    return NAN if any(v != v for v in values) else min(values)


def greatest(*values: float) -> float:
    return NAN if any(v != v for v in values) else max(values)


_SCALAR: Final[dict[str, Any]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sqrt": root,
    "exp": exponential,
    "pow": power,
    "min": least,
    "max": greatest,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
}


# --- intervals ---


def settle(lower: float, upper: float, rho: float) -> tuple[float, float, float]:
    """A point interval is its value; otherwise rho stays between the bounds."""
    if lower == upper:
        return (lower, upper, lower)
    return (lower, upper, lower if rho < lower else upper if rho > upper else rho)


def interval_arithmetic(op: str, *args: tuple[float, float, float]) -> tuple[float, float, float]:
    """As :func:`tracks.interval_arithmetic`, for one sample."""
    if any(a[0] == -INF and a[1] == INF for a in args):
        return _FULL
    apply = _SCALAR[op]
    rho = apply(*(a[2] for a in args))
    if op in ("+", "min", "max", "sqrt", "exp"):
        ends = [apply(*(a[0] for a in args)), apply(*(a[1] for a in args))]
    elif op == "-":
        ends = [args[0][0] - args[1][1], args[0][1] - args[1][0]]
    elif op in ("neg", "abs"):
        ends = [apply(args[0][0]), apply(args[0][1])]
        if op == "abs" and args[0][0] <= 0 <= args[0][1]:
            ends.append(0.0)
    else:
        base, other = args
        if op == "/" and other[0] <= 0 <= other[1]:
            return _FULL
        if op == "pow" and not (base[0] == base[1] and other[0] == other[1]) and not base[0] > 0:
            return _FULL
        ends = [apply(x, y) for x in base[:2] for y in other[:2]]
    if any(e != e for e in ends):
        return _FULL
    return settle(min(ends), max(ends), rho)


def compare(
    op: str, a: tuple[float, float, float], b: tuple[float, float, float], boolean: bool
) -> tuple[float, float, float]:
    """As :func:`tracks.compare`, for one sample."""
    if op == "!=":
        lower, upper, rho = compare("==", a, b, boolean)
        return (-upper, -lower, -rho)
    if op == "==":
        return _equal(a, b, boolean)
    small, large = (a, b) if op in ("<", "<=") else (b, a)
    lower, upper, rho = large[0] - small[1], large[1] - small[0], large[2] - small[2]
    lower = -INF if lower != lower else lower
    upper = INF if upper != upper else upper
    if boolean:
        strict = op in ("<", ">")
        lower, upper = truth(lower, strict), truth(upper, strict)
        rho = rho if rho != rho else truth(rho, strict)
    return settle(lower, upper, rho)


def truth(margin: float, strict: bool) -> float:
    return INF if margin > 0 or (margin == 0 and not strict) else -INF


def _equal(a: tuple[float, float, float], b: tuple[float, float, float], boolean: bool) -> tuple[float, float, float]:
    one, two, three, four = a[0] - b[1], b[0] - a[1], a[1] - b[0], b[1] - a[0]
    lower, upper = -INF, INF
    if one == one and two == two and three == three and four == four:
        apart, far = max(one, two), max(three, four)
        if a[0] == a[1] == b[0] == b[1]:
            lower = INF
        elif boolean:
            upper = -INF if apart > 0 else INF
        else:
            lower, upper = -far, -apart if apart > 0 else INF
    distance = abs(a[2] - b[2])
    rho = INF if distance == 0 else distance if distance != distance else -INF if boolean else -distance
    return settle(lower, upper, rho)


def as_bounds(lower: float, upper: float, rho: float) -> Bounds:
    """Plain floats without negative zero."""
    return Bounds(float(lower) + 0.0, float(upper) + 0.0, float(rho) + 0.0)
