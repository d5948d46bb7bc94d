"""Clauses of any nesting, sample by sample, against whole-trace evaluation of every prefix."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stl_strategies import GATES, LEAVES, SECOND, SIGNALS, WIDE_WINDOWS, examples, traces

from osma_monitor.core import stl
from osma_monitor.core.stl import chains, columns, folds, online, plain, stream
from osma_monitor.core.stl.graph import build_graph
from osma_monitor.core.stl.offline import Timeline, check_columns, evaluate_graph
from osma_monitor.core.stl.stream import Stream

TOPS = [
    "always({})", "always({})", "eventually({})", "always[0,12]({})", "not (eventually[2,9]({}))", "(next({})) xor g",
    "(({}) until (y > 1)) or (always[0,2](x > 0))", "(always(x > -9)) and ((eventually(y > 9)) until ({}))",
]  # fmt: skip


@st.composite
def deep(draw, unbounded=True):
    """Operators over operators, most of them looking ahead."""
    windows = st.one_of(WIDE_WINDOWS, WIDE_WINDOWS, st.just("")) if unbounded else WIDE_WINDOWS

    def grow(depth):
        if depth == 0:
            return draw(LEAVES)
        shape = draw(
            st.sampled_from(
                ["always{w}({a})", "eventually{w}({a})", "(({a}) until{w} ({b}))", "(({a}) since{w} ({b}))",
                 "historically{w}({a})", "once{w}({a})", "next({a})", "prev({a})", "rise({a})", "fall({a})"]
                if draw(st.booleans())
                else ["(({a}) and ({b}))", "(({a}) or ({b}))", "(({a}) -> ({b}))", "(not ({a}))", "(({a}) xor ({b}))",
                      "always{w}({a})", "eventually{w}({a})", "(({b}) until{w} ({a}))",
                      "((always{w}(x - eventually{w}(y))) > 0.5)"]
            )
        )  # fmt: skip
        other = grow(draw(st.integers(0, depth - 1))) if "{b}" in shape else ""
        return shape.format(w=draw(windows), a=grow(depth - 1), b=other)

    top = draw(st.sampled_from(TOPS))
    return top.format(grow(draw(st.integers(2, 4))))


def same(a, b):
    return np.array_equal(np.array(a, dtype=float), np.array(b, dtype=float), equal_nan=True)


def judged_and_now(update):
    return [
        [update.lower[0], update.upper[0], update.rho[0]],
        [update.now_lower[0], update.now_upper[0], update.now_rho[0]],
    ]


def ends(trace):
    return [[trace.lower[i], trace.upper[i], trace.rho[i]] for i in (0, -1)]


def library_of(text):
    """A monitor that sends every clause with nested operators through a Stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "open_stream", Stream)
        return stl.Library(text, gate_signals=GATES, signals=SIGNALS)


