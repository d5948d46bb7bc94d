"""What stands around the robot, for the top view of the report: the kitchen from its files, without the simulator."""

from __future__ import annotations

import math
from collections.abc import Iterable

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.report.traces import Outline, OutlineKind, Pictures, Scene, Scenes
from sim_bridge.kitchen.layout import BASE_SIZE_M, TABLE_WIDTH_M, Part
from sim_bridge.kitchen.tasks import SUCCESS_RADIUS_M, SUITE, Task, parse_task

Point = tuple[float, float]
VIEWS = ("drawn", "rendered")


def scene_source() -> Scenes:
    """Scenes of kitchen tasks; None for every other task."""
    known: dict[tuple[str, str], Scene | None] = {}

    def scene(record: EpisodeRecord) -> Scene | None:
        key = (record.info.suite, record.info.task)
        if key not in known:
            known[key] = _kitchen(record.info.task) if record.info.suite == SUITE else None
        return known[key]

    return scene


def picture_source(view: str) -> Pictures:
    """Pictures of kitchen drives, ``drawn`` or ``rendered`` by the simulator's top camera; None where there is none.

    There is none of other episodes, of tasks that this kitchen does not have, and without base poses. UserError for
    another ``view``, and where nothing can be rendered.
    """
    if view not in VIEWS:
        raise UserError(f"--pictures {view}: expected one of {', '.join(VIEWS)}")
    from sim_bridge.pictures import drive_picture
    from sim_bridge.policies.topview import png
    from sim_bridge.policies.views import Cameras, RenderingError

    cameras = Cameras() if view == "rendered" else None

    def picture(record: EpisodeRecord) -> bytes | None:
        if record.info.suite != SUITE or not {"base_x", "base_y", "base_yaw", "obstacle_contact"} <= {*record.signals}:
            return None
        try:
            return png(drive_picture(record, cameras))
        except RenderingError:
            raise
        except UserError:
            return None

    return picture


def _kitchen(name: str) -> Scene | None:
    try:
        task = parse_task(name)
    except UserError:
        return None
    kitchen = task.kitchen
    outlines = [Outline("room", _rectangle(0.0, kitchen.width, 0.0, kitchen.depth), "room")]
    for part, box in kitchen.boxes().items():
        kind: OutlineKind = "counter" if part.startswith("counter_") else "fixture"
        label = "counter" if kind == "counter" else part.replace("_", " ")
        outlines.append(Outline(kind, _rectangle(*box.x, *box.y), label))
    for part, fixture in kitchen.fixtures.items():
        if fixture.at is not None and part == task.goal_name:
            outlines.append(Outline("fixture", _circle(*fixture.at, 0.25), part))
    outlines.append(Outline("goal", _circle(task.goal.x, task.goal.y, SUCCESS_RADIUS_M), f"goal: {task.goal_name}"))
    return Scene((*outlines, *_obstacle(task)), (BASE_SIZE_M[0], BASE_SIZE_M[1]))


def _obstacle(task: Task) -> list[Outline]:
    shape = task.shape
    if shape is None:
        return []
    x, y, _, yaw = task.obstacle_pose
    out = []
    if shape.table:
        half = TABLE_WIDTH_M / 2
        out.append(Outline("fixture", _placed(_rectangle(-half, half, -half, half), x, y, yaw), "table"))
    kind: OutlineKind = "human" if task.tier == "high" else "obstacle"
    for part in shape.parts:
        out.append(Outline(kind, _placed(_footprint(part), x, y, yaw), task.obstacle.replace("_", " ")))
    return out


def _footprint(part: Part) -> tuple[Point, ...]:
    hx, hy, _ = part.half_extents()
    round_ = part.sphere is not None or (part.axis == "z" and part.box is None)
    if round_:
        return _circle(part.at[0], part.at[1], hx)
    return _rectangle(part.at[0] - hx, part.at[0] + hx, part.at[1] - hy, part.at[1] + hy)


def _rectangle(x0: float, x1: float, y0: float, y1: float) -> tuple[Point, ...]:
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _circle(x: float, y: float, radius: float, corners: int = 20) -> tuple[Point, ...]:
    angles = (2.0 * math.pi * k / corners for k in range(corners))
    return tuple((x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles)


def _placed(points: Iterable[Point], x: float, y: float, yaw: float) -> tuple[Point, ...]:
    c, s = math.cos(yaw), math.sin(yaw)
    return tuple((x + c * px - s * py, y + s * px + c * py) for px, py in points)
