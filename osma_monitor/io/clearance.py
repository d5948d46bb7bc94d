"""Signed surface distance between a mobile base and obstacles, from poses and upright primitives alone.

For recordings that hold odometry and nothing else: where obstacles stood comes from a small YAML file, the robot's
outline from its robot file. Shapes are upright (turned about z only), so the distance splits into plane and height:
exact for boxes, cylinders, spheres and capsules that do not overlap, and the least way out where they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.robot import Primitive
from osma_monitor.core.signals.kinematics import yaw
from osma_monitor.core.signals.raw import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Solid:
    """An upright convex solid: a core polygon in the plane and a height span, both rounded.

    A sphere is a point with a radius in space, a cylinder a point with a radius in the plane alone.
    """

    core: Floats  #: (n, 2) m, counter-clockwise; one point or two for round things
    low: float  #: m
    high: float  #: m
    plane_radius: float = 0.0  #: m, added in the plane
    space_radius: float = 0.0  #: m, added in all directions


def solid(
    primitive: Primitive, size: Sequence[float], position: Sequence[float] = (0.0, 0.0, 0.0), turn: float = 0.0
) -> Solid:
    """The solid of a primitive at ``position`` (m), turned by ``turn`` (rad) about z.

    ``size`` in m: half sizes x y z (box), radius (sphere), radius and half length (cylinder, capsule; axis along z).
    Raises ValueError when there are too few sizes or one is not positive.
    """
    needed = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2}[primitive]
    if len(size) < needed or not all(s > 0 for s in size[:needed]):
        raise ValueError(f"a {primitive} needs {needed} positive sizes in m, got {list(size)}")
    x, y, z = (float(v) for v in position)
    centre = np.array([[x, y]])
    if primitive == "box":
        hx, hy, hz = (float(s) for s in size[:3])
        c, s = np.cos(turn), np.sin(turn)
        corners = np.array([[hx, hy], [-hx, hy], [-hx, -hy], [hx, -hy]]) @ np.array([[c, s], [-s, c]])
        return Solid(corners + centre, z - hz, z + hz)
    if primitive == "sphere":
        return Solid(centre, z, z, space_radius=float(size[0]))
    radius, half = float(size[0]), float(size[1])
    if primitive == "cylinder":
        return Solid(centre, z - half, z + half, plane_radius=radius)
    return Solid(centre, z - half, z + half, space_radius=radius)


def distances(
    robot: Sequence[Solid], position: Floats, orientation: Floats, obstacles: Sequence[Sequence[Solid]]
) -> Floats:
    """Signed surface distance (T, number of obstacles) in m between the robot at each pose and each obstacle.

    ``robot``: solids in the base frame. ``position`` (T, 3) m and ``orientation`` (T, 4) x y z w of the base in the
    frame of the obstacles; each obstacle is one solid or several. NaN where the pose is not known.
    """
    turn = np.array([yaw(q) for q in orientation])
    result = np.full((len(position), len(obstacles)), np.nan)
    for column, parts in enumerate(obstacles):
        pairs = [_pair(mine, position, turn, other) for mine in robot for other in parts]
        result[:, column] = np.min(pairs, axis=0)
    return result


def _pair(mine: Solid, position: Floats, turn: Floats, other: Solid) -> Floats:
    c, s = np.cos(turn)[:, None], np.sin(turn)[:, None]
    core = np.stack(
        [
            position[:, 0:1] + c * mine.core[:, 0] - s * mine.core[:, 1],
            position[:, 1:2] + s * mine.core[:, 0] + c * mine.core[:, 1],
        ],
        axis=-1,
    )
    flat = _plane(core, other.core) - mine.plane_radius - other.plane_radius
    z = position[:, 2]
    gap = np.maximum(z + mine.low - other.high, other.low - (z + mine.high))
    both = (flat > 0) & (gap > 0)
    distance = np.where(both, np.sqrt(flat * flat + gap * gap), np.maximum(flat, gap))
    total: Floats = distance - mine.space_radius - other.space_radius
    return total


def _plane(a: Floats, b: Floats) -> Floats:
    """Signed distance (T,) between convex polygons ``a`` (T, n, 2) and ``b`` (m, 2); one or two points are polygons
    too."""
    apart = np.minimum(_points_to_edges(a, b[None]), _points_to_edges(np.broadcast_to(b, (len(a), *b.shape)), a))
    separation = np.full(len(a), -np.inf)
    for polygon, other in ((a, b[None]), (b[None], a)):
        if polygon.shape[1] < 3:
            continue
        edge = np.roll(polygon, -1, axis=1) - polygon
        normal = np.stack([edge[..., 1], -edge[..., 0]], axis=-1)
        normal = normal / np.sqrt((normal * normal).sum(axis=-1, keepdims=True))
        own = (normal * polygon).sum(axis=-1)
        reach = (normal[:, :, None, :] * other[:, None, :, :]).sum(axis=-1).min(axis=2)
        separation = np.maximum(separation, (reach - own).max(axis=1))
    overlap: NDArray[np.bool_] = (separation <= 0) & (separation > -np.inf)
    return np.where(overlap, separation, apart)


def _points_to_edges(points: Floats, polygon: Floats) -> Floats:
    """Smallest distance (T,) of ``points`` (T, n, 2) to the edges of ``polygon`` (T or 1, m, 2)."""
    start = polygon[:, None, :, :]
    along = np.roll(polygon, -1, axis=1)[:, None, :, :] - start
    offset = points[:, :, None, :] - start
    length = (along * along).sum(axis=-1)
    t = np.clip((offset * along).sum(axis=-1) / np.where(length > 0, length, 1.0), 0.0, 1.0)
    rest = offset - t[..., None] * along
    smallest: Floats = np.sqrt((rest * rest).sum(axis=-1)).min(axis=(1, 2))
    return smallest
