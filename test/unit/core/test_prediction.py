"""Time to violation from a trend."""

import numpy as np
import pytest

from osma_monitor.core.prediction import TrendPredictor

S = 1_000_000_000


def run(rho, dt=0.05, **options):
    p = TrendPredictor(1, **options)
    return [p.update(S + round(k * dt * S), np.array([r])) for k, r in enumerate(rho)]


def test_a_straight_fall_is_foreseen_exactly():
    out = run([1.0 - 0.1 * k for k in range(10)])
    last = out[-1]  # 0.1 left, falling 2 per second
    assert last.time_to_violation[0] == pytest.approx(0.05)
    assert last.deviation[0] == pytest.approx(0.0, abs=1e-9)
    assert last.warn[0]
    assert np.isnan(out[2].time_to_violation[0]), "too few samples"


def test_a_rise_and_a_plateau_warn_of_nothing():
    assert np.isnan(run(np.linspace(0.1, 1, 10))[-1].time_to_violation[0])
    assert not run(np.ones(10))[-1].warn[0]


def test_noise_makes_it_uncertain():
    rng = np.random.default_rng(0)
    steady = run(1.0 - 0.05 * np.arange(10))[-1]
    noisy = run(1.0 - 0.05 * np.arange(10) + rng.normal(0, 0.05, 10))[-1]
    assert noisy.deviation[0] > steady.deviation[0] + 0.01


def test_violated_is_zero_and_unknown_is_nan():
    assert run([0.5, 0.2, -0.1])[-1].time_to_violation[0] == 0
    assert np.isnan(run([0.5, 0.4, 0.3, np.nan, 0.2, 0.1])[-1].time_to_violation[0])
    assert np.isnan(run([np.inf] * 8)[-1].time_to_violation[0])


def test_only_the_window_counts_on_irregular_stamps():
    p = TrendPredictor(1, window=0.5)
    for t, r in [(0.0, 0.0), (0.1, 5.0), (2.0, 1.0), (2.1, 0.9), (2.25, 0.75), (2.3, 0.7), (2.45, 0.55)]:
        out = p.update(S + round(t * S), np.array([r]))
    assert out.time_to_violation[0] == pytest.approx(0.55)
    assert out.warn[0]


def test_a_far_violation_does_not_warn():
    assert not run([10.0 - 0.01 * k for k in range(10)], horizon=1.0)[-1].warn[0]


def test_what_never_changes_does_not_fall():
    """A mean that rounds makes no trend of a constant, however long the window has moved."""
    out = run([0.1] * 200, dt=0.01)
    assert all(np.isnan(p.time_to_violation[0]) and not p.warn[0] for p in out)


def test_an_unknown_sample_is_forgotten_with_its_window():
    rho = [1.0 - 0.02 * k for k in range(40)]
    rho[10] = np.nan
    out = run(rho, dt=0.05)
    assert all(np.isnan(p.time_to_violation[0]) for p in out[10:20])
    assert out[25].time_to_violation[0] == pytest.approx(0.5 / 0.4, rel=1e-6)


def test_the_fit_is_that_of_a_library():
    rng = np.random.default_rng(3)
    y = 1.0 - 0.01 * np.arange(200) + rng.normal(0, 0.01, 200)
    out = run(y, dt=0.013)
    for k in (40, 111, 150):
        n = min(k + 1, 32, int(0.5 / 0.013) + 1)
        t, window = -0.013 * np.arange(n)[::-1], y[k - n + 1 : k + 1]
        slope, level = np.polyfit(t, window, 1)
        expected = -level / slope if level > 0 > slope and y[k] >= 0 else 0.0 if y[k] < 0 else np.nan
        assert out[k].time_to_violation[0] == pytest.approx(expected, rel=1e-6, nan_ok=True)
