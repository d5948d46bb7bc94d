"""Operators that look ahead inside another temporal operator: constant cost, equal to whole-trace evaluation."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stl_strategies import GATES, SIGNALS, examples, one_inside_another, traces

from osma_monitor.core import stl
from osma_monitor.core.stl import clamps, online
from osma_monitor.core.stl.nested import Nested
from osma_monitor.core.stl.stream import Stream

SECOND = 1_000_000_000


def same(found, expected):
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True))


def at(trace, index):
    return (trace.lower[index], trace.upper[index], trace.rho[index])


def judged(update):
    return (update.lower[0], update.upper[0], update.rho[0])


def now(update):
    return (update.now_lower[0], update.now_upper[0], update.now_rho[0])


def check(text, trace, unknown_from):
    """Every prefix against whole-trace evaluation, ``triggered`` against working everything out again."""
    stamps, columns = trace
    columns = {n: np.where((np.arange(len(c)) < unknown_from) & ~np.isfinite(c), 1.0, c) for n, c in columns.items()}
    formula = stl.parse(text)
    library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "open_stream", Stream)
        again = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
    for count, stamp in enumerate(stamps.tolist(), 1):
        sample = {n: float(columns[n][count - 1]) for n in SIGNALS}
        prefix = (stamps[:count], {n: c[:count] for n, c in columns.items()})
        update = library.update(stamp, sample)
        found = stl.evaluate_bounds(formula, *prefix, GATES, closed=False)
        assert same(judged(update), at(found, 0)) and same(now(update), at(found, -1)), count
        assert update.triggered[0] == again.update(stamp, sample).triggered[0], count
        if count % 3 == 0:
            saved = json.loads(json.dumps(library.snapshot()))
            library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
            library.restore(saved)
        if count % 4 == 0:
            twin = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
            twin.restore(library.snapshot())
            closed = twin.close()
            found = stl.evaluate_bounds(formula, *prefix, GATES)
            assert same(judged(closed), at(found, 0)) and same(now(closed), at(found, -1)), count


@examples(1)
@given(one_inside_another(), traces(least=4, most=20), st.sampled_from([0, 0, 5, 100]))
def test_every_prefix_equals_whole_trace_evaluation(text, trace, unknown_from):
    check(text, trace, unknown_from)


@pytest.mark.long
@examples(4)
@given(one_inside_another(), traces(least=4, most=30), st.sampled_from([0, 0, 5, 100]))
def test_every_prefix_equals_whole_trace_evaluation_at_length(text, trace, unknown_from):
    check(text, trace, unknown_from)


SHAPES = [
    "always(x > 0 -> eventually[0,{w}](y > 1))",
    "always[0,{t}](eventually[0,{w}](x > 0))",
    "historically(eventually[0,{w}](x > 0))",
    "always(rise(x > 0) -> (eventually[0,{w}](y > 1)))",
    "always[0,{t}](x > 0 until[0,{w}] y > 1)",
    "always(always[1,{w}](x < 1))",
    "eventually(not (x > 1 until[0,{w}] y > 1))",
    "always((eventually[0,{w}](x > 2)) -> y > 0)",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unknown", [False, True])
def test_the_work_a_sample_does_not_grow_with_the_window(shape, unknown, monkeypatch):
    work = 0

    def counted(function):
        def call(*arguments):
            nonlocal work
            work += 1
            return function(*arguments)

        return call

    composed = clamps.compose
    monkeypatch.setattr(clamps, "compose", counted(composed))
    for name in ("push", "apply", "pop", "least"):
        monkeypatch.setattr(clamps.ClampQueue, name, counted(getattr(clamps.ClampQueue, name)))
    rng = np.random.default_rng(4)
    rows = (4 * rng.random((1200, 2)) - 1).tolist()
    spent = []
    for width in (10, 400):
        library = stl.Library(shape.format(w=width, t=20_000))
        assert isinstance(library._streams[0], Nested)
        begin = work
        for i, (x, y) in enumerate(rows):
            library.update(i * SECOND, {"x": math.nan if unknown and i % 50 == 7 else x, "y": y})
        spent.append(work - begin)
        assert len(library._streams[0]) <= width + 2
    assert spent[1] < 1.5 * spent[0]


def test_unknown_samples_keep_the_cost_constant_and_unbounded_operators_keep_the_trace():
    bounded, unbounded = (stl.Library(f"always(x > 0 -> eventually{w}(y > 1))") for w in ("[0,5]", ""))
    for i in range(100):
        for library in (bounded, unbounded):
            library.update(i * SECOND, {"x": math.nan if i == 50 else 1.0, "y": float(i % 3)})
    assert isinstance(bounded._streams[0], Nested) and len(bounded._streams[0]) <= 7
    assert isinstance(unbounded._streams[0], Nested) and not unbounded.reworked and len(unbounded._streams[0]) == 100


@pytest.mark.parametrize("around", ["always(x > 1 -> ({}))", "always(not ({}))", "eventually[0,2000](({}) and x > 0)"])
def test_a_pending_until_inside_takes_constant_time_while_all_is_known(around, monkeypatch):
    work = 0
    applied = clamps.ClampQueue.apply

    def counted(*arguments):
        nonlocal work
        work += 1
        applied(*arguments)

    monkeypatch.setattr(clamps.ClampQueue, "apply", counted)
    library = stl.Library(around.format("x > -1 until y > 1"))
    rng = np.random.default_rng(7)
    spent = []
    for i, (x, y) in enumerate((4 * rng.random((600, 2)) - 1.2).tolist()):
        begin = work
        library.update(i * SECOND, {"x": x, "y": y})
        spent.append(work - begin)
    assert isinstance(library._streams[0], Nested) and not library.reworked
    assert max(spent) == max(spent[:10]) > 0


def test_a_pending_until_inside_by_hand():
    monitor = stl.OnlineMonitor("always(a > 0 -> (b > 0 until c > 0))")
    found = []
    for t, (a, b, c) in enumerate([(1, 5, -4), (-2, 3, -3), (-1, -1, -2), (-1, 4, 6)]):
        verdict = monitor.update(t * SECOND, {"a": a, "b": b, "c": c})
        found.append((verdict.lower, verdict.upper, verdict.rho))
    # the demand of t = 0 waits for c while b holds; at t = 2 b is broken by 1 and c still missed by 2
    assert same(sum(found, ()), (-1, math.inf, math.nan, -1, math.inf, math.nan, -1, -1, -1, -1, -1, -1))


def test_a_part_that_looks_back_beside_one_that_looks_ahead_keeps_its_sign():
    library = stl.Library("once(x > 0) and historically(always[0,1](y > 0))")
    update = library.update(0, {"x": 3.0, "y": 2.0})
    assert (update.lower[0], update.upper[0], update.now_upper[0]) == (-math.inf, 2.0, 2.0)
    update = library.update(SECOND, {"x": -1.0, "y": 5.0})
    assert (update.lower[0], update.upper[0], update.now_upper[0]) == (2.0, 2.0, 2.0)


def test_a_window_without_a_sample_is_a_point():
    library = stl.Library("eventually[2,5]((x < 1) until (y > 0))")
    for stamp in (0, 1, 7 * SECOND):
        update = library.update(stamp, {"x": 0.0, "y": 0.0})
    assert judged(update) == (-math.inf, -math.inf, -math.inf)


def test_reach_and_react_by_hand():
    monitor = stl.OnlineMonitor("always(a > 0 -> eventually[0,2](b > 0))")
    found = []
    for t, (a, b) in enumerate([(-1, -1), (3, -4), (-1, -2), (-1, -3), (-1, 5)]):
        verdict = monitor.update(t * SECOND, {"a": a, "b": b})
        found.append((verdict.lower, verdict.upper, verdict.rho, verdict.status))
    # the demand of t = 1 is open until t = 3: nearer and nearer, then missed by 2
    assert same(sum((f[:3] for f in found), ()), (
        1, math.inf, math.nan,
        -3, math.inf, math.nan,
        -2, 1, 1,
        -2, -2, -2,
        -2, -2, -2,
    ))  # fmt: skip
    assert [f[3] for f in found] == ["satisfied", "unknown", "unknown", "violated", "violated"]


@pytest.mark.parametrize(
    "text",
    [
        "(eventually[0,1](x > 1)) until (always[0,2](y > 2))",
        "not ((historically[0,1](eventually[0,1](x > 1))) until (y > 2))",
        "((always[0,1](x > -9)) until (eventually[0,1](y > 9))) and always(x > 0 -> eventually[0,1](y > 0))",
    ],
)
def test_an_unbounded_until_at_the_top_keeps_the_inner_windows_alone(text):
    library = stl.Library(text)
    rng = np.random.default_rng(6)
    for i, (x, y) in enumerate(rng.normal(size=(300, 2)).tolist()):
        library.update(i * SECOND // 4, {"x": x if i % 40 else math.nan, "y": y})
    assert all(len(stream) < 30 for stream in library._streams)
