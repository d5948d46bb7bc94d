"""Decoded messages to raw parts and episode events, equal to the last bit to what the live node makes of them.

Works on anything with the fields of the message type, so on what ``rosbags`` decodes. Fields that an older
recording does not have yet take their default (our messages only ever append fields).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from osma_monitor.core.episode import EpisodeInfo, Outcome, OutcomeStatus
from osma_monitor.core.segmenter import Begin, End
from osma_monitor.core.signals.geometry import Primitive
from osma_monitor.core.signals.raw import Base, Contacts, EndEffector, Floats, Joints, Objects, RawFrame
from osma_monitor.io.bag.types import PACKAGE

SECOND = 1_000_000_000
#: Outcome.status in the order of the OUTCOME_ constants of EpisodeEvent.msg.
_OUTCOMES: tuple[OutcomeStatus, ...] = ("unknown", "success", "failure", "aborted")
_START, _END = 1, 2


class Malformed(ValueError):
    """A message whose fields contradict each other."""


def stamp_of(message: Any) -> int | None:
    """Header stamp in ns; None for a type without header."""
    header = getattr(message, "header", None)
    return None if header is None else int(header.stamp.sec) * SECOND + int(header.stamp.nanosec)


def frame_of(message: Any) -> str:
    """Coordinate frame that the header names."""
    header = getattr(message, "header", None)
    return "" if header is None else str(header.frame_id)


def _vector(values: Any, shape: tuple[int, ...], field: str) -> Floats:
    flat: Floats = np.array(values, dtype=np.float64)
    expected = math.prod(shape)
    if flat.size != expected:
        raise Malformed(f"{field} has {flat.size} elements, expected {expected}")
    return flat.reshape(shape)


def _same_length(count: int, message: Any, *names: str) -> None:
    for name in names:
        if len(getattr(message, name)) != count:
            raise Malformed(f"{name} has {len(getattr(message, name))} elements, expected {count} as the first array")


def _pose(pose: Any) -> tuple[Floats, Floats]:
    p, q = pose.position, pose.orientation
    return np.array([p.x, p.y, p.z]), np.array([q.x, q.y, q.z, q.w])


def odometry(message: Any) -> Base:
    """nav_msgs/Odometry: pose and velocity of the base."""
    position, orientation = _pose(message.pose.pose)
    v, w = message.twist.twist.linear, message.twist.twist.angular
    return Base(position, orientation, np.array([v.x, v.y, v.z]), np.array([w.x, w.y, w.z]))


def pose_as_base(message: Any) -> Base:
    """A stamped pose (with or without covariance) as the base: its velocity is not measured."""
    pose = message.pose.pose if hasattr(message.pose, "pose") else message.pose
    unknown = np.full(3, np.nan)
    return Base(*_pose(pose), unknown, unknown)


def pose_as_ee(message: Any) -> EndEffector:
    """A stamped pose (with or without covariance) as the end effector."""
    return EndEffector(*_pose(message.pose.pose if hasattr(message.pose, "pose") else message.pose))


def joint_state(message: Any) -> Joints:
    """sensor_msgs/JointState. An empty array means not measured (NaN)."""
    n = len(message.name)

    def column(field: str) -> Floats:
        values = getattr(message, field)
        return np.full(n, np.nan) if len(values) == 0 and n else _vector(values, (n,), field)

    return Joints(tuple(message.name), column("position"), column("velocity"), column("effort"))


def gripper_state(message: Any) -> bool:
    """osma_monitor/GripperState."""
    return bool(message.contact)


def contacts(message: Any) -> Contacts:
    """osma_monitor/Contacts."""
    n = len(message.body_a)
    _same_length(n, message, "body_b", "role_a", "role_b", "force_x", "force_y", "force_z")
    force = np.empty((n, 3))
    force[:, 0], force[:, 1], force[:, 2] = message.force_x, message.force_y, message.force_z
    return Contacts(tuple(message.body_a), tuple(message.body_b), tuple(message.role_a), tuple(message.role_b), force)


def objects(message: Any) -> Objects:
    """osma_monitor/ObjectStates."""
    n = len(message.id)
    _same_length(n, message, "category", "role", "in_contact")
    return Objects(
        tuple(message.id),
        tuple(message.category),
        tuple(message.role),
        _vector(message.position, (n, 3), "position"),
        _vector(message.orientation, (n, 4), "orientation"),
        _vector(message.distance, (n,), "distance"),
        np.array(message.in_contact, dtype=np.int8),
    )


def raw_frame(message: Any) -> RawFrame:
    """osma_monitor/RawFrame: one assembled step exactly as it was evaluated."""
    base = joints = ee = None
    if message.has_base:
        base = Base(
            _vector(message.base_position, (3,), "base_position"),
            _vector(message.base_orientation, (4,), "base_orientation"),
            _vector(message.base_linear_velocity, (3,), "base_linear_velocity"),
            _vector(message.base_angular_velocity, (3,), "base_angular_velocity"),
        )
    if message.has_joints:
        n = len(message.joint_name)
        columns = [_vector(getattr(message, f), (n,), f) for f in ("joint_position", "joint_velocity", "joint_effort")]
        joints = Joints(tuple(message.joint_name), *columns)
    if message.has_ee:
        ee = EndEffector(
            _vector(message.ee_position, (3,), "ee_position"), _vector(message.ee_orientation, (4,), "ee_orientation")
        )
    return RawFrame(
        stamp_ns=stamp_of(message) or 0,
        base=base,
        joints=joints,
        ee=ee,
        gripper=bool(message.gripper_contact) if message.has_gripper else None,
        contacts=contacts(message.contacts) if message.has_contacts else None,
        objects=objects(message.objects) if message.has_objects else None,
    )


def _pairs(message: Any, field: str) -> dict[str, str]:
    keys, values = getattr(message, f"{field}_keys", ()), getattr(message, f"{field}_values", ())
    if len(keys) != len(values):
        raise Malformed(f"{field}_values has {len(values)} elements, expected {len(keys)} as {field}_keys")
    return dict(zip(keys, values, strict=True))


def episode_event(message: Any) -> tuple[Begin | End, dict[str, str]]:
    """osma_monitor/EpisodeEvent: the event, and where the frames come from as a START says."""
    stamp = stamp_of(message) or 0
    if message.event == _END:
        status: OutcomeStatus = _OUTCOMES[message.outcome] if message.outcome < len(_OUTCOMES) else "unknown"
        outcome = Outcome(status, message.reason, int(message.steps) or None)
        said = _pairs(message, "provenance")  # a replayed recording says how many frames it had, and if it was cut off
        text = said.get("frames", "")
        frames = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None
        attributes = _pairs(message, "attribute")
        return End(stamp, outcome, message.episode_id, "cut_off" not in said, attributes, frames), {}
    if message.event != _START:
        raise Malformed(f"event is {message.event}, expected START (1) or END (2)")
    info = EpisodeInfo(
        episode_id=message.episode_id,
        task=message.task,
        suite=message.suite,
        policy=message.policy,
        robot=message.robot,
        instruction=message.instruction,
        seed=int(message.seed),
        templates=tuple(message.templates),
        tags=tuple(message.tags),
        sources=tuple(message.sources),
        attributes=_pairs(message, "attribute"),
    )
    return Begin(stamp, info), _pairs(message, "provenance")


def transforms(message: Any) -> list[tuple[str, str, int, tuple[float, float, float, float, float, float, float]]]:
    """tf2_msgs/TFMessage: parent, child, stamp in ns, translation and quaternion x y z w of each transform."""
    result = []
    for t in message.transforms:
        p, q = t.transform.translation, t.transform.rotation
        result.append((t.header.frame_id, t.child_frame_id, stamp_of(t) or 0, (p.x, p.y, p.z, q.x, q.y, q.z, q.w)))
    return result


_PRIMITIVES: tuple[Literal["box", "sphere", "cylinder", "capsule"], ...] = ("box", "sphere", "cylinder", "capsule")
_SIZES = (3, 1, 2, 2)


def object_shapes(message: Any) -> dict[str, list[Primitive]]:
    """osma_monitor/ObjectShapes: object id -> its primitives. Raises Malformed."""
    n = len(message.id)
    _same_length(n, message, "primitive")
    dimensions = _vector(message.dimensions, (n, 3), "dimensions")
    position = _vector(message.position, (n, 3), "position")
    orientation = _vector(message.orientation, (n, 4), "orientation")
    shapes: dict[str, list[Primitive]] = {}
    for i, name in enumerate(message.id):
        kind = int(message.primitive[i])
        if kind >= len(_PRIMITIVES):
            raise Malformed(f"primitive {kind} is unknown, expected 0 to {len(_PRIMITIVES) - 1}")
        place, turn = tuple(position[i].tolist()), tuple(orientation[i].tolist())
        size = tuple(dimensions[i, : _SIZES[kind]].tolist())
        shapes.setdefault(name, []).append(Primitive(_PRIMITIVES[kind], size, place, turn))
    return shapes


def number(message: Any, field: str) -> float:
    """A number or flag out of a message by dotted path (``data``, ``pose.position.x``, ``values[2]``).

    Raises Malformed.
    """
    value = message
    for part in field.replace("[", ".").replace("]", "").split("."):
        try:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        except (AttributeError, IndexError, TypeError):
            known = ", ".join(getattr(value, "__dataclass_fields__", {}))
            raise Malformed(f"no field {field!r}; there is {known or 'no field'}") from None
    if not isinstance(value, (bool, int, float, np.number, np.bool_)):
        raise Malformed(f"field {field!r} is {type(value).__name__}, expected a number or flag")
    return float(value)


ODOMETRY = "nav_msgs/msg/Odometry"
WRENCH = "geometry_msgs/msg/WrenchStamped"
FRAME_TYPE = f"{PACKAGE}/msg/RawFrame"
EVENT_TYPE = f"{PACKAGE}/msg/EpisodeEvent"
SHAPES_TYPE = f"{PACKAGE}/msg/ObjectShapes"
TF_TYPES = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")

#: Raw part -> message types that can give it, the usual one first.
CONVERSIONS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "base": {
        ODOMETRY: odometry,
        "geometry_msgs/msg/PoseStamped": pose_as_base,
        "geometry_msgs/msg/PoseWithCovarianceStamped": pose_as_base,
    },
    "joints": {"sensor_msgs/msg/JointState": joint_state},
    "ee": {
        "geometry_msgs/msg/PoseStamped": pose_as_ee,
        "geometry_msgs/msg/PoseWithCovarianceStamped": pose_as_ee,
    },
    "gripper": {f"{PACKAGE}/msg/GripperState": gripper_state},
    "contacts": {f"{PACKAGE}/msg/Contacts": contacts},
    "objects": {f"{PACKAGE}/msg/ObjectStates": objects},
}
