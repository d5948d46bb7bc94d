"""What a robot file says (config/robots/*.yaml): which topic gives which raw part, joints and their units, frames,
sensors, shape.

Plain data and the small conversions that it drives. Reading and checking the YAML is :mod:`osma_monitor.io.robots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.assembler import AssemblyConfig, Input
from osma_monitor.core.signals.raw import Floats, Joints
from osma_monitor.core.signals.transforms import Seven, Transform, TransformBuffer, with_unit_rotation

SECOND = 1e9

Part = Literal["base", "joints", "ee", "gripper", "contacts", "objects"]
#: The reader of robot files refuses unknown keys in every block.
_EXACT = {"extra": "forbid"}

Primitive = Literal["box", "sphere", "cylinder", "capsule"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One topic of the robot."""

    __pydantic_config__ = _EXACT

    part: Part
    topic: str
    type: str = ""  #: message type; empty: the usual one of that part (docs/topics.md)
    age_limit: float = 0.5  #: s, an older value is stale and its part unknown
    peak_hold: bool = True  #: keep the peak between two frames (contact force, effort, touch)
    frame: str = ""  #: frame of the values where the header does not say
    role: str = "bystander"  #: role of objects that come without one (pose and detection topics)
    category: str = ""  #: category of such objects
    deadline: float = 0.0  #: s in which the next message is due; 0: what the node's parameter says


@dataclass(frozen=True, slots=True)
class JointSpec:
    """One joint: canonical = (source - zero) * scale.

    ``span`` maps the source's -100..100 onto [lower, upper] rad instead.
    """

    __pydantic_config__ = _EXACT

    name: str
    source: str = ""  #: its name in the messages, if another
    zero: float = 0.0  #: in source units
    scale: float = 1.0  #: rad (or m) per source unit; its sign turns the axis
    span: tuple[float, float] | None = None  #: rad at -100 and at 100 (SO-101 calibration)
    torque_constant: float = 1.0  #: N m per unit of the reported effort (motor current: N m per A)
    arm: bool = True  #: counts in max_joint_torque

    @property
    def source_name(self) -> str:
        return self.source or self.name

    def affine(self) -> tuple[float, float]:
        """(zero, scale) with ``span`` resolved."""
        if self.span is None:
            return self.zero, self.scale
        low, high = self.span
        scale = (high - low) / 200.0
        return self.zero - (low + high) / 2.0 / scale, scale


@dataclass(frozen=True, slots=True)
class GripperSpec:
    """Gripper contact from the joint state, for robots without a grasp flag: closed less than commanded, pressing
    with some effort."""

    __pydantic_config__ = _EXACT

    joint: str
    least_effort: float = 0.0  #: N m or N, magnitude from which the fingers press on something
    open_above: float | None = None  #: rad or m: further open than this is no contact


@dataclass(frozen=True, slots=True)
class FixedTransform:
    """Where ``child`` sits in ``parent``."""

    __pydantic_config__ = _EXACT

    parent: str
    child: str
    translation: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)  #: quaternion x y z w of any length but 0

    def seven(self) -> Seven:
        """Translation (m) and unit quaternion x y z w."""
        return with_unit_rotation((*self.translation, *self.rotation))


@dataclass(frozen=True, slots=True)
class ForceSensor:
    """A force-torque sensor (geometry_msgs/WrenchStamped) as a contact of one body."""

    __pydantic_config__ = _EXACT

    topic: str
    frame: str
    body: str = "tool"
    role: str = "arm"  #: role of the robot side
    against: str = "furniture"  #: role of what it touches; a resultant wrench cannot tell
    payload_mass: float = 0.0  #: kg behind the sensor, its weight is taken off
    payload_com: tuple[float, float, float] = (0.0, 0.0, 0.0)  #: m, in the sensor frame
    age_limit: float = 0.2  #: s
    deadline: float = 0.0  #: s in which the next message is due; 0: what the node's parameter says


@dataclass(frozen=True, slots=True)
class Shape:
    """A collision primitive in a frame of the robot. ``size``: half sizes (box), radius, or radius and half length."""

    __pydantic_config__ = _EXACT

    primitive: Primitive
    size: tuple[float, ...]
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    orientation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    frame: str = "base"


@dataclass(frozen=True, slots=True)
class RobotModel:
    """One robot file."""

    __pydantic_config__ = _EXACT

    name: str
    description: str = ""
    frame: str = "odom"  #: the one frame that all poses are brought to
    inputs: tuple[InputSpec, ...] = ()
    primary: str = ""  #: topic whose messages make frames; empty: fixed rate
    rate: float = 20.0  #: Hz, where there is no primary topic
    joints: tuple[JointSpec, ...] = ()  #: empty: joints are taken as they come
    gripper: GripperSpec | None = None
    transforms: tuple[FixedTransform, ...] = ()
    transform_age: float = 0.5  #: s that a transform of /tf is held; older, what it leads to is unknown
    force_sensors: tuple[ForceSensor, ...] = ()
    footprint: tuple[Shape, ...] = ()  #: empty: no distance is derived from poses
    model_file: str = ""  #: URDF or MJCF (path beside the robot file) whose collision shapes join the footprint
    model_base: str = ""  #: its link or body whose frame the base's pose gives; empty: the root
    notes: tuple[str, ...] = ()  #: said at start; the reader adds what it left out of model_file
    command_topics: tuple[str, ...] = field(default=("cmd_vel",))

    def parts(self) -> tuple[str, ...]:
        """The raw parts that this robot gives."""
        given = {i.part for i in self.inputs} | ({"contacts"} if self.force_sensors else set())
        if self.gripper is not None:
            given.add("gripper")
        return tuple(sorted(given))

    def assembly(self) -> AssemblyConfig:
        """Hold-mode assembly of this robot's inputs."""
        inputs = [Input(i.part, i.topic, round(i.age_limit * SECOND), i.peak_hold) for i in self.inputs]
        inputs += [Input("contacts", s.topic, round(s.age_limit * SECOND)) for s in self.force_sensors]
        if self.gripper is not None and not any(i.part == "gripper" for i in self.inputs):
            source = next((i for i in self.inputs if i.part == "joints"), None)
            if source is not None:
                inputs.append(Input("gripper", source.topic + "#gripper", round(source.age_limit * SECOND)))
        return AssemblyConfig(tuple(inputs), "hold", primary=self.primary, period_ns=round(SECOND / self.rate))

    def buffer(self) -> TransformBuffer:
        """A transform buffer with the file's fixed transforms."""
        buffer = TransformBuffer(extrapolate_ns=round(self.transform_age * SECOND))
        for t in self.transforms:
            seven = np.array(t.seven())
            buffer.set_fixed(t.parent, t.child, Transform(seven[:3], seven[3:]))
        return buffer


