"""The part of a formula above its outermost temporal operators, worked out from their values at one sample."""

from __future__ import annotations

from collections.abc import Mapping

from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.runtime import NAN, as_bounds, compare, interval_arithmetic, settle
from osma_monitor.core.stl.syntax import COMPARISONS, TEMPORAL
from osma_monitor.core.stl.verdict import Bounds

Values = tuple[float, float, float]


def negate(a: Values) -> Values:
    return (-a[1], -a[0], -a[2])


def minimum(a: Values, b: Values) -> Values:
    """The smaller; rho is unknown where one of them is, unless the interval is a point."""
    rho = min(a[2], b[2]) if a[2] == a[2] and b[2] == b[2] else NAN
    return settle(min(a[0], b[0]), min(a[1], b[1]), rho)


def maximum(a: Values, b: Values) -> Values:
    return negate(minimum(negate(a), negate(b)))


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
        first, second = args[0], args[-1]
        if node.op == "not":
            return negate(first)
        if node.op == "and":
            return minimum(first, second)
        if node.op == "or":
            return maximum(first, second)
        if node.op == "implies":
            return maximum(negate(first), second)
        if node.op in ("iff", "xor"):
            both = minimum(maximum(negate(first), second), maximum(negate(second), first))
            return both if node.op == "iff" else negate(both)
        if node.op in COMPARISONS:
            return compare(node.op, first, second, node.boolean)
        return interval_arithmetic(node.op, *args)
