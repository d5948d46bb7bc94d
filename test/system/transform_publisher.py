"""A localization and a camera mount as a process: /tf gives odom -> base_link, /tf_static base_link -> camera.

python transform_publisher.py START_NS     the base stands at x = 0.1 m/s * (stamp - START_NS), turned by 90 degrees
"""

from __future__ import annotations

import contextlib
import math
import sys
import time

import rclpy
from geometry_msgs.msg import TransformStamped
from rclpy.executors import ExternalShutdownException
from tf2_msgs.msg import TFMessage

from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header

SPEED = 0.1  #: m/s


def transform(stamp_ns, parent, child, xyz, half_turn):
    t = TransformStamped(header=header(stamp_ns, parent), child_frame_id=child)
    t.transform.translation.x, t.transform.translation.y, t.transform.translation.z = xyz
    t.transform.rotation.z, t.transform.rotation.w = math.sin(half_turn), math.cos(half_turn)
    return t


def main():
    start = int(sys.argv[1])
    rclpy.init()
    node = rclpy.create_node("localization")
    moving = node.create_publisher(TFMessage, topics.TF, topics.reliable())
    fixed = node.create_publisher(TFMessage, topics.TF_STATIC, topics.latched())
    fixed.publish(TFMessage(transforms=[transform(time.time_ns(), "base_link", "camera", (0.5, 0.0, 1.0), 0.0)]))

    def send():
        stamp = time.time_ns()
        x = SPEED * (stamp - start) / 1e9
        moving.publish(TFMessage(transforms=[transform(stamp, "odom", "base_link", (x, 2.0, 0.0), math.pi / 4)]))

    node.create_timer(0.02, send)
    with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    main()
