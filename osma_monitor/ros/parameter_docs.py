"""Prints docs/parameters.md: ``python -m osma_monitor.ros.parameter_docs > docs/parameters.md``."""

from __future__ import annotations

import importlib

from osma_monitor.ros.parameters import markdown

#: Node -> module with its table. The simulation's nodes are named, not imported, as imports point downwards.
TABLES = {
    "safety_monitor": "osma_monitor.ros.monitor_parameters",
    "command_gate": "osma_monitor.ros.command_gate",
    "episode_scorer": "osma_monitor.ros.episode_scorer",
    "mujoco_bridge": "sim_bridge.bridge_node",
    "policy": "sim_bridge.policy_node",
}


def text() -> str:
    """The whole document."""
    return markdown({node: importlib.import_module(module).PARAMETERS for node, module in TABLES.items()})


if __name__ == "__main__":
    print(text(), end="")
