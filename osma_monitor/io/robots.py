"""Reads robot files (config/robots/*.yaml) with exact errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import ForceSensor, InputSpec, RobotModel
from osma_monitor.core.signals.geometry import Primitive as Geometry
from osma_monitor.io import yaml_files
from osma_monitor.io.faults import Place
from osma_monitor.io.obstacles import BASE_FRAMES
from osma_monitor.io.robot_shapes import model_shapes
from osma_monitor.resources import config_path

#: Names that ROS takes (design.ros2.org/articles/topic_and_service_names.html), absolute, relative or private.
_TOPIC = re.compile(r"(/|~/)?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")


def robot_names() -> list[str]:
    """Names of the robot files that come with the package."""
    return sorted(p.stem for p in config_path("robots").glob("*.yaml"))


def load_robot(name_or_path: str | Path) -> RobotModel:
    """A robot file by name (``so101``) or path. UserError names the file, the line, the value and what was expected."""
    path = Path(name_or_path)
    if not path.suffix:
        path = config_path("robots") / f"{name_or_path}.yaml"
        if not path.is_file():
            near = difflib.get_close_matches(str(name_or_path), robot_names(), 1)
            raise UserError(
                f"no robot file {str(name_or_path)!r}; {f'did you mean {near[0]}? ' if near else ''}known robots: "
                f"{', '.join(robot_names())}, or give a path to a .yaml file"
            )
    return parse_robot(yaml_files.read(path, "robot file"), str(path))


def parse_robot(text: str, file: str = "<text>") -> RobotModel:
    """Parse the YAML text of a robot file."""
    model = yaml_files.parse(text, RobotModel, "robot file", file, rules)
    elsewhere = sorted({shape.frame for shape in model.footprint if shape.frame not in BASE_FRAMES})
    if elsewhere:
        frames = ", ".join(map(repr, elsewhere))
        note = f"shapes of frame {frames} are left out of the footprint: only those of the base count"
        model = replace(model, notes=(*model.notes, note))
    if model.model_file:
        shapes, left_out = model_shapes(Path(file).parent / model.model_file, model.model_base)
        notes = tuple(f"{model.model_file}: left out of the footprint: {text}" for text in left_out)
        return replace(model, footprint=(*model.footprint, *shapes), notes=(*model.notes, *notes))
    return model


def rules(model: RobotModel) -> Iterator[tuple[Place, str]]:
    """What a robot file must obey beyond its types."""
    if model.rate <= 0:
        yield ("rate",), f"expected Hz above 0, got {model.rate:g}"
    if model.transform_age < 0:
        yield ("transform_age",), f"expected seconds of at least 0, got {model.transform_age:g}"
    yield from _topic_rules(model)
    yield from _joint_rules(model)
    for i, t in enumerate(model.transforms):
        if not any(t.rotation):
            yield ("transforms", i, "rotation"), "is all zeros; expected a quaternion x, y, z, w, such as [0, 0, 0, 1]"
        if any(t.child == other.child for other in model.transforms[:i]):
            yield ("transforms", i, "child"), f"{t.child!r} has two parents"
    for i, shape in enumerate(model.footprint):
        try:
            Geometry(shape.primitive, shape.size)
        except ValueError as error:
            yield ("footprint", i, "size"), str(error)


def _topic_rules(model: RobotModel) -> Iterator[tuple[Place, str]]:
    listed: list[tuple[str, int, InputSpec | ForceSensor]] = [("inputs", i, s) for i, s in enumerate(model.inputs)]
    listed += [("force_sensors", i, s) for i, s in enumerate(model.force_sensors)]
    topics = [spec.topic for _, _, spec in listed]
    for number, (key, i, spec) in enumerate(listed):
        if spec.topic in topics[:number]:
            yield (key, i, "topic"), f"topic {spec.topic!r} is named twice"
        yield from _name_rule((key, i, "topic"), spec.topic)
        if spec.age_limit <= 0:
            yield (key, i, "age_limit"), f"expected seconds above 0, got {spec.age_limit:g}"
        if spec.deadline < 0:
            yield (key, i, "deadline"), f"expected seconds of at least 0, got {spec.deadline:g}"
        if isinstance(spec, ForceSensor) and spec.payload_mass < 0:
            yield (key, i, "payload_mass"), f"expected kg of at least 0, got {spec.payload_mass:g}"
    for i, topic in enumerate(model.command_topics):
        yield from _name_rule(("command_topics", i), topic)
    if model.primary and model.primary not in topics:
        yield ("primary",), f"{model.primary!r} is none of the inputs' topics {', '.join(topics) or '(there are none)'}"


def _name_rule(place: Place, topic: str) -> Iterator[tuple[Place, str]]:
    if not _TOPIC.fullmatch(topic):
        yield place, f"{topic!r} is no ROS topic name; expected letters, digits, _ and /, such as /arm/joint_states"


def _joint_rules(model: RobotModel) -> Iterator[tuple[Place, str]]:
    names, sources = [j.name for j in model.joints], [j.source_name for j in model.joints]
    for i, joint in enumerate(model.joints):
        if joint.name in names[:i]:
            yield ("joints", i, "name"), f"joint {joint.name!r} is named twice"
        elif joint.source_name in sources[:i]:
            yield ("joints", i), f"{joint.source_name!r} is the source of two joints"
        if joint.scale == 0:
            yield ("joints", i, "scale"), "expected rad (or m) per source unit, got 0"
        if joint.span is not None and joint.span[0] == joint.span[1]:
            yield ("joints", i, "span"), f"expected two different angles, got {joint.span[0]:g} twice"
    gripper = model.gripper
    if gripper is not None and names and gripper.joint not in names:
        yield ("gripper", "joint"), f"{gripper.joint!r} is none of the joints {', '.join(names)}"
    if gripper is not None and gripper.least_effort < 0:
        yield ("gripper", "least_effort"), f"expected a number of at least 0, got {gripper.least_effort:g}"
