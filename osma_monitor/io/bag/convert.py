"""Decoded messages to the values of the assembler's inputs: units, names, frames and sensors as the robot file says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from osma_monitor.core.robot import ForceSensor, Tare, contact_force, convert_joints, gripper_contact
from osma_monitor.core.signals.assembler import SECOND
from osma_monitor.core.signals.raw import ENVIRONMENT, Base, Contacts, EndEffector, Objects
from osma_monitor.core.signals.transforms import Transform, UnknownFrameError, transform_fault, with_unit_rotation
from osma_monitor.io.bag import messages as msg
from osma_monitor.io.bag.cdr import Decoded
from osma_monitor.io.bag.mapping import Plan, Source
from osma_monitor.io.bag.tf import IDENTITY, Seven, TransformTree, apply

GRIPPER = "#gripper"  #: appended to the topic of joint states that also tell whether the gripper holds something


class Converter:
    """Conversions of one bag.

    ``refuse(key, detail)`` counts what can't be used; ``target`` is the frame of all poses.
    """

    def __init__(self, plan: Plan, target: str, refuse: Callable[[str, str], None]) -> None:
        self.plan, self.target, self._refuse = plan, target, refuse
        robot = plan.robot
        self._tree = TransformTree(round(plan.mapping.transform_tolerance * SECOND))
        for t in robot.transforms if robot is not None else ():
            self._tree.set_fixed(t.parent, t.child, t.seven())

    def grips(self, source: Source) -> bool:
        """Whether these joint states stand in for a gripper's own topic."""
        robot = self.plan.robot
        return (
            robot is not None and robot.gripper is not None and not any(s.part == "gripper" for s in self.plan.sources)
        )

    def values(self, source: Source, stamp: int, message: Any) -> list[tuple[str, Any]]:
        """The values that one message gives, by input."""
        key, robot = source.topic.name, self.plan.robot
        if source.sensor is not None:
            return [(key, self._force(source.sensor, stamp, message))]
        if source.rule.field:
            return [(key, msg.number(message, source.rule.field) > source.rule.above)]
        if isinstance(message, Decoded):
            value = message.value
        else:
            convert = msg.CONVERSIONS[source.part].get(source.topic.type)
            if convert is None:
                raise msg.Malformed(f"type {source.topic.type} gives no {source.part}")
            value = convert(message)
        if source.part == "joints" and robot is not None:
            if robot.joints:
                value = convert_joints(robot, value.name, value.position, value.velocity, value.effort)
            if robot.gripper is not None and self.grips(source):
                held = gripper_contact(robot.gripper, value)
                return [(key, value), *([(key + GRIPPER, held)] if held is not None else [])]
        if source.part == "objects" and "" in value.role:
            value = replace(value, role=tuple(r or source.spec.role for r in value.role))
        if source.part == "objects" and source.spec.category and "" in value.category:
            value = replace(value, category=tuple(c or source.spec.category for c in value.category))
        if self.target:
            named = message.frame_id if isinstance(message, Decoded) else msg.frame_of(message)
            frame = named or source.spec.frame  # as live: the robot file speaks where the header does not
            value = self._moved(value, frame, stamp, source.topic.name)
        return [(key, value)]

    def _force(self, sensor: ForceSensor, stamp: int, message: Any) -> Contacts:
        """A force sensor as a contact of one body. A recording has no tare: its bias is what it is."""
        f = message.wrench.force
        frame = msg.frame_of(message) or sensor.frame
        target = self.plan.robot.frame if self.plan.robot is not None else self.target
        try:
            t = self._tree.lookup(target, frame, stamp)
        except UnknownFrameError as error:
            # without the sensor's direction its payload cannot be taken off: the force is not known
            self._refuse(f"{sensor.topic}: forces in an unknown frame", str(error))
            force = np.full(3, np.nan)
        else:
            placed = Transform(np.array(t[:3]), np.array(t[3:]))
            force = contact_force(sensor, np.array([f.x, f.y, f.z]), placed, Tare())
        return Contacts((sensor.body,), (ENVIRONMENT,), (sensor.role,), (sensor.against,), force.reshape(1, 3))

    def transforms(self, topic: str, message: Any) -> None:
        """Takes a message of /tf or /tf_static. As live: what /tf_static says holds for ever, whatever its stamp."""
        static = topic.rpartition("/")[2] == "tf_static"
        for parent, child, stamp, value in message.value if isinstance(message, Decoded) else msg.transforms(message):
            wrong = transform_fault(parent, child, value)
            if wrong:
                self._refuse(f"{topic}: {wrong}", f"{parent} to {child}")
            elif static or stamp == 0:
                self._tree.set_fixed(parent, child, with_unit_rotation(value))
            else:
                self._tree.set(parent, child, stamp, with_unit_rotation(value))

    def _moved(self, value: Any, frame: str, stamp: int, topic: str) -> Any:
        """``value`` in the one frame of this bag; its poses are unknown where no transform leads there."""
        if not isinstance(value, (Base, EndEffector, Contacts, Objects)) or not frame:
            return value
        try:
            to_target = self._tree.lookup(self.target, frame, stamp)
        except UnknownFrameError as error:
            self._refuse(f"{topic}: poses in an unknown frame", str(error))
            return _unknown(value)
        if to_target is IDENTITY:
            return value
        return _in_frame(value, to_target)


def _in_frame(value: Any, t: Seven) -> Any:
    if isinstance(value, Base):
        return Base(*apply(t, value.position, value.orientation), value.linear_velocity, value.angular_velocity)
    if isinstance(value, EndEffector):
        return EndEffector(*apply(t, value.position, value.orientation))
    many = Transform(np.array(t[:3]), np.array(t[3:]))
    if isinstance(value, Contacts):
        return replace(value, force=Transform(np.zeros(3), many.rotation).points(value.force))
    return replace(value, position=many.points(value.position), orientation=many.orientations(value.orientation))


def _unknown(value: Any) -> Any:
    if isinstance(value, Contacts):
        return value  # a force keeps its magnitude in any frame
    nowhere = replace(
        value, position=np.full_like(value.position, np.nan), orientation=np.full_like(value.orientation, np.nan)
    )
    return nowhere
