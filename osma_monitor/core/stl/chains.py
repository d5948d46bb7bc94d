"""until and since over an open trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from osma_monitor.core.stl.columns import Array, Column, Line, equal
from osma_monitor.core.stl.connectives import Values
from osma_monitor.core.stl.folds import CHUNK, STEPS, Fold, piece_of, settled
from osma_monitor.core.stl.graph import GraphNode
from osma_monitor.core.stl.runtime import INF, NAN, settle

# what until says over no samples, of lower, upper and rho; whether a release is known; the least hold, of the same
Clamps = tuple[float, float, float, float, float, float, float]
_NOTHING: Final[Clamps] = (-INF, -INF, -INF, 0.0, INF, INF, INF)


class Chain(Fold):
    """until and since, with a window or without.

    Where the window begins apart from now, it is what they say at its beginning, with a rho that need not lie between
    its bounds; :class:`plain.Delayed` sees to what is held on the way there.

    One sample is the clamp ``x -> max(release, min(hold, x))`` of what the operator says beyond it; unknown holds count
    as held, unknown releases as none. ``low`` of a fold is what the operator says with nothing beyond it, ``high`` the
    least hold.
    """

    def __init__(self, line: Line, arguments: Sequence[Column], node: GraphNode, whole: bool) -> None:
        super().__init__(line, arguments, node, 7, whole)

    def walk(self, first: int, last: int, bound: int, step: int) -> int:
        hold, release = self.arguments
        heads = self.heads.view
        own = (self.before if step > 0 else self.after).views
        a, b, c, d, e, f, g = own
        outer = self._joins_outside(step)
        head, fold, slot = heads[first], self._carried(first, step), first
        few = first + step * STEPS if step * (last - first) < STEPS else first
        while slot != bound:
            if heads[slot] != head:
                if step * (slot - last) >= 0:
                    return slot
                fold, head = _NOTHING, heads[slot]
            if slot == few:
                return self._sweep(slot, last, bound, step)
            fold = _joined(fold, hold.at(slot), release.at(slot), outer)
            if step * (slot - last) >= 0 and fold == _at(own, slot):
                return slot
            a[slot], b[slot], c[slot], d[slot], e[slot], f[slot], g[slot] = fold
            slot += step
        return slot

    def _joins_outside(self, step: int) -> bool:
        """Walking so, does a further sample come before the others in the operator's order?"""
        return (step < 0) == (self.node.op == "until")

    def _carried(self, slot: int, step: int) -> Clamps:
        if self.is_first(slot, step):
            return _NOTHING
        return _at((self.before if step > 0 else self.after).views, slot - step)

    def _sweep(self, slot: int, last: int, bound: int, step: int) -> int:
        own, outer = self.before if step > 0 else self.after, self._joins_outside(step)
        hold, release = self.arguments
        size = CHUNK
        while slot != bound:
            begin, end = piece_of(self, slot, bound, step, size)
            folded = np.empty((7, end - begin + 1))
            folded[:, 0] = self._carried(slot, step)
            holds, releases = hold.rows[:, begin:end], release.rows[:, begin:end]
            folded[:3, 1:] = np.where(np.isnan(releases), -INF, releases)[:, ::step]
            folded[3, 1:] = ~np.isnan(releases[2, ::step])
            folded[4:, 1:] = np.where(np.isnan(holds), INF, holds)[:, ::step]
            width = 1
            while width <= end - begin:  # doubling: each takes in as many before it as it holds
                ahead, behind = folded[:, width:], folded[:, :-width]
                folded[:, width:] = compose(ahead, behind) if outer else compose(behind, ahead)
                width *= 2
            folded = folded[:, 1:][:, ::step]
            far = end - 1 if step > 0 else begin
            over = step * (far - last) >= 0
            stays = over and bool(equal(folded[:, far - begin], own.rows[:, far]).all())
            own.rows[:, begin:end] = folded
            slot = far + step
            if stays or (over and slot != bound and self.heads.view[slot] != self.heads.view[far]):
                return slot
            size *= 4
        return slot

    # --- values ---

    def so_far(self, pending: bool) -> Values:
        """An unbounded until at the first sample; ``pending``: a release may still come."""
        return self._said(_at(self.before.views, self.line.end - 1), pending)

    def alone(self, slot: int, pending: bool) -> Values:
        """An unbounded until over one sample."""
        hold, release = self.arguments
        return self._said(_joined(_NOTHING, hold.at(slot), release.at(slot), True), pending)

    def _said(self, fold: Clamps, pending: bool) -> Values:
        lower, upper, rho, known, _, held, _ = fold
        if self.near:
            return (lower, max(upper, held), NAN) if pending else (lower, upper, rho if known else NAN)
        if not pending:
            return settle(lower, upper, rho if known else NAN)
        if self.mode != "windows":
            held = INF if held >= 0 else held
        return settle(lower, max(upper, held), NAN)

    def value(self, slot: int) -> Values:
        if self.mode == "before":
            return self._said(_at(self.before.views, slot), False)
        if self.mode == "after":
            return self._said(_at(self.after.views, slot), not self.ended and self.node.polarity != -1)
        heads, pending = self.heads.view, slot >= self.closed
        if slot >= self.begun:
            return (-INF, INF, NAN)
        start, last = self.starts.view[slot], self.line.end - 1 if pending else self.stops.view[slot] - 1
        if start > last:
            return (-INF, -INF, -INF)
        if heads[start] != heads[last]:
            one, other = _at(self.after.views, start), _at(self.before.views, last)
            fold = composed(one, other) if self.ahead else composed(other, one)
        elif heads[start] == start:
            fold = _at(self.before.views, last)
        else:
            fold = _at(self.after.views, start)
        return self._said(fold, pending)

    def values(self, begin: int, end: int) -> Sequence[Array]:
        pending, found, empty = False, self.before.rows[:, begin:end], None
        if self.mode == "after":
            found = self.after.rows[:, begin:end]
            pending = not self.ended and self.node.polarity != -1
        elif self.mode == "windows":
            after, before, empty, back, front = self._parts(begin, end)
            both = compose(after, before) if self.ahead else compose(before, after)
            found = np.where(back, after, np.where(front, before, both))
            pending = begin >= self.closed
        lower, upper, rho, known, _, held, _ = found
        if pending:
            held = held if self.mode == "windows" else np.where(held >= 0, INF, held)
            upper, rho = np.maximum(upper, held), np.full(end - begin, NAN)
        else:
            rho = np.where(known > 0, rho, NAN)
        said = np.array((lower, upper, rho) if self.near else settled(lower, upper, rho, False))
        if empty is not None:
            said[:, empty] = [[-INF], [INF], [NAN]] if pending else -INF
        return list(said)


