"""What is seen late, or not at all, is unknown: it never becomes a number that could pass for safe."""

from __future__ import annotations

import math
from typing import Any

import pytest

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.signals.raw import RawFrame

from .signal_frames import NAN, STEP, about, contacts, derived, joints, objects, series


def held(z: float, tilt: float, grip: bool | None, orientation: bool = True) -> dict[str, Any]:
    pose = about("x", tilt) if orientation else (NAN,) * 4
    return {
        "objects": objects({"id": "t", "role": "target", "position": (0, 0, z), "orientation": pose}),
        "gripper": grip,
    }


def test_a_target_first_seen_in_the_grip_has_no_height_and_no_tilt_until_it_was_let_go() -> None:
    frames = series(held(NAN, 0, False, False), held(0.5, 40, True), held(0.5, 40, True), held(0.0, 10, False))
    frames += [RawFrame(9 * STEP, **held(0.2, 30, True))]
    for name, expected in (
        ("obj_above_table", [NAN, NAN, NAN, 0.0, 0.2]),
        ("transport", [0, NAN, NAN, 0, 1]),
        ("target_obj_tilt_world_deg", [NAN, NAN, NAN, 0.0, 20.0]),
    ):
        assert derived(frames, name) == pytest.approx(expected, nan_ok=True), name


def test_without_any_gripper_the_tilt_starts_at_the_first_known_orientation() -> None:
    frames = series(held(0, 0, None, False), held(0, 10, None), held(0, 30, None))
    assert derived(frames, "target_obj_tilt_world_deg") == pytest.approx([NAN, 0, 20], nan_ok=True)


def test_a_target_that_vanishes_may_be_the_one_that_is_carried() -> None:
    two = objects({"id": "a", "role": "target"}, {"id": "b", "role": "target"})
    one = objects({"id": "a", "role": "target"})
    parts = [{"objects": o, "gripper": g} for o, g in ((two, False), (two, True), (one, True), (one, False))]
    assert derived(series(*parts), "transport") == pytest.approx([0, 0, NAN, 0], nan_ok=True)


def test_an_arm_joint_that_is_not_reported_any_more_is_unknown() -> None:
    frames = series(joints(j1=5, j2=9), joints(j1=5), joints(finger=1), joints(j2=9, j1=5))
    assert derived(frames, "max_joint_torque") == pytest.approx([9, NAN, NAN, 9], nan_ok=True)
    info = EpisodeInfo("e", attributes={"arm_joints": "j1, j2"})
    assert derived(frames[1:], "max_joint_torque", info=info) == pytest.approx([NAN, NAN, 9], nan_ok=True)


def test_an_object_role_that_nobody_defined_could_be_any() -> None:
    known = {"id": "b", "role": "bystander"}, {"id": "o", "role": "obstacle", "distance": 1.0, "in_contact": 0}
    frames = series({"objects": objects(*known)}, {"objects": objects(*known, {"id": "x", "role": "bystandr"})})
    for name in ("non_target_disp_max", "obstacle_distance", "obstacle_contact"):
        first, second = derived(frames, name)
        assert not math.isnan(first) and math.isnan(second), name


def test_an_obstacle_that_vanishes_may_touch_the_robot() -> None:
    a = {"id": "a", "role": "obstacle", "distance": 1.0, "in_contact": 0}
    b = {"id": "b", "role": "obstacle", "distance": 1.0, "in_contact": 0}
    frames = series({"objects": objects(a, b)}, {"objects": objects(a)}, {"objects": objects({**a, "in_contact": 1})})
    assert derived(frames, "obstacle_contact") == pytest.approx([0, NAN, 1], nan_ok=True)
    frames = series({"objects": objects(a, b)}, {"objects": objects(a), "contacts": contacts()})
    assert derived(frames, "obstacle_contact") == [0, 0]


def test_an_other_object_that_vanishes_changes_nothing() -> None:
    seen = {"id": "b", "role": "bystander"}
    frames = series({"objects": objects(seen, {"id": "x", "role": "other"})}, {"objects": objects(seen)})
    assert derived(frames, "non_target_disp_max") == [0, 0]
