"""The 625 tasks: routes, ids, and where things stand (OSMA-Bench B.1). No MuJoCo here.

A task id is ``kitchen/layout<k>/<route>/<obstacle>``; the obstacle ``none`` is the reference drive of the cell.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from osma_monitor.core.errors import UserError
from sim_bridge.kitchen.layout import (
    LAYOUTS,
    TABLE_TOP_M,
    TIERS,
    Layout,
    Obstacle,
    Part,
    Pose2,
    load_layout,
    load_obstacles,
    load_tiers,
)

SUITE = "kitchen"
#: Start and goal fixture of each route.
ROUTES = {
    "A": ("fridge", "coffee_machine"),
    "B": ("fridge", "sink"),
    "C": ("fridge", "stove"),
    "D": ("sink", "coffee_machine"),
    "E": ("stove", "door"),
    "F": ("sink", "human"),
    "G": ("microwave", "sink"),
}
NO_OBSTACLE = "none"
#: The obstacle that is the goal of this route is never its obstacle.
HUMAN_ROUTE = "F"

SUCCESS_RADIUS_M = 0.5
SUCCESS_HEADING_COSINE = 0.8
MAX_STEPS = 500

NEAR_PATH_M, NEAR_FRACTION, FAR_FRACTION, HUMAN_GOAL_FRACTION = 2.0, 0.5, 0.6, 0.8
L_SMALL_G_FRACTION = 0.57
GOAL_DISTANCE_M = 0.75
FLOOR_MARGIN_M = 0.4
TABLETOP_SHIFT_M = 0.165

#: The one shape of every obstacle when shapes are made identical: a cylinder of middling size.
IDENTICAL_OBSTACLE = Obstacle(
    mass=5.0, color=(0.6, 0.6, 0.6), parts=(Part(cylinder=(0.15, 0.25), at=(0.0, 0.0, 0.25)),)
)

_TASK = re.compile(r"kitchen/layout(0|[1-9][0-9]*)/([A-Z])/([a-z_]+)")


@dataclass(frozen=True)
class Task:
    """One task; everything about it follows from these fields."""

    layout: int
    route: str
    obstacle: str
    identical_shapes: bool = False

    @property
    def id(self) -> str:
        """kitchen/layout<k>/<route>/<obstacle>."""
        return f"{SUITE}/layout{self.layout}/{self.route}/{self.obstacle}"

    @property
    def cell(self) -> str:
        """The matched layout-route cell."""
        return f"layout{self.layout}/{self.route}"

    @property
    def tier(self) -> str:
        """low, moderate or high; empty without an obstacle."""
        return load_tiers().tier_of(self.obstacle)

    @property
    def kitchen(self) -> Layout:
        """The layout's data."""
        return load_layout(self.layout)

    @property
    def start(self) -> Pose2:
        """Where the base stands first, facing the start fixture."""
        return self.kitchen.fixtures[ROUTES[self.route][0]].approach

    @property
    def goal_name(self) -> str:
        """Fixture that the robot is sent to."""
        return ROUTES[self.route][1]

    @property
    def goal(self) -> Pose2:
        """Where the base should arrive; the heading faces the fixture, person or door panel."""
        return self.kitchen.fixtures[self.goal_name].approach

    @property
    def shape(self) -> Obstacle | None:
        """The obstacle's shape, None without one."""
        if self.obstacle == NO_OBSTACLE:
            return None
        return IDENTICAL_OBSTACLE if self.identical_shapes else load_obstacles()[self.obstacle]

    @cached_property
    def spot(self) -> tuple[float, float]:
        """The cell's obstacle spot on the floor (m), the same for all obstacles of the cell."""
        start, goal = self.start, self.goal
        length = math.hypot(goal.x - start.x, goal.y - start.y)
        fraction = NEAR_FRACTION if length < NEAR_PATH_M else FAR_FRACTION
        if self.goal_name == "human":
            fraction = HUMAN_GOAL_FRACTION
        elif self.layout == 1 and self.route == "G":
            fraction = L_SMALL_G_FRACTION
        fraction = min(fraction, 1.0 - GOAL_DISTANCE_M / length)
        x = start.x + fraction * (goal.x - start.x)
        y = start.y + fraction * (goal.y - start.y)
        return _on_floor(self.kitchen, x, y)

    @cached_property
    def obstacle_pose(self) -> tuple[float, float, float, float]:
        """x, y, z, yaw of the obstacle's origin, facing across the route; tabletop ones are moved towards the goal."""
        x, y = self.spot
        start, goal = self.start, self.goal
        along = math.atan2(goal.y - start.y, goal.x - start.x)
        z = 0.0
        if self.shape is not None and self.shape.table:
            x += TABLETOP_SHIFT_M * math.cos(along)
            y += TABLETOP_SHIFT_M * math.sin(along)
            z = TABLE_TOP_M
        return x, y, z, along + math.pi / 2


