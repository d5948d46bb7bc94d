"""Collision shapes of a robot's base from a URDF: those of the base link and of every link that is fixed to it.

Links behind a joint that moves (an arm) are left out, wheels are not: a round shape that turns about its own axis stays
where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

from osma_monitor.core.robot import Shape
from osma_monitor.core.signals.raw import Floats
from osma_monitor.core.signals.transforms import IDENTITY, Transform, multiply
from osma_monitor.io.meshes import MeshError, bounding_box
from osma_monitor.io.xml_tree import Element

_JOINT_TYPES = ("fixed", "revolute", "continuous", "prismatic", "floating", "planar")
_ALIGNED = 1e-6


@dataclass(frozen=True)
class _Joint:
    parent: str
    child: str
    kind: str
    placed: Transform  #: of the child in the parent
    axis: Floats


@dataclass(frozen=True)
class _Place:
    """Where a link sits in the base, and the axis of the wheel that it is."""

    link: str
    placed: Transform
    wheel_axis: Floats | None = None


def urdf_shapes(root: Element, base: str) -> tuple[list[Shape], list[str]]:
    """Shapes in the frame of the link ``base`` (empty: the root link), and what was left out and why.

    Raises UserError naming file and line.
    """
    links = _links(root)
    joints = [_joint(element, links) for element in root.all("joint")]
    start = _base(root, links, joints, base)
    shapes: list[Shape] = []
    left_out: list[str] = []
    reached = set()
    for place in _places(start, joints):
        reached.add(place.link)
        for collision in links[place.link].all("collision"):
            placed = place.placed @ _origin(collision)
            shape = _shape(collision, placed, place.link, left_out)
            if shape is None:
                continue
            if place.wheel_axis is not None and not _turns_in_place(collision, shape, place.wheel_axis):
                left_out.append(f"link {place.link!r}: its joint moves it")
                continue
            shapes.append(shape)
    moving = [name for name, link in links.items() if name not in reached and link.one("collision") is not None]
    if moving:
        left_out.append(f"links that joints move: {', '.join(moving)}")
    return shapes, left_out


def _links(root: Element) -> dict[str, Element]:
    links: dict[str, Element] = {}
    for element in root.children:
        if ":" in element.tag:
            raise element.error("is a macro: expand the file first (xacro robot.urdf.xacro > robot.urdf)")
    for link in root.all("link"):
        name = link.needed("name")
        if name in links:
            raise link.error(f"link {name!r} is there twice")
        links[name] = link
    if not links:
        raise root.error("has no link")
    return links


def _joint(element: Element, links: dict[str, Element]) -> _Joint:
    kind = element.needed("type")
    if kind not in _JOINT_TYPES:
        raise element.error(f"type is {kind[:80]!r}, expected one of {', '.join(_JOINT_TYPES)}")
    ends = []
    for tag in ("parent", "child"):
        end = element.one(tag)
        if end is None:
            raise element.error(f"has no <{tag}>")
        if end.needed("link") not in links:
            raise end.error(f"there is no link {end.attributes['link'][:80]!r}")
        ends.append(end.attributes["link"])
    axis = element.one("axis")
    direction = [1.0, 0.0, 0.0] if axis is None else axis.numbers("xyz", 3)
    return _Joint(ends[0], ends[1], kind, _origin(element), np.array(direction))


def _base(root: Element, links: dict[str, Element], joints: list[_Joint], base: str) -> str:
    if base:
        if base not in links:
            raise root.error(f"there is no link {base!r} (model_base); it has {', '.join(list(links)[:20])}")
        return base
    children = {j.child for j in joints}
    roots = [name for name in links if name not in children]
    if len(roots) != 1:
        what = "no root link" if not roots else f"several root links ({', '.join(roots[:20])})"
        raise root.error(f"{what}: name the base's link as model_base in the robot file")
    return roots[0]


def _places(base: str, joints: list[_Joint]) -> Iterator[_Place]:
    """The base, what is fixed to it up and down the tree, and what turns on it."""
    edges: dict[str, list[tuple[str, Transform, _Joint]]] = {}
    for joint in joints:
        edges.setdefault(joint.parent, []).append((joint.child, joint.placed, joint))
        edges.setdefault(joint.child, []).append((joint.parent, joint.placed.inverse(), joint))
    open_places, seen = [_Place(base, IDENTITY)], {base}
    while open_places:
        place = open_places.pop(0)
        yield place
        for link, placed, joint in edges.get(place.link, ()):
            if link in seen:
                continue
            there = place.placed @ placed
            if joint.kind == "fixed":
                seen.add(link)
                open_places.append(_Place(link, there))
            elif joint.kind == "continuous" and joint.child == link:
                seen.add(link)
                yield _Place(link, there, joint.axis)


def _turns_in_place(collision: Element, shape: Shape, axis: Floats) -> bool:
    """Whether turning the link about ``axis`` (in the link's frame) leaves its shape where it is."""
    placed = _origin(collision)
    along = axis / (np.sqrt((axis * axis).sum()) or 1.0)
    aside = np.cross(placed.translation, along)
    centred = float(np.abs(aside).max()) < _ALIGNED
    own = Transform(np.zeros(3), placed.rotation).points(np.array([0.0, 0.0, 1.0]))
    aligned = float(np.abs(np.cross(own, along)).max()) < _ALIGNED
    return centred and (shape.primitive == "sphere" or (shape.primitive in ("cylinder", "capsule") and aligned))


def _origin(element: Element) -> Transform:
    origin = element.one("origin")
    if origin is None:
        return IDENTITY
    xyz = origin.numbers("xyz", 3, (0.0, 0.0, 0.0))
    return Transform(np.array(xyz), from_rpy(origin.numbers("rpy", 3, (0.0, 0.0, 0.0))))


def from_rpy(rpy: list[float]) -> Floats:
    """Quaternion x y z w of roll, pitch and yaw about fixed axes, in that order."""
    half = np.array(rpy) / 2.0
    s, c = np.sin(half), np.cos(half)
    roll, pitch, yaw = np.array([s[0], 0, 0, c[0]]), np.array([0, s[1], 0, c[1]]), np.array([0, 0, s[2], c[2]])
    return multiply(yaw, multiply(pitch, roll))


def _shape(collision: Element, placed: Transform, link: str, left_out: list[str]) -> Shape | None:
    geometry = collision.one("geometry")
    if geometry is None or len(geometry.children) != 1:
        raise (geometry or collision).error("expected a <geometry> with one shape")
    item = geometry.children[0]
    if item.tag == "box":
        return make_shape(item, "box", [s / 2.0 for s in item.numbers("size", 3)], placed)
    if item.tag == "sphere":
        return make_shape(item, "sphere", item.numbers("radius", 1), placed)
    if item.tag == "cylinder":
        size = [*item.numbers("radius", 1), item.numbers("length", 1)[0] / 2.0]
        return make_shape(item, "cylinder", size, placed)
    if item.tag == "capsule":
        size = [*item.numbers("radius", 1), item.numbers("length", 1)[0] / 2.0]
        return make_shape(item, "capsule", size, placed)
    if item.tag != "mesh":
        raise item.error("is no shape of a URDF: expected box, sphere, cylinder, capsule or mesh")
    name = item.needed("filename")
    scale = np.array(item.numbers("scale", 3, (1.0, 1.0, 1.0)))
    try:
        low, high = bounding_box(_resolve(name, Path(item.file).parent))
    except MeshError as error:
        left_out.append(f"link {link!r}: mesh {name[:200]}: {error}")
        return None
    ends = np.array([low * scale, high * scale])
    half = np.maximum((ends.max(axis=0) - ends.min(axis=0)) / 2.0, 1e-6)  # a flat mesh is a thin box
    return make_shape(item, "box", half.tolist(), Transform(placed.points(ends.mean(axis=0)), placed.rotation))


def make_shape(element: Element, primitive: str, size: list[float], placed: Transform) -> Shape:
    """A shape of the base. Raises UserError on sizes that are not positive."""
    if not all(s > 0.0 for s in size):
        raise element.error(f"sizes must be above 0 m, found {' '.join(f'{s:g}' for s in size)}")
    x, y, z = placed.translation.tolist()
    qx, qy, qz, qw = placed.rotation.tolist()
    return Shape(primitive, tuple(size), (x, y, z), (qx, qy, qz, qw))  # type: ignore[arg-type]


def _resolve(name: str, folder: Path) -> Path:
    """The file of a mesh: a path, file:// or package://, whose package is looked for among those of ROS and above."""
    url = urlparse(name)
    if url.scheme not in ("", "file", "package"):
        raise MeshError(f"{url.scheme}:// is not read")
    if url.scheme == "file":
        return Path(unquote(url.path))
    if url.scheme == "":
        return folder / name
    package, inside = url.netloc, unquote(url.path).lstrip("/")
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    candidates = [p / "share" / package / inside for p in prefixes]
    candidates += [p / inside for p in folder.resolve().parents if p.name == package]
    candidates += [p / package / inside for p in folder.resolve().parents]
    found = next((c for c in candidates if c.is_file()), None)
    if found is None:
        raise MeshError(f"package {package} is not found: source its workspace")
    return found
