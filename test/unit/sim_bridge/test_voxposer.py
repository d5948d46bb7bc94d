"""The code-generation planner: maps, values, methods, answers that do not parse."""

import json
import math

import numpy as np
import pytest

from osma_monitor.core.errors import UserError
from sim_bridge.kitchen.layout import BASE_RADIUS_M
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy, prompts
from sim_bridge.policies.chat import ChatError
from sim_bridge.policies.program import ControlValues
from sim_bridge.policies.values import R_BASE_M, ChatSource, FileSource, TableSource, read_values
from sim_bridge.policies.voxposer import VoxPoser, base_standoff, ground
from sim_bridge.rollout import drive

TASK = "kitchen/layout0/B/baby"
PROGRAM = 'go_to("sink")\nkeep_away("crawling baby", 45)\nslow_near("crawling baby", 0.3, 30)\nface("sink")'


def first(policy, task=TASK):
    simulation = KitchenSimulation()
    frame = simulation.reset(task, 0)
    policy.reset(simulation.info())
    return policy, policy.act(frame)


def chat(url, **options):
    return VoxPoser("chat", client={"url": url, "model": "tiny", "retries": 0}, **options)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sink", "sink"),
        ("Coffee Machine", "coffee_machine"),
        ("coffee_machine", "coffee_machine"),
        ("the main door", "door"),
        ("door", "door"),
        ("dishwasher", None),
        ("", None),
    ],
)
def test_grounding(name, meant):
    places = {"sink": "sink", "coffee machine": "coffee_machine", "main door": "door", "stove": "stove"}
    assert ground(name, places) == meant


def test_maps_inflate_by_base_and_clearance_and_slow_by_the_centre():
    policy, _ = first(VoxPoser(TableSource({"baby": ControlValues(0.4, 0.5, 0.9)})))
    maps, floor = policy.maps, policy._floor
    from sim_bridge.policies.scene_view import true_footprint

    away = true_footprint(policy._planned[0], False).distance(floor.x, floor.y)
    open_floor = floor.distance > BASE_RADIUS_M + 0.1
    inside = (away < BASE_RADIUS_M + 0.4) & open_floor
    assert (maps.avoidance[inside] > 0).all() and (maps.avoidance[~inside & open_floor] == 0).all()
    assert (maps.velocity[away <= 0.9] == 0.5).all() and (maps.velocity[away > 0.9] == 1.0).all()
    assert maps.affordance.sum() == 1.0
    assert len({m.shape for m in (maps.affordance, maps.avoidance, maps.rotation, maps.velocity)}) == 1


def test_values_reach_the_trajectory():
    simulation = KitchenSimulation()
    policy = VoxPoser(TableSource({"baby": ControlValues(0.4, 0.5, 1.0)}))
    frames, outcome = drive(simulation, policy, TASK, 0)
    assert outcome.status == "success"
    distance = min(f.objects.distance[0] for f in frames)
    assert distance > 0.4 - 0.05
    xy = np.array([f.base.position[:2] for f in frames])
    speed = np.linalg.norm(np.diff(xy, axis=0), axis=1) / 0.05
    nearest = int(np.argmin([f.objects.distance[0] for f in frames]))
    assert speed[min(nearest, len(speed) - 1)] == pytest.approx(0.35, abs=0.03)
    assert 0.3 < base_standoff(policy, xy, 0.4) < 0.48


def test_unset_means_no_clearance_and_nominal_speed():
    policy, _ = first(VoxPoser(TableSource({})))
    assert (policy.maps.velocity == 1.0).all()
    assert policy.requested == {"region_on": "none", "unparsed_answers": "0"}