def _joined(fold: Clamps, hold: Values, release: Values, outer: bool) -> Clamps:
    """One more sample, before (outer) or after the others in the operator's order."""
    lower, upper, rho, known, high_lower, high_upper, high_rho = fold
    hold_lower, hold_upper, hold_rho = hold
    release_lower, release_upper, release_rho = release
    if release_rho == release_rho:
        known = 1.0
    else:
        release_rho = -INF
    if hold_rho != hold_rho:
        hold_rho = INF
    if outer:
        lower = max(release_lower, hold_lower if hold_lower < lower else lower)
        upper = max(release_upper, hold_upper if hold_upper < upper else upper)
        rho = max(release_rho, hold_rho if hold_rho < rho else rho)
    else:
        lower = max(lower, high_lower if high_lower < release_lower else release_lower)
        upper = max(upper, high_upper if high_upper < release_upper else release_upper)
        rho = max(rho, high_rho if high_rho < release_rho else release_rho)
    if hold_lower < high_lower:
        high_lower = hold_lower
    if hold_upper < high_upper:
        high_upper = hold_upper
    if hold_rho < high_rho:
        high_rho = hold_rho
    return (lower, upper, rho, known, high_lower, high_upper, high_rho)


def compose(outer: Array, inner: Array) -> Array:
    """Folds side by side into one; ``outer`` comes first in the operator's order."""
    out = np.empty(outer.shape)
    np.minimum(outer[4:], inner[:3], out=out[:3])
    np.maximum(outer[:3], out[:3], out=out[:3])
    np.maximum(outer[3], inner[3], out=out[3])
    np.minimum(outer[4:], inner[4:], out=out[4:])
    return out


def composed(outer: Clamps, inner: Clamps) -> Clamps:
    """The same of one slot."""
    return (
        max(outer[0], min(outer[4], inner[0])),
        max(outer[1], min(outer[5], inner[1])),
        max(outer[2], min(outer[6], inner[2])),
        max(outer[3], inner[3]),
        min(outer[4], inner[4]),
        min(outer[5], inner[5]),
        min(outer[6], inner[6]),
    )


def _at(views: Sequence[Sequence[float]], slot: int) -> Clamps:
    a, b, c, d, e, f, g = views
    return (a[slot], b[slot], c[slot], d[slot], e[slot], f[slot], g[slot])
