"""ROS messages to the raw parts of a frame and back, to the last bit.

Arrays travel as bytes (``array.array`` on the message side, NumPy on ours); nothing loops over their elements. What
a message says wrongly (arrays of unequal length) raises :class:`MalformedMessage`, which names the field.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from numpy.typing import NDArray
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from osma_monitor.core.episode import EpisodeInfo, Outcome, OutcomeStatus
from osma_monitor.core.signals.raw import (
    NO_CONTACTS,
    NO_OBJECTS,
    Base,
    Contacts,
    EndEffector,
    Joints,
    Objects,
    RawFrame,
)
from osma_monitor.io.bag import messages
from osma_monitor.msg import Contacts as ContactsMsg
from osma_monitor.msg import EpisodeEvent, GripperState, ObjectStates
from osma_monitor.ros.cdr import CdrWriter

NS = 1_000_000_000
WORLD_FRAME = "world"
BASE_FRAME = "base_link"

#: Outcome.status in the order of the OUTCOME_ constants of EpisodeEvent.msg.
OUTCOMES: tuple[OutcomeStatus, ...] = ("unknown", "success", "failure", "aborted")


#: What a message says is read as from a bag: a recording of the same messages gives the same parts.
MalformedMessage = messages.Malformed
odometry_to_base, state_to_joints, pose_to_ee = messages.odometry, messages.joint_state, messages.pose_as_ee
msg_to_gripper, msg_to_contacts, msg_to_objects = messages.gripper_state, messages.contacts, messages.objects
msg_to_frame = messages.raw_frame  #: the frame that :func:`frame_to_bytes` was given, equal to the last bit


def to_time(stamp_ns: int) -> Time:
    """Nanoseconds since the epoch of the clock in use, as a message stamp."""
    return Time(sec=stamp_ns // NS, nanosec=stamp_ns % NS)


def to_ns(stamp: Time) -> int:
    """A message stamp as int64 nanoseconds."""
    return int(stamp.sec) * NS + int(stamp.nanosec)


def header(stamp_ns: int, frame_id: str = "") -> Header:
    """A header with this stamp."""
    return Header(stamp=to_time(stamp_ns), frame_id=frame_id)


def doubles(values: NDArray[Any]) -> array[float]:
    """A float64 array of any shape, flattened in C order."""
    out = array("d")
    out.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return out


# ------------------------------------------------------------------------------------------- parts of a frame


def base_to_odometry(
    base: Base, stamp_ns: int, frame_id: str = WORLD_FRAME, child_frame_id: str = BASE_FRAME
) -> Odometry:
    """Pose in ``frame_id``, velocity in ``child_frame_id`` (REP-105). NaN velocity means not measured."""
    msg = Odometry(header=header(stamp_ns, frame_id), child_frame_id=child_frame_id)
    pose, twist = msg.pose.pose, msg.twist.twist
    pose.position.x, pose.position.y, pose.position.z = base.position.tolist()
    q = pose.orientation
    q.x, q.y, q.z, q.w = base.orientation.tolist()
    twist.linear.x, twist.linear.y, twist.linear.z = base.linear_velocity.tolist()
    twist.angular.x, twist.angular.y, twist.angular.z = base.angular_velocity.tolist()
    return msg


def joints_to_state(joints: Joints, stamp_ns: int) -> JointState:
    """All three arrays are sent; NaN means not measured."""
    return JointState(
        header=header(stamp_ns),
        name=list(joints.name),
        position=doubles(joints.position),
        velocity=doubles(joints.velocity),
        effort=doubles(joints.effort),
    )


def ee_to_pose(ee: EndEffector, stamp_ns: int, frame_id: str = WORLD_FRAME) -> PoseStamped:
    """End-effector pose in ``frame_id``."""
    msg = PoseStamped(header=header(stamp_ns, frame_id))
    p, q = msg.pose.position, msg.pose.orientation
    p.x, p.y, p.z = ee.position.tolist()
    q.x, q.y, q.z, q.w = ee.orientation.tolist()
    return msg


def gripper_to_msg(contact: bool, stamp_ns: int, opening: float = float("nan")) -> GripperState:
    """Gripper contact flag; ``opening`` in m, NaN when not measured."""
    return GripperState(header=header(stamp_ns), contact=bool(contact), opening=float(opening))


def contacts_to_msg(contacts: Contacts, stamp_ns: int, frame_id: str = WORLD_FRAME) -> ContactsMsg:
    """Contact pairs; forces in N in ``frame_id``."""
    force = contacts.force
    return ContactsMsg(
        header=header(stamp_ns, frame_id),
        body_a=list(contacts.body_a),
        body_b=list(contacts.body_b),
        role_a=list(contacts.role_a),
        role_b=list(contacts.role_b),
        force_x=doubles(force[:, 0]),
        force_y=doubles(force[:, 1]),
        force_z=doubles(force[:, 2]),
    )


def objects_to_msg(objects: Objects, stamp_ns: int, frame_id: str = WORLD_FRAME) -> ObjectStates:
    """Tracked objects; poses in ``frame_id``."""
    in_contact = array("b")
    in_contact.frombytes(np.ascontiguousarray(objects.in_contact, dtype=np.int8).tobytes())
    return ObjectStates(
        header=header(stamp_ns, frame_id),
        id=list(objects.id),
        category=list(objects.category),
        role=list(objects.role),
        position=doubles(objects.position),
        orientation=doubles(objects.orientation),
        distance=doubles(objects.distance),
        in_contact=in_contact,
    )


# ------------------------------------------------------------------------------------------------- whole frames


_UNKNOWN_BASE = Base(np.zeros(3), np.zeros(4), np.zeros(3), np.zeros(3))
_UNKNOWN_EE = EndEffector(np.zeros(3), np.zeros(4))
_NO_JOINTS = Joints((), np.zeros(0), np.zeros(0), np.zeros(0))


def frame_to_bytes(frame: RawFrame, episode_id: str, step: int, frame_id: str = WORLD_FRAME) -> bytes:
    """The assembled frame as the RawFrame message of ``~/frame``; ``step`` counts from 0 within the episode."""
    w = CdrWriter(frame.stamp_ns, frame_id)
    w.text(episode_id)
    w.count(step)
    parts = (frame.base, frame.joints, frame.ee, frame.gripper, frame.contacts, frame.objects)
    w.bytes8(*(part is not None for part in parts))
    base, joints, ee = frame.base or _UNKNOWN_BASE, frame.joints or _NO_JOINTS, frame.ee or _UNKNOWN_EE
    for vector in (base.position, base.orientation, base.linear_velocity, base.angular_velocity):
        w.doubles(*vector.tolist())
    w.texts(joints.name)
    for column in (joints.position, joints.velocity, joints.effort):
        w.sequence(column)
    w.doubles(*ee.position.tolist())
    w.doubles(*ee.orientation.tolist())
    w.bytes8(bool(frame.gripper))
    _write_contacts(w, frame, frame_id)
    _write_objects(w, frame, frame_id)
    return w.bytes()


def _write_contacts(w: CdrWriter, frame: RawFrame, frame_id: str) -> None:
    contacts = frame.contacts
    if contacts is None:
        w.header(0)
        contacts = NO_CONTACTS
    else:
        w.header(frame.stamp_ns, frame_id)
    for names in (contacts.body_a, contacts.body_b, contacts.role_a, contacts.role_b):
        w.texts(names)
    for axis in range(3):
        w.sequence(contacts.force[:, axis])


def _write_objects(w: CdrWriter, frame: RawFrame, frame_id: str) -> None:
    objects = frame.objects
    if objects is None:
        w.header(0)
        objects = NO_OBJECTS
    else:
        w.header(frame.stamp_ns, frame_id)
    for names in (objects.id, objects.category, objects.role):
        w.texts(names)
    for column in (objects.position, objects.orientation, objects.distance):
        w.sequence(column)
    w.sequence(objects.in_contact, "i1")


# ----------------------------------------------------------------------------------------------------- episodes


def episode_to_msg(
    info: EpisodeInfo,
    stamp_ns: int,
    outcome: Outcome | None = None,
    provenance: Mapping[str, str] | None = None,
    session: str = "",
) -> EpisodeEvent:
    """START of an episode, or with ``outcome`` its END. ``stamp_ns`` is that of its first or last frame.

    ``provenance`` says where the frames come from, ``session`` names the publishing process.
    """
    provenance = provenance or {}
    msg = EpisodeEvent(
        header=header(stamp_ns, session),
        event=EpisodeEvent.START,
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
        provenance_keys=list(provenance),
        provenance_values=list(provenance.values()),
    )
    if outcome is not None:
        msg.event = EpisodeEvent.END
        msg.outcome = OUTCOMES.index(outcome.status)
        msg.reason = outcome.reason
        msg.steps = outcome.steps or 0
    return msg


#: Keys of an END's provenance from a source that knows that the episode was cut off, and what its record shall say.
CUT_OFF, NOTE = "cut_off", "note."


def cut_off(notes: Sequence[str]) -> dict[str, str]:
    """Provenance of the END of an episode that its source gave only in part."""
    return {CUT_OFF: "true", **{f"{NOTE}{i:03d}": note for i, note in enumerate(notes)}}


def cut_off_notes(provenance: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the record of a cut-off episode shall say; None for an END of a whole one."""
    if CUT_OFF not in provenance:
        return None
    return tuple(text for key, text in provenance.items() if key.startswith(NOTE))


