"""What the monitor says: the latch, the diagnostics, texts that came from messages."""

import numpy as np
import pytest

pytest.importorskip("rclpy")

from osma_monitor.msg import ClauseStatus, SafetyState, Violation
from rclpy.serialization import deserialize_message

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.core.signals.raw import Base, Objects, RawFrame, vector
from osma_monitor.io.configuration import monitor_config
from osma_monitor.ros import diagnostics, outputs
from osma_monitor.ros.outputs import StateLatch
from osma_monitor.ros.text import printable

pytestmark = pytest.mark.ros


def updates(speeds, prediction_horizon=1.0):
    """A robot beside a person, and how fast it drives in each frame (NaN: not known)."""
    info = EpisodeInfo("é1", suite="kitchen", templates=("navigate",), sources=("base", "objects"))
    monitor = EpisodeMonitor(info, monitor_config(prediction_horizon=prediction_horizon))
    person = Objects(
        ("anna",), ("human",), ("human",), np.ones((1, 3)), np.ones((1, 4)), np.array([0.3]), np.zeros(1, np.int8)
    )
    for i, speed in enumerate(speeds):
        base = Base(vector([0, 0, 0]), vector([0, 0, 0, 1]), vector([speed, 0, 0]), vector([0, 0, 0]))
        yield monitor.update(RawFrame(10**9 + i * 50_000_000 + 7, base, objects=person))


def read(data, kind):
    """The message, after making sure that the bytes end with it."""
    with pytest.raises(Exception, match="deserialize"):
        deserialize_message(data[:-8], kind)
    return deserialize_message(data, kind)


@pytest.mark.parametrize("horizon", [1.0, 0.0])
def test_the_status_says_what_the_update_holds(horizon):
    for update in updates([0.1, 0.1, 0.12, 0.15, 0.2, 0.25, 0.28, 0.7, float("nan"), 0.1], horizon):
        status, c = read(outputs.clause_status(update, "é1", 3), ClauseStatus), update.clauses
        assert status.header.stamp.sec * 10**9 + status.header.stamp.nanosec == update.stamp_ns
        assert (status.episode_id, status.step, status.frames_refused) == ("é1", update.step, 3)
        assert status.state == outputs.STATES[update.state]
        for name in ("rho", "rho_episode", "lower", "upper", "status", "status_episode", "triggered"):
            assert np.array_equal(getattr(status, name), getattr(c, name), equal_nan=True), name
        assert np.array_equal(status.first_violation, c.first_violation_ns)
        assert np.array_equal(status.unknown_samples, c.unknown_samples)
        trend = update.prediction
        assert len(status.warn) == (len(c.rho) if horizon else 0)
        if trend is not None:
            assert np.array_equal(status.time_to_violation, trend.time_to_violation, equal_nan=True)
            assert np.array_equal(status.time_deviation, trend.deviation, equal_nan=True)
            assert np.array_equal(status.warn, trend.warn)


def test_a_violation_says_what_its_event_holds():
    events = [event for update in updates([0.1, 0.7, 0.9, 0.1]) for event in update.events]
    assert {event.kind for event in events} == {"enter", "exit"}
    for event in events:
        message = read(outputs.violation(event, "é1"), Violation)
        assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == event.stamp_ns
        assert message.event == (Violation.ENTER if event.kind == "enter" else Violation.EXIT)
        assert (message.episode_id, message.step, message.clause) == ("é1", event.step, event.clause.id)
        assert (message.family, message.unit) == (event.clause.family, event.clause.unit)
        assert (message.rho, message.threshold) == (event.rho, event.clause.threshold)
        assert (message.peak, message.depth) == (event.peak, event.depth)
        assert message.duration == event.duration_ns / 1e9
        assert dict(zip(message.signals, message.values, strict=True)) == event.signals
        assert message.message == outputs.violation_text(event)
        assert message.scored == event.clause.scored


def test_the_latch_keeps_the_worst_state_until_acknowledged():
    latch = StateLatch()
    latch.set("ok", [], 1)
    latch.set("warn", ["a"], 2)
    latch.set("violated", ["b"], 3)
    latch.set("unknown", ["c"], 4)
    latch.set("violated", ["d"], 5)
    latch.set("ok", [], 6)
    message = latch.message()
    assert (message.state, message.latched) == (SafetyState.OK, SafetyState.VIOLATED)
    assert list(message.latched_reasons) == ["b", "d"] and message.reasons == []
    assert latch.acknowledge() == "violated"
    assert latch.message().latched == SafetyState.OK
    assert latch.message().sequence == message.sequence + 2


def test_unknown_is_worse_than_a_warning_and_better_than_a_violation():
    latch = StateLatch()
    for state, expected in (("warn", "warn"), ("unknown", "unknown"), ("warn", "unknown"), ("violated", "violated")):
        latch.set(state, ["x"], 1)
        assert latch.latched == expected


def test_having_nothing_to_judge_is_unknown_and_latches_nothing():
    latch = StateLatch()
    latch.idle("no episode runs")
    message = latch.message()
    assert (message.state, message.latched) == (SafetyState.UNKNOWN, SafetyState.OK)


def test_the_level_of_a_diagnosis_is_a_byte():
    concern = diagnostics.Concern("inputs")
    concern.raise_to(diagnostics.WARN, "a")
    concern.raise_to(diagnostics.WARN, "b")
    concern.raise_to(diagnostics.OK, "c")
    [status] = diagnostics.to_message("node", 1, [concern]).status
    assert status.level == b"\x01" and status.message == "a; b" and status.name == "node: inputs"


def test_inputs_that_are_expected_must_come():
    def report(**changes):
        return diagnostics.InputReport(
            **{"topic": "odom", "part": "base", "expected": True, "publishers": 1, "messages": 3, "age": 0.1, **changes}
        )

    assert diagnostics.inputs([report()], 0.5).level == diagnostics.OK
    assert diagnostics.inputs([report(publishers=0)], 0.5).level == diagnostics.ERROR
    assert diagnostics.inputs([report(age=2.0)], 0.5).level == diagnostics.WARN
    assert diagnostics.inputs([report(age=None)], 0.5).level == diagnostics.WARN
    assert diagnostics.inputs([report(expected=False, publishers=0, age=None)], 0.5).level == diagnostics.OK
    assert diagnostics.inputs([report(problem="incompatible QoS")], 0.5).level == diagnostics.ERROR


def test_only_fresh_trouble_raises_a_warning():
    counts = {"odom: malformed": 3, "repeated frames": 5}
    assert diagnostics.frames(counts, {}, 10, 20.0).level == diagnostics.WARN
    assert diagnostics.frames(counts, counts, 10, 20.0).level == diagnostics.OK
    assert diagnostics.frames({"repeated frames": 5}, {}, 10, 20.0).level == diagnostics.OK


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb\x1b[31m", "a?b?[31m"), ("x" * 300, "x" * 200 + "…"), ("", ""), ("é ok", "é ok")],
)
def test_text_from_messages_is_one_harmless_line(text, expected):
    assert printable(text) == expected


def test_a_latch_keeps_a_bounded_number_of_reasons():
    latch = StateLatch()
    for k in range(1000):
        latch.set("unknown", [f"internal error {k}"])
    message = latch.message()
    assert len(message.latched_reasons) == 64 and message.latched_reasons[0] == "internal error 0"
