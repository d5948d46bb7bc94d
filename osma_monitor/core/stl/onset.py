"""When a monitor would first have said so: the first sample at which a bound is decided, for whole traces at once.

For every node and sample two times, as positions on the timeline, inf for never: from when on the open trace gives
``upper < 0``, and from when on ``lower > 0``. Bounds of an open trace only narrow, so two times say it all. They
obey the formula: a conjunction is violated with the first of its parts, ``eventually`` when its window has gone by
and every sample in it is violated; a time never lies before its own sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.stl import tracks
from osma_monitor.core.stl.graph import Graph, GraphNode
from osma_monitor.core.stl.offline import Timeline, evaluate_graph
from osma_monitor.core.stl.tracks import Array, Index, Track

Times = NDArray[np.float64]
_HANDLED = frozenset({
    "not", "and", "or", "implies", "iff", "xor", "next", "prev", "rise", "fall", "always", "eventually", "until",
    "historically", "once", "since",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Onset:
    """``violated``: first position at which ``upper < 0``; ``satisfied``: first position at which ``lower > 0``."""

    violated: Times
    satisfied: Times

    def __invert__(self) -> Onset:
        return Onset(self.satisfied, self.violated)

    def __and__(self, other: Onset) -> Onset:
        return Onset(np.minimum(self.violated, other.violated), np.maximum(self.satisfied, other.satisfied))

    def __or__(self, other: Onset) -> Onset:
        return ~(~self & ~other)


def can_tell(graph: Graph, root: int) -> bool:
    """False for comparisons and arithmetic over terms that look ahead: their signs are not those of their parts."""
    stack, seen = [root], {root}
    while stack:
        node = graph.nodes[stack.pop()]
        if node.future:
            if node.op not in _HANDLED:
                return False
            stack += [a for a in node.args if a not in seen]
            seen.update(node.args)
    return True


def first_violated(graph: Graph, root: int, timeline: Timeline, columns: Sequence[Array]) -> Times:
    """For every sample the first position at which a formula judged there is violated while the trace is open.

    Args:
        graph: compiled formulas.
        root: a node of which :func:`can_tell` is true.
        timeline: the stamps of some episodes.
        columns: one array a signal, NaN where unknown.
    """
    needed: set[int] = set()
    known: set[int] = set()
    stack = [root]
    while stack:
        index = stack.pop()
        if graph.nodes[index].future and index not in needed:
            needed.add(index)
            stack += graph.nodes[index].args
        elif not graph.nodes[index].future:
            known.add(index)
    found: dict[int, Onset] = {}
    here = timeline.here.astype(np.float64)
    for index, track in evaluate_graph(graph, timeline, columns, True, known).items():
        found[index] = Onset(np.where(track.upper < 0, here, np.inf), np.where(track.lower > 0, here, np.inf))
    for index in sorted(needed):
        node = graph.nodes[index]
        found[index] = _node(node, [found[a] for a in node.args], timeline)
    return found[root].violated


def _node(node: GraphNode, arguments: list[Onset], timeline: Timeline) -> Onset:
    op, first, second = node.op, arguments[0], arguments[-1]
    if op == "not":
        return ~first
    if op == "and":
        return first & second
    if op == "or":
        return first | second
    if op == "implies":
        return ~first | second
    if op in ("iff", "xor"):
        both = (~first | second) & (~second | first)
        return both if op == "iff" else ~both
    if op == "next":
        return _shift(first, timeline, 1)
    if op == "prev":
        return _not_before(_shift(first, timeline, -1), timeline)
    if op == "rise":
        return _not_before(first & _shift(~first, timeline, -1), timeline)
    if op == "fall":
        return _not_before(~first & _shift(first, timeline, -1), timeline)
    if op in ("historically", "once"):
        starts, stops = _back(node, timeline)
        turned = first if op == "historically" else ~first
        result = Onset(
            tracks.range_minimum(turned.violated, starts, stops), tracks.range_maximum(turned.satisfied, starts, stops)
        )
        return _not_before(result if op == "historically" else ~result, timeline)
    if op == "since":
        starts, stops = _back(node, timeline)
        chain = [
            tracks.since(Track.exact(hold), Track.exact(release), timeline.first, starts, stops).lower
            for hold, release in ((first.violated, second.violated), (-first.satisfied, -second.satisfied))
        ]
        return _not_before(Onset(chain[0], -chain[1]), timeline)
    return _until(node, first, second, timeline) if op == "until" else _ahead(node, first, timeline)


def _shift(a: Onset, timeline: Timeline, step: int) -> Onset:
    """The neighbour's times. Before the first sample all is true at once, beyond the last nothing is decided."""
    neighbour = np.clip(timeline.here + step, 0, max(timeline.count - 1, 0))
    edge = (timeline.here == timeline.first) if step < 0 else (timeline.here == timeline.stop - 1)
    satisfied = timeline.here.astype(np.float64) if step < 0 else np.inf
    return Onset(np.where(edge, np.inf, a.violated[neighbour]), np.where(edge, satisfied, a.satisfied[neighbour]))


def _not_before(a: Onset, timeline: Timeline) -> Onset:
    return Onset(np.maximum(a.violated, timeline.here), np.maximum(a.satisfied, timeline.here))


def _back(node: GraphNode, timeline: Timeline) -> tuple[Index, Index]:
    return (timeline.first, timeline.here + 1) if node.window is None else timeline.window(node.window, False)


def _elapsed(window: tuple[int, int], timeline: Timeline) -> Times:
    """The sample with which the window has gone by."""
    end = timeline.window((window[1], window[1]), True)[0]
    return np.where(end < timeline.stop, end, np.inf)


def _ahead(node: GraphNode, a: Onset, timeline: Timeline) -> Onset:
    """always; eventually is its mirror image."""
    a = a if node.op == "always" else ~a
    if node.window is None:  # what it has seen so far, or pending: never true while the trace is open
        result = Onset(
            tracks.range_minimum(a.violated, timeline.here, timeline.stop), np.full(timeline.count, np.inf)
        )  # fmt: skip
    else:
        starts, stops = timeline.window(node.window, True)
        result = Onset(
            tracks.range_minimum(a.violated, starts, stops),
            np.maximum(_elapsed(node.window, timeline), tracks.range_maximum(a.satisfied, starts, stops)),
        )
    return result if node.op == "always" else ~result


def _until(node: GraphNode, hold: Onset, release: Onset, timeline: Timeline) -> Onset:
    count = timeline.count
    starts, stops = (timeline.here, timeline.stop) if node.window is None else timeline.window(node.window, True)

    def chain(holds: Times, releases: Times) -> Times:  # until is since on the reversed trace
        mirrored = tracks.since(
            Track.exact(holds[::-1]), Track.exact(releases[::-1]), (count - timeline.stop)[::-1],
            (count - stops)[::-1], (count - starts)[::-1],
        )  # fmt: skip
        return np.asarray(mirrored.lower[::-1])

    broken = tracks.range_minimum(hold.violated, timeline.here, timeline.stop)
    if node.window is not None:
        broken = np.minimum(broken, _elapsed(node.window, timeline))
    violated = np.maximum(broken, chain(hold.violated, release.violated))
    return Onset(violated, -chain(-hold.satisfied, -release.satisfied))
