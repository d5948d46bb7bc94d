"""Intervals, tests and rank correlations against SciPy, brute force and edge cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from osma_monitor.core.metrics.statistics import (
    bootstrap_interval,
    bootstrap_means,
    grouped_kendall,
    kendall_tau_b,
    mcnemar_exact,
    paired_bootstrap,
    permutation_p,
    spearman_rho,
    wilson_interval,
)

# ---- Wilson


@given(st.integers(0, 300), st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(k: int, n: int, confidence: float) -> None:
    assume(k <= n)
    expected = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    low, high = wilson_interval(k, n, confidence)
    assert [low, high] == pytest.approx([expected.low, expected.high], abs=1e-12)
    assert 0.0 <= low <= k / n <= high <= 1.0


def test_wilson_at_the_ends() -> None:
    assert wilson_interval(0, 20)[0] == 0.0
    assert wilson_interval(20, 20)[1] == 1.0
    assert all(math.isnan(v) for v in wilson_interval(0, 0))
    assert wilson_interval(np.int64(3), np.int64(10)) == wilson_interval(3, 10)


@pytest.mark.parametrize(
    ("k", "n", "confidence"),
    [(3, 2, 0.95), (-1, 2, 0.95), (1.5, 2, 0.95), (math.inf, 2, 0.95), (math.nan, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)],
)
def test_wilson_refuses(k: float, n: int, confidence: float) -> None:
    with pytest.raises(ValueError):
        wilson_interval(k, n, confidence)  # type: ignore[arg-type]


# ---- bootstrap


def test_bootstrap_has_the_distribution_of_drawing_with_replacement() -> None:
    rng = np.random.default_rng(5)
    sample = np.where(rng.random(60) < 0.7, 0.0, rng.random(60))
    means = bootstrap_means(sample, 40_000, seed=1)
    drawn = rng.choice(sample, size=(40_000, 60)).mean(axis=1)
    assert means.mean() == pytest.approx(sample.mean(), abs=0.002)
    for q in (0.025, 0.25, 0.5, 0.75, 0.975):
        assert np.quantile(means, q) == pytest.approx(np.quantile(drawn, q), abs=0.004)
    assert stats.ks_2samp(means, drawn).pvalue > 0.001


def test_bootstrap_of_two_values_is_a_binomial() -> None:
    means = bootstrap_means([0.0, 0.0, 1.0], 50_000)
    values, counts = np.unique(means.round(12), return_counts=True)
    assert values == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert counts / 50_000 == pytest.approx(stats.binom.pmf(range(4), 3, 1 / 3), abs=0.01)


def test_bootstrap_of_few_values_has_the_distribution_of_drawing_with_replacement() -> None:
    rng = np.random.default_rng(6)
    sample = rng.choice([-1.0, -0.25, 0.0, 1.0], 40, p=[0.2, 0.1, 0.4, 0.3])
    means = bootstrap_means(sample, 40_000, seed=1)
    drawn = rng.choice(sample, size=(40_000, 40)).mean(axis=1)
    assert means.mean() == pytest.approx(sample.mean(), abs=0.003)
    assert means.std() == pytest.approx(drawn.std(), rel=0.02)
    for q in (0.025, 0.25, 0.5, 0.75, 0.975):
        assert np.quantile(means, q) == pytest.approx(np.quantile(drawn, q), abs=0.026)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(0, 5))
def test_bootstrap_is_seeded_and_inside_the_range(values: list[float], seed: int) -> None:
    low, high = bootstrap_interval(values, 200, seed)
    assert (low, high) == bootstrap_interval(values, 200, seed)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_bootstrap_edges() -> None:
    assert all(math.isnan(v) for v in bootstrap_interval([]))
    assert bootstrap_interval([0.3]) == (0.3, 0.3)
    assert bootstrap_interval([0.25] * 9) == (0.25, 0.25)
    with pytest.raises(ValueError, match=r"values\[1\] is nan"):
        bootstrap_interval([0.0, math.nan])
    with pytest.raises(ValueError, match="inf"):
        bootstrap_interval([math.inf])
    with pytest.raises(ValueError, match="one dimension"):
        bootstrap_interval(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval([1.0], resamples=0)
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_interval([1.0, 2.0], confidence=95)


def test_blocks_do_not_change_the_mean() -> None:
    # more draws than one block holds
    values = np.arange(3000.0)
    assert bootstrap_means(values, 3000).mean() == pytest.approx(values.mean(), rel=0.001)


# ---- paired


def test_paired_bootstrap() -> None:
    a, b = np.array([0.0, 1.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.0, 1.0])
    found = paired_bootstrap(a, b)
    assert (found.n, found.difference) == (4, 0.375)
    assert found.interval == bootstrap_interval(b - a)
    assert paired_bootstrap([], []).n == 0
    with pytest.raises(ValueError, match="a has 1 values and b has 2"):
        paired_bootstrap([1.0], [1.0, 2.0])


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_equals_the_binomial_test(a: int, b: int) -> None:
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    assert mcnemar_exact(a, b).p == pytest.approx(expected)
    assert mcnemar_exact(a, b).p == mcnemar_exact(b, a).p


# ---- rank correlation

VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12)


@given(VALUES)
def test_kendall_and_spearman_equal_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = zip(*pairs, strict=True)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(kendall_tau_b(x, y)) and math.isnan(spearman_rho(x, y))
        return
    assert kendall_tau_b(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
    assert spearman_rho(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_rank_correlation_edges() -> None:
    for f in (kendall_tau_b, spearman_rho):
        assert math.isnan(f([], [])) and math.isnan(f([1], [1])) and math.isnan(f([1, math.nan], [1, 2]))
        assert f([1, 2, math.inf], [-math.inf, 0, 3]) == pytest.approx(1.0)
        with pytest.raises(ValueError, match="x has 1 values and y has 2"):
            f([1], [1, 2])
    assert kendall_tau_b([0.1, 0.2, 0.3], [1, 2, 3]) == 1.0


def test_many_values() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 50, 4000), rng.integers(0, 50, 4000)
    assert kendall_tau_b(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)


@pytest.mark.parametrize("statistic", ["kendall", "spearman"])
def test_permutation_p_approaches_the_exact_share(statistic: str) -> None:
    x, y = [1, 2, 3, 4, 5, 5], [2, 1, 3, 5, 4, 6]
    f = kendall_tau_b if statistic == "kendall" else spearman_rho
    observed = abs(f(x, y))
    extreme = [abs(f(x, p)) >= observed - 1e-12 for p in itertools.permutations(y)]
    exact = sum(extreme) / len(extreme)
    assert permutation_p(x, y, statistic, 20_000) == pytest.approx(exact, abs=0.01)  # type: ignore[arg-type]


def test_permutation_p_inside_groups() -> None:
    x, y, groups = [1, 2, 3, 11, 12, 13], [2, 1, 3, 12, 11, 13], list("aaabbb")
    observed = grouped_kendall(x, y, groups).within
    extreme = []
    for first in itertools.permutations(y[:3]):
        for second in itertools.permutations(y[3:]):
            extreme.append(abs(grouped_kendall(x, [*first, *second], groups).within) >= abs(observed) - 1e-12)
    exact = sum(extreme) / len(extreme)
    assert permutation_p(x, y, "kendall", 20_000, groups=groups) == pytest.approx(exact, abs=0.01)
    assert permutation_p(x, y, "kendall", 500, seed=3) == permutation_p(x, y, "kendall", 500, seed=3)


def test_permutation_p_edges() -> None:
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        permutation_p([1, 2], [1, 2], resamples=0)
    for options in ({"statistic": "spearman", "groups": ["a", "b"]}, {}):
        with pytest.raises(ValueError, match="between groups needs groups and Kendall's"):
            permutation_p([1, 2], [1, 2], between=True, **options)  # type: ignore[arg-type]
    assert math.isnan(permutation_p([1, 2], [1, 2], groups=["a", "a"], between=True))
    assert math.isnan(permutation_p([1, 1], [1, 2]))
    assert math.isnan(permutation_p([], []))
    assert permutation_p([1, 2, 3], [1, 2, 3], resamples=10) <= 1.0
    with pytest.raises(ValueError, match="groups has 1 labels for 2 values"):
        permutation_p([1, 2], [1, 2], groups=["a"])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from("abc")), min_size=2, max_size=12))
def test_grouped_kendall_by_pairs(rows: list[tuple[int, int, str]]) -> None:
    x, y, g = zip(*rows, strict=True)
    found = grouped_kendall(x, y, g)

    def tau(pairs: list[tuple[int, int]]) -> float:
        agree = sum(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs)
        untied = math.sqrt(sum(x[i] != x[j] for i, j in pairs) * sum(y[i] != y[j] for i, j in pairs))
        return agree / untied if untied else math.nan

    pairs = list(itertools.combinations(range(len(rows)), 2))
    within = [p for p in pairs if g[p[0]] == g[p[1]]]
    between = [p for p in pairs if g[p[0]] != g[p[1]]]
    assert (found.n_within, found.n_between) == (len(within), len(between))
    assert [found.pooled, found.within, found.between] == pytest.approx(
        [tau(pairs), tau(within), tau(between)], nan_ok=True
    )
