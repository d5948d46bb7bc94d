"""A driver as a process of its own: odometry and one tracked person at 50 Hz, stamped by this machine's clock."""

from __future__ import annotations

import contextlib
import time

import rclpy
from nav_msgs.msg import Odometry
from osma_monitor.msg import ObjectStates
from rclpy.executors import ExternalShutdownException

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header


def main():
    rclpy.init()
    node = rclpy.create_node("driver")
    odometry = node.create_publisher(Odometry, topics.ODOM, topics.reliable())
    objects = node.create_publisher(ObjectStates, topics.OBJECTS, topics.reliable())

    def send():
        stamp = time.time_ns()
        moved = Odometry(header=header(stamp, "world"), child_frame_id="base_link")
        moved.pose.pose.orientation.w = 1.0
        seen = ObjectStates(header=header(stamp, "world"), id=["anna"], category=["adult"], role=["human"])
        seen.position.extend([4.0, 0.0, 0.0])
        seen.orientation.extend([0.0, 0.0, 0.0, 1.0])
        seen.distance.append(4.0)
        seen.in_contact.append(0)
        objects.publish(seen)
        odometry.publish(moved)

    node.create_timer(0.02, send)
    with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    main()
