"""CDR bytes of the common messages straight to raw parts, several times faster than by way of message objects.

Serves little-endian messages whose recorded definition is the one that we know; everything else goes through
``rosbags`` and messages.py, with equal results (the tests hold both together).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from osma_monitor.core.signals.raw import Base, Contacts, EndEffector, Floats, Joints, Objects, RawFrame
from osma_monitor.io.bag.messages import Malformed
from osma_monitor.io.bag.types import PACKAGE

SECOND = 1_000_000_000
_LITTLE_ENDIAN = b"\x00\x01"


class Decoded(NamedTuple):
    """A message that is already what we need of it."""

    stamp_ns: int
    frame_id: str
    value: Any
    episode_id: str = ""
    step: int = 0


_u32 = struct.Struct("<I").unpack_from
_stamp = struct.Struct("<iII").unpack_from
_seven = struct.Struct("<7d").unpack_from


class _Reader:
    """A cursor over one message. Raises struct.error or ValueError past its end."""

    __slots__ = ("at", "data", "seen")

    def __init__(self, data: bytes, seen: dict[int, tuple[bytes, tuple[str, ...]]]) -> None:
        self.data, self.at = data, 4
        self.seen = seen  #: what lists of texts the topic's last message had, by where they began

    def header(self) -> tuple[int, str]:
        at = (self.at + 3) & ~3
        seconds, nanoseconds, length = _stamp(self.data, at)
        self.at = at + 12 + length
        return seconds * SECOND + nanoseconds, self.data[at + 12 : self.at - 1].decode()

    def string(self) -> str:
        at = (self.at + 3) & ~3
        (length,) = _u32(self.data, at)
        self.at = at + 4 + length
        return self.data[at + 4 : self.at - 1].decode()

    def strings(self) -> tuple[str, ...]:
        data = self.data
        start = at = (self.at + 3) & ~3
        before = self.seen.get(at)
        if before is not None and data.startswith(before[0], at):  # names rarely change from message to message
            self.at = at + len(before[0])
            return before[1]
        (count,) = _u32(data, at)
        at += 4
        if count > len(data):
            raise ValueError("a sequence is longer than its message")
        result = []
        for _ in range(count):
            at = (at + 3) & ~3
            (length,) = _u32(data, at)
            at += 4 + length
            result.append(data[at - length : at - 1].decode())
        self.at = at
        texts = tuple(result)
        self.seen[start] = (data[start:at], texts)
        if len(self.seen) > 64:
            self.seen.clear()
        return texts

    def count(self) -> int:
        at = (self.at + 3) & ~3
        self.at = at + 4
        return int(_u32(self.data, at)[0])

    def align(self) -> int:
        self.at = ((self.at + 3) & ~7) + 4  # eight bytes, counted from the end of the encapsulation
        return self.at

    def doubles(self) -> Floats:
        count = self.count()
        return self.fixed(count) if count else np.zeros(0)

    def fixed(self, count: int) -> Floats:
        at = self.align()
        self.at = at + 8 * count
        return np.frombuffer(self.data, np.float64, count, at)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]


def _odometry(r: _Reader) -> Decoded:
    stamp, frame = r.header()
    r.string()
    pose = r.fixed(43)
    twist = r.fixed(42)
    return Decoded(stamp, frame, Base(pose[:3], pose[3:7], twist[:3], twist[3:6]))


def _pose_stamped(r: _Reader) -> Decoded:
    stamp, frame = r.header()
    pose = r.fixed(7)
    return Decoded(stamp, frame, EndEffector(pose[:3], pose[3:]))


def _joint_state(r: _Reader) -> Decoded:
    stamp, frame = r.header()
    names = r.strings()
    n = len(names)
    columns = []
    for field in ("position", "velocity", "effort"):
        column = r.doubles()
        if len(column) != n:
            if len(column):
                raise Malformed(f"{field} has {len(column)} elements, expected {n}")
            column = np.full(n, np.nan)
        columns.append(column)
    return Decoded(stamp, frame, Joints(names, *columns))


def _gripper(r: _Reader) -> Decoded:
    stamp, frame = r.header()
    contact = bool(r.byte())
    r.fixed(1)  # opening
    return Decoded(stamp, frame, contact)


def _contacts_body(r: _Reader) -> tuple[int, str, Contacts]:
    stamp, frame = r.header()
    body_a, body_b, role_a, role_b = r.strings(), r.strings(), r.strings(), r.strings()
    n = len(body_a)
    force = np.empty((n, 3))
    for column, field in enumerate(("force_x", "force_y", "force_z")):
        values = r.doubles()
        if len(values) != n:
            raise Malformed(f"{field} has {len(values)} elements, expected {n} as the first array")
        force[:, column] = values
    if not len(body_b) == len(role_a) == len(role_b) == n:
        raise Malformed(f"arrays of unequal length, expected {n} elements as the first array")
    return stamp, frame, Contacts(body_a, body_b, role_a, role_b, force)


def _contacts(r: _Reader) -> Decoded:
    return Decoded(*_contacts_body(r))


def _objects_body(r: _Reader) -> tuple[int, str, Objects]:
    stamp, frame = r.header()
    ids, category, role = r.strings(), r.strings(), r.strings()
    n = len(ids)
    position, orientation, distance = r.doubles(), r.doubles(), r.doubles()
    count = r.count()
    touch = np.frombuffer(r.data, np.int8, count, r.at)
    r.at += count
    lengths = (len(category), len(role), len(position) / 3, len(orientation) / 4, len(distance), count)
    if lengths != (n,) * 6:
        raise Malformed(f"arrays of unequal length, expected {n} elements as the first array")
    return (
        stamp,
        frame,
        Objects(ids, category, role, position.reshape(n, 3), orientation.reshape(n, 4), distance, touch),
    )


def _objects(r: _Reader) -> Decoded:
    return Decoded(*_objects_body(r))


def _raw_frame(r: _Reader) -> Decoded:
    stamp, frame = r.header()
    episode = r.string()
    step = r.count()
    flags = r.data[r.at : r.at + 6]
    r.at += 6
    base = Base(r.fixed(3), r.fixed(4), r.fixed(3), r.fixed(3))
    joints = Joints(r.strings(), r.doubles(), r.doubles(), r.doubles())
    n = len(joints.name)
    if flags[1] and not len(joints.position) == len(joints.velocity) == len(joints.effort) == n:
        raise Malformed(f"joint arrays of unequal length, expected {n} elements")
    ee = EndEffector(r.fixed(3), r.fixed(4))
    gripper = bool(r.byte())
    contacts = _contacts_body(r)[2]
    objects = _objects_body(r)[2]
    value = RawFrame(
        stamp,
        base=base if flags[0] else None,
        joints=joints if flags[1] else None,
        ee=ee if flags[2] else None,
        gripper=gripper if flags[3] else None,
        contacts=contacts if flags[4] else None,
        objects=objects if flags[5] else None,
    )
    return Decoded(stamp, frame, value, episode, step)


def _transforms(r: _Reader) -> Decoded:
    result = []
    for _ in range(r.count()):
        stamp, parent = r.header()
        child = r.string()
        at = r.align()
        r.at = at + 56
        result.append((parent, child, stamp, _seven(r.data, at)))
    return Decoded(0, "", result)


#: Type -> how its bytes become what we need. The last holds (parent, child, stamp, seven numbers) of each transform.
DECODERS: dict[str, Callable[[_Reader], Decoded]] = {
    "nav_msgs/msg/Odometry": _odometry,
    "geometry_msgs/msg/PoseStamped": _pose_stamped,
    "sensor_msgs/msg/JointState": _joint_state,
    f"{PACKAGE}/msg/GripperState": _gripper,
    f"{PACKAGE}/msg/Contacts": _contacts,
    f"{PACKAGE}/msg/ObjectStates": _objects,
    f"{PACKAGE}/msg/RawFrame": _raw_frame,
    "tf2_msgs/msg/TFMessage": _transforms,
}


def fast_decoder(name: str, slow: Callable[[bytes], Any]) -> Callable[[bytes], Any] | None:
    """Decodes messages of type ``name``; ``slow`` gets big-endian ones and those that do not fit, to say why.

    None for a type that has no short way.
    """
    read = DECODERS.get(name)
    if read is None:
        return None

    seen: dict[int, tuple[bytes, tuple[str, ...]]] = {}

    def decode(data: bytes) -> Any:
        if data[:2] != _LITTLE_ENDIAN:
            return slow(data)
        reader = _Reader(data, seen)
        try:
            result = read(reader)
        except Malformed:
            raise
        except (struct.error, ValueError, IndexError):
            return slow(data)
        # up to three bytes of padding may follow
        return result if reader.at <= len(data) <= reader.at + 3 else slow(data)

    return decode
