"""Follow a path with a holonomic base: speed along the way, bounded acceleration, heading turned to the goal's.

Shared by all planning policies, as the waypoint follower of OSMA-Bench D.2.3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.planning import Path
from sim_bridge.simulation import Action

NOMINAL_SPEED = 0.7  #: m/s
NOMINAL_ACCELERATION = 1.0  #: m/s^2
_LOOKAHEAD_M = 0.25
_END_GAIN = 1.5  #: 1/s, speed per metre left at the path's end
_YAW_GAIN, _YAW_RATE = 1.5, 0.8  #: 1/s, rad/s
_CURVE_WINDOW_M = 0.20


def planar_pose(frame: RawFrame) -> tuple[float, float, float]:
    """x, y (m) and yaw (rad) of the base."""
    if frame.base is None:
        raise ValueError("the frame holds no base pose; a navigation policy needs odometry")
    x, y = float(frame.base.position[0]), float(frame.base.position[1])
    z, w = float(frame.base.orientation[2]), float(frame.base.orientation[3])
    return x, y, 2.0 * math.atan2(z, w)


def wrap(angle: float) -> float:
    """The angle in (-pi, pi]."""
    return math.atan2(math.sin(angle), math.cos(angle))


def speed_plan(path: Path, limit: NDArray[np.float64], acceleration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Speed at every point of the path (m/s): the limit there, slowed for bends and for slower stretches ahead."""
    points, along = path.points, path.along
    speed = limit.astype(np.float64).copy()
    n = len(points)
    if n > 2:
        reach = max(round(_CURVE_WINDOW_M / max(float(along[1] - along[0]), 1e-9)), 1)
        i = np.arange(n)
        before, after = np.maximum(i - reach, 0), np.minimum(i + reach, n - 1)
        a, b = points - points[before], points[after] - points
        turn = np.abs(np.arctan2(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], (a * b).sum(axis=1)))
        turn[(before == i) | (after == i)] = 0.0
        bend = turn / (along[after] - along[before])
        speed = np.minimum(speed, np.sqrt(0.8 * acceleration / np.maximum(bend, 1e-6)))
    for k in range(n - 2, -1, -1):
        reachable = math.sqrt(speed[k + 1] ** 2 + 2.0 * acceleration[k] * (along[k + 1] - along[k]))
        speed[k] = min(speed[k], reachable)
    return speed


class PathFollower:
    """Commands for one path. ``speed`` and ``acceleration`` hold a limit for every point of it (m/s, m/s^2)."""

    def __init__(
        self,
        path: Path,
        goal_yaw: float,
        speed: NDArray[np.float64],
        acceleration: NDArray[np.float64],
        period_s: float,
        velocity: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.path = path
        self._yaw = goal_yaw
        self._speed = speed_plan(path, speed, acceleration)
        self._acceleration = acceleration
        self._period = period_s
        self._at = 0
        self.velocity = velocity  #: last command in the world frame, m/s

    def off_path(self, x: float, y: float) -> float:
        """Distance to the followed point of the path (m)."""
        return math.hypot(x - self.path.points[self._at, 0], y - self.path.points[self._at, 1])

    @property
    def left(self) -> float:
        """Metres of path ahead."""
        return float(self.path.length - self.path.along[self._at])

    def act(self, x: float, y: float, yaw: float) -> Action:
        """The command at a pose (m, m, rad)."""
        points, along = self.path.points, self.path.along
        ahead = points[self._at : self._at + 20]
        self._at += int(np.argmin((ahead[:, 0] - x) ** 2 + (ahead[:, 1] - y) ** 2))
        target = points[min(int(np.searchsorted(along, along[self._at] + _LOOKAHEAD_M)), len(points) - 1)]
        dx, dy = float(target[0]) - x, float(target[1]) - y
        away = math.hypot(dx, dy)
        speed = min(
            float(self._speed[self._at]), _END_GAIN * (self.left + away) if self.left < _LOOKAHEAD_M else math.inf
        )
        wanted = (speed * dx / away, speed * dy / away) if away > 1e-6 else (0.0, 0.0)
        change = wanted[0] - self.velocity[0], wanted[1] - self.velocity[1]
        size, most = math.hypot(*change), float(self._acceleration[self._at]) * self._period
        if size > most:
            change = change[0] * most / size, change[1] * most / size
        self.velocity = self.velocity[0] + change[0], self.velocity[1] + change[1]
        rate = min(max(_YAW_GAIN * wrap(self._yaw - yaw), -_YAW_RATE), _YAW_RATE)
        return base_action(self.velocity, yaw, rate)


def base_action(velocity: tuple[float, float], yaw: float, yaw_rate: float) -> Action:
    """A world-frame velocity as a command in the base frame."""
    c, s = math.cos(yaw), math.sin(yaw)
    return Action(c * velocity[0] + s * velocity[1], -s * velocity[0] + c * velocity[1], yaw_rate)
