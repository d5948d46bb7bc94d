"""How a node's process runs: own signal handlers, one executor, exit code 0 on SIGINT and SIGTERM, errors in one
line.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from osma_monitor.core.errors import EXIT_OK, UserError

#: Set to "single" where the events executor of this rclpy misbehaves.
EXECUTOR_VARIABLE = "OSMA_EXECUTOR"


class Spinner:
    """One executor, turned by hand: ``spin()`` of the events executor dispatches nothing in some builds,
    ``spin_once`` does.

    ``stop`` is set by SIGINT and SIGTERM; every loop over :meth:`once` looks at it.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.executor = make_executor()

    def add(self, node: Node) -> None:
        """Serve this node's callbacks."""
        self.executor.add_node(node)

    def once(self, timeout: float = 0.1) -> None:
        """Serve what is ready, or wait for at most ``timeout`` seconds."""
        self.executor.spin_once(timeout_sec=timeout)

    def until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Serve callbacks until the condition holds (True), or ``limit`` seconds passed or the process is to stop
        (False).
        """
        deadline = time.monotonic() + limit
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or self.stop.is_set():
                return condition()
            self.once(min(left, 0.05))
        return True


def make_executor() -> Any:
    """The events executor where rclpy has one (a third of the CPU time), else the single-threaded one."""
    if os.environ.get(EXECUTOR_VARIABLE, "events") != "single":
        try:
            from rclpy.experimental import EventsExecutor

            return EventsExecutor()
        except ImportError:
            pass
    return SingleThreadedExecutor()


class Application(Protocol):
    """A node with its life: made, run until done or stopped, closed in any case."""

    node: Node

    def run(self, spinner: Spinner) -> int: ...

    def close(self) -> None: ...


def run_application(name: str, make: Callable[[list[str]], Application], arguments: list[str] | None = None) -> int:
    """Runs one node as a process. Returns the exit code: 0 when it ended or was told to, the error's own otherwise."""
    argv = sys.argv if arguments is None else [name, *arguments]
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    application: Application | None = None
    try:
        _init(argv)
        application = make(argv)
        spinner = Spinner(stop)
        spinner.add(application.node)
        return application.run(spinner)
    except UserError as error:
        print(f"{name}: {str(error).removeprefix(f'{name}: ')}", file=sys.stderr, flush=True)
        return error.exit_code
    except BrokenPipeError:
        return EXIT_OK
    finally:
        if application is not None:
            application.close()
            application.node.destroy_node()
        if rclpy.ok():
            rclpy.shutdown()
        # what remains is the end of the interpreter, which restores handlers: a signal now must not turn 0 into -2
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _init(argv: list[str]) -> None:
    try:
        rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # rcl's own exception types are not public
        wrong = " ".join(str(error).split())
        raise UserError(f"the ROS arguments cannot be used: {wrong}") from error


def warn(node: Node, text: str) -> None:
    """A warning without rclpy's look for the caller, which takes milliseconds: for the path of a frame."""
    try:
        from rclpy.impl.implementation_singleton import rclpy_implementation
        from rclpy.logging import LoggingSeverity

        rclpy_implementation.rclpy_logging_rcutils_log(
            LoggingSeverity.WARN, node.get_logger().name, text, "", __file__, 0
        )
    except (ImportError, AttributeError, TypeError):
        node.get_logger().warning(text)


def settle() -> None:
    """Everything made so far stays: leave it out of later garbage collections, whose pauses would delay frames."""
    gc.collect()
    gc.freeze()


def spin_until_stopped(spinner: Spinner) -> int:
    """The usual ``run`` of a node that only answers callbacks."""
    while not spinner.stop.is_set():
        spinner.once(0.1)
    return EXIT_OK
