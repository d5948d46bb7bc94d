"""The monitor, and with it the command gate, beside a real robot whose driver runs already.

ros2 launch osma_monitor arm.launch.py robot:=so101
ros2 launch osma_monitor arm.launch.py robot:=franka namespace:=left gate:=stop log:=~/episodes
"""

from launch.actions import DeclareLaunchArgument
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration, PythonExpression
from launch_ros.actions import Node

from launch import LaunchDescription
from osma_monitor.resources import config_path


def generate_launch_description():
    def argument(name, default, text):
        return DeclareLaunchArgument(name, default_value=default, description=text)

    gate = LaunchConfiguration("gate")
    return LaunchDescription(
        [
            argument("robot", "so101", "robot file, by name or path"),
            argument("namespace", "", "namespace of the robot; several robots have one each"),
            argument("gate", "observe", "command gate: off, observe, slow or stop"),
            argument("log", "auto", "folder of the episodes"),
            argument("params", str(config_path("arm.params.yaml")), "parameter file"),
            Node(
                package="osma_monitor",
                executable="safety_monitor",
                namespace=LaunchConfiguration("namespace"),
                parameters=[
                    LaunchConfiguration("params"),
                    {"robot": LaunchConfiguration("robot"), "episode_log": LaunchConfiguration("log")},
                ],
                output="screen",
            ),
            Node(
                package="osma_monitor",
                executable="command_gate",
                namespace=LaunchConfiguration("namespace"),
                parameters=[LaunchConfiguration("params"), {"mode": gate}],
                condition=IfCondition(PythonExpression(["'", gate, "' != 'off'"])),
                output="screen",
            ),
        ]
    )
