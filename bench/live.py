"""The nodes against bare rclpy nodes on the same topics: latency, CPU time, loss, and what the gate adds.

Run: ``python bench/live.py [latency] [cpu] [loss] [gate]``. Both sides run in alternating rounds with the same
executor and the same messages; what counts is the ratio of their medians. Aims: a Violation within 1.5 times an echo
node's time, CPU at most 1.5 times an echo node's at 10 topics x 100 Hz, no loss at 2,000 messages/s, the gate under
1 ms at the median round's p99.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.ros.domain import reserve_domain

ROUNDS = 5
ROBOT = """
name: bench
frame: world
primary: odom
inputs:
  - {part: base, topic: odom}
  - {part: ee, topic: ee_pose}
  - {part: gripper, topic: gripper}
  - {part: joints, topic: joint_states}
  - {part: joints, topic: joint_states_2}
  - {part: contacts, topic: contacts}
  - {part: contacts, topic: contacts_2}
  - {part: objects, topic: objects}
  - {part: objects, topic: objects_2}
  - {part: objects, topic: objects_3}
"""


# -- the bare nodes, as processes of their own ---------------------------------------------------------------------


def bare(role: str) -> int:
    """``echo`` answers the messages that break the clause; ``pass`` forwards velocity commands."""
    import rclpy
    from geometry_msgs.msg import TwistStamped
    from osma_monitor.msg import Violation

    from osma_monitor.io.robots import parse_robot
    from osma_monitor.ros import topics
    from osma_monitor.ros.inputs import PART_TYPES
    from osma_monitor.ros.runtime import run_application, spin_until_stopped

    class Bare:
        def __init__(self, argv: list[str]) -> None:
            self.node = rclpy.create_node("bare")
            if role == "pass":
                out = self.node.create_publisher(TwistStamped, "cmd_vel", topics.reliable())
                self.node.create_subscription(TwistStamped, "cmd_vel_raw", out.publish, topics.reliable())
                return
            out = self.node.create_publisher(Violation, topics.of_monitor(topics.VIOLATIONS), topics.reliable())

            def echo(message: Any) -> None:
                if message.twist.twist.linear.x > 0.3:
                    out.publish(Violation(header=message.header, event=Violation.ENTER, clause="echo"))

            for spec in parse_robot(ROBOT).inputs:
                handler = echo if spec.topic == "odom" else (lambda message: None)
                self.node.create_subscription(PART_TYPES[spec.part][0], spec.topic, handler, topics.reliable())

        def run(self, spinner: Any) -> int:
            return spin_until_stopped(spinner)

        def close(self) -> None:
            pass

    return run_application("bare", Bare)


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


def monitor_command(folder: Path) -> tuple[str, ...]:
    robot = folder / "bench.yaml"
    robot.write_text(ROBOT)
    parameters = {
        "robot": robot,
        "episode_rule": "gap",
        "suite": "kitchen",
        "templates": "[navigate]",
        "episode_log": folder / "run",
    }
    return (
        "-m",
        "osma_monitor.ros.safety_monitor",
        "--ros-args",
        *(a for k, v in parameters.items() for a in ("-p", f"{k}:={v}")),
    )


# -- the source and the listener, in this process ------------------------------------------------------------------


class Bench:
    """Publishes what a robot would, and listens."""

    def __init__(self) -> None:
        import rclpy
        from diagnostic_msgs.msg import DiagnosticArray
        from geometry_msgs.msg import PoseStamped, TwistStamped
        from nav_msgs.msg import Odometry
        from osma_monitor.msg import Contacts, GripperState, ObjectStates, SafetyState, Violation
        from sensor_msgs.msg import JointState

        from osma_monitor.ros import topics
        from osma_monitor.ros.runtime import make_executor

        rclpy.init()
        self.node = rclpy.create_node("bench")
        self.executor = make_executor()
        self.executor.add_node(self.node)
        self.arrived: dict[int, float] = {}
        self.commands: dict[int, float] = {}
        self.messages = 0
        names = [f"j{i}" for i in range(7)]
        human = ObjectStates(id=["anna"], category=["human"], role=["human"], in_contact=[0])
        human.position.extend([1.0, 0.0, 0.0])
        human.orientation.extend([0.0, 0.0, 0.0, 1.0])
        human.distance.append(0.3)
        self.others: list[tuple[Any, Any]] = []
        for topic, message in (
            ("ee_pose", PoseStamped()),
            ("gripper", GripperState()),
            ("joint_states", JointState(name=names, position=[0.1] * 7, velocity=[0.0] * 7, effort=[1.0] * 7)),
            ("joint_states_2", JointState(name=["k"], position=[0.1], velocity=[0.0], effort=[1.0])),
            ("contacts", Contacts()),
            ("contacts_2", Contacts()),
            ("objects", human),
            ("objects_2", ObjectStates()),
            ("objects_3", ObjectStates()),
        ):
            self.others.append((self.node.create_publisher(type(message), topic, topics.reliable()), message))
        self.odometry = self.node.create_publisher(Odometry, "odom", topics.reliable())
        self.command = self.node.create_publisher(TwistStamped, "cmd_vel_raw", topics.reliable())
        self.state = self.node.create_publisher(SafetyState, topics.of_monitor(topics.STATE), topics.reliable())
        self.node.create_subscription(
            Violation, topics.of_monitor(topics.VIOLATIONS), self._violation, topics.reliable(1000)
        )
        self.node.create_subscription(TwistStamped, "cmd_vel", self._passed, topics.reliable(1000))
        self.node.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._diagnosis, topics.reliable(10))

    def _violation(self, message: Any) -> None:
        if message.event == message.ENTER:
            self.arrived.setdefault(key(message), time.perf_counter())

    def _passed(self, message: Any) -> None:
        self.commands.setdefault(key(message), time.perf_counter())

    def _diagnosis(self, message: Any) -> None:
        for status in message.status:
            if status.name.endswith("inputs"):
                texts = [v.value for v in status.values if " messages" in v.value]
                self.messages = sum(int(text.split(" messages")[0].split()[-1]) for text in texts)

    def wait(self, condition: Callable[[], bool], limit: float = 30.0) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit("bench: the other node did not appear in time")
            self.executor.spin_once(timeout_sec=0.05)

    def pace(self, rate: float, seconds: float, send: Callable[[int], object]) -> None:
        """Calls ``send`` at a steady rate and serves callbacks in between."""
        begin = time.perf_counter()
        for i in range(round(rate * seconds)):
            send(i)
            while (left := begin + (i + 1) / rate - time.perf_counter()) > 0:
                self.executor.spin_once(timeout_sec=left)

    def step(self, fast: bool) -> int:
        """All ten topics with one stamp; returns it. ``odom`` is last: it makes the frame."""
        from nav_msgs.msg import Odometry

        from osma_monitor.ros.conversions import header

        stamp = time.time_ns()
        wave = 0.01 * np.sin(stamp * 1e-9)  # nothing that moves is sent twice with the same numbers
        for _, message in self.others:
            if hasattr(message, "pose"):
                message.pose.position.x = wave
            elif hasattr(message, "effort"):
                message.position[0] = message.velocity[0] = wave
                message.effort[0] = 1.0 + wave
            elif hasattr(message, "distance") and message.id:
                message.position[0], message.distance[0] = 1.0 + wave, 0.3 + wave
        for publisher, message in self.others:
            message.header = header(stamp, "world")
            publisher.publish(message)
        moved = Odometry(header=header(stamp, "world"))
        moved.pose.pose.orientation.w = 1.0
        moved.twist.twist.linear.x = 0.7 if fast else 0.1
        self._sent = time.perf_counter()
        self.odometry.publish(moved)
        return stamp


def key(message: Any) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)


def latency(bench: Bench, command: tuple[str, ...]) -> list[float]:
    """ms from the publication of a breaking message to the reception of its Violation."""
    sent: dict[int, float] = {}

    def send(i: int) -> None:
        fast = i % 4 == 3
        stamp = bench.step(fast)
        if fast:
            sent[stamp] = bench._sent

    with process(*command):
        bench.wait(
            lambda: bench.odometry.get_subscription_count() > 0 and bench.others[0][0].get_subscription_count() > 0
        )
        bench.pace(100, 1.0, lambda i: send(0))
        sent.clear()
        bench.pace(100, 4.0, send)
        bench.pace(10, 0.3, lambda i: None)
    times = [(bench.arrived[s] - t) * 1e3 for s, t in sent.items() if s in bench.arrived]
    if len(times) < 0.9 * len(sent):
        raise SystemExit(f"bench: {len(sent) - len(times)} of {len(sent)} violations did not arrive")
    return times


def cpu(bench: Bench, command: tuple[str, ...]) -> float:
    """Share of one core at 10 topics x 100 Hz."""
    tick = os.sysconf("SC_CLK_TCK")

    def used(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / tick

    with process(*command) as child:
        bench.wait(lambda: bench.odometry.get_subscription_count() > 0)
        bench.pace(100, 1.5, lambda i: bench.step(False))
        before = used(child.pid)
        bench.pace(100, 5.0, lambda i: bench.step(False))
        return (used(child.pid) - before) / 5.0


def loss(bench: Bench, folder: Path) -> tuple[int, int]:
    """Messages sent and received at 2,000 a second."""
    with process(*monitor_command(folder)):
        bench.wait(lambda: all(p.get_subscription_count() > 0 for p, _ in bench.others))
        bench.messages = 0
        bench.pace(200, 5.0, lambda i: bench.step(False))
        sent = 200 * 5 * 10
        bench.wait(lambda: bench.messages >= sent, 10.0)
        return sent, bench.messages


def gate(bench: Bench, command: tuple[str, ...]) -> list[float]:
    """ms from the publication of a command to the reception of what comes out."""
    from geometry_msgs.msg import TwistStamped
    from osma_monitor.msg import SafetyState

    from osma_monitor.ros.conversions import header

    sent: dict[int, float] = {}

    def send(i: int) -> None:
        stamp = time.time_ns()
        bench.state.publish(SafetyState(state=SafetyState.OK))
        sent[stamp] = time.perf_counter()
        bench.command.publish(TwistStamped(header=header(stamp)))

    with process(*command):
        bench.wait(lambda: bench.command.get_subscription_count() > 0)
        bench.pace(100, 1.0, send)
        sent.clear()
        bench.pace(100, 4.0, send)
        bench.pace(10, 0.3, lambda i: None)
    return [(bench.commands[s] - t) * 1e3 for s, t in sent.items() if s in bench.commands]


def compare(title: str, theirs: Callable[[], list[float]], ours: Callable[[], list[float]]) -> dict[str, float]:
    """Alternating rounds; medians over the rounds of each round's p50 and p99."""
    rounds = [(theirs(), ours()) for _ in range(ROUNDS)]
    figures: dict[str, float] = {}
    for q in (50, 99):
        a, b = (float(np.median([np.percentile(r[side], q) for r in rounds])) for side in (0, 1))
        figures |= {f"bare_p{q}_ms": round(a, 3), f"ours_p{q}_ms": round(b, 3), f"ratio_p{q}": round(b / a, 2)}
        figures[f"added_p{q}_ms"] = round(
            float(np.median([np.percentile(o, q) - np.percentile(t, q) for t, o in rounds])), 3
        )
    print(title, figures, flush=True)
    return figures


