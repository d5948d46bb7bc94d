"""Two policies on the same episodes; preference pairs."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from osma_monitor.core.metrics.paired import compare_policies
from osma_monitor.core.metrics.preferences import preference_pairs, to_json_lines
from osma_monitor.core.metrics.safety import EpisodeScore, summarize
from osma_monitor.core.metrics.statistics import mcnemar_exact

from .safety_data import synthetic

NAN = math.nan


def one(policy: str, task: str, success: bool | None, rho: float, seed: int = 0, name: str = "") -> EpisodeScore:
    depth = {"a": min(1.0, max(0.0, -rho)) if rho == rho else 0.0}
    return EpisodeScore(
        success,
        {"a": rho},
        depth,
        suite="s",
        task=task,
        policy=policy,
        seed=seed,
        episode_id=name or f"{policy}{task}{seed}",
    )


def matched() -> list[EpisodeScore]:
    """Two policies on the same tasks, from the 500 synthetic episodes."""
    rows = [s for s in synthetic(500, seed=4) if not s.aborted]
    half = len(rows) // 2
    return [
        dataclasses.replace(s, policy="a" if i < half else "b", task=f"t{i % half}", suite="s", seed=0)
        for i, s in enumerate(rows[: 2 * half])
    ]


def test_paired_comparison_by_hand() -> None:
    scores = matched()
    found = compare_policies(scores, "a", "b", resamples=500)
    a = {s.task: s for s in scores if s.policy == "a"}
    b = {s.task: s for s in scores if s.policy == "b"}
    assert found.pairs == len(a)
    known = [t for t in a if a[t].safety != "unknown" and b[t].safety != "unknown"]
    outcome = [t for t in a if a[t].success is not None and b[t].success is not None]
    safer = sum((b[t].safety == "safe") - (a[t].safety == "safe") for t in known) / len(known)
    assert (found.safety.n, found.safety.difference) == (len(known), pytest.approx(safer))
    better = sum(bool(b[t].success) - bool(a[t].success) for t in outcome) / len(outcome)
    assert (found.sr.n, found.sr.difference) == (len(outcome), pytest.approx(better))
    depth = {t: [max((s.depth[c] for c in s.rho if s.rho[c] < 0), default=0.0) for s in (a[t], b[t])] for t in known}
    assert found.vsi.difference == pytest.approx(sum(y - x for x, y in depth.values()) / len(known))
    both = [t for t in known if t in outcome]
    sbu = sum((b[t].success and b[t].safety == "unsafe") - (a[t].success and a[t].safety == "unsafe") for t in both)
    assert found.sbu.difference == pytest.approx(sbu / len(both))
    only_a = sum(a[t].safety == "safe" and b[t].safety == "unsafe" for t in known)
    only_b = sum(a[t].safety == "unsafe" and b[t].safety == "safe" for t in known)
    assert found.safety_test == mcnemar_exact(only_a, only_b)
    assert found.safety.interval[0] <= found.safety.difference <= found.safety.interval[1]


def test_the_order_of_episodes_does_not_matter_and_swapping_negates() -> None:
    scores = matched()
    found = compare_policies(scores, "a", "b", resamples=300)
    assert compare_policies(scores[::-1], "a", "b", resamples=300) == found
    swapped = compare_policies(scores, "b", "a", resamples=300)
    assert swapped.vsi.difference == pytest.approx(-found.vsi.difference)
    assert swapped.safety_test.p == found.safety_test.p


def test_equal_policies() -> None:
    scores = [one(p, t, True, 1.0) for p in "ab" for t in "xyz"]
    found = compare_policies(scores, "a", "b")
    assert found.safety.difference == 0.0 and found.safety.interval == (0.0, 0.0) and found.safety_test.p == 1.0


def test_nothing_known() -> None:
    found = compare_policies([one("a", "x", None, NAN), one("b", "x", None, NAN)], "a", "b")
    assert (found.pairs, found.sr.n, found.safety.n) == (1, 0, 0) and math.isnan(found.vsi.difference)


def test_different_tasks_are_refused() -> None:
    scores = [one("a", t, True, 1.0) for t in ("t1", "t2", "t3", "t4", "t5")] + [one("b", "t1", True, 1.0)]
    with pytest.raises(ValueError, match=r"b lacks 4 of them \(suite s, task t2, seed 0; .* \.\.\.\)"):
        compare_policies(scores, "a", "b")
    with pytest.raises(ValueError, match="b lacks 4 of them"):
        compare_policies(scores, "b", "a")
    with pytest.raises(ValueError, match="b lacks 1 of them"):
        compare_policies([one("a", "x", True, 1.0, seed=1), one("b", "x", True, 1.0, seed=2)], "a", "b")


def test_ambiguous_pairs_are_refused() -> None:
    scores = [one("a", "x", True, 1.0), one("a", "x", True, 1.0), one("b", "x", True, 1.0)]
    with pytest.raises(ValueError, match="policy a has two episodes with suite s, task x, seed 0"):
        compare_policies(scores, "a", "b")


def test_unknown_policies_and_keys() -> None:
    with pytest.raises(ValueError, match="no episode of policy 'c'; there are a, b"):
        compare_policies(matched(), "a", "c")
    with pytest.raises(ValueError, match="no episode of policy 'a'; there are none at all"):
        compare_policies([], "a", "b")
    with pytest.raises(ValueError, match="no episode has a column 'x'"):
        compare_policies(matched(), "a", "b", keys=("x",))


# ---- preferences


def rollouts() -> list[EpisodeScore]:
    return [
        one("p", "x", True, 1.0, name="good"),
        one("p", "x", True, -0.2, name="bad"),
        one("p", "x", True, -0.9, name="worse"),
        one("p", "x", False, -1.0, name="failed"),
        one("p", "x", True, NAN, name="unknown"),
        one("p", "x", None, 1.0, name="open"),
        one("p", "x", True, 1.0, seed=1, name="elsewhere"),
    ]


def test_pairs_share_task_and_state_and_both_succeed() -> None:
    found = preference_pairs(rollouts())
    assert [(p.chosen, p.rejected) for p in found] == [("good", "worse"), ("good", "bad")]
    assert found[0].clause == "a" and found[0].depth == pytest.approx(0.9)
    assert found[0].margin == pytest.approx(1.9) and found[0].rejected_rho == -0.9
    assert (found[0].task, found[0].state) == ("x", "s x 0")


def test_pairs_can_be_limited_to_the_deepest_of_each_state() -> None:
    assert [p.rejected for p in preference_pairs(rollouts(), limit_per_state=1)] == ["worse"]
    with pytest.raises(ValueError, match="at least 1"):
        preference_pairs(rollouts(), limit_per_state=0)


def test_a_clause_that_never_applied_to_the_chosen_one_has_no_margin() -> None:
    good = EpisodeScore(True, {"b": math.inf}, {"b": 0.0}, episode_id="good")
    bad = EpisodeScore(True, {"b": -2.0}, {"b": 1.0}, episode_id="bad")
    (found,) = preference_pairs([good, bad])
    assert found.chosen_rho is None and found.margin is None


def test_json_lines() -> None:
    lines = to_json_lines(preference_pairs(rollouts()))
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["rejected"] for row in rows] == ["worse", "bad"]
    assert set(rows[0]) >= {"chosen", "rejected", "clause", "margin", "task", "state"}
    assert to_json_lines([]) == ""
    infinite = to_json_lines(
        preference_pairs(
            [
                EpisodeScore(True, {"b": 1.0}, {"b": 0.0}, episode_id='a "quoted" name\n'),
                EpisodeScore(True, {"b": -math.inf}, {"b": 1.0}, episode_id="bad"),
            ]
        )
    )
    (row,) = [json.loads(line) for line in infinite.splitlines()]
    assert row["chosen"] == 'a "quoted" name\n' and row["rejected_rho"] is None and row["margin"] is None


def test_every_pair_of_the_synthetic_episodes_is_right() -> None:
    scores = [s for s in synthetic() if not s.aborted]
    by_id = {s.episode_id: s for s in scores}
    keys = ("suite", "task", "seed")
    found = preference_pairs(scores, keys)
    expected = {
        (g.episode_id, b.episode_id)
        for g in scores
        for b in scores
        if g.success
        and b.success
        and g.safety == "safe"
        and b.safety == "unsafe"
        and all(getattr(g, k) == getattr(b, k) for k in keys)
    }
    assert {(p.chosen, p.rejected) for p in found} == expected and len(found) == len(expected)
    for pair in found:
        assert pair.clause == by_id[pair.rejected].worst
    assert summarize(scores, bootstrap=False).n_unsafe_success >= len({p.rejected for p in found})
