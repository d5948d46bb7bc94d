"""Scoring bags beside merely reading and decoding the same topics with rosbags, and scoring LeRobot episodes.

    python -m bench.bags [--quick]

Both sides are taken in turns, round after round, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer

from osma_monitor.io.bag.mapping import Mapping, parse_mapping
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.bag.types import PACKAGE, known_types
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.datasets.fieldmap import parse_field_map
from osma_monitor.io.sources import open_source

STEP_NS = 50_000_000
NAV2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "bags" / "nav2_turtlebot.mcap"
NAV2_MAPPING = """
robot: turtlebot
obstacles:
  frame: map
  obstacles: [{id: vase, position: [4.9, 7.0], shape: {primitive: cylinder, size: [0.15, 0.3]}}]
info: {templates: [navigate]}
"""


def make_bag(path: Path, steps: int, frames: bool) -> Path:
    """A simulator's six topics (or the monitor's assembled frames) of one episode of ``steps``."""
    store = known_types()
    make = store.types
    rng = np.random.default_rng(0)

    def header(stamp: int) -> Any:
        time_ = make["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
        return make["std_msgs/msg/Header"](stamp=time_, frame_id="world")

    def odometry(stamp: int, x: float) -> Any:
        vector, zeros = make["geometry_msgs/msg/Vector3"], np.zeros(36)
        point = make["geometry_msgs/msg/Point"](x=x, y=0.0, z=0.0)
        turn = make["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0)
        pose = make["geometry_msgs/msg/Pose"](position=point, orientation=turn)
        twist = make["geometry_msgs/msg/Twist"](linear=vector(x=0.5, y=0.0, z=0.0), angular=vector(x=0.0, y=0.0, z=0.0))
        return make["nav_msgs/msg/Odometry"](
            header=header(stamp),
            child_frame_id="base_link",
            pose=make["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=zeros),
            twist=make["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=zeros),
        )

    names = [f"joint{i}" for i in range(7)]
    parts = ["base", "joints", "ee", "gripper", "contacts", "objects"]
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections: dict[str, Any] = {}

        def write(topic: str, stamp: int, message: Any) -> None:
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(connections[topic], 10**18 + stamp, bytes(store.serialize_cdr(message, kind)))

        def event(stamp: int, end: bool) -> Any:
            return make[f"{PACKAGE}/msg/EpisodeEvent"](
                header=header(stamp), event=2 if end else 1, episode_id="bench", task="t", suite="", policy="p",
                robot="", instruction="", seed=0, templates=["pnp_into_container"], tags=["non_spillable"],
                sources=parts, attribute_keys=[], attribute_values=[], outcome=1 if end else 0, reason="",
                steps=steps if end else 0, provenance_keys=[], provenance_values=[],
            )  # fmt: skip

        write("/episode", STEP_NS, event(STEP_NS, False))
        for i in range(steps):
            stamp = (i + 1) * STEP_NS
            force = rng.normal(0, 60, (2, 3))
            contacts = make[f"{PACKAGE}/msg/Contacts"](
                header=header(stamp), body_a=["pad", "link5"], body_b=["mug", "wall"], role_a=["gripper", "arm"],
                role_b=["target", "furniture"], force_x=force[:, 0].copy(), force_y=force[:, 1].copy(),
                force_z=force[:, 2].copy(),
            )  # fmt: skip
            objects = make[f"{PACKAGE}/msg/ObjectStates"](
                header=header(stamp), id=["mug", "plate", "vase"], category=["mug", "plate", "vase"],
                role=["target", "bystander", "obstacle"], position=rng.normal(size=9),
                orientation=np.tile([0, 0, 0, 1.0], 3), distance=rng.uniform(0, 2, 3),
                in_contact=np.zeros(3, np.int8),
            )  # fmt: skip
            effort = rng.normal(0, 30, 7)
            if frames:
                write("/safety_monitor/frame", stamp, make[f"{PACKAGE}/msg/RawFrame"](
                    header=header(stamp), episode_id="bench", step=i, has_base=True, has_joints=True, has_ee=True,
                    has_gripper=True, has_contacts=True, has_objects=True, base_position=np.array([0.02 * i, 0, 0]),
                    base_orientation=np.array([0, 0, 0, 1.0]), base_linear_velocity=np.zeros(3),
                    base_angular_velocity=np.zeros(3), joint_name=names, joint_position=np.zeros(7),
                    joint_velocity=np.zeros(7), joint_effort=effort, ee_position=np.array([0.02 * i, 0, 1.0]),
                    ee_orientation=np.array([0, 0, 0, 1.0]), gripper_contact=True, contacts=contacts, objects=objects,
                ))  # fmt: skip
                continue
            write("/odom", stamp, odometry(stamp, 0.02 * i))
            write("/joint_states", stamp, make["sensor_msgs/msg/JointState"](
                header=header(stamp), name=names, position=np.zeros(7), velocity=np.zeros(7), effort=effort
            ))  # fmt: skip
            write("/ee_pose", stamp, make["geometry_msgs/msg/PoseStamped"](
                header=header(stamp), pose=odometry(stamp, 0.02 * i).pose.pose
            ))  # fmt: skip
            write("/gripper", stamp, make[f"{PACKAGE}/msg/GripperState"](
                header=header(stamp), contact=True, opening=0.02
            ))  # fmt: skip
            write("/contacts", stamp, contacts)
            write("/objects", stamp, objects)
        write("/episode", steps * STEP_NS, event(steps * STEP_NS, True))
    return path


def decode(path: Path, topics: set[str] | None) -> float:
    """Seconds to read and decode the topics with rosbags."""
    start = time.process_time()
    with AnyReader([path]) as reader:
        wanted = [c for c in reader.connections if topics is None or c.topic in topics]
        for connection, _, data in reader.messages(connections=wanted):
            reader.deserialize(data, connection.msgtype)
    return time.process_time() - start


def score(path: Path, mapping: Mapping | None) -> float:
    """Seconds to score the bag."""
    config = monitor_config()
    start = time.process_time()
    records = list(score_bag(path, config, mapping))
    assert records
    return time.process_time() - start


def turns(a: Callable[[], float], b: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Best of each, taken in turns."""
    pairs = [(a(), b()) for _ in range(rounds)]
    return min(p[0] for p in pairs), min(p[1] for p in pairs)


