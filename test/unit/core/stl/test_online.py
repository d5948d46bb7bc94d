"""Online monitors: against the slow evaluator and against whole-trace evaluation, prefix by prefix."""

import copy
import gc
import json
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stl_slow import Slow
from stl_strategies import GATES, SIGNALS, bounded, comparisons, examples, formulas, terms, traces

from osma_monitor.core import stl
from osma_monitor.core.stl.packing import Packing
from osma_monitor.core.stl.verdict import status_code


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


@examples(1.2)
@given(formulas(comparisons(terms())), traces(most=7))
def test_every_prefix_equals_the_slow_evaluator(text, trace):
    check_every_prefix(text, trace)


@pytest.mark.long
@examples(10)
@given(formulas(comparisons(terms()), max_leaves=8), traces(most=7))
def test_every_prefix_equals_the_slow_evaluator_at_length(text, trace):
    check_every_prefix(text, trace)


def check_every_prefix(text, trace):
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


@examples(0.5)
@given(nested(), traces(least=8, most=30))
def test_what_streams_let_go_of_changes_nothing(text, trace):
    check_streams(text, trace)


@pytest.mark.long
@examples(2)
@given(nested(), traces(least=8, most=40))
def test_what_streams_let_go_of_changes_nothing_at_length(text, trace):
    check_streams(text, trace)


def check_streams(text, trace):
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


@examples(0.6)
@given(formulas(comparisons(terms()), max_leaves=4), traces(most=6), traces(most=6))
def test_reset_equals_a_new_monitor(text, before, trace):
    formula = stl.parse(text)
    used, new = (stl.Library(formula, gate_signals=GATES, signals=SIGNALS) for _ in range(2))
    for stamp, values in samples(before):
        used.update(stamp, values)
    used.update(0, dict.fromkeys(SIGNALS, 0.0))  # refused
    used.reset()
    for stamp, values in samples(trace):
        assert repr(used.update(stamp, values)) == repr(new.update(stamp, values))
    assert used.snapshot() == new.snapshot() or repr(used.snapshot()) == repr(new.snapshot())
    assert repr(used.close()) == repr(new.close())


GAPS, VALUES = st.integers(1, 3_000_000_000), st.floats(-1e6, 1e6)


@examples(1.5)
@given(
    formulas(comparisons(terms(temporal=False)), max_leaves=5),
    st.lists(st.tuples(GAPS, VALUES, VALUES, st.booleans()), min_size=1, max_size=25),
)
def test_closing_online_equals_offline_to_the_last_bit(text, rows):
    formula = stl.parse(text)
    stamps = np.cumsum([r[0] for r in rows])
    columns = {name: np.array([float(r[i]) for r in rows]) for i, name in enumerate("xyg", 1)}
    library = stl.Library(formula, gate_signals=GATES, signals=SIGNALS)
    for i, stamp in enumerate(stamps):
        library.update(int(stamp), {n: float(c[i]) for n, c in columns.items()})
    closed = library.close()
    found = stl.evaluate_bounds(formula, stamps, columns, GATES)
    at = -1 if formula.is_past else 0
    for name in ("lower", "upper", "rho"):
        one, other = getattr(closed, name)[0], getattr(found, name)[at]
        assert one.tobytes() == other.tobytes() or (np.isnan(one) and np.isnan(other)), name
    batch = stl.evaluate_batch([formula], [0, len(stamps)], stamps, columns, GATES)
    assert batch.upper[0, 0].tobytes() == closed.upper[0].tobytes()


def test_every_kind_of_sample_gives_the_same():
    texts = ["always(b < 3)", "always(a -> c > 0)", "once[0,1](c > 2)"]
    rng = np.random.default_rng(0)
    rows = rng.random((200, 3)) * 4
    rows[:, 0] = rows[:, 0] > 2
    rows[rng.random((200, 3)) < 0.02] = np.nan

    class Map(dict):
        pass

    makers = [
        lambda row: dict(zip("abc", row.tolist(), strict=True)),
        lambda row: row,
        lambda row: row.tolist(),
        lambda row: tuple(row),
        lambda row: dict(zip("abc", row, strict=True)),
        lambda row: Map(zip("abc", row.tolist(), strict=True)),
        lambda row: {n: v for n, v in zip("abc", row.tolist(), strict=True) if not math.isnan(v)},
        lambda row: {n: None if v != v else v for n, v in zip("abc", row.tolist(), strict=True)} | {"other": 3.0},
    ]
    seen = []
    for maker in makers:
        library = stl.Library(texts, gate_signals={"a"})
        trail = [repr(library.update(i * 300_000_000, maker(row))) for i, row in enumerate(rows)]
        seen.append((trail, library.update(0, maker(rows[0])).unknown.tolist(), repr(library.close())))
    assert all(s == seen[0] for s in seen)


