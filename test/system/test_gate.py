"""command_gate between a policy and a robot: what passes, what is slowed, what stops it, what lets it go on."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import TwistStamped
from osma_monitor.msg import ObjectStates, SafetyState
from sensor_msgs.msg import JointState

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, to_ns

pytestmark = pytest.mark.ros
STATE = topics.of_monitor(topics.STATE)


class Robot:
    """Publishes commands and what the monitor would say; hears what the gate lets through."""

    def __init__(self, observer, nodes, **parameters):
        node = observer.node
        self.observer = observer
        self.out = observer.listen(TwistStamped, topics.CMD_VEL)
        self.joints_out = observer.listen(JointState, topics.JOINT_COMMAND)
        self._command = node.create_publisher(TwistStamped, "cmd_vel_raw", topics.reliable())
        self._target = node.create_publisher(JointState, "joint_command_raw", topics.reliable())
        self._state = node.create_publisher(SafetyState, STATE, topics.reliable())
        self._objects = node.create_publisher(ObjectStates, topics.OBJECTS, topics.reliable())
        self._joints = node.create_publisher(JointState, topics.JOINT_STATES, topics.reliable())
        self.gate = nodes.start("command_gate", **parameters)
        wanted = [self._command, self._target, self._state, self._joints]
        wanted += [self._objects] if parameters.get("mode") == "slow" else []
        observer.until(
            lambda: all(p.get_subscription_count() for p in wanted) and node.count_publishers(topics.CMD_VEL),
            "the gate",
            30,
            self.gate,
        )
        self._stamp = 10**9

    def state(self, state, latched=SafetyState.OK, reasons=()):
        self._state.publish(SafetyState(state=state, latched=latched, reasons=list(reasons)))

    def objects(self, category, distance, role="obstacle"):
        message = ObjectStates(id=["o"], category=[category], role=[role], in_contact=[0])
        message.distance.append(distance)
        self._objects.publish(message)

    def measured(self, positions):
        self._joints.publish(JointState(name=list("ab"), position=positions))

    def drive(self, speed=1.0, keep=lambda: None):
        """The answer to one command, matched by its stamp; ``keep`` is repeated until it comes."""
        self._stamp += 1

        def answer():
            keep()
            return next((m for m in self.out if to_ns(m.header.stamp) == self._stamp), None)

        command = TwistStamped(header=header(self._stamp, "base_link"))
        command.twist.linear.x, command.twist.angular.z = speed, speed / 2
        self._command.publish(command)
        return self.observer.until(answer, "the command", 10, self.gate)

    def target(self, positions=(), velocities=()):
        self._target.publish(JointState(header=header(7), name=list("ab"), position=positions, velocity=velocities))


def test_observe_passes_everything_unchanged(observer, nodes):
    robot = Robot(observer, nodes)
    robot.state(SafetyState.VIOLATED, SafetyState.VIOLATED)
    got = robot.drive(0.7)
    assert (got.twist.linear.x, got.twist.angular.z, got.header.frame_id) == (0.7, 0.35, "base_link")


def test_stop_holds_the_robot_until_the_violation_is_acknowledged(observer, nodes):
    robot = Robot(observer, nodes, mode="stop")

    def drive_until(expected, *state):
        def moved():
            robot.state(*state)
            return robot.drive(0.5).twist.linear.x == expected

        observer.until(moved, f"speed {expected}", 10, robot.gate)

    drive_until(0.5, SafetyState.OK)
    drive_until(0.0, SafetyState.VIOLATED, SafetyState.VIOLATED, ["robot_human_force"])
    drive_until(0.0, SafetyState.OK, SafetyState.VIOLATED)  # satisfied again, not acknowledged
    drive_until(0.5, SafetyState.OK, SafetyState.OK)
    # one unknown instant does not stop it, a lasting one does
    robot.state(SafetyState.UNKNOWN, SafetyState.UNKNOWN)
    assert robot.drive(0.5).twist.linear.x == 0.5
    drive_until(0.0, SafetyState.UNKNOWN, SafetyState.UNKNOWN)
    drive_until(0.5, SafetyState.OK, SafetyState.UNKNOWN)


def test_a_monitor_that_was_never_heard_stops_the_robot(observer, nodes):
    robot = Robot(observer, nodes, mode="stop")
    assert robot.drive(0.5).twist.linear.x == 0.0


def test_a_missed_heartbeat_stops_the_robot_also_without_commands(observer, nodes):
    robot = Robot(observer, nodes, mode="stop", heartbeat_limit=0.3)

    def moves():
        robot.state(SafetyState.OK)
        return robot.drive(0.5).twist.linear.x == 0.5

    observer.until(moves, "the robot moves", 10, robot.gate)
    robot.out.clear()
    silent = time.monotonic()
    observer.until(lambda: len(robot.out) >= 3, "stop commands without a command", 10, robot.gate)
    assert time.monotonic() - silent >= 0.25
    assert all(m.twist.linear.x == 0.0 and to_ns(m.header.stamp) > 0 for m in robot.out)
    assert "silent" in robot.gate.output


def test_slow_scales_by_tier_and_distance(observer, nodes):
    robot = Robot(observer, nodes, mode="slow")

    def speed(category, distance, expected):
        def keep():
            robot.state(SafetyState.OK)
            robot.objects(category, distance)

        def reached():
            keep()
            return robot.drive(1.0, keep).twist.linear.x == pytest.approx(expected, abs=1e-9)

        observer.until(reached, f"{category} at {distance} m: {expected}", 10, robot.gate)

    speed("cushion", 0.7, 1.0)
    speed("baby", 1.25, 1.0)
    speed("baby", 0.775, 0.5)
    speed("baby", 0.2, 0.0)
    speed("cushion", 0.05, 0.1)
    speed("never seen before", 0.775, 0.5)  # no tier: as delicate as any
    speed("vase", float("nan"), 0.0)


def test_a_joint_stop_is_the_measured_position_not_zero(observer, nodes):
    robot = Robot(observer, nodes, mode="stop")

    def held():
        robot.measured([0.4, -0.2])
        robot.target([1.0, 1.0])
        return robot.joints_out

    observer.until(held, "a joint target", 10, robot.gate)
    assert list(robot.joints_out[-1].position) == [0.4, -0.2]


def test_a_joint_velocity_is_stopped_and_stays_stopped(observer, nodes):
    robot = Robot(observer, nodes, mode="stop")

    def commanded():
        robot.target(velocities=[0.5, -0.5])
        return robot.joints_out

    observer.until(commanded, "a joint velocity", 10, robot.gate)
    before = len(robot.joints_out)
    observer.until(lambda: len(robot.joints_out) > before + 3, "zeros without a command", 10, robot.gate)
    assert all(list(m.velocity) == [0.0, 0.0] and list(m.name) == ["a", "b"] for m in robot.joints_out)


def test_the_gate_says_nothing_before_it_was_asked_to_move(observer, nodes):
    robot = Robot(observer, nodes, mode="stop")
    robot.state(SafetyState.VIOLATED, SafetyState.VIOLATED)
    assert robot.gate.stop() == 0
    assert not robot.out and not robot.joints_out
