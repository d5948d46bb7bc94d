"""Robot files: joints in any order and unit, force sensors, gripper contact."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import (
    FixedTransform,
    ForceSensor,
    GripperSpec,
    InputSpec,
    JointSpec,
    RobotModel,
    contact_force,
    convert_joints,
    gripper_contact,
    measure_tare,
    with_prefixes,
)
from osma_monitor.core.signals.raw import Joints
from osma_monitor.core.signals.transforms import Transform

ARM = RobotModel(
    "arm", joints=(JointSpec("pan", span=(-2.0, 1.0)), JointSpec("lift", zero=10.0, scale=0.5, torque_constant=2.0))
)


def test_so101_units_and_any_order():
    j = convert_joints(ARM, ["lift", "other", "pan"], [12.0, 0.0, -100.0], [1.0, 0.0, 20.0], [3.0, 0.0, 4.0])
    assert j.name == ("pan", "lift")
    assert j.position == pytest.approx([-2.0, 1.0])
    assert j.velocity == pytest.approx([0.3, 0.5])
    assert j.effort == pytest.approx([4.0, 6.0])
    assert convert_joints(ARM, ["pan"], [100.0], [], []).position[0] == pytest.approx(1.0)
    assert convert_joints(ARM, ["pan"], [0.0], [], []).position[0] == pytest.approx(-0.5)


def test_what_a_joint_state_lacks_is_unknown():
    j = convert_joints(ARM, ["pan"], [0.0], [], [])
    assert np.isnan(j.effort).all() and np.isnan(j.velocity).all() and np.isnan(j.position[1])
    empty = convert_joints(RobotModel("any"), ["a", "b"], [1.0, 2.0], [], [float("nan"), 1.0])
    assert empty.name == ("a", "b") and np.isnan(empty.velocity).all() and np.isnan(empty.effort[0])
    assert np.isnan(convert_joints(ARM, [], [], [], []).position).all()


def test_gripper_contact_from_effort():
    spec = GripperSpec("g", least_effort=0.2, open_above=1.0)

    def joints(position: float, effort: float) -> Joints:
        return Joints(("g",), np.array([position]), np.zeros(1), np.array([effort]))

    assert gripper_contact(spec, joints(0.5, -0.3)) is True
    assert gripper_contact(spec, joints(0.5, 0.1)) is False
    assert gripper_contact(spec, joints(1.5, 0.9)) is False
    assert gripper_contact(spec, joints(0.5, float("nan"))) is None
    assert gripper_contact(spec, joints(float("nan"), 0.5)) is None
    assert gripper_contact(GripperSpec("other"), joints(0.5, 1.0)) is None


@pytest.mark.parametrize("seed", range(5))
def test_weight_and_bias_are_taken_off_in_any_pose(seed):
    rng = np.random.default_rng(seed)
    sensor = ForceSensor("wrench", "tool", payload_mass=1.5)
    bias, push = rng.normal(size=3), np.array([10.0, -5.0, 2.0])

    def reading(pose: Rotation, external: np.ndarray) -> np.ndarray:
        return pose.inv().apply(np.array([0, 0, -9.81 * 1.5]) + external) + bias

    rest, later = Rotation.random(random_state=seed), Rotation.random(random_state=seed + 99)
    tare = measure_tare(sensor, np.array([reading(rest, np.zeros(3))] * 4), Transform(np.zeros(3), rest.as_quat()))
    assert tare.force == pytest.approx(bias)
    force = contact_force(sensor, reading(later, push), Transform(rng.normal(size=3), later.as_quat()), tare)
    assert force == pytest.approx(push)
    with pytest.raises(ValueError, match="no readings of wrench"):
        measure_tare(sensor, np.zeros((0, 3)), Transform(np.zeros(3), rest.as_quat()))


def test_prefixes_make_one_file_serve_several_robots():
    robot = RobotModel(
        "arm",
        frame="base",
        inputs=(InputSpec("objects", "seen", frame="camera"), InputSpec("base", "odom", frame="map")),
        joints=(JointSpec("a"), JointSpec("b", source="motor_1")),
        transforms=(FixedTransform("base", "camera"), FixedTransform("map", "base"), FixedTransform("/table", "base")),
        force_sensors=(ForceSensor("wrench", "tool"),),
    )
    left = with_prefixes(robot, "left/", "left_")
    assert left.frame == "left/base" and [i.frame for i in left.inputs] == ["left/camera", "map"]
    assert [(t.parent, t.child) for t in left.transforms] == [
        ("left/base", "left/camera"),
        ("map", "left/base"),
        ("/table", "left/base"),
    ]
    assert left.force_sensors[0].frame == "left/tool"
    joints = convert_joints(left, ["left_motor_1", "right_a", "left_a"], [1.0, 2.0, 3.0], [], [])
    assert joints.name == ("a", "b") and joints.position.tolist() == [3.0, 1.0]
    assert with_prefixes(robot) == replace(robot, joints=(JointSpec("a", source="a"), robot.joints[1]))


def test_a_joint_prefix_of_a_file_without_joints_is_an_error():
    with pytest.raises(UserError, match="'left_' goes before joints of the robot file, which lists none"):
        with_prefixes(RobotModel("r"), "left/", "left_")
    assert with_prefixes(RobotModel("r", frame="odom"), "left/").frame == "left/odom"
