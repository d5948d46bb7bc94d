"""Clauses with one operator that looks ahead inside another temporal operator, at constant cost a sample.

``always(a -> eventually[0,5] b)``, ``always[0,50](eventually[0,20] b)``, ``historically(eventually[0,2] b)``,
``always(a until[0,5] b)`` and what connectives make of such. Deeper nesting, and what else has no plan here, is worked
out by :class:`osma_monitor.core.stl.stream.Stream`, which also takes over where an unknown sample ends a plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from osma_monitor.core.stl.connectives import Values, negate
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.holding import aggregate_of
from osma_monitor.core.stl.pending import Plan, plan_body
from osma_monitor.core.stl.runtime import INF, NAN, as_bounds, settle
from osma_monitor.core.stl.stream import Result, Stream
from osma_monitor.core.stl.top import Top

Row = tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One outermost temporal operator, as a minimum; eventually and once are mirror images.

    ``op``: 'always', 'historically' or 'input' (a part that does not look ahead).
    """

    op: str
    plan: Plan
    mirrored: bool
    window: tuple[int, int] | None
    counting: bool


def open_stream(graph: Graph, clause: int, inputs: Sequence[int]) -> Nested | Stream:
    """The cheapest stream that can judge the clause."""
    leaves = _plan_leaves(graph, graph.roots[clause], inputs)
    left = [a for a in graph.antecedents[clause] if graph.nodes[a].future]
    triggers = [plan for plan in (plan_body(graph, inputs, a, True) for a in left) if plan is not None]
    if leaves is None or len(triggers) < len(left):
        return Stream(graph, clause, inputs)
    wide = all(plan.wide for plan in (*(leaf.plan for leaf in leaves.values()), *triggers))
    if not wide and any(leaf.op == "historically" for leaf in leaves.values()):
        return Stream(graph, clause, inputs)  # which could not take over in the middle
    return Nested(graph, clause, inputs, leaves, triggers)


def _plan_leaves(graph: Graph, root: int, inputs: Sequence[int]) -> dict[int, _Leaf] | None:
    found: dict[int, _Leaf] = {}
    for index in Top(graph, root).leaves:
        node = graph.nodes[index]
        mirrored = node.future and node.op in ("eventually", "once")
        if not node.future:
            plan, op = plan_body(graph, inputs, index, False), "input"
        elif node.op in ("always", "eventually") or (node.op in ("historically", "once") and node.window is None):
            plan = plan_body(graph, inputs, node.args[0], mirrored)
            op = "always" if node.op in ("always", "eventually") else "historically"
        else:
            return None
        if plan is None:
            return None
        counting = op == "always" and node.window is None and node.polarity == (-1 if mirrored else 1)
        found[index] = _Leaf(op, plan, mirrored, node.window if op == "always" else None, counting)
    return found


