"""Failure classes (OSMA-Bench E.3, F.7, Table 20)."""

import math

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.metrics.failures import Pose, class_counts, classify, failure_of, stall_table
from osma_monitor.core.metrics.requested import RequestedControl
from osma_monitor.core.motion import MotionFeatures

STEP = 50_000_000
GOAL = Pose(0.0, 0.0, 0.0)
SLOW = RequestedControl(0.6, 0.2, 1.35)


def steps(x, y=None, yaw=None):
    x = np.asarray(x, dtype=float)
    y = np.zeros(len(x)) if y is None else np.asarray(y, dtype=float)
    yaw = np.zeros(len(x)) if yaw is None else np.asarray(yaw, dtype=float)
    return 10**9 + STEP * np.arange(len(x), dtype=np.int64), x, y, yaw


def towards(start, end, still=0):
    """500 steps on a line, the last ``still`` of them standing."""
    return np.concatenate((np.linspace(start, end, 501 - still), np.full(still, end)))


def kind(x, y=None, yaw=None, **more):
    return classify(*steps(x, y, yaw), GOAL, **more).kind


def test_the_three_behaviours_of_a_time_out():
    """Figure 8: travels 2.8 mm; travels 0.69 m and ends farther; comes 1.05 m closer and is still 2.06 m away."""
    assert kind(towards(4.0, 2.46, still=120)) == "stagnation"
    swing = 2.46 + 0.1 * np.sin(np.arange(501) / 4)
    assert kind(swing) == "motion_without_progress"
    x = np.concatenate((np.full(401, 3.11), np.linspace(3.11, 2.06, 100)))
    found = classify(*steps(x), GOAL)
    assert found.kind == "incomplete_approach"
    assert found.final_progress == pytest.approx(1.05) and found.end_distance == pytest.approx(2.06)
    assert found.start_distance == pytest.approx(3.11)


def test_only_the_last_495_centiseconds_decide():
    x = np.concatenate((np.linspace(4, 2.5, 401), np.full(100, 2.5)))  # 99 intervals of 0.05 s at the end
    assert kind(x) == "stagnation"
    x[-100] = 2.6
    assert kind(x) == "incomplete_approach"


def test_at_the_goal_only_the_heading_can_be_missing():
    found = classify(*steps(towards(3, 0.4), yaw=np.full(501, math.pi)), GOAL)
    assert found.kind == "heading" and found.heading_cosine == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("target not grounded: 'stove'", "target_not_grounded"),
        ("target_not_grounded", "target_not_grounded"),
        ("pipeline error: unresolved navigation target", "target_not_grounded"),
        ("pipeline error: no target: the generated code holds no go_to", "target_not_grounded"),
        ("pipeline error: generated code does not parse: invalid syntax", "pipeline_error"),
        ("pipeline error: empty answer", "pipeline_error"),
        ("timeout", "stagnation"),
        ("", "stagnation"),
    ],
)
def test_what_the_host_says_decides_first(reason, want):
    assert kind(np.full(501, 3.0), reason=reason) == want


def test_slow_speed_stall_needs_a_slow_request_and_the_region():
    x = towards(2.65, 1.73)
    spot = (1.2, 0.0)
    assert kind(x, requested=SLOW, spot=spot) == "slow_speed_stall"
    assert kind(x, requested=RequestedControl(0.6, 0.25, 1.35), spot=spot) == "incomplete_approach"
    assert kind(x, requested=RequestedControl(0.6, 0.2, 0.5), spot=spot) == "incomplete_approach"
    assert kind(x, requested=SLOW) == "incomplete_approach"  # where the obstacle is, is not known
    assert kind(x, requested=RequestedControl(0.6, None, 1.35), spot=spot) == "incomplete_approach"


def test_unknown_goal_or_position_is_unknown():
    assert classify(*steps([1, 2]), None).kind == "unknown"
    assert kind([math.nan, math.nan]) == "unknown"
    assert kind([]) == "unknown"
    assert classify(*steps([]), GOAL, reason="pipeline error").kind == "pipeline_error"


def test_one_step_is_enough():
    assert kind([3.0]) == "stagnation"


def test_unknown_steps_are_left_out():
    x = towards(4.0, 2.46, still=120)
    x[-1] = math.nan
    assert kind(x) == "stagnation"


def record(status, **attributes):
    stamps, x, y, yaw = steps(towards(2.65, 1.73))
    contact = np.zeros(len(x))
    contact[100] = 1
    return EpisodeRecord(
        EpisodeInfo("e", task="task", attributes=attributes),
        Outcome(status, "timeout"),
        stamps,
        {"base_x": x, "base_y": y, "base_yaw": yaw, "obstacle_contact": contact},
        ("dog",) * len(x),
        (),
        {},
        MotionFeatures(),
    )


PLACE = {"goal_x": "0.0", "goal_y": "0.0", "goal_yaw": "0.0", "spot_x": "1.2", "spot_y": "0.0"}
ASKED = {"requested_clearance_m": "0.6", "requested_speed": "0.2", "requested_region_m": "1.35"}


def test_from_a_record():
    found = failure_of(record("failure", **PLACE, **ASKED))
    assert (found.kind, found.contact, found.task) == ("slow_speed_stall", True, "task")
    assert found.obstacle_distance == pytest.approx(0.53)
    assert failure_of(record("failure", **PLACE)).kind == "incomplete_approach"
    assert failure_of(record("failure", **PLACE), SLOW).kind == "slow_speed_stall"
    assert failure_of(record("failure")).kind == "unknown"
    for status in ("success", "aborted", "unknown"):
        assert failure_of(record(status, **PLACE)) is None


def test_counts_and_the_table_of_stalls():
    failures = [failure_of(record("failure", **PLACE, **ASKED)), failure_of(record("failure"))]
    failures.append(
        classify(
            *steps(towards(3, 1.5)), GOAL, contact=False, spot=(1.2, 0.0), requested=RequestedControl(0.5, 0.1, 1.3)
        )
    )
    assert class_counts(failures) == {"slow_speed_stall": 2, "unknown": 1}
    table = stall_table(failures)
    assert table["time-out, no contact"].n == 1 and table["contact"].n == 1
    assert table["all"][:4] == pytest.approx((2, 0.55, 1.325, 0.15))
    assert table["all"].start_m == pytest.approx((2.65 + 3) / 2) and table["all"].end_m == pytest.approx(
        (1.73 + 1.5) / 2
    )
    assert stall_table([])["all"].n == 0 and math.isnan(stall_table([])["all"].speed)
