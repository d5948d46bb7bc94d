"""A robot file's inputs: names, units, frames, force sensors. Messages as a driver would send them."""

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped, WrenchStamped
from osma_monitor.msg import Contacts, ObjectShapes, ObjectStates
from osma_monitor.srv import Tare
from sensor_msgs.msg import JointState

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import Base, Objects, RawFrame
from osma_monitor.io.obstacles import parse_obstacles
from osma_monitor.io.robots import parse_robot
from osma_monitor.ros.conversions import header
from osma_monitor.ros.robot_inputs import RobotInputs, message_type

pytestmark = pytest.mark.ros
STAMP = 5 * 10**9


def robot_inputs(text, **limits):
    refused = []
    inputs = RobotInputs(None, parse_robot(text), lambda *args: refused.append(args), **limits)
    return inputs, {i.topic: i for i in inputs.topic_inputs()}, refused


ARM = """
name: arm
frame: base
inputs:
  - {part: joints, topic: js}
  - {part: objects, topic: things, role: bystander, category: cup}
  - {part: ee, topic: tool}
primary: js
joints:
  - {name: a, source: motor_2, span: [-1.0, 1.0], torque_constant: 0.5}
  - {name: b, source: motor_1, zero: 10.0, scale: -0.1}
gripper: {joint: a, least_effort: 2.0}
transforms:
  - parent: base
    child: camera
    translation: [1.0, 2.0, 3.0]
    rotation: [0.0, 0.0, 0.7071067811865476, 0.7071067811865476]
"""


def values(item, message):
    return dict(item.values(message))


def test_joints_by_name_in_any_order_with_units():
    _, inputs, _ = robot_inputs(ARM)
    message = JointState(
        header=header(STAMP), name=["motor_1", "x", "motor_2"], position=[20.0, 9.0, 50.0], effort=[1.0, 9.0, 8.0]
    )
    got = values(inputs["js"], message)
    joints = got["js"]
    assert joints.name == ("a", "b")
    assert joints.position.tolist() == [pytest.approx(0.5), pytest.approx(-1.0)]
    assert np.isnan(joints.velocity).all()
    assert joints.effort.tolist() == [4.0, 1.0]
    assert got["js#gripper"] is True


def test_a_joint_that_is_missing_is_unknown_not_zero():
    _, inputs, _ = robot_inputs(ARM)
    got = values(inputs["js"], JointState(header=header(STAMP), name=["motor_1"], position=[10.0]))
    assert np.isnan(got["js"].position[0]) and got["js"].position[1] == 0.0
    assert "js#gripper" not in got  # its effort is not known, so neither is the grip


def test_poses_are_brought_to_the_robots_frame():
    _, inputs, refused = robot_inputs(ARM)
    message = PoseStamped(header=header(STAMP, "camera"))
    message.pose.position.x, message.pose.orientation.w = 1.0, 1.0
    ee = values(inputs["tool"], message)["tool"]
    assert ee.position == pytest.approx([1.0, 3.0, 3.0])
    assert not refused


def test_a_frame_that_is_not_known_is_unknown_and_named():
    _, inputs, refused = robot_inputs(ARM)
    message = ObjectStates(header=header(STAMP, "moon"), id=["o"], category=[""], role=[""], in_contact=[1])
    message.position.extend([1.0, 0.0, 0.0])
    message.orientation.extend([0.0, 0.0, 0.0, 1.0])
    message.distance.append(0.5)
    objects = values(inputs["things"], message)["things"]
    assert np.isnan(objects.position).all() and objects.distance.tolist() == [0.5]
    assert objects.role == ("bystander",) and objects.category == ("cup",)
    assert refused[0][0] == "things" and "moon" in refused[0][1]


def tf_message(parent, child, stamp, x, w=1.0):
    from geometry_msgs.msg import TransformStamped
    from tf2_msgs.msg import TFMessage

    t = TransformStamped(header=header(stamp, parent), child_frame_id=child)
    t.transform.translation.x, t.transform.rotation.w = x, w
    return TFMessage(transforms=[t])


def test_the_message_of_tf_is_that_of_ros():
    """The type's hash decides whether DDS takes two types for one."""
    import json
    import os

    from rosbags.typesys import Stores, get_typestore

    name = "share/tf2_msgs/msg/TFMessage.json"
    files = [Path(p, name) for p in os.environ["AMENT_PREFIX_PATH"].split(os.pathsep) if Path(p, name).is_file()]
    hashes = {h["type_name"]: h["hash_string"] for h in json.loads(files[0].read_text())["type_hashes"]}
    assert hashes["tf2_msgs/msg/TFMessage"] == get_typestore(Stores.ROS2_JAZZY).hash_rihs01("tf2_msgs/msg/TFMessage")


