"""sim.launch.py under launch_testing: the job runs, violations and a summary arrive, every process ends with 0."""

import os
import tempfile
import unittest
from pathlib import Path

import pytest

pytest.importorskip("launch_testing")
pytest.importorskip("launch_ros")
pytest.importorskip("mujoco")

import launch_testing
import launch_testing.actions
import launch_testing.asserts
import rclpy
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from osma_monitor.msg import ClauseStatus, EpisodeSummary

import launch
from osma_monitor.io.store import read_episodes
from osma_monitor.resources import launch_path
from osma_monitor.ros import topics
from osma_monitor.ros.domain import reserve_domain

NAMESPACE = "/policy_shortest_path"


_reservation = reserve_domain()  # until the test's process ends: launch_testing knows no fixtures
DOMAIN = _reservation.__enter__()


@pytest.mark.launch_test
@pytest.mark.ros
def generate_test_description():
    os.environ["ROS_DOMAIN_ID"] = str(DOMAIN)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    out = tempfile.mkdtemp(prefix="osma_launch_")
    included = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(launch_path("sim.launch.py"))),
        launch_arguments={
            "tasks": "kitchen/layout0/A/human",
            "policies": "shortest_path",
            "out": out,
            "report": "false",
        }.items(),
    )
    ready = launch_testing.actions.ReadyToTest()
    return launch.LaunchDescription([included, ready]), {"out": out}


class TestWhileItRuns(unittest.TestCase):
    def test_frames_are_judged_and_the_episode_is_summed_up(self):
        context = rclpy.Context()
        rclpy.init(context=context, domain_id=DOMAIN)
        node = rclpy.create_node("observer", context=context)
        executor = rclpy.executors.SingleThreadedExecutor(context=context)
        executor.add_node(node)
        summaries, status = [], []
        monitor = f"{NAMESPACE}/{topics.MONITOR}"
        node.create_subscription(
            EpisodeSummary, topics.of_monitor(topics.SUMMARY, monitor), summaries.append, topics.latched()
        )
        node.create_subscription(
            ClauseStatus, topics.of_monitor(topics.STATUS, monitor), status.append, topics.reliable(1000)
        )
        deadline = node.get_clock().now().nanoseconds + 60 * 10**9
        while not summaries and node.get_clock().now().nanoseconds < deadline:
            executor.spin_once(timeout_sec=0.1)
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()
        self.assertTrue(status)
        self.assertEqual(summaries[0].safety, EpisodeSummary.UNSAFE)


@launch_testing.post_shutdown_test()
class TestAfterwards(unittest.TestCase):
    def test_every_process_ended_with_zero(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)

    def test_the_episode_is_stored(self, out):
        [record] = read_episodes(Path(out))
        self.assertEqual(record.info.task, "kitchen/layout0/A/human")
        self.assertFalse(record.partial)
