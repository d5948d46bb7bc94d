"""Bootstrap over cells."""

import math

import numpy as np
import pytest

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
    half = 1.96 * values.std() / math.sqrt(clusters)
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


def test_over_seeds_leaves_out_what_is_undefined():
    s = over_seeds([1.0, NAN, 3.0])
    assert (s.mean, s.std, s.n) == (2.0, 1.0, 2)
    assert math.isnan(over_seeds([NAN]).mean) and over_seeds([]).n == 0
