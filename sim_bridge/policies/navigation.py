"""Planning policies without a language model: shortest path, tier table, reversed tier table; and a random walk."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.layout import BASE_RADIUS_M, Caution, load_tiers
from sim_bridge.kitchen.planning import FloorMap, Path, disc, floor_map, plan
from sim_bridge.kitchen.tasks import parse_task
from sim_bridge.options import at_least
from sim_bridge.policies.follower import NOMINAL_ACCELERATION, NOMINAL_SPEED, PathFollower, planar_pose
from sim_bridge.policies.scene_view import (
    GENERIC_RADIUS_M,
    Seen,
    obstacles_of,
    static_footprints,
    true_footprint,
)
from sim_bridge.simulation import STOP, Action

Floats = NDArray[np.float64]

#: Extra cost per metre where the base would touch an obstacle, and its growth per metre of overlap.
_TOUCH_COST, _DEEPER_COST = 40.0, 200.0
#: Extra cost per metre of driving at the surface of an obstacle inside the wanted clearance.
_CLEARANCE_COST = 12.0
_REPLAN_MOVED_M = 0.10
_REPLAN_OFF_PATH_M = 0.35
_STALL_FRAMES, _STALL_M = 40, 0.02


def keep_off(distance: Floats, clearance: float, base_radius: float = BASE_RADIUS_M) -> Floats:
    """Extra cost per metre for the base's centre at a distance from an outline; none beyond radius and clearance."""
    gap = distance - base_radius
    cost = np.zeros(gap.shape)
    if clearance > 0:
        soft = gap < clearance
        cost[soft] = _CLEARANCE_COST * (1.0 - np.maximum(gap[soft], 0.0) / clearance) ** 2
    touch = gap < 0
    cost[touch] += _TOUCH_COST - _DEEPER_COST * gap[touch]
    return cost


class Navigator:
    """A policy that plans on the floor map and follows the path; subclasses say how they treat an obstacle."""

    name = "navigator"

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy. The task id alone gives the map and the goal."""
        self._info = info
        self._task = parse_task(info.task)
        self._identical = info.attributes.get("shapes") == "identical"
        self._floor = floor_map(self._task.kitchen)
        self._follower: PathFollower | None = None
        self._planned: list[Seen] = []
        self._last_ns: int | None = None
        self._period_s = 0.05
        self._trail: list[tuple[float, float]] = []

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        x, y, yaw = planar_pose(frame)
        if self._last_ns is not None and frame.stamp_ns > self._last_ns:
            self._period_s = (frame.stamp_ns - self._last_ns) * 1e-9
        self._last_ns = frame.stamp_ns
        if self._follower is None or self._outdated(frame, x, y):
            self._follower = self._plan(frame, x, y)
        if self._follower is None:
            return STOP
        return self._follower.act(x, y, yaw)

    @property
    def path(self) -> Path | None:
        """The path that is followed, for pictures and tests."""
        return None if self._follower is None else self._follower.path

    def _outdated(self, frame: RawFrame, x: float, y: float) -> bool:
        assert self._follower is not None
        self._trail.append((x, y))
        seen = obstacles_of(frame)
        moved = len(seen) != len(self._planned) or any(
            math.hypot(a.x - b.x, a.y - b.y) > _REPLAN_MOVED_M for a, b in zip(seen, self._planned, strict=False)
        )
        stalled = False
        if len(self._trail) > _STALL_FRAMES:
            old = self._trail.pop(0)
            stalled = math.hypot(x - old[0], y - old[1]) < _STALL_M and self._follower.left > 0.2
        if stalled:
            self._trail.clear()
        return moved or stalled or self._follower.off_path(x, y) > _REPLAN_OFF_PATH_M

    def _plan(self, frame: RawFrame, x: float, y: float) -> PathFollower | None:
        goal = self._task.goal
        self._planned = obstacles_of(frame)
        cost = self._floor.base_cost
        for outline in static_footprints(frame, self._task):
            cost = cost + keep_off(outline.distance(self._floor.x, self._floor.y), 0.0)
        for seen in self._planned:
            cost = cost + self.obstacle_cost(seen, self._floor)
        path = plan(cost, self._floor, (x, y), (goal.x, goal.y))
        if path is None:
            return None
        speed, acceleration = self.limits(path)
        velocity = (0.0, 0.0) if self._follower is None else self._follower.velocity
        return PathFollower(path, goal.yaw, speed, acceleration, self._period_s, velocity)

    def obstacle_cost(self, seen: Seen, floor: FloorMap) -> Floats:
        """Extra cost per metre around one obstacle, on the grid of the floor map: none, where a policy does not say."""
        return np.zeros_like(floor.base_cost)

    def limits(self, path: Path) -> tuple[Floats, Floats]:
        """Speed (m/s) and acceleration (m/s^2) limit at every point of the path."""
        n = len(path.points)
        return np.full(n, NOMINAL_SPEED), np.full(n, NOMINAL_ACCELERATION)


class ShortestPath(Navigator):
    """Shortest way around every obstacle as if it were a small thing of no account: blind to what it is."""

    name = "shortest_path"

    def obstacle_cost(self, seen: Seen, floor: FloorMap) -> Floats:
        """See Navigator."""
        return keep_off(disc(seen.x, seen.y, GENERIC_RADIUS_M).distance(floor.x, floor.y), 0.0)


class TierTable(Navigator):
    """Clearance, speed and acceleration by the obstacle's tier (config/obstacle_tiers.yaml)."""

    name = "cautious"

    def __init__(self, table: Mapping[str, Caution] | None = None) -> None:
        tiers = load_tiers().tiers
        if table is not None and (unknown := [name for name in table if name not in tiers]):
            raise UserError(f"table: {unknown[0]!r} is no tier; expected {', '.join(tiers)}")
        self._table: Mapping[str, Caution] = table or {name: tier.caution for name, tier in tiers.items()}

    def caution(self, seen: Seen) -> Caution | None:
        """What the table says about an obstacle; None for a category without a tier."""
        return self._table.get(load_tiers().tier_of(seen.category))

    def obstacle_cost(self, seen: Seen, floor: FloorMap) -> Floats:
        """See Navigator."""
        caution = self.caution(seen)
        distance = true_footprint(seen, self._identical).distance(floor.x, floor.y)
        return keep_off(distance, 0.0 if caution is None else caution.clearance_m)

    def limits(self, path: Path) -> tuple[Floats, Floats]:
        """See Navigator."""
        speed, acceleration = super().limits(path)
        x, y = path.points[:, 0], path.points[:, 1]
        for seen in self._planned:
            caution = self.caution(seen)
            if caution is None:
                continue
            near = true_footprint(seen, self._identical).distance(x, y) - BASE_RADIUS_M < caution.region_m
            speed[near] = np.minimum(speed[near], caution.speed * NOMINAL_SPEED)
            acceleration[near] = np.minimum(acceleration[near], caution.acceleration)
        return speed, acceleration


