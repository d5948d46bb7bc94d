"""Rollout selection: candidates from one state, the twin, the verifier's choice, the picture formats."""

import numpy as np
import pytest

from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics import candidates
from osma_monitor.core.signals.raw import PARTS, same
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.policies.follower import planar_pose
from sim_bridge.policies.navigation import ShortestPath
from sim_bridge.policies.selection import (
    Candidate,
    NoisyShortestPath,
    RolloutSelection,
    Scene,
    ScoringVerifier,
    candidate_image,
    read_decisions,
)
from sim_bridge.rollout import drive
from sim_bridge.simulation import STOP, Action

TASK = "kitchen/layout0/A/cat"


class Second:
    """Always picks what it is shown second."""

    def __init__(self, answer=1):
        self.answer, self.shown = answer, []

    def choose(self, shown, scene):
        self.shown.append(shown)
        return self.answer


def test_candidates_start_together_and_differ():
    policy = RolloutSelection(k=4)
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    policy.act(frame)
    candidates = policy.decisions[0].candidates
    assert len(candidates) == 4
    assert all(np.array_equal(c.poses[0], candidates[0].poses[0]) for c in candidates)
    ends = {c.poses[-1].tobytes() for c in candidates}
    assert len(ends) == 4
    assert all(len(c.actions) == len(c.poses) - 1 <= 100 for c in candidates)


@pytest.mark.parametrize(
    "options", [{}, {"jitter": StartJitter()}, {"jitter": StartJitter(), "identical_shapes": True}]
)
def test_the_chosen_rollout_is_what_then_happens(options):
    """To the last bit: the twin is told how the simulation that it stands for was made."""
    simulation = KitchenSimulation(**options)
    verifier = Second()
    policy = RolloutSelection(verifier, k=3)
    frames, outcome = drive(simulation, policy, TASK, 5)
    assert outcome.status == "success" and len(policy.decisions) >= 2
    at = 0
    for decision in policy.decisions:
        assert decision.valid and decision.chosen == decision.order[1]
        expected = decision.candidates[decision.chosen].poses[:, :2]
        driven = np.array([f.base.position[:2] for f in frames[at : at + len(expected)]])
        assert np.array_equal(driven, expected[: len(driven)])
        at += len(expected) - 1
    assert at >= len(frames) - 1


def test_the_same_on_any_clock():
    simulation = KitchenSimulation()
    first, _ = drive(simulation, RolloutSelection(k=2), TASK, 0)
    second, _ = drive(simulation, RolloutSelection(k=2), TASK, 0)  # the clock went on
    assert all(same(getattr(a, p), getattr(b, p)) for a, b in zip(first, second, strict=True) for p in PARTS)


def test_the_order_shown_depends_on_verifier_seed_and_decision_alone():
    def orders(seed, task):
        policy = RolloutSelection(Second(0), k=4, verifier_seed=seed)
        drive(KitchenSimulation(max_steps=150), policy, task, 0)
        return [d.order for d in policy.decisions]

    a, b, c = orders(0, TASK), orders(0, "kitchen/layout2/E/bag"), orders(1, TASK)
    assert a[0] == b[0] and a[1] == b[1] and a[0] != a[1] and c != a


def test_decisions_are_logged_for_the_metrics(tmp_path):
    log = tmp_path / "decisions.jsonl"
    policy = RolloutSelection(k=3, log=log)
    drive(KitchenSimulation(), policy, TASK, 5)
    stored = read_decisions(log)
    assert len(stored) == len(policy.decisions) >= 2 and {d.seed for d in stored} == {5}
    for a, b in zip(stored, (d.for_metrics() for d in policy.decisions), strict=True):
        assert (a.task, a.chosen, list(a.order), list(a.contact)) == (TASK, b.chosen, list(b.order), list(b.contact))
        assert all(np.allclose(p, q, atol=1e-6) for p, q in zip(a.paths, b.paths, strict=True))
    summary = candidates.summarize_diversity(stored)
    assert 0 < summary.mean_distance[1] < 1
    assert stored[0].obstacle_distance > 0 and stored[0].obstacle == pytest.approx((3.58, 1.15), abs=0.01)
    log.write_text("{}\n")
    with pytest.raises(UserError, match=r"decisions\.jsonl:1: is no decision"):
        read_decisions(log)


def test_a_rejection_takes_the_first_one_generated():
    policy = RolloutSelection(Second(None), k=3)
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    policy.act(frame)
    assert (policy.decisions[0].chosen, policy.decisions[0].valid) == (0, False)


def candidate(end, distance=0.3, contact=False, success=False):
    poses = np.array([[1.0, 1.15, -1.57], end])
    return Candidate(poses, (STOP,), distance, contact, success)


