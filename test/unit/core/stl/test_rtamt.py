"""Against rtamt: its discrete offline evaluator as an oracle, and the backend that runs it online."""

import logging
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from stl_strategies import comparisons, examples, formulas, terms, traces

from osma_monitor.core import stl
from osma_monitor.core.errors import UserError
from osma_monitor.core.stl.rtamt_backend import BackendError, RtamtLibrary, _write, refusal

rtamt = pytest.importorskip("rtamt")

INEQUALITIES = ("<", "<=", ">", ">=")
# xor, iff, == and != differ by definition, and rtamt has no min(x, y)
SAME_MEANING = {"connectives": ("and", "or", "->")}
# longer than every window: for shorter traces rtamt lengthens the lists that it was given, and reads them elsewhere
LONG = traces(unknown=False, regular=True, least=9, most=14)


def rtamt_offline(formula, count, signals):
    """rtamt's robustness at every sample of a trace sampled once a second."""
    names = {name: f"v{i}" for i, name in enumerate(sorted(formula.signals))}
    spec = rtamt.StlDiscreteTimeSpecification()
    for name in names.values():
        spec.declare_var(name, "float")
    spec.spec = _write(formula, names)
    logging.disable(logging.WARNING)
    try:
        spec.parse()
        data = {"time": list(range(count)), **{names[n]: signals[n].tolist() for n in names}}
        return np.array([float(v) for _, v in spec.evaluate(data)])
    finally:
        logging.disable(logging.NOTSET)


@examples(2)
@given(formulas(comparisons(terms(partial=False), INEQUALITIES), **SAME_MEANING), LONG)
def test_offline_values_equal_rtamts(text, trace):
    formula = stl.parse(text)
    assume(formula.signals)
    stamps, columns = trace
    expected = rtamt_offline(formula, len(stamps), columns)
    found = stl.evaluate_bounds(formula, stamps, columns)
    # rtamt cuts windows at the end of the trace; here what the end cut off is unknown
    # and where it makes NaN of inf - inf (at the ends, of prev and next) the difference is unknown here
    decided = ~np.isnan(found.rho) & (found.lower == found.upper) & ~np.isnan(expected)
    np.testing.assert_allclose(found.rho[decided], expected[decided], rtol=1e-12, atol=1e-12)


@examples(1)
@given(
    formulas(comparisons(terms(partial=False), INEQUALITIES), future=False, **SAME_MEANING),
    st.booleans(),
    traces(unknown=False, regular=True),
)
def test_the_backend_gives_our_values(text, always, trace):
    formula = stl.parse(f"always({text})" if always else text)
    assume(formula.signals and refusal(formula, period_ns=1_000_000_000) is None)
    ours = stl.make_library([formula])
    theirs = stl.make_library([formula], backend="rtamt", period_ns=1_000_000_000)
    for i, stamp in enumerate(trace[0]):
        values = {name: float(column[i]) for name, column in trace[1].items()}
        found, expected = theirs.update(int(stamp), values), ours.update(int(stamp), values)
        np.testing.assert_allclose(found.rho, expected.rho, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.now_rho, expected.now_rho, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found.triggered, expected.triggered)
    np.testing.assert_allclose(theirs.close().rho, ours.close().rho, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("always(g -> x < 3)", "no Boolean gates"),
        ("eventually(x > 1)", "cannot look ahead"),
        ("always(eventually[0,1](x > 1))", "cannot look ahead"),
        ("once(x > 1) and (once(x > 1))", "one state for equal subformulas"),
        ("always(x == 1)", "a true equality"),
        ("always(x != 1)", "inequality"),
        ("x > 1 xor x < 3", "min and max"),
        ("x > 1 iff x < 3", "min and max"),
        ("max(x, 1) > 0", "no max"),
        ("once[0,1](x > 1)", "sampling period"),
        ("(prev(x)) < (prev(y))", "no earlier sample"),
        ("(prev(x)) * y > 1", "no earlier sample"),
    ],
)
def test_what_rtamt_gets_wrong_is_refused_with_the_reason(text, reason):
    with pytest.raises(BackendError, match=reason):
        RtamtLibrary(text, gate_signals={"g"})


def test_windows_off_the_period_are_refused():
    with pytest.raises(BackendError, match="no whole number of periods"):
        RtamtLibrary("once[0,0.25](x > 1)", period_ns=100_000_000)


def test_unknown_samples_and_stamps_off_the_period():
    texts = ["always(x < 2)", "x < 2", "historically(x < 2)", "always(once[0,1](x < 2))"]
    library = RtamtLibrary(*texts, period_ns=1_000_000_000)
    library.update(0, {"x": 1.0})
    update = library.update(1_000_000_000, {"x": math.nan})
    assert update.rho[0] == 1.0 and update.lower[0] == -math.inf and math.isnan(update.rho[1])
    assert update.unknown.tolist() == [1, 1, 1, 1]
    update = library.update(2_000_000_000, {"x": 5.0})
    assert update.status.tolist() == [-1, -1, 0, 0]  # with memory in rtamt nothing is known after a gap
    library.reset()
    library.update(0, {"x": 1.0})
    update = library.update(1_500_000_000, {"x": 1.0})
    assert update.status.tolist() == [1, 1, 1, 0]
    assert library.update(1_500_000_000, {"x": 9.0}).refused == 1


def test_unknown_backends_are_refused():
    with pytest.raises(UserError, match="native, rtamt"):
        stl.make_library(["x < 1"], backend="rtam")


def test_what_is_undefined_once_is_forgotten_where_nothing_remembers_it():
    library = RtamtLibrary("always(1 / x > 0)", "1 / x > 0", "always(once(1 / x > 0))")
    library.update(0, {"x": 2.0})
    assert library.update(1, {"x": 0.0}).status.tolist() == [0, 0, 0]
    update = library.update(2, {"x": -4.0})
    assert update.status.tolist() == [-1, -1, 0] and update.rho[:2].tolist() == [-0.25, -0.25]


@pytest.mark.parametrize("right", ["sqrt(z) <= 1", "historically(z <= 1)", "prev(z > 0)"])
@pytest.mark.parametrize("gap", [math.nan, -2.0])
def test_a_left_side_triggers_although_the_right_side_was_unknown(right, gap):
    ours, theirs = (stl.make_library([f"always(g > 0 -> {right})"], backend=b) for b in ("native", "rtamt"))
    for stamp, (g, z) in enumerate([(-1.0, 0.5), (-1.0, gap), (1.0, 0.5), (-1.0, 0.5)]):
        expected, found = (library.update(stamp, {"g": g, "z": z}) for library in (ours, theirs))
        assert found.triggered.tolist() == expected.triggered.tolist() == [stamp >= 2]
        assert found.unknown.tolist() == expected.unknown.tolist()
        assert found.lower[0] <= expected.lower[0] and found.upper[0] >= expected.upper[0]


def test_one_text_is_one_clause():
    for backend in ("native", "rtamt"):
        assert len(stl.make_library("always(x > 0)", backend=backend).formulas) == 1
