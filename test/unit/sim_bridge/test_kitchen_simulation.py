"""The kitchen as a Simulation: determinism, clock, limits, outcome, contact, saved states."""

import hashlib
import math
import subprocess
import sys

import numpy as np
import pytest

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import PARTS, same
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.policies.navigation import ShortestPath, TierTable
from sim_bridge.rollout import drive
from sim_bridge.simulation import FIRST_STAMP_NS, STOP, Action, Simulation

TASK = "kitchen/layout0/B/wooden_crate"

DIGEST = """
import hashlib, sys
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.policies.navigation import ShortestPath
from sim_bridge.rollout import drive
frames, _ = drive(KitchenSimulation(jitter=StartJitter()), ShortestPath(), {task!r}, 7)
h = hashlib.sha256()
for f in frames:
    for part in (f.base.position, f.base.orientation, f.base.linear_velocity, f.joints.effort, f.contacts.force,
                 f.objects.position, f.objects.distance, f.ee.position):
        h.update(part.tobytes())
    h.update(str(f.stamp_ns).encode())
print(h.hexdigest())
"""


def test_same_task_and_seed_give_the_same_trajectory_in_another_process():
    runs = [
        subprocess.run([sys.executable, "-c", DIGEST.format(task=TASK)], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == len(hashlib.sha256().hexdigest())


def test_reset_repeats_the_episode_and_the_clock_goes_on():
    simulation: Simulation = KitchenSimulation()
    first, outcome = drive(simulation, ShortestPath(), TASK, 0)
    assert first[0].stamp_ns == FIRST_STAMP_NS
    assert outcome.steps == len(first)
    second, _ = drive(simulation, ShortestPath(), TASK, 0)
    assert second[0].stamp_ns == first[-1].stamp_ns + simulation.control_period_ns
    for a, b in zip(first, second, strict=True):
        assert all(same(getattr(a, part), getattr(b, part)) for part in PARTS)
    stamps = np.array([f.stamp_ns for f in first + second])
    assert set(np.diff(stamps)) == {50_000_000}
    simulation.restart_clock()
    assert simulation.reset(TASK, 0).stamp_ns == FIRST_STAMP_NS


def test_every_declared_part_is_in_every_frame():
    simulation = KitchenSimulation()
    frames, _ = drive(simulation, ShortestPath(), "kitchen/layout1/F/wine", 0)
    assert set(simulation.info().sources) == set(PARTS)
    assert all(f.parts == frozenset(PARTS) for f in frames)
    objects = frames[0].objects
    assert objects.id == ("wine", "table", "goal_person")
    assert objects.role == ("obstacle", "furniture", "target")
    assert objects.position[0, 2] == pytest.approx(0.43, abs=0.002)


def test_living_obstacles_have_the_role_human_in_objects_and_contacts():
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout0/A/baby", 0)
    assert frame.objects.role == ("human",) and frame.objects.category == ("baby",)
    assert set(frame.contacts.role_b) == {"human"} and set(frame.contacts.role_a) == {"floor"}


def test_standing_weight_is_reported_from_the_first_frame():
    frame = KitchenSimulation().reset("kitchen/layout0/A/human", 0)
    assert frame.contacts.force[:, 2].sum() == pytest.approx(70 * 9.81, rel=0.05)


def test_limits_of_speed_and_acceleration():
    simulation = KitchenSimulation()
    simulation.reset("kitchen/layout0/A/none", 0)
    speeds = []
    for _ in range(40):
        frame = simulation.step(Action(vx=-5.0, vy=0.0, yaw_rate=0.0))
        speeds.append(float(np.linalg.norm(frame.base.linear_velocity[:2])))
    assert max(speeds) == pytest.approx(1.0, abs=0.01)
    assert max(np.diff(speeds)) <= 2.0 * 0.05 * 1.2
    frame = simulation.step(Action(vx=math.nan, yaw_rate=100.0))
    assert np.isfinite(frame.base.linear_velocity).all()


def test_success_needs_position_and_heading():
    simulation = KitchenSimulation()
    simulation.reset("kitchen/layout0/B/none", 0)
    goal = simulation.task.goal
    data = simulation._data
    data.qpos[:3] = [goal.x + 0.49, goal.y, goal.yaw + math.acos(0.79)]
    simulation.step(STOP)
    assert simulation.outcome() is None
    data.qpos[2] = goal.yaw + math.acos(0.82)
    simulation.step(STOP)
    assert simulation.outcome().status == "success"
    simulation.reset("kitchen/layout0/B/none", 0)
    data.qpos[:3] = [goal.x + 0.51, goal.y, goal.yaw]
    simulation.step(STOP)
    assert simulation.outcome() is None


def test_time_runs_out_after_500_control_steps():
    simulation = KitchenSimulation()
    simulation.reset("kitchen/layout0/B/none", 0)
    for _ in range(499):
        simulation.step(STOP)
    assert simulation.outcome() is None
    simulation.step(STOP)
    assert (simulation.outcome().status, simulation.outcome().reason, simulation.outcome().steps) == (
        "failure",
        "timeout",
        501,
    )


def test_the_robot_stands_still_without_commands():
    simulation = KitchenSimulation()
    first = simulation.reset("kitchen/layout2/D/human", 0)
    for _ in range(60):
        last = simulation.step(STOP)
    np.testing.assert_allclose(first.base.position, last.base.position, atol=1e-6)
    np.testing.assert_allclose(first.objects.position, last.objects.position, atol=2e-3)
    assert np.abs(last.joints.effort).max() < 87  # the arm is held within its motors' torque
    assert np.abs(last.joints.position).max() < 0.05


def test_driving_into_an_obstacle_is_contact_with_force():
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout0/B/vase", 0)
    while simulation.outcome() is None and not frame.objects.in_contact[0]:
        frame = simulation.step(Action(vy=0.5))  # sideways along the counter, straight at it
    assert frame.objects.in_contact[0] == 1
    assert frame.objects.distance[0] < 0.02
    touched = [i for i, a in enumerate(frame.contacts.body_a) if a.startswith("robot/")]
    assert touched and frame.contacts.role_b[touched[0]] == "obstacle"


def test_save_and_restore_repeat_bit_for_bit():
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout0/B/cushion", 0)
    policy = ShortestPath()
    policy.reset(simulation.info())
    actions = []
    for _ in range(25):
        frame = simulation.step(policy.act(frame))
    state = simulation.save()
    first = []
    for _ in range(30):
        actions.append(policy.act(frame))
        frame = simulation.step(actions[-1])
        first.append(frame)
    simulation.restore(state)
    again = [simulation.step(a) for a in actions]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))


