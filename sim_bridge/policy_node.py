"""policy: wraps one of our policies as a node. It reads the bridge's topics and answers each observation with a
stamped command.
"""

from __future__ import annotations

import sys

from geometry_msgs.msg import TwistStamped
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from osma_monitor.core.errors import UserError
from osma_monitor.core.segmenter import Begin, End, Step
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.ros import conversions, policy_report, topics
from osma_monitor.ros.inputs import FrameReceiver, ReceiverConfig
from osma_monitor.ros.parameters import Parameter, check_parameter_files, declare, read_json_object
from osma_monitor.ros.runtime import Spinner, run_application, spin_until_stopped
from sim_bridge.policies import Policy, make_policy
from sim_bridge.simulation import Action

NAME = "policy"

PARAMETERS = (
    Parameter("policy", str, "", "Name of the policy to run, one of sim_bridge/policies."),
    Parameter("options", str, "{}", "Options of the policy as a JSON object."),
    Parameter(
        "commands",
        str,
        (topics.CMD_VEL,),
        "Topics that together carry one action.",
        choices=(topics.CMD_VEL, topics.JOINT_COMMAND),
    ),
)


class PolicyNode:
    """Frames in, commands out."""

    def __init__(self, arguments: list[str], policy: Policy | None = None) -> None:
        self.node = Node(NAME)
        check_parameter_files(arguments, NAME, self.node.get_namespace())
        self.values = declare(self.node, PARAMETERS)
        if policy is None and not self.values.policy:
            raise UserError(f"{NAME}: give the parameter policy, for example -p policy:=cautious")
        self.policy = (
            policy
            if policy is not None
            else make_policy(self.values.policy, **read_json_object(NAME, "options", self.values.options))
        )
        self._running = False
        self._episode_id = ""
        self._last: tuple[int, Action | None] | None = None  #: no action: its pipeline broke
        self._reported: tuple[dict[str, str], str] | None = None
        self._receiver = FrameReceiver(
            self.node, self._on_step, ReceiverConfig(reliability="reliable"), on_repeat=self._on_repeat
        )
        self.node.create_timer(0.2, self._receiver.poll, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._reports = self.node.create_publisher(String, topics.POLICY_REPORT, topics.latched())
        # last: whoever sees these publishers may take it that the node listens
        self._twist = self._joints = None
        if topics.CMD_VEL in self.values.commands:
            self._twist = self.node.create_publisher(TwistStamped, topics.CMD_VEL, topics.reliable())
        if topics.JOINT_COMMAND in self.values.commands:
            self._joints = self.node.create_publisher(JointState, topics.JOINT_COMMAND, topics.reliable())

    def run(self, spinner: Spinner) -> int:
        """Answer until told to stop."""
        return spin_until_stopped(spinner)

    def close(self) -> None:
        """Nothing is held."""

    def _on_step(self, step: Step) -> None:
        if isinstance(step, Begin):
            self.policy.reset(step.info)
            self._running, self._last, self._reported = True, None, None
            self._episode_id = step.info.episode_id
        elif isinstance(step, End):
            self._running = False
        elif self._running:
            self._act(step)

    def _act(self, frame: RawFrame) -> None:
        action = self.policy.act(frame)
        failure = str(getattr(self.policy, "failure", None) or "")
        self._last = frame.stamp_ns, None if failure else action
        said = (dict(getattr(self.policy, "requested", None) or {}), failure)
        if said != self._reported:  # in any case with the first answer
            self._reported = said
            self._report(frame.stamp_ns)
        if not failure:
            self._publish(frame.stamp_ns, action)

    def _report(self, stamp_ns: int) -> None:
        if self._reported is not None:
            report = policy_report.PolicyReport(self._episode_id, stamp_ns, *self._reported)
            self._reports.publish(String(data=policy_report.dumps(report)))

    def _on_repeat(self, stamp_ns: int) -> None:
        """The observation came again: so does its answer."""
        if self._last is None or self._last[0] != stamp_ns:
            return
        if self._last[1] is None:
            self._report(stamp_ns)
        else:
            self._publish(stamp_ns, self._last[1])

    def _publish(self, stamp_ns: int, action: Action) -> None:
        header = conversions.header(stamp_ns, conversions.BASE_FRAME)
        if self._twist is not None:
            message = TwistStamped(header=header)
            message.twist.linear.x, message.twist.linear.y = float(action.vx), float(action.vy)
            message.twist.angular.z = float(action.yaw_rate)
            self._twist.publish(message)
        if self._joints is not None:
            self._joints.publish(JointState(header=header, position=[float(q) for q in action.joints]))


def main() -> int:
    """Entry point of the executable ``policy``."""
    return run_application(NAME, PolicyNode)


if __name__ == "__main__":
    sys.exit(main())