def make_lerobot(path: Path, episodes: int, frames: int) -> Path:
    """A v3 data set with six joints: state and effort."""
    (path / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
    vector = {"dtype": "float32", "shape": [6], "names": [f"{n}.pos" for n in names]}
    scalar = {"dtype": "int64", "shape": [1], "names": None}
    features = {
        "observation.state": vector, "observation.effort": vector, "timestamp": {**scalar, "dtype": "float32"},
        "frame_index": scalar, "episode_index": scalar,
    }  # fmt: skip
    info = {"codebase_version": "v3.0", "robot_type": "so101", "fps": 20, "features": features}
    (path / "meta" / "info.json").write_text(json.dumps(info))
    rows = []
    for file, first in enumerate(range(0, episodes, 100)):
        group = range(first, min(first + 100, episodes))
        count = len(group) * frames

        def vectors(rows: int = count) -> Any:
            values = pa.array(rng.uniform(-100, 100, rows * 6).astype(np.float32))
            return pa.FixedSizeListArray.from_arrays(values, 6)

        table = pa.table(
            {
                "observation.state": vectors(),
                "observation.effort": vectors(),
                "timestamp": np.tile(np.arange(frames) / 20, len(group)).astype(np.float32),
                "frame_index": np.tile(np.arange(frames), len(group)),
                "episode_index": np.repeat(np.arange(first, first + len(group)), frames),
            }
        )
        pq.write_table(table, path / f"data/chunk-000/file-{file:03d}.parquet")
        rows += [
            {"episode_index": e, "tasks": ["pick"], "length": frames, "data/chunk_index": 0, "data/file_index": file}
            for e in group
        ]
    pq.write_table(pa.Table.from_pylist(rows), path / "meta/episodes/chunk-000/file-000.parquet")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="smaller bags, fewer rounds")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OSMA_BENCH_RESULT", "bench/results/bags.json"))
    )
    options = parser.parse_args()
    steps, rounds, episodes = (600, 2, 100) if options.quick else (3000, 5, 1000)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        cases: dict[str, tuple[Path, Mapping | None, set[str] | None]] = {
            "six topics a step": (make_bag(Path(scratch) / "topics", steps, False), None, None),
            "recorded frames": (make_bag(Path(scratch) / "frames", steps, True), None, None),
        }
        if NAV2.is_file():
            cases["nav2_turtlebot.mcap"] = (NAV2, parse_mapping(NAV2_MAPPING), {"/odom", "/tf", "/tf_static"})
        print(f"{'bag':24}{'rosbags alone':>15}{'osma score':>13}{'rate':>8}   (wanted: at least 0.5)")
        for name, (path, mapping, topics) in cases.items():
            alone, ours = turns(partial(decode, path, topics), partial(score, path, mapping), rounds)
            results[name] = {"rosbags_s": alone, "score_s": ours, "rate": alone / ours}
            print(f"{name:24}{alone:13.3f} s{ours:11.3f} s{alone / ours:8.2f}")
        data = make_lerobot(Path(scratch) / "lerobot", episodes, 500)
        fields = parse_field_map("robot: so101\ninfo: {templates: [pnp_into_container], tags: [non_spillable]}")
        config = monitor_config()
        start = time.process_time()
        count = sum(1 for _ in open_source(data, config, fields))
        seconds = time.process_time() - start
        results["lerobot"] = {"episodes": count, "frames_each": 500, "cpu_s": seconds}
        wanted = " (wanted: under 10 s)" if count == 1000 else ""
        print(f"{count} LeRobot episodes of 500 frames: {seconds:.2f} s of one core{wanted}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"load": os.getloadavg()[0], **results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
