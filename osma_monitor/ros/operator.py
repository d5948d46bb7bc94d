"""What a person may tell the monitor: services and joystick buttons for episodes, outcomes and acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rclpy.node import Node
from sensor_msgs.msg import Joy

from osma_monitor.core.episode import EpisodeInfo, Outcome, OutcomeStatus
from osma_monitor.core.errors import UserError
from osma_monitor.io.corrections import correct_outcome
from osma_monitor.io.store import episode_files, file_stem
from osma_monitor.io.tables import read_record
from osma_monitor.ros import topics
from osma_monitor.ros.conversions import OUTCOMES
from osma_monitor.ros.inputs import check_size
from osma_monitor.ros.outputs import STATES, StateLatch
from osma_monitor.ros.parameters import Values
from osma_monitor.ros.text import printable
from osma_monitor.srv import Acknowledge, BeginEpisode, CorrectOutcome, EndEpisode


class Monitor(Protocol):
    """What the operator needs of the monitor."""

    latch: StateLatch
    values: Values
    last_ended: str  #: id of the latest episode that ended

    @property
    def log_folder(self) -> Path | None: ...

    @property
    def running(self) -> EpisodeInfo | None: ...

    def episode_template(self, episode_id: str) -> EpisodeInfo: ...

    def begin_by_hand(self, info: EpisodeInfo) -> None: ...

    def end_by_hand(self, outcome: Outcome) -> None: ...


class Operator:
    """Serves while the monitor is active."""

    def __init__(self, node: Node, monitor: Monitor) -> None:
        self._node, self._monitor = node, monitor
        self._services = [
            node.create_service(kind, name, self._guarded(handler))
            for kind, name, handler in (
                (Acknowledge, topics.ACKNOWLEDGE, self._acknowledge),
                (BeginEpisode, topics.BEGIN_EPISODE, self._begin),
                (EndEpisode, topics.END_EPISODE, self._end),
                (CorrectOutcome, topics.CORRECT_OUTCOME, self._correct),
            )
        ]
        v = monitor.values
        self._buttons: dict[int, Callable[[], object]] = {
            button: action
            for button, action in (
                (v.joy_begin, self._press_begin),
                (v.joy_success, lambda: self._press_end("success")),
                (v.joy_failure, lambda: self._press_end("failure")),
                (v.joy_abort, lambda: self._press_end("aborted")),
                (v.joy_acknowledge, lambda: self.acknowledge("joystick", "button")),
            )
            if button >= 0
        }
        self._pressed: set[int] = set()
        self._joy = node.create_subscription(Joy, topics.JOY, self._on_joy, 10) if self._buttons else None

    def destroy(self) -> None:
        """Stop serving."""
        for service in self._services:
            self._node.destroy_service(service)
        if self._joy is not None:
            self._node.destroy_subscription(self._joy)

    def _guarded(self, handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], Any]:
        v = self._monitor.values

        def call(request: Any, response: Any) -> Any:
            try:
                check_size(request, v.max_elements, v.max_text)
                handler(request, response)
            except (UserError, ValueError) as error:
                response.success = False
                response.message = printable(str(error), 1000)
            except Exception as error:  # a file that goes meanwhile, say: it must not end the monitor
                response.success = False
                response.message = printable(f"internal error: {type(error).__name__}: {error}", 1000)
            return response

        return call

    # -- acknowledgement -----------------------------------------------------------------------------------------

    def acknowledge(self, who: str, reason: str) -> int:
        """Forget the latched state; returns it as in SafetyState."""
        before = self._monitor.latch.acknowledge()
        why = printable(reason) or "no reason given"
        self._node.get_logger().info(f"{printable(who)} acknowledges {before}: {why}")
        return STATES[before]

    def _acknowledge(self, request: Acknowledge.Request, response: Acknowledge.Response) -> None:
        if not request.who.strip():
            raise ValueError("who: say who acknowledges")
        response.latched = self.acknowledge(request.who, request.reason)
        response.success = True
        response.message = "acknowledged; the state of this instant stays as it is"

    # -- episodes ------------------------------------------------------------------------------------------------

    @staticmethod
    def _new_id(policy: str) -> str:
        return f"{policy or 'episode'}-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}"

    def _begin(self, request: BeginEpisode.Request, response: BeginEpisode.Response) -> None:
        running = self._monitor.running
        if running is not None and request.episode_id == running.episode_id:
            raise ValueError(f"episode {request.episode_id!r} runs already; end it first, or give another id")
        if request.episode_id and request.episode_id == self._monitor.last_ended:
            raise ValueError(f"episode {request.episode_id!r} has just ended; give another id, or none for a new one")
        default = self._monitor.episode_template("")
        policy = request.policy or default.policy
        info = EpisodeInfo(
            request.episode_id or self._new_id(policy),
            task=request.task or default.task,
            suite=request.suite or default.suite,
            policy=policy,
            robot=default.robot,
            instruction=request.instruction,
            seed=request.seed,
            templates=tuple(request.templates) or default.templates,
            tags=tuple(request.tags) or default.tags,
            sources=default.sources,
        )
        self._monitor.begin_by_hand(info)
        response.success, response.episode_id, response.message = True, info.episode_id, "the episode has begun"

    def _end(self, request: EndEpisode.Request, response: EndEpisode.Response) -> None:
        running = self._monitor.running
        if running is None:
            raise ValueError("no episode runs")
        status = _status(request.outcome)
        who = f" (says {request.who})" if request.who else ""
        self._monitor.end_by_hand(Outcome(status, printable(f"{request.reason or 'ended by hand'}{who}", 500)))
        response.success, response.episode_id, response.message = True, running.episode_id, f"ended as {status}"

    def _correct(self, request: CorrectOutcome.Request, response: CorrectOutcome.Response) -> None:
        folder = self._monitor.log_folder
        if folder is None:
            raise ValueError("episodes are not logged (parameter episode_log)")
        status = _status(request.outcome)
        # by file name, which is made from the id: nothing of the request becomes a path
        stem = file_stem(request.episode_id)
        names = [f for f in episode_files(folder) if f.stem == stem or f.stem.startswith(f"{stem}-")]
        files = [f for f in names if read_record(f).info.episode_id == request.episode_id]
        if not files:
            raise ValueError(f"no finished episode {request.episode_id!r} in {folder}")
        newest = max(files, key=lambda f: f.stat().st_mtime_ns)
        correction = correct_outcome(newest, read_record(newest), status, request.who, request.why)
        response.success = True
        response.message = f"{correction.original} corrected to {correction.status}; the original is kept"
        self._node.get_logger().info(f"{printable(request.episode_id)}: {response.message}, {printable(request.who)}")

    # -- joystick ------------------------------------------------------------------------------------------------

    def _on_joy(self, message: Joy) -> None:
        pressed = {i for i in self._buttons if i < len(message.buttons) and message.buttons[i]}
        for button in sorted(pressed - self._pressed):
            self._buttons[button]()
        self._pressed = pressed

    def _press_begin(self) -> None:
        self._monitor.begin_by_hand(self._monitor.episode_template(self._new_id(self._monitor.values.policy)))

    def _press_end(self, status: OutcomeStatus) -> None:
        if self._monitor.running is not None:
            self._monitor.end_by_hand(Outcome(status, "joystick button"))


def _status(outcome: int) -> OutcomeStatus:
    if outcome >= len(OUTCOMES):
        raise ValueError(f"outcome is {outcome}, expected one of the OUTCOME_ constants of EpisodeEvent")
    return OUTCOMES[outcome]
