"""Nodes as processes and an observer in the test's own process, all in a ROS domain of the test's own."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # driving.py can be imported by its plain name

if importlib.util.find_spec("rclpy"):
    from driving import arm, base, watched  # noqa: F401

MODULES = {
    "mujoco_bridge": "sim_bridge.bridge_node",
    "policy": "sim_bridge.policy_node",
    "safety_monitor": "osma_monitor.ros.safety_monitor",
    "command_gate": "osma_monitor.ros.command_gate",
    "episode_scorer": "osma_monitor.ros.episode_scorer",
}
LIMIT = 30.0  #: s that anything may take at most


class Process:
    """A node's process with its output."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, limit: float = LIMIT) -> int:
        """The exit code; fails the test with the output when the process does not end."""
        try:
            return self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"{self.name} did not end within {limit:g} s; its output:\n{self.output}")

    def stop(self, number: int = signal.SIGINT) -> int:
        self.send(number)
        return self.wait()


class Nodes:
    """Starts nodes and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._all = folder, []

    def start(self, executable: str, *, name: str = "", **parameters: Any) -> Process:
        """A node as users start it: its executable, with ROS arguments."""
        found = shutil.which(executable, path=str(Path(sys.executable).parent))
        command = [found] if found else [sys.executable, "-m", MODULES[executable]]
        return self.run([*command, *ros_arguments(parameters)], name or executable)

    def kinematic(self, role: str, **parameters: Any) -> Process:
        """The bridge or the policy around the simulation without physics (kinematic.py)."""
        command = [sys.executable, str(HERE / "kinematic.py"), role, *ros_arguments(parameters)]
        return self.run(command, f"kinematic_{role}")

    def run(self, command: Sequence[str], name: str) -> Process:
        process = Process(name, command, self._folder)
        self._all.append(process)
        return process

    def end(self) -> None:
        for process in self._all:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
                process.kill()


def ros_arguments(parameters: dict[str, Any]) -> list[str]:
    if not parameters:
        return []
    arguments = ["--ros-args"]
    for name, value in parameters.items():
        if name == "namespace":
            arguments += ["-r", f"__ns:={value}"]
            continue
        text = f"[{', '.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)
        text = text.lower() if isinstance(value, bool) else text or "''"
        arguments += ["-p", f"{name}:={text}"]
    return arguments


@pytest.fixture
def nodes(ros_domain: int, tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(tmp_path)
    yield started
    started.end()


class Observer:
    """A node of the test that listens and waits for what it expects, with a deadline."""

    def __init__(self, domain: int) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("observer", context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)

    def listen(self, kind: type, topic: str, qos: Any = None) -> list[Any]:
        """Messages of the topic, as they come; their list grows while :meth:`until` waits."""
        from osma_monitor.ros import topics

        received: list[Any] = []
        self.node.create_subscription(kind, topic, received.append, qos or topics.reliable(10_000))
        return received

    def until(self, condition: Callable[[], Any], what: str, limit: float = LIMIT, *watched: Process) -> Any:
        """Serve callbacks until the condition is true, and return its value. Fails the test past the limit."""
        deadline = time.monotonic() + limit
        while not (value := condition()):
            if time.monotonic() > deadline:
                outputs = "".join(f"\n--- {p.name}:\n{p.output}" for p in watched)
                pytest.fail(f"waited {limit:g} s for: {what}{outputs}")
            self._executor.spin_once(timeout_sec=0.02)
        return value

    def meet(self, monitor: Process) -> None:
        """Wait until the monitor's publishers know the subscriptions made so far.

        A peer announces its subscriptions in their order, so a heartbeat received by the newest one proves the others;
        that the monitor's publishers are seen from here would not.
        """
        from osma_monitor.msg import SafetyState

        from osma_monitor.ros import topics

        heartbeats = self.listen(SafetyState, topics.of_monitor(topics.STATE))
        self.until(lambda: heartbeats, "the monitor's heartbeat", LIMIT, monitor)

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def observer(ros_domain: int, nodes: Nodes) -> Iterator[Observer]:
    started = Observer(ros_domain)
    yield started
    nodes.end()  # first: rcl may crash where a node goes while its peers still send
    started.close()


@pytest.fixture
def kinematic_commands() -> dict[str, list[str]]:
    """How a session starts bridge and policy around the simulation without physics."""
    return {role: [sys.executable, str(HERE / "kinematic.py"), role] for role in ("bridge", "policy")}
