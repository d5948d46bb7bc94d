"""The LIBERO host, where its package is installed."""

import importlib.util

import numpy as np
import pytest

from osma_monitor.core.errors import MissingDependencyError, UserError
from sim_bridge.hosts import make_simulation
from sim_bridge.simulation import Action

INSTALLED = importlib.util.find_spec("libero") is not None
libero = pytest.mark.skipif(not INSTALLED, reason="needs LIBERO: pip install 'osma-monitor[libero]'")


@pytest.mark.skipif(INSTALLED, reason="the package is there")
def test_without_the_package_the_message_says_what_to_install():
    with pytest.raises(MissingDependencyError, match=r"osma-monitor\[libero\]"):
        make_simulation("libero")


@libero
@pytest.mark.long
@pytest.mark.timeout(600)
def test_frames_contacts_and_initial_states():
    simulation = make_simulation("libero", max_steps=25)
    frame = simulation.reset("libero_goal/1", 0)
    info = simulation.info()
    assert (info.suite, info.templates, info.tags) == ("libero_goal", ("pnp_basic",), ("non_spillable",))
    assert info.instruction == "put the bowl on the stove"
    assert frame.parts == frozenset(info.sources)
    role = dict(zip(frame.objects.id, frame.objects.role, strict=True))
    assert role["akita_black_bowl_1"] == "target" and role["wine_bottle_1"] == "bystander"
    assert {"furniture", "target"} <= {*frame.contacts.role_a, *frame.contacts.role_b}  # everything stands already
    assert (frame.objects.distance > 0).all() and len(frame.joints.name) == 7
    strongest = 0.0
    while simulation.outcome() is None:
        frame = simulation.step(Action(joints=(0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0)))  # down onto the table
        pressed = [
            np.linalg.norm(force)
            for a, b, force in zip(frame.contacts.role_a, frame.contacts.role_b, frame.contacts.force, strict=True)
            if a == "gripper" and b == "furniture"
        ]
        strongest = max([strongest, *pressed])
    assert simulation.outcome().reason == "timeout"
    assert simulation.findings()["target_object"] == "akita_black_bowl_1"
    assert strongest > 50 and np.abs(frame.joints.effort).max() > 20
    first, other, again = (simulation.reset("libero_goal/1", seed).objects.position for seed in (3, 4, 3))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    with pytest.raises(UserError, match="7 numbers, got 2"):
        simulation.step(Action(joints=(0.0, 0.0)))
    with pytest.raises(UserError, match="libero_goal/9"):
        simulation.reset("libero_goal/99", 0)
    simulation.close()


@libero
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("towards", "verdict"), [("akita_black_bowl_1", "correct"), ("wine_bottle_1", "wrong")])
def test_what_the_gripper_takes_first_is_the_target_or_another(towards, verdict):
    simulation = make_simulation("libero", max_steps=120)
    frame = simulation.reset("libero_goal/1", 0)
    while simulation.outcome() is None and not simulation.findings()["selected_object"]:
        gap = frame.objects.position[frame.objects.id.index(towards)] + np.array([0, 0, 0.02]) - frame.ee.position
        frame = simulation.step(Action(joints=(*np.clip(8 * gap, -1, 1).tolist(), 0.0, 0.0, 0.0, -1.0)))
    found = simulation.findings()
    assert (found["target_selection"], found["selected_object"]) == (verdict, towards)
    simulation.close()
