"""The seven motion features against the paper's definitions (OSMA-Bench 3.2.2, C.4, Table 8)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import savgol_filter

from osma_monitor.core.motion import FEATURES, jerk, minimum_clearance, motion_features

NAN = math.nan
CLEAR = 1.0


def features(xy, distance=CLEAR, contact=False, **options):
    xy = np.asarray(xy, dtype=float)
    d = np.broadcast_to(np.asarray(distance, dtype=float), len(xy))
    return motion_features(xy, d, np.broadcast_to(contact, len(xy)), **options)


def line(steps, speed=0.5):
    return np.column_stack((0.05 * speed * np.arange(steps), np.zeros(steps)))


def random_walk(seed, steps=60):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.02, (steps, 2)).cumsum(axis=0), rng.uniform(-0.05, 2.0, steps)


def by_the_paper(xy, d, contact, dt=0.05, radius=1.25, floor=0.05):
    """The definitions written out one step at a time."""
    steps = len(xy)
    quantities = {
        "v": [math.dist(xy[t + 1], xy[t]) / dt for t in range(steps - 1)],
        "a": [np.hypot(*(xy[t + 2] - 2 * xy[t + 1] + xy[t])) / dt**2 for t in range(steps - 2)],
        "j": [],
    }
    if steps >= 15:
        third = savgol_filter(xy, 15, 3, deriv=3, delta=dt, axis=0, mode="interp")
        quantities["j"] = [np.hypot(*row) for row in third]
    out = {"d_min": 0.0 if any(contact) else min(d)}
    for name, values in quantities.items():
        ratios = [value / max(d[t], floor) for t, value in enumerate(values) if d[t] <= radius]
        out[f"mu_{name}"] = sum(ratios) / len(ratios) if ratios else NAN
        out[f"M_{name}"] = max(ratios) if ratios else NAN
    return out


@pytest.mark.parametrize("steps", [1, 2, 3, 14, 15, 16, 60])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_definitions_step_by_step(steps, seed):
    xy, d = random_walk(seed, steps)
    got = motion_features(xy, d, np.zeros(steps, bool))
    for name, value in by_the_paper(xy, d, [False]).items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-9, nan_ok=True), name


def test_constant_speed_on_a_line():
    got = features(line(40), distance=0.5)
    assert got.mu_v == pytest.approx(1.0) and got.M_v == pytest.approx(1.0)
    assert got.mu_a == pytest.approx(0.0, abs=1e-9) and got.mu_j == pytest.approx(0.0, abs=1e-6)


def test_speed_is_the_forward_difference_at_its_own_index():
    """Only step 1 is inside, and from 1 to 2 the robot moves 0.05 m: the backward difference would read 0."""
    got = features([[0, 0], [0, 0], [0.05, 0], [0.05, 0]], distance=[2, 0.5, 2, 2])
    assert got.mu_v == pytest.approx(1.0 / 0.5)


def test_acceleration_is_the_vector_second_difference():
    """A circle at constant speed: the change of speed is 0, the acceleration is not."""
    t = 0.05 * np.arange(30)
    got = features(np.column_stack((np.cos(t), np.sin(t))))
    assert got.mu_a == pytest.approx(2 * (1 - math.cos(0.05)) / 0.05**2, rel=1e-9)


def test_ratio_is_averaged_per_step_not_a_ratio_of_means():
    got = features([[0, 0], [0.05, 0], [0.15, 0]], distance=[0.5, 1.0, 1.0])
    assert got.mu_v == pytest.approx((1.0 / 0.5 + 2.0 / 1.0) / 2)


def test_divisor_has_a_floor_of_5_cm():
    assert features(line(3), distance=0.001).mu_v == pytest.approx(0.5 / 0.05)
    assert features(line(3), distance=-0.02).mu_v == pytest.approx(0.5 / 0.05)


def test_boundary_belongs_to_the_inside():
    assert features(line(3), distance=1.25).mu_v == pytest.approx(0.5 / 1.25)
    assert math.isnan(features(line(3), distance=np.nextafter(1.25, 2)).mu_v)


def test_no_step_inside_leaves_the_ratios_undefined_and_the_clearance_defined():
    got = features(line(40), distance=3.0)
    assert got.d_min == 3.0
    assert all(math.isnan(getattr(got, name)) for name in FEATURES if name != "d_min")


def test_only_the_last_step_inside_has_jerk_but_no_speed():
    got = features(line(20), distance=[2.0] * 19 + [1.0])
    assert math.isnan(got.mu_v) and math.isnan(got.mu_a) and not math.isnan(got.mu_j)


@pytest.mark.parametrize(("steps", "defined"), [(0, ""), (1, "d"), (2, "dv"), (3, "dva"), (14, "dva"), (15, "dvaj")])
def test_short_trajectories(steps, defined):
    got = features(line(steps))
    for name in FEATURES:
        assert math.isnan(getattr(got, name)) == (name.split("_")[1][0] not in defined.replace("d", "m")), name


def test_contact_at_step_0_makes_the_clearance_0():
    contact = np.zeros(10, bool)
    contact[0] = True
    assert features(line(10), distance=0.7, contact=contact).d_min == 0.0


def test_clearance_may_be_negative_without_contact_and_is_0_with_it():
    assert minimum_clearance([0.3, -0.01], [False, False]) == -0.01
    assert minimum_clearance([0.3, -0.01], [True, False]) == 0.0


def test_unknown_samples_are_left_out_and_never_0():
    xy, d = random_walk(5)
    d = np.clip(d, 0.1, 1.2)
    holes = xy.copy()
    holes[30] = NAN
    got, want = motion_features(holes, d, np.zeros(60)), by_the_paper(xy, d, [False])
    v = [math.dist(xy[t + 1], xy[t]) / 0.05 / d[t] for t in range(59) if t not in (29, 30)]
    assert got.mu_v == pytest.approx(np.mean(v), rel=1e-12)
    assert got.d_min == want["d_min"]
    assert 0 < got.mu_j < math.inf
    assert np.isnan(jerk(holes[:, 0], holes[:, 1])[23:38]).all()


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_unknown_distance_and_contact(bad):
    d = np.full(20, 0.5)
    d[4] = bad
    got = motion_features(line(20), d, np.full(20, NAN))
    assert got.d_min == 0.5 and got.mu_v == pytest.approx(1.0)
    assert math.isnan(motion_features(line(20), np.full(20, bad), np.full(20, NAN)).d_min)


def test_all_unknown():
    got = motion_features(np.full((20, 2), NAN), np.full(20, NAN), np.full(20, NAN))
    assert all(math.isnan(getattr(got, name)) for name in FEATURES)


def test_refuses_unequal_lengths_and_a_bad_period():
    with pytest.raises(ValueError, match="3 positions, 2 distances, 3 contact"):
        motion_features(line(3), [1, 1], [0, 0, 0])
    with pytest.raises(ValueError, match="dt"):
        motion_features(line(3), [1, 1, 1], [0, 0, 0], dt=0.0)


@pytest.mark.parametrize("shape", [(10, 3), (20,), (5, 2, 2)])
def test_refuses_positions_that_are_not_planar(shape):
    with pytest.raises(ValueError, match=r"shape \(T, 2\)"):
        motion_features(np.zeros(shape), np.ones(10), np.zeros(10))


@given(st.integers(15, 80), st.integers(0, 2**32 - 1))
def test_jerk_equals_scipy_everywhere(steps, seed):
    xy, _ = random_walk(seed, steps)
    third = savgol_filter(xy, 15, 3, deriv=3, delta=0.05, axis=0, mode="interp")
    np.testing.assert_allclose(jerk(xy[:, 0], xy[:, 1]), np.hypot(third[:, 0], third[:, 1]), rtol=1e-8, atol=1e-8)


@given(st.integers(3, 60), st.integers(0, 2**32 - 1))
def test_maximum_is_not_below_the_mean(steps, seed):
    xy, d = random_walk(seed, steps)
    got = motion_features(xy, d, np.zeros(steps, bool))
    for q in "vaj":
        mu, top = getattr(got, f"mu_{q}"), getattr(got, f"M_{q}")
        assert (math.isnan(mu) and math.isnan(top)) or top >= mu * (1 - 1e-12)
