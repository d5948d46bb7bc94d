"""Code-generation planner after VoxPoser, on the floor plane (OSMA-Bench D.2.1, F.2, F.3).

A program names a goal and per-obstacle values. From it four aligned maps over the floor grid are made: affordance
(where to go), avoidance (inflated obstacles), rotation (what to face) and velocity (speed factor). A* searches the
combined cost; the shared follower drives the path. Obstacles are inflated by the base's half-diagonal and R_C; the
speed factor applies where the base's centre is within R_V of the obstacle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import check_condition, goal_phrase, obstacle_phrase, task_instruction
from sim_bridge.kitchen.layout import BASE_RADIUS_M, Fixture
from sim_bridge.kitchen.planning import RESOLUTION_M, FloorMap, Path, plan
from sim_bridge.policies.chat import ChatError, answered
from sim_bridge.policies.follower import NOMINAL_ACCELERATION, NOMINAL_SPEED, PathFollower
from sim_bridge.policies.navigation import Navigator, keep_off
from sim_bridge.policies.program import ControlValues, Program, ProgramError
from sim_bridge.policies.scene_view import Seen, obstacles_of, static_footprints, true_footprint
from sim_bridge.policies.values import Plan, Situation, ValueSource, make_source
from sim_bridge.simulation import STOP, Action

Floats = NDArray[np.float64]

#: Extra cost per metre inside the inflation: a goal or start inside it stays reachable, nothing else leads through.
_INFLATION_COST = 40.0
#: A speed factor of zero would never arrive anywhere: what is driven at least, as a factor of the nominal speed.
_LEAST_SPEED = 0.02


@dataclass(frozen=True, eq=False)
class ValueMaps:
    """The maps of a program, all over the cells of the floor grid [ix, iy]."""

    affordance: Floats  #: 1 where the goal is, 0 elsewhere
    avoidance: Floats  #: extra cost per metre
    rotation: Floats  #: heading to have at each cell, rad
    velocity: Floats  #: factor of the nominal speed


def ground(name: str, known: Mapping[str, str]) -> str | None:
    """The thing that a name of the program means: exact, or one contained in the other; None when nothing fits.

    ``known`` maps what people call a thing to its own name.
    """
    wanted = _plain(name)
    if not wanted:
        return None
    table = {_plain(phrase): thing for phrase, thing in known.items()}
    table.update({_plain(thing): thing for thing in known.values()})
    if wanted in table:
        return table[wanted]
    near = [
        thing for phrase, thing in table.items() if f" {phrase} " in f" {wanted} " or f" {wanted} " in f" {phrase} "
    ]
    return near[0] if near and len(set(near)) == 1 else None


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9]+", " ", name.lower()).split())


def value_maps(
    floor: FloorMap, goal: Fixture, face: Fixture, values: Mapping[int, ControlValues], outlines: Mapping[int, Any]
) -> ValueMaps:
    """Maps of a grounded program; ``values`` and ``outlines`` by obstacle number."""
    shape = floor.distance.shape
    affordance, rotation, velocity = np.zeros(shape), np.full(shape, face.approach.yaw), np.ones(shape)
    affordance[floor.cell(goal.approach.x, goal.approach.y)] = 1.0
    avoidance = floor.base_cost.copy()
    for number, outline in outlines.items():
        value = values.get(number, ControlValues())
        away = outline.distance(floor.x, floor.y)
        clearance = value.clearance_m or 0.0
        avoidance = avoidance + keep_off(away, 0.0)
        avoidance[(away < BASE_RADIUS_M + clearance) & (away >= BASE_RADIUS_M)] += _INFLATION_COST
        if value.speed is not None and value.region_m is not None:
            inside = away <= value.region_m
            velocity[inside] = np.minimum(velocity[inside], value.speed) if value.speed < 1 else value.speed
    return ValueMaps(affordance, avoidance, rotation, velocity)


class VoxPoser(Navigator):
    """Plans with the maps of a program that ``source`` decides (a ValueSource, or its name with ``options``).

    ``condition`` replaces the episode's instruction by that of c0 to c4.
    """

    name = "voxposer"

    def __init__(self, source: ValueSource | str = "table", condition: str | None = None, **options: Any) -> None:
        check_condition(condition)
        self._condition = condition
        self._source = make_source(source, **options) if isinstance(source, str) else source
        self.unparsed = 0  #: value answers that did not parse, over all episodes

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        super().reset(info)
        self.failure: str | None = None  #: why the pipeline broke
        self.plan: Plan | None = None
        self.maps: ValueMaps | None = None
        self._goal: Fixture | None = None

    def act(self, frame: RawFrame) -> Action:
        """See Policy. The robot stands still after a broken pipeline."""
        if self.failure is None and self.plan is None:
            try:
                self._decide(frame)
            except ProgramError as error:
                self.failure = str(error)
            except ChatError as error:
                if not answered(self._source):
                    raise
                self.failure = str(error)
        if self.failure is not None:
            return STOP
        return super().act(frame)

    def _decide(self, frame: RawFrame) -> None:
        decided = self._source.plan(Situation(self._task, task_instruction(self._info, self._condition), frame))
        self.unparsed += decided.unparsed
        self.plan = decided
        fixtures = self._task.kitchen.fixtures
        places = {goal_phrase(name): name for name in fixtures if name != "human" or self._task.goal_name == "human"}
        goal = ground(decided.program.goal, places)
        if goal is None:
            raise ProgramError(f"target not grounded: {decided.program.goal!r} is none of {', '.join(places)}")
        face = ground(decided.program.face, places) or goal
        self._goal, self._face = fixtures[goal], fixtures[face]

    def _plan(self, frame: RawFrame, x: float, y: float) -> PathFollower | None:
        assert self.plan is not None and self._goal is not None
        self._planned = obstacles_of(frame)
        values = grounded_values(self.plan.program, self._planned)
        outlines = {i: true_footprint(seen, self._identical) for i, seen in enumerate(self._planned)}
        self.maps = value_maps(self._floor, self._goal, self._face, values, outlines)
        cost = self.maps.avoidance
        for outline in static_footprints(frame, self._task):
            cost = cost + keep_off(outline.distance(self._floor.x, self._floor.y), 0.0)
        goal = self._goal.approach
        path = plan(cost, self._floor, (x, y), (goal.x, goal.y))
        if path is None:
            return None
        velocity = (0.0, 0.0) if self._follower is None else self._follower.velocity
        speed, acceleration = self.limits(path)
        return PathFollower(path, self._face.approach.yaw, speed, acceleration, self._period_s, velocity)

    def limits(self, path: Path) -> tuple[Floats, Floats]:
        """Speed by the velocity map at the centre's cell; nominal acceleration."""
        assert self.maps is not None
        shape = self.maps.velocity.shape
        ix = (path.points[:, 0] / RESOLUTION_M).astype(np.intp).clip(0, shape[0] - 1)
        iy = (path.points[:, 1] / RESOLUTION_M).astype(np.intp).clip(0, shape[1] - 1)
        speed = NOMINAL_SPEED * np.maximum(self.maps.velocity[ix, iy], _LEAST_SPEED)
        return speed, np.full(len(path.points), NOMINAL_ACCELERATION)

    @property
    def requested(self) -> dict[str, str]:
        """The values asked for near the task's obstacle, before any clamp, as attributes of the episode's record."""
        if self.plan is None:
            return {}
        target = [Seen(self._task.obstacle, self._task.obstacle, 0.0, 0.0, 0.0)]
        found = grounded_values(Program("", "", self.plan.asked), target)
        elsewhere = any(v.region_m is not None for v in self.plan.asked.values())
        value = found.get(0, ControlValues())
        numbers = {
            "requested_clearance_m": value.clearance_m,
            "requested_speed": value.speed,
            "requested_region_m": value.region_m,
        }
        attributes = {name: repr(float(number)) for name, number in numbers.items() if number is not None}
        attributes["region_on"] = "obstacle" if value.region_m is not None else ("other" if elsewhere else "none")
        if self._condition is not None:
            attributes["condition"] = self._condition
        attributes["unparsed_answers"] = str(self.plan.unparsed)
        return attributes


def grounded_values(program: Program, seen: list[Seen]) -> dict[int, ControlValues]:
    """The program's values by obstacle number; names that mean no obstacle in sight are left out."""
    phrases = {obstacle_phrase(s.category): s.category for s in seen}
    found: dict[int, ControlValues] = {}
    for name, value in program.values.items():
        category = ground(name, phrases)
        for i, s in enumerate(seen):
            if s.category == category:
                found[i] = value
    return found


def base_standoff(policy: VoxPoser, xy: Floats, clearance_m: float) -> float:
    """R_base of one drive (F.2): how far the centre stays from the clearance boundary at its closest (m)."""
    nearest = math.inf
    for seen in policy._planned:
        nearest = min(nearest, float(true_footprint(seen, policy._identical).distance(xy[:, 0], xy[:, 1]).min()))
    return nearest - clearance_m
