"""Whole-trace evaluation against the slow evaluator."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from stl_slow import Slow
from stl_strategies import GATES, comparisons, examples, formulas, terms, traces

from osma_monitor.core import stl


def expected(text, stamps, columns, closed=True, gates=GATES):
    rows = np.array(Slow(stl.parse(text), stamps, columns, gates, closed).trace(), dtype=float).reshape(-1, 3) + 0.0
    return rows.T


def check(text, trace, closed, exact=True):
    stamps, columns = trace
    found = stl.evaluate_bounds(text, stamps, columns, GATES, closed=closed)
    for name, want in zip(("lower", "upper", "rho"), expected(text, stamps, columns, closed), strict=True):
        np.testing.assert_array_equal(getattr(found, name), want, err_msg=f"{name} of {text}")
    known = ~np.isnan(found.rho)
    assert (found.lower <= found.upper).all()
    assert (found.lower[known] <= found.rho[known]).all() and (found.rho[known] <= found.upper[known]).all()


@examples(2.5)
@given(formulas(comparisons(terms())), traces(), st.booleans())
def test_equals_the_slow_evaluator(text, trace, closed):
    check(text, trace, closed)
