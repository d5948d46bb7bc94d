"""Bags made with rosbags: the messages that a simulated episode gives, in every form that a bag comes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from osma_monitor.core import safety
from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.signals.raw import Base, Contacts, EndEffector, Joints, Objects, RawFrame
from osma_monitor.io.bag.types import PACKAGE, known_types
from osma_monitor.resources import config_path

STEP_NS = 50_000_000
STORE = known_types("cdr")


@cache
def config() -> MonitorConfig:
    folder = config_path("safety")
    return MonitorConfig(
        safety.load_library((folder / "library.yaml").read_text()),
        safety.load_registry((folder / "registry.yaml").read_text()),
    )


def make_info(number: int = 0) -> EpisodeInfo:
    return EpisodeInfo(
        episode_id=f"kitchen/A/mug/{number}",
        task="kitchen/A/mug",
        suite="kitchen",
        policy="cautious",
        robot="kitchen",
        instruction="fetch",
        seed=number,
        templates=("pnp_into_container",),
        tags=("non_spillable",),
        sources=("base", "joints", "ee", "gripper", "contacts", "objects"),
        attributes={"cell": "A", "tier": "high"},
    )


def make_frames(number: int = 0, steps: int = 60, start_ns: int = 1_000_000_000) -> list[RawFrame]:
    """A carried mug, a vase nearby, a wall that the arm hits now and then: every raw part is there."""
    rng = np.random.default_rng(number)
    frames = []
    for i in range(steps):
        x = 0.03 * i
        lifted = 10 <= i < steps - 10
        touching = rng.random() < 0.3
        contacts = Contacts(
            ("gripper_pad",) + (("link5",) if touching else ()),
            ("mug",) + (("wall",) if touching else ()),
            ("gripper",) + (("arm",) if touching else ()),
            ("target",) + (("furniture",) if touching else ()),
            rng.normal(0, 120, (2 if touching else 1, 3)),
        )
        objects = Objects(
            ("mug", "plate", "vase"),
            ("mug", "plate", "vase"),
            ("target", "bystander", "obstacle"),
            np.array([[x, 0.1, 0.8 + 0.1 * lifted], [0.5, 0.5 + 1e-4 * i, 0.8], [1.0, 1.0, 0.3]]),
            np.array([[0.01 * np.sin(i), 0.0, 0.0, 1.0], [0, 0, 0, 1.0], [0, 0, 0, 1.0]]),
            np.array([0.2, 0.9, abs(1.5 - x) + 0.05]),
            np.array([1, 0, 0], np.int8),
        )
        frames.append(
            RawFrame(
                start_ns + i * STEP_NS,
                Base(np.array([x, 0.02 * i, 0.0]), np.array([0, 0, 0.1, 0.99]), np.array([0.6, 0.4, 0]), np.zeros(3)),
                Joints(("j1", "j2"), rng.normal(size=2), rng.normal(size=2), rng.normal(0, 40, 2)),
                EndEffector(np.array([x, 0.1, 0.9]), np.array([0, 0, 0, 1.0])),
                bool(lifted),
                contacts,
                objects,
            )
        )
    return frames


def message(kind: str, **values: Any) -> Any:
    return STORE.types[kind](**values)


def header(stamp_ns: int, frame: str = "world") -> Any:
    time = message("builtin_interfaces/msg/Time", sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
    return message("std_msgs/msg/Header", stamp=time, frame_id=frame)


def _pose(position: Any, orientation: Any) -> Any:
    p = message("geometry_msgs/msg/Point", x=float(position[0]), y=float(position[1]), z=float(position[2]))
    q = message("geometry_msgs/msg/Quaternion", **{k: float(v) for k, v in zip("xyzw", orientation, strict=True)})
    return message("geometry_msgs/msg/Pose", position=p, orientation=q)


def _vector3(v: Any) -> Any:
    return message("geometry_msgs/msg/Vector3", x=float(v[0]), y=float(v[1]), z=float(v[2]))


def odometry(frame: RawFrame, frame_id: str = "world") -> Any:
    b = frame.base
    assert b is not None
    twist = message("geometry_msgs/msg/Twist", linear=_vector3(b.linear_velocity), angular=_vector3(b.angular_velocity))
    return message(
        "nav_msgs/msg/Odometry",
        header=header(frame.stamp_ns, frame_id),
        child_frame_id="base_link",
        pose=message(
            "geometry_msgs/msg/PoseWithCovariance", pose=_pose(b.position, b.orientation), covariance=np.zeros(36)
        ),
        twist=message("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36)),
    )


def contacts_message(frame: RawFrame) -> Any:
    c = frame.contacts
    assert c is not None
    return message(
        f"{PACKAGE}/msg/Contacts",
        header=header(frame.stamp_ns),
        body_a=list(c.body_a),
        body_b=list(c.body_b),
        role_a=list(c.role_a),
        role_b=list(c.role_b),
        force_x=c.force[:, 0].copy(),
        force_y=c.force[:, 1].copy(),
        force_z=c.force[:, 2].copy(),
    )


def objects_message(frame: RawFrame) -> Any:
    o = frame.objects
    assert o is not None
    return message(
        f"{PACKAGE}/msg/ObjectStates",
        header=header(frame.stamp_ns),
        id=list(o.id),
        category=list(o.category),
        role=list(o.role),
        position=o.position.reshape(-1),
        orientation=o.orientation.reshape(-1),
        distance=o.distance,
        in_contact=o.in_contact,
    )


def frame_message(frame: RawFrame, episode_id: str, step: int) -> Any:
    b, j, e = frame.base, frame.joints, frame.ee
    assert b is not None and j is not None and e is not None
    return message(
        f"{PACKAGE}/msg/RawFrame",
        header=header(frame.stamp_ns),
        episode_id=episode_id,
        step=step,
        has_base=True,
        has_joints=True,
        has_ee=True,
        has_gripper=True,
        has_contacts=True,
        has_objects=True,
        base_position=b.position,
        base_orientation=b.orientation.astype(np.float64),
        base_linear_velocity=b.linear_velocity.astype(np.float64),
        base_angular_velocity=b.angular_velocity,
        joint_name=list(j.name),
        joint_position=j.position,
        joint_velocity=j.velocity,
        joint_effort=j.effort,
        ee_position=e.position,
        ee_orientation=e.orientation.astype(np.float64),
        gripper_contact=bool(frame.gripper),
        contacts=contacts_message(frame),
        objects=objects_message(frame),
    )


def event_message(info: EpisodeInfo, stamp_ns: int, outcome: Outcome | None = None, session: str = "bridge1") -> Any:
    statuses = ("unknown", "success", "failure", "aborted")
    return message(
        f"{PACKAGE}/msg/EpisodeEvent",
        header=header(stamp_ns, session),
        event=1 if outcome is None else 2,
        episode_id=info.episode_id,
        task=info.task,
        suite=info.suite,
        policy=info.policy,
        robot=info.robot,
        instruction=info.instruction,
        seed=info.seed,
        templates=list(info.templates),
        tags=list(info.tags),
        sources=list(info.sources),
        attribute_keys=list(info.attributes),
        attribute_values=list(info.attributes.values()),
        outcome=0 if outcome is None else statuses.index(outcome.status),
        reason="" if outcome is None else outcome.reason,
        steps=0 if outcome is None else outcome.steps or 0,
        provenance_keys=["simulator"],
        provenance_values=["mujoco 3.3.1"],
    )


@dataclass(frozen=True)
class Recorded:
    """One message as it is recorded."""

    topic: str
    received_ns: int
    message: Any

    @property
    def kind(self) -> str:
        return str(self.message.__msgtype__)


def topics_of(frame: RawFrame, received_ns: int) -> list[Recorded]:
    """The simulator's topics of one step."""
    j, e = frame.joints, frame.ee
    assert j is not None and e is not None
    stamp = header(frame.stamp_ns)
    joints = message(
        "sensor_msgs/msg/JointState",
        header=stamp,
        name=list(j.name),
        position=j.position,
        velocity=j.velocity,
        effort=j.effort,
    )
    gripper = message(f"{PACKAGE}/msg/GripperState", header=stamp, contact=bool(frame.gripper), opening=0.01)
    pose = message("geometry_msgs/msg/PoseStamped", header=stamp, pose=_pose(e.position, e.orientation))
    values = {
        "/odom": odometry(frame),
        "/joint_states": joints,
        "/ee_pose": pose,
        "/gripper": gripper,
        "/contacts": contacts_message(frame),
        "/objects": objects_message(frame),
    }
    return [Recorded(topic, received_ns + k, m) for k, (topic, m) in enumerate(values.items())]