#: Frames that robots share.
SHARED_FRAMES = ("map", "world", "earth")


def with_prefixes(robot: RobotModel, frames: str = "", joints: str = "") -> RobotModel:
    """The robot file for one of several equal robots.

    ``frames`` goes before every frame but the shared ones and those that begin with a slash, ``joints`` before the
    names of joints in messages; the joints' own names, which records show, stay. Raises UserError for joints of a file
    that lists none: there would be nothing to tell whose they are.
    """
    if joints and not robot.joints:
        raise UserError(
            f"robot {robot.name}: the prefix {joints!r} goes before joints of the robot file, which lists none"
        )

    def framed(name: str) -> str:
        shared = not name or name.startswith("/") or name in SHARED_FRAMES
        return name if shared else f"{frames}{name}"

    return replace(
        robot,
        frame=framed(robot.frame),
        inputs=tuple(replace(i, frame=framed(i.frame)) for i in robot.inputs),
        joints=tuple(replace(j, source=f"{joints}{j.source_name}") for j in robot.joints),
        transforms=tuple(replace(t, parent=framed(t.parent), child=framed(t.child)) for t in robot.transforms),
        force_sensors=tuple(replace(f, frame=framed(f.frame)) for f in robot.force_sensors),
    )


def _column(values: Sequence[float] | Floats, at: int) -> float:
    # a JointState array may be empty: that quantity is not measured
    return float(values[at]) if at < len(values) else float("nan")


def convert_joints(
    robot: RobotModel,
    name: Sequence[str],
    position: Sequence[float] | Floats,
    velocity: Sequence[float] | Floats,
    effort: Sequence[float] | Floats,
) -> Joints:
    """A JointState in any order and unit as the robot file's joints in theirs. What the message lacks is NaN, never
    0."""
    index = {n: i for i, n in reversed(list(enumerate(name)))}
    if not robot.joints:
        n = len(name)
        columns = [np.array([_column(v, i) for i in range(n)]) for v in (position, velocity, effort)]
        return Joints(tuple(name), *columns)
    rows = []
    for joint in robot.joints:
        at = index.get(joint.source_name, len(name))
        zero, scale = joint.affine()
        rows.append(
            (
                (_column(position, at) - zero) * scale,
                _column(velocity, at) * scale,
                _column(effort, at) * joint.torque_constant,
            )
        )
    p, v, e = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    return Joints(tuple(j.name for j in robot.joints), p, v, e)


def gripper_contact(spec: GripperSpec, joints: Joints) -> bool | None:
    """Whether the fingers press on something, by effort and opening; None where that is not known."""
    if spec.joint not in joints.name:
        return None
    i = joints.name.index(spec.joint)
    effort, position = float(joints.effort[i]), float(joints.position[i])
    if spec.open_above is not None:
        if np.isnan(position):
            return None
        if position > spec.open_above:
            return False
    return None if np.isnan(effort) else abs(effort) >= spec.least_effort


@dataclass(frozen=True, slots=True, eq=False)
class Tare:
    """Bias of a force sensor, measured on command while nothing touches it."""

    force: Floats = field(default_factory=lambda: np.zeros(3))


GRAVITY = np.array([0.0, 0.0, -9.81])


def contact_force(sensor: ForceSensor, measured: Floats, world_from_sensor: Transform, tare: Tare) -> Floats:
    """External force (3,) N in the world frame: the reading without bias and without the payload's weight.

    ``measured`` is the force (3,) in the sensor frame. The bias was taken with the payload mounted, after its weight
    was taken off.
    """
    weight = world_from_sensor.inverse().orientations(np.array([0.0, 0.0, 0.0, 1.0]))
    in_sensor = Transform(np.zeros(3), weight).points(sensor.payload_mass * GRAVITY)
    return Transform(np.zeros(3), world_from_sensor.rotation).points(measured - in_sensor - tare.force)


def measure_tare(sensor: ForceSensor, readings: Floats, world_from_sensor: Transform) -> Tare:
    """The bias from readings (n, 3) in N taken at rest. ValueError when there are none, or not all are known."""
    if len(readings) == 0:
        raise ValueError(f"no readings of {sensor.topic} to tare with")
    if not np.isfinite(readings).all():
        raise ValueError(f"readings of {sensor.topic} that are not finite: nothing to tare with")
    at_rest = contact_force(sensor, np.asarray(readings).mean(axis=0), world_from_sensor, Tare())
    back = world_from_sensor.inverse().rotation
    return Tare(Transform(np.zeros(3), back).points(at_rest))
