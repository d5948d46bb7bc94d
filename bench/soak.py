"""Endurance: hours of robot time at 20 Hz through the engine in process, and through the node, as fast as it goes.

Run: ``python bench/soak.py [--engine HOURS] [--node HOURS]`` (24 and 1 by default; about ten and three minutes).
Aims: memory flat within 20 MB after the first episode, every file valid, no count drifts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.segmenter import Begin, End
from osma_monitor.core.signals.raw import NO_CONTACTS, Base, Objects, RawFrame, vector
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes
from osma_monitor.ros.domain import reserve_domain
from osma_monitor.ros.tracker import EpisodeTracker

PERIOD_NS = 50_000_000
EPISODE_STEPS = 12_000  #: ten minutes


def resident(pid: int) -> float:
    """MB that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def frame(step: int) -> RawFrame:
    """A robot on a circle beside a person; too near for a part of each round."""
    angle = 0.01 * step
    position = vector([np.cos(angle), np.sin(angle), 0.0])
    distance = float(np.sqrt(((position[:2] - [2.0, 0.0]) ** 2).sum())) - 0.8
    return RawFrame(
        1_000_000_000 + step * PERIOD_NS,
        base=Base(position, vector([0, 0, 0, 1]), vector([0.2, 0, 0]), vector([0, 0, 0.2])),
        contacts=NO_CONTACTS,
        objects=Objects(
            ("anna",),
            ("human",),
            ("human",),
            np.array([[2.0, 0.0, 0.0]]),
            np.array([[0, 0, 0, 1.0]]),
            np.array([distance]),
            np.zeros(1, np.int8),
        ),
    )


def info(number: int) -> EpisodeInfo:
    return EpisodeInfo(
        f"soak-{number:04d}",
        task="circle",
        suite="kitchen",
        policy="soak",
        templates=("navigate",),
        sources=("base", "contacts", "objects"),
    )


def check(folder: Path, steps: int, sizes: list[float]) -> dict[str, Any]:
    """Every file read back; drift in counts is an error."""
    total = refused = episodes = cut = 0
    for record in read_episodes(folder):
        episodes += 1
        total += len(record.stamps_ns)
        refused += record.refused
        cut += record.partial or not record.complete
        wrong = [c.clause for c in record.clauses if c.unknown_samples]
        if wrong:
            raise SystemExit(f"soak: {record.info.episode_id}: unknown samples of {', '.join(wrong)}")
    parts = list(folder.glob("*.part"))
    if total != steps or refused or parts or cut:
        raise SystemExit(
            f"soak: {total} of {steps} steps stored, {refused} refused, {cut} episodes cut, {len(parts)} streams left"
        )
    growth = max(sizes[1:], default=sizes[0]) - sizes[0]
    return {
        "robot_hours": round(steps * PERIOD_NS / 3.6e12, 3),
        "episodes": episodes,
        "memory_mb": round(sizes[0], 1),
        "growth_mb": round(growth, 1),
    }


def engine(hours: float) -> dict[str, Any]:
    steps = round(hours * 3.6e12 / PERIOD_NS)
    sizes: list[float] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        tracker = EpisodeTracker(monitor_config(), Path(name))
        for step in range(steps):
            now = frame(step)
            if step % EPISODE_STEPS == 0:
                tracker.begin(Begin(now.stamp_ns, info(step // EPISODE_STEPS)))
            update = tracker.frame(now)
            assert update is not None
            tracker.log(update)
            if (step + 1) % EPISODE_STEPS == 0 or step + 1 == steps:
                length = step % EPISODE_STEPS + 1
                tracker.end(End(now.stamp_ns, Outcome("success", "round done", length)))
                sizes.append(resident(os.getpid()))
        seconds = time.monotonic() - began
        return {**check(Path(name), steps, sizes), "frames_per_second": round(steps / seconds)}


def node(hours: float) -> dict[str, Any]:
    import rclpy
    from nav_msgs.msg import Odometry
    from osma_monitor.msg import ClauseStatus, Contacts, EpisodeEvent, EpisodeSummary, ObjectStates

    from osma_monitor.ros import conversions, topics
    from osma_monitor.ros.runtime import make_executor

    steps = round(hours * 3.6e12 / PERIOD_NS)
    with reserve_domain() as domain, tempfile.TemporaryDirectory() as name:
        os.environ.update(ROS_DOMAIN_ID=str(domain), ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST")
        command = [sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args", "-p", f"episode_log:={name}"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rclpy.init()
        source = rclpy.create_node("soak")
        executor = make_executor()
        executor.add_node(source)
        publishers = {
            "base": (source.create_publisher(Odometry, topics.ODOM, topics.reliable()), conversions.base_to_odometry),
            "contacts": (
                source.create_publisher(Contacts, topics.CONTACTS, topics.reliable()),
                conversions.contacts_to_msg,
            ),
            "objects": (
                source.create_publisher(ObjectStates, topics.OBJECTS, topics.reliable()),
                conversions.objects_to_msg,
            ),
        }
        events = source.create_publisher(EpisodeEvent, topics.EPISODE, topics.latched())
        answered: set[int] = set()
        ended: set[str] = set()
        source.create_subscription(
            ClauseStatus,
            topics.of_monitor(topics.STATUS),
            lambda m: answered.add(conversions.to_ns(m.header.stamp)),
            topics.reliable(),
        )
        source.create_subscription(
            EpisodeSummary, topics.of_monitor(topics.SUMMARY), lambda m: ended.add(m.episode_id), topics.latched(10)
        )

        def wait(condition: Any, what: str) -> None:
            deadline = time.monotonic() + 30
            while not condition():
                if time.monotonic() > deadline:
                    raise SystemExit(f"soak: waited 30 s for {what}")
                executor.spin_once(timeout_sec=0.1)

        sizes: list[float] = []
        try:
            wait(lambda: all(p.get_subscription_count() for p, _ in publishers.values()), "the monitor")
            wait(lambda: source.count_publishers(topics.of_monitor(topics.STATUS)), "the monitor")
            began = time.monotonic()
            for step in range(steps):
                now = frame(step)
                current = info(step // EPISODE_STEPS)
                if step % EPISODE_STEPS == 0:
                    events.publish(conversions.episode_to_msg(current, now.stamp_ns))
                for part, (publisher, convert) in publishers.items():
                    publisher.publish(convert(getattr(now, part), now.stamp_ns))
                wait(lambda: now.stamp_ns in answered, f"step {step}")  # noqa: B023
                answered.clear()
                if (step + 1) % EPISODE_STEPS == 0 or step + 1 == steps:
                    outcome = Outcome("success", "round done", step % EPISODE_STEPS + 1)
                    events.publish(conversions.episode_to_msg(current, now.stamp_ns, outcome))
                    wait(lambda: current.episode_id in ended, "the summary")  # noqa: B023
                    sizes.append(resident(child.pid))
            seconds = time.monotonic() - began
        finally:
            child.terminate()
            child.wait()
            source.destroy_node()
        return {**check(Path(name), steps, sizes), "frames_per_second": round(steps / seconds)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=float, default=24.0, metavar="HOURS")
    parser.add_argument("--node", type=float, default=1.0, metavar="HOURS")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    for name, run, hours in (("engine", engine, given.engine), ("node", node, given.node)):
        if hours > 0:
            figures[name] = run(hours)
            print(f"{name}:", figures[name], flush=True)
    if path := os.environ.get("OSMA_BENCH_RESULT"):
        Path(path).write_text(json.dumps({"benchmark": "soak", **figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