def test_transforms_of_tf_are_used_at_the_stamp():
    robot, inputs, refused = robot_inputs(ARM)
    robot.take_transforms(tf_message("base", "map", STAMP - 10**8, 1.0), fixed=False)
    robot.take_transforms(tf_message("base", "map", STAMP + 10**8, 3.0), fixed=False)
    message = PoseStamped(header=header(STAMP, "map"))
    message.pose.orientation.w = 1.0
    assert values(inputs["tool"], message)["tool"].position == pytest.approx([2.0, 0.0, 0.0])
    robot.take_transforms(tf_message("base", "bad", STAMP, float("nan")), fixed=False)
    assert refused[-1][:2] == ("/tf", "not finite")
    for parent, child, w, kind in (
        ("base", "bad", 0.0, "no rotation"),
        ("base", "/base", 1.0, "no two frames"),
        ("", "bad", 1.0, "no two frames"),
        ("base", "b" * 4097, 1.0, "name too long"),
    ):
        robot.take_transforms(tf_message(parent, child, STAMP, 0.0, w), fixed=True)
        assert refused[-1][:2] == ("/tf_static", kind)
    assert "bad" not in robot.buffer
    # a stamp of zero stands for "always", as in recordings
    robot.take_transforms(tf_message("base", "post", 0, 5.0, 1.001), fixed=False)
    message.header.frame_id = "post"
    assert values(inputs["tool"], message)["tool"].position == pytest.approx([5.0, 0.0, 0.0])
    assert robot.notes() == {"/tf": "3 transforms", "frames": "base, camera, map, post", "footprint": "0 shapes"}


def test_a_broken_sender_of_transforms_fills_no_memory():
    robot, inputs, refused = robot_inputs(ARM, max_elements=500)
    for i in range(1000):
        robot.take_transforms(tf_message("base", f"frame{i}", STAMP, 1.0), fixed=False)
    assert len(robot.buffer) == 500 and refused[-1][1] == "too many frames"
    flood = tf_message("base", "x", STAMP, 1.0)
    flood.transforms = list(flood.transforms) * 501
    robot.take_transforms(flood, fixed=True)
    assert refused[-1] == ("/tf_static", "malformed", "transforms has 501 elements")
    assert len(robot.notes()["frames"]) < 1000
    message = PoseStamped(header=header(STAMP))
    for i in range(100):
        message.header.frame_id = f"elsewhere{i}"
        values(inputs["tool"], message)
    assert len({kind for topic, kind, _ in refused if topic == "tool"}) == 33


def test_a_transform_that_grows_old_is_no_transform():
    robot, inputs, refused = robot_inputs(ARM + "transform_age: 0.2\n")
    robot.take_transforms(tf_message("base", "map", STAMP, 1.0), fixed=False)
    message = PoseStamped(header=header(STAMP + 19 * 10**7, "map"))
    message.pose.orientation.w = 1.0
    assert values(inputs["tool"], message)["tool"].position == pytest.approx([1.0, 0.0, 0.0])
    message.header = header(STAMP + 21 * 10**7, "map")
    assert np.isnan(values(inputs["tool"], message)["tool"].position).all()
    assert refused == [("tool", "stale transform of frame 'map'", refused[0][2])] and "0.21 s away" in refused[0][2]


SENSOR = """
name: arm
frame: base
inputs: [{part: joints, topic: js}]
primary: js
force_sensors:
  - {topic: wrench, frame: tool, body: hand, payload_mass: 2.0}
transforms:
  - {parent: base, child: tool, rotation: [1.0, 0.0, 0.0, 0.0]}
"""


def wrench(z, frame="tool"):
    message = WrenchStamped(header=header(STAMP, frame))
    message.wrench.force.z = z
    return message


def test_the_payload_is_taken_off_and_the_sensor_tared():
    robot, inputs, _ = robot_inputs(SENSOR)
    weight = 2.0 * 9.81  # the tool points down: its z axis sees the weight as +z
    contacts = values(inputs["wrench"], wrench(weight))["wrench"]
    assert contacts.body_a == ("hand",) and contacts.force[0] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    for _ in range(10):
        values(inputs["wrench"], wrench(weight + 3.0))
    robot._readings["wrench"].popleft()
    answer = robot._on_tare(Tare.Request(), Tare.Response())
    assert answer.success and list(answer.bias) == pytest.approx([0.0, 0.0, 3.0], abs=1e-9)
    contacts = values(inputs["wrench"], wrench(weight + 3.0 + 5.0))["wrench"]
    assert np.sqrt((contacts.force**2).sum()) == pytest.approx(5.0)


def test_a_sensor_in_an_unknown_frame_gives_an_unknown_force():
    _, inputs, refused = robot_inputs(SENSOR)
    contacts = values(inputs["wrench"], wrench(1.0, "elsewhere"))["wrench"]
    assert np.isnan(contacts.force).all() and "elsewhere" in refused[0][1]


def test_taring_without_readings_says_so():
    robot, _, _ = robot_inputs(SENSOR)
    answer = robot._on_tare(Tare.Request(), Tare.Response())
    assert not answer.success and "no readings" in answer.message


