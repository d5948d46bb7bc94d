"""Temporal operators over an open trace, brought up to date where their arguments have changed.

Samples are cut into blocks as long as the window (van Herk 1992, Gil and Werman 1993), so that a window is the end of
one block and the beginning of the next. For every slot two folds are kept: from it to the end of its block, and from
the beginning of its block to it. A changed argument changes the folds of its neighbours, one after the other, until one
of them stays as it was: nothing beyond can have changed. Only windows that read a changed fold are looked at again.

The folds are minima (always, historically; eventually and once are mirror images), or clamps ``x -> max(low, min(high,
x))`` of what until or since says beyond them, one inside the other.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from osma_monitor.core.stl.columns import (
    FEW,
    Array,
    Column,
    Indices,
    Line,
    Node,
    Rows,
    Span,
    equal,
    merged,
    union,
)
from osma_monitor.core.stl.connectives import Values
from osma_monitor.core.stl.graph import GraphNode
from osma_monitor.core.stl.runtime import INF, NAN, settle

STEPS: Final = 40  # a walk so long goes on with NumPy
CHUNK: Final = 256  # its first piece then; each further one is four times as long


class Fold(Node):
    """One temporal operator.

    Args:
        whole: an unbounded operator at the top: only its fold from the first sample on is wanted.
    """

    slots = ("seen", "head", "closed", "begun", "near_slot", "far_slot")
    numbers = ("head_stamp",)

    def __init__(self, line: Line, arguments: Sequence[Column], node: GraphNode, folds: int, whole: bool) -> None:
        super().__init__(line, arguments)
        self.node, self.whole = node, whole
        self.ahead = node.op in ("always", "eventually", "until")
        self.mode = "windows" if node.window is not None else "after" if self.ahead and not whole else "before"
        self.near, self.far = node.window or (0, 0)
        self.counting = node.polarity == (1 if node.op == "always" else -1)
        # from a slot to the end of its block, and from its beginning
        self.after, self.before = Rows(folds), Rows(folds)
        self.heads, self.starts, self.stops = Indices(), Indices(), Indices()  # of blocks, and of windows
        self.rows += [self.after, self.before]
        self.indices += [self.heads, self.starts, self.stops]
        self.ended = False
        self.head = 0  # of the newest block
        self.head_stamp: int | None = None
        self.closed = self.begun = 0  # first slot whose window can grow, first whose window is yet to begin
        self.near_slot = self.far_slot = 0  # where the newest windows begin and end

    # --- what subclasses say ---

    @abstractmethod
    def walk(self, first: int, last: int, bound: int, step: int) -> int:
        """Works out the folds from ``first`` on, at least up to ``last``; gives the slot that stays as it was, or
        ``bound``."""

    def walk_newest(self, first: int, last: int, bound: int, step: int) -> int:
        """The same from right to left, inside the newest block."""
        return self.walk(first, last, bound, step)

    @abstractmethod
    def value(self, slot: int) -> Values:
        """The operator at one slot."""

    @abstractmethod
    def values(self, begin: int, end: int) -> Sequence[Array]:
        """The operator at many slots; all of their windows are closed, or none."""

    # --- one step ---

    def update(self, closed: bool) -> None:
        line, column, end = self.line, self.column, self.line.end
        below = min(self.arguments[0].final, self.arguments[-1].final)
        spans = union(self.arguments[0].changed, self.arguments[-1].changed)
        fresh, self.seen = self.seen, end
        completed = self._cut_blocks(fresh)
        if self.whole:
            self._spread_before(spans)
            column.final = below
        elif self.mode == "before":
            self._recompute(changed := self._spread_before(spans))
            column.changed, column.final = changed, below
        elif self.mode == "after":
            if closed:
                self.ended, self.head = True, end  # now all is asked for, of every slot
                spans = [(line.begin, end)]
            self._recompute(changed := self._update_after(spans, [], line.begin))
            column.changed = changed
        else:
            was_closed = self.closed
            self._move_windows(fresh)
            candidates = self._candidates(spans, completed, fresh, was_closed)
            opened = self._spread_open()
            self._recompute(candidates)
            column.changed = union(candidates, opened)
            while column.final < self.closed and self.stops.view[column.final] <= below:
                column.final += 1

    def _cut_blocks(self, fresh: int) -> list[Span]:
        """Gives the blocks that are complete now."""
        completed: list[Span] = []
        stamps, heads, bounded = self.line.view, self.heads.view, self.mode == "windows"
        span = self.far - self.near
        for slot in range(fresh, self.line.end):
            if self.head_stamp is None or (bounded and stamps[slot] > self.head_stamp + span):
                if self.head_stamp is not None:
                    completed.append((self.head, slot))
                self.head, self.head_stamp = slot, stamps[slot]
            heads[slot] = self.head
        return completed

    def _spread_before(self, spans: list[Span]) -> list[Span]:
        out: list[Span] = []
        reached, end = self.line.begin, self.line.end
        for begin, stop in spans:
            if stop > reached:
                begin = max(begin, reached)
                reached = self.walk(begin, stop, end, 1)
                out.append((begin, reached))
        return out

    def _update_after(self, spans: list[Span], completed: list[Span], floor: int) -> list[Span]:
        """No window that is closed begins in the newest block, but at its head; open ones do not ask for everything."""
        head = self.head
        newest = self._spread_after(spans, max(floor, head), self.line.end, self.walk_newest) if self.ahead else []
        if floor >= head:
            return newest
        return self._spread_after(merged([*spans, *completed]), floor, head, self.walk) + newest

    def _spread_after(self, spans: list[Span], floor: int, ceiling: int, walk: Callable[..., int]) -> list[Span]:
        out: list[Span] = []
        for begin, stop in reversed(spans):
            begin, stop = max(begin, floor), min(stop, ceiling)
            if begin < stop:
                ceiling = walk(stop - 1, begin - 1, floor - 1, -1) + 1
                out.append((ceiling, stop))
        return out[::-1]

    def is_first(self, slot: int, step: int) -> bool:
        """Is the slot the first of its block, in the order of a walk?"""
        heads = self.heads.view
        if step > 0:
            return heads[slot] == slot
        return slot + 1 == self.line.end or heads[slot + 1] == slot + 1

    # --- windows ---

    def _move_windows(self, fresh: int) -> None:
        """Windows that begin or close with the new samples."""
        stamps, end = self.line.view, self.line.end
        starts, stops = self.starts.view, self.stops.view
        near, far = self.near_slot, self.far_slot
        if not self.ahead:
            for slot in range(fresh, end):
                oldest, newest = stamps[slot] - self.far, stamps[slot] - self.near
                while stamps[near] < oldest:
                    near += 1
                while far < end and stamps[far] <= newest:
                    far += 1
                starts[slot], stops[slot] = near, far
            self.closed = self.begun = end
        else:
            newest = stamps[end - 1]
            slot = self.begun
            while slot < end and stamps[slot] + self.near <= newest:
                oldest = stamps[slot] + self.near
                near = max(near, slot)
                while stamps[near] < oldest:
                    near += 1
                starts[slot] = near
                slot += 1
            self.begun = slot
            slot = self.closed
            while slot < end and stamps[slot] + self.far <= newest:
                last = stamps[slot] + self.far
                far = max(far, slot)
                while far < end and stamps[far] <= last:
                    far += 1
                stops[slot] = far
                slot += 1
            self.closed = slot
        self.near_slot, self.far_slot = near, far

    def _candidates(self, spans: list[Span], completed: list[Span], fresh: int, was_closed: int) -> list[Span]:
        """Slots whose windows may hold something else than before, open ones before the newest block aside."""
        final, closed, end = self.column.final, self.closed, self.line.end
        starts, stops = self.starts.view, self.stops.view
        out: list[Span] = [(was_closed, closed), (max(fresh, closed), end)]
        floor = starts[final] if final < self.begun else final if self.ahead else self.near_slot
        for begin, stop in self._update_after(spans, completed, floor):
            if self.ahead and not self.near:  # windows begin where they stand
                low, high = max(begin, final), stop
            else:
                low = bisect_left(starts, begin, final, self.begun)
                high = bisect_left(starts, stop, low, self.begun)
            out.append((low, min(high, closed)))
            out.append((max(low, closed), high))
        for begin, stop in self._spread_before(spans):
            low = bisect_left(stops, begin + 1, final, closed)
            out.append((low, bisect_left(stops, stop + 1, low, closed)))
        return merged(out)

    def _spread_open(self) -> list[Span]:
        """Open windows from earlier blocks all end with the newest: from the last on, until one stays as it was."""
        closed, begun = self.closed, self.begun
        if closed >= begun or self.starts.view[closed] >= self.head:
            return []
        slot = bisect_left(self.starts.view, self.head, closed, begun)
        stop, few = slot, max(slot - FEW, closed)
        while slot > few:
            if not self.column.put(slot - 1, self.value(slot - 1)):
                break
            slot -= 1
        else:
            size = CHUNK
            while slot > closed:
                begin = max(closed, slot - size)
                span = self.column.put_many(begin, slot, self.values(begin, slot))
                if span is None or span[0] > begin:
                    slot = slot if span is None else span[0]
                    break
                slot, size = begin, 4 * size
        return [(slot, stop)] if slot < stop else []

    def _recompute(self, spans: list[Span]) -> None:
        """Looks at the slots again, and leaves in the list where something has changed."""
        put, value = self.column.put, self.value
        kept: list[Span] = []
        for begin, end in spans:
            if end - begin > FEW:
                cut = self.closed if self.mode == "windows" and begin < self.closed < end else end
                for first, last in ((begin, cut), (cut, end)):
                    span = self.column.put_many(first, last, self.values(first, last)) if first < last else None
                    kept += [span] if span else []
                continue
            start = -1
            for slot in range(begin, end):
                if put(slot, value(slot)):
                    stop = slot + 1
                    start = slot if start < 0 else start
            if start >= 0:
                kept.append((start, stop))
        spans[:] = kept

    def _parts(self, begin: int, end: int) -> tuple[Array, Array, Array, Array, Array]:
        """For many windows: folds at their beginnings and ends, and whether they are empty, one block's end, or one
        block's beginning."""
        if begin >= self.closed:  # open: up to the newest sample
            starts = self.starts.values[begin:end].copy()
            starts[max(self.begun - begin, 0) :] = self.line.end
            stops = np.full(end - begin, self.line.end)
        else:
            starts, stops = self.starts.values[begin:end], self.stops.values[begin:end]
        empty = starts >= stops
        starts, lasts = np.where(empty, self.line.begin, starts), np.where(empty, self.line.begin, stops - 1)
        heads = self.heads.values
        single = heads[starts] == heads[lasts]
        front = single & (heads[starts] == starts)
        return self.after.rows[:, starts], self.before.rows[:, lasts], empty, single & ~front, front

    @property
    def keeps(self) -> int:
        if self.ahead or self.mode == "before":
            return self.column.final - 1
        final = self.column.final
        return (self.starts.view[final] if final < self.seen else self.near_slot) - 1