def main(wanted: list[str]) -> int:
    me = str(Path(__file__).resolve())
    figures: dict[str, Any] = {}
    with reserve_domain() as domain, tempfile.TemporaryDirectory() as name:
        os.environ.update(ROS_DOMAIN_ID=str(domain), ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST")
        folder, bench = Path(name), Bench()
        monitor, echo = monitor_command(folder), (me, "--bare", "echo")
        if "latency" in wanted:
            figures["latency"] = compare(
                "violation against echo:", lambda: latency(bench, echo), lambda: latency(bench, monitor)
            )
        if "cpu" in wanted:
            rounds = [(cpu(bench, echo), cpu(bench, monitor)) for _ in range(ROUNDS)]
            a, b = (float(np.median([r[side] for r in rounds])) for side in (0, 1))
            figures["cpu"] = {"echo": round(a, 3), "monitor": round(b, 3), "ratio": round(b / a, 2)}
            print("CPU at 10 topics x 100 Hz, share of a core:", figures["cpu"], flush=True)
        if "loss" in wanted:
            sent, received = loss(bench, folder)
            figures["loss"] = {"sent": sent, "received": received}
            print("2,000 messages/s:", figures["loss"], flush=True)
        if "gate" in wanted:
            gating = ("-m", "osma_monitor.ros.command_gate", "--ros-args", "-p", "mode:=stop")
            figures["gate"] = compare(
                "gate against pass-through:",
                lambda: gate(bench, (me, "--bare", "pass")),
                lambda: gate(bench, gating),
            )
        bench.node.destroy_node()
    if path := os.environ.get("OSMA_BENCH_RESULT"):
        Path(path).write_text(json.dumps({"benchmark": "live", **figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        role = sys.argv[2]
        del sys.argv[1:3]
        sys.exit(bare(role))
    sys.exit(main(sys.argv[1:] or ["latency", "cpu", "loss", "gate"]))
