"""Many episodes at once: equal to one at a time, online and offline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stl_strategies import GATES, SIGNALS, comparisons, examples, formulas, one_inside_another, terms, traces

from osma_monitor.core import stl

CLAUSES = [
    "always(x < 1)",
    "always(g -> y > -0.5)",
    "always((g > 0.5) -> x <= 1)",
    "always(0.5 > y)",
    "eventually(x > 1)",
    "historically(x < 2)",
    "x < y",
    "always(x > 0 -> eventually[0,2](y > 0))",
    "always[0,3](x < 2)",
]


def lay_out(episodes):
    stamps = np.concatenate([e[0] for e in episodes])
    signals = {n: np.concatenate([e[1][n] for e in episodes]) for n in SIGNALS}
    offsets = np.concatenate([[0], np.cumsum([len(e[0]) for e in episodes])])
    return offsets, stamps, signals


def one_by_one(texts, episodes):
    """Every episode through one online library, closed at its end."""
    library = stl.Library(texts, gate_signals=GATES, signals=SIGNALS)
    rows = []
    for stamps, columns in episodes:
        library.reset()
        first = np.full(len(texts), -1)
        for i, stamp in enumerate(stamps):
            update = library.update(int(stamp), {n: float(columns[n][i]) for n in SIGNALS})
            first = np.where((first < 0) & (update.status == stl.VIOLATED), i, first)
        update = library.close()
        first = np.where((first < 0) & (update.status == stl.VIOLATED), len(stamps) - 1, first)
        rows.append((update.lower, update.upper, update.rho, update.triggered, update.unknown, first))
    return [np.array(part) for part in zip(*rows, strict=True)]


def check(texts, episodes):
    result = stl.evaluate_batch(texts, *lay_out(episodes), GATES)
    found = (result.lower, result.upper, result.rho, result.triggered, result.unknown, result.first_violation)
    names = ("lower", "upper", "rho", "triggered", "unknown", "first_violation")
    for name, got, want in zip(names, found, one_by_one(texts, episodes), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)


@examples(0.5)
@given(st.lists(traces(most=8), min_size=1, max_size=5))
def test_the_common_shapes_equal_the_online_library(episodes):
    check(CLAUSES, episodes)


@examples(0.5)
@given(st.lists(traces(most=8, unknown=False), min_size=1, max_size=5))
def test_the_common_shapes_with_everything_known(episodes):
    check(CLAUSES, episodes)


@examples(0.6)
@given(
    st.lists(formulas(comparisons(terms())), min_size=1, max_size=3), st.lists(traces(most=6), min_size=1, max_size=4)
)
def test_any_clause_equals_the_online_library(texts, episodes):
    check(texts, episodes)


@examples(0.6)
@given(st.lists(one_inside_another(), min_size=1, max_size=2), st.lists(traces(most=9), min_size=1, max_size=4))
def test_operators_that_look_ahead_inside_others_equal_the_online_library(texts, episodes):
    check(texts, episodes)


@examples(0.6)
@given(formulas(comparisons(terms(temporal=False)), max_leaves=8), st.lists(traces(most=9), min_size=1, max_size=4))
def test_first_violations_are_found_without_a_monitor(text, episodes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osma_monitor.core.stl.batch._Batch._replay", None)
        check([text], episodes)


@examples(0.5)
@given(st.lists(traces(most=8, unknown=False), min_size=2, max_size=6), st.integers(1, 20))
def test_block_borders_change_nothing(episodes, size):
    whole = stl.evaluate_batch(CLAUSES, *lay_out(episodes), GATES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osma_monitor.core.stl.batch.BLOCK_SAMPLES", size)
        pieces = stl.evaluate_batch(CLAUSES, *lay_out(episodes), GATES)
        np.testing.assert_array_equal(pieces.first_violation, whole.first_violation)
    for name in ("lower", "upper", "rho", "triggered", "unknown"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))


def test_margins_that_rounding_decides_are_the_same_reduced_and_spelled_out():
    rng = np.random.default_rng(3)
    values = 0.1 + rng.random(4000) * 1e-3
    stamps = np.arange(4000) * 1_000_000
    offsets = np.array([0, 1000, 1700, 4000])
    fast = stl.evaluate_batch(["always(x < 0.3)", "always(x > 0.3)"], offsets, stamps, {"x": values})
    slow = stl.evaluate_batch(["always(not not (x < 0.3))", "always(0.3 - x < 0)"], offsets, stamps, {"x": values})
    np.testing.assert_array_equal(fast.rho[:, 0], slow.rho[:, 0])
    np.testing.assert_array_equal(fast.rho[:, 1], slow.rho[:, 1])


def test_float32_on_request():
    offsets, stamps = [0, 3], [0, 1, 2]
    values = {"x": np.array([0.1, 0.2, 0.7]), "g": np.array([1.0, 1.0, 0.0])}
    result = stl.evaluate_batch(
        ["always(x < 0.5)", "always(g -> x < 0.5)", "once(x > 0.6)"], offsets, stamps, values, {"g"}, np.float32
    )
    assert result.rho.dtype == np.float32
    np.testing.assert_allclose(result.rho, [[-0.2, 0.3, 0.1]], rtol=1e-5)
    assert stl.evaluate_batch(["x < 1"], offsets, stamps, values).rho.dtype == np.float64
    with pytest.raises(stl.TraceError, match="float16"):
        stl.evaluate_batch(["x < 1"], offsets, stamps, values, dtype=np.float16)


def test_episodes_without_samples_are_undecided():
    result = stl.evaluate_batch(["always(x < 1)", "once(x > 3)"], [0, 0, 2, 2], [5, 6], {"x": [0.0, 0.5]})
    np.testing.assert_array_equal(result.rho, [[np.nan, np.nan], [0.5, -2.5], [np.nan, np.nan]])
    np.testing.assert_array_equal(result.status, [[0, 0], [1, -1], [0, 0]])
    assert stl.evaluate_batch(["x < 1"], [0], [], {"x": []}).rho.shape == (0, 1)
    empty = stl.evaluate_batch(["always(x < 1)"], [0, 0], [], {"x": []})
    assert empty.rho.shape == (1, 1) and empty.first_violation.tolist() == [[-1]]


def test_arguments_that_are_none_are_refused():
    arguments = {"offsets": [0, 1], "stamps_ns": [0], "signals": {"x": [1.0]}}
    for one in ("x", "always(x < 1)", stl.parse("x < 1")):
        with pytest.raises(TypeError, match="a sequence of clauses"):
            stl.evaluate_batch(one, **arguments)
    with pytest.raises(ValueError, match="'error' or 'unknown', not 'ignore'"):
        stl.evaluate_batch(["x < 1"], **arguments, missing="ignore")


def test_a_missing_signal_raises_or_is_unknown():
    arguments = (["always(x < 1)", "always(y < 1)"], [0, 2], [0, 1], {"x": [0.0, 0.0]})
    with pytest.raises(stl.UnknownSignalError, match="'y'"):
        stl.evaluate_batch(*arguments)
    result = stl.evaluate_batch(*arguments, missing="unknown")
    np.testing.assert_array_equal(result.status, [[1, 0]])
    np.testing.assert_array_equal(result.unknown, [[0, 2]])


@pytest.mark.parametrize(
    ("offsets", "stamps", "values", "message"),
    [
        ([0, 3], [0, 1], [0, 1], "expected 3"),
        ([0, 2], [0, 1], [0, 1, 2], "2 stamps"),
        ([1, 2], [0, 1], [0, 1], "start at 0"),
        ([0, 2, 1], [0, 1], [0, 1], "never fall"),
        ([0, 2, 4], [0, 1, 0, 0], [0, 1, 2, 3], "episode 1: stamp 1"),
        ([0, 2], [0.0, 1.0], [0, 1], "whole nanoseconds"),
        ([0, 2], [0, 1], ["a", "b"], "expected numbers"),
    ],
)
def test_what_does_not_fit_is_refused(offsets, stamps, values, message):
    with pytest.raises(stl.TraceError, match=message):
        stl.evaluate_batch(["always(x < 1)"], offsets, stamps, {"x": values})


def test_the_callers_arrays_stay_as_they_are():
    x = np.array([1.0, np.inf, np.nan, 3.0])
    before = x.copy()
    x.flags.writeable = False
    stl.evaluate_batch(["always[0,5](x > 0)", "always(x > 0)"], [0, 4], [0, 1, 2, 3], {"x": x})
    np.testing.assert_array_equal(x, before)
