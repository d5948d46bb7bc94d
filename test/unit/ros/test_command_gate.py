"""What the gate makes of a joint target."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("rclpy")

from sensor_msgs.msg import JointState

from osma_monitor.ros.command_gate import held_back

pytestmark = pytest.mark.ros

MEASURED = JointState(name=["b", "a"], position=[1.0, 2.0])


@pytest.mark.parametrize(
    ("target", "scale", "position", "velocity"),
    [
        (JointState(name=["a", "b"], position=[4.0, 3.0]), 0.5, [3.0, 2.0], []),
        (JointState(name=["a", "b"], position=[4.0, math.nan]), 0.0, [2.0, 1.0], []),
        (JointState(position=[3.0]), 0.5, [2.0], []),
        (JointState(name=["a"], velocity=[0.8]), 0.25, [], [0.2]),
        (JointState(name=["a"], velocity=[math.inf]), 0.0, [], [0.0]),
        (JointState(name=["a"], position=[4.0], velocity=[1.0], effort=[9.0]), 0.0, [2.0], [0.0]),
    ],
)
def test_a_target_is_held_back(target, scale, position, velocity):
    held = held_back(target, MEASURED, scale)
    assert (list(held.position), list(held.velocity), list(held.effort)) == (position, velocity, [])


@pytest.mark.parametrize(
    ("target", "measured"),
    [
        (JointState(name=["a"], position=[1.0]), None),
        (JointState(name=["c"], position=[1.0]), MEASURED),
        (JointState(name=["a"], position=[1.0]), JointState(name=["a"], position=[math.nan])),
        (JointState(name=["a"], position=[1.0]), JointState(name=["a"])),
        (JointState(name=["a"], position=[1.0, 2.0]), MEASURED),
        (JointState(name=["a"], effort=[1.0]), MEASURED),
        (JointState(), MEASURED),
    ],
)
def test_where_nothing_safe_can_be_said_nothing_is(target, measured):
    assert held_back(target, measured, 0.5) is None


def test_velocities_stop_without_measured_joints():
    assert list(held_back(JointState(name=["a"], velocity=[1.0]), None, 0.0).velocity) == [0.0]
