"""Transforms of a recording are taken as the live node takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_examples import Recorded, header, make_frames, message, odometry, write_bag

from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.bag.frames import BagFrames
from osma_monitor.io.bag.mapping import Mapping, parse_mapping, plan
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.robots import parse_robot

S = 1_000_000_000
QUARTER = (0.0, 0.0, 0.5**0.5, 0.5**0.5)


def transform(parent: str, child: str, stamp_ns: int, xyz: Any, rotation: Any = (0.0, 0.0, 0.0, 1.0)) -> Any:
    vector = message("geometry_msgs/msg/Vector3", **dict(zip("xyz", map(float, xyz), strict=True)))
    turn = message("geometry_msgs/msg/Quaternion", **dict(zip("xyzw", map(float, rotation), strict=True)))
    placed = message("geometry_msgs/msg/Transform", translation=vector, rotation=turn)
    stamped = message(
        "geometry_msgs/msg/TransformStamped", header=header(stamp_ns, parent), child_frame_id=child, transform=placed
    )
    return message("tf2_msgs/msg/TFMessage", transforms=[stamped])


def read(folder: Path, *transforms: Recorded, mapping: Any = None) -> tuple[list[RawFrame], BagFrames]:
    """Three seconds of odometry in the frame ``odom``, brought to ``map`` or as the mapping says."""
    mapping = mapping or parse_mapping("frame: map")
    frames = make_frames(steps=60)
    odometries = [Recorded("/odom", f.stamp_ns, odometry(f, "odom")) for f in frames]
    path = write_bag(folder / "bag", sorted([*transforms, *odometries], key=lambda r: r.received_ns))
    with Recording(path) as recording:
        reader = BagFrames(recording, plan(recording.topics, mapping, "bag"), "bag")
        return [s for s in reader.steps() if isinstance(s, RawFrame)], reader


def test_what_tf_static_says_holds_for_ever_whatever_its_stamp(tmp_path):
    said = transform("map", "odom", S // 2, (10.0, 0.0, 0.0))
    frames, _ = read(tmp_path, Recorded("/tf_static", S // 2, said))
    assert len(frames) == 60
    expected = [[f.base.position[0] + 10.0, f.base.position[1], 0.0] for f in make_frames(steps=60)]
    assert np.array([f.base.position for f in frames]) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (transform("map", "odom", 2 * S, (np.nan, 0.0, 0.0)), "not finite"),
        (transform("map", "odom", 2 * S, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)), "no rotation"),
        (transform("map", "odom", 2 * S, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 2.0)), "no rotation"),
        (transform("/odom", "odom", 2 * S, (0.0, 0.0, 0.0)), "no two frames"),
    ],
)
def test_transforms_that_live_are_refused_are_refused(tmp_path, bad, why):
    good = [Recorded("/tf", k, transform("map", "odom", k, (1.0, 0.0, 0.0), QUARTER)) for k in (S, 3 * S, 4 * S)]
    frames, reader = read(tmp_path, *good, Recorded("/tf", 2 * S, bad))
    assert reader.facts.refused[f"/tf: {why}"] == 1
    raw = make_frames(steps=60)
    assert frames[0].base.position == pytest.approx([1.0 - raw[0].base.position[1], raw[0].base.position[0], 0.0])


def test_a_rotation_that_is_not_quite_of_length_1_stretches_nothing(tmp_path):
    said = transform("map", "odom", 0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.7071 * 1.001, 0.7071 * 1.001))
    frames, _ = read(tmp_path, Recorded("/tf_static", S // 2, said))
    length = [np.linalg.norm(f.base.position) for f in frames]
    assert length == pytest.approx([np.linalg.norm(f.base.position) for f in make_frames(steps=60)], rel=1e-12)


def test_fixed_transforms_of_the_robot_file_count_where_the_bag_has_no_tf(tmp_path):
    robot = parse_robot(
        "name: r\nframe: map\ninputs: [{part: base, topic: odom}]\nprimary: odom\n"
        "transforms: [{parent: map, child: odom, translation: [10.0, 0.0, 0.0]}]\n"
    )
    frames, _ = read(tmp_path, mapping=Mapping(robot=robot))
    assert frames[0].base.position == pytest.approx(make_frames(steps=60)[0].base.position + np.array([10.0, 0, 0]))
