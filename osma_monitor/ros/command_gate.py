"""command_gate: between a policy and the robot. Passes commands, slows them near obstacles, or stops the robot.

The decisions are :mod:`osma_monitor.core.gate`; this node feeds them and applies them. It fails safe: in the modes
``slow`` and ``stop`` a monitor that is silent, or was never heard, stops the robot. A stop is sent on, also when no
command comes in.

A base stops at zero velocity. A joint target is a position, where zero would be a movement: there a stop is the last
measured position.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from sensor_msgs.msg import JointState

from osma_monitor.core.errors import UserError
from osma_monitor.core.gate import Decision, Gate, GateConfig, scaled
from osma_monitor.core.signals.raw import OBSTACLE_ROLES
from osma_monitor.msg import ObjectStates, SafetyState
from osma_monitor.ros import conversions, diagnostics, topics
from osma_monitor.ros.outputs import STATE_NAMES
from osma_monitor.ros.parameters import Parameter, check_parameter_files, declare
from osma_monitor.ros.runtime import Spinner, run_application, spin_until_stopped
from osma_monitor.ros.text import printable
from osma_monitor.ros.tiers import read_tiers

NAME = "command_gate"

PARAMETERS = (
    Parameter(
        "mode",
        str,
        "observe",
        "observe passes all; slow scales by the nearest obstacle's tier and distance; stop stops on a violation.",
        choices=("observe", "slow", "stop"),
    ),
    Parameter("input", str, "cmd_vel_raw", "Topic of the commands that come in."),
    Parameter("output", str, topics.CMD_VEL, "Topic of the commands that go out."),
    Parameter("stamped", bool, True, "The velocity commands are TwistStamped; false: Twist."),
    Parameter("joint_input", str, "joint_command_raw", "Topic of the joint targets that come in."),
    Parameter("joint_output", str, topics.JOINT_COMMAND, "Topic of the joint targets that go out."),
    Parameter("monitor_node", str, topics.MONITOR, "Name of the monitor that is listened to."),
    Parameter("unknown_limit", float, 0.5, "s that the state may be UNKNOWN before the robot is stopped.", 0.0, 3600.0),
    Parameter(
        "heartbeat_limit", float, 0.5, "s that the monitor may be silent before the robot is stopped.", 0.01, 3600.0
    ),
    Parameter("hold_latched", bool, True, "Stay stopped after a violation until it is acknowledged."),
    Parameter("stop_rate", float, 20.0, "Hz of the stop commands while the robot is held.", 1.0, 1000.0),
    Parameter(
        "objects_age_limit", float, 0.5, "s after which the distance to the obstacles counts as unknown.", 0.01, 3600.0
    ),
)


def nearest_obstacle(message: ObjectStates, tiers: Mapping[str, str]) -> tuple[str, float]:
    """Tier and surface distance in m of the nearest obstacle; infinitely far where there is none.

    One at an unknown distance may be the nearest: what stands elsewhere says nothing then, and no tier makes it
    harmless. The same holds of arrays that do not fit together. ``tiers``: by category.
    """
    if not len(message.category) == len(message.role) == len(message.distance):
        return "", math.nan
    nearest, tier = math.inf, ""
    for category, role, distance in zip(message.category, message.role, message.distance, strict=True):
        if role not in OBSTACLE_ROLES:
            continue
        if math.isnan(distance):
            return "", math.nan
        if distance < nearest:
            nearest, tier = distance, tiers.get(category, "high" if role == "human" else "")
    return tier, nearest


class CommandGate:
    """See the module."""

    def __init__(self, arguments: list[str]) -> None:
        self.node = node = Node(NAME)
        check_parameter_files(arguments, node.get_name(), node.get_namespace())
        self.values = v = declare(node, PARAMETERS)
        if v.input == v.output or v.joint_input == v.joint_output:
            raise UserError(f"{NAME}: input and output are the same topic; the gate would listen to itself")
        self.gate = Gate(
            GateConfig(v.mode, round(v.unknown_limit * 1e9), round(v.heartbeat_limit * 1e9), v.hold_latched)
        )
        self._tiers = read_tiers() if v.mode == "slow" else {}
        self._objects_time = -math.inf
        self._decision = Decision(1.0)
        self._joints: JointState | None = None
        self._frame_id = conversions.BASE_FRAME
        self._moves_base = False
        self._target: JointState | None = None  #: the latest that came in
        self.passed = self.held = 0
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        kind = TwistStamped if v.stamped else Twist
        self._twist = node.create_publisher(kind, v.output, topics.reliable())
        self._targets = node.create_publisher(JointState, v.joint_output, topics.reliable())
        self._diagnostics = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.reliable(10))
        node.create_subscription(
            SafetyState, topics.of_monitor(topics.STATE, v.monitor_node), self._on_state, topics.reliable()
        )
        if v.mode == "slow":
            node.create_subscription(ObjectStates, topics.OBJECTS, self._on_objects, topics.reliable())
        node.create_subscription(JointState, topics.JOINT_STATES, self._on_joints, topics.best_effort(1))
        node.create_subscription(kind, v.input, self._on_twist, topics.reliable())
        node.create_subscription(JointState, v.joint_input, self._on_target, topics.reliable())
        if v.mode != "observe":
            node.create_timer(1.0 / v.stop_rate, self._hold, clock=steady)
        node.create_timer(1.0, self._diagnose, clock=steady)
        node.get_logger().info(f"mode {v.mode}: {v.input} to {v.output}, {v.joint_input} to {v.joint_output}")

    def run(self, spinner: Spinner) -> int:
        """Serve until told to stop."""
        return spin_until_stopped(spinner)

    def close(self) -> None:
        """A gate that acts leaves the robot standing."""
        if self.values.mode != "observe" and self._moves_base:
            self._twist.publish(self._zero())

    # -- what is known -------------------------------------------------------------------------------------------

    def _on_state(self, message: SafetyState) -> None:
        state, latched = STATE_NAMES.get(message.state, "unknown"), STATE_NAMES.get(message.latched, "unknown")
        because = printable(", ".join(message.reasons))
        self.gate.hear(time.monotonic_ns(), state, latched, because)

    def _on_objects(self, message: ObjectStates) -> None:
        self._objects_time = time.monotonic()
        self.gate.see(*nearest_obstacle(message, self._tiers))

    def _on_joints(self, message: JointState) -> None:
        self._joints = message

    def _decide(self) -> Decision:
        if self.values.mode == "slow" and time.monotonic() - self._objects_time > self.values.objects_age_limit:
            self.gate.see("", math.nan)
        decision = self.gate.decide(time.monotonic_ns())
        if (decision.scale == 0.0) != (self._decision.scale == 0.0):
            log = self.node.get_logger()
            if decision.scale == 0.0:
                log.warning(f"stop: {decision.reason}")
            else:
                log.info("commands pass again")
        self._decision = decision
        return decision

    # -- commands ------------------------------------------------------------------------------------------------

    def _on_twist(self, message: Any) -> None:
        self._moves_base = True
        if self.values.stamped:
            self._frame_id = message.header.frame_id
        decision = self._decide()
        if decision.scale < 1.0:
            self.held += 1
            twist = message.twist if self.values.stamped else message
            for vector in (twist.linear, twist.angular):
                vector.x, vector.y, vector.z = (scaled(c, decision.scale) for c in (vector.x, vector.y, vector.z))
        else:
            self.passed += 1
        self._twist.publish(message)

    def _on_target(self, message: JointState) -> None:
        self._target = message
        decision = self._decide()
        if decision.scale < 1.0:
            self.held += 1
            held = held_back(message, self._joints, decision.scale)
            if held is None:
                return  # where the joints are is not known: the last target stands
            message = held
        else:
            self.passed += 1
        self._targets.publish(message)

    def _zero(self) -> Any:
        if not self.values.stamped:
            return Twist()
        return TwistStamped(header=conversions.header(self.node.get_clock().now().nanoseconds, self._frame_id))

    def _hold(self) -> None:
        """While the robot is held, say so again and again: the policy may be silent, and a driver may time out."""
        if not (self._moves_base or self._target) or self._decide().scale > 0.0:
            return
        if self._moves_base:
            self._twist.publish(self._zero())
        if self._target is not None:
            stay = held_back(self._target, self._joints, 0.0)
            if stay is not None:
                stay.header = conversions.header(self.node.get_clock().now().nanoseconds)
                self._targets.publish(stay)

    def _diagnose(self) -> None:
        concern = diagnostics.Concern(
            "commands",
            values={"mode": self.values.mode, "passed": str(self.passed), "held back": str(self.held)},
        )
        decision = self._decide()
        concern.values["scale"] = f"{decision.scale:.2f}"
        if decision.scale == 0.0:
            concern.raise_to(diagnostics.ERROR, f"stopped: {decision.reason}")
        elif decision.scale < 1.0:
            concern.raise_to(diagnostics.WARN, f"slowed: {decision.reason}")
        stamp = self.node.get_clock().now().nanoseconds
        name = self.node.get_fully_qualified_name().strip("/")
        self._diagnostics.publish(diagnostics.to_message(name, stamp, [concern]))


def held_back(target: JointState, measured: JointState | None, scale: float) -> JointState | None:
    """The target at a scale (0: stop, 1: as it came); None where no safe part of it can be said.

    Positions go that part of the way from the measured ones, velocities are scaled. Efforts are left out: no effort is
    a stop for every robot. Positions need the measured ones of their joints; without names the measured order holds.
    """
    names = list(target.name)
    position: list[float] = []
    if target.position:
        if measured is None:
            return None
        names = names or list(measured.name)[: len(target.position)]
        at = dict(zip(measured.name, measured.position, strict=False))
        if len(names) != len(target.position) or not all(math.isfinite(at.get(n, math.nan)) for n in names):
            return None
        position = [at[n] + scaled(t - at[n], scale) for n, t in zip(names, target.position, strict=True)]
    velocity = [scaled(v, scale) for v in target.velocity]
    if not position and not velocity:
        return None
    return JointState(header=target.header, name=names, position=position, velocity=velocity)


def main() -> int:
    """Entry point of the executable ``command_gate``."""
    return run_application(NAME, CommandGate)


if __name__ == "__main__":
    sys.exit(main())