def scene():
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)
    return Scene(simulation.task, "Navigate to the coffee machine.", frame)


def test_the_scorer_avoids_contact_then_comes_near_the_goal():
    near, far, touching = candidate([3.0, 1.2, 0]), candidate([1.5, 1.2, 0]), candidate([4.0, 1.2, 0], contact=True)
    assert ScoringVerifier().choose([touching, far, near], scene()) == 2
    assert ScoringVerifier().choose([touching], scene()) is None
    roomy = candidate([3.0, 1.2, 0], distance=0.5)
    assert ScoringVerifier().choose([near, roomy], scene()) == 1


@pytest.mark.parametrize("image_format", ["grid", "path", "overlay"])
def test_a_model_verifies_with_one_picture_a_candidate(endpoint, image_format):
    with endpoint.serve(lambda body, n: '{"mode": "Mode 3", "reason": "clear"}') as (url, requests):
        policy = RolloutSelection("chat", k=4, image_format=image_format, client={"url": url, "model": "tiny"})
        simulation = KitchenSimulation()
        frame = simulation.reset(TASK, 0)
        policy.reset(simulation.info())
        policy.act(frame)
    assert len(requests) == 1 and endpoint.images(requests[0]["body"]) == 4
    assert requests[0]["body"]["messages"][0]["role"] == "user" and len(requests[0]["body"]["messages"]) == 1
    said = endpoint.texts(requests[0]["body"])
    assert "Mode 4" in said and "coffee machine" in said and "cat" not in said.split()
    decision = policy.decisions[0]
    assert decision.valid and decision.chosen == decision.order[2]


REFUSALS = ["none of them", '{"mode": "none of them"}', '{"mode": "Mode 9"}', '{"mode": null}', ""]


@pytest.mark.parametrize("reply", REFUSALS)
def test_rejections_and_invalid_answers_are_no_choice(endpoint, reply):
    with endpoint.serve(lambda body, n: reply) as (url, _):
        policy = RolloutSelection("chat", k=2, client={"url": url, "model": "tiny"}, condition="c0")
        simulation = KitchenSimulation()
        frame = simulation.reset(TASK, 0)
        policy.reset(simulation.info())
        policy.act(frame)
    assert (policy.decisions[0].chosen, policy.decisions[0].valid) == (0, False)
    rejected = reply == '{"mode": "none of them"}'
    assert policy.requested == {"unparsed_answers": "0" if rejected else "1", "condition": "c0"}


def test_the_three_formats_look_different():
    poses = np.array([[1.0 + 0.02 * i, 1.15 + 0.01 * i, 0.0] for i in range(101)])
    long = Candidate(poses, (STOP,) * 100, 0.3, False, False)
    pictures = {f: candidate_image(long, scene(), f) for f in ("grid", "path", "overlay")}
    single = pictures["path"].size
    assert pictures["overlay"].size == single
    assert pictures["grid"].size == (3 * 256, 2 * 216)  # six moments
    assert pictures["overlay"].tobytes() != pictures["path"].tobytes()


def test_noise_is_seeded_by_chunk():
    policy = NoisyShortestPath()
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)

    def action(seed):
        policy.reset(simulation.info())
        policy.reseed(seed)
        return policy.act(frame)

    assert action([1, 2]) == action([1, 2]) != action([1, 3])
    assert isinstance(action([0]), Action)


def test_by_itself_the_noise_comes_from_task_and_seed():
    simulation = KitchenSimulation(max_steps=45)

    def base(policy, seed, task=TASK):
        simulation.restart_clock()
        frames, _ = drive(simulation, policy, task, seed)
        return np.array([planar_pose(frame) for frame in frames])

    noisy = NoisyShortestPath()
    first = base(noisy, 0)
    assert not np.array_equal(first, base(ShortestPath(), 0))
    assert not np.array_equal(first, base(noisy, 1))
    assert np.array_equal(first, base(noisy, 0)), "a policy that drove before draws the same again"
    assert np.array_equal(first, base(NoisyShortestPath(), 0))
    offsets = []
    noisy.reset(simulation.info())
    frame = simulation.reset(TASK, 0)
    for _ in range(41):
        noisy.act(frame)
        offsets.append(noisy._offset)
    assert len(set(offsets)) == 3 and offsets[0] == offsets[19] != offsets[20], "one offset a chunk of 20 steps"


def test_options_are_checked():
    with pytest.raises(UserError, match="at least one"):
        RolloutSelection(k=0)
    with pytest.raises(UserError, match="scorer or chat"):
        RolloutSelection("oracle")
    with pytest.raises(UserError, match="needs client"):
        RolloutSelection("chat")
    with pytest.raises(UserError, match="grid, path, overlay"):
        RolloutSelection("chat", image_format="film", client={"url": "http://x", "model": "m"})