class Nested:
    """One such clause; a drop-in for :class:`Stream`."""

    def __init__(
        self, graph: Graph, clause: int, inputs: Sequence[int], leaves: dict[int, _Leaf], triggers: list[Plan]
    ) -> None:
        self._graph, self._clause, self._inputs = graph, clause, tuple(inputs)
        self._top = Top(graph, graph.roots[clause])
        self._leaves = leaves
        self._single = graph.roots[clause] if graph.roots[clause] in leaves else None
        # for each leaf what it is judged by, and what this instant is judged by
        self._judged = {index: aggregate_of(leaf.plan) for index, leaf in leaves.items()}
        self._instant = {i: aggregate_of(leaf.plan) for i, leaf in leaves.items() if leaf.op == "historically"}
        self._triggers = [aggregate_of(plan) for plan in triggers]
        self._all = [*self._judged.values(), *self._instant.values(), *self._triggers]
        self._whole = any(a.plan.far is None for a in self._all)  # the trace is kept
        self._can_widen = all(a.plan.wide for a in self._all)
        self._rows: deque[tuple[int, Row]] = deque()
        self._first: int | None = None
        self._last = 0
        self._known = True  # every input so far was a point
        self._triggered = False
        self._general: Stream | None = None

    def push(self, stamp: int, values: Row) -> Result:
        """Takes the inputs' (lower, upper, rho) at one sample; gives judged bounds, this instant's, and triggered."""
        if self._general is not None:
            return self._general.push(stamp, values)
        if self._known and any(lower != upper for lower, upper, _ in values):
            if not self._can_widen:
                return self._hand_over(stamp, values)
            self._known = False
            for aggregate in self._all:
                aggregate.widen()
            self._take_again()
        if self._first is None:
            self._first = stamp
        self._last = stamp
        self._rows.append((stamp, values))
        self._take(stamp, values)
        self._let_go()
        return self.result(False)

    def _take(self, stamp: int, values: Row) -> None:
        first = stamp if self._first is None else self._first
        for index, aggregate in self._judged.items():
            leaf = self._leaves[index]
            if leaf.op == "always":
                admitted = leaf.window is None or leaf.window[0] <= stamp - first <= leaf.window[1]
            else:
                admitted = stamp == first
            aggregate.take(stamp, values, admitted)
        for aggregate in self._instant.values():
            aggregate.take(stamp, values, True)
        for aggregate in self._triggers:
            aggregate.take(stamp, values, True)

    def _take_again(self) -> None:
        """The kept samples once more: folding a sample twice into a minimum changes nothing."""
        for stamp, values in self._rows:
            self._take(stamp, values)

    def _let_go(self) -> None:
        """Drops samples that no open window needs; the newest stays."""
        if self._whole:
            return
        if not self._can_widen and not all(map(self._is_final, self._leaves)):
            return  # judged by whole-trace evaluation if something becomes unknown
        rows = self._rows
        keep = min((a.oldest for a in self._all if a.oldest is not None), default=self._last)
        while len(rows) > 1 and rows[0][0] < keep:
            rows.popleft()

    def _hand_over(self, stamp: int, values: Row) -> Result:
        self._general = self._whole_trace()
        self._rows.clear()
        return self._general.push(stamp, values)

    def _whole_trace(self) -> Stream:
        """A stream that goes on from here by whole-trace evaluation."""
        general = Stream(self._graph, self._clause, self._inputs)
        latched: dict[int, Values] = {}
        running: dict[int, Values] = {}
        for index, leaf in self._leaves.items():
            if leaf.op == "always" and leaf.window is None:
                running[index] = self._judged[index].running
            elif self._is_final(index):
                latched[index] = self._judge(index, False)
        general.take_over(list(self._rows), running, latched, self._triggered)
        return general

    def _is_final(self, index: int) -> bool:
        """Can no later sample change what the leaf is judged by? An unbounded always over bounded parts runs on."""
        leaf, aggregate = self._leaves[index], self._judged[index]
        if leaf.op == "always" and leaf.window is None:
            return True
        over = self._first is not None and (leaf.window is None or self._last - self._first >= leaf.window[1])
        return over and leaf.plan.far is not None and aggregate.oldest is None

    # --- what can be said ---

    def result(self, closed: bool) -> Result:
        """What can be said now; ``closed``: the trace has ended."""
        if self._general is not None:
            return self._general.result(closed)
        if closed and self._whole and not self._known:
            return self._whole_trace().result(True)
        if not self._triggered and self._triggers:
            self._triggered = any(a.least(closed)[1] < 0 for a in self._triggers)
        if self._single is not None:
            judged, now = as_bounds(*self._judge(self._single, closed)), as_bounds(*self._now(self._single, closed))
        else:
            judged = self._top.value({index: self._judge(index, closed) for index in self._leaves})
            now = self._top.value({index: self._now(index, closed) for index in self._leaves})
        return judged, now, self._triggered

    def _judge(self, index: int, closed: bool) -> Values:
        leaf = self._leaves[index]
        values = self._judged[index].least(closed)
        if leaf.op == "always":
            if leaf.window is None:
                pending = not closed and not leaf.counting
            else:
                pending = self._first is not None and self._last - self._first < leaf.window[1]
            if pending:
                values = settle(-INF, values[1], NAN)
        return negate(values) if leaf.mirrored else values

    def _now(self, index: int, closed: bool) -> Values:
        leaf = self._leaves[index]
        if leaf.op == "historically":
            values = self._instant[index].least(closed)
        elif leaf.window is not None and leaf.window[0] > 0:
            values = (INF, INF, INF)
        else:
            values = self._judged[index].newest(closed)
        if leaf.op == "always":
            pending = leaf.window[1] > 0 if leaf.window is not None else not closed and not leaf.counting
            if pending:
                values = settle(-INF, values[1], NAN)
        return negate(values) if leaf.mirrored else values

    @property
    def reworks(self) -> bool:
        """Whole-trace evaluation has taken over."""
        return self._general is not None

    def __len__(self) -> int:
        """Kept samples."""
        return len(self._rows) if self._general is None else len(self._general)

    # --- plain data ---

    def state(self) -> list[Any]:
        if self._general is not None:
            return ["general", self._general.state()]
        rows = [[stamp, [list(v) for v in values]] for stamp, values in self._rows]
        aggregates = [a.state() for a in self._all]
        return ["nested", rows, aggregates, self._first, self._last, self._known, self._triggered]

    def load(self, state: list[Any]) -> None:
        if state[0] == "general":
            self._general = Stream(self._graph, self._clause, self._inputs)
            self._general.load(state[1])
            return
        _, rows, aggregates, self._first, self._last, self._known, self._triggered = state
        for aggregate, saved in zip(self._all, aggregates, strict=True):
            aggregate.load(saved)
        self._rows = deque((stamp, tuple((v[0], v[1], v[2]) for v in values)) for stamp, values in rows)
        self._take_again()
