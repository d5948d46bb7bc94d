"""Columns of a data set to RawFrames: which array gives which raw part, in a small YAML file.

    robot: so101                                  # joints, units and gripper as its robot file says
    rate: 20                                      # Hz, for data without times
    columns:
      joints: {position: observation.state, names: [shoulder_pan, shoulder_lift, elbow_flex, wrist_flex, wrist_roll]}
      ee: {position: "obs/ee_pos", orientation: "obs/ee_ori", rotation: axis_angle}
      gripper: {column: "obs/gripper_contact", above: 0.5}
      base: {position: "state[0:2]", yaw: "state[2]"}
      objects:
        - {id: mug, role: target, position: "obs/mug_pos", orientation: "obs/mug_quat"}
    success: next.success                         # the last value of an episode counts
    info: {suite: so101, templates: [pnp_into_container], tags: [non_spillable]}

A column is ``name`` or, for a part of its last axis, ``name[i]`` or ``name[i:j]``. Orientation is quaternion x y z
w unless ``rotation`` says otherwise. What is not named is unknown, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.robot import RobotModel, gripper_contact
from osma_monitor.core.signals.raw import (
    CONTACT_UNKNOWN,
    Base,
    EndEffector,
    Floats,
    Joints,
    Objects,
    RawFrame,
)
from osma_monitor.io import yaml_files
from osma_monitor.io.bag.mapping import InfoRule
from osma_monitor.io.errors import InputError
from osma_monitor.io.faults import Place
from osma_monitor.io.robots import load_robot

SECOND = 1_000_000_000
_EXACT = {"extra": "forbid"}
Rotation = Literal["quat_xyzw", "quat_wxyz", "axis_angle", "euler_xyz"]
#: name -> array (T, ...) of one episode; raises KeyError
Column = Callable[[str], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class JointColumns:
    """Joint arrays (T, n), all in the order of ``names``."""

    __pydantic_config__ = _EXACT

    position: str = ""
    velocity: str = ""
    effort: str = ""
    names: tuple[str, ...] = ()  #: empty: as the data set names them, else joint_0, joint_1, ...


@dataclass(frozen=True, slots=True)
class PoseColumns:
    """A pose: position (T, 3) m (or (T, 2)), and its orientation by one of the two."""

    __pydantic_config__ = _EXACT

    position: str
    orientation: str = ""
    rotation: Rotation = "quat_xyzw"
    yaw: str = ""  #: rad, where there is no full orientation
    linear_velocity: str = ""  #: (T, 3) or (T, 2) m/s in the base frame, base alone
    angular_velocity: str = ""  #: (T, 3) rad/s


@dataclass(frozen=True, slots=True)
class FlagColumn:
    """A flag out of a number: on above (or below) a limit."""

    __pydantic_config__ = _EXACT

    column: str
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class ObjectColumns:
    """One tracked object."""

    __pydantic_config__ = _EXACT

    id: str
    position: str
    role: Literal["target", "bystander", "obstacle", "human", "furniture", "other"] = "bystander"
    category: str = ""
    orientation: str = ""
    rotation: Rotation = "quat_xyzw"
    distance: str = ""  #: m, signed surface distance to the robot


@dataclass(frozen=True, slots=True)
class PartColumns:
    """Which columns give which raw part."""

    __pydantic_config__ = _EXACT

    joints: JointColumns | None = None
    base: PoseColumns | None = None
    ee: PoseColumns | None = None
    gripper: FlagColumn | None = None
    objects: tuple[ObjectColumns, ...] = ()

    def parts(self) -> tuple[str, ...]:
        """Raw parts that are given."""
        names = ("base", "joints", "ee", "gripper", "objects")
        return tuple(n for n in names if getattr(self, n))

    def texts(self) -> list[str]:
        """Every column that is named, with its selection."""
        texts: list[str] = []
        if self.joints is not None:
            texts += [self.joints.position, self.joints.velocity, self.joints.effort]
        for pose in (self.base, self.ee):
            if pose is not None:
                texts += [pose.position, pose.orientation, pose.yaw, pose.linear_velocity, pose.angular_velocity]
        if self.gripper is not None:
            texts.append(self.gripper.column)
        for o in self.objects:
            texts += [o.position, o.orientation, o.distance]
        return [t for t in texts if t]


@dataclass(frozen=True, slots=True)
class FieldMap:
    """One field map file."""

    __pydantic_config__ = _EXACT

    columns: PartColumns = field(default_factory=PartColumns)
    robot: str | RobotModel = ""
    rate: float = 0.0  #: Hz; 0: as the data set says
    time: str = ""  #: column of seconds since the episode began
    success: str = ""  #: column whose last value (or attribute) says whether the episode succeeded
    task: str = ""  #: attribute or column with the task's name
    episodes: str = ""  #: HDF5: the group whose members are the episodes; npz: column of episode numbers
    info: InfoRule = field(default_factory=InfoRule)


def load_field_map(path: Path | str) -> FieldMap:
    """Reads a field map. Raises InputError naming file, line, key and value."""
    path = Path(path)
    return resolve(yaml_files.load(path, FieldMap, "field map", rules), path.parent)


def parse_field_map(text: str, file: str = "<text>") -> FieldMap:
    """The same from text."""
    return resolve(yaml_files.parse(text, FieldMap, "field map", file, rules), Path())


def rules(fields: FieldMap) -> Iterator[tuple[Place, str]]:
    """What a field map must obey beyond its types."""
    if fields.rate < 0:
        yield ("rate",), f"expected Hz of at least 0 (0: as the data set says), got {fields.rate:g}"
    ids = [o.id for o in fields.columns.objects]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            yield ("columns", "objects", number, "id"), f"the id {name!r} is named twice"


def resolve(fields: FieldMap, folder: Path) -> FieldMap:
    """``fields`` with the robot file in place of its name."""
    if isinstance(fields.robot, str) and fields.robot:
        beside = folder / fields.robot
        return replace(fields, robot=load_robot(beside if beside.suffix and beside.is_file() else fields.robot))
    return fields


_SELECT = re.compile(r"^(?P<name>.+?)(?:\[(?P<first>\d+)(?P<range>:(?P<last>\d*))?\])?$", re.DOTALL)


def pick(column: Column, text: str, where: str) -> NDArray[Any]:
    """The array that ``text`` names. Raises InputError when there is no such column or it is too narrow."""
    match = _SELECT.match(text)
    assert match is not None
    name = match["name"]
    try:
        array = np.asarray(column(name))
    except KeyError as error:
        known = error.args[1] if len(error.args) > 1 else ""
        raise InputError(f"{where}: no column {name!r}; it has {known or 'others'}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where}: column {name!r} holds {array.dtype}, expected numbers")
    if match["first"] is None:
        return array
    first = int(match["first"])
    last = first + 1 if match["range"] is None else int(match["last"]) if match["last"] else None
    width = array.shape[1] if array.ndim > 1 else 1
    array = array.reshape(len(array), width)
    if first >= width or (last is not None and last > width):
        raise InputError(f"{where}: {text!r} reaches past the {width} values of {name!r}")
    picked: NDArray[Any] = array[:, first:last]
    return picked[:, 0] if match["range"] is None else picked


def _vectors(column: Column, text: str, where: str, width: int = 3) -> Floats:
    """(T, width); two columns of a planar position get a third of zero."""
    array = pick(column, text, where).astype(np.float64)
    array = array.reshape(len(array), -1)
    if array.shape[1] == 2 and width == 3:
        array = np.column_stack([array, np.zeros(len(array))])
    if array.shape[1] != width:
        raise InputError(f"{where}: {text!r} has {array.shape[1]} values a row, expected {width}")
    return array


def quaternions(values: Floats, rotation: Rotation) -> Floats:
    """(T, 4) x y z w of orientations in another form (angles in rad; Euler angles about fixed x, y, z)."""
    if rotation == "quat_xyzw":
        return values
    if rotation == "quat_wxyz":
        return values[:, [1, 2, 3, 0]]
    if rotation == "axis_angle":
        angle = np.sqrt((values * values).sum(axis=1))
        half = angle / 2.0
        factor = np.where(angle > 1e-12, np.sin(half) / np.where(angle > 1e-12, angle, 1.0), 0.5)
        return np.column_stack([values * factor[:, None], np.cos(half)])
    (cx, cy, cz), (sx, sy, sz) = np.cos(values.T / 2.0), np.sin(values.T / 2.0)
    return np.column_stack(
        [
            sx * cy * cz - cx * sy * sz,
            cx * sy * cz + sx * cy * sz,
            cx * cy * sz - sx * sy * cz,
            cx * cy * cz + sx * sy * sz,
        ]
    )


def _orientation(column: Column, pose: PoseColumns | ObjectColumns, rows: int, where: str) -> Floats:
    turn = getattr(pose, "yaw", "")
    if pose.orientation:
        width = 4 if pose.rotation.startswith("quat") else 3
        return quaternions(_vectors(column, pose.orientation, where, width), pose.rotation)
    if turn:
        half = pick(column, turn, where).astype(np.float64).reshape(-1) / 2.0
        zero = np.zeros(rows)
        return np.column_stack([zero, zero, np.sin(half), np.cos(half)])
    return np.full((rows, 4), np.nan)


@dataclass
class EpisodeColumns:
    """The arrays of one episode by raw part, ready to be cut into frames."""

    rows: int
    base: tuple[Floats, Floats, Floats, Floats] | None = None
    ee: tuple[Floats, Floats] | None = None
    joints: tuple[tuple[str, ...], Floats, Floats, Floats] | None = None
    gripper: NDArray[np.bool_] | None = None
    objects: tuple[Objects, Floats, Floats, Floats] | None = None
    robot: RobotModel | None = None

    def frames(self, stamps_ns: NDArray[np.int64]) -> Iterator[RawFrame]:
        """One RawFrame a row."""
        robot = self.robot
        for i, stamp in enumerate(stamps_ns.tolist()):
            joints = objects = None
            gripper = bool(self.gripper[i]) if self.gripper is not None else None
            if self.joints is not None:
                names, *columns = self.joints
                joints = Joints(names, *(c[i] for c in columns))
                if robot is not None and robot.gripper is not None and gripper is None:
                    gripper = gripper_contact(robot.gripper, joints)
            if self.objects is not None:
                fixed, position, orientation, distance = self.objects
                objects = replace(fixed, position=position[i], orientation=orientation[i], distance=distance[i])
            yield RawFrame(
                stamp,
                base=Base(*(c[i] for c in self.base)) if self.base is not None else None,
                joints=joints,
                ee=EndEffector(*(c[i] for c in self.ee)) if self.ee is not None else None,
                gripper=gripper,
                objects=objects,
            )


def episode_columns(
    column: Column, fields: FieldMap, where: str, names_of: Callable[[str], tuple[str, ...]] = lambda name: ()
) -> EpisodeColumns:
    """Reads the columns of one episode. ``names_of`` gives the data set's own joint names of a column.

    Raises InputError on absent columns and on columns of unequal length.
    """
    parts = fields.columns
    robot = fields.robot if isinstance(fields.robot, RobotModel) else None
    if not parts.parts():
        raise InputError(
            f"{where}: the field map names no columns; write what gives joints, base, ee, gripper or objects"
        )
    first = parts.texts()[0]
    rows = len(pick(column, first, where))
    result = EpisodeColumns(rows, robot=robot)
    unknown = np.full((rows, 3), np.nan)
    if parts.base is not None:
        p = parts.base
        result.base = (
            _vectors(column, p.position, where),
            _orientation(column, p, rows, where),
            _vectors(column, p.linear_velocity, where) if p.linear_velocity else unknown,
            _vectors(column, p.angular_velocity, where) if p.angular_velocity else unknown,
        )
    if parts.ee is not None:
        result.ee = (_vectors(column, parts.ee.position, where), _orientation(column, parts.ee, rows, where))
    if parts.joints is not None:
        result.joints = _joints(column, parts.joints, robot, rows, where, names_of)
    if parts.gripper is not None:
        result.gripper = _flag(pick(column, parts.gripper.column, where), parts.gripper)
    if parts.objects:
        result.objects = _objects(column, parts.objects, rows, where)
    for text in parts.texts():
        if len(pick(column, text, where)) != rows:
            raise InputError(f"{where}: {text!r} has {len(pick(column, text, where))} rows, {first!r} has {rows}")
    return result


def _flag(values: NDArray[Any], rule: FlagColumn) -> NDArray[np.bool_]:
    flat = values.reshape(len(values), -1)[:, 0].astype(np.float64)
    on = np.ones(len(flat), bool)
    if rule.above is not None or rule.below is None:
        on &= flat > (0.5 if rule.above is None else rule.above)
    if rule.below is not None:
        on &= flat < rule.below
    return on


def _joints(
    column: Column,
    given: JointColumns,
    robot: RobotModel | None,
    rows: int,
    where: str,
    names_of: Callable[[str], tuple[str, ...]],
) -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    texts = (given.position, given.velocity, given.effort)
    arrays = [pick(column, t, where).astype(np.float64).reshape(rows, -1) if t else None for t in texts]
    width = next((a.shape[1] for a in arrays if a is not None), 0)
    if any(a is not None and a.shape[1] != width for a in arrays):
        raise InputError(f"{where}: joint position, velocity and effort have different widths")
    own = names_of(next((t for t in texts if t), ""))
    names = given.names or (own if len(own) == width else ()) or tuple(f"joint_{i}" for i in range(width))
    if len(names) != width:
        raise InputError(f"{where}: {len(names)} joint names for {width} joints")
    p, v, e = (np.full((rows, width), np.nan) if a is None else a for a in arrays)
    if robot is None or not robot.joints:
        return tuple(names), p, v, e
    columns = [_converted(robot, names, p, v, e, k) for k in range(len(robot.joints))]
    p, v, e = (np.column_stack([c[q] for c in columns]) for q in range(3))
    return tuple(j.name for j in robot.joints), p, v, e


def _converted(
    robot: RobotModel, names: tuple[str, ...], p: Floats, v: Floats, e: Floats, k: int
) -> tuple[Floats, Floats, Floats]:
    """One joint of the robot file, by the arithmetic of :func:`convert_joints`."""
    joint = robot.joints[k]
    nan = np.full(len(p), np.nan)
    if joint.source_name not in names:
        return nan, nan, nan
    at = names.index(joint.source_name)
    zero, scale = joint.affine()
    return (p[:, at] - zero) * scale, v[:, at] * scale, e[:, at] * joint.torque_constant


def _objects(
    column: Column, given: tuple[ObjectColumns, ...], rows: int, where: str
) -> tuple[Objects, Floats, Floats, Floats]:
    n = len(given)
    position, orientation = np.empty((rows, n, 3)), np.empty((rows, n, 4))
    distance = np.full((rows, n), np.nan)
    for k, o in enumerate(given):
        position[:, k] = _vectors(column, o.position, where)
        orientation[:, k] = _orientation(column, o, rows, where)
        if o.distance:
            distance[:, k] = pick(column, o.distance, where).astype(np.float64).reshape(-1)
    fixed = Objects(
        tuple(o.id for o in given),
        tuple(o.category for o in given),
        tuple(o.role for o in given),
        np.zeros((n, 3)),
        np.zeros((n, 4)),
        np.zeros(n),
        np.full(n, CONTACT_UNKNOWN, np.int8),
    )
    return fixed, position, orientation, distance


def stamps_of(seconds: Floats | None, rows: int, rate: float, where: str) -> NDArray[np.int64]:
    """Stamps in ns from 1 s on: of a column of seconds, else at ``rate``.

    Raises InputError on times that do not rise.
    """
    if seconds is None:
        if rate <= 0:
            raise InputError(f"{where}: no times and no rate; write rate: HZ in the field map")
        return SECOND + np.round(np.arange(rows) * (SECOND / rate)).astype(np.int64)
    stamps = SECOND + np.round((seconds - (seconds[0] if rows else 0.0)) * SECOND).astype(np.int64)
    bad = np.flatnonzero(np.diff(stamps) <= 0)
    if len(bad):
        raise InputError(f"{where}: its times do not rise at row {int(bad[0]) + 1}")
    return stamps


def known_columns(names: Mapping[str, Any] | list[str]) -> str:
    """The names for an error message."""
    listed = sorted(names)
    return ", ".join(listed[:12]) + (f" and {len(listed) - 12} more" if len(listed) > 12 else "")
