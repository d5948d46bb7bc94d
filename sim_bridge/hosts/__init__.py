"""Simulations by name: the kitchen, and other benchmarks and robots behind the same protocol (one file each)."""

from __future__ import annotations

from typing import Any

from osma_monitor.core.errors import UserError
from sim_bridge.simulation import Simulation

HOSTS = ("kitchen", "so101", "libero", "robocasa")


def make_simulation(host: str, **options: Any) -> Simulation:
    """A simulation by the name of its host; ``options`` go to its constructor. UserError lists the names.

    Hosts are imported on demand: each may need packages that the others do not.
    """
    if host == "kitchen":
        from sim_bridge.kitchen.simulation import KitchenSimulation

        return KitchenSimulation(**options)
    if host == "so101":
        from sim_bridge.hosts.so101 import So101Simulation

        return So101Simulation(**options)
    if host == "libero":
        from sim_bridge.hosts.libero import LiberoSimulation

        return LiberoSimulation(**options)
    if host == "robocasa":
        from sim_bridge.hosts.robocasa import RobocasaSimulation

        return RobocasaSimulation(**options)
    raise UserError(f"host {host!r} does not exist; choose one of {', '.join(HOSTS)}")
