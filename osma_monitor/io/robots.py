"""Reads robot files (config/robots/*.yaml) with exact errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import RobotModel
from osma_monitor.core.signals.geometry import Primitive as Geometry
from osma_monitor.io.robot_shapes import model_shapes
from osma_monitor.resources import config_path

_ADAPTER = TypeAdapter(RobotModel)


def robot_names() -> list[str]:
    """Names of the robot files that come with the package."""
    return sorted(p.stem for p in config_path("robots").glob("*.yaml"))


def load_robot(name_or_path: str | Path) -> RobotModel:
    """A robot file by name (``so101``) or path. UserError names the file, the line, the value and what was expected."""
    path = Path(name_or_path)
    if not path.suffix:
        path = config_path("robots") / f"{name_or_path}.yaml"
        if not path.is_file():
            raise UserError(
                f"no robot file {name_or_path!r}; known robots: {', '.join(robot_names())}, "
                "or give a path to a .yaml file"
            )
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    return parse_robot(text, str(path))


def parse_robot(text: str, file: str = "<text>") -> RobotModel:
    """Parse the YAML text of a robot file."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{file}{line}: not valid YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(data, dict):
        raise UserError(f"{file}:1: expected a mapping with the keys of a robot file (name, inputs, joints, ...)")
    try:
        model = _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(x) for x in first["loc"])
        given = "" if first["type"] in ("missing", "unexpected_keyword_argument") else f", got {first['input']!r}"
        raise UserError(f"{file}:{_line(tree, first['loc'])}: {where}: {first['msg']}{given}") from error
    topics = [i.topic for i in model.inputs] + [s.topic for s in model.force_sensors]
    if model.primary and model.primary not in topics:
        raise UserError(
            f"{file}:{_line(tree, ('primary',))}: primary: {model.primary!r} is none of the inputs' topics {topics}"
        )
    twice = sorted({t for t in topics if topics.count(t) > 1})
    if twice:
        raise UserError(f"{file}:{_line(tree, ('inputs',))}: inputs: topic {twice[0]!r} is named twice")
    names = [j.name for j in model.joints]
    if model.gripper is not None and names and model.gripper.joint not in names:
        raise UserError(
            f"{file}:{_line(tree, ('gripper',))}: gripper.joint: {model.gripper.joint!r} is none of the joints {names}"
        )
    for i, shape in enumerate(model.footprint):
        try:
            Geometry(shape.primitive, shape.size)
        except ValueError as error:
            raise UserError(f"{file}:{_line(tree, ('footprint', i))}: footprint: {error}") from error
    if model.model_file:
        shapes, left_out = model_shapes(Path(file).parent / model.model_file, model.model_base)
        notes = tuple(f"{model.model_file}: left out of the footprint: {text}" for text in left_out)
        return replace(model, footprint=(*model.footprint, *shapes), notes=(*model.notes, *notes))
    return model


def _line(node: Any, loc: tuple[Any, ...]) -> int:
    """Line of the deepest node on the path ``loc``."""
    line = node.start_mark.line + 1 if node is not None else 1
    for key in loc:
        child = None
        if isinstance(node, yaml.MappingNode):
            for k, v in node.value:
                if k.value == str(key):
                    line, child = k.start_mark.line + 1, v
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            child = node.value[key]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
