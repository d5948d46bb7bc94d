"""A robot's driver for the tests of the nodes, and a monitor that watches it."""

from __future__ import annotations

import time

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from osma_monitor.msg import ClauseStatus, EpisodeEvent, EpisodeSummary, ObjectStates, SafetyState
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, to_time

of = topics.of_monitor
SO101 = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


def call(observer, kind, name, **fields):
    client = observer.node.create_client(kind, of(name))
    observer.until(client.service_is_ready, f"the service {name}")
    future = client.call_async(kind.Request(**fields))
    observer.until(future.done, f"the response of {name}")
    return future.result()


class Driver:
    """Publishes what a robot's driver would, at a steady pace while the observer waits."""

    def __init__(self, observer, period=0.02):
        self.observer, self._period, self._next = observer, period, 0.0
        self._publishers, self.sent = {}, 0

    def publisher(self, kind, topic, qos=None):
        self._publishers[topic] = self.observer.node.create_publisher(kind, topic, qos or topics.reliable())
        return self._publishers[topic]

    def until(self, condition, what, send, *watched, limit=30.0):
        def step():
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + self._period
                send()
                self.sent += 1
            return condition()

        return self.observer.until(step, what, limit, *watched)


def now():
    return time.time_ns()


def values(diagnostics, name):
    """The latest status of that concern: (level, message, values)."""
    for array in reversed(diagnostics):
        for status in array.status:
            if status.name.endswith(name):
                return ord(status.level), status.message, {v.key: v.value for v in status.values}
    return None


@pytest.fixture
def arm(observer, nodes, tmp_path):
    """An SO-101 whose joints come in another order than the robot file's."""
    driver = Driver(observer)
    joints = driver.publisher(JointState, topics.JOINT_STATES)
    pose = driver.publisher(PoseStamped, topics.EE_POSE)
    objects = driver.publisher(ObjectStates, topics.OBJECTS)
    names = list(reversed(SO101))

    def send():
        stamp = now()
        joints.publish(
            JointState(header=header(stamp), name=names, position=[50.0] * 6, velocity=[0.0] * 6, effort=[100.0] * 6)
        )
        moved = PoseStamped(header=header(stamp, "base_link"))
        moved.pose.orientation.w = 1.0
        pose.publish(moved)
        objects.publish(ObjectStates(header=header(stamp, "base_link")))

    driver.send = send
    return driver


@pytest.fixture
def base(observer):
    """Odometry and one obstacle, exactly stamped, of an episode announced by event."""
    driver = Driver(observer, period=0.01)
    odometry = driver.publisher(Odometry, topics.ODOM)
    objects = driver.publisher(ObjectStates, topics.OBJECTS)
    event = driver.publisher(EpisodeEvent, topics.EPISODE, topics.latched())
    driver.stamp = now()
    driver.speed, driver.distance = 0.1, 4.0

    def start(**fields):
        fields = {"sources": ["base", "objects"], "suite": "kitchen", "templates": ["navigate"], **fields}
        event.publish(
            EpisodeEvent(
                header=Header(stamp=to_time(driver.stamp + 10**7), frame_id="driver"),
                event=EpisodeEvent.START,
                **{"episode_id": "one", **fields},
            )
        )

    def end(steps=0, episode_id="one"):
        event.publish(
            EpisodeEvent(
                header=Header(stamp=to_time(driver.stamp), frame_id="driver"),
                event=EpisodeEvent.END,
                episode_id=episode_id,
                outcome=EpisodeEvent.OUTCOME_SUCCESS,
                steps=steps,
            )
        )

    def message():
        driver.stamp += 10**7
        moved = Odometry(header=header(driver.stamp, "world"), child_frame_id="base_link")
        moved.pose.pose.orientation.w = 1.0
        moved.twist.twist.linear.x = driver.speed
        seen = ObjectStates(header=header(driver.stamp, "world"), id=["v"], category=["baby"], role=["human"])
        seen.position.extend([1.0, 0.0, 0.0])
        seen.orientation.extend([0.0, 0.0, 0.0, 1.0])
        seen.distance.append(driver.distance)
        seen.in_contact.append(0)
        return moved, seen

    def send():
        moved, seen = message()
        driver.odometry.publish(moved)
        driver.objects.publish(seen)

    driver.start, driver.end, driver.send, driver.message = start, end, send, message
    driver.odometry, driver.objects = odometry, objects
    return driver


@pytest.fixture
def watched(base, observer, nodes, tmp_path):
    """A monitor that already judges the base's episode."""
    base.status = observer.listen(ClauseStatus, of(topics.STATUS))
    base.states = observer.listen(SafetyState, of(topics.STATE))
    base.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    base.summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    base.monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", clock_limit=7200.0)
    observer.until(
        lambda: base.odometry.get_subscription_count() and base.objects.get_subscription_count(), "the monitor", 30
    )
    base.start()
    base.until(lambda: len(base.status) > 10, "10 frames", base.send, base.monitor)
    return base


def alive(base):
    """The monitor still judges what comes next."""
    seen = len(base.status)
    base.until(lambda: len(base.status) > seen + 5, "more frames", base.send, base.monitor)
    assert base.monitor.popen.poll() is None
    return True


def refused(base, text):
    """The diagnostics name the cause."""

    def found():
        report = values(base.diagnostics, "frames")
        return report and any(text in key for key in report[2])

    base.until(found, f"a diagnosis of {text}", base.send, base.monitor)
    return True


def told(base, concern, text, send=None):
    """Some report of the diagnostics has said so, as a warning or an error."""

    def found():
        reports = [s for a in base.diagnostics for s in a.status if s.name.endswith(concern)]
        return any(text in s.message and ord(s.level) > 0 for s in reports)

    base.until(found, f"{concern}: {text}", send or base.send, base.monitor)
    return True