class ReversedTierTable(TierTable):
    """The tier table upside down: most careful near robust things, least near living ones."""

    name = "reversed"

    def __init__(self, table: Mapping[str, Caution] | None = None) -> None:
        super().__init__(table)
        if missing := [name for name in ("low", "moderate", "high") if name not in self._table]:
            raise UserError(f"table: {missing[0]} is missing; to turn it upside down takes low, moderate and high")
        self._table = {"low": self._table["high"], "moderate": self._table["moderate"], "high": self._table["low"]}


class Hold:
    """Asks for nothing: the base stands, the arm holds."""

    name = "hold"

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        return STOP


class RandomJoints:
    """Joint targets that wander from where the joints stood first, seeded by task and seed."""

    name = "random_joints"
    seeded = True

    def __init__(self, hold_frames: int = 10, step: float = 0.25) -> None:
        at_least("the policy random_joints", "hold_frames", hold_frames, 1)
        at_least("the policy random_joints", "step", step, 0)
        self._hold, self._step = hold_frames, step

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._rng = np.random.default_rng([info.seed % 2**32, zlib.crc32(info.task.encode())])
        self._count = 0
        self._target: Floats | None = None

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if self._target is None:
            if frame.joints is None:
                raise ValueError("the frame holds no joints")
            self._target = np.array(frame.joints.position, dtype=np.float64)
        if self._count % self._hold == 0:
            self._target = self._target + self._rng.uniform(-self._step, self._step, len(self._target))
        self._count += 1
        return Action(joints=tuple(float(v) for v in self._target))


class RandomWalk:
    """Random velocities, held for a second each, seeded by task and seed."""

    name = "random_walk"
    seeded = True

    def __init__(self, hold_frames: int = 20, speed: float = 0.5, yaw_rate: float = 0.6) -> None:
        at_least("the policy random_walk", "hold_frames", hold_frames, 1)
        self._hold, self._speed, self._rate = hold_frames, speed, yaw_rate

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._rng = np.random.default_rng([info.seed % 2**32, zlib.crc32(info.task.encode())])
        self._count = 0
        self._action = STOP

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if self._count % self._hold == 0:
            vx, vy, rate = self._rng.uniform(-1.0, 1.0, 3)
            self._action = Action(float(vx) * self._speed, float(vy) * self._speed, float(rate) * self._rate)
        self._count += 1
        return self._action
