"""Episodes with their own stamps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.motion import FEATURES, episode_motion, motion_features

STEP = 50_000_000


def arc(t):
    return np.cos(t) * 0.6, np.sin(t) * 0.4, 0.3 + 0.5 * np.abs(np.sin(2 * t))


def assert_same(a, b, rel=1e-12):
    for name in FEATURES:
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=rel, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("start", [1, 10**9, 1_700_000_000_000_000_000])
def test_on_the_grid_nothing_is_changed(start):
    t = 0.05 * np.arange(60)
    x, y, d = arc(t)
    got = episode_motion(start + STEP * np.arange(60), x, y, d, np.zeros(60))
    assert got == motion_features(np.column_stack((x, y)), d, np.zeros(60, bool))


def test_stamps_within_a_microsecond_of_the_grid_count_as_on_it():
    t = 0.05 * np.arange(60)
    x, y, d = arc(t)
    jitter = np.random.default_rng(0).integers(-1000, 1001, 60)
    jitter[0] = 0
    got = episode_motion(10**9 + STEP * np.arange(60) + jitter, x, y, d, np.zeros(60))
    assert got == motion_features(np.column_stack((x, y)), d, np.zeros(60, bool))


@pytest.mark.parametrize("period_ms", [10, 25, 20, 33, 100, 70])
def test_other_periods_are_interpolated_linearly(period_ms):
    stamps = 10**9 + period_ms * 1_000_000 * np.arange(3000 // period_ms)
    t = (stamps - 10**9) * 1e-9
    x, y, d = arc(t)
    grid = np.arange(0, t[-1] + 1e-9, 0.05)
    xy = np.column_stack((np.interp(grid, t, x), np.interp(grid, t, y)))
    want = motion_features(xy, np.interp(grid, t, d), np.zeros(len(grid), bool))
    got = episode_motion(stamps, x, y, d, np.zeros(len(t)))
    for name in FEATURES:
        if name != "d_min":
            assert getattr(got, name) == pytest.approx(getattr(want, name), rel=1e-6), name
    assert got.d_min == d.min()


def test_irregular_stamps_of_a_uniform_motion_give_its_speed():
    rng = np.random.default_rng(3)
    stamps = 10**9 + np.sort(rng.choice(3_000_000_000, 80, replace=False))
    t = (stamps - stamps[0]) * 1e-9
    got = episode_motion(stamps, 0.4 * t, 0 * t, np.full(80, 0.8), np.zeros(80))
    assert got.mu_v == pytest.approx(0.5) and got.M_v == pytest.approx(0.5)
    assert got.M_a == pytest.approx(0, abs=1e-6)


def test_clearance_and_contact_come_from_the_samples_themselves():
    stamps = 10**9 + 10_000_000 * np.arange(100)
    d = np.full(100, 0.9)
    d[52] = 0.1  # between two grid times
    assert episode_motion(stamps, d, d, d, np.zeros(100)).d_min == 0.1
    contact = np.zeros(100)
    contact[52] = 1
    assert episode_motion(stamps, d, d, d, contact).d_min == 0.0


def test_a_missing_frame_is_bridged_and_a_long_gap_is_not():
    stamps = 10**9 + STEP * np.array([*range(20), *range(21, 40), *range(100, 120)])
    t = (stamps - 10**9) * 1e-9
    got = episode_motion(stamps, 0.5 * t, 0 * t, np.ones(len(t)), np.zeros(len(t)))
    assert got.mu_v == pytest.approx(0.5) and got.M_v == pytest.approx(0.5)
    teleport = np.where(t > 4, t + 10, t)  # the jump lies in the gap
    assert episode_motion(stamps, 0.5 * teleport, 0 * t, np.ones(len(t)), np.zeros(len(t))).M_v == pytest.approx(0.5)


def test_unknown_samples_stay_unknown_between_grid_times():
    stamps = 10**9 + 30_000_000 * np.arange(50)
    x = 0.01 * np.arange(50.0)
    x[20:30] = math.nan
    got = episode_motion(stamps, x, 0 * x, np.ones(50), np.zeros(50))
    assert got.mu_v == pytest.approx(1 / 3) and got.M_v == pytest.approx(1 / 3)


@pytest.mark.parametrize("stamps", [[0, 0], [STEP, 0]])
def test_refuses_stamps_that_do_not_increase(stamps):
    with pytest.raises(ValueError, match="stamp 1"):
        episode_motion(stamps, [0, 0], [0, 0], [1, 1], [0, 0])


def test_refuses_unequal_lengths_and_takes_an_empty_episode():
    with pytest.raises(ValueError, match="unequal"):
        episode_motion([0, 1], [0, 0], [0, 0], [1], [0, 0])
    got = episode_motion([], [], [], [], [])
    assert all(math.isnan(getattr(got, name)) for name in FEATURES)
    assert episode_motion([5], [0], [0], [0.4], [0]).d_min == 0.4


@given(st.integers(0, 2**32 - 1), st.integers(1, 10**18))
def test_the_start_of_the_clock_does_not_matter(seed, start):
    rng = np.random.default_rng(seed)
    stamps = np.cumsum(rng.integers(5_000_000, 200_000_000, 40))
    columns = [rng.normal(size=40), rng.normal(size=40), rng.uniform(0, 2, 40), np.zeros(40)]
    assert_same(episode_motion(stamps, *columns), episode_motion(stamps + start, *columns))


def test_a_jump_of_the_clock_over_50_years_costs_nothing():
    stamps = np.concatenate((STEP * np.arange(1, 31), 1_700_000_000_000_000_000 + STEP * np.arange(30) + 7_000_000))
    x = np.concatenate((0.025 * np.arange(30), 9 + 0.025 * np.arange(30)))
    got = episode_motion(stamps, x, 0 * x, np.ones(60), np.zeros(60))
    assert got.mu_v == pytest.approx(0.5) and got.M_v == pytest.approx(0.5)
    assert got.M_j == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("bad", [1e300, -1e200, math.inf, math.nan])
def test_a_corrupted_coordinate_is_unknown(bad):
    stamps = STEP * np.arange(1, 41)
    x = 0.025 * np.arange(40)
    x[20] = bad
    got = episode_motion(stamps, x, np.zeros(40), np.ones(40), np.zeros(40))
    assert got.M_v == pytest.approx(0.5) and got.M_a == pytest.approx(0.0, abs=1e-9)
