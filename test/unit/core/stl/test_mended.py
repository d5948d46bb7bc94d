"""Odd inputs that once gave a wrong value, a raw Python error, or an unreadable message."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from osma_monitor.core import stl
from osma_monitor.core.stl import online, runtime, tracks

SECOND = 1_000_000_000


@pytest.mark.parametrize("op", ["pow", "exp"])
def test_one_number_and_a_trace_agree_to_the_last_bit(op: str) -> None:
    # NumPy squares by x * x when the exponent has stride 0, and goes another way backwards
    base = np.random.default_rng(0).uniform(0.05, 5, 999)
    for arguments in ([base, np.full(999, 2.0)], [base[::-1], np.full(999, 1.7)], [base[::2], np.full(500, 2.0)]):
        arguments = arguments[: 2 if op == "pow" else 1]
        one: Callable[..., float] = runtime.power if op == "pow" else runtime.exponential
        singly = [one(*map(float, row)) for row in zip(*arguments, strict=True)]
        assert tracks.scalar_arithmetic(op, arguments).tolist() == singly


def test_pow_live_and_recorded_agree_to_the_last_bit() -> None:
    x = np.random.default_rng(1).uniform(0.05, 5, 200)
    for text in ("pow(x, 2) < 3", "pow(x, y) < 3", "pow(y, x) < 3"):
        monitor = stl.OnlineMonitor(text)
        live = [monitor.update(i, {"x": float(v), "y": 2.0}).rho for i, v in enumerate(x)]
        assert live == stl.evaluate(text, np.arange(200), {"x": x, "y": np.full(200, 2.0)}).tolist()


def test_windows_in_a_batch_of_episodes_whose_stamps_lie_decades_apart() -> None:
    # an epoch stamp after a zero stamp: shifting the episodes apart would overflow int64
    stamps = [0, 17 * 10**17] * 4
    result = stl.evaluate_batch(["historically(once[0,1](x < 2))"], [0, 2, 4, 6, 8], stamps, {"x": [1, 5] * 4})
    assert result.rho.tolist() == [[-3.0]] * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("historically[0,1](x < 2)", [-3.0, 1.0, 1.0]),
        ("once[0,4e9](x < 2)", [-3.0, 1.0, 1.0]),
        ("always[0,1](x < 2)", [-3.0, 1.0, np.nan]),
    ],
)
def test_stamps_over_all_of_int64(text: str, expected: list[float]) -> None:
    stamps = [-(2**63), 0, 2**63 - 1]
    np.testing.assert_array_equal(stl.evaluate(text, stamps, {"x": [5, 1, 1]}), expected)


@pytest.mark.parametrize("text", ["always(x < 2)", "always[0,1](eventually[0,1](x < 2))"])
@pytest.mark.parametrize("known", [True, False])
def test_a_stamp_beyond_int64_is_an_error(text: str, known: bool) -> None:
    monitor = stl.OnlineMonitor(text)
    monitor.update(-(2**63), {"x": 1.0 if known else np.nan})
    for stamp in (2**63, -(2**63) - 1):
        with pytest.raises(stl.TraceError, match="int64"):
            monitor.update(stamp, {"x": 1.0})
    assert (monitor.samples, monitor.refused) == (1, 0)
    monitor.update(2**63 - 1, {"x": 1.0})
    assert monitor.samples == 2


def test_unsigned_stamps_never_wrap() -> None:
    stamps = np.array([2**63 - 1, 2**63], dtype=np.uint64)
    with pytest.raises(stl.TraceError, match="int64"):
        stl.evaluate("x < 1", stamps, {"x": [0, 0]})
    with pytest.raises(stl.TraceError, match="int64"):
        stl.evaluate_batch(["x < 1"], [0, 2], stamps, {"x": [0, 0]})


def test_masked_samples_are_unknown() -> None:
    for kind in (np.float64, np.float32, np.int64):
        x = np.ma.array(np.array([0, 7, 0], dtype=kind), mask=[False, True, False])
        np.testing.assert_array_equal(stl.evaluate("x < 1", [0, 1, 2], {"x": x}), [1, np.nan, 1])
        batch = stl.evaluate_batch(["always(x < 1)"], [0, 3], [0, 1, 2], {"x": x})
        assert (batch.status.tolist(), batch.unknown.tolist()) == ([[0]], [[1]])


@pytest.mark.parametrize("value", ["5", "nan", b"5"])
@pytest.mark.parametrize("known", [True, False])
def test_text_is_no_number(value: object, known: bool) -> None:
    monitor = stl.OnlineMonitor("x < 2")
    monitor.update(0, {"x": 1.0 if known else None})
    for sample in ({"x": value}, [value]):
        with pytest.raises(stl.TraceError, match="expected a number"):
            monitor.update(1, sample)  # type: ignore[arg-type]
    assert monitor.samples == 1


def test_one_text_is_no_collection_of_names() -> None:
    with pytest.raises(TypeError, match="collection of names"):
        stl.OnlineMonitor("x < 2", signals="xyz")
    with pytest.raises(TypeError, match="collection of names"):
        stl.OnlineMonitor("x < 2", gate_signals="x")


@pytest.mark.parametrize("make", [stl.OnlineMonitor, stl.Library, lambda f: stl.evaluate(f, [0], {})])
def test_what_is_no_formula(make: object) -> None:
    with pytest.raises(TypeError, match=r"a formula is a stl\.Formula or its text, not int"):
        make(3)  # type: ignore[operator]


@pytest.mark.parametrize("snapshot", [{}, {"version": 2}, None, [], {"version": 2, "library": 3}, {"version": 1}])
def test_a_foreign_snapshot_changes_nothing(snapshot: object) -> None:
    monitor = stl.OnlineMonitor("always(x < 1)")
    monitor.update(0, {"x": 5})
    with pytest.raises(stl.TraceError, match="snapshot"):
        monitor.restore(snapshot)  # type: ignore[arg-type]
    assert monitor.update(1, {"x": 0}).rho == -4


SNAPSHOT_TEXTS = ["always(x < 1)", "always(once[0,1](x < 1))", "always(x > 0 -> eventually[0,9](x < 1))"]


@pytest.mark.parametrize("text", SNAPSHOT_TEXTS)
def test_a_damaged_snapshot_changes_nothing(text: str) -> None:
    monitor = stl.OnlineMonitor(text)
    monitor.update(5 * SECOND, {"x": 5})
    whole = json.dumps(monitor.snapshot())
    for key in ("update", "state", "streams", "point", "closed", "digest"):
        values: tuple[object, ...] = (3, [], None, "missing", {1, 2})
        for value in values:
            damaged = json.loads(whole)
            if damaged[key] == value:
                continue
            damaged[key] = value
            if value == "missing":
                del damaged[key]
            with pytest.raises(stl.TraceError, match="damaged"):
                monitor.restore(damaged)
            assert (monitor.samples, json.dumps(monitor.snapshot())) == (1, whole)
    monitor.restore(json.loads(whole))
    assert monitor.samples == 1


def numbers_in(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all numbers in plain data."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from numbers_in(value, (*path, key))
    elif isinstance(content, int | float):
        yield path


@pytest.mark.parametrize("text", SNAPSHOT_TEXTS)
def test_one_changed_number_in_a_snapshot_is_noticed(text: str) -> None:
    monitor = stl.OnlineMonitor(text)
    for i, x in enumerate((5.0, 0.5, 2.0)):
        monitor.update(i * SECOND, {"x": x})
    whole = json.dumps(monitor.snapshot())
    paths = list(numbers_in(json.loads(whole)))
    assert len(paths) > 10
    for *way, last in paths:
        damaged = json.loads(whole)
        place = functools.reduce(lambda inside, key: inside[key], way, damaged)
        place[last] = 0.25 if place[last] != 0.25 else 0.5  # a value like any other
        with pytest.raises(stl.TraceError, match="snapshot"):
            monitor.restore(damaged)


@pytest.mark.parametrize("key", ["update", "state", "streams"])
def test_a_forged_snapshot_starts_anew(key: str) -> None:
    monitor = stl.OnlineMonitor(SNAPSHOT_TEXTS[2])
    monitor.update(5 * SECOND, {"x": 5})
    forged = {**monitor.snapshot(), key: [[]]}
    del forged["digest"]
    forged["digest"] = online._digest(forged)
    with pytest.raises(stl.TraceError, match="damaged"):
        monitor.restore(forged)
    assert monitor.samples == 0


@pytest.mark.parametrize("name", ["inf", "Inf", "INF", "infinity", "Infinity", "nan", "NaN"])
def test_inf_and_nan_are_neither_numbers_nor_signals(name: str) -> None:
    for text in (f"x < {name}", f"always({name} > x)", f"min({name}, x) < 1", f"x < -{name}"):
        with pytest.raises(stl.FormulaError, match="is no number of this language") as caught:
            stl.parse(text)
        assert caught.value.offending == name and caught.value.hint
    assert stl.parse(f"{name}_x < 1 and x.{name} < 1").signals == {f"{name}_x", f"x.{name}"}


def test_messages_hold_nothing_that_a_terminal_obeys() -> None:
    for text in ("a < 1 \x1b[31m b", "a < \u202eb", "a\x00 <", "a < \ud800"):
        with pytest.raises(stl.FormulaError) as caught:
            stl.parse(text)
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
        mark = str(caught.value).split("\n")[2]
        assert mark.index("^") == caught.value.column - 1 + 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "and",
        "a > 0 and",
        "a < and",
        "(",
        "x and and y",
        "min()",
        "min(x,)",
        "always[0,1]",
        "G[,]x",
        "always[0.1ns,1](x)",
        "a > 0)",
        "a b",
        "1e309 < x",
    ],
)
def test_every_refusal_has_a_hint(text: str) -> None:
    with pytest.raises(stl.FormulaError) as caught:
        stl.parse(text)
    assert caught.value.hint