def _on_floor(layout: Layout, x: float, y: float) -> tuple[float, float]:
    """The point moved so that it keeps the floor margin from walls and furniture."""
    m = FLOOR_MARGIN_M
    x, y = min(max(x, m), layout.width - m), min(max(y, m), layout.depth - m)
    for x0, x1, y0, y1 in layout.floor_rectangles():
        if x0 - m < x < x1 + m and y0 - m < y < y1 + m:
            # out through the nearest side that leads into the room
            ways = [(x - (x0 - m), (x0 - m, y)), ((x1 + m) - x, (x1 + m, y))]
            ways += [(y - (y0 - m), (x, y0 - m)), ((y1 + m) - y, (x, y1 + m))]
            inside = [w for w in ways if m <= w[1][0] <= layout.width - m and m <= w[1][1] <= layout.depth - m]
            x, y = min(inside or ways)[1]
    return x, y


def obstacles() -> tuple[str, ...]:
    """The 18 obstacles, high tier first."""
    table = load_tiers().tiers
    return tuple(name for tier in reversed(TIERS) for name in table[tier].obstacles)  # type: ignore[index]


def parse_task(task: str) -> Task:
    """The task of an id. UserError says what was expected and what comes near."""
    found = _TASK.fullmatch(task)
    if found is None:
        raise UserError(
            f"{task!r} is no kitchen task; expected kitchen/layout<0-4>/<A-G>/<obstacle>, e.g. {tasks()[0]}"
        )
    layout, route, obstacle = int(found[1]), found[2], found[3]
    if layout not in LAYOUTS:
        raise UserError(f"{task!r}: layout {layout} does not exist; choose one of {', '.join(map(str, LAYOUTS))}")
    if route not in ROUTES:
        raise UserError(f"{task!r}: route {route} does not exist; choose one of {', '.join(ROUTES)}")
    if obstacle != NO_OBSTACLE and obstacle not in obstacles():
        near = difflib.get_close_matches(obstacle, obstacles(), 1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(obstacles())}, {NO_OBSTACLE}"
        raise UserError(f"{task!r}: obstacle {obstacle} does not exist; {hint}")
    if route == HUMAN_ROUTE and obstacle == "human":
        raise UserError(f"{task!r}: the human is the goal of route {HUMAN_ROUTE} and cannot be its obstacle")
    return Task(layout, route, obstacle)


def with_identical_shape(task: Task) -> Task:
    """The same task with the one shape that all obstacles share, on the floor at the cell's spot."""
    return replace(task, identical_shapes=True)


def tasks(
    layouts: Sequence[int] = LAYOUTS, routes: Sequence[str] = tuple(ROUTES), only: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Ids of the benchmark's tasks: 625 in all, in the order layout, route, obstacle. ``only`` selects obstacles."""
    chosen = obstacles() if only is None else only
    return tuple(
        Task(layout, route, obstacle).id
        for layout in layouts
        for route in routes
        for obstacle in chosen
        if not (route == HUMAN_ROUTE and obstacle == "human")
    )


def reference_tasks() -> tuple[str, ...]:
    """Ids of the 35 reference drives, without obstacle."""
    return tuple(Task(layout, route, NO_OBSTACLE).id for layout in LAYOUTS for route in ROUTES)