def test_updates_are_immutable_and_keep_their_values():
    library = stl.Library("always(x < 3)", "x < 3")
    first = library.update(0, {"x": 1.0})
    second = library.update(1, {"x": 2.5})
    assert first.rho.tolist() == [2, 2] and second.rho.tolist() == [0.5, 0.5]
    assert first.now_rho.tolist() == [2, 2] and first.samples == 1
    with pytest.raises(ValueError, match="read-only"):
        first.rho[0] = 9
    with pytest.raises(AttributeError):
        first.rho = None
    unasked = library.update(2, {"x": 9.0})
    library.update(3, {"x": 99.0})
    library.reset()
    assert unasked.rho.tolist() == [-6, -6] and unasked.now_rho.tolist() == [-6, -6]


def test_snapshots_of_other_libraries_are_refused():
    library = stl.Library("always(x < 3)")
    saved = library.snapshot()
    for other in (stl.Library("always(x < 4)"), stl.Library("always(x < 3)", gate_signals={"x"})):
        with pytest.raises(stl.TraceError, match="other formulas"):
            other.restore(saved)
    with pytest.raises(stl.TraceError):
        library.restore({**saved, "version": 99})


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda library: pickle.loads(pickle.dumps(library))])
def test_copies_go_their_own_way(duplicate):
    texts = ["always(x < 3)", "once[0,5](x > 2)", "always(x > 2 -> eventually[0,1](x < 1))"]
    library = stl.Library(texts, signals=["x", "y"])
    for i, x in enumerate((1.0, math.nan, 2.5)):
        library.update(i * 1_000_000_000, {"x": x})
    other = duplicate(library)
    before = repr(library.snapshot())
    assert repr(other.update(3_000_000_000, {"x": 9.0})) != repr(library.close())
    library.restore(other.snapshot())
    assert repr(library.update(4_000_000_000, {"x": 0.0})) == repr(other.update(4_000_000_000, {"x": 0.0}))
    assert repr(other.snapshot()) != before


def test_no_clauses_and_many_clauses():
    none = stl.Library()
    update = none.update(0, {})
    assert update.rho.shape == (0,) and len(update) == 0 and none.close().verdicts() == ()
    many = stl.Library(f"always(x{i} < {i})" for i in range(300))
    update = many.update(0, {f"x{i}": 1.0 for i in range(300)})
    assert update.rho.tolist() == [i - 1.0 for i in range(300)]
    twice = stl.Library("always(x < 3)", "always(x < 3)")
    assert twice.update(0, {"x": 1.0}).rho.tolist() == [2, 2]


def test_a_closed_trace_takes_no_samples_and_closes_once():
    monitor = stl.OnlineMonitor("eventually(x > 3)")
    assert monitor.close().status == "unknown"
    monitor.reset()
    monitor.update(0, {"x": 1.0})
    assert monitor.close() == monitor.close()
    with pytest.raises(stl.TraceError, match="reset"):
        monitor.update(1, {"x": 5.0})
    monitor.reset()
    assert monitor.update(0, {"x": 5.0}).status == "satisfied"


def test_memory_is_bounded_by_the_windows():
    texts = [
        "always(x < 3)",
        "historically[0,1](x < 3)",
        "once[1,2](x < 3)",
        "x < 3 since[1,2] y > 1",
        "always(x > 1 -> eventually[0,1](y > 1))",
        "always(once[0,1](always[0,1](x < 3)))",
    ]
    library = stl.Library(texts)
    rng = np.random.default_rng(1)
    sizes = []
    for i, (x, y) in enumerate(rng.random((1500, 2)).tolist()):
        library.update(i * 50_000_000, {"x": 3 * x if i % 97 else math.nan, "y": 3 * y})
        if i in (400, 900, 1499):
            sizes.append(len(json.dumps(library.snapshot())))
    assert max(sizes) < 1.3 * min(sizes)
    assert all(len(stream) < 100 for stream in library._streams)


@pytest.mark.long
def test_a_million_updates_leave_memory_flat():
    texts = ["always(x < 3)", "always(historically[0,1](x < 3))", "x < 3 since[0,2] y > 1", "always(y -> x < 2)"]
    library = stl.Library(texts)
    rows = [{"x": x, "y": y} for x, y in np.random.default_rng(2).random((1000, 2)).tolist()]

    def feed(begin, end):
        for i in range(begin, end):
            library.update(i * 50_000_000, rows[i % 1000])

    def held():
        gc.collect()
        tracemalloc.start()
        feed(held.at, held.at + 2000)
        held.at += 2000
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    held.at = 100_000
    feed(0, 100_000)
    early = held()
    feed(held.at, 1_000_000)
    held.at = 1_000_000
    assert abs(held() - early) < 8192


