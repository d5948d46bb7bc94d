"""Online monitors: against the slow evaluator and against whole-trace evaluation, prefix by prefix."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stl_slow import Slow
from stl_strategies import GATES, SIGNALS, bounded, comparisons, formulas, numbers, terms, traces

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
