"""Arrays over clauses from plain floats, in a fraction of the time that ``np.array`` takes for a handful of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]


class Packing:
    """Makes the arrays of a library of ``count`` clauses; all are read-only for good, as is the memory under them.

    Attributes:
        points: values as so many arguments to (lower, upper, rho, status), where each is all three: one array thrice.
        intervals: lower bounds, upper bounds and rhos as arguments, in this order, to the same. Status codes as
            :func:`osma_monitor.core.stl.verdict.status_code` has them.
        zeros: (count,) int64 zeros: what updates share while nothing was unknown.
    """

    points: Callable[..., Arrays]
    intervals: Callable[..., Arrays]

    def __init__(self, count: int) -> None:
        namespace: dict[str, Any] = {
            "frombuffer": np.frombuffer,
            "doubles": Struct(f"{count}d").pack,
            "bytes": Struct(f"{count}b").pack,
            "double": np.dtype(np.float64),  # quicker than the types
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
    low, high, rho = (", ".join(f"{letter}{c}" for c in range(count)) for letter in "lur")
    return f"""
def points({low}):
    low = frombuffer(doubles({low}), double)
    codes = bytes({", ".join(f"1 if l{c} >= 0.0 else -1 if l{c} < 0.0 else 0" for c in range(count))})
    return low, low, low, frombuffer(codes, byte)

def intervals({", ".join(filter(None, (low, high, rho)))}):
    codes = bytes({", ".join(f"-1 if u{c} < 0.0 else 1 if l{c} >= 0.0 else 0" for c in range(count))})
    low, high = frombuffer(doubles({low}), double), frombuffer(doubles({high}), double)
    return low, high, frombuffer(doubles({rho}), double), frombuffer(codes, byte)
"""


@functools.lru_cache(64)
def packing_for(count: int) -> Packing:
    """The packing of libraries of ``count`` clauses; they all share it."""
    return Packing(count)
