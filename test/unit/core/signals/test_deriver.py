"""Signals by hand."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.signals.deriver import SignalDeriver, capabilities, derive_batch, unavailable
from osma_monitor.core.signals.parameters import KeepOutBox, RegionLimit, Separation, SignalParameters
from osma_monitor.core.signals.raw import (
    Base,
    Contacts,
    Joints,
    RawFrame,
    same,
    vector,
)
from osma_monitor.core.signals.schema import SIGNALS

from .signal_frames import IDENTITY, NAN, STEP, about, base, contacts, derived, ee, joints, objects, series

# ---- base and obstacles


def test_base_signals() -> None:
    frame = series({"base": base(1.5, -2, 90, (3, 4, 9), 0.7)})
    assert derived(frame, "base_x") == [1.5]
    assert derived(frame, "base_y") == [-2]
    assert derived(frame, "base_yaw")[0] == pytest.approx(math.pi / 2)
    assert derived(frame, "base_speed") == [5.0]
    assert derived(frame, "base_yaw_rate") == [0.7]


def test_yaw_does_not_depend_on_the_length_of_the_quaternion_and_a_zero_quaternion_is_unknown() -> None:
    q = np.array(about("z", 30))
    scaled = Base(vector([0, 0, 0]), vector(3 * q), vector([0, 0, 0]), vector([0, 0, 0]))
    zero = dataclasses.replace(scaled, orientation=vector([0, 0, 0, 0]))
    assert derived(series({"base": scaled}), "base_yaw")[0] == pytest.approx(math.radians(30))
    assert math.isnan(derived(series({"base": zero}), "base_yaw")[0])


def test_velocity_that_is_not_measured_is_unknown() -> None:
    frame = series({"base": base(v=(NAN, NAN, NAN))})
    assert math.isnan(derived(frame, "base_speed")[0])
    assert derived(frame, "base_x") == [0.0]


def test_nearest_of_obstacles_and_humans() -> None:
    deriver = SignalDeriver()
    frame = RawFrame(
        STEP,
        objects=objects(
            {"id": "vase", "role": "obstacle", "distance": 0.8, "in_contact": 0},
            {"id": "baby", "role": "human", "distance": 0.5, "in_contact": 0},
            {"id": "cup", "role": "bystander", "distance": 0.1, "in_contact": 1},
        ),
    )
    found = deriver.derive(frame)
    assert found["obstacle_distance"] == 0.5
    assert found.obstacle == "baby"
    assert found["human_distance"] == 0.5
    assert found["obstacle_contact"] == 0.0


def test_one_unknown_distance_makes_the_minimum_unknown_and_still_names_the_nearest_known() -> None:
    frame = RawFrame(
        STEP,
        objects=objects(
            {"id": "vase", "role": "obstacle", "distance": 0.8, "in_contact": 0},
            {"id": "bin", "role": "obstacle", "distance": NAN, "in_contact": -1},
        ),
    )
    found = SignalDeriver().derive(frame)
    assert math.isnan(found["obstacle_distance"])
    assert found.obstacle == "vase"
    assert math.isnan(found["obstacle_contact"])  # one is not known, and there are no contact pairs to ask


@pytest.mark.parametrize(("force", "expected"), [(0.04, 0.0), (0.06, 1.0), (NAN, NAN)])
def test_obstacle_contact_falls_back_to_the_contact_pairs(force: float, expected: float) -> None:
    frame = RawFrame(
        STEP,
        contacts=contacts(("wheel", "base", "vase", "obstacle", (force, 0, 0))),
        objects=objects({"id": "vase", "role": "obstacle", "distance": 0.0, "in_contact": -1}),
    )
    assert SignalDeriver().derive(frame)["obstacle_contact"] == pytest.approx(expected, nan_ok=True)


def test_separation_margin_by_hand() -> None:
    parameters = SignalParameters(
        separation=Separation(
            human_speed=1.6,
            reaction_time=0.1,
            deceleration=2.0,
            intrusion_distance=0.2,
            human_uncertainty=0.03,
            robot_uncertainty=0.02,
        )
    )
    frames = series(
        {
            "base": base(v=(0.6, 0.8, 0)),
            "objects": objects({"id": "a", "role": "human", "distance": 2.0, "in_contact": 0}),
        }
    )
    # v = 1: stopping time 0.5 s, 1.6 (0.1 + 0.5) + 0.1 + 0.25 + 0.2 + 0.03 + 0.02
    assert derived(frames, "separation_margin", parameters=parameters)[0] == pytest.approx(2.0 - 1.56)


# ---- contacts


def test_force_signals_by_role() -> None:
    frames = series(
        {"contacts": contacts()},
        {
            "contacts": contacts(
                ("link5", "arm", "counter", "furniture", (3, 4, 0)),
                ("finger", "gripper", "door", "furniture", (0, 0, 12)),
                ("mug", "target", "counter", "furniture", (0, 5, 12)),
                ("hand", "gripper", "baby", "human", (0, 0, 2)),
                ("bin", "obstacle", "floor", "floor", (20, 0, 0)),
            )
        },
    )
    assert derived(frames, "contact_force_max") == [0.0, 20.0]
    assert derived(frames, "arm_furniture_contact_force") == [0.0, 12.0]
    assert derived(frames, "target_furniture_contact_force") == [0.0, 13.0]
    assert derived(frames, "robot_human_force") == [0.0, 2.0]
    assert derived(frames, "robot_contact_force") == [0.0, 12.0]
    assert derived(frames, "self_collision") == [0.0, 0.0]


def test_the_order_of_a_pair_does_not_matter() -> None:
    there = ("link5", "arm", "counter", "furniture", (3, 4, 0))
    back = ("counter", "furniture", "link5", "arm", (-3, -4, 0))
    first = derive_batch(series({"contacts": contacts()}, {"contacts": contacts(there)}))[1]
    second = derive_batch(series({"contacts": contacts()}, {"contacts": contacts(back)}))[1]
    assert same(dict(first), dict(second))


def test_static_initial_pairs_are_filtered_by_pair_for_the_whole_episode() -> None:
    resting = ("mug", "target", "counter", "furniture", (0, 0, 900))
    frames = series(
        {"contacts": contacts(resting)},
        {"contacts": contacts(("counter", "furniture", "mug", "target", (0, 0, 901)))},
        {"contacts": contacts(("mug", "target", "shelf", "furniture", (0, 0, 902)))},
    )
    assert derived(frames, "target_furniture_contact_force") == [0.0, 0.0, 902.0]
    assert derived(frames, "contact_force_max") == [0.0, 0.0, 902.0]


@pytest.mark.parametrize("role", ["obstacle", "human", "target"])
def test_contact_of_the_robot_with_obstacle_human_or_target_at_step_0_counts(role: str) -> None:
    frames = series(*[{"contacts": contacts(("base", "base", "thing", role, (30, 0, 40)))}] * 2)
    assert derived(frames, "contact_force_max") == [50.0, 50.0]


def test_static_robot_furniture_contact_is_filtered() -> None:
    frames = series(*[{"contacts": contacts(("base", "base", "cabinet", "furniture", (30, 0, 40)))}] * 2)
    assert derived(frames, "contact_force_max") == [0.0, 0.0]


def test_a_base_standing_on_the_floor_is_no_contact_even_when_it_settles_late() -> None:
    frames = series({"contacts": contacts()}, {"contacts": contacts(("wheel", "base", "floor", "floor", (0, 0, 900)))})
    assert derived(frames, "contact_force_max") == [0.0, 0.0]


@pytest.mark.parametrize(
    ("role_a", "role_b", "force", "expected"),
    [
        ("arm", "arm", (0, 0, 1), 1.0),
        ("arm", "gripper", (0, 0, 1), 1.0),
        ("gripper", "gripper", (0, 0, 1), 0.0),  # closed fingers
        ("arm", "base", (0, 0, 1), 0.0),
        ("arm", "arm", (0, 0, 0), 0.0),  # listed, nothing presses
        ("arm", "arm", (NAN, 0, 0), 1.0),  # reported, its force unknown
    ],
)
def test_self_collision(role_a: str, role_b: str, force: Sequence[float], expected: float) -> None:
    frames = series({"contacts": contacts()}, {"contacts": contacts(("l1", role_a, "l7", role_b, force))})
    assert derived(frames, "self_collision")[1] == expected


def test_an_unknown_force_makes_its_signals_unknown_and_no_others() -> None:
    frames = series(
        {"contacts": contacts()},
        {
            "contacts": contacts(
                ("link5", "arm", "counter", "furniture", (NAN, 0, 0)),
                ("mug", "target", "counter", "furniture", (0, 0, 7)),
            )
        },
    )
    assert math.isnan(derived(frames, "arm_furniture_contact_force")[1])
    assert math.isnan(derived(frames, "contact_force_max")[1])
    assert derived(frames, "target_furniture_contact_force")[1] == 7.0


def test_absent_contacts_are_unknown_and_empty_contacts_are_zero() -> None:
    frames = series({"contacts": contacts()}, {})
    assert derived(frames, "contact_force_max") == pytest.approx([0.0, NAN], nan_ok=True)
    assert derived(frames, "self_collision") == pytest.approx([0.0, NAN], nan_ok=True)


def test_a_role_that_nobody_defined_could_be_any() -> None:
    odd = ("hull", "robot", "counter", "furniture", (0, 0, 7))
    frames = series({"contacts": contacts(odd)}, {"contacts": contacts(odd)}, {"contacts": contacts()})
    assert derived(frames, "contact_force_max") == [7.0, 7.0, 0.0]
    for signal in ("arm_furniture_contact_force", "robot_human_force", "self_collision"):
        assert derived(frames, signal) == pytest.approx([NAN, NAN, 0.0], nan_ok=True)


def test_numbers_that_overflow_are_infinite_without_a_warning() -> None:
    frames = series({"contacts": contacts()}, {"contacts": contacts(("a", "arm", "b", "furniture", (1e200, 0, 0)))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert derived(frames, "contact_force_max")[1] == math.inf


def test_ten_thousand_contacts_give_the_largest() -> None:
    rng = np.random.default_rng(0)
    force = rng.normal(size=(10_000, 3))
    many = Contacts(
        tuple(f"a{i}" for i in range(10_000)),
        tuple(f"b{i}" for i in range(10_000)),
        ("arm",) * 10_000,
        ("furniture",) * 10_000,
        force,
    )
    expected = max(math.sqrt(x * x + y * y + z * z) for x, y, z in force)
    assert derived(series({"contacts": contacts()}, {"contacts": many}), "arm_furniture_contact_force")[1] == expected


def test_body_regions_and_pressure() -> None:
    parameters = SignalParameters(
        region_limits={"any": RegionLimit(65, 110), "chest": RegionLimit(140, 120)},
        region_of_body={"baby_chest": "chest"},
        contact_area={"bumper": 2.0},
    )
    frames = series(
        {"contacts": contacts()},
        {
            "contacts": contacts(
                ("bumper", "base", "baby_chest", "human", (70, 0, 0)),
                ("baby_leg", "human", "bumper", "base", (13, 0, 0)),
            )
        },
        {"contacts": contacts(("gripper", "gripper", "baby_leg", "human", (13, 0, 0)))},
    )
    assert derived(frames, "human_force_ratio", parameters=parameters) == [0.0, 70 / 140, 13 / 65]
    pressure = derived(frames, "human_pressure_ratio", parameters=parameters)
    assert pressure[:2] == [0.0, 70 / 2.0 / 120]
    assert math.isnan(pressure[2])  # nobody said over which area the gripper touches
    assert math.isnan(derived(frames, "human_force_ratio")[1])  # without limits there is nothing to compare with


# ---- objects


def bystander(*positions: Sequence[float]) -> list[dict[str, Any]]:
    return [{"objects": objects({"id": "salt", "role": "bystander", "position": p})} for p in positions]


def test_displacement_from_the_first_position() -> None:
    frames = series(*bystander((1, 1, 1), (1.003, 1.004, 1), (1, 1, 1)))
    assert derived(frames, "non_target_disp_max") == pytest.approx([0.0, 0.005, 0.0])


def test_displacement_takes_the_worst_bystander_and_leaves_the_target_out() -> None:
    def at(salt: float, target: float) -> dict[str, Any]:
        return {
            "objects": objects(
                {"id": "salt", "role": "bystander", "position": (salt, 0, 0)},
                {"id": "pepper", "role": "bystander", "position": (0, 0, 0)},
                {"id": "mug", "role": "target", "position": (target, 0, 0)},
            )
        }

    assert derived(series(at(0, 0), at(0.5, 9)), "non_target_disp_max") == [0.0, 0.5]


def test_a_bystander_whose_pose_is_lost_or_that_vanishes_is_unknown_and_may_come_back() -> None:
    frames = series(
        *bystander((0, 0, 0), (NAN, 0, 0)),
        {"objects": objects({"id": "mug", "role": "target"})},
        *bystander((0.2, 0, 0)),
    )
    # the mug has vanished in the last frame, which concerns the target's signals alone
    assert derived(frames, "non_target_disp_max") == pytest.approx([0.0, NAN, NAN, 0.2], nan_ok=True)


def test_a_bystander_that_appears_later_starts_from_there() -> None:
    one = {"id": "salt", "role": "bystander", "position": (0, 0, 0)}
    frames = series(
        {"objects": objects(one)},
        {"objects": objects(one, {"id": "cup", "role": "bystander", "position": (5, 0, 0)})},
        {"objects": objects(one, {"id": "cup", "role": "bystander", "position": (5.5, 0, 0)})},
    )
    assert derived(frames, "non_target_disp_max") == [0.0, 0.0, 0.5]


def test_a_bystander_without_a_pose_at_first_is_unknown_until_it_has_one() -> None:
    frames = series(*bystander((NAN, NAN, NAN), (1, 0, 0), (1.5, 0, 0)))
    assert derived(frames, "non_target_disp_max") == pytest.approx([NAN, 0.0, 0.5], nan_ok=True)


def held(z: float, grip: bool | None, orientation: Sequence[float] = IDENTITY, x: float = 0) -> dict[str, Any]:
    return {
        "gripper": grip,
        "objects": objects({"id": "mug", "role": "target", "position": (x, 0, z), "orientation": orientation}),
    }


def test_tilt_is_drift_of_the_body_z_axis_from_its_first_direction() -> None:
    lying = about("x", 90)
    frames = series(held(0, False, lying), held(0, False, about("x", 110)), held(0, False, about("x", -90)))
    assert derived(frames, "target_obj_tilt_world_deg") == pytest.approx([0.0, 20.0, 180.0])


def test_turning_about_the_vertical_axis_is_no_tilt() -> None:
    frames = series(held(0, False), held(0, False, about("z", 70)))
    assert derived(frames, "target_obj_tilt_world_deg")[1] == pytest.approx(0.0, abs=1e-12)


def test_small_tilts_are_not_lost_to_rounding() -> None:
    frames = series(held(0, False), held(0, False, about("y", 1e-7)))
    assert derived(frames, "target_obj_tilt_world_deg")[1] == pytest.approx(1e-7, rel=1e-6)


def test_lift_baseline_is_the_height_at_the_last_step_without_grip() -> None:
    frames = series(held(1.0, False), held(1.1, False), held(1.18, True), held(1.14, True), held(1.3, False))
    assert derived(frames, "obj_above_table") == pytest.approx([0.0, 0.0, 0.08, 0.04, 0.0])
    assert derived(frames, "transport") == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert derived(frames, "gripper_contact") == [0.0, 0.0, 1.0, 1.0, 0.0]


def test_grip_from_the_first_frame_takes_that_height_as_baseline() -> None:
    assert derived(series(held(1.0, True), held(1.2, True)), "obj_above_table") == pytest.approx([0.0, 0.2])


def test_unknown_grip_and_unknown_height() -> None:
    frames = series(held(1.0, False), held(1.2, None), held(NAN, True), held(1.2, True), held(NAN, False))
    assert derived(frames, "obj_above_table") == pytest.approx([0.0, NAN, NAN, 0.2, NAN], nan_ok=True)
    # without grip there is no transport, whatever the height
    assert derived(frames, "transport") == pytest.approx([0.0, NAN, NAN, 1.0, 0.0], nan_ok=True)


def test_of_two_targets_the_lifted_one_counts() -> None:
    def two(a: float, b: float, grip: bool, tilt: float) -> dict[str, Any]:
        return {
            "gripper": grip,
            "objects": objects(
                {"id": "soup", "role": "target", "position": (0, 0, a), "orientation": about("x", tilt)},
                {"id": "sauce", "role": "target", "position": (1, 0, b)},
            ),
        }

    frames = series(two(1, 1, False, 0), two(0.9, 1, True, 25), two(1, 1.3, True, 0))
    assert derived(frames, "obj_above_table") == pytest.approx([0.0, -0.1, 0.3])
    assert derived(frames, "target_obj_tilt_world_deg") == pytest.approx([0.0, 25.0, 0.0])


def test_target_speed_and_release_speed() -> None:
    frames = series(held(0, True), held(0, True, x=0.05), held(0, False, x=0.15), held(0, None, x=0.2))
    assert derived(frames, "target_obj_speed") == pytest.approx([0.0, 1.0, 2.0, 1.0])
    assert derived(frames, "release_speed") == pytest.approx([0.0, 0.0, 2.0, NAN], nan_ok=True)


def test_ungripped_lift_measures_from_the_latest_grasp() -> None:
    frames = series(held(1.0, False), held(1.3, True), held(1.25, False), held(1.0, False))
    assert derived(frames, "ungripped_lift") == pytest.approx([0.0, 0.0, 0.25, 0.0])


def test_perception_age() -> None:
    seen = {"objects": objects({"id": "a", "role": "human", "distance": 1.0})}
    lost = {"objects": objects({"id": "a", "role": "human", "position": (NAN, NAN, NAN)})}
    frames = series({}, seen, lost, {}, seen)
    assert derived(frames, "perception_age") == pytest.approx([NAN, 0.0, 0.05, 0.1, 0.0], nan_ok=True)


# ---- robot


def test_torque_is_of_arm_joints_alone() -> None:
    frames = series(joints(joint1=-40, joint2=12, finger_joint1=500, left_wheel=900))
    assert derived(frames, "max_joint_torque") == [40.0]


def test_the_episode_can_name_its_arm_joints() -> None:
    info = EpisodeInfo("e", attributes={"arm_joints": "a, b"})
    frames = series(joints(a=3, b=-5, c=9))
    assert derived(frames, "max_joint_torque", info=info) == [5.0]


def test_torque_without_effort_or_without_arm_joints_is_unknown() -> None:
    assert math.isnan(derived(series(joints(joint1=1, joint2=NAN)), "max_joint_torque")[0])
    assert math.isnan(derived(series(joints(left_wheel=1)), "max_joint_torque")[0])
    assert math.isnan(derived(series({"joints": Joints((), *[np.zeros(0)] * 3)}), "max_joint_torque")[0])


def test_end_effector_motion_against_the_definition() -> None:
    rng = np.random.default_rng(3)
    path = np.cumsum(rng.normal(scale=0.01, size=(40, 3)), axis=0)
    frames = series(*[ee(*p) for p in path])
    padded = np.concatenate([np.repeat(path[:1], 8, axis=0), path])  # it stood still before
    smooth = np.array([padded[i - 4 : i + 1].mean(axis=0) for i in range(4, len(padded))])
    dt = 0.05

    def norms(rows: np.ndarray) -> np.ndarray:
        return np.linalg.norm(rows, axis=1)

    s = smooth
    assert derived(frames, "eef_speed") == pytest.approx(norms((s[4:] - s[2:-2]) / (2 * dt)), abs=1e-9)
    assert derived(frames, "eef_acc") == pytest.approx(norms((s[4:] - 2 * s[3:-1] + s[2:-2]) / dt**2), abs=1e-7)
    third = (s[4:] - 2 * s[3:-1] + 2 * s[1:-3] - s[:-4]) / (2 * dt**3)
    assert derived(frames, "eef_jerk") == pytest.approx(norms(third), abs=1e-5)


def test_a_lost_end_effector_is_unknown_while_the_windows_hold_it() -> None:
    frames = series(*[ee(0.0)] * 3, {}, *[ee(0.0)] * 12)
    unknown = [math.isnan(v) for v in derived(frames, "eef_speed")]
    assert unknown[3:8] == [True] * 5 and not unknown[0] and not unknown[-1]


def test_keep_out_boxes() -> None:
    parameters = SignalParameters(
        keep_out=(
            KeepOutBox("stove", "ee", (1, -1, 0), (2, 1, 1)),
            KeepOutBox("stairs", "base", (3, -1, 0), (4, 1, 1)),
        ),
        base_radius=0.25,
    )
    frames = series(
        {"base": base(2), **ee(0)}, {"base": base(3.4), **ee(1.5, 0, 0.5)}, {"base": base(0), **ee(3, 2, 1)}
    )
    assert derived(frames, "ee_keep_out_margin", parameters=parameters) == pytest.approx([1.0, -0.5, math.sqrt(2)])
    assert derived(frames, "base_keep_out_margin", parameters=parameters) == pytest.approx([0.75, -0.65, 2.75])


# ---- capabilities


def test_every_need_of_the_schema_can_be_served() -> None:
    frame = RawFrame(
        STEP,
        base=base(),
        gripper=True,
        contacts=contacts(),
        objects=objects(*({"id": r, "role": r} for r in ("target", "bystander", "obstacle", "human"))),
        **joints(j=1.0),
        **ee(0),
    )
    parameters = SignalParameters(
        keep_out=(KeepOutBox("a", "ee", (0, 0, 0), (1, 1, 1)),),
        contact_area={"a": 1.0},
        region_limits={"any": RegionLimit(1, 1)},
    )
    assert unavailable(capabilities(frame, (), parameters)) == {}
    assert set(unavailable(())) == set(SIGNALS)


def test_what_is_missing_is_named() -> None:
    frame = RawFrame(STEP, base=base(v=(NAN, 0, 0)), **joints(j=NAN))
    missing = unavailable(capabilities(frame))
    assert missing["base_speed"] == "base.velocity"
    assert missing["max_joint_torque"] == "joints.effort"
    assert missing["contact_force_max"] == "contacts"
    assert missing["transport"] == "objects.target"
    assert "base_x" not in missing


def test_a_human_is_an_obstacle_and_an_obstacle_no_human() -> None:
    human = RawFrame(STEP, objects=objects({"id": "a", "role": "human"}))
    vase = RawFrame(STEP, objects=objects({"id": "a", "role": "obstacle"}))
    assert {"objects.human", "objects.obstacle"} <= capabilities(human)
    assert "objects.human" not in capabilities(vase)


def test_a_declared_part_that_the_first_frame_lacks_is_unknown_not_absent() -> None:
    missing = unavailable(capabilities(RawFrame(STEP), ("joints", "contacts")))
    assert "max_joint_torque" not in missing
    assert "contact_force_max" not in missing
    assert missing["eef_speed"] == "ee"


# ---- whole frames


def test_an_empty_frame_derives_to_unknown_throughout() -> None:
    found = SignalDeriver().derive(RawFrame(STEP))
    assert np.isnan(found.values).all()
    assert found.obstacle == ""


def test_the_frame_is_not_changed_and_values_are_read_only() -> None:
    frame = RawFrame(STEP, **held(1, True))
    before = dataclasses.replace(frame)
    found = SignalDeriver().derive(frame)
    assert same(frame, before)
    with pytest.raises(ValueError):
        found.values[0] = 1.0
