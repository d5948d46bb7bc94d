"""Deadlines of the inputs: asked for where they are offered, reported where not, counted where they pass."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import now, values
from nav_msgs.msg import Odometry
from rclpy.duration import Duration

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header

pytestmark = pytest.mark.ros
ROBOT = """
name: cart
inputs: [{part: base, topic: odom, deadline: 0.2}]
primary: odom
"""


def offering(seconds):
    profile = topics.reliable()
    if seconds:
        profile.deadline = Duration(seconds=seconds)
    return profile


def report(diagnostics):
    return values(diagnostics, "inputs") or (0, "", {})


def asked(observer):
    """Deadlines in s that readers of odom ask for; 0: none."""
    infos = observer.node.get_subscriptions_info_by_topic(topics.ODOM)
    found = [i.qos_profile.deadline.nanoseconds / 1e9 for i in infos if i.node_name == "safety_monitor"]
    return [seconds if seconds < 1e9 else 0.0 for seconds in found]


def test_a_deadline_that_is_offered_is_asked_for_and_counted_when_missed(observer, nodes):
    odometry = observer.node.create_publisher(Odometry, topics.ODOM, offering(0.1))
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="", deadline=0.2)
    observer.until(lambda: asked(observer) == [0.2], "a reader that asks for 0.2 s", 20, monitor)

    def received():
        odometry.publish(Odometry(header=header(now(), "world")))
        return (
            "odom deadlines missed" in report(diagnostics)[2]
            and " 0 messages" not in report(diagnostics)[2]["odom (base)"]
        )

    observer.until(received, "messages", 20, monitor)
    before = int(report(diagnostics)[2]["odom deadlines missed"])
    observer.until(
        lambda: int(report(diagnostics)[2]["odom deadlines missed"]) >= before + 5, "five missed", 20, monitor
    )
    level, message, _ = report(diagnostics)
    assert level >= 1 and "odom: deadline of 0.2 s missed" in message


@pytest.mark.parametrize(("seconds", "offer"), [(0.0, "observer offers none"), (1.0, "observer offers 1 s")])
def test_a_deadline_that_is_not_offered_is_reported_and_watched_all_the_same(observer, nodes, seconds, offer):
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="", deadline=0.3)
    observer.until(lambda: diagnostics, "the diagnostics", 20, monitor)
    odometry = observer.node.create_publisher(Odometry, topics.ODOM, offering(seconds))
    began = time.monotonic()
    observer.until(lambda: offer in report(diagnostics)[1], "the report", 10, monitor)
    assert time.monotonic() - began < 2.5 and report(diagnostics)[0] >= 1

    def heard():
        odometry.publish(Odometry(header=header(now(), "world")))
        return " 0 messages" not in report(diagnostics)[2]["odom (base)"]

    observer.until(heard, "messages, which a reader with a deadline would not get", 20, monitor)
    observer.until(lambda: int(report(diagnostics)[2]["odom deadlines missed"]) >= 3, "missed deadlines", 20, monitor)
    assert asked(observer) == [0.0]


def test_without_adaptation_a_deadline_that_is_not_offered_is_an_error(observer, nodes):
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="", deadline=0.3, reliability="reliable")
    observer.until(lambda: diagnostics, "the diagnostics", 20, monitor)
    assert asked(observer) == [0.3]
    observer.node.create_publisher(Odometry, topics.ODOM, offering(0.0))
    began = time.monotonic()
    observer.until(lambda: "incompatible QoS: a deadline of 0.3 s" in report(diagnostics)[1], "it", 10, monitor)
    assert time.monotonic() - began < 2.5 and report(diagnostics)[0] == 2


def test_a_robot_file_gives_one_input_its_own_deadline(observer, nodes, tmp_path):
    (tmp_path / "cart.yaml").write_text(ROBOT)
    observer.node.create_publisher(Odometry, topics.ODOM, offering(0.1))
    monitor = nodes.start("safety_monitor", episode_log="", robot=tmp_path / "cart.yaml", deadline=5.0)
    observer.until(lambda: asked(observer) == [0.2], "a reader that asks for 0.2 s", 20, monitor)
