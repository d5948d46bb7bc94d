"""Navigation outcomes (OSMA-Bench C.5, Table 6)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.metrics import navigation
from osma_monitor.core.metrics.navigation import NavigationEpisode, PlannedTask, ReferencePath
from osma_monitor.core.metrics.ssi import semantic_sensitivity_index, table_from_records
from osma_monitor.core.metrics.statistics import wilson_interval
from osma_monitor.core.motion import MotionFeatures, episode_motion

NAN = math.nan
STEP = 50_000_000
PATHS = {"0A": ReferencePath(4.0, 8.0), "0B": ReferencePath(2.0, 4.0)}


def episode(task="t", success=True, contact_steps=0, cell="0A", **more):
    return NavigationEpisode(task, cell, success, contact_steps, path_length=5.0, duration=10.0, **more)


def record(x, y=None, contact=None, status="success", complete=True, motion=None, stamps=None, **attributes):
    x = np.asarray(x, dtype=float)
    n = len(x)
    y = np.zeros(n) if y is None else np.asarray(y, dtype=float)
    contact = np.zeros(n) if contact is None else np.asarray(contact, dtype=float)
    stamps = 10**9 + STEP * np.arange(n, dtype=np.int64) if stamps is None else np.asarray(stamps, dtype=np.int64)
    d = np.full(n, 0.8)
    attributes = {"cell": "0A", "layout": "0", "route": "A", "tier": "high", "obstacle": "cat", **attributes}
    return EpisodeRecord(
        EpisodeInfo("e", task="kitchen/0A/cat", policy="p", seed=3, attributes=attributes),
        Outcome(status, "timeout"),
        stamps,
        {"base_x": x, "base_y": y, "obstacle_distance": d, "obstacle_contact": contact},
        ("cat",) * n,
        (),
        {},
        motion if motion is not None else episode_motion(stamps, x, y, d, contact),
        complete=complete,
    )


# --- rates -------------------------------------------------------------------------------------------------------


def test_rates():
    s = navigation.summarize(
        [episode(), episode(contact_steps=3), episode(success=False), episode(success=False, contact_steps=9)], PATHS
    )
    assert (s.n, s.n_success, s.n_collision_free, s.n_contact) == (4, 2, 1, 2)
    assert (s.tsr, s.cfsr, s.cfsr_over_tsr, s.contact_rate) == (0.5, 0.25, 0.5, 0.5)
    assert s.collision_steps == 6.0
    assert s.intervals["tsr"] == wilson_interval(2, 4) and s.intervals["cfsr_over_tsr"] == wilson_interval(1, 2)
    assert s.counts == {
        "tsr": 4, "cfsr": 4, "cfsr_over_tsr": 2, "contact_rate": 4, "npl": 4, "npt": 4,
        "collision_steps": 2, "first_contact_speed": 0,
    }  # fmt: skip


def test_a_failure_is_never_collision_free():
    assert navigation.summarize([episode(success=False, contact_steps=0)]).cfsr == 0.0


def test_planned_tasks_that_did_not_run_are_failures():
    s = navigation.summarize([episode(), episode(success=None)], planned=4)
    assert (s.n, s.tsr, s.cfsr) == (4, 0.25, 0.25)
    with pytest.raises(ValueError, match="2 episodes, but only 1"):
        navigation.summarize([episode(), episode()], planned=1)


def test_with_a_plan_an_unknown_outcome_or_contact_raises_no_rate():
    known = [episode("a"), episode("b", success=False, contact_steps=2)]
    lost = [
        episode("c", success=None, contact_steps=None),
        episode("d", aborted=True),
        episode("e", contact_steps=None),
    ]
    s = navigation.summarize([*known, *lost], planned=6)
    assert (s.n, s.n_unknown, s.n_aborted) == (6, 3, 1)
    assert (s.tsr, s.cfsr, s.cfsr_over_tsr) == (2 / 6, 1 / 6, 1 / 2)
    # nobody saw c, d, e and the sixth pass without contact
    assert (s.contact_rate, s.counts["contact_rate"]) == (0.5, 2)


def planned(*names, policy="p"):
    return [PlannedTask(policy, name, seed, route=name[0]) for name in names for seed in (0, 3)]


def test_what_did_not_run_is_what_the_plan_has_beyond_the_episodes():
    plan = [*planned("A1", "B1"), *planned("A1", policy="q"), *planned("A1")]
    ran = [("p", "A1", 0), ("p", "A1", 3), ("p", "A1", 3), ("p", "not planned", 0), ("r", "A1", 0)]
    found = navigation.without_a_run(plan, ran)
    assert found == {"p": planned("B1"), "q": planned("A1", policy="q")}
    assert navigation.without_a_run([], ran) == {}


def test_a_breakdown_divides_by_what_was_planned_for_each_value():
    episodes = [episode("A1", route="A"), episode("A2", route="A", success=None), episode("B1", route="B", seed=3)]
    found = navigation.breakdown(episodes, "route", not_run=planned("B2", "C1"))
    assert {k: (s.n, s.tsr, s.n_ran) for k, s in found.items()} == {
        "A": (2, 0.5, 2),
        "B": (3, 1 / 3, 1),
        "C": (2, 0.0, 0),
    }
    assert navigation.breakdown(episodes, "route", not_run=[])["A"].tsr == 0.5
    assert navigation.breakdown(episodes, "route")["A"].tsr == 1.0
    seeds, values = navigation.by_seed(episodes, not_run=planned("B2"))
    assert {k: s.tsr for k, s in seeds.items()} == {0: 1 / 3, 3: 0.5}
    assert values["tsr"].mean == pytest.approx(5 / 12)
    # of a seed that did not begin nothing is said
    only = navigation.by_seed(episodes[:2], not_run=planned("B2"))[0]
    assert list(only) == [0]


def test_unknown_outcomes_and_aborted_episodes_are_counted_and_left_out():
    s = navigation.summarize([episode(), episode(success=None), episode(success=False, aborted=True)])
    assert (s.n, s.tsr, s.n_unknown, s.n_aborted) == (1, 1.0, 1, 1)


def test_unknown_contact_is_not_collision_free():
    s = navigation.summarize([episode(), episode(contact_steps=None), episode(success=False, contact_steps=None)])
    assert s.tsr == pytest.approx(2 / 3) and s.n_contact_unknown == 2
    assert s.cfsr == 1.0 and s.counts["cfsr"] == 1 and s.cfsr_bounds == (1 / 3, 2 / 3)
    assert math.isnan(navigation.summarize([episode(contact_steps=None)]).cfsr)


def test_nothing_gives_nan_and_no_error():
    s = navigation.summarize([])
    assert s.n == 0
    assert all(math.isnan(getattr(s, name)) for name in navigation.VALUES)
    assert all(math.isnan(bound) for interval in s.intervals.values() for bound in interval)


def test_ratio_without_a_success_is_undefined():
    assert math.isnan(navigation.summarize([episode(success=False)]).cfsr_over_tsr)


# --- path and time -----------------------------------------------------------------------------------------------


def test_path_and_time_are_normalized_by_the_cell():
    s = navigation.summarize([episode(), episode(cell="0B")], PATHS)
    assert s.npl == pytest.approx((5 / 4 + 5 / 2) / 2) and s.npt == pytest.approx((10 / 8 + 10 / 4) / 2)


def test_tuples_do_as_reference_and_an_own_reference_when_none_is_given():
    assert navigation.summarize([episode()], {"0A": (2.0, 5.0)}).npl == 2.5
    assert navigation.summarize([episode(reference=ReferencePath(1.0, 2.0))]).npt == 5.0
    s = navigation.summarize([episode(cell="9Z")], PATHS)
    assert math.isnan(s.npl) and s.counts["npl"] == 0
    with pytest.raises(ValueError, match="not possible"):
        navigation.summarize([episode()], {"0A": (0.0, 5.0)})


def test_a_robot_that_never_moved_counts_for_success_but_not_for_path_and_time():
    s = navigation.summarize([episode(), episode(success=False, moved=False)], PATHS)
    assert (s.tsr, s.npl, s.n_never_moved, s.counts["npt"]) == (0.5, 1.25, 1, 1)


def test_means_have_an_interval_over_cells():
    episodes = [episode(cell=c, contact_steps=k) for c in PATHS for k in (1, 2, 3)]
    s = navigation.summarize(episodes, PATHS)
    assert s.intervals["npl"] == pytest.approx((1.25, 2.5))
    assert s.intervals["collision_steps"] == pytest.approx((2.0, 2.0))


def test_over_seeds_the_ratio_is_the_mean_of_ratios():
    one = [episode(seed=0), episode(seed=0, contact_steps=1)]
    two = [episode(seed=3), episode(seed=3, success=False)]
    summaries, values = navigation.by_seed(one + two, PATHS)
    assert list(summaries) == [0, 3]
    assert (values["cfsr_over_tsr"].mean, values["cfsr_over_tsr"].std) == (0.75, 0.25)
    assert (values["tsr"].mean, values["tsr"].std, values["tsr"].n) == (0.75, 0.25, 2)
    assert (values["collision_steps"].mean, values["collision_steps"].n) == (1.0, 1)


def test_breakdown():
    episodes = [episode(route="A"), episode(route="B", success=False), episode(route="B")]
    assert {k: s.tsr for k, s in navigation.breakdown(episodes, "route").items()} == {"A": 1.0, "B": 0.5}
    assert list(navigation.breakdown(episodes, "seed")) == ["0"]
    with pytest.raises(ValueError, match="known are policy"):
        navigation.breakdown(episodes, "colour")


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.sampled_from([None, 0, 1, 7]))))
def test_collision_free_success_is_never_more_than_success(pairs):
    s = navigation.summarize([episode(success=a, contact_steps=b) for a, b in pairs])
    assert s.n_collision_free <= s.n_success
    assert math.isnan(s.cfsr_bounds[0]) or s.cfsr_bounds[0] <= s.cfsr_bounds[1] <= s.tsr


def test_numbers_of_a_table_row_do():
    rows = [(np.True_, np.float64(0)), (np.False_, np.int64(2)), (NAN, NAN), (1.0, None)]
    s = navigation.summarize([episode(success=a, contact_steps=b) for a, b in rows])
    assert (s.n, s.n_success, s.n_collision_free, s.n_contact, s.n_unknown) == (3, 2, 1, 1, 1)


# --- from records ------------------------------------------------------------------------------------------------


def test_a_record_becomes_an_episode():
    e = navigation.episode_of(
        record([0, 0.1, 0.2, 0.5], contact=[0, 1, 1, 0], reference_length_m="0.25", reference_time_s="0.1")
    )
    assert (e.task, e.cell, e.policy, e.seed, e.layout, e.route, e.tier, e.obstacle) == (
        "kitchen/0A/cat", "0A", "p", 3, "0", "A", "high", "cat",
    )  # fmt: skip
    assert (e.success, e.contact_steps, e.collision_free) == (True, 2, False)
    assert e.path_length == pytest.approx(0.5) and e.duration == pytest.approx(0.15)
    assert e.first_contact_speed == pytest.approx(2.0)
    assert e.reference == ReferencePath(0.25, 0.1)
    assert navigation.summarize([record([0, 0.5], reference_length_m="0.25")]).npl == 2.0


def test_contact_at_step_0_counts():
    e = navigation.episode_of(record([0, 0.05, 0.1], contact=[1, 0, 0]))
    assert e.contact_steps == 1 and e.first_contact_speed == pytest.approx(1.0)


def test_contact_at_the_last_step_has_no_speed():
    e = navigation.episode_of(record([0, 0.05], contact=[0, 1]))
    assert e.contact_steps == 1 and math.isnan(e.first_contact_speed)


@pytest.mark.parametrize(
    ("contact", "steps"), [([0, NAN, 0], None), ([NAN, NAN, NAN], None), ([1, NAN, 0], 1), ([0, 0, 0], 0)]
)
def test_unknown_contact(contact, steps):
    assert navigation.episode_of(record([0, 1, 2], contact=contact)).contact_steps == steps


def test_first_contact_speed_uses_the_stamps():
    e = navigation.episode_of(record([0, 0.1], contact=[1, 0], stamps=[10**9, 10**9 + 2 * STEP]))
    assert e.first_contact_speed == pytest.approx(1.0)


def test_path_over_unknown_positions():
    assert navigation.episode_of(record([0, NAN, 0.2])).path_length == pytest.approx(0.2)
    assert math.isnan(navigation.episode_of(record([NAN, NAN])).path_length)
    assert math.isnan(navigation.episode_of(record([0, 1], stamps=[10**9, 5 * 10**9])).path_length)


def test_standing_still_is_not_moving():
    assert not navigation.episode_of(record([0, 0.004, 0.001])).moved
    assert navigation.episode_of(record([0, 0.02])).moved


def test_an_empty_record_and_one_without_the_signals():
    e = navigation.episode_of(record([]))
    assert e.contact_steps is None and math.isnan(e.path_length) and math.isnan(e.duration)
    bare = EpisodeRecord(EpisodeInfo("e"), Outcome(), np.array([10**9]), {}, ("",), (), {}, MotionFeatures())
    assert navigation.episode_of(bare) == NavigationEpisode("", contact_steps=None, duration=0.0)


def test_records_that_did_not_end_regularly_have_no_outcome():
    s = navigation.summarize([record([0, 1]), record([0, 1], complete=False), record([0, 1], status="aborted")])
    assert (s.n, s.n_success, s.n_unknown, s.n_aborted) == (1, 1, 1, 1)


def test_missing_frames_may_hide_contact_and_path():
    e = navigation.episode_of(replace(record([0, 0.1, 0.2]), partial=True))
    assert (e.success, e.contact_steps, e.collision_free) == (True, None, None)
    assert math.isnan(e.path_length) and math.isnan(e.duration)
    assert navigation.episode_of(replace(record([0, 0.1], contact=[1, 0]), partial=True)).collision_free is False


def test_reference_paths_of_records():
    good = [record([0, 1], reference_length_m="2.5", reference_time_s="7.0")] * 2
    assert navigation.reference_paths(good) == {"0A": ReferencePath(2.5, 7.0)}
    with pytest.raises(ValueError, match="two reference paths"):
        navigation.reference_paths([*good, record([0, 1], reference_length_m="2.6", reference_time_s="7.0")])


def test_a_reference_that_is_not_known_is_none():
    unknown = [record([0, 1], reference_length_m="nan", reference_time_s="nan") for _ in range(2)]
    assert navigation.reference_paths(unknown) == {} and navigation.episode_of(unknown[0]).reference is None


def test_an_attribute_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="reference_length_m is 'long'; expected a number"):
        navigation.episode_of(record([0, 1], reference_length_m="long"))


def test_table_from_records():
    motions = {"low": 0.1, "moderate": 0.2, "high": 0.3}
    records = [
        record([0, 0.1], motion=MotionFeatures(d_min=d), tier=tier, status=status)
        for (tier, d), status in zip(motions.items(), ("success", "failure", "unknown"), strict=True)
    ]
    skipped = [record([0, 1], complete=False), record([0, 1], status="aborted"), record([0, 1], tier="")]
    table = table_from_records(records + skipped)
    assert list(table["tier"]) == ["low", "moderate", "high"] and list(table["seed"]) == [3, 3, 3]
    np.testing.assert_array_equal(table["success"], [1, 0, NAN])
    np.testing.assert_array_equal(table["collision_free"], [1, 0, NAN])
    result = semantic_sensitivity_index(table)
    assert result.tau["d_min"] == 1.0 and math.isnan(result.ssi) and result.n == 3


def test_table_of_no_records_is_empty():
    assert semantic_sensitivity_index(table_from_records([])).n == 0