#: Key of an END's provenance: how many frames its source published, where the outcome does not say it.
FRAMES = "frames"


def published(frames: int) -> dict[str, str]:
    """Provenance of the END of an episode of which the source published so many frames."""
    return {FRAMES: str(frames)}


def published_frames(provenance: Mapping[str, str]) -> int | None:
    """How many frames the source of an END says that it published; None where it says nothing."""
    text = provenance.get(FRAMES, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None


def _mapping(msg: EpisodeEvent, field: str) -> dict[str, str]:
    keys, values = getattr(msg, f"{field}_keys"), getattr(msg, f"{field}_values")
    if len(keys) != len(values):
        raise MalformedMessage(f"{field}_values has {len(values)} elements, expected {len(keys)} as {field}_keys")
    return dict(zip(keys, values, strict=True))


def msg_to_provenance(msg: EpisodeEvent) -> dict[str, str]:
    """Where the frames come from, from a START."""
    return _mapping(msg, "provenance")


def msg_to_info(msg: EpisodeEvent) -> EpisodeInfo:
    """Who runs what, from a START or an END."""
    return EpisodeInfo(
        episode_id=msg.episode_id,
        task=msg.task,
        suite=msg.suite,
        policy=msg.policy,
        robot=msg.robot,
        instruction=msg.instruction,
        seed=int(msg.seed),
        templates=tuple(msg.templates),
        tags=tuple(msg.tags),
        sources=tuple(msg.sources),
        attributes=_mapping(msg, "attribute"),
    )


def msg_to_outcome(msg: EpisodeEvent) -> Outcome:
    """How the episode ended, from an END. A step count of 0 means that the source does not say."""
    status: OutcomeStatus = OUTCOMES[msg.outcome] if msg.outcome < len(OUTCOMES) else "unknown"
    return Outcome(status=status, reason=msg.reason, steps=int(msg.steps) or None)
