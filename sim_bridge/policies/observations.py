"""State of a frame as numbers: the parts that an observation vector of a learned policy can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.tasks import Task
from sim_bridge.policies.follower import planar_pose, wrap
from sim_bridge.policies.scene_view import obstacles_of

_ABSENT_OBSTACLE = (0.0, 0.0, 4.0, 0.0)


def state_vector(parts: Sequence[str], frame: RawFrame, task: Task | None, start_ns: int) -> NDArray[np.float64]:
    """The named parts of `STATE`, one after another, (n,).

    ``task`` is the kitchen's, for the goal; ``start_ns`` the stamp of the episode's first frame. UserError names a part
    that the frame lacks.
    """
    numbers: list[float] = []
    for name in parts:
        try:
            numbers.extend(STATE[name](frame, task, start_ns))
        except (ValueError, AttributeError) as error:
            raise UserError(f"the frames hold nothing for the observation {name!r} ({error})") from error
    return np.array(numbers)


def _goal(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """x, y (m) of the kitchen task's goal in the base frame, cosine and sine of its heading there."""
    goal = _present(task, "kitchen task").goal
    turn = wrap(goal.yaw - planar_pose(frame)[2])
    return [*_local(frame, goal.x, goal.y), math.cos(turn), math.sin(turn)]


def _velocity(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """Forward, lateral (m/s), yaw (rad/s) in the base frame."""
    base = _present(frame.base, "base")
    values = (base.linear_velocity[0], base.linear_velocity[1], base.angular_velocity[2])
    return [float(v) if math.isfinite(v) else 0.0 for v in values]


def _obstacle(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """x, y (m) of the nearest obstacle in the base frame, its surface distance (m), and 1 when there is one."""
    seen = obstacles_of(frame)
    if not seen:
        return list(_ABSENT_OBSTACLE)
    objects = _present(frame.objects, "objects")
    distance = {name: float(d) for name, d in zip(objects.id, objects.distance, strict=True)}
    nearest = min(seen, key=lambda o: distance[o.id])
    return [*_local(frame, nearest.x, nearest.y), distance[nearest.id], 1.0]


def _joints(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """Positions of all joints (rad or m)."""
    return [float(v) for v in _present(frame.joints, "joints").position]


def _ee(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """Position (m) and quaternion x y z w of the end effector in the world."""
    ee = _present(frame.ee, "ee")
    return [float(v) for v in (*ee.position, *ee.orientation)]


def _target(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """Position (m) of the target object in the world."""
    objects = _present(frame.objects, "objects")
    return [float(v) for v in objects.position[objects.role.index("target")]]


def _time(frame: RawFrame, task: Task | None, start_ns: int) -> list[float]:
    """s since the first frame."""
    return [(frame.stamp_ns - start_ns) * 1e-9]


#: Parts that an observation vector can have.
STATE: Mapping[str, Callable[[RawFrame, Task | None, int], list[float]]] = {
    "goal": _goal,
    "velocity": _velocity,
    "obstacle": _obstacle,
    "joints": _joints,
    "ee": _ee,
    "target": _target,
    "time": _time,
}


def _present(part: Any, name: str) -> Any:
    if part is None:
        raise ValueError(f"no {name}")
    return part


def _local(frame: RawFrame, px: float, py: float) -> tuple[float, float]:
    """A point in the base frame."""
    x, y, yaw = planar_pose(frame)
    c, s = math.cos(yaw), math.sin(yaw)
    dx, dy = px - x, py - y
    return c * dx + s * dy, -s * dx + c * dy
