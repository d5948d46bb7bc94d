"""The reference drives: per cell the length of the shortest collision-free path and the time that the follower takes.

Kept in config/kitchen/references.yaml, so that scoring needs no simulator; ``python -m sim_bridge.kitchen.references``
makes it again, and a test holds the file against a fresh computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from osma_monitor.core.errors import UserError
from osma_monitor.resources import config_path
from sim_bridge.kitchen.planning import reference_path
from sim_bridge.kitchen.tasks import Task, parse_task, reference_tasks

_HEADER = """\
# Reference drives (no obstacle): cell -> [path length in m, driving time in s].
# Made by `python -m sim_bridge.kitchen.references`; NPL and NPT divide by these.
"""


@cache
def load_references() -> Mapping[str, tuple[float, float]]:
    """Length (m) and time (s) of each cell's reference drive."""
    path = config_path("kitchen") / "references.yaml"
    if not path.exists():
        return {}
    return {cell: (float(length), float(time)) for cell, (length, time) in yaml.safe_load(path.read_text()).items()}


def reference_length(task: Task) -> float:
    """Length of the shortest collision-free path of a task's cell (m)."""
    path = reference_path(task.kitchen, (task.start.x, task.start.y), (task.goal.x, task.goal.y))
    if path is None:
        raise UserError(
            f"{task.cell}: no collision-free way from {task.start} to {task.goal}; check layout{task.layout}.yaml"
        )
    return path.length


def measure() -> dict[str, tuple[float, float]]:
    """Drive all 35 references in the simulator, without step cap."""
    from sim_bridge.kitchen.simulation import KitchenSimulation
    from sim_bridge.policies.navigation import ShortestPath
    from sim_bridge.rollout import drive

    simulation = KitchenSimulation(max_steps=None)
    found = {}
    for task_id in reference_tasks():
        task = parse_task(task_id)
        frames, outcome = drive(simulation, ShortestPath(), task_id, 0)
        if outcome.status != "success":
            raise UserError(f"{task.cell}: the reference drive ended with {outcome.status} ({outcome.reason})")
        found[task.cell] = (
            round(reference_length(task), 4),
            round((frames[-1].stamp_ns - frames[0].stamp_ns) * 1e-9, 4),
        )
    simulation.close()
    return found


def main() -> None:
    """Write config/kitchen/references.yaml."""
    lines = [f"{cell}: [{length!r}, {time!r}]\n" for cell, (length, time) in measure().items()]
    path = Path(config_path("kitchen")) / "references.yaml"
    path.write_text(_HEADER + "".join(lines), encoding="utf-8")
    print(f"{path}: {len(lines)} cells")


if __name__ == "__main__":
    main()
