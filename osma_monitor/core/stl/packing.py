"""Arrays over clauses from plain floats, in a fraction of the time that ``np.array`` takes for a handful of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]


class Packing:
    """Makes the arrays of a library of ``count`` clauses; all are read-only for good, as is the memory under them.

    Attributes:
        points: values to (lower, upper, rho, status), where each value is all three: one array thrice.
        intervals: lower, upper and rho to the same. Status codes as
            :func:`osma_monitor.core.stl.verdict.status_code` has them.
        zeros: (count,) int64 zeros: what updates share while nothing was unknown.
    """

    points: Callable[[Sequence[float]], Arrays]
    intervals: Callable[[Sequence[float], Sequence[float], Sequence[float]], Arrays]

    def __init__(self, count: int) -> None:
        namespace: dict[str, Any] = {
            "frombuffer": np.frombuffer,
            "pack_points": Struct(f"{count}d{count}b").pack,
            "pack_intervals": Struct(f"{3 * count}d{count}b").pack,
            "double": np.dtype(np.float64),
            "byte": np.dtype(np.int8),
        }
        exec(compile(_source(count), "<stl packing>", "exec"), namespace)
        self.points = namespace["points"]
        self.intervals = namespace["intervals"]
        self._integers = Struct(f"{count}q").pack
        self.zeros: NDArray[np.int64] = self.counts((0,) * count)

    def counts(self, values: Sequence[int]) -> NDArray[np.int64]:
        """(count,) whole numbers."""
        return np.frombuffer(self._integers(*values), np.int64)


def _source(count: int) -> str:
    """Written out clause by clause, since a loop costs several times as much; from the count alone."""
    low, high = (", ".join(f"{letter}{c}" for c in range(count)) for letter in "lu")
    codes = ", ".join(f"-1 if u{c} < 0.0 else 1 if l{c} >= 0.0 else 0" for c in range(count))
    return f"""
def points(values):
    [{low}] = values
    data = pack_points(*values, {codes.replace("u", "l")})
    low = frombuffer(data, double, {count})
    return low, low, low, frombuffer(data, byte, {count}, {8 * count})

def intervals(lower, upper, rho):
    [{low}] = lower
    [{high}] = upper
    data = pack_intervals(*lower, *upper, *rho, {codes})
    low = frombuffer(data, double, {count})
    high = frombuffer(data, double, {count}, {8 * count})
    return low, high, frombuffer(data, double, {count}, {16 * count}), frombuffer(data, byte, {count}, {24 * count})
"""
