"""The executables of the ROS package: each starts one node, or says in one line why it cannot."""

import importlib
import sys

from osma_monitor.cli import exits
from osma_monitor.core.errors import EXIT_OK

MODULES = {
    "mujoco_bridge": "sim_bridge.bridge_node",
    "policy": "sim_bridge.policy_node",
    "safety_monitor": "osma_monitor.ros.safety_monitor",
    "command_gate": "osma_monitor.ros.command_gate",
    "episode_scorer": "osma_monitor.ros.episode_scorer",
}
"""Executable -> the module whose `main()` runs the node and returns the exit code."""


def mujoco_bridge() -> int:
    """Run a simulation behind ROS topics."""
    return _run("mujoco_bridge")


def policy() -> int:
    """Run one of the shipped policies as a node."""
    return _run("policy")


def safety_monitor() -> int:
    """Run the monitor."""
    return _run("safety_monitor")


def command_gate() -> int:
    """Run the gate that stops or slows commands on the monitor's word."""
    return _run("command_gate")


def episode_scorer() -> int:
    """Run the node that scores finished episodes."""
    return _run("episode_scorer")


def _run(name: str) -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        summary = globals()[name].__doc__
        print(f"usage: {name} [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]\n\n{summary}")
        print("The parameters with their defaults are in docs/parameters.md and config/*.params.yaml.")
        return EXIT_OK
    return exits.run(name, lambda: importlib.import_module(MODULES[name]).main())
