"""Online monitors: against the slow evaluator and against whole-trace evaluation, prefix by prefix."""

import json
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stl_slow import Slow
from stl_strategies import GATES, SIGNALS, bounded, comparisons, formulas, terms, traces

from osma_monitor.core import stl


def same(found, expected):
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True))


def triple(verdict):
    return (verdict.lower, verdict.upper, verdict.rho)


def judged(formula, rows):
    return rows[-1 if formula.is_past else 0]


def samples(trace):
    stamps, columns = trace
    return [(int(t), {n: float(columns[n][i]) for n in SIGNALS}) for i, t in enumerate(stamps)]


def prefix(trace, count):
    stamps, columns = trace
    return stamps[:count], {n: c[:count] for n, c in columns.items()}


def left_sides(formula):
    return [formula.subformula(node.args[0]) for node in formula.nodes if node.op == "implies"]


@settings(max_examples=400)
@given(formulas(comparisons(terms())), traces(most=7))
def test_every_prefix_equals_the_slow_evaluator(text, trace):
    formula = stl.parse(text)
    library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
    for count, (stamp, values) in enumerate(samples(trace), 1):
        update = library.update(stamp, values)
        rows = Slow(formula, *prefix(trace, count), GATES, closed=False).trace()
        verdict = update.verdict(0)
        assert same(triple(verdict), judged(formula, rows)), (count, triple(verdict), judged(formula, rows))
        now = (update.now_lower[0], update.now_upper[0], update.now_rho[0])
        assert same(now, rows[-1]), (count, now, rows[-1])
        twin = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
        twin.restore(json.loads(json.dumps(library.snapshot())))
        rows = Slow(formula, *prefix(trace, count), GATES, closed=True).trace()
        closed = twin.close()
        assert same(triple(closed.verdict(0)), judged(formula, rows)), (count, closed, judged(formula, rows))
        now = (closed.now_lower[0], closed.now_upper[0], closed.now_rho[0])
        assert same(now, rows[-1]), (count, now, rows[-1])
    unknown = np.zeros(len(trace[0]), dtype=bool)
    for name in formula.signals:
        unknown |= ~np.isfinite(trace[1][name])
    assert update.unknown[0] == unknown.sum()


@st.composite
def nested(draw):
    """Operators that look ahead inside temporal operators, with windows of time."""
    inner = bounded(comparisons(terms(temporal=False)), max_leaves=4)
    a, b = draw(inner), draw(comparisons(terms(temporal=False)))
    shape = draw(
        st.sampled_from(
            [
                "always({b} -> eventually[0,2]({a}))",
                "always(eventually[1,3]({a}))",
                "eventually(always[0,2]({a}))",
                "always({a})",
                "always[0,4]({a})",
                "always(historically[0,3]({a})) and always({b})",
                "always(once({a}))",
                "always(({b}) since ({a}))",
                "always(({b}) since[1,4] ({a}))",
                "always(prev({a})) or {b}",
                "always(rise({a}) -> {b})",
                "always(fall(next({a})))",
                "(always[0,1]({a})) -> (eventually[0,6]({b}))",
                "always((eventually[0,2]({a})) -> {b})",
                "({a}) until ({b})",
                "not eventually({a})",
                "always({a}) xor always({b})",
                "always(({b}) until[0,2] ({a}))",
            ]
        )
    )
    return shape.format(a=a, b=b)


@settings(max_examples=300)
@given(nested(), traces(least=8, most=30))
def test_what_streams_let_go_of_changes_nothing(text, trace):
    formula = stl.parse(text)
    library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
    for count, (stamp, values) in enumerate(samples(trace), 1):
        update = library.update(stamp, values)
        if count % 5 == 0:
            saved = json.loads(json.dumps(library.snapshot()))
            library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
            library.restore(saved)
        found = stl.evaluate_bounds(formula, *prefix(trace, count), GATES, closed=False)
        at = -1 if formula.is_past else 0
        assert same(triple(update.verdict(0)), (found.lower[at], found.upper[at], found.rho[at])), count
        now = (update.now_lower[0], update.now_upper[0], update.now_rho[0])
        assert same(now, (found.lower[-1], found.upper[-1], found.rho[-1])), count
    found = stl.evaluate_bounds(formula, *trace, GATES)
    at = -1 if formula.is_past else 0
    closed = library.close()
    assert same(triple(closed.verdict(0)), (found.lower[at], found.upper[at], found.rho[at]))
    for left in left_sides(formula) if "always" not in text and "eventually" not in text else []:
        assert closed.triggered[0] >= (stl.evaluate_bounds(left, *trace, GATES).lower > 0).any()
