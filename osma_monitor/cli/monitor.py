"""`osma monitor`: the node safety_monitor beside a live robot, and a view of its verdicts in the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.live import Live

from osma_monitor.cli.helptext import help_of
from osma_monitor.cli.live_view import LiveView, printable
from osma_monitor.core.errors import EXIT_OK, UserError

_GRACE_S = 5.0
_LAST_WORDS_S = 1.0  #: after the node's end, for a summary that is on its way
#: What rclpy writes; the stamp and the logger's name are of no use here.
_LOG_LINE = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[[^\]]*\]: (.*)")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("monitor", help=help_of(monitor))(monitor)


def monitor(
    robot: Annotated[str, typer.Option(help="Robot file, by name or path: its topics, units and frames.")] = "",
    params: Annotated[Path | None, typer.Option(help="Parameter file of safety_monitor; options below win.")] = None,
    log: Annotated[str, typer.Option(help="Folder for episodes; auto: below ~/.ros/osma_monitor; '': none.")] = "auto",
    task: Annotated[str, typer.Option(help="Task of episodes that no message describes.")] = "",
    suite: Annotated[str, typer.Option(help="Their suite.")] = "",
    policy: Annotated[str, typer.Option(help="Their policy.")] = "",
    template: Annotated[list[str] | None, typer.Option(help="Their mechanism templates.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Their object and capability tags.")] = None,
    extension: Annotated[list[str] | None, typer.Option(help="Extension families that also count.")] = None,
    episodes: Annotated[
        str, typer.Option(help="What begins an episode: message, gap or gripper; auto: gap with --robot, else message.")
    ] = "auto",
    library: Annotated[Path | None, typer.Option(help="Clause library instead of the package's.")] = None,
    attach: Annotated[bool, typer.Option("--attach", help="Only view a monitor that runs already.")] = False,
    duration: Annotated[float, typer.Option(min=0.0, help="Seconds after which to end; 0: until Ctrl-C.")] = 0.0,
) -> int:
    """Watch a robot or simulator over ROS and show its verdicts live.

    Starts the node safety_monitor in the present ROS domain. Every verdict also goes out as a topic (docs/topics.md).
    """
    values: dict[str, Any] = {
        "robot": robot,
        "episode_log": log,
        "task": task,
        "suite": suite,
        "policy": policy,
        "templates": list(template or ()),
        "tags": list(tag or ()),
        "extensions": list(extension or ()),
        "episode_rule": episodes,
        "library": str(library.absolute()) if library is not None else "",
    }
    # an option that was not given must not undo what the parameter file says
    defaults = {"episode_log": "auto", "episode_rule": "auto"}
    given = {k: v for k, v in values.items() if (v and v != defaults.get(k)) or (k == "episode_log" and v == "")}
    if params is not None and not params.is_file():
        raise UserError(f"{params}: no such parameter file")
    if attach:
        _watch(None, duration)
        return EXIT_OK
    _check_log(log)
    with _node(given, params) as child:
        _watch(child, duration)
    return EXIT_OK


def _check_log(log: str) -> None:
    """Refuse a folder that was named and cannot be written: nobody wants to learn that after the episodes."""
    if log in ("", "auto"):
        return
    folder = Path(log).expanduser()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--log {printable(log)}: that is a file; give a folder, or '' for no log")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"--log {printable(log)}: {error.strerror or error}; give a folder that can be written, or '' for no log"
        ) from error


@dataclass
class _Child:
    """The node's process, and the lines that it logs."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    told_to_end: bool = False
    active: bool = False  #: what it says before is told by its exit code, or once it has begun
    _part: bytes = b""
    _early: list[tuple[str, str]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def warnings(self) -> list[tuple[str, str]]:
        """(level, text) of what it warned of since the last call."""
        *lines, self._part = (self._part + self.log.read()).split(b"\n")
        for line in lines:
            match = _LOG_LINE.match(line.decode("utf-8", "replace"))
            if match is None:
                continue
            self.active = self.active or match[2] == "active"
            if match[1] != "INFO":
                self._early.append((match[1], match[2]))
        if not self.active:
            return []
        told, self._early = self._early, []
        return told


@contextlib.contextmanager
def _node(parameters: dict[str, Any], params: Path | None) -> Iterator[_Child]:
    """The node as a process of its own; ended politely, then hard."""
    with tempfile.TemporaryDirectory(prefix="osma_monitor_") as folder:
        file = Path(folder) / "options.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters or {"autostart": True}}}))
        command = [sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args"]
        for each in (params, file):
            command += ["--params-file", str(each.absolute())] if each is not None else []
        with (Path(folder) / "log").open("w+b") as output, (Path(folder) / "log").open("rb") as lines:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            try:
                watched = _Child(child, lines)
                yield watched
                if not watched.told_to_end and child.poll() not in (None, EXIT_OK):
                    output.seek(0)
                    words = output.read().decode("utf-8", "replace").strip().splitlines()
                    raise UserError(words[-1] if words else f"safety_monitor ended with exit code {child.returncode}")
            finally:
                if child.poll() is None:
                    child.send_signal(signal.SIGINT)
                    try:
                        child.wait(_GRACE_S)
                    except subprocess.TimeoutExpired:
                        child.kill()
                        child.wait()


def _watch(child: _Child | None, duration: float) -> None:
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from rcl_interfaces.msg import Log
    from rclpy.node import Node
    from rclpy.signals import SignalHandlerOptions

    from osma_monitor.msg import ClauseList, ClauseStatus, EpisodeSummary, MotionFeatures, SafetyState, Violation
    from osma_monitor.ros import topics
    from osma_monitor.ros.runtime import make_executor

    console, view = Console(), LiveView()
    domain = os.environ.get("ROS_DOMAIN_ID", "0")
    lines = [f"waiting for a robot or simulator in ROS domain {domain}"]

    def tell(handler: Callable[[Any], list[str]]) -> Callable[[Any], None]:
        return lambda message: lines.extend(handler(message))

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = Node("osma_monitor_view")
    try:
        for kind, topic, qos, handler in (
            (SafetyState, topics.STATE, topics.reliable(), view.on_state),
            (ClauseList, topics.CLAUSES, topics.latched(), view.on_clauses),
            (ClauseStatus, topics.STATUS, topics.reliable(), view.on_status),
            (MotionFeatures, topics.MOTION, topics.reliable(), view.on_motion),
            (Violation, topics.VIOLATIONS, topics.reliable(), view.on_violation),
            (EpisodeSummary, topics.SUMMARY, topics.latched(), view.on_summary),
        ):
            node.create_subscription(kind, topics.of_monitor(topic), tell(handler), qos)
        name = f"{node.get_namespace().strip('/')}/{topics.MONITOR}".strip("/")
        node.create_subscription(
            DiagnosticArray, topics.DIAGNOSTICS, tell(lambda m: view.on_diagnostics(m, name)), topics.reliable(10)
        )
        if child is None:
            logger = name.replace("/", ".")

            def on_log(message: Any) -> list[str]:
                level = {30: "WARN", 40: "ERROR", 50: "FATAL"}.get(int(message.level))
                return view.on_log(level, message.msg) if level and message.name == logger else []

            node.create_subscription(Log, "/rosout", tell(on_log), topics.reliable())
        executor = make_executor()
        executor.add_node(node)
        ends = time.monotonic() + duration if duration else float("inf")
        live = Live(view.render(), console=console, refresh_per_second=8) if console.is_terminal else None

        def turn() -> None:
            executor.spin_once(timeout_sec=0.1)
            for level, text in child.warnings() if child is not None else ():
                lines.extend(view.on_log(level, text))
            if live is not None:
                live.update(view.render())
            else:
                for line in lines:
                    print(line, flush=True)
            lines.clear()

        with _told_to_stop() as stop, live or contextlib.nullcontext():
            while not stop.is_set() and time.monotonic() < ends and (child is None or not child.ended):
                turn()
            _see_off(child, view, turn)
        if view.folder:
            print(view.where(), flush=True)
    except KeyboardInterrupt:
        pass  # a second Ctrl-C: no more waiting
    finally:
        node.destroy_node()
        rclpy.shutdown()


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C, the usual end of watching, and by SIGTERM: no exception amidst a callback or a line. A second
    one is a KeyboardInterrupt.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _see_off(child: _Child | None, view: LiveView, turn: Callable[[], None]) -> None:
    """End the node while its last words are heard: how the running episode ended."""
    if child is None or child.ended:
        return
    child.told_to_end = True
    child.process.send_signal(signal.SIGINT)
    limit = time.monotonic() + _GRACE_S
    while not child.ended and time.monotonic() < limit:
        turn()
    limit = time.monotonic() + _LAST_WORDS_S
    while view.runs and time.monotonic() < limit:
        turn()
    turn()