def restored(library, text):
    saved = json.loads(json.dumps(library.snapshot()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "open_stream", Stream)
        other = stl.Library(text, gate_signals=GATES, signals=SIGNALS)
        other.restore(saved)
    return other


def left_side_was_true(text, stamps, columns, gates):
    """Is some left side true at some sample of the open trace? Without any, so is the clause."""
    graph = build_graph([stl.parse(text)], gates)
    (left,) = graph.antecedents
    given = check_columns(graph, len(stamps), columns)
    tracks = evaluate_graph(graph, Timeline(stamps), given, False, left)
    return not left or any((track.lower > 0).any() for track in tracks.values())


def check(text, trace, unknown_from, every=1):
    stamps, columns = trace
    columns = {n: np.where((np.arange(len(c)) < unknown_from) & ~np.isfinite(c), 1.0, c) for n, c in columns.items()}
    library = library_of(text)
    triggered = False
    for count, stamp in enumerate(stamps.tolist(), 1):
        update = library.update(stamp, {n: float(columns[n][count - 1]) for n in SIGNALS})
        if count % every:
            continue
        prefix = (stamps[:count], {n: c[:count] for n, c in columns.items()}, GATES)
        found = stl.evaluate_bounds(text, *prefix, closed=False)
        assert same(judged_and_now(update), ends(found)), count
        triggered = triggered or left_side_was_true(text, *prefix)
        assert update.triggered[0] == triggered, count
        if count % 3 == 0:
            library = restored(library, text)
        if count % 4 == 0:
            closed = restored(library, text).close()
            assert same(judged_and_now(closed), ends(stl.evaluate_bounds(text, *prefix))), count


@examples(2)
@given(deep(), traces(least=4, most=20), st.sampled_from([0, 0, 5, 100]))
def test_every_prefix_equals_whole_trace_evaluation(text, trace, unknown_from):
    check(text, trace, unknown_from)


@pytest.fixture(scope="module")
def arrays_early():
    """Already few slots go through NumPy, in small pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (folds, chains, plain, stream):
            for name, value in (("FEW", 1), ("STEPS", 2), ("CHUNK", 3)):
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        yield


@examples(2)
@given(deep(), traces(least=4, most=20), st.sampled_from([0, 0, 5, 100]))
def test_arrays_give_the_same(arrays_early, text, trace, unknown_from):
    check(text, trace, unknown_from)


@pytest.mark.long
@examples(4)
@given(deep(), traces(least=4, most=40), st.sampled_from([0, 0, 5, 100]))
def test_every_prefix_equals_whole_trace_evaluation_at_length(text, trace, unknown_from):
    check(text, trace, unknown_from)


# --- what a sample costs ---

DEEP = [
    # shape, and how many times its window the samples are that it keeps
    ("always(x > 0 -> eventually[0,{w}](y > 0 and always[0,{w}](x < 2)))", 2),
    ("always((eventually[0,{w}](x > 1)) or (always[0,{w}](y < 2)))", 1),
    ("always(historically[0,{w}](eventually[0,{w}](x > 1)))", 2),
    ("always(x > -2 until[0,{w}] (eventually[0,{w}](y > 1)))", 2),
    ("always(x > -2 until[3,{w}] (eventually[0,{w}](y > 1 since[2,{w}] (next(x > 0)))))", 3),
    ("always(once[0,{w}](x > 1 and (y > -2 since[0,{w}] (next(x > 1)))))", 2),
    ("always[0,3](eventually[0,{w}](always[0,{w}](eventually[0,{w}](y > 0))))", 3),
    (
        "((eventually[0,{w}](x > 1)) until (always[0,{w}](y > -1))) or (always(once[0,{w}](fall(always[0,1](x > 0)))))",
        1,
    ),
]


def slots_looked_at(text, samples):
    """A sample, after those that fill the windows; and the samples that are kept."""
    looked = 0

    def counted(function, size):
        def call(self, *arguments):
            nonlocal looked
            result = function(self, *arguments)
            looked += size(result, *arguments)
            return result

        return call

    library = library_of(text)
    with pytest.MonkeyPatch.context() as patch:
        walked = lambda reached, first, *_: abs(reached - first) + 1  # noqa: E731
        for owner in (folds.Extreme, chains.Chain):
            patch.setattr(owner, "walk", counted(owner.walk, walked))
        patch.setattr(folds.Extreme, "walk_newest", counted(folds.Extreme.walk_newest, walked))
        patch.setattr(columns.Column, "put", counted(columns.Column.put, lambda *_: 1))
        patch.setattr(
            columns.Column, "put_many", counted(columns.Column.put_many, lambda _, begin, end, *__: end - begin)
        )
        half = len(samples) // 2
        for i, (x, y) in enumerate(samples):
            if i == half:
                looked = 0
            library.update(i * SECOND, {"x": x, "y": y})
    return looked / (len(samples) - half), max(len(s) for s in library._streams)


@pytest.mark.parametrize(("shape", "windows"), DEEP)
@pytest.mark.parametrize("unknown", [False, True])
def test_the_slots_looked_at_hardly_grow_with_the_window(shape, windows, unknown):
    samples = np.random.default_rng(8).normal(size=(4000, 2))
    if unknown:
        samples[::37, 0] = np.nan
    few, _ = slots_looked_at(shape.format(w=10), samples.tolist())
    many, kept = slots_looked_at(shape.format(w=500), samples.tolist())
    assert many < 3 * few
    assert kept <= windows * 500 + 10


@pytest.mark.parametrize(
    "text",
    [
        "always(once[0,1]((eventually[0,5](x > 0)) since[1,3] (y > 0)))",
        "always((always[0,2](x > 0)) until[1,3] (eventually[0,4](y > 1)))",
        "not (eventually((once[1,4](eventually[0,3](x > 1))) and prev(next(y > -1))))",
        "always(x > 1 -> not ((y > -1) until (eventually[0,1](x > 1))))",
        "(always[0,9](eventually[1,3](x > 0))) xor (eventually(always[0,1](y > 0)))",
        "(eventually[0,1](x > 1)) until (always[0,2](y > 0))",
    ],
)
def test_long_traces_of_uneven_stamps(text):
    rng = np.random.default_rng(3)
    stamps = np.cumsum(rng.choice([1, SECOND // 2, SECOND, SECOND, 7 * SECOND], size=160))
    columns = {n: rng.choice([*np.arange(-3, 3.5, 0.5), np.nan], size=160) for n in SIGNALS}
    check(text, (stamps, columns), 40)
