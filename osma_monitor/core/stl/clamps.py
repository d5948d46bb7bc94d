"""Values that still wait for the future, as functions of it, aggregated in constant time.

What ``eventually``, ``always`` or ``until`` says at a past sample whose window is still open depends on later samples
through one number x, the operator's own value over the rest of the window. That dependence is a clamp,
``x -> max(low, min(high, x))`` with ``low <= high``: low is what holds whatever comes, high what can still be reached.

- One more sample substitutes x by a clamp of what comes after it, the same for every open window.
- Minimum and maximum with a number that is known turn a clamp into a clamp.
- The minimum over many clamps of the same x is the clamp of the least low and the least high.

So an aggregate over all open windows is one clamp, brought up to date by one substitution a sample. Samples whose
windows close leave it in order, by the two stacks of a sliding-window aggregation.
"""

from __future__ import annotations

import math
from typing import Final

Clamp = tuple[float, float]
IDENTITY: Final[Clamp] = (-math.inf, math.inf)
_NONE: Final = math.inf  # the minimum over nothing


def compose(outer: Clamp, inner: Clamp) -> Clamp:
    """``x -> outer(inner(x))``."""
    low, high = outer
    first, second = inner
    return (
        low if first < low else high if first > high else first,
        low if second < low else high if second > high else second,
    )


class ClampQueue:
    """A queue of clamps: the newest joins at the back, the oldest leaves at the front, samples act on all.

    All operations are O(1) amortised. The front is a stack, oldest on top, each entry with the aggregate of itself and
    all below it; what happened since it was built is one substitution. The back is a list and one aggregate.

    Args:
        leaving: False when nothing ever leaves; then nothing but the aggregate is kept.
    """

    __slots__ = ("_front", "_high", "_leaving", "_low", "_own", "_since", "_steps")

    def __init__(self, leaving: bool = True) -> None:
        self._leaving = leaving
        self._front: list[tuple[Clamp, Clamp]] = []  # (own clamp, minimum of it and all younger ones of the front)
        self._since = IDENTITY
        self._own: list[Clamp] = []
        self._steps: list[Clamp] = []  # what acted after each entry of the back, before the next
        self._low = self._high = _NONE

    def push(self, low: float, high: float) -> None:
        """A new clamp at the back."""
        if low < self._low:
            self._low = low
        if high < self._high:
            self._high = high
        if self._leaving:
            self._own.append((low, high))
            self._steps.append(IDENTITY)

    def apply(self, first: float, second: float) -> None:
        """Substitutes x by ``max(first, min(second, x))`` in all clamps."""
        low, high = self._low, self._high
        self._low = low if first < low else high if first > high else first
        self._high = low if second < low else high if second > high else second
        if self._steps:
            low, high = self._steps[-1]
            self._steps[-1] = (
                low if first < low else high if first > high else first,
                low if second < low else high if second > high else second,
            )
        if self._front:
            low, high = self._since
            self._since = (
                low if first < low else high if first > high else first,
                low if second < low else high if second > high else second,
            )

    def pop(self) -> Clamp:
        """The oldest clamp as it is now; it leaves."""
        if not self._front:
            self._turn_over()
        return compose(self._front.pop()[0], self._since)

    def _turn_over(self) -> None:
        after = IDENTITY
        low = high = _NONE
        for own, step in zip(reversed(self._own), reversed(self._steps), strict=True):
            after = compose(step, after)
            now = compose(own, after)
            low, high = min(low, now[0]), min(high, now[1])
            self._front.append((now, (low, high)))
        self._since = IDENTITY
        self._own.clear()
        self._steps.clear()
        self._low = self._high = _NONE

    def least(self) -> Clamp:
        """The minimum over all clamps; (inf, inf) for none."""
        low, high = self._low, self._high
        if self._front:
            front_low, front_high = compose(self._front[-1][1], self._since)
            low, high = min(low, front_low), min(high, front_high)
        return (low, high)

    def all(self) -> list[Clamp]:
        """Every clamp as it is now, oldest first."""
        found, after = [], IDENTITY
        for own, step in zip(reversed(self._own), reversed(self._steps), strict=True):
            after = compose(step, after)
            found.append(compose(own, after))
        found.extend(compose(own, self._since) for own, _ in self._front)
        return found[::-1]

    def __len__(self) -> int:
        return len(self._front) + len(self._own)