def test_taring_refuses_what_is_not_finite_and_keeps_the_old_bias():
    robot, inputs, _ = robot_inputs(SENSOR)
    values(inputs["wrench"], wrench(float("nan")))
    answer = robot._on_tare(Tare.Request(), Tare.Response())
    assert not answer.success and "not finite" in answer.message
    contacts = values(inputs["wrench"], wrench(2.0 * 9.81 + 4.0))["wrench"]
    assert np.sqrt((contacts.force**2).sum()) == pytest.approx(4.0)


def test_taring_takes_no_readings_of_a_sensor_that_is_silent(monkeypatch):
    robot, inputs, _ = robot_inputs(SENSOR)
    values(inputs["wrench"], wrench(1.0))
    late = time.monotonic() + 5.0
    monkeypatch.setattr(time, "monotonic", lambda: late)
    answer = robot._on_tare(Tare.Request(seconds=2.0), Tare.Response())
    assert not answer.success and "in the last 2 s" in answer.message


def test_taring_is_of_all_sensors_or_of_none_and_in_the_frame_that_they_name():
    two = SENSOR + "  - {parent: base, child: side, rotation: [0.7071067811865476, 0.0, 0.0, 0.7071067811865476]}\n"
    two = two.replace("transforms:", "  - {topic: other, frame: tool, body: foot}\ntransforms:")
    robot, inputs, _ = robot_inputs(two)
    level = WrenchStamped(header=header(STAMP, "side"))  # the sensor lies on its side: the payload pulls along -y
    level.wrench.force.y = -2.0 * 9.81 + 3.0
    values(inputs["wrench"], level)
    answer = robot._on_tare(Tare.Request(), Tare.Response())
    assert not answer.success and not answer.bias and not robot._tares["wrench"].force.any()
    values(inputs["other"], wrench(0.0))
    answer = robot._on_tare(Tare.Request(), Tare.Response())
    assert answer.success and list(answer.bias) == pytest.approx([0.0, 3.0, 0.0, 0.0, 0.0, 0.0], abs=1e-9)


def test_types_are_checked_at_start():
    with pytest.raises(UserError, match="gives no joints"):
        robot_inputs("name: r\ninputs: [{part: joints, topic: js, type: nav_msgs/msg/Odometry}]\nprimary: js\n")
    with pytest.raises(UserError, match="install its package no_such_msgs"):
        message_type("no_such_msgs/msg/Thing")
    assert message_type("osma_monitor/msg/Contacts") is Contacts


MOBILE = """
name: cart
frame: world
inputs: [{part: base, topic: odom}, {part: objects, topic: objects}]
primary: odom
footprint: [{primitive: box, size: [0.5, 0.3, 0.2], position: [0.0, 0.0, 0.2]}]
"""


def cart_frame(objects=None):
    base = Base(np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3), np.zeros(3))
    return RawFrame(STAMP, base=base, objects=objects)


def test_distances_come_from_footprint_and_shapes():
    robot, _, refused = robot_inputs(MOBILE)
    ball = ObjectShapes(id=["o"], primitive=[ObjectShapes.SPHERE])
    ball.dimensions.extend([0.1, 0.0, 0.0])
    ball.position.extend([0.0, 0.0, 0.0])
    ball.orientation.extend([0.0, 0.0, 0.0, 1.0])
    robot.take_shapes(ball)
    objects = Objects(
        ("o", "measured"),
        ("vase", "vase"),
        ("obstacle", "obstacle"),
        np.array([[2.5, 0.0, 0.2], [9.0, 0.0, 0.2]]),
        np.array([[0.0, 0.0, 0.0, 1.0]] * 2),
        np.array([np.nan, 0.25]),
        np.array([-1, -1], np.int8),
    )
    frame = robot.complete(cart_frame(objects))
    assert frame.objects.distance.tolist() == [pytest.approx(2.5 - 1.0 - 0.5 - 0.1), 0.25]
    ball.dimensions.append(1.0)
    robot.take_shapes(ball)
    assert refused[-1][:2] == ("object_shapes", "malformed")
    robot, _, refused = robot_inputs(MOBILE, max_elements=2, max_text=20)
    ball.dimensions.pop()
    for name, kind in (("a", ""), ("b", ""), ("c", "too many objects"), ("d" * 21, "malformed"), ("a", "")):
        ball.id = [name]
        refused.clear()
        robot.take_shapes(ball)
        assert [k for _, k, _ in refused] == ([kind] if kind else [])


def test_a_map_gives_obstacles_to_a_robot_that_tracks_none():
    vase = "{id: v, category: vase, position: [3.0, 0.0], shape: {primitive: cylinder, size: [0.2, 0.5]}}"
    text = f"obstacles:\n  - {vase}\n"
    robot = RobotInputs(None, parse_robot(MOBILE), print, parse_obstacles(text))
    frame = robot.complete(cart_frame())
    assert frame.objects.id == ("v",) and frame.objects.distance.tolist() == [pytest.approx(3.0 - 1.0 - 0.5 - 0.2)]
