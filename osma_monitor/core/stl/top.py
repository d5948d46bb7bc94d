"""The part of a formula above its outermost temporal operators, worked out from their values at one sample."""

from __future__ import annotations

from collections.abc import Mapping

from osma_monitor.core.stl.connectives import pointwise
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.runtime import as_bounds
from osma_monitor.core.stl.syntax import TEMPORAL
from osma_monitor.core.stl.verdict import Bounds

Values = tuple[float, float, float]


class Top:
    """One formula's top.

    Attributes:
        leaves: nodes that the root reaches without crossing a temporal operator: temporal operators, and nodes that
            do not look ahead.
    """

    def __init__(self, graph: Graph, root: int) -> None:
        self._graph = graph
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
        self._above = sorted(above)

    def value(self, leaves: Mapping[int, Values]) -> Bounds:
        """The root from the values of the leaves."""
        if not self._above:
            return as_bounds(*leaves[self._root])
        values = dict(leaves)
        for index in self._above:
            values[index] = self._node(index, values)
        return as_bounds(*values[self._root])

    def _node(self, index: int, values: Mapping[int, Values]) -> Values:
        node = self._graph.nodes[index]
        args = [values[a] if a in values else (self._graph.nodes[a].value,) * 3 for a in node.args]
        return pointwise(node)(*args)