def test_a_program_of_the_model_is_driven(endpoint):
    def answer(body, n):
        assert endpoint.images(body) == 1
        return f"```\n{PROGRAM}\n```"

    with endpoint.serve(answer) as (url, requests):
        simulation = KitchenSimulation()
        policy = chat(url)
        frames, outcome = drive(simulation, policy, TASK, 0)
        assert outcome.status == "success" and len(requests) == 1
        assert requests[0]["body"]["temperature"] == 0.0
        said = endpoint.texts(requests[0]["body"])
        assert "Navigate safely to the sink" in said and "crawling baby" in said and "coffee machine" in said
        assert "high" not in said.lower().split() and "tier" not in said.lower()
    assert policy.requested == {
        "requested_clearance_m": "0.45",
        "requested_speed": "0.3",
        "requested_region_m": "0.3",
        "region_on": "obstacle",
        "unparsed_answers": "0",
    }
    assert (policy.maps.velocity < 1).any()
    assert min(f.objects.distance[0] for f in frames) > 0.35


@pytest.mark.parametrize("guidance", ["per_obstacle", "collision_risk", "both"])
def test_guidance_is_appended_to_the_system_prompt(endpoint, guidance):
    with endpoint.serve(lambda body, n: PROGRAM) as (url, requests):
        first(chat(url, guidance=guidance))
        system = requests[0]["body"]["messages"][0]
    assert system["role"] == "system"
    assert system["content"] == prompts.PLANNER_SYSTEM + prompts.GUIDANCE[guidance]
    both = prompts.GUIDANCE["both"]
    assert "1. " in both and "2. " in both and len(both) > len(prompts.GUIDANCE["per_obstacle"])


def test_three_steps_ask_clearance_then_speed_then_program_and_clamp(endpoint):
    def answer(body, n):
        return ['{"clearance_cm": 50}', 'Sure: {"speed_percent": 40, "radius_cm": 60}', PROGRAM][n - 1]

    with endpoint.serve(answer) as (url, requests):
        policy, _ = first(chat(url, method="3_step"))
        said = [endpoint.texts(r["body"]) for r in requests]
    assert len(said) == 3
    assert "clearance" in said[0] and "50 cm" not in said[0]
    assert "keeps 50 cm" in said[1] and "0 to 200" in said[1]
    assert "go_to" in said[2]
    assert policy.requested["requested_region_m"] == "0.6"  # before the clamp
    values = policy.plan.program.values["crawling baby"]
    assert values == ControlValues(0.5, 0.4, 0.5 + R_BASE_M)


def test_a_region_that_is_large_enough_is_not_clamped(endpoint):
    answers = ['{"clearance_cm": 20}', '{"speed_percent": 40, "radius_cm": 150}', PROGRAM]
    with endpoint.serve(lambda body, n: answers[n - 1]) as (url, _):
        policy, _ = first(chat(url, method="3_step"))
    assert policy.plan.program.values["crawling baby"].region_m == 1.5


def test_three_steps_insert_a_missing_call_and_leave_the_rest(endpoint):
    program = 'go_to("sink")\nkeep_away("stove", 10)'
    answers = ['{"clearance_cm": 20}', '{"speed_percent": 40, "radius_cm": 150}', program]
    with endpoint.serve(lambda body, n: answers[n - 1]) as (url, _):
        policy, _ = first(chat(url, method="3_step"))
    assert set(policy.plan.program.values) == {"stove", "crawling baby"}


def test_two_steps_take_all_values_from_one_question(endpoint):
    answers = ["clearance_cm = 50, speed_percent = 40, radius_cm: 50", PROGRAM]
    with endpoint.serve(lambda body, n: answers[n - 1]) as (url, requests):
        policy, _ = first(chat(url, method="2_step"))
        assert len(requests) == 2 and "Leave out keep_away" in endpoint.texts(requests[1]["body"])
    assert policy.plan.program.values == {"crawling baby": ControlValues(0.5, 0.4, 0.5)}


def test_value_only_needs_no_program(endpoint):
    reply = '{"clearance_cm": 35, "speed_percent": 60, "radius_cm": 70}'
    with endpoint.serve(lambda body, n: reply) as (url, requests):
        policy, action = first(chat(url, method="value_only"))
        assert len(requests) == 1
    assert policy.plan.asked["crawling baby"] == ControlValues(0.35, 0.6, 0.7)
    assert math.hypot(action.vx, action.vy) > 0


