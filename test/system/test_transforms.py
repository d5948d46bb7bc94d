"""Poses in a camera's frame, brought to the robot's by /tf and /tf_static of another process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import Driver, now, of, values
from nav_msgs.msg import Odometry
from osma_monitor.msg import ObjectShapes, ObjectStates, SafetyState
from osma_monitor.msg import RawFrame as RawFrameMsg

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, msg_to_frame

pytestmark = pytest.mark.ros
PUBLISHER = Path(__file__).with_name("transform_publisher.py")
SPEED = 0.1
ROBOT = """
name: cart
frame: odom
inputs: [{part: base, topic: odom}, {part: objects, topic: objects}]
primary: odom
model_file: cart.urdf
"""
MODEL = """<robot name="cart">
  <link name="base_link"><collision><origin xyz="0 0 0.5"/>
    <geometry><cylinder radius="0.2" length="1.0"/></geometry></collision></link>
  <link name="arm"><collision><geometry><box size="9 9 9"/></geometry></collision></link>
  <joint name="shoulder" type="revolute"><parent link="base_link"/><child link="arm"/></joint>
</robot>
"""


@pytest.fixture
def cart(observer, nodes, tmp_path):
    """A cart at the origin; its camera sees a person, whose distance follows from pose and shape."""
    driver = Driver(observer)
    odometry = driver.publisher(Odometry, topics.ODOM)
    objects = driver.publisher(ObjectStates, topics.OBJECTS)
    shapes = driver.publisher(ObjectShapes, topics.OBJECT_SHAPES, topics.latched())
    person = ObjectShapes(id=["anna"], primitive=[ObjectShapes.CYLINDER])
    person.dimensions.extend([0.25, 0.9, 0.0])
    person.position.extend([0.0, 0.0, 0.0])
    person.orientation.extend([0.0, 0.0, 0.0, 1.0])
    shapes.publish(person)
    driver.frame = "camera"
    driver.seen = (4.0, 1.0, -0.1)  #: in the camera's frame

    def send():
        stamp = now()
        moved = Odometry(header=header(stamp, "odom"), child_frame_id="base_link")
        moved.pose.pose.orientation.w = 1.0
        see = ObjectStates(header=header(stamp, driver.frame), id=["anna"], category=["adult"], role=["human"])
        see.position.extend(driver.seen)
        see.orientation.extend([0.0, 0.0, 0.0, 1.0])
        see.distance.append(float("nan"))
        see.in_contact.append(0)
        objects.publish(see)
        odometry.publish(moved)

    driver.send = send
    driver.frames = observer.listen(RawFrameMsg, of(topics.FRAME))
    driver.states = observer.listen(SafetyState, of(topics.STATE))
    driver.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    (tmp_path / "cart.yaml").write_text(ROBOT)
    (tmp_path / "cart.urdf").write_text(MODEL)
    driver.monitor = nodes.start(
        "safety_monitor", robot=tmp_path / "cart.yaml", episode_log="", suite="kitchen", templates=["navigate"]
    )
    return driver


def localization(nodes, start):
    return nodes.run([sys.executable, str(PUBLISHER), str(start)], "localization")


def state(cart, wanted, what):
    cart.until(lambda: cart.states and cart.states[-1].state == wanted, what, cart.send, cart.monitor)


def counted(cart, text):
    cart.until(
        lambda: any(text in key for key in (values(cart.diagnostics, "frames") or (0, "", {}))[2]),
        f"a count of {text!r}",
        cart.send,
        cart.monitor,
    )


def test_poses_of_a_camera_on_a_moving_base_come_in_the_robots_frame(cart, nodes):
    start = now()
    process = localization(nodes, start)
    state(cart, SafetyState.OK, "OK by transforms of another process")
    begun = len(cart.frames)
    cart.until(lambda: len(cart.frames) > begun + 30, "30 frames", cart.send, cart.monitor, process)
    errors = []
    for message in cart.frames[begun:]:
        frame = msg_to_frame(message)
        x = SPEED * (frame.stamp_ns - start) / 1e9
        # camera (0.5, 0, 1) on a base at (x, 2, 0), turned by 90 degrees
        errors.append(np.abs(frame.objects.position[0] - [x - 1.0, 2.0 + 4.5, 0.9]).max())
        assert frame.objects.orientation[0] == pytest.approx([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
        gap = np.hypot(*frame.objects.position[0, :2]) - 0.2 - 0.25
        assert frame.objects.distance[0] == pytest.approx(gap)
    # a transform is held for the moment until the next one
    assert np.median(errors) < 0.1 * SPEED and max(errors) < 0.5 * SPEED
    notes = cart.until(lambda: values(cart.diagnostics, "inputs"), "the diagnostics", cart.send, cart.monitor)[2]
    assert notes["footprint"] == "1 shapes; cart.urdf: left out of the footprint: links that joints move: arm"
    assert notes["frames"] == "base_link, camera, odom" and "not read" not in notes["/tf"]


def test_a_frame_that_nobody_gives_is_unknown_and_named(cart, nodes):
    localization(nodes, now())
    state(cart, SafetyState.OK, "OK")
    cart.frame = "thermal_camera"
    state(cart, SafetyState.UNKNOWN, "UNKNOWN")
    counted(cart, "objects: unknown frame 'thermal_camera'")
    cart.frame = "camera"
    state(cart, SafetyState.OK, "OK again")


def test_a_transform_that_goes_stale_is_unknown_until_it_comes_again(cart, nodes):
    process = localization(nodes, now())
    state(cart, SafetyState.OK, "OK")
    process.kill()
    killed = time.monotonic()
    state(cart, SafetyState.UNKNOWN, "UNKNOWN")
    assert time.monotonic() - killed < 3.0
    counted(cart, "objects: stale transform of frame 'camera'")
    assert "odom -> base_link" in cart.monitor.output
    assert np.isnan(msg_to_frame(cart.frames[-1]).objects.distance[0])
    localization(nodes, now())
    state(cart, SafetyState.OK, "OK again")
