"""The part of a formula above its outermost temporal operators, worked out from their values at one sample."""

from __future__ import annotations

from collections.abc import Mapping

from osma_monitor.core.stl.connectives import Values, pointwise
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.runtime import as_bounds
from osma_monitor.core.stl.syntax import TEMPORAL
from osma_monitor.core.stl.verdict import Bounds


class Top:
    """One formula's top.

    Attributes:
        leaves: nodes that the root reaches without crossing a temporal operator: temporal operators, and nodes that
            do not look ahead.
    """

    def __init__(self, graph: Graph, root: int) -> None:
        self._root = root
        found: dict[int, None] = {}
        above: set[int] = set()
        stack = [root]
        while stack:
            index = stack.pop()
            node = graph.nodes[index]
            if index in found or index in above or node.scalar:
                continue
            if node.op in TEMPORAL or not node.future:
                found[index] = None
            else:
                above.add(index)
                stack += node.args
        self.leaves = tuple(found)
        # the nodes above the leaves, what each does, and its arguments
        self._above = [(i, pointwise(graph.nodes[i]), graph.nodes[i].args) for i in sorted(above)]
        self._numbers = {
            a: (graph.nodes[a].value,) * 3 for _, _, args in self._above for a in args if graph.nodes[a].scalar
        }

    def value(self, leaves: Mapping[int, Values]) -> Bounds:
        """The root from the values of the leaves."""
        if not self._above:
            return as_bounds(*leaves[self._root])
        values = {**self._numbers, **leaves}
        for index, apply, args in self._above:
            values[index] = apply(*(values[a] for a in args))
        return as_bounds(*values[self._root])