@pytest.mark.parametrize(
    "text",
    [
        "eventually(historically[0,2](always[0,1](x < 1)))",
        "always(once[0,2](eventually[0,1](x < 1)))",
        "always((x < 2) since[1,3] (eventually[0,1](x > 1)))",
        "eventually(historically(always[0,1](x < 1)))",
        "eventually((eventually[0,1](x < 1)) since (x > 1))",
        "always(prev(always[0,1](x < 2)) or rise(eventually[0,1](x > 1)))",
    ],
)
def test_looking_back_over_operators_that_look_ahead_reaches_the_very_edge_of_the_window(text):
    rng = np.random.default_rng(5)
    stamps = np.arange(60, dtype=np.int64) * 1_000_000_000
    x = rng.integers(0, 40, 60) / 8.0
    library = stl.Library(text)
    for i, stamp in enumerate(stamps):
        update = library.update(int(stamp), {"x": float(x[i])})
        found = stl.evaluate_bounds(text, stamps[: i + 1], {"x": x[: i + 1]}, closed=False)
        assert same(
            (update.lower[0], update.upper[0], update.rho[0]), (found.lower[0], found.upper[0], found.rho[0])
        ), i
        assert same((update.now_lower[0], update.now_upper[0]), (found.lower[-1], found.upper[-1])), i
    assert len(library._streams[0]) < 20


def test_a_left_side_that_only_counts_so_far_triggers_when_the_trace_ends():
    formula = "not (always(x > 0) -> eventually[0,1](y > 0))"
    monitor = stl.OnlineMonitor(formula)
    assert [monitor.update(i, {"x": x, "y": -1.0}).triggered for i, x in enumerate([1.0, 2.0])] == [False, False]
    assert monitor.close().triggered
    broken = stl.OnlineMonitor(formula)
    assert [broken.update(i, {"x": x, "y": -1.0}).triggered for i, x in enumerate([1.0, -2.0])] == [False, False]
    assert not broken.close().triggered
    batch = stl.evaluate_batch([formula], [0, 2, 4], [0, 1, 0, 1], {"x": [1, 2, 1, -2], "y": [-1] * 4})
    assert batch.triggered.tolist() == [[True], [False]]


FIELDS = {
    "lower": np.float64, "upper": np.float64, "rho": np.float64, "status": np.int8, "triggered": np.bool_,
    "unknown": np.int64, "now_lower": np.float64, "now_upper": np.float64, "now_rho": np.float64, "now_status": np.int8,
}  # fmt: skip
READ_TEXTS = {
    "accumulators": ["always(x < 3)", "always(y > 1 -> x > 0)"],
    "with the past": ["historically(x < 3)", "once[0,1](y > 0)", "x < 3"],
    "open windows": ["always[0,2](x > 0)", "eventually(y > 3)", "always(x >= 0)"],
    "streams in the middle": ["always(x < 3)", "always(y > 0 -> eventually[0,1](x > 0))", "always(x > 0)"],
    "streams alone": ["always(y > 0 -> eventually[0,1](x > 0))"],
}


def read_trail(texts):
    """Updates of a trace that begins known, has unknown samples, a refused one, and ends; none of them read yet."""
    library = stl.Library(texts)
    yield library.close()
    library.reset()
    rows = [(-0.0, 0.0), (0.0, -0.0), (3.0, 2.0), (-1.0, 0.5), (math.nan, 2.0), (2.0, 4.0), (5.0, math.nan), (1.0, 1.0)]
    for i, (x, y) in enumerate(rows):
        yield library.update(i * 500_000_000, {"x": x, "y": y})
    yield library.update(0, {"x": 9.0, "y": 9.0})
    yield library.close()


@pytest.mark.parametrize("texts", READ_TEXTS.values(), ids=READ_TEXTS)
def test_arrays_are_read_only_of_fixed_types_and_without_negative_zeros(texts):
    for update in read_trail(texts):
        for name, dtype in FIELDS.items():
            array = getattr(update, name)
            assert array.shape == (len(texts),) and array.dtype == dtype, name
            assert not np.signbit(array.astype(float)[array == 0]).any(), name
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
            with pytest.raises(AttributeError):
                setattr(update, name, array)
            assert getattr(update, name) is array, name
        for which in ("", "now_"):
            lower, upper = getattr(update, which + "lower"), getattr(update, which + "upper")
            codes = [status_code(*bounds) for bounds in zip(lower, upper, strict=True)]
            assert getattr(update, which + "status").tolist() == codes


