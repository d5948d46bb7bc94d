"""What the bounds promise: they hold the final value, only narrow, and hold whatever the unknown could have been."""

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from stl_strategies import GATES, SIGNALS, bounded, comparisons, examples, formulas, numbers, terms, traces

from osma_monitor.core import stl


@examples(0.6)
@given(bounded(comparisons(terms(temporal=False)), max_leaves=5), traces(least=3, most=14))
def test_bounded_lookahead_narrows_onto_the_final_value(text, trace):
    formula = stl.parse(text)
    assume(not formula.is_past)
    monitor = stl.OnlineMonitor(formula, gate_signals=GATES, signals=SIGNALS)
    stamps, columns = trace
    lower, upper = -math.inf, math.inf
    for i, stamp in enumerate(stamps):
        verdict = monitor.update(int(stamp), {n: float(columns[n][i]) for n in SIGNALS})
        assert lower <= verdict.lower <= verdict.upper <= upper
        lower, upper = verdict.lower, verdict.upper
    final = stl.evaluate_bounds(formula, stamps, columns, GATES)
    assert lower <= final.lower[0] and final.upper[0] <= upper
    if not math.isnan(final.rho[0]):
        assert lower <= final.rho[0] <= upper


@examples(0.8)
@given(st.data())
def test_bounds_hold_every_way_of_filling_in_the_unknown(data):
    text = data.draw(formulas(comparisons(terms(partial=False)), max_leaves=5))
    stamps, columns = data.draw(traces(most=8))
    formula = stl.parse(text)
    closed = stl.evaluate_bounds(formula, stamps, columns, GATES)
    for _ in range(3):
        filled = {}
        for name, column in columns.items():
            values = st.sampled_from([0.0, 1.0]) if name == "g" else numbers | st.floats(-1e3, 1e3)
            filled[name] = np.array([v if math.isfinite(v) else data.draw(values) for v in column])
        whole = stl.evaluate_bounds(formula, stamps, filled, GATES)
        assert (closed.lower <= whole.lower).all() and (whole.upper <= closed.upper).all()


def test_the_fill_in_property_is_not_vacuous():
    trace = stl.evaluate_bounds(
        "historically(x < 3) and (y > 0 or x > 0)", [0, 1, 2], {"x": [1, math.nan, 2], "y": [1, 1, math.nan]}
    )
    assert trace.lower.tolist() == [1, -math.inf, -math.inf]
    assert trace.upper.tolist() == [1, 2, 1]
