"""What values the terms of a formula can take, and comparisons that these values decide: for `osma check`."""

from __future__ import annotations

import math
from typing import Final

from osma_monitor.core import stl
from osma_monitor.core.signals.schema import SCHEMA, SignalSpec
from osma_monitor.core.stl.graph import flow_down
from osma_monitor.core.stl.runtime import compare
from osma_monitor.core.stl.syntax import BINARY_TERMS, COMPARISONS, TEMPORAL, UNARY_TERMS, is_term

Range = tuple[float, float]
_FULL: Final = (-math.inf, math.inf)
_MAGNITUDES: Final = frozenset({"N", "N/cm^2", "N m", "m/s", "m/s^2", "m/s^3"})
# lengths, angles and their rates may be signed; these others never are
_NEVER_NEGATIVE: Final = frozenset({"perception_age", "human_force_ratio", "human_pressure_ratio"})


def signal_range(spec: SignalSpec) -> Range:
    """What values a signal can take at all."""
    if spec.kind != "scalar":
        return (0.0, 1.0)
    if "tilt" in spec.name and spec.unit == "deg":
        return (0.0, 180.0)
    magnitude = spec.unit in _MAGNITUDES or "disp" in spec.name or spec.name in _NEVER_NEGATIVE
    return (0.0, math.inf) if magnitude else _FULL


def threshold_problems(formula: stl.Formula, quantitative: bool = False) -> list[str]:
    """Comparisons that every or no value of the signals fulfils, or that fail at an edge of the trace by themselves.

    ``quantitative``: gates count as numbers.
    """
    problems: list[str] = []
    nodes = formula.nodes
    usual, edge = _reachable(formula, edge=False), _reachable(formula, edge=True)
    places, polarity = flow_down(nodes)
    terms = is_term(nodes)
    for index, node in enumerate(nodes):
        if node.op in COMPARISONS:
            said = _comparison_problem(formula, index, usual[index], edge[index], polarity[index], quantitative)
        elif places[index] and terms[index] and node.op not in TEMPORAL:
            said = _term_problem(formula.subformula(index), usual[index], polarity[index], quantitative)
        else:
            continue
        problems += [said] if said else []
    return problems


def _comparison_problem(
    formula: stl.Formula, index: int, usual: Range, edge: Range, polarity: int, quantitative: bool
) -> str:
    node, part = formula.nodes[index], formula.subformula(index)
    (lower, upper), text = usual, repr(str(part))
    if formula.subformula(node.args[0]) == formula.subformula(node.args[1]):
        return f"{text} compares a term with itself"
    if lower > 0 or (lower == 0 and node.op in ("<=", ">=")):
        return f"{text} always holds: {_range_text(part)}"
    if upper < 0 or (upper == 0 and node.op in ("<", ">")):
        return f"{text} can never hold: {_range_text(part)}"
    if lower == 0 and polarity == 1 and not _boolean(part, quantitative):
        return f"{text} is never violated: {_range_text(part)}, and at the border its margin is 0, which satisfies"
    if polarity == 1 and edge[1] == -math.inf:
        where = "first" if any(n.op == "prev" for n in part.nodes) else "last"
        return f"{text} fails at the {where} sample, where there is no neighbour and its value is +inf"
    return ""


def _term_problem(part: stl.Formula, usual: Range, polarity: int, quantitative: bool) -> str:
    """A term that stands as a formula is its own margin; a gate says what it says."""
    lower, upper = usual
    holds = lower > 0 or (lower == 0 and polarity != -1)
    if (holds or upper < 0) and not _boolean(part, quantitative):
        truth = "always holds" if holds else "can never hold"
        return f"{str(part)!r} as a formula is its own margin and {truth}: {_range_text(part)}"
    return ""


def _boolean(part: stl.Formula, quantitative: bool) -> bool:
    return not quantitative and bool(part.signals) and all(SCHEMA[s].kind == "gate" for s in part.signals)


def _reachable(formula: stl.Formula, edge: bool) -> list[Range]:
    """Interval of every term and comparison over all values of the signals; ``edge``: where prev and next are +inf."""
    ranges: list[Range] = []
    for node in formula.nodes:
        args = [ranges[a] for a in node.args]
        result = _FULL
        if node.op == "number":
            result = (node.value, node.value)
        elif node.op == "signal":
            low, high = signal_range(SCHEMA[node.name])
            # at the edge only the missing neighbour is infinite
            result = (max(low, -1e300), min(high, 1e300)) if edge else (low, high)
        elif node.op in UNARY_TERMS or node.op in BINARY_TERMS:
            result = _term(node.op, args)
        elif node.op in COMPARISONS:
            left, right = ((a[0], a[1], math.nan) for a in args)
            result = compare(node.op, left, right, False)[:2]
        elif edge and node.op in ("prev", "next"):
            result = (math.inf, math.inf)
        elif node.op in TEMPORAL and node.op not in ("rise", "fall"):
            result = args[0]
        ranges.append(result)
    return ranges


def _term(op: str, args: list[Range]) -> Range:
    """Arithmetic on ranges whose ends may be infinite while the values are finite; what is undefined says nothing."""
    (low, high), (other_low, other_high) = args[0], args[-1]
    if op == "neg":
        return (-high, -low)
    if op == "abs":
        least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        return (least, max(abs(low), abs(high)))
    if op == "sqrt":
        return (math.sqrt(max(low, 0.0)), math.sqrt(high)) if high >= 0 else _FULL
    if op == "exp":
        return (_exp(low), _exp(high))
    if op in ("min", "max"):
        best = min if op == "min" else max
        return (best(a[0] for a in args), best(a[1] for a in args))
    if op in ("+", "-"):
        if op == "-":
            other_low, other_high = -other_high, -other_low
        ends = (low + other_low, high + other_high)
        return _FULL if math.isnan(ends[0]) or math.isnan(ends[1]) else ends
    if op == "/":
        if other_low < 0 < other_high:
            return _FULL
        other_low, other_high = _over(other_high, other_high <= 0), _over(other_low, other_low < 0 or other_high <= 0)
    if op in ("*", "/"):
        corners = [_times(a, b) for a in (low, high) for b in (other_low, other_high)]
        return (min(corners), max(corners))
    return _power((low, high), (other_low, other_high))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b  # an infinite end stands for large finite values


def _over(value: float, negative: bool) -> float:
    """1 / value; at 0 what values on one side of it tend to."""
    if value == 0:
        return -math.inf if negative else math.inf
    return 1.0 / value


def _power(base: Range, exponent: Range) -> Range:
    power = exponent[0]
    if power != exponent[1]:
        return (0.0, math.inf) if base[0] >= 0 else _FULL
    if power > 0 and power % 2 == 0:
        base = _term("abs", [base])
    if base[0] < 0:
        return _FULL
    if power <= 0:
        return (0.0, math.inf)
    try:
        return (base[0] ** power, base[1] ** power)
    except OverflowError:
        return (0.0, math.inf)


def _range_text(formula: stl.Formula) -> str:
    parts = []
    for name in sorted(formula.signals):
        low, high = signal_range(SCHEMA[name])
        parts.append(f"{name} lies in [{low:g}, {high:g}]")
    return ", ".join(parts) or "it reads no signal"
