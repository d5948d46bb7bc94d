"""The 625 tasks, their ids and where things stand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.core.errors import UserError
from sim_bridge.kitchen.layout import BASE_RADIUS_M, LAYOUTS, load_layout, load_obstacles, load_tiers, read_layout
from sim_bridge.kitchen.planning import rectangle_distance, reference_path
from sim_bridge.kitchen.references import load_references, reference_length
from sim_bridge.kitchen.tasks import (
    GOAL_DISTANCE_M,
    ROUTES,
    obstacles,
    parse_task,
    reference_tasks,
    tasks,
    with_identical_shape,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "osma_reference_paths.json").read_text())


def test_625_tasks_in_35_cells():
    ids = tasks()
    assert len(ids) == len(set(ids)) == 625
    assert len({parse_task(t).cell for t in ids}) == 35
    assert "kitchen/layout3/F/human" not in ids
    assert [parse_task(t).id for t in ids] == list(ids)


def test_each_tier_has_six_obstacles_with_shape_and_name():
    table = load_tiers()
    assert [len(table.tiers[t].obstacles) for t in ("low", "moderate", "high")] == [6, 6, 6]
    assert set(obstacles()) == set(load_obstacles()) == set(table.names)
    assert len(obstacles()) == 18


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda r: f"{r[0]}{r[1]}")
def test_distances_are_those_of_the_published_references(row):
    layout, route, planned, straight = row
    task = parse_task(f"kitchen/layout{layout}/{route}/baby")
    assert math.dist((task.start.x, task.start.y), (task.goal.x, task.goal.y)) == pytest.approx(straight, rel=0.10)
    path = reference_path(task.kitchen, (task.start.x, task.start.y), (task.goal.x, task.goal.y))
    assert path is not None
    assert path.length == pytest.approx(planned, rel=0.10)
    # collision-free at every heading
    for x0, x1, y0, y1 in task.kitchen.floor_rectangles():
        clear = rectangle_distance(path.points[:, 0], path.points[:, 1], (x0, x1, y0, y1)).min()
        assert clear >= BASE_RADIUS_M - 0.036  # half a cell's diagonal


@pytest.mark.parametrize("task_id", [t for t in tasks() if t.endswith(("/vase", "/wine"))])
def test_placement(task_id):
    task = parse_task(task_id)
    x, y = task.spot
    start, goal = task.start, task.goal
    length = math.dist((start.x, start.y), (goal.x, goal.y))
    kitchen = task.kitchen
    assert math.dist((x, y), (goal.x, goal.y)) >= GOAL_DISTANCE_M - 1e-9
    assert 0.4 <= x <= kitchen.width - 0.4 and 0.4 <= y <= kitchen.depth - 0.4
    for rectangle in kitchen.floor_rectangles():
        assert rectangle_distance(np.array([x]), np.array([y]), rectangle)[0] >= 0.4 - 1e-9
    along = ((x - start.x) * (goal.x - start.x) + (y - start.y) * (goal.y - start.y)) / length**2
    expected = 0.5 if length < 2 else 0.6
    if task.route == "F":
        expected = 0.8
    if task.cell == "layout1/G":
        expected = 0.57
    assert along == pytest.approx(min(expected, 1 - 0.75 / length))
    shift = math.dist(task.obstacle_pose[:2], task.spot)
    assert shift == pytest.approx(0.165 if task_id.endswith("wine") else 0.0)
    assert task.obstacle_pose[2] == (0.43 if task_id.endswith("wine") else 0.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whoever_arrives_faces_the_fixture_the_person_or_the_door(layout):
    """A goal's heading is the direction to the nearest point of its box (a door panel's normal), or to the person."""
    for name, fixture in load_layout(layout).fixtures.items():
        x, y, yaw = fixture.approach.x, fixture.approach.y, fixture.approach.yaw
        if fixture.at is not None:
            to = fixture.at
        else:
            to = tuple(min(max(v, low), high) for v, (low, high) in ((x, fixture.box.x), (y, fixture.box.y)))
        assert math.cos(math.atan2(to[1] - y, to[0] - x) - yaw) > 0.999, name


def test_all_obstacles_of_a_cell_share_the_spot():
    for layout in LAYOUTS:
        for route in ROUTES:
            spots = {parse_task(t).spot for t in tasks([layout], [route])}
            assert len(spots) == 1


def test_identical_shapes_share_pose_and_shape():
    same = [with_identical_shape(parse_task(t)) for t in tasks([2], ["B"])]
    assert len({t.obstacle_pose for t in same}) == 1
    assert len({t.shape.model_dump_json() for t in same}) == 1


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        ("libero/0", "kitchen/layout<0-4>"),
        ("kitchen/layout9/A/baby", "0, 1, 2, 3, 4"),
        ("kitchen/layout01/A/baby", "kitchen/layout<0-4>"),  # a task has one id
        ("kitchen/layout0/Z/baby", "A, B, C, D, E, F, G"),
        ("kitchen/layout0/A/babby", "did you mean baby?"),
        ("kitchen/layout0/F/human", "goal of route F"),
    ],
)
def test_wrong_ids_say_what_was_expected(bad, hint):
    with pytest.raises(UserError, match=hint.replace("?", r"\?")):
        parse_task(bad)


def test_references_are_up_to_date():
    known = load_references()
    assert set(known) == {parse_task(t).cell for t in reference_tasks()}
    for task in map(parse_task, reference_tasks()):
        assert known[task.cell][0] == pytest.approx(reference_length(task), abs=1e-3)
        assert known[task.cell][1] > 0


def test_layout_errors_name_file_and_key(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: x\nwidth: wide\ndepth: 3\ncounters: []\nfixtures: {}\n")
    with pytest.raises(UserError, match=r"mine\.yaml:2: width.*'wide'"):
        read_layout(path)
    path.write_text("name: [\n")
    with pytest.raises(UserError, match="not YAML"):
        read_layout(path)


def test_living_things_are_never_tabletop_and_footprints_are_realistic():
    for name, obstacle in load_obstacles().items():
        tier = load_tiers().tier_of(name)
        assert not (tier == "high" and obstacle.table)
        assert 0.3 <= obstacle.mass <= 90
        radius = max(math.hypot(max(-r[0], r[1]), max(-r[2], r[3])) for r in obstacle.footprint())
        assert 0.1 < radius < 0.55, name
        assert min(p.at[2] - p.half_extents()[2] for p in obstacle.parts) == pytest.approx(0.0, abs=0.056), name
    assert load_layout(0).name
