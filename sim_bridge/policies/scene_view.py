"""What a policy makes of a frame: where the obstacles stand and what outline they have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.signals.raw import OBSTACLE_ROLES, RawFrame
from sim_bridge.kitchen.layout import TABLE_WIDTH_M, load_obstacles
from sim_bridge.kitchen.planning import Footprint, disc
from sim_bridge.kitchen.tasks import IDENTICAL_OBSTACLE, Task

Floats = NDArray[np.float64]

#: Radius that a policy blind to what an obstacle is takes every obstacle for (m).
GENERIC_RADIUS_M = 0.22
_PERSON_RADIUS_M = 0.25


@dataclass(frozen=True, slots=True)
class Seen:
    """One obstacle as the policy sees it in a frame."""

    id: str
    category: str
    x: float
    y: float
    yaw: float


def obstacles_of(frame: RawFrame) -> list[Seen]:
    """Obstacles and living things in a frame, in its order."""
    if frame.objects is None:
        return []
    o = frame.objects
    return [
        Seen(o.id[i], o.category[i], float(o.position[i, 0]), float(o.position[i, 1]), object_yaw(o.orientation[i]))
        for i in range(len(o))
        if o.role[i] in OBSTACLE_ROLES
    ]


def object_yaw(quaternion: Floats) -> float:
    """Heading of an object (rad) from its quaternion x y z w."""
    x, y, z, w = (float(v) for v in quaternion)
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def static_footprints(frame: RawFrame, task: Task) -> list[Footprint]:
    """Things that stand on the floor and are no obstacle: the small table, and the person that is the goal."""
    found = []
    if frame.objects is not None:
        o = frame.objects
        half = TABLE_WIDTH_M / 2
        for i in range(len(o)):
            if o.role[i] == "furniture":
                x, y = float(o.position[i, 0]), float(o.position[i, 1])
                found.append(Footprint(((-half, half, -half, half),), x, y, object_yaw(o.orientation[i])))
    at = task.kitchen.fixtures["human"].at
    if task.goal_name == "human" and at is not None:
        found.append(disc(*at, _PERSON_RADIUS_M))
    return found


def true_footprint(seen: Seen, identical: bool) -> Footprint:
    """Outline of an obstacle by its category, its table included."""
    shape = IDENTICAL_OBSTACLE if identical else load_obstacles().get(seen.category)
    if shape is None:
        return disc(seen.x, seen.y, GENERIC_RADIUS_M)
    return Footprint(tuple(shape.footprint()), seen.x, seen.y, seen.yaw)
