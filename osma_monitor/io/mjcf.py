"""Collision shapes of a robot's base from an MJCF file: those of the base body and of every body that is fixed to it.

MuJoCo reads the file where it is installed. Without it only what needs no compiler is read: primitives whose sizes and
poses stand in the file itself.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import Shape
from osma_monitor.core.signals.raw import Floats
from osma_monitor.core.signals.transforms import IDENTITY, Transform, multiply
from osma_monitor.io.urdf import make_shape
from osma_monitor.io.xml_tree import Element

_NEEDS_MUJOCO = "needs MuJoCo to be read: pip install 'osma-monitor[sim]'"
#: What only MuJoCo's compiler understands, by element and by attribute.
_COMPILED = ("default", "include", "frame", "replicate", "attach", "composite", "flexcomp")
_COMPILED_ATTRIBUTES = ("class", "childclass", "xyaxes", "zaxis", "axisangle")
_JOINTS = ("joint", "freejoint")


def mjcf_shapes(root: Element, base: str) -> tuple[list[Shape], list[str]]:
    """Shapes in the frame of the body ``base`` (empty: the only body of the world, or the one with a free joint), and
    what was left out and why. Raises UserError naming file and line.
    """
    if importlib.util.find_spec("mujoco") is not None:
        return _compiled(Path(root.file), base)
    return _plain(root, base)


# -- with MuJoCo -------------------------------------------------------------------------------------------------------


def _compiled(path: Path, base: str) -> tuple[list[Shape], list[str]]:
    import mujoco

    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        text = " ".join(str(error).split())
        line = re.search(r"\bline (\d+)", text)
        raise UserError(f"{path}{f':{line[1]}' if line else ''}: MuJoCo cannot read it: {text[:300]}") from error
    names = [model.body(i).name for i in range(model.nbody)]
    at = _compiled_base(model, names, base, path)
    kinds = {
        int(mujoco.mjtGeom.mjGEOM_SPHERE): ("sphere", 1),
        int(mujoco.mjtGeom.mjGEOM_CAPSULE): ("capsule", 2),
        int(mujoco.mjtGeom.mjGEOM_CYLINDER): ("cylinder", 2),
        int(mujoco.mjtGeom.mjGEOM_BOX): ("box", 3),
    }
    placed = {at: IDENTITY}
    moving: list[str] = []
    for body in range(at + 1, model.nbody):
        parent = int(model.body_parentid[body])
        if parent in placed and model.body_jntnum[body] == 0:
            placed[body] = placed[parent] @ _transform(model.body_pos[body], model.body_quat[body])
    shapes = []
    here = Element("geom", {}, str(path), 1)
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if not (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            continue
        if body not in placed:
            if _below(model, body, at) and names[body] not in moving:
                moving.append(names[body])
            continue
        place = placed[body] @ _transform(model.geom_pos[geom], model.geom_quat[geom])
        kind, count = kinds.get(int(model.geom_type[geom]), ("", 0))
        if kind:
            shapes.append(make_shape(here, kind, model.geom_size[geom][:count].tolist(), place))
        else:  # a mesh or an ellipsoid by its box
            centre, half = model.geom_aabb[geom][:3], np.maximum(model.geom_aabb[geom][3:], 1e-6)
            shapes.append(make_shape(here, "box", half.tolist(), Transform(place.points(centre), place.rotation)))
    return shapes, [f"bodies that joints move: {', '.join(moving)}"] if moving else []


def _compiled_base(model: Any, names: list[str], base: str, path: Path) -> int:
    if base:
        if base not in names:
            raise UserError(f"{path}:1: there is no body {base!r} (model_base); it has {', '.join(names[1:21])}")
        return names.index(base)
    first = [i for i in range(1, model.nbody) if model.body_parentid[i] == 0]
    free = [i for i in first if model.body_dofnum[i] == 6 and model.body_jntnum[i] == 1]
    for found in (first, free):
        if len(found) == 1:
            return found[0]
    raise UserError(
        f"{path}:1: which body is the base? Name it as model_base in the robot file: {', '.join(names[1:21])}"
    )


def _below(model: Any, body: int, base: int) -> bool:
    while body > base:
        body = int(model.body_parentid[body])
    return body == base


def _transform(position: Floats, wxyz: Floats) -> Transform:
    return Transform(np.array(position, np.float64), np.array([*wxyz[1:], wxyz[0]], np.float64))


# -- without -----------------------------------------------------------------------------------------------------------


def _plain(root: Element, base: str) -> tuple[list[Shape], list[str]]:
    _refuse_compiled(root)
    settings: dict[str, str] = {}
    for compiler in root.all("compiler"):  # a section may stand several times; they count as one
        settings |= compiler.attributes
        if settings.get("eulerseq", "xyz") != "xyz" or settings.get("coordinate", "local") != "local":
            raise compiler.error(f"these settings: {_NEEDS_MUJOCO}")
    degrees = settings.get("angle", "degree") == "degree"
    worlds = list(root.all("worldbody"))
    if not worlds:
        raise root.error("has no <worldbody>")
    start = _plain_base(root, [body for world in worlds for body in world.all("body")], base)
    shapes: list[Shape] = []
    left_out: list[str] = []
    moving: list[str] = []
    open_bodies = [(start, IDENTITY)]
    while open_bodies:
        body, placed = open_bodies.pop(0)
        for geom in body.all("geom"):
            shape = _plain_geom(geom, placed, degrees, left_out)
            if shape is not None:
                shapes.append(shape)
        for child in body.all("body"):
            if any(child.one(tag) is not None for tag in _JOINTS):
                moving.append(child.attributes.get("name", f"of line {child.line}"))
            else:
                open_bodies.append((child, placed @ _plain_pose(child, degrees)))
    if moving:
        left_out.append(f"bodies that joints move: {', '.join(moving)}")
    return shapes, left_out


def _refuse_compiled(element: Element) -> None:
    if element.tag in _COMPILED or any(name in element.attributes for name in _COMPILED_ATTRIBUTES):
        raise element.error(_NEEDS_MUJOCO)
    for child in element.children:
        _refuse_compiled(child)


def _plain_base(root: Element, first: list[Element], base: str) -> Element:
    if base:
        open_bodies = list(first)
        while open_bodies:
            body = open_bodies.pop()
            if body.attributes.get("name") == base:
                return body
            open_bodies += body.all("body")
        raise root.error(f"there is no body {base!r} (model_base)")
    free = [b for b in first if b.one("freejoint") or any(j.attributes.get("type") == "free" for j in b.all("joint"))]
    for found in (first, free):
        if len(found) == 1:
            return found[0]
    raise root.error("which body is the base? Name it as model_base in the robot file")


def _plain_pose(element: Element, degrees: bool) -> Transform:
    position = np.array(element.numbers("pos", 3, (0.0, 0.0, 0.0)))
    if "euler" in element.attributes:
        turns = np.array(element.numbers("euler", 3)) * (np.pi / 180.0 if degrees else 1.0) / 2.0
        s, c = np.sin(turns), np.cos(turns)
        first, second = np.array([s[0], 0.0, 0.0, c[0]]), np.array([0.0, s[1], 0.0, c[1]])
        third = np.array([0.0, 0.0, s[2], c[2]])
        return Transform(position, multiply(first, multiply(second, third)))  # about moving axes, in that order
    w, x, y, z = element.numbers("quat", 4, (1.0, 0.0, 0.0, 0.0))
    rotation = np.array([x, y, z, w])
    length = float(np.sqrt((rotation * rotation).sum()))
    if length == 0.0:
        raise element.error("quat is zero")
    return Transform(position, rotation / length)


def _plain_geom(geom: Element, placed: Transform, degrees: bool, left_out: list[str]) -> Shape | None:
    given = geom.attributes
    if given.get("contype", "1") == "0" and given.get("conaffinity", "1") == "0":
        return None
    kind = given.get("type", "sphere")
    if kind not in ("box", "sphere", "cylinder", "capsule"):
        if kind != "plane":
            left_out.append(f"geom of line {geom.line}: {kind} {_NEEDS_MUJOCO}")
        return None
    if "fromto" in given:
        if kind not in ("cylinder", "capsule"):
            raise geom.error(f"fromto of a {kind}: {_NEEDS_MUJOCO}")
        ends = np.array(geom.numbers("fromto", 6)).reshape(2, 3)
        along = ends[1] - ends[0]
        length = float(np.sqrt((along * along).sum()))
        if length == 0.0:
            raise geom.error("fromto has no length")
        pose = Transform(ends.mean(axis=0), _towards(along / length))
        size = [geom.numbers("size", (1, 2, 3))[0], length / 2.0]
    else:
        count = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2}[kind]
        pose = _plain_pose(geom, degrees)
        size = geom.numbers("size", tuple(range(count, 4)))[:count]
    return make_shape(geom, kind, size, placed @ pose)


def _towards(direction: Floats) -> Floats:
    """A rotation (x y z w) that takes the z axis to ``direction``."""
    half = np.array([-direction[1], direction[0], 0.0, 1.0 + direction[2]])
    length = float(np.sqrt((half * half).sum()))
    return half / length if length > 1e-9 else np.array([1.0, 0.0, 0.0, 0.0])
