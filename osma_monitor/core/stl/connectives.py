"""Connectives, comparisons and arithmetic on what operands say at one sample: (lower, upper, rho)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from osma_monitor.core.stl.graph import GATE_THRESHOLD, GraphNode
from osma_monitor.core.stl.runtime import NAN, compare, interval_arithmetic
from osma_monitor.core.stl.syntax import COMPARISONS

Values = tuple[float, float, float]


def negate(a: Values) -> Values:
    return (-a[1], -a[0], -a[2])


def minimum(a: Values, b: Values) -> Values:
    """The smaller; rho is unknown where one of them is, unless the interval is a point. Without calls: often run."""
    lower, upper, rho = a
    other_lower, other_upper, other_rho = b
    if other_lower < lower:
        lower = other_lower
    if other_upper < upper:
        upper = other_upper
    if lower == upper:
        return (lower, upper, lower)
    if rho != rho or other_rho != other_rho:
        return (lower, upper, NAN)
    if other_rho < rho:
        rho = other_rho
    return (lower, upper, lower if rho < lower else upper if rho > upper else rho)


def maximum(a: Values, b: Values) -> Values:
    """The greater, as :func:`minimum`."""
    lower, upper, rho = a
    other_lower, other_upper, other_rho = b
    if other_lower > lower:
        lower = other_lower
    if other_upper > upper:
        upper = other_upper
    if lower == upper:
        return (lower, upper, lower)
    if rho != rho or other_rho != other_rho:
        return (lower, upper, NAN)
    if other_rho > rho:
        rho = other_rho
    return (lower, upper, lower if rho < lower else upper if rho > upper else rho)


def _iff(a: Values, b: Values) -> Values:
    return minimum(maximum(negate(a), b), maximum(negate(b), a))


_CONNECTIVES: Final[dict[str, Callable[..., Values]]] = {
    "value": lambda a: a,
    "not": negate,
    "and": minimum,
    "or": maximum,
    "implies": lambda a, b: maximum((-a[1], -a[0], -a[2]), b),
    "iff": _iff,
    "xor": lambda a, b: negate(_iff(a, b)),
}


def pointwise(node: GraphNode) -> Callable[..., Values]:
    """The operator on single samples."""
    op, boolean = node.op, node.boolean
    if op in COMPARISONS:
        return lambda a, b: compare(op, a, b, boolean)
    if op == "gate":
        half = (GATE_THRESHOLD,) * 3
        return lambda a: compare(">", a, half, True)
    if op in _CONNECTIVES:
        return _CONNECTIVES[op]
    return lambda *a: interval_arithmetic(op, *a)
