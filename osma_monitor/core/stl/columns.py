"""What the nodes of an open trace say at its kept samples: growing arrays, and which of them has just changed.

Samples are addressed by slots, places in these arrays. A node is brought up to date from the spans of slots at which
its arguments have changed, and tells in turn at which slots it has changed itself. Few slots are worked out as plain
floats (through memoryviews of the arrays), many with NumPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableSequence, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.stl.connectives import Values

Array = NDArray[Any]
Span = tuple[int, int]
FEW: Final = 16  # up to so many slots plain floats cost less than NumPy's calls


class Rows:
    """Float64 rows side by side; slots that hold nothing yet are NaN."""

    def __init__(self, count: int, size: int = 0) -> None:
        self._bind(np.full((count, size), np.nan))

    def _bind(self, rows: Array) -> None:
        self.rows = rows
        self.views: tuple[MutableSequence[float], ...] = tuple(memoryview(row) for row in rows)  # type: ignore[misc]

    def move(self, kept: slice, size: int) -> None:
        """The kept slots come to the front of new arrays."""
        fresh = np.full((len(self.rows), size), np.nan)
        fresh[:, : kept.stop - kept.start] = self.rows[:, kept]
        self._bind(fresh)


class Indices:
    """Slots kept a slot, such as where its window begins."""

    def __init__(self) -> None:
        self._bind(np.zeros(0, dtype=np.int64))

    def _bind(self, values: NDArray[np.int64]) -> None:
        self.values = values
        self.view: MutableSequence[int] = memoryview(values)  # type: ignore[assignment, arg-type]

    def move(self, kept: slice, size: int) -> None:
        fresh = np.zeros(size, dtype=np.int64)
        fresh[: kept.stop - kept.start] = self.values[kept] - kept.start
        self._bind(fresh)


class Column(Rows):
    """Lower, upper and rho of one node.

    Attributes:
        changed: rising spans of slots that have just changed.
        final: the slot up to which no later sample can change anything.
    """

    def __init__(self) -> None:
        super().__init__(3)
        self.changed: list[Span] = []
        self.final = 0

    def _bind(self, rows: Array) -> None:
        super()._bind(rows)
        self.lower, self.upper, self.rho = self.views

    def at(self, slot: int) -> Values:
        return (self.lower[slot], self.upper[slot], self.rho[slot])

    def put(self, slot: int, values: Values) -> bool:
        """Does it change anything?"""
        lower, upper, rho = values
        if self.lower[slot] == lower and self.upper[slot] == upper:
            old = self.rho[slot]
            if old == rho or (old != old and rho != rho):
                return False
        self.lower[slot] = lower
        self.upper[slot] = upper
        self.rho[slot] = rho
        return True

    def put_many(self, begin: int, end: int, values: Sequence[Array]) -> Span | None:
        """The span in which anything changes."""
        new, old = np.asarray(values), self.rows[:, begin:end]
        # bit by bit, so that NaN equals NaN; a zero or NaN of the other sign is passed on in vain, and no more
        differs = (new.view(np.int64) != old.view(np.int64)).any(axis=0)
        first = int(differs.argmax())
        if not differs[first]:
            return None
        old[...] = new
        return (begin + first, end - int(differs[::-1].argmax()))


class Constant(Column):
    """A number of the formula."""

    def __init__(self, value: float) -> None:
        self._value = value
        super().__init__()
        self.final = 2**62

    def move(self, kept: slice, size: int) -> None:
        self._bind(np.full((3, size), self._value))


class Line:
    """The stamps of the kept samples: slots ``begin`` to ``end``."""

    def __init__(self) -> None:
        self.begin = self.end = 0
        self._bind(np.zeros(0, dtype=np.int64))

    def _bind(self, stamps: NDArray[np.int64]) -> None:
        self.stamps = stamps
        self.view: MutableSequence[int] = memoryview(stamps)  # type: ignore[assignment, arg-type]

    def move(self, kept: slice, size: int) -> None:
        fresh = np.zeros(size, dtype=np.int64)
        fresh[: kept.stop - kept.start] = self.stamps[kept]
        self._bind(fresh)


class Node(ABC):
    """One node of a graph over the kept samples.

    Attributes:
        column: what it says.
        keeps: the first slot of its arguments that it may still ask for.
    """

    # attributes that are slots, and others that belong to the state
    slots: ClassVar[tuple[str, ...]] = ("seen",)
    numbers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, line: Line, arguments: Sequence[Column]) -> None:
        self.line = line
        self.arguments = tuple(arguments)
        self.column = Column()
        self.rows: list[Rows] = [self.column]
        self.indices: list[Indices] = []
        self.seen = 0

    @abstractmethod
    def update(self, closed: bool) -> None:
        """Takes the changes of the arguments; ``closed``: the trace has ended."""

    @property
    def keeps(self) -> int:
        return self.column.final - 1  # what looks at the neighbour before is among the nodes

    def move(self, kept: slice, size: int) -> None:
        for rows in self.rows:
            rows.move(kept, size)
        for indices in self.indices:
            indices.move(kept, size)
        self.column.final -= kept.start
        for name in self.slots:
            setattr(self, name, getattr(self, name) - kept.start)

    def state(self) -> list[Any]:
        """Plain data; the slots must have been moved to the front."""
        end = self.line.end
        return [
            [part.rows[:, :end].tolist() for part in self.rows],
            [part.values[:end].tolist() for part in self.indices],
            [getattr(self, name) for name in (*self.slots, *self.numbers)],
            self.column.final,
        ]

    def load(self, state: list[Any]) -> None:
        """The arrays must have room."""
        rows, indices, numbers, self.column.final = state
        end = self.line.end
        for part, saved in zip(self.rows, rows, strict=True):
            part.rows[:, :end] = saved
        for index, places in zip(self.indices, indices, strict=True):
            index.values[:end] = places
        for name, value in zip((*self.slots, *self.numbers), numbers, strict=True):
            setattr(self, name, value)


def equal(a: Array, b: Array) -> NDArray[np.bool_]:
    """Elementwise; NaN equals NaN."""
    return np.asarray((a == b) | ((a != a) & (b != b)))


def union(one: list[Span], other: list[Span]) -> list[Span]:
    """The spans of two arguments."""
    if one == other or not other:
        return one
    return merged([*one, *other]) if one else other


def merged(spans: list[Span]) -> list[Span]:
    """Rising spans that do not touch; empty ones go."""
    spans.sort()
    out: list[Span] = []
    reached = -1
    for begin, end in spans:
        if begin >= end:
            continue
        if begin > reached:
            out.append((begin, end))
            reached = end
        elif end > reached:
            out[-1] = (out[-1][0], end)
            reached = end
    return out
