"""Clauses in which an operator that looks ahead stands inside another temporal operator.

Their inner values at past samples still move while windows are open, so they are kept and worked out again from the samples that can
still move, with the operators of whole-trace evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.offline import Timeline, evaluate_graph
from osma_monitor.core.stl.runtime import as_bounds
from osma_monitor.core.stl.tracks import Track
from osma_monitor.core.stl.verdict import Bounds

Result = tuple[Bounds, Bounds, bool]


class Stream:
    """One such clause. ``inputs``: the nodes that do not look ahead and feed it."""

    def __init__(self, graph: Graph, clause: int, inputs: Sequence[int]) -> None:
        self._graph = graph
        self._root = graph.roots[clause]
        self._antecedents = tuple(a for a in graph.antecedents[clause] if graph.nodes[a].future)
        self._inputs = tuple(inputs)
        self._stamps: list[int] = []
        self._rows: list[tuple[tuple[float, float, float], ...]] = []

    def push(self, stamp: int, values: tuple[tuple[float, float, float], ...], closed: bool = False) -> Result:
        """Takes the inputs' (lower, upper, rho) at one sample; gives the judged bounds, those of this instant, triggered."""
        self._stamps.append(stamp)
        self._rows.append(values)
        return self.result(closed)

    def result(self, closed: bool) -> Result:
        count = len(self._stamps)
        rows = np.array(self._rows, dtype=np.float64).reshape(count, len(self._inputs), 3)
        given = {node: Track(*(rows[:, i, part].copy() for part in range(3))) for i, node in enumerate(self._inputs)}
        timeline = Timeline(np.array(self._stamps, dtype=np.int64))
        columns = [np.empty(0)] * len(self._graph.signals)
        wanted = (self._root, *self._antecedents)
        found = evaluate_graph(self._graph, timeline, columns, closed, wanted, given)
        root = found[self._root]
        triggered = any(bool((found[a].lower > 0).any()) for a in self._antecedents)
        judged, now = (as_bounds(root.lower[i], root.upper[i], root.rho[i]) for i in (0, -1))
        return judged, now, triggered

    def state(self) -> list[Any]:
        return [list(self._stamps), [[list(v) for v in row] for row in self._rows]]

    def load(self, state: list[Any]) -> None:
        self._stamps = list(state[0])
        self._rows = [tuple((v[0], v[1], v[2]) for v in row) for row in state[1]]
