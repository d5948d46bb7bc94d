"""A robot file's inputs as topics: message types, joint names and units, frames, force sensors.

Conversions of messages are those of bags (io/bag/messages.py), so a recording of the same topics gives the same parts.
"""

from __future__ import annotations

import importlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from geometry_msgs.msg import WrenchStamped
from rclpy.node import Node

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import (
    ForceSensor,
    InputSpec,
    RobotModel,
    Tare,
    contact_force,
    convert_joints,
    gripper_contact,
    measure_tare,
)
from osma_monitor.core.signals.geometry import Primitive, with_distances
from osma_monitor.core.signals.raw import ENVIRONMENT, Base, Contacts, EndEffector, Floats, Objects, RawFrame
from osma_monitor.core.signals.transforms import (
    IDENTITY,
    StaleTransformError,
    Transform,
    UnknownFrameError,
    some_names,
    transform_fault,
    with_unit_rotation,
)
from osma_monitor.io.bag.cdr import Decoded
from osma_monitor.io.bag.messages import CONVERSIONS, object_shapes
from osma_monitor.io.obstacles import BASE_FRAMES, ObstacleField, ObstacleMap, footprint_solids
from osma_monitor.msg import ObjectShapes
from osma_monitor.ros import topics
from osma_monitor.ros.conversions import to_ns
from osma_monitor.ros.inputs import ReceiverConfig, TopicInput, check_size
from osma_monitor.ros.text import printable
from osma_monitor.srv import Tare as TareService

Refuse = Callable[[str, str, str], None]  #: topic, kind, detail
_READINGS = 20_000  #: of a force sensor that are kept to tare with: 10 s at 2 kHz
_NAMED = 32  #: frames that counts and diagnostics name; the others are counted together


class _Reading(NamedTuple):
    """What a force sensor measured."""

    received: float  #: s of the monotonic clock
    stamp_ns: int
    frame: str  #: of the sensor, as its message or the robot file says
    force: Floats  #: (3,) N


