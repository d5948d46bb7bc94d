"""The RoboCasa host. Its kitchens need 10 GB of assets: its PandaOmron is tested on a plain robosuite task."""

import importlib.util

import numpy as np
import pytest

from osma_monitor.core.errors import MissingDependencyError
from sim_bridge.hosts import HOSTS, make_simulation
from sim_bridge.hosts.robocasa import RobocasaSimulation
from sim_bridge.simulation import Action


def newer_robosuite() -> bool:
    return importlib.util.find_spec("robosuite") is not None and importlib.util.find_spec("libero") is None


@pytest.mark.skipif(importlib.util.find_spec("robocasa") is not None, reason="the package is there")
def test_without_the_package_the_message_says_what_to_install():
    assert "robocasa" in HOSTS
    with pytest.raises(MissingDependencyError, match=r"osma-monitor\[robocasa\]"):
        make_simulation("robocasa")


class Lift(RobocasaSimulation):
    package = "robosuite"

    def tasks(self):
        return ("robocasa365/Lift",)


@pytest.mark.skipif(not newer_robosuite(), reason="needs robosuite 1.5")
@pytest.mark.long
def test_a_panda_omron_drives_and_reports():
    simulation = Lift(max_steps=40)
    first = simulation.reset("robocasa365/Lift", 0)
    assert {"arm", "gripper", "base"} <= set(simulation._sensors.roles)
    assert first.parts == frozenset(simulation.info().sources)
    frames = [first]
    while simulation.outcome() is None:
        frames.append(simulation.step(Action(vx=0.5)))
    frame = frames[-1]
    moved = frame.base.position - first.base.position
    assert moved[0] > 0.05 and abs(moved[1]) < 0.02
    at = 5  # under way, before it comes to the table
    difference = (frames[at + 1].base.position[0] - frames[at - 1].base.position[0]) / 0.1
    assert difference > 0.1
    assert frames[at].base.linear_velocity[0] == pytest.approx(difference, rel=0.1)
    assert np.isfinite(frame.joints.effort).all() and len(frame.joints.name) == 7
    simulation.close()
