"""The provisional features agree with the batch on the same samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.motion import FEATURES, OnlineMotion, episode_motion

STEP = 50_000_000


def run(stamps, x, y, d, contact):
    online = OnlineMotion()
    updates = [
        online.update(int(s), float(px), float(py), float(pd), float(c), "cat")
        for s, px, py, pd, c in zip(stamps, x, y, d, contact, strict=True)
    ]
    return updates, online.close()


def assert_agree(got, want):
    for name in FEATURES:
        assert getattr(got, name) == pytest.approx(getattr(want, name), rel=1e-9, abs=1e-9, nan_ok=True), name


def episode(seed, steps, holes=0.0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 0.02, (2, steps)).cumsum(axis=1)
    d = rng.uniform(-0.02, 2.0, steps)
    for column in (x, y, d):
        column[rng.random(steps) < holes] = math.nan
    return x, y, d, (rng.random(steps) < 0.01).astype(float)


@given(st.integers(0, 2**32 - 1), st.integers(0, 80), st.sampled_from([0.0, 0.05, 0.4]))
def test_close_equals_the_batch_on_the_grid(seed, steps, holes):
    columns = episode(seed, steps, holes)
    stamps = 10**9 + STEP * np.arange(steps)
    assert_agree(run(stamps, *columns)[1], episode_motion(stamps, *columns))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([120, 1200, 9000, 10**7]),
)
def test_close_equals_the_batch_on_irregular_stamps(seed, steps, holes, longest_ms):
    rng = np.random.default_rng(seed)
    stamps = 10**9 + np.cumsum(rng.integers(1, longest_ms, steps)) * 1_000_000
    columns = episode(seed, steps, holes)
    assert_agree(run(stamps, *columns)[1], episode_motion(stamps, *columns))


def test_every_ratio_is_published_once_and_as_late_as_it_needs():
    steps = 40
    x, y, d, contact = episode(1, steps)
    d = np.clip(d, 0.1, 1.2)
    stamps = 10**9 + STEP * np.arange(steps)
    updates, _ = run(stamps, x, y, d, contact)
    delays = {"speed": 1, "acceleration": 2, "jerk": 7}
    for name, delay in delays.items():
        first = 14 if name == "jerk" else delay
        for t, update in enumerate(updates):
            at = getattr(update, f"{name}_stamp")
            assert at == (-1 if t < first else stamps[t - delay])
            assert math.isnan(getattr(update, f"{name}_ratio")) == (t < first)
    t = 20
    assert updates[t + 1].speed_ratio == pytest.approx(math.hypot(x[t + 1] - x[t], y[t + 1] - y[t]) / 0.05 / d[t])


def test_provisional_means_are_those_of_the_samples_so_far():
    """Speed and acceleration need nothing later: their means are final for the frames seen."""
    stamps = 10**9 + STEP * np.arange(50)
    columns = episode(2, 50)
    updates, _ = run(stamps, *columns)
    for t in (0, 1, 2, 13, 14, 30, 49):
        so_far = episode_motion(stamps[: t + 1], *(c[: t + 1] for c in columns))
        got = updates[t]
        for mine, theirs in (("d_min", "d_min"), ("mu_v", "mu_v"), ("m_v", "M_v"), ("mu_a", "mu_a"), ("m_a", "M_a")):
            assert getattr(got, mine) == pytest.approx(getattr(so_far, theirs), rel=1e-9, nan_ok=True)


def test_outside_the_boundary_the_ratio_is_unknown_but_its_frame_is_named():
    online = OnlineMotion()
    online.update(STEP, 0, 0, 2.0)
    update = online.update(2 * STEP, 0.1, 0, 2.0, obstacle="vase")
    assert math.isnan(update.speed_ratio) and update.speed_stamp == STEP
    assert update.obstacle == "vase" and update.distance == 2.0 and update.d_min == 2.0


def test_contact_keeps_the_clearance_at_0():
    online = OnlineMotion()
    assert online.update(1, 0, 0, 0.2, True).d_min == 0.0
    assert online.update(STEP + 1, 0, 0, 0.3, False).d_min == 0.0
    assert online.close().d_min == 0.0


@pytest.mark.parametrize("stamp", [STEP, STEP - 1])
def test_a_stamp_that_does_not_increase_is_refused_and_changes_nothing(stamp):
    twin, online = OnlineMotion(), OnlineMotion()
    for monitor in (twin, online):
        monitor.update(STEP, 0, 0, 1.0)
    with pytest.raises(ValueError, match="not after"):
        online.update(stamp, 9, 9, 0.1, True)
    assert online.update(2 * STEP, 0.1, 0, 1.0) == twin.update(2 * STEP, 0.1, 0, 1.0) or online.close() == twin.close()


def test_a_day_of_silence_costs_nothing():
    online = OnlineMotion()
    online.update(STEP, 0, 0, 1.0)
    update = online.update(STEP + 86_400 * 10**9, 50.0, 0, 1.0)
    assert math.isnan(update.mu_v)
    assert online.update(2 * STEP + 86_400 * 10**9, 50.05, 0, 1.0).mu_v == pytest.approx(1.0)
