"""mujoco_bridge: a Simulation behind ROS topics and /clock, in lock-step or free-running.

Lock-step: step t + 1 waits for every participant named in ``lockstep_participants``: ``policy`` answers with a
command that carries the stamp of the observation, ``monitor`` with the ClauseStatus of that stamp. Free-running:
steps in wall time with the latest command.
"""

from __future__ import annotations

import json
import math
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geometry_msgs.msg import TwistStamped
from osma_monitor.msg import ClauseStatus, EpisodeEvent, EpisodeSummary, ObjectShapes, Violation
from rclpy.duration import Duration
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import EXIT_FINDINGS, EXIT_OK, UserError
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.ros import conversions, policy_report, topics
from osma_monitor.ros.inputs import PART_TYPES
from osma_monitor.ros.lockstep import LockStep
from osma_monitor.ros.parameters import Parameter, check_parameter_files, declare, read_json_object
from osma_monitor.ros.runtime import Spinner, run_application
from sim_bridge.hosts import make_simulation
from sim_bridge.simulation import STOP, Action, Simulation, episode_info, findings_of

NAME = "mujoco_bridge"
POLICY, MONITOR = "policy", "monitor"

PARAMETERS = (
    Parameter("host", str, "kitchen", "Simulation to run: kitchen, or a host of sim_bridge/hosts."),
    Parameter("host_options", str, "{}", 'Options of the simulation as a JSON object, such as {"style": "modern_1"}.'),
    Parameter("policy", str, "policy", "Name of the policy under test, as the episode log shall show it."),
    Parameter("tasks", str, (), "Task ids to run; every task with every seed, tasks in the outer loop."),
    Parameter("seeds", int, (0,), "Seeds to run each task with."),
    Parameter("episodes_file", str, "", "JSON lines with task and seed, in place of tasks and seeds."),
    Parameter(
        "lockstep_participants",
        str,
        (POLICY, MONITOR),
        "Who must answer each observation; empty: free-running.",
        choices=(POLICY, MONITOR),
    ),
    Parameter(
        "commands",
        str,
        (topics.CMD_VEL,),
        "Topics that together make one action.",
        choices=(topics.CMD_VEL, topics.JOINT_COMMAND),
    ),
    Parameter("monitor_node", str, topics.MONITOR, "Name of the monitor node that answers."),
    Parameter(
        "resend_after", float, 1.0, "s of wall time after which an unanswered observation is sent again.", 0.01, 3600
    ),
    Parameter(
        "silence_limit",
        float,
        10.0,
        "s of wall time after which a silent participant ends the episode as aborted.",
        0.01,
        86400,
    ),
    Parameter(
        "startup_limit",
        float,
        30.0,
        "s of wall time to wait for the participants to appear before an episode.",
        0.0,
        86400,
    ),
    Parameter(
        "settle_time",
        float,
        0.5,
        "s that no node may appear for before the first episode, so that recorders miss nothing.",
        0.0,
        60.0,
    ),
    Parameter(
        "summary_limit", float, 15.0, "s of wall time to wait for the monitor's summary after an episode.", 0.0, 86400
    ),
    Parameter("abort_limit", int, 2, "Aborted episodes in a row after which the run ends.", 1),
    Parameter(
        "real_time_factor",
        float,
        1.0,
        "Free-running: simulated seconds a wall second; 0: as fast as it goes.",
        0.0,
        1000,
    ),
    Parameter(
        "command_age_limit",
        float,
        0.5,
        "Free-running: s of wall time after which the last command no longer counts.",
        0.0,
        3600,
    ),
    Parameter("progress", str, "text", "How progress is printed to standard output.", choices=("text", "json", "none")),
)