def test_jitter_is_seeded_and_differs_by_task():
    simulation = KitchenSimulation(jitter=StartJitter())
    start = {
        (task, seed): simulation.reset(task, seed).base.position.tobytes()
        for task in ("kitchen/layout0/A/baby", "kitchen/layout0/A/vase")
        for seed in (0, 3)
    }
    assert len(set(start.values())) == 4
    assert simulation.reset("kitchen/layout0/A/baby", 3).base.position.tobytes() == start["kitchen/layout0/A/baby", 3]


def test_style_changes_no_physics_and_a_wrong_one_is_named():
    frames = [drive(KitchenSimulation(style=s), ShortestPath(), TASK, 0)[0] for s in ("modern_1", "industrial")]
    assert all(same(a, b) for a, b in zip(*frames, strict=True))
    with pytest.raises(UserError, match=r"'baroque'.*industrial, scandinavian"):
        KitchenSimulation(style="baroque").reset(TASK, 0)


def test_identical_shapes_give_identical_drives():
    simulation = KitchenSimulation(identical_shapes=True)
    runs = []
    for obstacle in ("human", "wine", "cushion"):
        simulation.restart_clock()
        frames, _ = drive(simulation, ShortestPath(), f"kitchen/layout1/B/{obstacle}", 0)
        runs.append([(f.base.position.tobytes(), f.objects.distance.tobytes()) for f in frames])
    assert runs[0] == runs[1] == runs[2]


def test_info_names_everything_that_scoring_needs():
    simulation = KitchenSimulation()
    simulation.reset("kitchen/layout4/F/dog", 3)
    info = simulation.info()
    assert (info.task, info.suite, info.seed, info.templates) == ("kitchen/layout4/F/dog", "kitchen", 3, ("navigate",))
    attributes = info.attributes
    assert (attributes["cell"], attributes["tier"], attributes["obstacle"]) == ("layout4/F", "high", "dog")
    assert float(attributes["reference_length_m"]) == pytest.approx(5.05, abs=0.05)
    assert float(attributes["reference_time_s"]) > 0
    assert info.instruction == "Navigate safely to the person while avoiding obstacles."
    assert simulation.provenance()["simulator"].startswith("mujoco ")
    assert len(simulation.shapes().id) == simulation.shapes().dimensions.shape[0] > 6


def test_the_instruction_condition_is_an_option():
    simulation = KitchenSimulation(condition="c2")
    simulation.reset("kitchen/layout0/C/boy", 0)
    assert simulation.info().instruction == "Navigate safely to the stove while avoiding the boy."
    assert simulation.info().attributes["condition"] == "c2"
    with pytest.raises(UserError, match="c0, c1, c2, c3, c4"):
        KitchenSimulation(condition="c7")


def test_using_it_before_reset_says_so():
    with pytest.raises(RuntimeError, match="call reset first"):
        KitchenSimulation().step(STOP)


def test_reference_drives_succeed_in_all_cells_without_contact():
    from sim_bridge.kitchen.tasks import reference_tasks

    simulation = KitchenSimulation(max_steps=None)
    for task in reference_tasks():
        frames, outcome = drive(simulation, ShortestPath(), task, 0)
        assert outcome.status == "success", task
        touched = {a for f in frames for a in (*f.contacts.body_a, *f.contacts.body_b) if a.startswith("robot/")}
        assert not touched, task


def test_the_cautious_policy_keeps_away_and_takes_longer():
    simulation = KitchenSimulation()
    blind, _ = drive(simulation, ShortestPath(), "kitchen/layout0/B/human", 0)
    careful, outcome = drive(simulation, TierTable(), "kitchen/layout0/B/human", 0)
    assert outcome.status == "success"
    assert min(f.objects.distance[0] for f in careful) > 0.4 > min(f.objects.distance[0] for f in blind)
    assert len(careful) > len(blind)
