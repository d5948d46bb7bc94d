"""The main job on a ROS 2 machine: every task under every policy in lock-step, then the report. As `osma demo` does it.

    ros2 launch osma_monitor sim.launch.py
    ros2 launch osma_monitor sim.launch.py policies:=cautious tasks:=kitchen/layout0/A/baby out:=my_run

One bridge, policy and monitor after the other, each set in a namespace of its own.
"""

import json
import tempfile
from pathlib import Path

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import ShutdownProcess
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchDescription
from osma_monitor.cli import demo
from osma_monitor.resources import config_path


def generate_launch_description():
    return LaunchDescription(
        [
            DeclareLaunchArgument("tasks", default_value=",".join(demo.tasks()), description="task ids, by comma"),
            DeclareLaunchArgument(
                "policies", default_value=",".join(demo.POLICIES), description="policy names, by comma"
            ),
            DeclareLaunchArgument("seeds", default_value="0", description="seeds, by comma"),
            DeclareLaunchArgument("out", default_value="osma_run", description="folder of the episodes and the report"),
            DeclareLaunchArgument("report", default_value="true", description="write the report at the end"),
            DeclareLaunchArgument(
                "params", default_value=str(config_path("sim.params.yaml")), description="parameter file"
            ),
            OpaqueFunction(function=run),
        ]
    )


def run(context):
    """The first set of nodes; the end of its bridge starts the next, the last one's the report."""

    def argument(name):
        return LaunchConfiguration(name).perform(context)

    def split(name):
        return [item.strip() for item in argument(name).split(",") if item.strip()]

    out = str(Path(argument("out")).absolute())
    episodes = Path(tempfile.mkdtemp(prefix="osma_")) / "episodes.jsonl"
    lines = [json.dumps({"task": task, "seed": int(seed)}) for task in split("tasks") for seed in split("seeds")]
    episodes.write_text("\n".join(lines) + "\n")
    # what to run and where belongs to the launch, the rest to the parameter file
    after = finish(out, argument("report") == "true")
    for policy in reversed(split("policies")):
        after = node_set(policy, out, str(episodes), argument("params"), after)
    return after


def node_set(policy, out, episodes, params, after):
    """Bridge, policy and monitor of one policy; ``after`` is started when the bridge has ended."""
    namespace = f"policy_{''.join(c if c.isalnum() else '_' for c in policy)}"

    def node(executable, **values):
        return Node(
            package="osma_monitor",
            executable=executable,
            namespace=namespace,
            parameters=[params, values],
            remappings=[("/clock", "clock")],
            output="screen",
        )

    monitor = node("safety_monitor", episode_log=out)
    driver = node("policy", policy=policy)
    bridge = node("mujoco_bridge", policy=policy, episodes_file=episodes)

    def on_exit(event, context):
        if event.returncode not in (0, 1):
            return [Shutdown(reason=f"mujoco_bridge ended with exit code {event.returncode}")]
        ends = [EmitEvent(event=ShutdownProcess(process_matcher=matches_action(n))) for n in (driver, monitor)]
        return [*ends, *after]

    return [RegisterEventHandler(OnProcessExit(target_action=bridge, on_exit=on_exit)), monitor, driver, bridge]


def finish(out, report):
    """Score what was logged and write the page."""
    if not report:
        return [Shutdown(reason="all episodes were run")]
    tables = ExecuteProcess(cmd=["osma", "score", out], output="screen")
    page = ExecuteProcess(cmd=["osma", "report", out], output="screen")
    return [
        RegisterEventHandler(OnProcessExit(target_action=tables, on_exit=[page])),
        RegisterEventHandler(OnProcessExit(target_action=page, on_exit=[Shutdown(reason="done")])),
        tables,
    ]