class Bridge:
    """The node and its run over the episodes."""

    def __init__(self, arguments: list[str], simulation: Simulation | None = None) -> None:
        self.node = Node(NAME)
        check_parameter_files(arguments, NAME, self.node.get_namespace())
        self.values = declare(self.node, PARAMETERS)
        v = self.values
        self.episodes = (
            read_episodes_file(Path(v.episodes_file))
            if v.episodes_file
            else [(task, seed) for task in v.tasks for seed in v.seeds]
        )
        if not self.episodes:
            raise UserError(f"{NAME}: nothing to run; give tasks and seeds, or episodes_file")
        try:
            self.lockstep = LockStep(v.lockstep_participants, v.resend_after, v.silence_limit)
        except ValueError as error:
            raise UserError(f"{NAME}: {error}") from error
        self.simulation = (
            simulation
            if simulation is not None
            else make_simulation(v.host, **read_json_object(NAME, "host_options", v.host_options))
        )
        self.session = secrets.token_hex(8)
        self.commands: Counter[str] = Counter()  #: refused commands by reason
        self._action_parts: dict[str, Any] = {}
        self._command_time = -math.inf
        self._last_action = STOP
        self._summaries: dict[str, EpisodeSummary] = {}
        self._violations = 0
        self._running: tuple[str, int] | None = None  #: id and first stamp of the episode
        self._over = False
        self._report: policy_report.PolicyReport | None = None  #: the policy's latest of this episode
        self._next_step = 0.0  #: free-running: wall time of the next step
        self._quiet = False  #: discovery has come to rest once
        self._sent: list[tuple[Any, Any]] = []
        self._parts: dict[str, Any] = {}
        node = self.node
        self._clock = node.create_publisher(Clock, topics.CLOCK, topics.reliable(1))
        self._episode = node.create_publisher(EpisodeEvent, topics.EPISODE, topics.latched(topics.EVENT_DEPTH))
        self._shapes = node.create_publisher(ObjectShapes, topics.OBJECT_SHAPES, topics.latched())
        if topics.CMD_VEL in v.commands:
            node.create_subscription(TwistStamped, topics.CMD_VEL, self._on_twist, topics.reliable())
        if topics.JOINT_COMMAND in v.commands:
            node.create_subscription(JointState, topics.JOINT_COMMAND, self._on_joints, topics.reliable())
        node.create_subscription(String, topics.POLICY_REPORT, self._on_report, topics.latched())
        monitor = v.monitor_node
        node.create_subscription(
            ClauseStatus, topics.of_monitor(topics.STATUS, monitor), self._on_status, topics.reliable()
        )
        node.create_subscription(
            EpisodeSummary,
            topics.of_monitor(topics.SUMMARY, monitor),
            self._on_summary,
            topics.latched(topics.EVENT_READ_DEPTH),
        )
        node.create_subscription(
            Violation, topics.of_monitor(topics.VIOLATIONS, monitor), self._on_violation, topics.reliable()
        )

    def close(self) -> None:
        """Free the simulation."""
        self.simulation.close()

    # -- answers -------------------------------------------------------------------------------------------------

    def _on_twist(self, message: TwistStamped) -> None:
        t = message.twist
        self._command(topics.CMD_VEL, message, (t.linear.x, t.linear.y, t.angular.z))

    def _on_joints(self, message: JointState) -> None:
        self._command(topics.JOINT_COMMAND, message, tuple(message.position))

    def _command(self, topic: str, message: Any, numbers: tuple[float, ...]) -> None:
        if not all(map(math.isfinite, numbers)):
            self.commands["not finite"] += 1
            if self.commands["not finite"] == 1:
                self.node.get_logger().warning(f"{topic}: a command with NaN or inf is refused; counted from now on")
            return
        stamp_ns = conversions.to_ns(message.header.stamp)
        self._command_time = time.monotonic()
        if POLICY not in self.lockstep.participants:
            self._action_parts[topic] = numbers
            self._last_action = self._join()
            return
        if stamp_ns == self._stamp_ns and POLICY in self.lockstep.missing:
            self._action_parts.setdefault(topic, numbers)
            if all(t in self._action_parts for t in self.values.commands):
                self._last_action = self._join()
                self.lockstep.answer(POLICY, stamp_ns)
            return
        self.lockstep.answer(POLICY, stamp_ns)  # counted: a duplicate, or the answer to another observation

    def _join(self) -> Action:
        vx, vy, yaw_rate = self._action_parts.get(topics.CMD_VEL, (0.0, 0.0, 0.0))
        return Action(vx, vy, yaw_rate, self._action_parts.get(topics.JOINT_COMMAND, ()))

    def _on_report(self, message: String) -> None:
        try:
            report = policy_report.loads(message.data)
        except ValueError as error:
            self.commands["no report"] += 1
            if self.commands["no report"] == 1:
                self.node.get_logger().warning(f"{topics.POLICY_REPORT}: a message is refused: {error}")
            return
        if self._running is None or report.episode_id != self._running[0] or report.stamp_ns < self._running[1]:
            return  # of an earlier episode, or latched by another policy
        if self._over and report.stamp_ns == self._stamp_ns:
            return  # the episode was over with this observation
        self._report = report
        if report.failure and report.stamp_ns == self._stamp_ns and POLICY in self.lockstep.missing:
            self.lockstep.answer(POLICY, report.stamp_ns)

    def _on_status(self, message: ClauseStatus) -> None:
        self.lockstep.answer(MONITOR, conversions.to_ns(message.header.stamp))

    def _on_summary(self, message: EpisodeSummary) -> None:
        self._summaries[message.episode_id] = message

    def _on_violation(self, message: Violation) -> None:
        if message.event == Violation.ENTER and message.scored:
            self._violations += 1
            self._progress("violation", episode_id=message.episode_id, clause=message.clause, step=message.step)

    # -- observations --------------------------------------------------------------------------------------------

    def _advertise(self, sources: Sequence[str]) -> None:
        for part in sources:
            if part not in self._parts:
                self._parts[part] = self.node.create_publisher(
                    PART_TYPES[part][0], topics.PART_TOPICS[part], topics.reliable()
                )

    def _observe(self, frame: RawFrame, excuse: Sequence[str] = ()) -> None:
        """Send one frame: /clock first, so that nodes on simulation time see its stamp before its content."""
        stamp = frame.stamp_ns
        self._stamp_ns = stamp
        self._sent = [(self._clock, Clock(clock=conversions.to_time(stamp)))]
        for part, publisher in self._parts.items():
            value = getattr(frame, part)
            if value is not None:
                self._sent.append((publisher, TO_MESSAGE[part](value, stamp)))
        self._action_parts.clear()
        self.lockstep.observe(stamp, time.monotonic(), excuse)
        self._send()

    def _send(self) -> None:
        for publisher, message in self._sent:
            publisher.publish(message)

    def _announce(self, info: EpisodeInfo, stamp_ns: int, outcome: Outcome | None = None) -> None:
        provenance = self.simulation.provenance()
        message = conversions.episode_to_msg(info, stamp_ns, outcome, provenance, self.session)
        # one event is latched: the one before must have reached every reader first, and an END before the process goes
        self._episode.wait_for_all_acked(Duration(seconds=1.0))
        self._episode.publish(message)
        if outcome is not None:
            self._episode.wait_for_all_acked(Duration(seconds=1.0))

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self, spinner: Spinner) -> int:
        """All episodes. Exit code 1 when some were aborted."""
        aborted = in_a_row = 0
        total = len(self.episodes)
        self._progress("run", total=total, policy=self.values.policy)
        for number, (task, seed) in enumerate(self.episodes, 1):
            if spinner.stop.is_set():
                return EXIT_OK
            outcome = self._run_episode(spinner, task, seed, number)
            if outcome is None:
                return EXIT_OK
            in_a_row = in_a_row + 1 if outcome.status == "aborted" else 0
            aborted += outcome.status == "aborted"
            if in_a_row >= self.values.abort_limit:
                self.node.get_logger().error(
                    f"{in_a_row} episodes in a row were aborted ({outcome.reason}); {total - number} are not run"
                )
                break
        self._progress("done", total=total, aborted=aborted)
        return EXIT_FINDINGS if aborted else EXIT_OK

    def _run_episode(self, spinner: Spinner, task: str, seed: int, number: int) -> Outcome | None:
        """One episode; None when the process was told to stop in between."""
        frame = self.simulation.reset(task, seed)
        info = episode_info(self.simulation.info(), self.values.policy)
        self._advertise(info.sources or tuple(sorted(frame.parts)))
        self._await_participants(spinner)
        if spinner.stop.is_set():
            return None
        self._violations = 0
        self._last_action = STOP
        self._command_time = -math.inf
        self._running, self._report = (info.episode_id, frame.stamp_ns), None
        started = time.monotonic()
        self._progress("episode", number=number, task=task, seed=seed, episode_id=info.episode_id)
        self._publish_shapes(frame.stamp_ns)
        self._announce(info, frame.stamp_ns)
        steps, outcome = 1, None
        while outcome is None:
            outcome = self.simulation.outcome()
            self._over = outcome is not None
            self._observe(frame, excuse=() if outcome is None else (POLICY,))
            silent = self._await_answers(spinner)
            if silent and not spinner.stop.is_set():
                outcome = Outcome("aborted", f"{' and '.join(silent)} silent for {self.values.silence_limit:g} s")
            elif spinner.stop.is_set():
                outcome = Outcome("aborted", "the bridge was told to stop")
            elif outcome is None and self._report is not None and self._report.failure:
                outcome = Outcome("failure", f"pipeline error: {self._report.failure}")
            if outcome is None:
                frame = self.simulation.step(self._action())
                steps += 1
        outcome = Outcome(outcome.status, outcome.reason, steps)
        if steps > 1 and outcome.status != "aborted":
            self._await_report(spinner)
        info = info.with_attributes(findings_of(self.simulation))
        if self._report is not None:
            info = info.with_attributes(self._report.attributes)
        self._announce(info, frame.stamp_ns, outcome)
        self._running = None
        self._await_summary(spinner, info.episode_id)
        self._progress(
            "end",
            number=number,
            task=task,
            seed=seed,
            episode_id=info.episode_id,
            outcome=outcome.status,
            reason=outcome.reason,
            steps=steps,
            violations=self._violations,
            seconds=round(time.monotonic() - started, 3),
        )
        return None if spinner.stop.is_set() else outcome

    def _publish_shapes(self, stamp_ns: int) -> None:
        shapes = self.simulation.shapes()
        self._shapes.publish(
            ObjectShapes(
                header=conversions.header(stamp_ns),
                id=list(shapes.id),
                primitive=list(shapes.primitive),
                dimensions=conversions.doubles(shapes.dimensions),
                position=conversions.doubles(shapes.position),
                orientation=conversions.doubles(shapes.orientation),
            )
        )

    def _action(self) -> Action:
        if (
            POLICY in self.lockstep.participants
            or time.monotonic() - self._command_time <= self.values.command_age_limit
        ):
            return self._last_action
        return STOP

    # -- waiting -------------------------------------------------------------------------------------------------

    def _answer_topics(self) -> dict[str, list[str]]:
        out = {}
        if POLICY in self.lockstep.participants:
            out[POLICY] = list(self.values.commands)
        if MONITOR in self.lockstep.participants:
            out[MONITOR] = [topics.of_monitor(topics.STATUS, self.values.monitor_node)]
        return out

    def _await_participants(self, spinner: Spinner) -> None:
        """Wait until who must answer is there, and until every reader that is known of is matched."""
        answers = self._answer_topics()

        def absent() -> list[str]:
            return [who for who, names in answers.items() if not all(self.node.count_publishers(n) for n in names)]

        if not spinner.until(lambda: not absent(), self.values.startup_limit) and not spinner.stop.is_set():
            missing = " and ".join(f"{who} (no publisher of {', '.join(answers[who])})" for who in absent())
            raise UserError(
                f"{NAME}: {missing} did not appear within {self.values.startup_limit:g} s; start it, or name who "
                "takes part in lockstep_participants"
            )

        self._await_quiet(spinner)

        def matched() -> bool:
            return all(
                p.get_subscription_count() >= self.node.count_subscribers(p.topic_name)
                for p in (self._episode, *self._parts.values())
            )

        spinner.until(matched, min(2.0, self.values.startup_limit))

    def _await_quiet(self, spinner: Spinner) -> None:
        """Before the first episode: discovery has come to rest."""
        if self._quiet:
            return
        self._quiet = True
        known: list[Any] = []
        since = time.monotonic()

        def quiet() -> bool:
            nonlocal known, since
            readers = [self.node.count_subscribers(p.topic_name) for p in (self._episode, *self._parts.values())]
            now = [*sorted(self.node.get_node_names()), *readers]
            if now != known:
                known, since = now, time.monotonic()
            return time.monotonic() - since >= self.values.settle_time

        spinner.until(quiet, 4 * self.values.settle_time)

    def _await_answers(self, spinner: Spinner) -> tuple[str, ...]:
        """Serve callbacks until the observation is answered. Returns who stayed silent past the limit."""
        if not self.lockstep.participants:
            self._await_wall_clock(spinner)
            return ()
        while not self.lockstep.complete:
            spinner.once(0.05)
            if spinner.stop.is_set():
                return ()
            due = self.lockstep.poll(time.monotonic())
            if due == "silent":
                return self.lockstep.missing
            if due == "resend":
                self.node.get_logger().warning(
                    f"no answer from {' and '.join(self.lockstep.missing)} to {self._stamp_ns} ns: sent again"
                )
                self._send()
        if POLICY not in self.lockstep.participants:
            self._await_wall_clock(spinner)
        return ()

    def _await_wall_clock(self, spinner: Spinner) -> None:
        """Free-running: hold the pace, whatever the answers are."""
        factor = self.values.real_time_factor
        now = time.monotonic()
        period = self.simulation.control_period_ns / 1e9 / factor if factor else 0.0
        # a late step is not made up for by a burst
        self._next_step = max(self._next_step + period, now)
        spinner.once(0.0)
        while (left := self._next_step - time.monotonic()) > 0 and not spinner.stop.is_set():
            spinner.once(min(left, 0.05))

    def _await_report(self, spinner: Spinner) -> None:
        """Topics are not ordered among each other: a short episode's only report may still be on its way."""
        if POLICY in self.lockstep.participants and self.node.count_publishers(topics.POLICY_REPORT):
            spinner.until(lambda: self._report is not None, 1.0)

    def _await_summary(self, spinner: Spinner, episode_id: str) -> None:
        if MONITOR not in self.lockstep.participants:
            return
        if (
            not spinner.until(lambda: episode_id in self._summaries, self.values.summary_limit)
            and not spinner.stop.is_set()
        ):
            self.node.get_logger().warning(
                f"the monitor sent no summary of {episode_id} within {self.values.summary_limit:g} s; going on"
            )
        self._summaries.clear()

    # -- progress ------------------------------------------------------------------------------------------------

    def _progress(self, event: str, **facts: Any) -> None:
        if self.values.progress == "none":
            return
        if self.values.progress == "json":
            line = json.dumps({"event": event, **facts})
        else:
            line = f"{event}: " + ", ".join(f"{k} {v}" for k, v in facts.items() if v != "")
        try:
            print(line, file=sys.stdout, flush=True)
        except BrokenPipeError:
            self.values["progress"] = "none"


TO_MESSAGE: dict[str, Any] = {
    "base": conversions.base_to_odometry,
    "joints": conversions.joints_to_state,
    "ee": conversions.ee_to_pose,
    "gripper": conversions.gripper_to_msg,
    "contacts": conversions.contacts_to_msg,
    "objects": conversions.objects_to_msg,
}


def read_episodes_file(path: Path) -> list[tuple[str, int]]:
    """The episodes of a JSON-lines file. Raises UserError naming file and line."""
    out = []
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected JSON lines with task and seed") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            task, seed = item["task"], item.get("seed", 0)
            if not isinstance(task, str) or not isinstance(seed, int) or isinstance(seed, bool):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f'{path}:{number}: {line[:80]!r}, expected {{"task": "...", "seed": 0}}') from error
        out.append((task, seed))
    return out


def main() -> int:
    """Entry point of the executable ``mujoco_bridge``."""
    return run_application(NAME, Bridge)


if __name__ == "__main__":
    sys.exit(main())
