"""What the monitor says: the latch, the diagnostics, texts that came from messages."""

import pytest

pytest.importorskip("rclpy")

from osma_monitor.msg import SafetyState

from osma_monitor.ros import diagnostics
from osma_monitor.ros.outputs import StateLatch
from osma_monitor.ros.text import printable

pytestmark = pytest.mark.ros


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
    [("a\nb\x1b[31m", "a\ufffdb\ufffd[31m"), ("x" * 300, "x" * 200 + "…"), ("", ""), ("é ok", "é ok")],
)
def test_text_from_messages_is_one_harmless_line(text, expected):
    assert printable(text) == expected
