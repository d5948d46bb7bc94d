"""Surface distances from poses and shapes, for sources that track objects and do not measure how far they are.

Every primitive is taken as its shadow on the floor times its span of heights, rounded where it is round. For upright
primitives that is exact where they do not overlap, and the least way out where they do; a tilted one lies inside, so
the distance is never overestimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from osma_monitor.core.signals.raw import Floats, RawFrame

_UPRIGHT = 1.0 - 1e-12
_RIM = 24  #: corners that stand for the rim of a tilted cylinder, outside it


@dataclass(frozen=True, slots=True)
class Primitive:
    """A box, sphere, cylinder or capsule in the frame of its object or of the base, its axis along z."""

    kind: Literal["box", "sphere", "cylinder", "capsule"]
    size: tuple[float, ...]  #: m: half sizes x y z; radius; radius and half length (cylinder, capsule)
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)  #: m
    orientation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)  #: x y z w

    def __post_init__(self) -> None:
        needed = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2}[self.kind]
        if len(self.size) != needed or not all(math.isfinite(s) and s > 0.0 for s in self.size):
            raise ValueError(f"a {self.kind} has {needed} sizes above 0 m, found {list(self.size)}")


@dataclass(frozen=True, slots=True)
class _Solid:
    core: Floats  #: (n, 2) convex, counter-clockwise
    low: float
    high: float
    plane_radius: float = 0.0  #: added in the plane
    space_radius: float = 0.0  #: added in all directions


def with_distances(
    frame: RawFrame, footprint: Sequence[Primitive], shapes: Mapping[str, Sequence[Primitive]]
) -> RawFrame:
    """The frame with every distance filled in that is NaN and can be known; measured ones stay.

    Args:
        frame: with base and objects in one world frame.
        footprint: the robot, in the base frame.
        shapes: object id -> its primitives, in the object's frame. An object without shapes stays unknown.
    """
    objects, base = frame.objects, frame.base
    if objects is None or base is None or not footprint:
        return frame
    wanted = [i for i in np.flatnonzero(np.isnan(objects.distance)).tolist() if shapes.get(objects.id[i])]
    robot = _solids(footprint, base.position, base.orientation) if wanted else None
    if robot is None:
        return frame
    distance = objects.distance.copy()
    for i in wanted:
        solids = _solids(shapes[objects.id[i]], objects.position[i], objects.orientation[i])
        if solids is not None:
            distance[i] = min(_between(a, b) for a in robot for b in solids)
    distance.flags.writeable = False
    return replace(frame, objects=replace(objects, distance=distance))


def distance(
    a: Sequence[Primitive], pose_a: tuple[Floats, Floats], b: Sequence[Primitive], pose_b: tuple[Floats, Floats]
) -> float:
    """Signed surface distance in m of two bodies at poses (position, orientation x y z w); NaN for an unknown pose."""
    first, second = _solids(a, *pose_a), _solids(b, *pose_b)
    if first is None or second is None:
        return math.nan
    return min(_between(x, y) for x in first for y in second)


def shadow(primitive: Primitive) -> tuple[Floats, float, float, float, float]:
    """A primitive as its convex shadow (n, 2) on the floor, lowest and highest height, and what rounds it: a radius in
    the plane and one in space.
    """
    solid = _solid(primitive, np.array(primitive.position), rotation(np.array(primitive.orientation)))
    return solid.core, solid.low, solid.high, solid.plane_radius, solid.space_radius


def rotation(orientation: Floats) -> Floats:
    """Rotation matrix (3, 3) of a quaternion x y z w of any length but 0."""
    x, y, z, w = orientation / np.sqrt((orientation * orientation).sum())
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _solids(primitives: Sequence[Primitive], position: Floats, orientation: Floats) -> list[_Solid] | None:
    if not (np.isfinite(position).all() and np.isfinite(orientation).all() and orientation.any()):
        return None
    turn = rotation(orientation)
    return [
        _solid(p, position + turn @ np.array(p.position), turn @ rotation(np.array(p.orientation))) for p in primitives
    ]


def _solid(primitive: Primitive, centre: Floats, turn: Floats) -> _Solid:
    kind, size = primitive.kind, primitive.size
    if kind == "sphere":
        return _Solid(centre[None, :2], float(centre[2]), float(centre[2]), space_radius=size[0])
    if kind == "box":
        signs = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)])
        return _hull_of(centre + (signs * np.array(size)) @ turn.T)
    radius, half = size
    ends = np.array([centre - half * turn[:, 2], centre + half * turn[:, 2]])
    if kind == "capsule":
        return replace(_hull_of(ends), space_radius=radius)
    if abs(turn[2, 2]) >= _UPRIGHT:
        return _Solid(centre[None, :2], float(centre[2]) - half, float(centre[2]) + half, plane_radius=radius)
    angle = np.arange(_RIM) * (2.0 * np.pi / _RIM)
    rim = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (radius / np.cos(np.pi / _RIM)) @ turn[:, :2].T
    return _hull_of(np.concatenate([ends[0] + rim, ends[1] + rim]))


def _hull_of(points: Floats) -> _Solid:
    return _Solid(convex_hull(points[:, :2]), float(points[:, 2].min()), float(points[:, 2].max()))


def convex_hull(points: Floats) -> Floats:
    """Corners (m, 2) of the convex hull of points (n, 2), counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted(set(map(tuple, points.tolist())))
    if len(ordered) < 3:
        return np.array(ordered)

    def half(sequence: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
        chain: list[tuple[float, ...]] = []
        for p in sequence:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], p) <= 0.0:
                chain.pop()
            chain.append(p)
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def _turn(a: tuple[float, ...], b: tuple[float, ...], c: tuple[float, ...]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _between(a: _Solid, b: _Solid) -> float:
    flat = polygon_distance(a.core, b.core) - a.plane_radius - b.plane_radius
    gap = max(a.low - b.high, b.low - a.high)
    core = math.hypot(flat, gap) if flat > 0.0 and gap > 0.0 else max(flat, gap)
    return core - a.space_radius - b.space_radius


def polygon_distance(a: Floats, b: Floats) -> float:
    """Signed distance between convex polygons (n, 2) and (m, 2), counter-clockwise; one or two points are polygons too.

    Negative in overlap: the least way that moves them apart.
    """
    separation = max(_separation(a, b), _separation(b, a))
    if -math.inf < separation <= 0.0:
        return separation
    return min(_corner_to_edge(a, b), _corner_to_edge(b, a))


def _separation(a: Floats, b: Floats) -> float:
    """Widest gap between the polygons along a normal of an edge of ``a``; -inf for a point."""
    if len(a) < 2:
        return -math.inf
    edge = np.roll(a, -1, axis=0) - a
    normal = np.stack([edge[:, 1], -edge[:, 0]], axis=1)
    length = np.sqrt((normal * normal).sum(axis=1))
    real = length > 0.0  # corners closer than a root of the smallest number make no edge
    normal = normal[real] / length[real, None]
    gap = (normal @ b.T).min(axis=1) - (normal * a[real]).sum(axis=1)
    return float(gap.max(initial=-math.inf))


def _corner_to_edge(points: Floats, polygon: Floats) -> float:
    start = polygon
    along = np.roll(polygon, -1, axis=0) - start
    length = (along * along).sum(axis=1)
    offset = points[:, None, :] - start[None, :, :]
    t = np.clip((offset * along).sum(axis=2) / np.where(length > 0.0, length, 1.0), 0.0, 1.0)
    rest = offset - t[:, :, None] * along
    return float(np.sqrt((rest * rest).sum(axis=2)).min())
