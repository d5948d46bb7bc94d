"""The monitor over a bag that is played beside it, for watching. `osma replay BAG` scores one without ROS, and faster.

ros2 launch osma_monitor replay.launch.py bag:=my_bag rate:=2.0
"""

from launch.actions import DeclareLaunchArgument, ExecuteProcess, Shutdown, TimerAction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchDescription
from osma_monitor.resources import config_path


def generate_launch_description():
    def argument(name, default, text):
        return DeclareLaunchArgument(name, default_value=default, description=text)

    play = ExecuteProcess(
        cmd=["ros2", "bag", "play", LaunchConfiguration("bag"), "--rate", LaunchConfiguration("rate")],
        output="screen",
        # the last frames are judged before the monitor is ended
        on_exit=[TimerAction(period=3.0, actions=[Shutdown(reason="the bag has ended")])],
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument("bag", description="bag folder or file"),
            argument("rate", "1.0", "speed of the playback"),
            argument("robot", "", "robot file, by name or path, for a bag from a robot with topics of its own"),
            argument("log", "auto", "folder of the episodes"),
            argument("params", str(config_path("replay.params.yaml")), "parameter file"),
            Node(
                package="osma_monitor",
                executable="safety_monitor",
                parameters=[
                    LaunchConfiguration("params"),
                    {"robot": LaunchConfiguration("robot"), "episode_log": LaunchConfiguration("log")},
                ],
                output="screen",
            ),
            play,
        ]
    )
