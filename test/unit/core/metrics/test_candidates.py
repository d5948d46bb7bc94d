"""Rollout selection (OSMA-Bench G.1)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.metrics.candidates import (
    Decision,
    angular_change,
    diversity,
    summarize_diversity,
    summarize_selection,
)


def line(y, steps=11, slope=0.0):
    x = np.linspace(0, 1, steps)
    return np.column_stack((x, y + slope * x))


def decision(contact, chosen=None, task="t", **more):
    return Decision(task, [line(0.1 * i) for i in range(len(contact))], contact, chosen, **more)


def test_pairwise_distances_and_endpoint_spread():
    d = diversity(Decision("t", [line(0.0), line(0.1), line(0.4, slope=1.0)], [False] * 3))
    assert d.mean_distance == pytest.approx((0.1 + 0.9 + 0.8) / 3)
    assert d.max_distance == pytest.approx(0.9) and d.endpoint_spread == pytest.approx(1.4)
    assert d.opposite is None


def test_only_steps_that_both_have_are_compared():
    short = line(0.2)[:3]
    d = diversity(Decision("t", [line(0.0), short], [False] * 2))
    assert d.mean_distance == pytest.approx(0.2)
    assert d.endpoint_spread == pytest.approx(math.dist((1, 0), (0.2, 0.2)))


def test_unknown_positions_are_left_out():
    holes = line(0.3)
    holes[[2, -1]] = math.nan
    d = diversity(Decision("t", [line(0.0), holes], [False] * 2))
    assert d.mean_distance == pytest.approx(0.3) and d.endpoint_spread == pytest.approx(math.dist((1, 0), (0.9, 0.3)))


@pytest.mark.parametrize("paths", [[line(0.0)], [line(0.0), np.empty((0, 2))]])
def test_fewer_than_two_paths_have_no_distance(paths):
    d = diversity(Decision("t", paths, [False] * len(paths), obstacle=(0.5, 0.5)))
    assert math.isnan(d.mean_distance) and math.isnan(d.endpoint_spread) and d.opposite is False


def arc(degrees, radius=0.5):
    a = np.radians(np.linspace(180, 180 + degrees, 20))
    return radius * np.column_stack((np.cos(a), np.sin(a)))


@pytest.mark.parametrize(
    ("first", "second", "opposite"), [(31, -31, True), (31, -29, False), (31, 31, False), (170, -190, True)]
)
def test_opposite_directions_need_30_degrees_on_either_side(first, second, opposite):
    assert diversity(Decision("t", [arc(first), arc(second)], [False] * 2, obstacle=(0.0, 0.0))).opposite is opposite


def test_angular_change_is_unwrapped():
    assert angular_change(arc(350), (0.0, 0.0)) == pytest.approx(math.radians(350))


def test_diversity_summary():
    ds = [
        Decision("t", [arc(40), arc(-40)], [True, False], obstacle=(0.0, 0.0), obstacle_distance=0.5),
        Decision("t", [arc(40), arc(40)], [False, False], obstacle=(0.0, 0.0), obstacle_distance=0.4),
        Decision("t", [arc(40), arc(-40)], [False, False], obstacle=(0.0, 0.0), obstacle_distance=0.51),
        Decision("t", [arc(40), arc(-40)], [False, False], obstacle=(0.0, 0.0)),
    ]
    s = summarize_diversity(ds)
    assert (s.n, s.n_near, s.opposite_near, s.n_mixed) == (4, 2, 0.5, 1)
    values = [diversity(d).mean_distance for d in ds]
    assert s.mean_distance == pytest.approx(tuple(np.quantile(values, [0.25, 0.5, 0.75])))
    assert s.mixed_mean_distance[1] == pytest.approx(values[0])


def test_no_decisions():
    s, d = summarize_selection([]), summarize_diversity([])
    assert s.n == 0 and math.isnan(s.collision_free) and math.isnan(s.advantage) and s.position_counts == ()
    assert d.n == 0 and math.isnan(d.mean_distance[1])


def test_selection_against_uniform_choice():
    s = summarize_selection(
        [
            decision([True, False, False, False], 1),  # free; uniform 3/4
            decision([True, False], 0),  # touches; uniform 1/2
            decision([True, True], 0),
            decision([False, False], 1),
            decision([True, False], 1, task="u"),
        ]
    )
    assert (s.n, s.n_valid, s.n_mixed, s.n_tasks) == (5, 5, 3, 2)
    assert s.same_outcome == 0.4 and s.all_contact == 0.2
    assert s.collision_free == pytest.approx(2 / 3) and s.uniform == pytest.approx((0.75 + 0.5 + 0.5) / 3)
    assert s.advantage == pytest.approx((((0.25 - 0.5) / 2) + 0.5) / 2)
    assert s.advantage_interval[0] <= s.advantage <= s.advantage_interval[1]
    assert s.no_escape == (0, 1)
    assert s.position_counts == (2, 3, 0, 0)


def test_a_rejection_executes_the_first_candidate_and_has_no_position():
    s = summarize_selection([decision([False, True], None)])
    assert s.collision_free == 1.0 and s.n_valid == 0 and s.position_counts == (0, 0)


def test_position_is_where_the_verifier_saw_it():
    assert decision([False] * 3, 2, order=[2, 0, 1]).position == 0
    assert decision([False] * 3, 0, order=[2, 0, 1]).position == 1


def test_no_escape_counts_the_first_contact_of_a_task():
    s = summarize_selection(
        [
            decision([False, False], 0),
            decision([True, True], 0),
            decision([True, False], 0),
            decision([True, False], 0, "u"),
        ]
    )
    assert s.no_escape == (1, 2)


def test_drives_may_come_in_any_order():
    """Workers that share a log write as they go; seeds of a task are drives of their own."""
    drives = [
        [decision([True] * n + [False] * (k % 7 + 1), k % (n + 1), f"t{k}", seed=seed) for n in (1, 2, 3)]
        for k in range(30)
        for seed in (0, 1)
    ]
    one_by_one = summarize_selection([d for drive in drives for d in drive])
    backwards = summarize_selection([d for drive in reversed(drives) for d in drive])
    mixed = summarize_selection([d for together in zip(*drives, strict=True) for d in together])
    assert one_by_one == backwards == mixed
    seeds = [decision([True, True], 0, seed=0), decision([True, False], 0, seed=1)]
    assert summarize_selection(seeds).no_escape == summarize_selection(seeds[::-1]).no_escape == (1, 2)


@pytest.mark.parametrize(
    ("paths", "contact", "more"),
    [
        ([], [], {}),
        ([line(0)], [False, True], {}),
        ([line(0)], [False], {"chosen": 1}),
        ([line(0)], [False], {"chosen": -1}),
        ([line(0), line(1)], [False] * 2, {"order": [0, 0]}),
    ],
)
def test_parts_that_do_not_fit_are_refused(paths, contact, more):
    with pytest.raises(ValueError, match="task 't'"):
        Decision("t", paths, contact, **more)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=20))
def test_uniform_choice_is_what_the_average_chooser_gets(contacts):
    """Choosing every candidate once gives exactly the uniform rate."""
    every = [decision(c, i, task=str(k)) for k, c in enumerate(contacts) for i in range(len(c))]
    s = summarize_selection(every)
    if s.n_mixed:
        assert s.collision_free == pytest.approx(s.uniform) and s.advantage == pytest.approx(0.0, abs=1e-12)