@pytest.mark.parametrize("texts", READ_TEXTS.values(), ids=READ_TEXTS)
def test_what_is_read_does_not_depend_on_when_and_in_which_order(texts):
    def everything(update, names):
        return {n: getattr(update, n).tobytes() for n in names}

    at_once = [everything(u, FIELDS) for u in read_trail(texts)]
    late = list(read_trail(texts))  # each is read after all that came later
    assert [everything(u, reversed(FIELDS)) for u in late] == at_once
    assert [everything(u, FIELDS) for u in late] == at_once
    for update, expected in zip(read_trail(texts), at_once, strict=True):
        verdicts = update.verdicts()
        update.now_lists()
        assert everything(update, FIELDS) == expected
        assert [stl.status_name(code) for code in update.status] == [v.status for v in verdicts]
        for name in ("lower", "upper", "rho", "triggered"):
            assert np.array([getattr(v, name) for v in verdicts]).tobytes() == expected[name], name


def test_counts_of_unknown_samples_stay_with_their_update():
    library = stl.Library("always(x < 3)", "always(y < 3)")
    trail = [library.update(i, {"x": x, "y": y}) for i, (x, y) in enumerate([(1, 1), (1, math.nan), (2, 2), (None, 1)])]
    assert [u.unknown.tolist() for u in trail] == [[0, 0], [0, 1], [0, 1], [1, 1]]


@given(st.lists(st.tuples(*[st.sampled_from([-math.inf, -2.5, -0.0, 0.0, 3.0, math.inf, math.nan])] * 3), max_size=9))
def test_packed_arrays_hold_what_went_in(rows):
    lower, upper, rho = ([row[i] for row in rows] for i in range(3))
    packing = Packing(len(rows))
    for found, given_ in zip(packing.intervals(*lower, *upper, *rho), (lower, upper, rho), strict=False):
        assert found.tobytes() == np.array(given_, dtype=np.float64).tobytes()
    assert packing.intervals(*lower, *upper, *rho)[3].tolist() == [status_code(*r[:2]) for r in rows]
    points = packing.points(*lower)
    assert points[0].tobytes() == points[1].tobytes() == points[2].tobytes() == np.array(lower, np.float64).tobytes()
    assert points[3].tolist() == [status_code(v, v) for v in lower]
    assert packing.counts(range(len(rows))).tolist() == list(range(len(rows))) and not packing.zeros.any()


@pytest.mark.parametrize("count", [1, 2, 7, 101, 240])
def test_finite_values_are_known_however_large_their_sum_is(count):
    names = [f"x{i:03}" for i in range(count)]  # in the order of sequences
    library = stl.Library(f"always({name} < 3)" for name in names)
    huge = [(0.0, -1.5e308, 1e308, 1e308)[i % 4] for i in range(count)]
    library.update(0, [1.0] * count)
    for stamp, sample in enumerate((huge, dict(zip(names, reversed(huge), strict=True)), np.array(huge)), 1):
        update = library.update(stamp, sample)
        assert update.samples == stamp + 1 and not update.unknown.any()
    worst = [min(2.0, 3 - a, 3 - b) for a, b in zip(huge, reversed(huge), strict=True)]
    assert update.rho.tolist() == worst and library.ages_ns() == dict.fromkeys(names, 0)
    with_gap = library.update(9, [math.inf, *huge[1:]])
    assert with_gap.unknown.tolist() == [1] + [0] * (count - 1) and with_gap.status[0] <= 0


def test_whole_numbers_count_as_floats():
    big = 2**53
    for text, sample in [
        ("always(x - z > 0 and y < 1)", {"x": big + 1, "z": big, "y": 0.5}),
        ("always(x * z < y)", {"x": 10**200, "z": 10**200, "y": 0.5}),
        ("always(x * x > z or y > 0)", {"x": 10**200, "z": 1, "y": 0.5}),
        ("always(x + z > y)", {"x": big + 1, "z": 0.25, "y": big}),
        ("always(abs(x) < y)", {"x": 10**400, "y": 0.5}),
    ]:
        update = stl.Library(text).update(0, sample)
        floats = {n: [float(v) if abs(v) < 1e308 else math.nan] for n, v in sample.items()}
        found = stl.evaluate_bounds(text, [0], floats, closed=False)
        assert same(triple(update.verdict(0)), at_first(found)), text


def at_first(trace):
    return (trace.lower[0], trace.upper[0], trace.rho[0])


@pytest.mark.filterwarnings("error")
def test_infinities_as_numpy_scalars_are_unknown_without_a_warning_that_stops():
    library = stl.Library("always(x < y)")
    assert library.update(0, {"x": np.float64(np.inf), "y": np.float64(-np.inf)}).status.tolist() == [0]


@pytest.mark.parametrize("sample", [None, 3, "12", b"1"])
def test_what_is_no_sample_is_refused_by_name(sample):
    with pytest.raises(stl.TraceError, match="a sample"):
        stl.Library("always(x < 1)").update(0, sample)


def test_masked_stamps_are_refused():
    with pytest.raises(stl.TraceError, match="masked"):
        stl.evaluate("x < 1", np.ma.array([0, 1], mask=[False, True]), {"x": [0, 1]})