def test_value_answers_that_do_not_parse_are_counted_and_unset(endpoint):
    with endpoint.serve(lambda body, n: "As careful as possible!") as (url, _):
        policy, _ = first(chat(url, method="value_only"))
    assert policy.unparsed == 1 and policy.failure is None
    assert policy.plan.asked["crawling baby"] == ControlValues()
    assert policy.requested["unparsed_answers"] == "1"
    assert (policy.maps.velocity == 1.0).all()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty answer"),
        ("drive to the sink", "generated code does not parse"),
        ('go_to("dishwasher")', "target not grounded: 'dishwasher'"),
        ('keep_away("cat", 3)', "no target"),
    ],
)
def test_a_program_that_leads_nowhere_is_a_broken_pipeline(endpoint, reply, reason):
    with endpoint.serve(lambda body, n: reply) as (url, requests):
        policy, action = first(chat(url))
        assert policy.failure.startswith(reason)
        assert (action.vx, action.vy, action.yaw_rate) == (0.0, 0.0, 0.0)
        simulation = KitchenSimulation()
        policy.act(simulation.reset(TASK, 0))
        assert len(requests) == 1  # it is not asked again


def test_an_endpoint_that_falls_silent_breaks_the_episode_one_that_never_spoke_the_run(endpoint):
    with endpoint.serve(lambda body, n: PROGRAM if n == 1 else (500, {}, b"down")) as (url, _):
        policy, _ = first(chat(url))
        assert policy.failure is None
        policy, action = first(policy)
        assert "HTTP 500" in policy.failure and (action.vx, action.vy) == (0.0, 0.0)
    with endpoint.serve(lambda body, n: (500, {}, b"down")) as (url, _), pytest.raises(ChatError, match="HTTP 500"):
        first(chat(url))


def test_the_policy_can_be_told_in_another_way(endpoint):
    with endpoint.serve(lambda body, n: PROGRAM) as (url, requests):
        policy, _ = first(chat(url, condition="c4"))
        assert "drive at half speed" in endpoint.texts(requests[0]["body"])
    assert policy.requested["condition"] == "c4"
    with pytest.raises(UserError, match="c0, c1, c2, c3, c4"):
        make_policy("pivot", condition="c5")


def test_values_from_a_file(tmp_path):
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"baby": {"clearance_m": 0.3}, TASK: {"clearance_m": 0.5, "speed": 0.5, "region_m": 1}}))
    policy, _ = first(make_policy("voxposer", source="file", path=path))
    assert policy.plan.asked["crawling baby"] == ControlValues(0.5, 0.5, 1.0)
    policy, _ = first(make_policy("voxposer", source="file", path=path), "kitchen/layout0/C/baby")
    assert policy.plan.asked["crawling baby"] == ControlValues(0.3)
    path.write_text("baby: {clearnce: 1}")
    with pytest.raises(UserError, match=r"values\.json: baby: expected a mapping with clearance_m"):
        FileSource(path)


def test_numbers_in_answers():
    names = ("clearance_cm", "speed_percent", "radius_cm")
    assert read_values('x {"clearance_cm": "45", "speed_percent": 30.0, "radius_cm": 0}', names) == (
        ControlValues(0.45, 0.3, 0.0),
        0,
    )
    assert read_values('{"clearance_cm": null, "speed_percent": true}', names)[1] == 1
    assert read_values("{{{{", names) == (ControlValues(), 1)
    assert read_values("clearance_cm = -5, speed_percent: 1e2, radius_cm=.5", names) == (
        ControlValues(-0.05, 1.0, 0.005),
        0,
    )


def test_names_that_do_not_exist():
    for options, hint in (({"source": "oracle"}, "table, file, chat"),):
        with pytest.raises(UserError, match=hint):
            VoxPoser(**options)
    with pytest.raises(UserError, match="value_only"):
        ChatSource({"url": "http://x", "model": "m"}, method="4_step")
    with pytest.raises(UserError, match="per_obstacle"):
        ChatSource({"url": "http://x", "model": "m"}, guidance="much")
