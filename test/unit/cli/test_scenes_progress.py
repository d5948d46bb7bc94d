"""The top view of the kitchen, and the lines and bar that long work shows."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
import report_examples as synthetic

from osma_monitor.cli.progress import progress
from osma_monitor.cli.scenes import picture_source, scene_source
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.report.traces import Outline
from sim_bridge.kitchen.tasks import parse_task, tasks


def record(task: str, suite: str = "kitchen") -> EpisodeRecord:
    one = synthetic.episode("cautious", "A", "high", "baby")
    return replace(one, info=replace(one.info, task=task, suite=suite))


def middle(outlines: list[Outline]) -> tuple[float, float]:
    points = [p for o in outlines for p in o.points]
    return tuple((min(c) + max(c)) / 2 for c in zip(*points, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("task", ["kitchen/layout0/A/baby", "kitchen/layout3/G/wine", "kitchen/layout4/F/dog"])
def test_the_obstacle_stands_at_its_spot_inside_the_room(task: str) -> None:
    scene = scene_source()(record(task))
    assert scene is not None and scene.base == (0.70, 0.50)
    parsed = parse_task(task)
    solid = [o for o in scene.outlines if o.kind in ("obstacle", "human")]
    assert {o.kind for o in solid} == {"human" if parsed.tier == "high" else "obstacle"}
    assert {o.label for o in solid} == {parsed.obstacle}
    assert middle(solid) == pytest.approx(parsed.obstacle_pose[:2], abs=0.3)
    (goal,) = (o for o in scene.outlines if o.kind == "goal")
    assert middle([goal]) == pytest.approx((parsed.goal.x, parsed.goal.y), abs=1e-6)
    (room,) = (o for o in scene.outlines if o.kind == "room")
    assert middle([room]) == pytest.approx((parsed.kitchen.width / 2, parsed.kitchen.depth / 2))
    assert any(o.label == "table" for o in scene.outlines) == (parsed.obstacle == "wine")


def test_every_kitchen_task_has_a_scene() -> None:
    scenes = scene_source()
    assert all(scenes(record(task)) is not None for task in tasks())


def test_other_tasks_have_none() -> None:
    scenes = scene_source()
    assert scenes(record("libero_10/3", "libero_10")) is None
    assert scenes(record("kitchen/nonsense")) is None


def test_pictures_are_of_kitchen_drives_and_drawn_when_asked() -> None:
    picture = picture_source("drawn")
    shown = picture(record("kitchen/layout0/A/baby"))
    assert shown is not None and shown.startswith(b"\x89PNG")
    assert picture(record("kitchen/layout0/A/vase")) not in (None, shown)
    assert picture(record("libero_10/3", "libero_10")) is None
    known = record("kitchen/layout0/A/baby")
    lost = known.signals["base_yaw"] * math.nan
    assert picture(replace(known, signals={})) is None
    assert picture(replace(known, signals={**known.signals, "base_yaw": lost})) is None
    assert picture(record("kitchen/a_task_of_somebody_else")) is None
    with pytest.raises(UserError, match="--pictures photo: expected one of drawn, rendered"):
        picture_source("photo")


def test_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with progress(3, done=1, stream=out) as display:
        display.episode("p\x1b[2J", "task", 7)
        display.violation()
        display.end("success")
        display.episode("q", "other", 7)
        display.end("failure")
    first, second = out.getvalue().splitlines()
    assert first.startswith("[2/3] p?[2J task seed 7: success, 1 violation (1 violation so far, about ")
    assert second.startswith("[3/3] q other seed 7: failure (1 violation so far, about 0 s left)")


def test_many_short_episodes_do_not_flood_the_log() -> None:
    out = io.StringIO()
    with progress(500, stream=out) as display:
        for i in range(500):
            display.episode("p", f"t{i}", 0)
            display.end("success")
    lines = out.getvalue().splitlines()
    assert len(lines) < 20 and lines[-1].startswith("[500/500]")