class Extreme(Fold):
    """always, historically; mirrored: eventually, once."""

    def __init__(self, line: Line, arguments: Sequence[Column], node: GraphNode, whole: bool = False) -> None:
        super().__init__(line, arguments, node, 3, whole)
        self.mirrored = node.op in ("eventually", "once")

    def walk(self, first: int, last: int, bound: int, step: int) -> int:
        argument = self.arguments[0]
        mirrored, heads = self.mirrored, self.heads.view
        lowers, uppers, rhos = argument.views
        own_lowers, own_uppers, own_rhos = (self.before if step > 0 else self.after).views
        head = heads[first]
        lower, upper, rho = self._carried(first, step)
        slot = first
        few = first + step * STEPS if step * (last - first) < STEPS else first
        while slot != bound:
            if heads[slot] != head:
                if step * (slot - last) >= 0:
                    return slot
                lower, upper, rho, head = INF, INF, NAN, heads[slot]
            if slot == few:
                return self._sweep(slot, last, bound, step)
            if mirrored:
                a, b, c = -uppers[slot], -lowers[slot], -rhos[slot]
            else:
                a, b, c = lowers[slot], uppers[slot], rhos[slot]
            if a < lower:
                lower = a
            if b < upper:
                upper = b
            if c == c and not c >= rho:
                rho = c
            if step * (slot - last) >= 0 and own_lowers[slot] == lower and own_uppers[slot] == upper:
                old = own_rhos[slot]
                if old == rho or (old != old and rho != rho):
                    return slot
            own_lowers[slot] = lower
            own_uppers[slot] = upper
            own_rhos[slot] = rho
            slot += step
        return slot

    def _carried(self, slot: int, step: int) -> Values:
        """The fold before a slot, in the order of the walk."""
        if self.is_first(slot, step):
            return (INF, INF, NAN)
        a, b, c = (self.before if step > 0 else self.after).views
        return (a[slot - step], b[slot - step], c[slot - step])

    def so_far(self) -> Values:
        """The minimum from the first sample on, of what is mirrored its negation; rho skips NaN."""
        lowers, uppers, rhos = self.before.views
        newest = self.line.end - 1
        return (lowers[newest], uppers[newest], rhos[newest])

    def walk_newest(self, first: int, last: int, bound: int, step: int) -> int:
        """An open window is asked for its upper bound alone."""
        if self.mode == "after" and self.counting:
            return self.walk(first, last, bound, step)
        row, mirrored = (0, True) if self.mirrored else (1, False)
        values, own = self.arguments[0].views[row], self.after.views[1]
        slot, few = first, max(bound, first - STEPS) if first - last < STEPS else first
        upper = own[slot + 1] if slot + 1 < self.line.end else INF
        while slot > few:
            value = -values[slot] if mirrored else values[slot]
            if value < upper:
                upper = value
            if slot <= last and own[slot] == upper:
                return slot
            own[slot] = upper
            slot -= 1
        size = CHUNK
        while slot > bound:
            begin = max(slot + 1 - size, bound + 1)
            piece = self.arguments[0].rows[row, begin : slot + 1]
            folded = np.minimum(np.minimum.accumulate((-piece if mirrored else piece)[::-1])[::-1], upper)
            upper = float(folded[0])
            stays = begin <= last and upper == own[begin]
            self.after.rows[1, begin : slot + 1] = folded
            slot, size = begin - 1, 4 * size
            if stays:
                break
        return slot

    def _sweep(self, slot: int, last: int, bound: int, step: int) -> int:
        """The rest of a long walk."""
        own = self.before if step > 0 else self.after
        size = CHUNK
        while slot != bound:
            begin, end = piece_of(self, slot, bound, step, size)
            rows = self.arguments[0].rows[:, begin:end]
            if self.mirrored:
                rows = -rows[[1, 0, 2]]
            carried = np.array(self._carried(slot, step))[:, None]
            folded = np.fmin(np.fmin.accumulate(rows[:, ::step], axis=1), carried)[:, ::step]
            far = end - 1 if step > 0 else begin
            over = step * (far - last) >= 0
            stays = over and bool(equal(folded[:, far - begin], own.rows[:, far]).all())
            own.rows[:, begin:end] = folded
            slot = far + step
            if stays or (over and slot != bound and self.heads.view[slot] != self.heads.view[far]):
                return slot
            size *= 4
        return slot

    def _said(self, lower: float, upper: float, rho: float) -> Values:
        lower, upper, rho = settle(lower, upper, rho)
        return (-upper, -lower, -rho) if self.mirrored else (lower, upper, rho)

    def value(self, slot: int) -> Values:
        a, b, c = self.after.views
        if self.mode == "before":
            a, b, c = self.before.views
        elif self.mode == "after":
            if not (self.ended or self.counting):
                return self._open(b[slot])
        elif slot >= self.closed:  # the window can grow
            if slot >= self.begun:
                return self._open(INF)
            start = self.starts.view[slot]
            upper = b[start]
            if start < self.head:
                other = self.before.views[1][self.line.end - 1]
                upper = other if other < upper else upper
            return self._open(upper)
        else:
            start, last = self.starts.view[slot], self.stops.view[slot] - 1
            if start > last:
                return self._said(INF, INF, INF)
            head = self.heads.view[start]
            d, e, f = self.before.views
            if head != self.heads.view[last]:
                one, other = c[start], f[last]
                rho = other if one != one or other < one else one
                return self._said(min(a[start], d[last]), min(b[start], e[last]), rho)
            if head == start:
                a, b, c, start = d, e, f, last
            slot = start
        return self._said(a[slot], b[slot], c[slot])

    def _open(self, upper: float) -> Values:
        rho = NAN if upper > -INF else -INF
        return (-upper, INF, -rho) if self.mirrored else (-INF, upper, rho)

    def values(self, begin: int, end: int) -> Sequence[Array]:
        pending = False
        if self.mode != "windows":
            found = (self.before if self.mode == "before" else self.after).rows[:, begin:end].copy()
            pending = self.mode == "after" and not (self.ended or self.counting)
        else:
            pending = begin >= self.closed
            if pending and not self.near:
                return self._open_values(begin, end)
            after, before, empty, back, front = self._parts(begin, end)
            found = np.where(back, after, np.where(front, before, np.fmin(after, before)))
            found[:, empty] = INF
        if pending:
            found[0], found[2] = -INF, NAN
        return settled(found[0], found[1], found[2], self.mirrored)

    def _open_values(self, begin: int, end: int) -> Sequence[Array]:
        """Where windows begin where they stand and end with the newest sample."""
        upper = self.after.rows[1, begin:end].copy()
        if begin < self.head:
            earlier = upper[: self.head - begin]
            np.minimum(earlier, self.before.views[1][self.line.end - 1], out=earlier)
        lower, rho = np.full(end - begin, -INF), np.where(upper > -INF, NAN, -INF)
        return (-upper, -lower, -rho) if self.mirrored else (lower, upper, rho)


def piece_of(fold: Fold, slot: int, bound: int, step: int, size: int) -> Span:
    """The next slots of a walk, within their block."""
    head, heads = fold.heads.view[slot], fold.heads.view
    if step > 0:
        end = min(slot + size, bound)
        return (slot, bisect_left(heads, head + 1, slot, end))
    begin = max(slot + 1 - size, bound + 1)
    return (max(begin, head), slot + 1)


def settled(lower: Array, upper: Array, rho: Array, mirrored: bool) -> tuple[Array, Array, Array]:
    """:func:`runtime.settle` for many, and its negation where mirrored."""
    rho = np.where(lower == upper, lower, np.minimum(np.maximum(rho, lower), upper))
    return (-upper, -lower, -rho) if mirrored else (lower, upper, rho)