def episode(
    number: int = 0,
    steps: int = 60,
    start_ns: int = 1_000_000_000,
    *,
    with_frames: bool = False,
    with_topics: bool = True,
    received_offset: int = 10**18,
) -> list[Recorded]:
    """All messages of one episode, START to END, in the order in which a recorder would get them."""
    info, frames = make_info(number), make_frames(number, steps, start_ns)
    result = [Recorded("/episode", received_offset + start_ns - 1000, event_message(info, start_ns))]
    for i, frame in enumerate(frames):
        received = received_offset + frame.stamp_ns
        if with_topics:
            result += topics_of(frame, received)
        if with_frames:
            result.append(Recorded("/safety_monitor/frame", received + 50, frame_message(frame, info.episode_id, i)))
    outcome = Outcome("success" if number % 2 == 0 else "failure", "goal", steps)
    end = event_message(info, frames[-1].stamp_ns, outcome)
    result.append(Recorded("/episode", received_offset + frames[-1].stamp_ns + 100, end))
    return result


def write_bag(
    path: Path,
    recorded: Iterable[Recorded],
    *,
    storage: str = "mcap",
    compress: str = "",
    split: int = 0,
) -> Path:
    """A rosbag2 folder. ``compress``: '', message, file or storage; ``split``: bytes after which a new file begins."""
    plugin = StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
    writer = Writer(path, version=9, storage_plugin=plugin)
    if compress:
        modes = {"message": CompressionMode.MESSAGE, "file": CompressionMode.FILE, "storage": CompressionMode.STORAGE}
        writer.set_compression(modes[compress], CompressionFormat.ZSTD)
    connections: dict[str, Any] = {}
    with writer:
        for item in recorded:
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, item.kind, typestore=STORE)
            data = STORE.serialize_cdr(item.message, item.kind)
            writer.write(connections[item.topic], item.received_ns, bytes(data))
    return path


def write_ros1(path: Path, recorded: Iterable[Recorded], compress: str = "") -> Path:
    """A ROS 1 bag of the same messages."""
    store = known_types("ros1")
    writer = Writer1(path)
    if compress:
        writer.set_compression({"bz2": Writer1.CompressionFormat.BZ2, "lz4": Writer1.CompressionFormat.LZ4}[compress])
    connections: dict[str, Any] = {}
    with writer:
        for item in recorded:
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, item.kind, typestore=store)
            data = store.serialize_ros1(_of_store(store, item.message), item.kind)
            writer.write(connections[item.topic], item.received_ns, bytes(data))
    return path


def _of_store(store: Any, value: Any) -> Any:
    """A message as the same type of another store; ROS 1 headers have a sequence number."""
    kind = getattr(value, "__msgtype__", "")
    if isinstance(value, list):
        return [_of_store(store, v) for v in value]
    if not kind:
        return value
    fields = {f.name: _of_store(store, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if kind == "std_msgs/msg/Header":
        fields["seq"] = 0
    fields.pop("__msgtype__", None)
    return store.types[kind](**fields)
