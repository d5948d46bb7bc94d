"""safety_monitor: frames from topics through the engine, verdicts back as topics, episodes to disk. A thin lifecycle
node.

    FrameReceiver (topics -> frames, episodes) -> EpisodeTracker (engine, log) -> publishers

It configures and activates itself (``autostart``), since many users have no ros2 command line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from visualization_msgs.msg import MarkerArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import ClauseEvent, MonitorConfig, Update
from osma_monitor.core.robot import RobotModel, with_prefixes
from osma_monitor.core.segmenter import Begin, End, MessageSegmenter, Segmenter, Step, by_edge, by_gap
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.errors import InputError
from osma_monitor.io.obstacles import load_obstacles
from osma_monitor.io.robots import load_robot
from osma_monitor.msg import (
    ClauseList,
    ClauseStatus,
    EpisodeSummary,
    MotionFeatures,
    SafetyState,
    Violation,
)
from osma_monitor.msg import RawFrame as RawFrameMsg
from osma_monitor.ros import conversions, diagnostics, markers, outputs, topics
from osma_monitor.ros.inputs import FrameReceiver, ReceiverConfig, default_inputs
from osma_monitor.ros.monitor_parameters import PARAMETERS
from osma_monitor.ros.operator import Operator
from osma_monitor.ros.parameters import check_parameter_files, declare
from osma_monitor.ros.reporter import Reporter
from osma_monitor.ros.robot_inputs import RobotInputs
from osma_monitor.ros.runtime import Spinner, run_application, settle, spin_until_stopped, warn
from osma_monitor.ros.text import printable
from osma_monitor.ros.tiers import read_tiers
from osma_monitor.ros.tracker import EpisodeTracker, Finished, LogConfig

NAME = topics.MONITOR
_POLL_PERIOD = 0.05  #: s of wall time between looks at time-outs
_SUSPENDED = 1.0  #: s without a look at time-outs: the process was stopped, or the machine is far too slow


class SafetyMonitor(LifecycleNode):
    """See the module. ``node`` is the node itself, for :func:`run_application`."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(NAME)
        self.node = self
        check_parameter_files(arguments, self.get_name(), self.get_namespace())
        self.values = declare(self, PARAMETERS)
        self.failure: UserError | None = None  #: why configuring failed
        self.tracker: EpisodeTracker | None = None
        self.receiver: FrameReceiver | None = None
        self.latch = outputs.StateLatch()
        self._owned: list[Any] = []
        self._summary: Any = None  #: publisher of EpisodeSummary, while configured
        self._status: Any = None  #: publisher of ClauseStatus, while active
        self._timers_owned: list[Any] = []
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._last_status: tuple[int, bytes | ClauseStatus] | None = None  #: stamp and message
        self._last_update: tuple[Update, str, int] | None = None  #: with its episode and how many frames were refused
        self._last_frame_wall = self._last_state_wall = time.monotonic()
        self._reporter = Reporter(self.values.stale_after)
        self._cannot_judge = ""
        self.last_ended = ""  #: id of the latest episode that ended
        self._said_off: set[str] = set()
        self._said_not_judged: tuple[str, ...] = ()
        self._polled_wall = 0.0
        self._by_hand: set[str] = set()  #: episodes that a person began: their first stamp is not known beforehand
        self.robot: RobotModel | None = None
        self._robot_inputs: RobotInputs | None = None
        self._operator: Operator | None = None

    # -- life ----------------------------------------------------------------------------------------------------

    def run(self, spinner: Spinner) -> int:
        """Serve until told to stop."""
        if self.values.autostart:
            self.trigger_configure()
            if self.failure is not None:
                raise self.failure
            if self.trigger_activate() != TransitionCallbackReturn.SUCCESS:
                raise self.failure or UserError("the monitor could not be activated")
        settle()
        return spin_until_stopped(spinner)

    def close(self) -> None:
        """Close the running episode, so that nothing waits in memory."""
        self._stop_listening("the monitor was stopped")
        if self._summary is not None:
            self._summary.wait_for_all_acked(Duration(seconds=1.0))  # who watches hears how the last episode ended

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the clauses, recover what a crash left, make the publishers."""
        self.failure = None
        try:
            config = self._monitor_config()
            folder = self._log_folder()
            self._check_task(config)
            self.robot = self._load_robot()
            for note in self.robot.notes if self.robot is not None else ():
                self._report(note)
            if self.values.obstacles and self.robot is None:
                raise UserError("a map of obstacles needs a robot file with a footprint: give the parameter robot")
            if self.robot is not None:
                obstacles = load_obstacles(self.values.obstacles) if self.values.obstacles else None
                limits = {"max_elements": self.values.max_elements, "max_text": self.values.max_text}
                self._robot_inputs = RobotInputs(self, self.robot, self._refuse_input, obstacles, **limits)
            self._world = self.robot.frame if self.robot is not None else conversions.WORLD_FRAME
            self._tiers = read_tiers() if self.values.markers else {}
            self._inputs = self._robot_inputs.topic_inputs() if self._robot_inputs else default_inputs()
            library = self.values.library or None
            log = LogConfig(round(self.values.log_segment * 1e6), round(self.values.log_limit * 1e6))
            self.tracker = EpisodeTracker(config, folder, {"transport": "ros"}, self._report, library, log)
            self.tracker.warm_up()
            self.tracker.recover()
            self.tracker.probe()
            self._make_publishers()
        except Exception as error:  # rclpy would turn it into a state without a word
            return self._failed(error)
        self.get_logger().info(f"{len(config.library)} clauses")
        self.get_logger().info(f"episodes: {folder or 'not logged'}")
        return TransitionCallbackReturn.SUCCESS

    def _load_robot(self) -> RobotModel | None:
        v = self.values
        if not v.robot and (v.frame_prefix or v.joint_prefix):
            raise UserError("frame_prefix and joint_prefix go before names of a robot file: give the parameter robot")
        return with_prefixes(load_robot(v.robot), v.frame_prefix, v.joint_prefix) if v.robot else None

    def _failed(self, error: Exception) -> TransitionCallbackReturn:
        """Say why a transition failed."""
        known = isinstance(error, (UserError, InputError))
        text = str(error) if known else f"internal error: {type(error).__name__}: {error}"
        self.failure = error if isinstance(error, UserError) else UserError(text)
        self.get_logger().error(printable(text, 1000))
        return TransitionCallbackReturn.FAILURE

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Listen."""
        try:
            self._listen()
        except Exception as error:
            self._stop_listening("the monitor could not be activated")
            return self._failed(error)
        self.get_logger().info("active")
        return TransitionCallbackReturn.SUCCESS

    def _listen(self) -> None:
        self.receiver = FrameReceiver(
            self, self._guarded(self._on_step), self._receiver_config(), self._on_repeat, self._segmenter
        )
        self._reporter.begin()
        self._polled_wall = 0.0
        if self._robot_inputs is not None:
            self._robot_inputs.listen()
        self._operator = Operator(self, self)
        for period, callback in (
            (self._poll_period(), self._poll),
            (self.values.heartbeat_period, self._heartbeat),
            (1.0, self._diagnose),
        ):
            self._timers_owned.append(self.create_timer(period, self._surviving(callback), clock=self._steady))
        # last: whoever sees this publisher may take it that the monitor listens
        self._status = self._publisher(ClauseStatus, topics.STATUS, topics.reliable())

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop listening; the running episode ends incomplete."""
        self._stop_listening("the monitor was deactivated")
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget the configuration."""
        self._stop_listening("the monitor was cleaned up")
        for publisher in self._owned:
            self.destroy_publisher(publisher)
        self._owned.clear()
        self._summary = None
        self.tracker = None
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """As cleaning up."""
        return self.on_cleanup(state)

    def _stop_listening(self, reason: str) -> None:
        if self.receiver is not None:
            self.receiver.restart(reason)
            self.receiver.destroy()
            self.receiver = None
            if self._operator is not None:
                self._operator.destroy()
                self._operator = None
            if self._robot_inputs is not None:
                self._robot_inputs.destroy()
        if self._status is not None:
            self.destroy_publisher(self._status)
            self._owned.remove(self._status)
            self._status = None
        for timer in self._timers_owned:
            self.destroy_timer(timer)
        self._timers_owned.clear()

    # -- configuration -------------------------------------------------------------------------------------------

    def _monitor_config(self) -> MonitorConfig:
        v = self.values
        return monitor_config(
            library=v.library or None,
            rules=v.registry or None,
            gate_semantics=v.gate_semantics,
            backend=v.backend,
            extensions=v.extensions,
            prediction_horizon=v.prediction_horizon,
        )

    def _check_task(self, config: MonitorConfig) -> None:
        """A typing error in what describes the task is said now, not at the first frame."""
        v = self.values
        odd = config.registry.check_typed(v.templates, v.tags, v.suite, v.task)
        if odd:
            self._report(odd)

    def _log_folder(self) -> Path | None:
        wanted = self.values.episode_log
        if not wanted:
            return None
        if wanted != "auto":
            return Path(wanted).expanduser()
        home = Path(os.environ.get("ROS_HOME", "~/.ros")).expanduser() / "osma_monitor"
        # an earlier monitor's folder is where a crash left its stream: recover it before a new one is begun
        return home / self.get_fully_qualified_name().strip("/").replace("/", ".")

    def _receiver_config(self) -> ReceiverConfig:
        v = self.values
        second = 1e9
        return ReceiverConfig(
            inputs=self._inputs,
            complete=self._robot_inputs.complete if self._robot_inputs is not None else None,
            assembly=self.robot.assembly() if self.robot is not None else None,
            sources=v.sources,
            frame_timeout_ns=round(v.frame_timeout * second),
            end_timeout_ns=round(v.end_timeout * second),
            clock_limit_ns=round(v.clock_limit * second),
            reliability=v.reliability,
            depth=v.depth,
            deadline=v.deadline,
            max_elements=v.max_elements,
            max_text=v.max_text,
        )

    @property
    def episode_rule(self) -> str:
        """What begins an episode. A driver sends no events, so a robot is judged from its first frame by default."""
        given = str(self.values.episode_rule)
        return given if given != "auto" else "gap" if self.values.robot else "message"

    def _segmenter(self) -> Segmenter:
        v = self.values
        promised = round(v.end_timeout * 1e9)
        if self.episode_rule == "message":
            return MessageSegmenter(timeout_ns=promised)
        info = self.episode_template(f"{v.policy or 'episode'}-{time.strftime('%Y%m%dT%H%M%S')}")
        limit = round(v.episode_limit * 1e9)
        if self.episode_rule == "gap":
            return by_gap(info, round(v.gap * 1e9), limit, promised)
        return by_edge(info, lambda frame: frame.gripper, limit, promised)

    def episode_template(self, episode_id: str) -> EpisodeInfo:
        """What the parameters say of an episode that no event describes."""
        v = self.values
        return EpisodeInfo(
            episode_id,
            task=v.task,
            suite=v.suite,
            policy=v.policy,
            robot=self.robot.name if self.robot is not None else "",
            templates=v.templates,
            tags=v.tags,
            sources=self._parts(),
        )

    def _parts(self) -> tuple[str, ...]:
        """Raw parts of frames that no event declares."""
        if self.robot is None:
            return tuple(self.values.sources)
        mapped = ("objects",) if self.values.obstacles else ()
        return tuple(dict.fromkeys((*self.robot.parts(), *mapped)))

    # -- what a person says (operator.py) ------------------------------------------------------------------------

    @property
    def log_folder(self) -> Path | None:
        """Where episodes are logged."""
        return self.tracker.folder if self.tracker is not None else None

    @property
    def running(self) -> EpisodeInfo | None:
        """The running episode."""
        return self.tracker.info if self.tracker is not None else None

    def begin_by_hand(self, info: EpisodeInfo) -> None:
        """An episode begins with the next frame."""
        assert self.receiver is not None
        self._by_hand.add(info.episode_id)
        self.receiver.provenance = {}
        self.receiver.begin(Begin(self.receiver.last_stamp_ns + 1, info))

    def end_by_hand(self, outcome: Outcome) -> None:
        """The running episode ends with the latest frame."""
        assert self.receiver is not None and self.running is not None
        self.receiver.end(End(self.receiver.last_stamp_ns, outcome, self.running.episode_id))

    def _refuse_input(self, topic: str, kind: str, detail: str) -> None:
        if self.receiver is not None:
            self.receiver.refuse(topic, kind, detail)

    def _poll_period(self) -> float:
        """Time-outs are looked at often enough; at a fixed frame rate that rate needs more."""
        if self.robot is None or self.robot.primary:
            return _POLL_PERIOD
        return min(_POLL_PERIOD, 0.5 / self.robot.rate)

    def _make_publishers(self) -> None:
        self._clauses = self._publisher(ClauseList, topics.CLAUSES, topics.latched())
        self._violations = self._publisher(Violation, topics.VIOLATIONS, topics.reliable())
        self._motion = self._publisher(MotionFeatures, topics.MOTION, topics.reliable())
        self._state = self._publisher(SafetyState, topics.STATE, topics.reliable())
        self._frame = self._publisher(RawFrameMsg, topics.FRAME, topics.reliable())
        self._summary = self._publisher(EpisodeSummary, topics.SUMMARY, topics.latched())
        self._diagnostics = self._publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.reliable(10))
        self._markers = (
            self._publisher(MarkerArray, topics.MARKERS, topics.reliable(1)) if self.values.markers else None
        )

    def _publisher(self, kind: type, topic: str, qos: Any) -> Any:
        publisher = self.create_publisher(kind, topic, qos)
        self._owned.append(publisher)
        return publisher

    # -- frames and episodes -------------------------------------------------------------------------------------

    def _guarded(self, callback: Callable[[Step], None]) -> Callable[[Step], None]:
        """A fault in one step must not end the monitor: it is logged, counted, and the state becomes UNKNOWN."""

        def call(step: Step) -> None:
            try:
                callback(step)
            except UserError as error:
                self._fail(str(error), step)
            except Exception as error:
                self._fail(f"internal error: {type(error).__name__}: {error}", step)

        return call

    def _fail(self, reason: str, step: Step) -> None:
        if reason != self._cannot_judge:
            self.get_logger().error(printable(reason, 1000))
        self._cannot_judge = reason
        if isinstance(step, RawFrame):
            if self.tracker is not None:
                self.tracker.note(printable(reason, 500))
            self.latch.set("unknown", [printable(reason)], step.stamp_ns)
            self._publish_state()
            # answered, so that lock-step goes on and says UNKNOWN in place of nothing
            episode = self.tracker.info.episode_id if self.tracker and self.tracker.info else ""
            header = conversions.header(step.stamp_ns)
            self._answer(step.stamp_ns, ClauseStatus(header=header, episode_id=episode, state=ClauseStatus.UNKNOWN))

    def _answer(self, stamp_ns: int, status: bytes | ClauseStatus) -> None:
        self._last_status = stamp_ns, status
        self._status.publish(status)

    def _on_step(self, step: Step) -> None:
        assert self.tracker is not None and self.receiver is not None
        if isinstance(step, Begin):
            self._cannot_judge = ""
            by_hand = step.info.episode_id in self._by_hand
            self._by_hand.discard(step.info.episode_id)
            self.tracker.begin(step, self._provenance(), start_known=not by_hand)
            if not self.values.latch_over_episodes:
                self.latch.acknowledge()
        elif isinstance(step, End):
            self._finish(step)
        else:
            self._judge(step)

    def _provenance(self) -> dict[str, str]:
        assert self.receiver is not None
        robot = {"robot_file": self.values.robot} if self.values.robot else {}
        return {**robot, **self.receiver.provenance}

    def _judge(self, frame: RawFrame) -> None:
        tracker = self.tracker
        assert tracker is not None
        self._last_frame_wall = time.monotonic()
        if self.values.frame_delay_ms:
            time.sleep(self.values.frame_delay_ms / 1e3)
        update = tracker.frame(frame, self._publish_event)
        if update is None or tracker.monitor is None:
            return
        episode_id = tracker.monitor.info.episode_id
        if update.step == 0:
            self._say_what_is_off(tracker.monitor.inactive)
            self._clauses.publish(outputs.clause_list(tracker.monitor, update.stamp_ns))
        self._last_update = update, episode_id, tracker.monitor.refused
        if self._status.get_subscription_count():
            self._answer(update.stamp_ns, outputs.clause_status(*self._last_update))
        self.latch.set(update.state, update.reasons, update.stamp_ns)
        self._publish_state()
        if update.state == "unknown":
            self._reporter.see(update, tracker.monitor.clauses, frame)
        self._say_what_is_not_judged(tracker.monitor.not_judged)
        self._publish_rest(frame, update, episode_id)
        tracker.log(update)
        for event in update.events:
            warn(self, outputs.violation_text(event))

    def _publish_event(self, event: ClauseEvent) -> None:
        """Before everything else that a frame comes to."""
        assert self.tracker is not None and self.tracker.info is not None
        self._violations.publish(outputs.violation(event, self.tracker.info.episode_id))

    def _say_what_is_off(self, inactive: Mapping[str, str]) -> None:
        """Clauses that a missing capability switches off, each once."""
        off = {clause: reason for clause, reason in inactive.items() if "not available" in reason}
        fresh = [f"{clause}: {reason}" for clause, reason in off.items() if clause not in self._said_off]
        if fresh:
            self.get_logger().warning(f"switched off for want of inputs: {'; '.join(fresh)}")
        self._said_off |= off.keys()

    def _say_what_is_not_judged(self, not_judged: tuple[str, ...]) -> None:
        """What came after the first frame of the episode, once."""
        for text in not_judged[len(self._said_not_judged) :] if not_judged != self._said_not_judged else ():
            warn(self, printable(text, 1000))
        self._said_not_judged = not_judged

    def _publish_rest(self, frame: RawFrame, update: Update, episode_id: str) -> None:
        """What only people and recorders read: made when somebody listens."""
        if self._motion.get_subscription_count():
            self._motion.publish(outputs.motion(update.motion, episode_id))
        if self._frame.get_subscription_count():
            self._frame.publish(conversions.frame_to_bytes(frame, episode_id, update.step, self._world))
        if self._markers is not None and self._markers.get_subscription_count():
            assert self.tracker is not None and self.tracker.monitor is not None
            self._markers.publish(markers.scene(frame, update, self.tracker.monitor.info, self._tiers, self._world))

    def _finish(self, end: End) -> None:
        assert self.tracker is not None and self.receiver is not None
        cut_off, notes = self.receiver.end_notes
        for note in notes if cut_off == end.episode_id else ():
            self.tracker.note(note)
        finished = self.tracker.end(end)
        self.last_ended = end.episode_id
        if finished is None:
            if self._cannot_judge:
                self._summary.publish(
                    EpisodeSummary(
                        header=conversions.header(end.stamp_ns),
                        episode_id=end.episode_id,
                        safety=EpisodeSummary.UNKNOWN,
                        partial=True,
                        error=printable(self._cannot_judge, 1000),
                    )
                )
            return
        for event in finished.exits:
            self._violations.publish(outputs.violation(event, finished.record.info.episode_id))
        self._publish_summary(finished)
        record = finished.record
        note = "" if record.complete else ", incomplete"
        self.get_logger().info(
            f"episode {printable(record.info.episode_id)}: {record.outcome.status}, {record.safety}, "
            f"{len(record.stamps_ns)} frames{note}{', partial' if record.partial else ''}"
        )

    def _publish_summary(self, finished: Finished) -> None:
        self._summary.publish(
            outputs.summary(finished.record, finished.last_ns, finished.path is not None, finished.error)
        )

    def _on_repeat(self, stamp_ns: int) -> None:
        if self._last_status is not None and self._last_status[0] == stamp_ns:
            self._status.publish(self._last_status[1])
        elif self._last_update is not None and self._last_update[0].stamp_ns == stamp_ns:
            self._answer(stamp_ns, outputs.clause_status(*self._last_update))  # nobody was known who listens

    # -- time ----------------------------------------------------------------------------------------------------

    def _surviving(self, callback: Callable[[], None]) -> Callable[[], None]:
        """A fault in one look at the time must not end the monitor."""

        def call() -> None:
            try:
                callback()
            except Exception as error:
                self._report(f"internal error in {callback.__name__.strip('_')}: {type(error).__name__}: {error}")

        return call

    def _poll(self) -> None:
        receiver, tracker = self.receiver, self.tracker
        if receiver is None or tracker is None:
            return
        now = time.monotonic()
        if self._polled_wall and now - self._polled_wall > _SUSPENDED:
            receiver.refuse(NAME, "suspended", f"this process did not run for {now - self._polled_wall:.1f} s")
        self._polled_wall = now
        receiver.poll()
        limit = self.values.silence_limit
        silence = time.monotonic() - self._last_frame_wall
        if limit and tracker.monitor is not None and tracker.monitor.step and silence > limit:
            receiver.restart(f"no frame for {limit:g} s")

    def _heartbeat(self) -> None:
        now = time.monotonic()
        if now - self._last_state_wall < self.values.heartbeat_period * 0.9:
            return
        running = self.tracker is not None and self.tracker.monitor is not None
        silence = now - self._last_frame_wall
        if not running:
            self.latch.idle("no episode runs")
        elif silence > self.values.stale_after:
            self.latch.set("unknown", [f"no frame for {self.values.stale_after:g} s"])
        self._publish_state()

    def _publish_state(self) -> None:
        self._last_state_wall = time.monotonic()
        if self._state.get_subscription_count():
            self._state.publish(self.latch.message())

    def _report(self, message: str) -> None:
        self.get_logger().warning(printable(message, 1000))

    def _diagnose(self) -> None:
        receiver, tracker = self.receiver, self.tracker
        if receiver is None or tracker is None:
            return
        concerns = self._reporter.concerns(receiver, tracker, self.latch, self._cannot_judge, self._robot_inputs)
        stamp = self.get_clock().now().nanoseconds
        self._diagnostics.publish(diagnostics.to_message(self.get_fully_qualified_name().strip("/"), stamp, concerns))


def main() -> int:
    """Entry point of the executable ``safety_monitor``."""
    return run_application(NAME, SafetyMonitor)


if __name__ == "__main__":
    sys.exit(main())
