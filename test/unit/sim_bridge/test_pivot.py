"""The waypoint selector: candidates, rounds, profile, answers that do not parse."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import same
from sim_bridge.kitchen.layout import BASE_RADIUS_M
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.chat import ChatError
from sim_bridge.policies.pivot import KEPT, ROUNDS, Pivot
from sim_bridge.rollout import drive
from sim_bridge.simulation import STOP

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


def test_a_whole_drive_over_a_server_that_fails_is_recorded_and_replayed(endpoint, tmp_path):
    """Two of three attempts fail, each in another way; the drive is that of the answers, with and without server."""
    failures = [(500, {}, b""), (200, {}, b"{"), (429, {"Retry-After": "0"}, b""), (200, {}, b'{"choices": []}')]

    def answer(body, n):
        if n % 3:
            return failures[n % 4]
        return (
            '{"choice": [3, 1]}'
            if "dots" in endpoint.texts(body)
            else '{"segments": [{"from": 0, "to": 100, "speed": 1.5}]}'
        )

    talk = tmp_path / "talk.jsonl"
    simulation = KitchenSimulation(max_steps=120)
    with endpoint.serve(answer) as (url, requests):
        policy = Pivot("chat", url=url, model="tiny", record=talk, backoff_s=0.0)
        frames, _ = drive(simulation, policy, TASK, 0)
        legs = policy.legs
    answered = len(talk.read_text().splitlines())
    assert len(legs) >= 2 and answered == len(legs) * (ROUNDS + 1)
    assert len(requests) == 3 * answered and policy.unparsed == 0
    assert all(leg.profile == ((0.0, 100.0, 1.5),) and leg.kept[-1] == (2,) for leg in legs)
    simulation.restart_clock()
    again, _ = drive(simulation, Pivot("chat", url="", model="tiny", replay=talk), TASK, 0)
    assert all(same(a, b) for a, b in zip(frames, again, strict=True))


def test_an_endpoint_that_falls_silent_breaks_the_pipeline_of_that_episode(endpoint):
    with endpoint.serve(lambda body, n: '{"choice": [1]}' if n <= ROUNDS else (503, {}, b"")) as (url, requests):
        policy = Pivot("chat", url=url, model="tiny", retries=1, backoff_s=0.0)
        _, action = first(policy)
        assert action == STOP and "HTTP 503" in policy.failure
        assert len(requests) == ROUNDS + 2
        with pytest.raises(ChatError, match="HTTP 503"):  # one that never answered is nobody's failure
            first(Pivot("chat", url=url, model="tiny", retries=0))


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
