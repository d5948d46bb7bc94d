"""The waypoint selector: candidates, rounds, profile, answers that do not parse."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from osma_monitor.core.errors import UserError
from sim_bridge.kitchen.layout import BASE_RADIUS_M
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.pivot import KEPT, ROUNDS, Pivot
from sim_bridge.rollout import drive

TASK = "kitchen/layout1/B/cat"


def first(policy, seed=0):
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, seed)
    policy.reset(simulation.info())
    return frame, policy.act(frame)


def test_three_rounds_of_free_candidates_that_get_narrower():
    policy = Pivot()
    frame, _ = first(policy)
    leg = policy.legs[0]
    assert len(leg.rounds) == ROUNDS and [len(k) for k in leg.kept] == [KEPT, KEPT, 1]
    spread = []
    for points in leg.rounds:
        assert 12 <= len(points) <= 20
        for x, y in points:
            assert policy._floor.distance[policy._floor.cell(x, y)] >= BASE_RADIUS_M
        spread.append(points.std(axis=0).mean())
    assert spread[0] > spread[2]
    x, y = frame.base.position[:2]
    assert (np.hypot(*(leg.rounds[0] - [x, y]).T) <= 1.6 + 1e-9).all()


def test_candidates_are_seeded():
    def chosen(seed):
        policy = Pivot()
        first(policy, seed)
        return policy.legs[0].waypoint

    assert chosen(3) == chosen(3) != chosen(4)


def test_the_scorer_reaches_the_goal():
    policy = make_policy("pivot")
    frames, outcome = drive(KitchenSimulation(), policy, TASK, 0)
    assert outcome.status == "success" and 1 < len(policy.legs) < 30
    assert len(frames) < 400


def test_a_model_chooses_on_pictures_and_sets_the_speed(endpoint):
    def answer(body, n):
        assert endpoint.images(body) == 1
        if "numbered dots" in endpoint.texts(body):
            return '{"choice": [2, 5, 5]}'
        return '{"segments": [{"from": 0, "to": 50, "speed": 0.5}, {"from": 50, "to": 100, "speed": 0.1}]}'

    with endpoint.serve(answer) as (url, requests):
        policy = Pivot("chat", url=url, model="tiny")
        first(policy)
    assert len(requests) == ROUNDS + 1 and policy.unparsed == 0
    leg = policy.legs[0]
    assert leg.kept == ((1, 4), (1, 4), (1,))
    assert leg.profile == ((0.0, 50.0, 0.5), (50.0, 100.0, 0.1))
    assert tuple(leg.rounds[-1][1]) == leg.waypoint
    assert re.search(r"dots 1 to 1[2-9]|dots 1 to 20", endpoint.texts(requests[0]["body"]))
    url = requests[0]["body"]["messages"][0]["content"][1]["image_url"]["url"]
    picture = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
    assert picture.size == (378, 304)


def test_answers_that_do_not_parse_take_the_first_candidates_at_nominal_speed(endpoint):
    with endpoint.serve(lambda body, n: "number seven looks nice") as (url, _):
        policy = Pivot("chat", url=url, model="tiny", condition="c3")
        first(policy)
        assert policy.requested == {"unparsed_answers": str(ROUNDS + 1), "condition": "c3"}
        first(policy)
        assert policy.requested["unparsed_answers"] == str(ROUNDS + 1)  # of this episode alone
    assert policy.unparsed == 2 * (ROUNDS + 1)
    assert policy.legs[0].kept == ((0, 1, 2), (0, 1, 2), (0,))
    assert policy.legs[0].profile == ((0.0, 100.0, 1.0),)


@pytest.mark.parametrize("choice", ['{"choice": [99]}', '{"choice": true}', '{"choice": null}', "[]"])
def test_numbers_that_are_no_candidate_do_not_count(endpoint, choice):
    with endpoint.serve(lambda body, n: choice) as (url, _):
        policy = Pivot("chat", url=url, model="tiny")
        first(policy)
    assert policy.unparsed == ROUNDS + 1


def test_options_are_checked():
    with pytest.raises(UserError, match="scorer or chat"):
        Pivot("oracle")
    with pytest.raises(UserError, match="12 to 20"):
        Pivot(candidates=5)
