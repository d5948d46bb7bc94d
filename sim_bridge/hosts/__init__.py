"""Simulations by name: the kitchen, and other benchmarks and robots behind the same protocol (one file each)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from osma_monitor.core.errors import UserError
from sim_bridge.options import checked
from sim_bridge.simulation import Simulation

HOSTS = ("kitchen", "so101", "libero", "robocasa")


def make_simulation(host: str, **options: Any) -> Simulation:
    """A simulation by the name of its host; ``options`` go to its constructor (see `checked_options`).

    Hosts are imported on demand: each may need packages that the others do not. UserError lists the names.
    """
    cls = _class_of(host)
    made: Simulation = cls(**checked_options(host, cls, options))
    return made


def _class_of(host: str) -> type[Any]:
    if host == "kitchen":
        from sim_bridge.kitchen.simulation import KitchenSimulation

        return KitchenSimulation
    if host == "so101":
        from sim_bridge.hosts.so101 import So101Simulation

        return So101Simulation
    if host == "libero":
        from sim_bridge.hosts.libero import LiberoSimulation

        return LiberoSimulation
    if host == "robocasa":
        from sim_bridge.hosts.robocasa import RobocasaSimulation

        return RobocasaSimulation
    near = difflib.get_close_matches(host, HOSTS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"host {host!r} does not exist; {hint}choose one of {', '.join(HOSTS)}")


def declared_source(task: str) -> tuple[str, ...]:
    """`needs` words of the signal schema that the host of a task serves, where they are not those of its suite's file.

    ImportError without the simulator.
    """
    if task.startswith("so101/"):
        from sim_bridge.hosts.so101 import CAPABILITIES, TASKS

        return CAPABILITIES if task in TASKS else ()
    return ()


def checked_options(host: str, cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a simulation's constructor from text files and command lines.

    An option that is a group of numbers (the kitchen's ``jitter``) is a mapping, true for its defaults, or null.

    Raises:
        UserError: an option that the host does not have, or a value of another type.
    """
    return checked(f"the host {host}", cls, given)
