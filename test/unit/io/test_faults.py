"""Faults of mapping, obstacle and field map files: all of them, each with its line, in words for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from osma_monitor.io import yaml_files
from osma_monitor.io.bag.base import Topic
from osma_monitor.io.bag.mapping import Mapping, load_mapping, parse_mapping, plan
from osma_monitor.io.bag.mapping import rules as mapping_rules
from osma_monitor.io.datasets.fieldmap import parse_field_map
from osma_monitor.io.errors import InputError
from osma_monitor.io.obstacles import parse_obstacles

BOX = "shape: {primitive: box, size: [1, 1, 1]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("episodes: {by: times}", "1: episodes: by times needs the key times: a list such as"),
        ("episodes: {by: edge}", "1: episodes: by edge needs the key topic"),
        ("episodes:\n  by: gap\n  topic: /go", "3: episodes.topic: counts with by: edge or by: message alone"),
        ("episodes:\n  times:\n    - {start: 3, end: 2}\n  by: times", "3: episodes.times.0: ends at 2 s, not after"),
        (
            "episodes: {by: times, times: [{start: 0}]}",
            "1: episodes.times.0: the key 'end' is missing; expected a number",
        ),
        ("episodes: {gap: 0}", "1: episodes.gap: expected seconds above 0, got 0"),
        ("mode: hold\nrate: -3", "2: rate: expected a number of at least 0, got -3"),
        ("rate: .nan", "1: rate: expected a number, got nan"),
        ("rate: 5\nprimary: base", "1: rate: frames come at a rate or with each message of primary (base)"),
        ("transform_wait: -1", "1: transform_wait: expected a number of at least 0"),
        ("transform_wiat: 1", "1: transform_wiat: no such key; did you mean transform_wait?"),
        (
            "topics: {joints: {topic: /j, age_limt: 1}}",
            "1: topics.joints.age_limt: no such key; did you mean age_limit?",
        ),
        ("topics: {joints: [1]}", "1: topics.joints: expected text or a mapping (topic, field, above"),
        ("topics: {joints: {field: x}}", "1: topics.joints: the key 'topic' is missing; expected text"),
        ("robot: 5", "1: robot: expected text, got 5"),
        ("mode: holds", "did you mean hold?"),
        ("info:\n  seed: many", "2: info.seed: expected a whole number, got 'many'"),
        ("rate: 1\nrate: 2", "2: rate: the key stands twice"),
    ],
)
def test_a_mapping_says_what_is_wrong_in_its_own_words(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_mapping(text, "m.yaml")
    assert str(caught.value).startswith("m.yaml:") and expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"obstacles:\n  - {{id: a, position: [1], {BOX}}}",
            "2: obstacles.0.position: expected a list of 2 numbers or a list of 3 numbers",
        ),
        (
            f"obstacles:\n  - {{id: a, position: [1, x], {BOX}}}",
            "2: obstacles.0.position: expected a list of 2 numbers or",
        ),
        (
            f"obstacles:\n  - {{id: a, positon: [1, 2], {BOX}}}",
            "2: obstacles.0.positon: no such key; did you mean position?",
        ),
        (
            "obstacles:\n  - {id: a, position: [1, 2], shape: {primitive: bix, size: [1]}}",
            "got 'bix'; did you mean box?",
        ),
        (
            f"obstacles:\n  - {{id: a, position: [1, 2], {BOX}}}\n  - {{id: a, position: [1, 2], {BOX}}}",
            "3: obstacles.1.id: the id 'a' is named twice",
        ),
        ("frame: map", "1: map of obstacles: the key 'obstacles' is missing; expected a list"),
    ],
)
def test_a_map_of_obstacles_too(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_obstacles(text, "o.yaml")
    assert f"o.yaml:{expected}" in str(caught.value) if expected[0].isdigit() else expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate: -1", "f.yaml:1: rate: expected Hz of at least 0"),
        ("colums: {}", "f.yaml:1: colums: no such key; did you mean columns?"),
        ("columns: {gripper: 5}", "f.yaml:1: columns.gripper: expected a mapping (column, above, below), got 5"),
    ],
)
def test_a_field_map_too(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_field_map(text, "f.yaml")
    assert str(caught.value).startswith(expected)


def test_all_faults_are_there_at_once_and_the_text_says_how_many_more() -> None:
    with pytest.raises(yaml_files.FaultsError) as caught:
        yaml_files.parse("frme: map\nrate: fast\nepisodes: {by: x}\n", Mapping, "mapping", "m.yaml", mapping_rules)
    assert [line for line, _ in caught.value.found] == [1, 2, 3]
    assert str(caught.value).endswith("(and 2 more: osma check m.yaml)")


@pytest.mark.parametrize(
    ("frame", "fits"), [("map", True), ("/map", True), ("", True), ("mapp", False), ("odom", False)]
)
def test_a_frame_that_the_obstacle_file_contradicts_is_an_error_naming_both(
    tmp_path: Path, frame: str, fits: bool
) -> None:
    (tmp_path / "obstacles.yaml").write_text(f"frame: map\nobstacles: [{{id: a, position: [0, 0], {BOX}}}]\n")
    path = tmp_path / "m.yaml"
    path.write_text(f'obstacles: obstacles.yaml\nframe: "{frame}"\n')
    inline = f'frame: "{frame}"\nobstacles: {{frame: map, obstacles: [{{id: a, position: [0, 0], {BOX}}}]}}'
    if fits:
        assert load_mapping(path).frame == frame and parse_mapping(inline).frame == frame
        return
    with pytest.raises(InputError) as caught:
        load_mapping(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: frame: {frame!r}") and f"{tmp_path / 'obstacles.yaml'} says frame: 'map'" in said
    with pytest.raises(InputError, match=f"<text>:1: frame: '{frame}', but the obstacles stand in the frame 'map'"):
        parse_mapping(inline)


def test_a_primary_that_gives_nothing_is_an_error_and_not_another_topic() -> None:
    topics = {"/odom": Topic("/odom", "nav_msgs/msg/Odometry")}
    for primary in ("base", "/odom", "odom"):
        assert plan(topics, parse_mapping(f"mode: hold\nprimary: {primary}"), "m").sources
    with pytest.raises(InputError, match=r"m: primary: 'basee' is none of what the bag gives: base \(/odom\)"):
        plan(topics, parse_mapping("mode: hold\nprimary: basee"), "m")
