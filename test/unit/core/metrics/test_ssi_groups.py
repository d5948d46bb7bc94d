"""SSI on the task sets of a policy group (OSMA-Bench C.6, Table 13)."""

import math

import numpy as np
import pandas as pd
import pytest

from osma_monitor.core.metrics import ssi
from osma_monitor.core.metrics.ssi_groups import SUBSETS, group_ssi, leave_one_out
from osma_monitor.core.motion import FEATURES

GROUPS = {"a": "G", "b": "G", "c": "G", "x": "H"}


def table(seed=0, policies=tuple(GROUPS), seeds=(0, 3)):
    rng = np.random.default_rng(seed)
    rows = [
        {"policy": p, "seed": s, "task": f"{c}-{t}-{k}", "cell": c, "tier": t}
        for p in policies
        for s in seeds
        for c in "ABCDE"
        for t in ssi.TIERS
        for k in range(3)
    ]
    frame = pd.DataFrame(rows)
    frame["success"] = rng.random(len(frame)) < 0.9
    frame["collision_free"] = frame.success & (rng.random(len(frame)) < 0.9)
    for name in FEATURES:
        frame[name] = rng.random(len(frame))
    return frame


def by_hand(frame, policy, peers, column, seed):
    """The intersection written out, then SSI on it."""
    here = frame[frame.seed == seed]
    tasks = set(here.task)
    if column:
        for peer in peers:
            tasks &= set(here[(here.policy == peer) & here[column].eq(True)].task)
    return ssi.semantic_sensitivity_index(here[(here.policy == policy) & here.task.isin(tasks)])


@pytest.mark.parametrize("subset", SUBSETS)
def test_the_intersection_is_taken_within_the_group_and_for_each_seed(subset):
    frame = table()
    column = {"all": None, "tsr": "success", "cfsr": "collision_free"}[subset]
    for result in group_ssi(frame, GROUPS, (subset,), resamples=50):
        peers = [p for p, g in GROUPS.items() if g == result.group]
        values = []
        for seed, got in result.by_seed.items():
            want = by_hand(frame, result.policy, peers, column, seed)
            assert got.ssi == want.ssi and got.tau == want.tau and got.n == want.n
            assert got.cells == want.cells and got.margins == want.margins
            values.append(want.ssi)
        assert result.ssi.mean == pytest.approx(np.mean(values)) and result.ssi.std == pytest.approx(np.std(values))
        assert result.n == sum(r.n for r in result.by_seed.values())


def test_all_policies_of_a_group_are_judged_on_the_same_tasks():
    for subset in ("tsr", "cfsr"):
        sizes = {(r.group, s): set() for r in group_ssi(table(), GROUPS, (subset,), resamples=0) for s in r.by_seed}
        for r in group_ssi(table(), GROUPS, (subset,), resamples=0):
            for s, one in r.by_seed.items():
                sizes[r.group, s].add(one.n)
        assert all(len(v) == 1 for v in sizes.values())


def test_leave_one_out_forms_the_intersection_without_that_policy():
    frame = table()
    frame.loc[(frame.policy == "b") & (frame.task.str.startswith("A")), "collision_free"] = False
    results = {(r.left_out, r.policy): r for r in leave_one_out(frame, GROUPS, resamples=50)}
    assert set(results) == {(o, p) for o in "abc" for p in "abc" if o != p}
    for (left_out, policy), result in results.items():
        rest = [p for p in "abc" if p != left_out]
        for seed, got in result.by_seed.items():
            assert got.ssi == by_hand(frame, policy, rest, "collision_free", seed).ssi
    full = next(r for r in group_ssi(frame, GROUPS, ("cfsr",), resamples=0) if r.policy == "a")
    assert results["b", "a"].cells["d_min"].mean > full.cells["d_min"].mean


def test_unknown_outcomes_are_in_no_intersection():
    frame = table().astype({"success": object})
    frame.loc[frame.task == "A-low-0", "success"] = None
    got = group_ssi(frame, GROUPS, ("tsr",), resamples=0)[0]
    want = by_hand(frame, "a", "abc", "success", 0)
    assert got.by_seed[0].n == want.n


def test_a_policy_that_did_not_run_in_a_seed_does_not_empty_it():
    frame = table()
    frame = frame[~((frame.policy == "c") & (frame.seed == 3))]
    result = {r.policy: r for r in group_ssi(frame, GROUPS, ("tsr",), resamples=0)}
    assert set(result["c"].by_seed) == {0}
    assert result["a"].by_seed[3].ssi == by_hand(frame, "a", "ab", "success", 3).ssi


def test_a_task_that_one_policy_did_not_run_is_not_in_the_intersection():
    frame = table()
    frame = frame[~((frame.policy == "c") & (frame.task == "B-high-1"))]
    got = group_ssi(frame, GROUPS, ("tsr",), resamples=0)[0]
    assert got.by_seed[0].n == by_hand(frame, "a", "abc", "success", 0).n


def test_groups_may_come_from_a_column_and_seed_may_be_absent():
    frame = table(seeds=(0,)).drop(columns="seed")
    frame["group"] = frame.policy.map(GROUPS)
    assert [r.ssi for r in group_ssi(frame, resamples=0)] == [r.ssi for r in group_ssi(frame, GROUPS, resamples=0)]


def test_an_empty_intersection_is_undefined_not_an_error():
    frame = table()
    frame.loc[frame.policy == "a", "collision_free"] = False
    for r in group_ssi(frame, GROUPS, ("cfsr",)):
        if r.group == "G":
            assert math.isnan(r.ssi.mean) and r.ssi.n == 0 and r.n == 0 and math.isnan(r.interval[0])


def test_of_repeated_runs_every_one_must_qualify():
    frame = table()
    frame["success"] = True
    again = frame[(frame.policy == "b") & (frame.seed == 0)].copy()
    again.loc[again.task == "A-low-0", "success"] = False
    both = pd.concat([frame, again])
    result = {r.policy: r for r in group_ssi(both, GROUPS, ("tsr",), resamples=0)}
    tasks = len(set(frame.task))
    assert result["a"].by_seed[0].n == tasks - 1 and result["a"].by_seed[3].n == tasks
    assert result["b"].by_seed[0].n == 2 * (tasks - 1)  # all of its runs are averaged


def test_an_empty_table_has_no_results():
    assert group_ssi(table().iloc[:0]) == [] and leave_one_out(table().iloc[:0]) == []


def test_bad_tables_are_refused():
    frame = table()
    with pytest.raises(ValueError, match="no group is given for the policies x"):
        group_ssi(frame, {"a": "G", "b": "G", "c": "G"})
    with pytest.raises(ValueError, match="no column 'collision_free'"):
        group_ssi(frame.drop(columns="collision_free"), GROUPS)
    with pytest.raises(ValueError, match="unknown subset"):
        group_ssi(frame, GROUPS, ("some",))
