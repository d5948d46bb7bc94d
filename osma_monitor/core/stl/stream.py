"""Clauses in which operators that look ahead stand inside other temporal operators, however deep.

Their inner values at past samples still move while windows are open. A stream keeps the samples whose inner values
can still move, with what every node says at them, and passes on from node to node which of them have changed
(:mod:`osma_monitor.core.stl.columns`): a sample costs what changes at it, not the samples inside the windows. What has
become final is dropped, so memory is bounded by the windows; an unbounded operator
inside another one keeps the whole trace. :mod:`osma_monitor.core.stl.nested` has a cheaper way for one right inside
another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from osma_monitor.core.stl.chains import Chain
from osma_monitor.core.stl.columns import FEW, Column, Constant, Line, Node
from osma_monitor.core.stl.connectives import Values, negate
from osma_monitor.core.stl.folds import Extreme
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.plain import Delayed, Neighbour, Pointwise
from osma_monitor.core.stl.runtime import INF, NAN, settle
from osma_monitor.core.stl.top import Top
from osma_monitor.core.stl.verdict import Bounds

Result = tuple[Bounds, Bounds, bool]
_NOTHING: Final[Values] = (INF, INF, NAN)


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
        self._top = Top(graph, graph.roots[clause])
        self._line = Line()
        self._columns: dict[int, Column] = {node: Column() for node in inputs}
        self._inputs = [self._columns[node] for node in inputs]
        self._nodes: dict[int, list[Node]] = {}
        # an unbounded operator at the top is folded from the first sample on
        self._extremes: dict[int, Extreme] = {}
        self._chains: dict[int, Chain] = {}
        self._running: dict[int, Values] = {}  # what another stream has folded before
        # the others are judged at the first sample, which stays until they are final
        self._latched: dict[int, Values | None] = {}
        for leaf in self._top.leaves:
            node = graph.nodes[leaf]
            if node.op in ("always", "eventually", "until") and node.window is None:
                arguments = [self._column(a) for a in node.args]
                if node.op == "until":
                    self._chains[leaf] = Chain(self._line, arguments, node, True)
                else:
                    self._extremes[leaf] = Extreme(self._line, arguments, node, True)
            else:
                self._latched[leaf] = None
                self._column(leaf)
        self._antecedents = [self._column(a) for a in graph.antecedents[clause] if graph.nodes[a].future]
        self._all: list[Node] = [node for i in sorted(self._nodes) for node in self._nodes[i]]
        self._all += [*self._extremes.values(), *self._chains.values()]
        self._constants = [c for c in self._columns.values() if isinstance(c, Constant)]
        self._triggered = False
        self._make_room()

    def _column(self, root: int) -> Column:
        """What a node says; makes it, and all below it."""
        nodes, columns = self._graph.nodes, self._columns
        stack = [root]
        while stack:
            index = stack[-1]
            node = nodes[index]
            missing = [a for a in node.args if a not in columns] if index not in columns and not node.scalar else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if index in columns:
                continue
            if node.scalar:
                columns[index] = Constant(node.value)
                continue
            self._nodes[index] = made = self._make(index)
            columns[index] = made[-1].column
        return columns[root]

    def _make(self, index: int) -> list[Node]:
        """What works the node out; the last says what it is."""
        node, line = self._graph.nodes[index], self._line
        arguments = [self._columns[a] for a in node.args]
        if node.op in ("always", "eventually", "historically", "once"):
            return [Extreme(line, arguments, node)]
        if node.op in ("until", "since"):
            chain = Chain(line, arguments, node, False)
            if not chain.near:
                return [chain]
            way = replace(
                node, op="always" if node.op == "until" else "historically", window=(0, chain.near - 1), polarity=0
            )
            held = Extreme(line, arguments[:1], way)
            return [chain, held, Delayed(line, [chain.column, held.column])]
        if node.op in ("prev", "next", "rise", "fall"):
            return [Neighbour(line, arguments, node)]
        return [Pointwise(line, arguments, node)]

    # --- samples ---

    def push(self, stamp: int, values: Sequence[Values]) -> Result:
        """Takes the inputs' (lower, upper, rho) at one sample; gives judged bounds, this instant's, and triggered."""
        self._append(stamp, values)
        end = self._line.end
        for column in self._inputs:
            column.changed = [(end - 1, end)]
        return self._bring_up_to_date(False)

    def _append(self, stamp: int, values: Sequence[Values]) -> None:
        line = self._line
        if line.end == len(line.stamps):
            self._make_room()
        slot = line.end
        line.view[slot] = stamp
        for column, (lower, upper, rho) in zip(self._inputs, values, strict=True):
            column.lower[slot], column.upper[slot], column.rho[slot] = lower, upper, rho
            column.final = slot + 1
        line.end = slot + 1

    def _make_room(self, least: int = 256) -> None:
        """What is kept moves to the front of larger arrays."""
        line = self._line
        kept = slice(line.begin, line.end)
        size = max(least, 2 * (line.end - line.begin))
        line.move(kept, size)
        for column in (*self._inputs, *self._constants):
            column.move(kept, size)
            column.final -= 0 if isinstance(column, Constant) else kept.start
        for node in self._all:
            node.move(kept, size)
        line.begin, line.end = 0, line.end - kept.start

    def __len__(self) -> int:
        """Kept samples."""
        return self._line.end - self._line.begin

    def result(self, closed: bool) -> Result:
        """What can be said now; ``closed``: the trace has ended, and no more samples come."""
        for column in self._inputs:
            column.changed = []
        return self._bring_up_to_date(closed)

    def _bring_up_to_date(self, closed: bool) -> Result:
        for node in self._all:
            node.update(closed)
        if not self._triggered:
            self._triggered = any(map(_rises_above_zero, self._antecedents))
        judged = self._top.value({leaf: self._judge_leaf(leaf, closed) for leaf in self._top.leaves})
        now = self._top.value({leaf: self._leaf_now(leaf, closed) for leaf in self._top.leaves})
        if not closed:
            self._let_go()
        return judged, now, self._triggered

    # --- the clause at its first sample, and at the newest ---

    def _judge_leaf(self, leaf: int, closed: bool) -> Values:
        node = self._graph.nodes[leaf]
        if leaf in self._extremes:
            values = settle(*_least(self._extremes[leaf].so_far(), self._running.get(leaf, _NOTHING)))
            mirrored = node.op == "eventually"
            if not closed and node.polarity != (-1 if mirrored else 1):
                values = settle(-INF, values[1], NAN)
            return negate(values) if mirrored else values
        if leaf in self._chains:
            return self._chains[leaf].so_far(not closed and node.polarity != -1)
        return self._latched[leaf] or self._columns[leaf].at(0)

    def _leaf_now(self, leaf: int, closed: bool) -> Values:
        node, newest = self._graph.nodes[leaf], self._line.end - 1
        if leaf in self._chains:
            return self._chains[leaf].alone(newest, not closed and node.polarity != -1)
        if leaf not in self._extremes:
            return self._columns[leaf].at(newest)
        mirrored = node.op == "eventually"
        lower, upper, rho = self._columns[node.args[0]].at(newest)
        if closed or node.polarity == (-1 if mirrored else 1):
            return (lower, upper, rho)
        return settle(lower, INF, NAN) if mirrored else settle(-INF, upper, NAN)

    # --- letting go of what is final ---

    def _let_go(self) -> None:
        """Drops samples whose inner values can no longer move."""
        for leaf, latched in self._latched.items():
            if latched is None:
                if self._columns[leaf].final <= 0:
                    return
                self._latched[leaf] = self._columns[leaf].at(0)
        line = self._line
        count = line.end - 1  # the newest sample stays: close() asks for its value
        keeps = count
        for node in self._all:
            count, keeps = min(count, node.column.final), min(keeps, node.keeps)
        line.begin = max(line.begin, min(keeps, count - 1))

    # --- plain data ---

    def take_over(
        self,
        rows: Sequence[tuple[int, Sequence[Values]]],
        running: Mapping[int, Values],
        latched: Mapping[int, Values],
        triggered: bool,
    ) -> None:
        """Goes on where another stream stopped: the kept samples, and the operators at the top so far."""
        for stamp, values in rows:
            self._append(stamp, values)
        for column in self._inputs:
            column.changed = [(0, self._line.end)]
        for node in self._all:
            node.update(False)
        self._running.update(running)
        self._latched.update(latched)
        self._triggered = triggered

    def state(self) -> list[Any]:
        self._make_room()
        return [
            self._line.stamps[: self._line.end].tolist(),
            [c.rows[:, : self._line.end].tolist() for c in self._inputs],
            [node.state() for node in self._all],
            [[leaf, list(v)] for leaf, v in self._running.items()],
            [None if v is None else list(v) for v in self._latched.values()],
            self._triggered,
        ]

    def load(self, state: list[Any]) -> None:
        stamps, inputs, nodes, running, latched, self._triggered = state
        self._line.begin = self._line.end = 0
        self._make_room(len(stamps) + 1)
        self._line.end = len(stamps)
        self._line.stamps[: len(stamps)] = stamps
        for column, rows in zip(self._inputs, inputs, strict=True):
            column.rows[:, : len(stamps)] = rows
            column.final = len(stamps)
        for node, saved in zip(self._all, nodes, strict=True):
            node.load(saved)
        self._running = {leaf: (v[0], v[1], v[2]) for leaf, v in running}
        self._latched = {
            leaf: None if v is None else (v[0], v[1], v[2]) for leaf, v in zip(self._latched, latched, strict=True)
        }


def _least(one: Values, other: Values) -> Values:
    """The minimum; rho skips NaN."""
    rho = other[2] if other[2] < one[2] or one[2] != one[2] else one[2]
    return (min(one[0], other[0]), min(one[1], other[1]), rho)


def _rises_above_zero(column: Column) -> bool:
    """Has some lower bound that has just changed become positive?"""
    lowers = column.lower
    for begin, end in column.changed:
        if end - begin > FEW:
            if (column.rows[0, begin:end] > 0).any():
                return True
        elif any(lowers[slot] > 0 for slot in range(begin, end)):
            return True
    return False
