"""Nodes of an open trace that need no running values: connectives, comparisons, arithmetic, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from osma_monitor.core.stl import tracks
from osma_monitor.core.stl.columns import FEW, Array, Column, Line, Node, Span, merged, union
from osma_monitor.core.stl.connectives import Values, minimum, negate, pointwise
from osma_monitor.core.stl.graph import GraphNode
from osma_monitor.core.stl.offline import Timeline, evaluate_node
from osma_monitor.core.stl.runtime import INF, NAN, settle
from osma_monitor.core.stl.tracks import Track

NOWHERE: Final = Timeline(np.zeros(1, dtype=np.int64))  # these operators do not ask for the time


class Pointwise(Node):
    """Each sample by itself."""

    def __init__(self, line: Line, arguments: Sequence[Column], node: GraphNode) -> None:
        super().__init__(line, arguments)
        self._node = node
        self._one = pointwise(node)

    def update(self, closed: bool) -> None:
        column, arguments, one = self.column, self.arguments, self._one
        first, second = arguments[0], arguments[-1]
        column.final = first.final if first.final < second.final else second.final
        changed: list[Span] = []
        column.changed = changed
        single, put = len(arguments) == 1, column.put
        lowers, uppers, rhos = first.views
        other_lowers, other_uppers, other_rhos = second.views
        for begin, end in union(first.changed, second.changed):
            if end - begin > FEW:
                span = self._many(begin, end)
                if span:
                    changed.append(span)
                continue
            start = -1
            for slot in range(begin, end):
                here = (lowers[slot], uppers[slot], rhos[slot])
                values = one(here) if single else one(here, (other_lowers[slot], other_uppers[slot], other_rhos[slot]))
                if put(slot, values):
                    stop = slot + 1
                    start = slot if start < 0 else start
            if start >= 0:
                changed.append((start, stop))

    def _many(self, begin: int, end: int) -> Span | None:
        with np.errstate(all="ignore"):
            given = [Track(*a.rows[:, begin:end]) for a in self.arguments]
            return self.column.put_many(begin, end, three(evaluate_node(self._node, given, NOWHERE, False)))


def three(track: Track) -> tuple[Array, Array, Array]:
    return (track.lower, track.upper, track.rho)


class Neighbour(Node):
    """prev, next, rise and fall."""

    def __init__(self, line: Line, arguments: Sequence[Column], node: GraphNode) -> None:
        super().__init__(line, arguments)
        self._op = node.op
        self.birth = 0

    slots = ("seen", "birth")

    def update(self, closed: bool) -> None:
        (argument,) = self.arguments
        column, op, end = self.column, self._op, self.line.end
        column.final = max(argument.final - 1, 0) if op == "next" else argument.final
        spans: list[Span] = []
        for begin, stop in argument.changed:
            spans.append((max(begin - 1, self.line.begin), stop) if op == "next" else (begin, min(stop + 1, end)))
        if closed and op == "next":
            spans.append((end - 1, end))
        column.changed = []
        for begin, stop in merged(spans):
            if stop - begin > FEW:
                span = column.put_many(begin, stop, self._many(begin, stop, closed))
                column.changed += [span] if span else []
                continue
            places = [slot for slot in range(begin, stop) if column.put(slot, self._one(slot, closed))]
            column.changed += [(places[0], places[-1] + 1)] if places else []

    def _one(self, slot: int, closed: bool) -> Values:
        op, argument = self._op, self.arguments[0]
        if op == "next":
            if slot + 1 < self.line.end:
                return argument.at(slot + 1)
            return (INF, INF, INF) if closed else (-INF, INF, NAN)
        if slot == self.birth:
            before = (INF, INF, INF) if op != "rise" else (-INF, -INF, -INF)
        else:
            before = argument.at(slot - 1)
        if op == "prev":
            return before
        here = argument.at(slot)
        return minimum(here, negate(before)) if op == "rise" else minimum(before, negate(here))

    def _many(self, begin: int, end: int, closed: bool) -> Sequence[Array]:
        rows = self.arguments[0].rows
        if self._op == "next":
            moved = rows[:, begin + 1 : end + 1].copy()
            if end == self.line.end:
                edge = [[INF], [INF], [INF]] if closed else [[-INF], [INF], [NAN]]
                moved = np.concatenate([rows[:, begin + 1 : end], edge], axis=1)
            return list(moved)
        if begin == self.birth:
            edge = [[-INF if self._op == "rise" else INF]] * 3
            moved = np.concatenate([edge, rows[:, begin : end - 1]], axis=1)
        else:
            moved = rows[:, begin - 1 : end - 1]
        before, here = Track(*moved), Track(*rows[:, begin:end])
        if self._op == "prev":
            return list(moved)
        turned = tracks.negate(before if self._op == "rise" else here)
        return three(tracks.minimum(here if self._op == "rise" else before, turned))


class Delayed(Node):
    """until and since whose windows begin apart from now: what they say from there on, and the least hold on the way.

    The first argument says the former with a rho that has not been brought between its bounds, the second the latter.
    """

    def update(self, closed: bool) -> None:
        beyond, held = self.arguments
        column = self.column
        column.final = min(beyond.final, held.final)
        column.changed = []
        for begin, end in union(beyond.changed, held.changed):
            if end - begin > FEW:
                span = column.put_many(begin, end, _delayed(beyond.rows[:, begin:end], held.rows[:, begin:end]))
                column.changed += [span] if span else []
                continue
            for slot in range(begin, end):
                lower, upper, rho = beyond.at(slot)
                least, most, skipped = held.at(slot)
                if column.put(slot, settle(min(lower, least), min(upper, most), skipped if skipped < rho else rho)):
                    column.changed.append((slot, slot + 1))
        column.changed = merged(column.changed)


def _delayed(beyond: Array, held: Array) -> tuple[Array, Array, Array]:
    rho = np.where(held[2] < beyond[2], held[2], beyond[2])
    return three(tracks.settle(np.minimum(beyond[0], held[0]), np.minimum(beyond[1], held[1]), rho))
