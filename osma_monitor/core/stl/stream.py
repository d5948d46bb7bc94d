"""Clauses in which operators that look ahead stand inside other temporal operators, however deep.

Their inner values at past samples still move while windows are open. A stream keeps the samples whose inner values
can still move, and works these out again at each sample with the operators of whole-trace evaluation. What has become
final is folded into running values and dropped, so memory is bounded by the windows; an unbounded operator inside
another one keeps the whole trace. :mod:`osma_monitor.core.stl.nested` has a cheaper way for one right inside another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from osma_monitor.core.stl import tracks
from osma_monitor.core.stl.graph import Graph, GraphNode
from osma_monitor.core.stl.offline import Timeline, evaluate_node
from osma_monitor.core.stl.runtime import INF, NAN
from osma_monitor.core.stl.syntax import PAST
from osma_monitor.core.stl.top import Top
from osma_monitor.core.stl.tracks import Array, Track
from osma_monitor.core.stl.verdict import Bounds

Result = tuple[Bounds, Bounds, bool]
Values = tuple[float, float, float]
_STEPS: Final = frozenset({"prev", "rise", "fall"})


class Stream:
    """One such clause.

    Args:
        graph: the library's graph.
        clause: position of the clause.
        inputs: the nodes that do not look ahead and feed it.
    """

    reworks = True

    def __init__(self, graph: Graph, clause: int, inputs: Sequence[int]) -> None:
        self._graph = graph
        self._root = graph.roots[clause]
        self._inputs = tuple(inputs)
        self._antecedents = tuple(a for a in graph.antecedents[clause] if graph.nodes[a].future)
        self._top = Top(graph, self._root)
        self._leaves = self._top.leaves
        # an unbounded always or eventually at the top is a running value over its finished samples
        self._running: dict[int, Values] = {
            leaf: (INF, INF, NAN)
            for leaf in self._leaves
            if graph.nodes[leaf].op in ("always", "eventually") and graph.nodes[leaf].window is None
        }
        # so is an unbounded until
        self._chains: dict[int, _Chain] = {
            leaf: _Chain() for leaf in self._leaves if graph.nodes[leaf].op == "until" and not graph.nodes[leaf].window
        }
        # the others are judged at the first sample, which stays until they are final
        self._latched: dict[int, Values | None] = {
            leaf: None for leaf in self._leaves if leaf not in self._running and leaf not in self._chains
        }
        self._inner = self._inner_nodes()
        self._memory: dict[int, _Memory] = {
            i: _Memory(len(graph.nodes[i].args)) for i in self._inner if graph.nodes[i].op in PAST
        }
        self._stamps = np.empty(16, dtype=np.int64)
        self._values = np.empty((len(self._inputs), 3, 16))
        self._begin = self._end = self._dropped = 0
        self._triggered = False
        self._exact = True  # every input so far was a point: one array does for three

    def _inner_nodes(self) -> list[int]:
        """Nodes to work out over the kept samples, in order."""
        found: set[int] = set()
        roots = [a for leaf in (*self._running, *self._chains) for a in self._graph.nodes[leaf].args]
        stack = [*roots, *self._latched, *self._antecedents]
        while stack:
            index = stack.pop()
            if index in found or index in self._inputs or self._graph.nodes[index].scalar:
                continue
            found.add(index)
            stack += self._graph.nodes[index].args
        return sorted(found)

    # --- samples ---

    def push(self, stamp: int, values: tuple[Values, ...]) -> Result:
        """Takes the inputs' (lower, upper, rho) at one sample; gives judged bounds, this instant's, and triggered."""
        if self._end == len(self._stamps):
            self._make_room()
        self._stamps[self._end] = stamp
        if self._inputs:
            self._values[:, :, self._end] = values
            self._exact = self._exact and all(lower == upper for lower, upper, _ in values)
        self._end += 1
        return self.result(False)

    def _make_room(self) -> None:
        kept = slice(self._begin, self._end)
        count = self._end - self._begin
        size = max(16, 2 * count)
        stamps, values = np.empty(size, dtype=np.int64), np.empty((len(self._inputs), 3, size))
        stamps[:count], values[:, :, :count] = self._stamps[kept], self._values[:, :, kept]
        self._stamps, self._values, self._begin, self._end = stamps, values, 0, count

    def __len__(self) -> int:
        """Kept samples, those in memories included."""
        return self._end - self._begin + sum(len(m.stamps) for m in self._memory.values())

    def result(self, closed: bool) -> Result:
        """What can be said now; ``closed``: the trace has ended."""
        kept = slice(self._begin, self._end)
        timeline = Timeline(self._stamps[kept].copy())
        found: dict[int, Track] = {}
        for position, node in enumerate(self._inputs):
            if self._exact:
                found[node] = Track.exact(self._values[position, 0, kept].copy())
            else:
                found[node] = Track(*self._values[position, :, kept].copy())
        with np.errstate(all="ignore"):
            for index in self._inner:
                found[index] = self._evaluate(index, found, timeline, closed)
        for antecedent in self._antecedents:
            self._triggered = self._triggered or bool((found[antecedent].lower > 0).any())
        judged = self._top.value({leaf: self._judge_leaf(leaf, found, closed) for leaf in self._leaves})
        now = self._top.value({leaf: self._leaf_now(leaf, found, closed) for leaf in self._leaves})
        if not closed:
            self._settle_finished(found, timeline)
        return judged, now, self._triggered

    def _evaluate(self, index: int, found: dict[int, Track], timeline: Timeline, closed: bool) -> Track:
        node = self._graph.nodes[index]
        arguments = [self._argument(a, found, timeline) for a in node.args]
        memory = self._memory.get(index)
        if memory is None or not memory.stamps.size:
            return evaluate_node(node, arguments, timeline, closed)
        longer = Timeline(np.concatenate([memory.stamps, timeline.stamps]))
        joined = [_join(old, new) for old, new in zip(memory.tracks, arguments, strict=True)]
        return evaluate_node(node, joined, longer, closed)[len(memory.stamps) :]

    def _argument(self, index: int, found: dict[int, Track], timeline: Timeline) -> Track:
        if not self._graph.nodes[index].scalar:
            return found[index]
        return Track.exact(np.full(timeline.count, self._graph.nodes[index].value))

    # --- the clause at its first sample, and at the newest ---

    def _judge_leaf(self, leaf: int, found: dict[int, Track], closed: bool) -> Values:
        node = self._graph.nodes[leaf]
        if leaf in self._running:
            body = found[node.args[0]]
            mirrored = node.op == "eventually"
            lower, upper, rho = _merge(self._running[leaf], tracks.negate(body) if mirrored else body)
            values = _ordered(lower, upper, rho)
            if not closed and node.polarity != (-1 if mirrored else 1):
                values = _ordered(-INF, upper, NAN)
            return _turn(values) if mirrored else values
        if leaf in self._chains:
            hold, release = (found[a] for a in node.args)
            return self._chains[leaf].after(hold, release).judged(not closed and node.polarity != -1)
        latched = self._latched[leaf]
        if latched is not None:
            return latched
        return _at(found[leaf], 0)

    def _leaf_now(self, leaf: int, found: dict[int, Track], closed: bool) -> Values:
        node = self._graph.nodes[leaf]
        if leaf in self._chains:
            hold, release = (found[a][-1:] for a in node.args)
            return _Chain().after(hold, release).judged(not closed and node.polarity != -1)
        if leaf not in self._running:
            return _at(found[leaf], -1)
        mirrored = node.op == "eventually"
        lower, upper, rho = _at(found[node.args[0]], -1)
        if closed or node.polarity == (-1 if mirrored else 1):
            return (lower, upper, rho)
        return _ordered(lower, INF, NAN) if mirrored else _ordered(-INF, upper, NAN)

    # --- letting go of what is final ---

    def _settle_finished(self, found: dict[int, Track], timeline: Timeline) -> None:
        """Folds samples whose inner values can no longer move into the running values, and drops them."""
        final = self._final_counts(timeline)
        for leaf, latched in self._latched.items():
            if latched is None and final.get(leaf, timeline.count) > 0:
                self._latched[leaf] = _at(found[leaf], 0)
        if any(latched is None for latched in self._latched.values()):
            return
        # the newest sample stays: close() asks for its value
        count = min([timeline.count - 1, *(final[i] for i in self._inner)])
        if not count:
            return
        for leaf in self._running:
            node = self._graph.nodes[leaf]
            body = found[node.args[0]][:count]
            self._running[leaf] = _merge(self._running[leaf], tracks.negate(body) if node.op == "eventually" else body)
        for leaf, chain in self._chains.items():
            hold, release = (found[a][:count] for a in self._graph.nodes[leaf].args)
            self._chains[leaf] = chain.after(hold, release)
        next_stamp = int(timeline.stamps[count])
        for index, memory in self._memory.items():
            node = self._graph.nodes[index]
            arguments = [self._argument(a, found, timeline)[:count] for a in node.args]
            memory.take(node, timeline.stamps[:count], arguments, found[index][:count], next_stamp)
        self._begin += count
        self._dropped += count

    def _final_counts(self, timeline: Timeline) -> dict[int, int]:
        """For every inner node how many leading kept samples have values that no later sample can change."""
        stamps, count = timeline.stamps, timeline.count
        final = dict.fromkeys(self._inputs, count)
        for index in self._inner:
            node = self._graph.nodes[index]
            below = min((final[a] for a in node.args if not self._graph.nodes[a].scalar), default=count)
            if node.op == "next":
                below = max(below - 1, 0)
            elif node.op in ("always", "eventually", "until"):
                if node.window is None:
                    below = 0
                elif below == count:  # windows that end by now are complete: the next stamp comes later
                    below = int(np.searchsorted(stamps, _before(stamps[-1], node.window[1]), side="right"))
                else:
                    below = min(
                        below, int(np.searchsorted(stamps, _before(stamps[below], node.window[1]), side="left"))
                    )
            final[index] = below
        return final

    # --- plain data ---

    def take_over(
        self,
        rows: Sequence[tuple[int, tuple[Values, ...]]],
        running: Mapping[int, Values],
        latched: Mapping[int, Values],
        triggered: bool,
        known: bool,
    ) -> None:
        """Goes on where another stream stopped: the kept samples, and the operators at the top so far.

        ``known``: all samples so far were points.
        """
        self._exact = known
        self._begin, self._end = 0, len(rows)
        self._stamps = np.array([*(stamp for stamp, _ in rows), 0], dtype=np.int64)
        self._values = np.empty((len(self._inputs), 3, len(rows) + 1))
        for place, (_, values) in enumerate(rows):
            self._values[:, :, place] = values
        self._running.update(running)
        self._latched.update(latched)
        self._triggered = triggered

    def state(self) -> list[Any]:
        kept = slice(self._begin, self._end)
        return [
            self._stamps[kept].tolist(),
            self._values[:, :, kept].tolist(),
            [list(v) for v in self._running.values()],
            [None if v is None else list(v) for v in self._latched.values()],
            [m.state() for m in self._memory.values()],
            [[list(c.best), list(c.held), c.known] for c in self._chains.values()],
            self._triggered,
            self._exact,
        ]

    def load(self, state: list[Any]) -> None:
        stamps, values, running, latched, memory, chains, self._triggered, self._exact = state
        self._begin, self._end = 0, len(stamps)
        self._stamps = np.array([*stamps, 0], dtype=np.int64)
        self._values = np.empty((len(self._inputs), 3, len(stamps) + 1))
        if self._inputs:
            self._values[:, :, :-1] = values
        self._running = {leaf: (v[0], v[1], v[2]) for leaf, v in zip(self._running, running, strict=True)}
        self._latched = {
            leaf: None if v is None else (v[0], v[1], v[2]) for leaf, v in zip(self._latched, latched, strict=True)
        }
        for own, saved in zip(self._memory.values(), memory, strict=True):
            own.load(saved)
        self._chains = {
            leaf: _Chain((best[0], best[1], best[2]), (held[0], held[1], held[2]), known)
            for leaf, (best, held, known) in zip(self._chains, chains, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _Chain:
    """An unbounded until at the first sample, over some samples from there on.

    Attributes:
        best: lower, upper and rho of the best release so far, with what was held before it; unknown ones count as none.
        held: lower, upper and rho of the least hold so far; unknown ones count as held.
        known: some release was known.
    """

    best: Values = (-INF, -INF, -INF)
    held: Values = (INF, INF, INF)
    known: bool = False

    def after(self, hold: Track, release: Track) -> _Chain:
        """Further samples."""
        best, held = [], []
        for part, (holds, releases) in enumerate(zip(_three(hold), _three(release), strict=True)):
            holds = np.where(np.isnan(holds), INF, holds)
            least = np.minimum(np.minimum.accumulate(holds), self.held[part])
            before = np.append(self.held[part], least[:-1])
            releases = np.where(np.isnan(releases), -INF, releases)
            best.append(float(np.minimum(releases, before).max(initial=self.best[part])))
            held.append(float(least[-1]))
        known = self.known or not bool(np.isnan(release.rho).all())
        return _Chain((best[0], best[1], best[2]), (held[0], held[1], held[2]), known)

    def judged(self, pending: bool) -> Values:
        """``pending``: a release may still come while hold has not been broken."""
        lower, upper, rho = self.best
        if not pending:
            return _ordered(lower, upper, rho if self.known else NAN)
        held = INF if self.held[1] >= 0 else self.held[1]
        return _ordered(lower, max(upper, held), NAN)


def _three(track: Track) -> tuple[Array, Array, Array]:
    return (track.lower, track.upper, track.rho)


class _Memory:
    """What an operator that looks back needs of dropped samples: arguments inside its window, or one stand-in."""

    def __init__(self, arguments: int) -> None:
        self.stamps = np.empty(0, dtype=np.int64)
        self.tracks = [Track.exact(np.empty(0)) for _ in range(arguments)]

    def take(self, node: GraphNode, stamps: Array, arguments: list[Track], results: Track, next_stamp: int) -> None:
        if node.op in _STEPS:
            self.stamps, self.tracks = stamps[-1:].copy(), [a[-1:] for a in arguments]
        elif node.window is None:
            # the result so far stands in for all samples: as the value looked at, or as the release that still holds
            self.stamps, self.tracks = stamps[-1:].copy(), [results[-1:] for _ in arguments]
        else:
            joined = np.concatenate([self.stamps, stamps])
            keep = int(np.searchsorted(joined, _before(next_stamp, node.window[1]), side="left"))
            self.tracks = [_join(old, new)[keep:] for old, new in zip(self.tracks, arguments, strict=True)]
            self.stamps = joined[keep:]

    def state(self) -> list[Any]:
        return [self.stamps.tolist(), [[p.tolist() for p in _parts(t)] for t in self.tracks]]

    def load(self, state: list[Any]) -> None:
        self.stamps = np.array(state[0], dtype=np.int64)
        tracks_saved = [[np.array(part, dtype=np.float64) for part in track] for track in state[1]]
        self.tracks = [Track.exact(t[0]) if len(t) == 1 else Track(*t) for t in tracks_saved]


def _before(stamp: int, span: int) -> int:
    """``stamp - span``, kept inside int64."""
    return max(int(stamp) - span, -(2**63))


def _parts(track: Track) -> tuple[Array, ...]:
    return (track.lower,) if track.point else (track.lower, track.upper, track.rho)


def _join(old: Track, new: Track) -> Track:
    if old.point and new.point:
        return Track.exact(np.concatenate([old.lower, new.lower]))
    return Track(
        np.concatenate([old.lower, new.lower]),
        np.concatenate([old.upper, new.upper]),
        np.concatenate([old.rho, new.rho]),
    )


def _at(track: Track, index: int) -> Values:
    return (float(track.lower[index]), float(track.upper[index]), float(track.rho[index]))


def _merge(so_far: Values, body: Track) -> Values:
    """The minimum over more samples; rho skips what is unknown."""
    rho = float(np.fmin(so_far[2], np.fmin.reduce(body.rho))) if len(body.rho) else so_far[2]
    return (
        min(so_far[0], float(body.lower.min(initial=INF))),
        min(so_far[1], float(body.upper.min(initial=INF))),
        rho,
    )


def _ordered(lower: float, upper: float, rho: float) -> Values:
    """A point is its value; otherwise rho stays between the bounds."""
    if lower == upper:
        return (lower, upper, lower)
    return (lower, upper, lower if rho < lower else upper if rho > upper else rho)


def _turn(values: Values) -> Values:
    return (-values[1], -values[0], -values[2])
