"""`osma monitor`: the node safety_monitor beside a live robot, and a view of its verdicts in the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.live import Live

from osma_monitor.cli.helptext import help_of
from osma_monitor.cli.live_view import LiveView
from osma_monitor.core.errors import EXIT_OK, UserError

_GRACE_S = 5.0


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
    with contextlib.nullcontext() if attach else _node(given, params) as child:
        _watch(child, duration)
    return EXIT_OK


@contextlib.contextmanager
def _node(parameters: dict[str, Any], params: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    """The node as a process of its own; ended politely, then hard."""
    with tempfile.TemporaryDirectory(prefix="osma_monitor_") as folder:
        file = Path(folder) / "options.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters or {"autostart": True}}}))
        command = [sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args"]
        for each in (params, file):
            command += ["--params-file", str(each.absolute())] if each is not None else []
        with (Path(folder) / "log").open("w+b") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            try:
                yield child
                if child.poll() not in (None, EXIT_OK):
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


def _watch(child: subprocess.Popen[bytes] | None, duration: float) -> None:
    import rclpy
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
        executor = make_executor()
        executor.add_node(node)
        ends = time.monotonic() + duration if duration else float("inf")
        live = Live(view.render(), console=console, refresh_per_second=8) if console.is_terminal else None
        with live or contextlib.nullcontext():
            while time.monotonic() < ends and (child is None or child.poll() is None):
                executor.spin_once(timeout_sec=0.1)
                if live is not None:
                    live.update(view.render())
                else:
                    for line in lines:
                        print(line, flush=True)
                lines.clear()
    except KeyboardInterrupt:
        pass  # the usual end of watching
    finally:
        node.destroy_node()
        rclpy.shutdown()