class RobotInputs:
    """Subscribable inputs of a robot, its transforms, and its force sensors."""

    def __init__(
        self,
        node: Node,
        robot: RobotModel,
        refuse: Refuse,
        obstacles: ObstacleMap | None = None,
        *,
        max_elements: int = ReceiverConfig.max_elements,
        max_text: int = ReceiverConfig.max_text,
    ) -> None:
        """``max_elements`` bounds shapes, frames and transforms, ``max_text`` their names: as for other messages."""
        self.robot = robot
        self._max_elements, self._max_text = max_elements, max_text
        self._field = ObstacleField(obstacles, footprint_solids(robot.footprint)) if obstacles is not None else None
        self._footprint = [
            Primitive(s.primitive, s.size, s.position, s.orientation) for s in robot.footprint if s.frame in BASE_FRAMES
        ]
        self._shapes: dict[str, Sequence[Primitive]] = {}
        self._node, self._refuse = node, refuse
        self.buffer = robot.buffer()
        self._tares = {s.topic: Tare() for s in robot.force_sensors}
        self._readings: dict[str, deque[_Reading]] = {s.topic: deque(maxlen=_READINGS) for s in robot.force_sensors}
        self._owned: list[Any] = []
        self._transforms, self._transforms_note = 0, ""
        self._named: set[str] = set()
        self._gripper_topic = ""
        if robot.gripper is not None and not any(i.part == "gripper" for i in robot.inputs):
            self._gripper_topic = next((i.topic for i in robot.inputs if i.part == "joints"), "")

    def topic_inputs(self) -> tuple[TopicInput, ...]:
        """What to subscribe to. Raises UserError when a message type of the file is not there or gives no such part."""
        found = [self._input(spec) for spec in self.robot.inputs]
        found += [self._force_input(sensor) for sensor in self.robot.force_sensors]
        return tuple(found)

    def complete(self, frame: RawFrame) -> RawFrame:
        """Distances that nobody measured, from the footprint and the objects' shapes; obstacles of the map."""
        if self._shapes:
            frame = with_distances(frame, self._footprint, self._shapes)
        return self._field.add([frame])[0] if self._field is not None else frame

    def listen(self) -> None:
        """Subscribe to what frames are made with: shapes, /tf where its message type is installed; offer to tare."""
        if self._footprint:
            self._owned.append(
                self._node.create_subscription(ObjectShapes, topics.OBJECT_SHAPES, self.take_shapes, topics.latched())
            )
        self._listen_to_transforms()
        if self.robot.force_sensors:
            self._service = self._node.create_service(TareService, topics.TARE, self._on_tare)

    def _listen_to_transforms(self) -> None:
        try:
            transform_type = message_type("tf2_msgs/msg/TFMessage")
        except UserError:
            self._transforms_note = "not read: tf2_msgs is not installed; the robot file's fixed transforms count alone"
            return
        for topic, qos, fixed in (
            (topics.TF, topics.best_effort(), False),
            (topics.TF_STATIC, topics.latched(topics.DEPTH), True),
        ):
            self._owned.append(
                self._node.create_subscription(
                    transform_type, topic, lambda m, f=fixed: self.take_transforms(m, f), qos
                )
            )

    def notes(self) -> dict[str, str]:
        """For the diagnostics: which frames are known, what the robot's outline is."""
        shapes = "; ".join((f"{len(self.robot.footprint)} shapes", *self.robot.notes))
        return {
            topics.TF: self._transforms_note or f"{self._transforms} transforms",
            "frames": some_names(self.buffer.frames),
            "footprint": shapes,
        }

    def destroy(self) -> None:
        """Stop listening."""
        for subscription in self._owned:
            self._node.destroy_subscription(subscription)
        self._owned.clear()
        if self.robot.force_sensors:
            self._node.destroy_service(self._service)

    def take_shapes(self, message: ObjectShapes) -> None:
        """Collision shapes of objects; those of other objects stay."""
        try:
            check_size(message, self._max_elements, self._max_text)
            shapes = object_shapes(message)
        except ValueError as error:
            self._refuse(topics.OBJECT_SHAPES, "malformed", str(error))
            return
        if len(self._shapes.keys() | shapes.keys()) > self._max_elements:
            self._refuse(topics.OBJECT_SHAPES, "too many objects", f"more than {self._max_elements}")
            return
        self._shapes.update(shapes)

    def take_transforms(self, message: Any, fixed: bool) -> None:
        """A tf2_msgs/TFMessage. ``fixed``: of /tf_static; a stamp of zero means the same."""
        topic = topics.TF_STATIC if fixed else topics.TF
        if len(message.transforms) > self._max_elements:
            self._refuse(topic, "malformed", f"transforms has {len(message.transforms)} elements")
            return
        for item in message.transforms:
            parent, child = item.header.frame_id, item.child_frame_id
            p, q = item.transform.translation, item.transform.rotation
            seven = (p.x, p.y, p.z, q.x, q.y, q.z, q.w)
            wrong = self._too_much(parent, child) or transform_fault(parent, child, seven)
            if wrong:
                self._refuse(topic, wrong, f"{parent} to {child}")
                continue
            self._transforms += 1
            numbers = np.array(with_unit_rotation(seven))
            transform = Transform(numbers[:3], numbers[3:])
            stamp_ns = to_ns(item.header.stamp)
            if fixed or stamp_ns == 0:
                self.buffer.set_fixed(parent, child, transform)
            else:
                self.buffer.set(parent, child, stamp_ns, transform)

    def _too_much(self, parent: str, child: str) -> str:
        if max(len(parent), len(child)) > self._max_text:
            return "name too long"
        if len(self.buffer) >= self._max_elements and child not in self.buffer:
            return "too many frames"
        return ""

    # -- inputs --------------------------------------------------------------------------------------------------

    def _input(self, spec: InputSpec) -> TopicInput:
        known = CONVERSIONS[spec.part]
        type_name = spec.type or next(iter(known))
        if type_name not in known:
            raise UserError(
                f"robot {self.robot.name}: topic {spec.topic}: {type_name} gives no {spec.part}; "
                f"expected {', '.join(known)}"
            )

        def place(sample: Decoded) -> list[tuple[str, Any]]:
            value = sample.value
            if spec.part == "joints":
                if self.robot.joints:
                    value = convert_joints(self.robot, value.name, value.position, value.velocity, value.effort)
                placed = [(spec.topic, value)]
                if spec.topic == self._gripper_topic and self.robot.gripper is not None:
                    held = gripper_contact(self.robot.gripper, value)
                    if held is not None:
                        placed.append((f"{spec.topic}#gripper", held))
                return placed
            if spec.part == "objects":
                value = _with_roles(value, spec)
            return [(spec.topic, self._in_robot_frame(value, sample, spec.frame, spec.topic))]

        return TopicInput(spec.part, spec.topic, message_type(type_name), known[type_name], place, spec.deadline)

    def _in_robot_frame(self, value: Any, sample: Decoded, named: str, topic: str) -> Any:
        """Poses and forces in the robot file's one frame; poses in a frame that is not known are unknown."""
        frame = sample.frame_id or named
        if not frame or frame == self.robot.frame or not isinstance(value, (Base, EndEffector, Contacts, Objects)):
            return value
        try:
            move = self.buffer.lookup(self.robot.frame, frame, sample.stamp_ns)
        except UnknownFrameError as error:
            self._refuse_frame(topic, frame, error)
            return _without_pose(value)
        if move is IDENTITY:
            return value
        if isinstance(value, Contacts):
            return replace(value, force=Transform(np.zeros(3), move.rotation).points(value.force))
        return replace(value, position=move.points(value.position), orientation=move.orientations(value.orientation))

    def _refuse_frame(self, topic: str, frame: str, error: UnknownFrameError) -> None:
        kind = "stale transform of frame" if isinstance(error, StaleTransformError) else "unknown frame"
        if frame not in self._named and len(self._named) >= _NAMED:
            self._refuse(topic, f"{kind}, more than {_NAMED} names", str(error))
            return
        self._named.add(frame)
        self._refuse(topic, f"{kind} {frame[:256]!r}", str(error))

    def _force_input(self, sensor: ForceSensor) -> TopicInput:
        def convert(message: WrenchStamped) -> Floats:
            f = message.wrench.force
            return np.array([f.x, f.y, f.z])

        def place(sample: Decoded) -> list[tuple[str, Any]]:
            measured, stamp_ns = sample.value, sample.stamp_ns
            frame = sample.frame_id or sensor.frame
            self._readings[sensor.topic].append(_Reading(time.monotonic(), stamp_ns, frame, measured))
            try:
                placed = self.buffer.lookup(self.robot.frame, frame, stamp_ns)
            except UnknownFrameError as error:
                # without the sensor's direction its payload cannot be taken off: the force is not known
                self._refuse_frame(sensor.topic, frame, error)
                force = np.full(3, np.nan)
            else:
                force = contact_force(sensor, measured, placed, self._tares[sensor.topic])
            pair = ((sensor.body,), (ENVIRONMENT,), (sensor.role,), (sensor.against,))
            return [(sensor.topic, Contacts(*pair, force.reshape(1, 3)))]

        return TopicInput("contacts", sensor.topic, WrenchStamped, convert, place, sensor.deadline)

    # -- tare ----------------------------------------------------------------------------------------------------

    def _on_tare(self, request: TareService.Request, response: TareService.Response) -> TareService.Response:
        seconds = request.seconds if 0.0 < request.seconds < math.inf else 1.0
        try:
            tares = {sensor.topic: self._tare(sensor, seconds) for sensor in self.robot.force_sensors}
        except (ValueError, UnknownFrameError) as error:
            response.message = printable(str(error), 1000)
            return response
        self._tares.update(tares)  # of all sensors or of none
        response.success, response.sensors = True, list(tares)
        response.bias = [component for tare in tares.values() for component in tare.force.tolist()]
        response.message = f"{len(tares)} sensors tared over {seconds:g} s"
        return response

    def _tare(self, sensor: ForceSensor, seconds: float) -> Tare:
        """Bias of a sensor from what came in the last ``seconds``. Raises ValueError or UnknownFrameError."""
        since = time.monotonic() - seconds
        recent = [r for r in self._readings[sensor.topic] if r.received >= since]
        if not recent:
            raise ValueError(f"no readings of {sensor.topic} in the last {seconds:g} s to tare with")
        newest = recent[-1]
        placed = self.buffer.lookup(self.robot.frame, newest.frame, newest.stamp_ns)
        return measure_tare(sensor, np.array([r.force for r in recent]), placed)


def message_type(name: str) -> type:
    """The Python class of a message type such as ``nav_msgs/msg/Odometry``. Raises UserError when it is not there."""
    package, _, message = name.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), message)
    except (ImportError, AttributeError) as error:
        raise UserError(f"message type {name} is not installed ({error}): install its package {package}") from error


def _with_roles(value: Objects, spec: InputSpec) -> Objects:
    """Objects that come without role or category get those of the robot file."""
    if all(value.role) and all(value.category):
        return value
    role = tuple(r or spec.role for r in value.role)
    category = tuple(c or spec.category for c in value.category)
    return replace(value, role=role, category=category)


def _without_pose(value: Any) -> Any:
    if isinstance(value, Contacts):
        return value  # a force keeps its magnitude in any frame
    nan = {name: np.full_like(getattr(value, name), np.nan) for name in ("position", "orientation")}
    return replace(value, **nan)
