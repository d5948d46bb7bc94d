"""Bootstrap over cells."""

import math

import numpy as np
import pytest
from scipy import stats

from osma_monitor.core.metrics import resampling
from osma_monitor.core.metrics.seeds import over_seeds

NAN = math.nan


def test_every_draw_has_as_many_units_as_there_are():
    counts = resampling.draw_counts(7, 500, 3)
    assert counts.shape == (500, 7) and (counts.sum(axis=1) == 7).all()
    assert counts.mean() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="read-only"):
        counts[0, 0] = 1


@pytest.mark.parametrize("clusters", [12, 300])
def test_a_cluster_is_drawn_whole(clusters):
    """Copies of the same value inside a cluster add no information."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=clusters)
    names = np.arange(clusters)
    one = resampling.cluster_mean_interval(values, names)
    many = resampling.cluster_mean_interval(np.repeat(values, 9), np.repeat(names, 9))
    assert one == pytest.approx(many)
    assert one[0] < values.mean() < one[1]
    half = stats.t.ppf(0.975, clusters - 1) * values.std(ddof=1) / math.sqrt(clusters)
    assert one[1] - one[0] == pytest.approx(2 * half, rel=0.1)


def test_clusters_of_unequal_size_are_weighted_by_size():
    low, high = resampling.cluster_mean_interval([0.0] * 9 + [1.0], ["a"] * 9 + ["b"])
    assert (low, high) == (0.0, 1.0)
    assert resampling.cluster_mean_interval([1.0, 1.0, 3.0, NAN], ["a", "a", "b", "c"])[1] == pytest.approx(3.0)


def test_one_cluster_and_none_have_no_interval():
    assert all(map(math.isnan, resampling.cluster_mean_interval([1.0, 2.0], ["a", "a"])))
    assert all(map(math.isnan, resampling.cluster_mean_interval([], [])))
    assert all(map(math.isnan, resampling.cluster_mean_interval([NAN, 1.0], ["a", "b"])))


def test_interval_of_partly_undefined_replicates():
    assert resampling.percentile_interval([NAN, 1.0, 1.0]) == (1.0, 1.0)
    assert all(map(math.isnan, resampling.percentile_interval([NAN, NAN, 1.0])))
    assert all(map(math.isnan, resampling.percentile_interval([])))


@pytest.mark.parametrize("n", [3, 5, 35, 400])
def test_expanded_tails_give_the_t_interval_of_normal_replicates(n):
    """A bootstrap of a mean has the standard deviation sqrt((n - 1) / n) s / sqrt(n)."""
    tail = resampling.expanded_tail(n)
    spread = math.sqrt((n - 1) / n)
    assert -stats.norm.ppf(tail) * spread == pytest.approx(stats.t.ppf(0.975, n - 1))
    assert resampling.expanded_tail(n, 0.8) > tail


def test_an_expanded_interval_holds_the_plain_one_and_stays_inside_the_replicates():
    replicates = np.random.default_rng(0).exponential(size=20_000)
    for units, low, high in ((2, 0.0, 1.0), (5, 0.001, 0.999), (35, 0.02, 0.98)):
        got = resampling.percentile_interval(replicates, units=units)
        plain = resampling.percentile_interval(replicates)
        assert replicates.min() <= got[0] <= np.quantile(replicates, low) < plain[0]
        assert plain[1] < np.quantile(replicates, high) <= got[1] <= replicates.max()
    assert resampling.percentile_interval(replicates, units=10**6) == pytest.approx(
        resampling.percentile_interval(replicates), abs=1e-3
    )


def test_over_seeds_leaves_out_what_is_undefined():
    s = over_seeds([1.0, NAN, 3.0])
    assert (s.mean, s.std, s.n) == (2.0, 1.0, 2)
    assert math.isnan(over_seeds([NAN]).mean) and over_seeds([]).n == 0
