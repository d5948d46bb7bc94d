"""The planning policies without a model: what they know, how they treat obstacles, that they need no simulator."""

import subprocess
import sys

import numpy as np
import pytest

from sim_bridge.kitchen.layout import BASE_RADIUS_M, load_tiers
from sim_bridge.kitchen.planning import polyline
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.follower import NOMINAL_SPEED, PathFollower, speed_plan
from sim_bridge.policies.navigation import RandomWalk, ReversedTierTable, ShortestPath, TierTable, keep_off
from sim_bridge.rollout import drive


def test_policies_run_without_the_simulator():
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "from sim_bridge.policies import POLICIES, make_policy\n"
        "[make_policy(n) for n in POLICIES if n != 'learned']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def drives(policy, tasks):
    simulation = KitchenSimulation()
    found = {}
    for task in tasks:
        frames, outcome = drive(simulation, policy, task, 0)
        xy = np.array([f.base.position[:2] for f in frames])
        distance = np.array([f.objects.distance[0] for f in frames])
        speed = np.linalg.norm(np.diff(xy, axis=0), axis=1) / 0.05
        near = distance[:-1] < 1.25
        found[task.rsplit("/", 1)[1]] = (outcome.status, distance.min(), speed[near].mean())
    return found


CELL = [f"kitchen/layout0/A/{o}" for o in ("dog", "vase", "cushion")]


def test_the_tier_table_orders_clearance_and_speed():
    found = drives(TierTable(), CELL)
    assert [status for status, _, _ in found.values()] == ["success"] * 3
    high, moderate, low = found["dog"], found["vase"], found["cushion"]
    assert high[1] > moderate[1] > low[1] > 0
    assert high[2] < moderate[2] < low[2] <= NOMINAL_SPEED + 0.01


def test_upside_down_it_orders_the_other_way():
    found = drives(ReversedTierTable(), CELL)
    assert found["dog"][1] < found["vase"][1] < found["cushion"][1]
    assert found["dog"][2] > found["vase"][2] > found["cushion"][2]


def test_the_blind_policy_treats_all_alike():
    simulation, policy = KitchenSimulation(), ShortestPath()
    paths = []
    for obstacle in ("dog", "vase", "cushion"):
        frame = simulation.reset(f"kitchen/layout0/A/{obstacle}", 0)
        policy.reset(simulation.info())
        policy.act(frame)
        paths.append(policy.path.points)
    for path in paths[1:]:
        np.testing.assert_allclose(path, paths[0], atol=0.01)  # things settle by less than a millimetre


def test_random_walk_is_seeded():
    simulation = KitchenSimulation(max_steps=50)

    def walk(task, seed):
        frames, outcome = drive(simulation, RandomWalk(), task, seed)
        assert outcome.status == "failure"
        return frames[-1].base.position.tobytes()

    task = "kitchen/layout2/E/bag"
    assert walk(task, 0) == walk(task, 0) != walk(task, 1)


def test_cost_of_nearness():
    gap = np.array([-0.1, 0.0, 0.1, 0.3, 0.5])
    cost = keep_off(gap + BASE_RADIUS_M, 0.3)
    assert (np.diff(cost) <= 0).all() and cost[0] > cost[1] and cost[2] > 0 and cost[3] == pytest.approx(0) == cost[4]
    assert (keep_off(gap[1:] + BASE_RADIUS_M, 0.0) == 0).all()


def test_speed_plan_brakes_before_slow_stretches_and_bends():
    path = polyline([(0, 0), (2, 0), (2, 2)])
    n = len(path.points)
    limit = np.full(n, 0.7)
    limit[path.along > 3.0] = 0.2
    speed = speed_plan(path, limit, np.full(n, 0.5))
    assert (speed <= limit + 1e-12).all()
    ds = np.diff(path.along)
    assert (speed[:-1] ** 2 - speed[1:] ** 2 <= 2 * 0.5 * ds + 1e-9).all()
    assert speed[np.searchsorted(path.along, 2.0)] < 0.5  # the corner
    assert speed[np.searchsorted(path.along, 0.5)] == pytest.approx(0.7)


def test_the_follower_keeps_its_acceleration_and_arrives():
    path = polyline([(0, 0), (1.5, 0), (1.5, 1.0)])
    n = len(path.points)
    follower = PathFollower(path, 1.0, np.full(n, 0.7), np.full(n, 0.6), 0.05)
    x = y = yaw = 0.0
    last = (0.0, 0.0)
    for _ in range(200):
        action = follower.act(x, y, yaw)
        assert np.hypot(follower.velocity[0] - last[0], follower.velocity[1] - last[1]) <= 0.6 * 0.05 + 1e-9
        last = follower.velocity
        x, y, yaw = x + 0.05 * last[0], y + 0.05 * last[1], yaw + 0.05 * action.yaw_rate
    assert np.hypot(x - 1.5, y - 1.0) < 0.05 and yaw == pytest.approx(1.0, abs=0.02)


def test_the_table_is_the_shipped_one_or_the_one_given():
    shipped = load_tiers().tiers
    assert TierTable()._table["high"] == shipped["high"].caution
    mine = {"high": shipped["low"].caution, "moderate": shipped["low"].caution, "low": shipped["low"].caution}
    assert make_policy("cautious", table=mine)._table == mine


@pytest.mark.long
def test_shortest_path_and_cautious_on_a_whole_layout():
    from sim_bridge.kitchen.tasks import tasks

    simulation = KitchenSimulation()
    reached = 0
    for task in tasks([2]):
        _, outcome = drive(simulation, ShortestPath(), task, 0)
        reached += outcome.status == "success"
        frames, outcome = drive(simulation, TierTable(), task, 0)
        assert outcome.status == "success", task
        assert not any(f.objects.in_contact[0] for f in frames), task
    assert reached >= 122
