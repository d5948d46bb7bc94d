"""Semantic Sensitivity Index (OSMA-Bench 3.2.2, C.6)."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from osma_monitor.core.metrics import ssi
from osma_monitor.core.metrics.resampling import draw_counts, expanded_tail
from osma_monitor.core.motion import FEATURES

NAN = math.nan


def table(rows, **columns):
    """Rows of (cell, tier, d_min), and whole columns."""
    cell, tier, d_min = zip(*rows, strict=True)
    return {"cell": list(cell), "tier": list(tier), "d_min": list(d_min), **columns}


def cell_of(low, moderate, high, name="c"):
    return [(name, "low", low), (name, "moderate", moderate), (name, "high", high)]


def random_table(seed, cells=6, obstacles=3, features=FEATURES, holes=0.0):
    rng = np.random.default_rng(seed)
    n = cells * 3 * obstacles
    out = {
        "cell": np.repeat([f"cell {i}" for i in range(cells)], 3 * obstacles),
        "tier": np.tile(np.repeat(ssi.TIERS, obstacles), cells),
    }
    for name in features:
        values = rng.uniform(0, 2, n)
        values[rng.random(n) < holes] = NAN
        out[name] = values
    return out


def reference(data):
    """Eq. 1 written out with scipy."""
    mean_tau = []
    for name, sign in FEATURES.items():
        taus = []
        for cell in sorted(set(data["cell"])):
            values = {tier: [] for tier in ssi.TIERS}
            for c, tier, value in zip(data["cell"], data["tier"], data[name], strict=True):
                if c == cell and not math.isnan(value):
                    values[tier].append(sign * value)
            if all(values.values()):
                taus.append(kendalltau([0, 1, 2], [np.mean(v) for v in values.values()]).statistic)
        mean_tau.append(np.mean(taus) if taus else NAN)
    return float(np.mean(mean_tau))


@pytest.mark.parametrize("means", list(itertools.product([0.0, 1.0, 2.0], repeat=3)))
def test_tau_of_three_tiers_equals_scipy(means):
    got, want = float(ssi.tier_tau(np.array(means))), kendalltau([0, 1, 2], means).statistic
    assert got == pytest.approx(want, abs=1e-15, nan_ok=True)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 4), st.sampled_from([0.0, 0.3]))
def test_equals_equation_1(seed, cells, obstacles, holes):
    data = random_table(seed, cells, obstacles, holes=holes)
    assert ssi.semantic_sensitivity_index(data).ssi == pytest.approx(reference(data), abs=1e-12, nan_ok=True)


def test_a_policy_that_follows_the_order_scores_1_on_every_feature():
    signs = np.array([{"low": 0, "moderate": 1, "high": 2}[t] for t in ssi.TIERS])
    data = {"cell": ["a"] * 3, "tier": list(ssi.TIERS), **{f: s * signs for f, s in FEATURES.items()}}
    result = ssi.semantic_sensitivity_index(data)
    assert result.ssi == 1.0
    assert result.tau == dict.fromkeys(FEATURES, 1.0) and result.cells == dict.fromkeys(FEATURES, 1)
    assert all(m == (2.0 if pair == "H-L" else 1.0) for (_, pair), m in result.margins.items())


def test_tier_mean_averages_the_obstacles_before_the_order():
    rows = [*cell_of(1.0, 2.0, 3.0), ("c", "low", 9.0)]  # low mean 5
    result = ssi.semantic_sensitivity_index(table(rows))
    assert result.tau["d_min"] == pytest.approx(-1 / 3)
    assert result.margins["d_min", "H-L"] == pytest.approx(-2.0)


def test_two_tiers_only_do_not_make_a_cell():
    rows = [*cell_of(1.0, 2.0, 3.0, "a"), ("b", "low", 9.0), ("b", "high", 1.0)]
    result = ssi.semantic_sensitivity_index(table(rows))
    assert result.ssi == 1.0 and result.cells["d_min"] == 1 and result.n == 5


def test_a_tier_whose_values_are_all_undefined_does_not_make_a_cell():
    rows = [*cell_of(1.0, 2.0, 3.0, "a"), *cell_of(3.0, NAN, 1.0, "b"), *cell_of(3.0, math.inf, 1.0, "c")]
    assert ssi.semantic_sensitivity_index(table(rows)).cells["d_min"] == 1


def test_an_undefined_value_is_left_out_of_its_tier_mean():
    rows = [*cell_of(1.0, 2.0, 3.0), ("c", "low", NAN)]
    assert ssi.semantic_sensitivity_index(table(rows)).tau["d_min"] == 1.0


def test_all_tied_is_undefined_and_part_tied_is_corrected():
    assert math.isnan(ssi.semantic_sensitivity_index(table(cell_of(1.0, 1.0, 1.0))).ssi)
    assert ssi.semantic_sensitivity_index(table(cell_of(1.0, 0.0, 0.0))).ssi == pytest.approx(-2 / math.sqrt(6))


def test_a_tie_is_relative_1e12():
    near, far = 1 + 5e-13, 1 + 5e-12
    assert ssi.semantic_sensitivity_index(table(cell_of(1.0, near, 2.0))).ssi == pytest.approx(2 / math.sqrt(6))
    assert ssi.semantic_sensitivity_index(table(cell_of(1.0, far, 2.0))).ssi == 1.0
    assert math.isnan(ssi.semantic_sensitivity_index(table(cell_of(1.0, 1 + 8e-13, 1 + 16e-13))).ssi)


def test_ties_that_rounding_breaks_are_still_ties():
    """0.1 + 0.2 and 0.3: a plain sum would order these tiers by rounding error."""
    rows = [("c", "low", 0.1), ("c", "low", 0.2), ("c", "moderate", 0.3), ("c", "moderate", 0.0), ("c", "high", 0.5)]
    assert ssi.semantic_sensitivity_index(table(rows)).ssi == pytest.approx(2 / math.sqrt(6))


def test_nan_when_a_feature_has_no_cell_although_others_have():
    result = ssi.semantic_sensitivity_index(table(cell_of(1.0, 2.0, 3.0), mu_v=[NAN, NAN, NAN]))
    assert math.isnan(result.ssi) and result.tau["d_min"] == 1.0 and result.cells["mu_v"] == 0
    assert math.isnan(result.margins["mu_v", "H-M"])


def test_margins_use_the_same_cells_as_tau():
    rows = [*cell_of(1.0, 2.0, 3.0, "a"), ("b", "low", 0.0), ("b", "high", 100.0), *cell_of(1.0, 1.0, 1.0, "c")]
    assert ssi.semantic_sensitivity_index(table(rows)).margins["d_min", "H-L"] == 2.0


def test_an_empty_table_is_undefined():
    result = ssi.semantic_sensitivity_index({"cell": [], "tier": [], "d_min": []})
    assert math.isnan(result.ssi) and result.n == 0 and result.cells == {"d_min": 0}


def test_a_data_frame_and_other_columns_do():
    frame = pd.DataFrame(table(cell_of(1.0, 2.0, 3.0), anything=["x", None, 3]))
    assert ssi.semantic_sensitivity_index(frame).ssi == 1.0


def test_integer_cells_and_tiers_in_any_case_do():
    assert (
        ssi.semantic_sensitivity_index({"cell": [1, 1, 1], "tier": ["Low", "HIGH", "moderate"], "d_min": [1, 3, 2]}).ssi
        == 1
    )


def test_own_features_with_own_signs():
    data = {"cell": ["c"] * 3, "tier": list(ssi.TIERS), "clearance": [1, 2, 3], "speed": [1, 2, 3]}
    result = ssi.semantic_sensitivity_index(data, {"clearance": 1, "speed": -1})
    assert result.tau == {"clearance": 1.0, "speed": -1.0} and result.ssi == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tier": ["low", "medium", "high"]}, "row 1 has the tier 'medium'; known are low, moderate, high"),
        ({"cell": ["c", None, "c"]}, "row 1 has no cell"),
        ({"cell": ["c", "c", NAN]}, "row 2 has no cell"),
        ({"d_min": ["1", "2", "three"]}, "three"),
        ({"tier": ["low", "high"]}, "unequal lengths"),
    ],
)
def test_bad_tables_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ssi.semantic_sensitivity_index({**table(cell_of(1.0, 2.0, 3.0)), **change})


@pytest.mark.parametrize("missing", ["cell", "tier", "d_min"])
def test_a_missing_column_is_named(missing):
    data = table(cell_of(1.0, 2.0, 3.0))
    del data[missing]
    with pytest.raises(ValueError, match=missing):
        ssi.semantic_sensitivity_index(data)


# --- properties --------------------------------------------------------------------------------------------------

tables = st.builds(random_table, st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), holes=st.just(0.1))
swap = {"low": "high", "high": "low", "moderate": "moderate"}


@given(tables)
def test_swapping_the_tiers_negates(data):
    swapped = {**data, "tier": [swap[t] for t in data["tier"]]}
    got, want = ssi.semantic_sensitivity_index(swapped), ssi.semantic_sensitivity_index(data)
    assert got.ssi == pytest.approx(-want.ssi, abs=1e-15, nan_ok=True)
    for name in FEATURES:
        assert got.tau[name] == pytest.approx(-want.tau[name], nan_ok=True) and got.cells[name] == want.cells[name]
        assert got.margins[name, "H-L"] == pytest.approx(-want.margins[name, "H-L"], nan_ok=True)


@given(tables, st.sampled_from(list(FEATURES)), st.integers(-40, 40))
def test_a_power_of_two_leaves_tau_alone(data, name, exponent):
    scaled = {**data, name: data[name] * 2.0**exponent}
    got, want = ssi.semantic_sensitivity_index(scaled), ssi.semantic_sensitivity_index(data)
    np.testing.assert_array_equal(got.cell_tau, want.cell_tau)
    assert got.margins[name, "H-M"] == pytest.approx(want.margins[name, "H-M"] * 2.0**exponent, nan_ok=True)


@given(tables, st.integers(0, 2**32 - 1))
def test_order_within_a_tier_and_of_rows_changes_nothing(data, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(data)
    within = frame.groupby(["cell", "tier"], group_keys=False)[list(frame)].apply(
        lambda part: part.sample(frac=1, random_state=int(rng.integers(2**31)))
    )
    anyhow = frame.sample(frac=1, random_state=seed % 2**31)
    want = ssi.semantic_sensitivity_index(frame)
    for shuffled in (within, anyhow):
        got = ssi.semantic_sensitivity_index(shuffled)
        assert got.ssi == want.ssi or math.isnan(want.ssi)
        np.testing.assert_array_equal(got.cell_means, want.cell_means)
        np.testing.assert_array_equal(got.cell_tau, want.cell_tau)


@given(tables)
def test_bounds(data):
    result = ssi.semantic_sensitivity_index(data)
    assert math.isnan(result.ssi) or -1 <= result.ssi <= 1
    assert all(math.isnan(t) or -1 <= t <= 1 for t in result.tau.values())


def test_six_orderings_average_to_0():
    rows = [row for i, p in enumerate(itertools.permutations([1.0, 2.0, 3.0])) for row in cell_of(*p, name=f"c{i}")]
    assert ssi.semantic_sensitivity_index(table(rows)).ssi == pytest.approx(0.0, abs=1e-15)


# --- interval over cells -----------------------------------------------------------------------------------------


def test_interval_equals_a_loop_over_resampled_cells():
    """A cell is drawn with all its features at once."""
    data = random_table(4, cells=12, holes=0.2, obstacles=2)
    result = ssi.semantic_sensitivity_index(data)
    replicates = []
    for counts in draw_counts(12, 400, 7):
        drawn = np.repeat(result.cell_tau, counts.astype(int), axis=0)
        replicates.append(np.mean([np.mean(c[~np.isnan(c)]) for c in drawn.T]))
    low, high = ssi.bootstrap_interval(result, resamples=400, seed=7)
    tail = expanded_tail(12)
    assert 0.01 < tail < 0.025  # further out than a plain percentile interval
    assert (low, high) == pytest.approx(tuple(np.quantile(replicates, [tail, 1 - tail])))
    assert low < result.ssi < high


def sampled(rng, cells, order):
    """Tier means of a policy that follows the tiers by ``order``; half of a feature's variance is the task's own."""
    noise = rng.normal(size=(cells, 1, 3)) + rng.normal(size=(cells, len(FEATURES), 3))
    means = noise + order * np.array([-1.0, 0.0, 1.0])
    columns = {f: (sign * means[:, i]).ravel() for i, (f, sign) in enumerate(FEATURES.items())}
    return {"cell": np.repeat(np.arange(cells), 3), "tier": np.tile(ssi.TIERS, cells), **columns}


@pytest.mark.parametrize("order", [0.0, 0.5])
@pytest.mark.parametrize(("cells", "least"), [(5, 0.87), (10, 0.93), (20, 0.93), (35, 0.93)])
def test_the_interval_holds_the_true_value_as_often_as_it_says(cells, least, order):
    """Coverage over 400 drawn benchmarks, without and with an effect; a plain percentile interval is too narrow."""
    truth = ssi.semantic_sensitivity_index(sampled(np.random.default_rng(99), 20_000, order)).ssi
    rng = np.random.default_rng(cells)
    held = plain = 0
    for _ in range(400):
        result = ssi.semantic_sensitivity_index(sampled(rng, cells, order))
        low, high = ssi.bootstrap_interval(result, resamples=2_000)
        held += low <= truth <= high
        replicates = draw_counts(cells, 2_000, 0) @ result.cell_tau.mean(axis=1) / cells
        low, high = np.quantile(replicates, [0.025, 0.975])
        plain += low <= truth <= high
    assert least <= held / 400 <= 0.98
    assert plain < held and (cells > 10 or plain / 400 < 0.93)


def test_interval_of_seeds_draws_the_same_cells_in_all_of_them():
    one, two = (ssi.semantic_sensitivity_index(random_table(s, cells=10)) for s in (1, 2))
    mirrored = ssi.semantic_sensitivity_index(
        {**random_table(1, cells=10), "tier": [swap[t] for t in random_table(1, cells=10)["tier"]]}
    )
    assert ssi.bootstrap_interval([one, one]) == pytest.approx(ssi.bootstrap_interval(one))
    assert ssi.bootstrap_interval([one, mirrored]) == pytest.approx((0.0, 0.0), abs=1e-12)
    low, high = ssi.bootstrap_interval([one, two])
    assert low <= (one.ssi + two.ssi) / 2 <= high


@given(tables)
def test_swapping_the_tiers_mirrors_the_interval(data):
    swapped = ssi.semantic_sensitivity_index({**data, "tier": [swap[t] for t in data["tier"]]})
    low, high = ssi.bootstrap_interval(ssi.semantic_sensitivity_index(data), resamples=500)
    assert ssi.bootstrap_interval(swapped, resamples=500) == pytest.approx((-high, -low), abs=1e-12, nan_ok=True)
    assert math.isnan(low) or -1.0 <= low <= high <= 1.0


def test_interval_of_every_feature():
    data = random_table(5, cells=14, holes=0.2)
    result = ssi.semantic_sensitivity_index(data)
    intervals = ssi.tau_intervals(result)
    assert list(intervals) == list(FEATURES)
    for name, (low, high) in intervals.items():
        assert low < result.tau[name] < high
        alone = ssi.semantic_sensitivity_index(data, {name: FEATURES[name]})
        assert (low, high) == pytest.approx(ssi.bootstrap_interval(alone))
    assert ssi.tau_intervals([]) == {}
    undefined = ssi.semantic_sensitivity_index(table(cell_of(1.0, 1.0, 1.0)))
    assert all(map(math.isnan, ssi.tau_intervals(undefined)["d_min"]))


def test_interval_needs_two_cells_and_leaves_out_undefined_seeds():
    single = ssi.semantic_sensitivity_index(table(cell_of(1.0, 2.0, 3.0)))
    undefined = ssi.semantic_sensitivity_index(table(cell_of(1.0, 1.0, 1.0)))
    many = ssi.semantic_sensitivity_index(random_table(0))
    assert all(map(math.isnan, ssi.bootstrap_interval(single)))
    assert all(map(math.isnan, ssi.bootstrap_interval([undefined])))
    assert all(map(math.isnan, ssi.bootstrap_interval([])))
    assert ssi.bootstrap_interval([many, undefined]) == ssi.bootstrap_interval(many)


def test_interval_of_unequal_sets_of_cells():
    a = ssi.semantic_sensitivity_index(random_table(0, cells=8))
    b = ssi.semantic_sensitivity_index(random_table(0, cells=5))
    low, high = ssi.bootstrap_interval([a, b])
    assert low < (a.ssi + b.ssi) / 2 < high


def test_interval_of_a_random_policy_holds_0():
    assert np.prod(ssi.bootstrap_interval(ssi.semantic_sensitivity_index(random_table(3, cells=35, obstacles=6)))) < 0


# --- subsets of rows ---------------------------------------------------------------------------------------------


def test_breakdown_scores_every_value_by_itself():
    rows = [*cell_of(1.0, 2.0, 3.0, "a"), *cell_of(3.0, 2.0, 1.0, "b")]
    got = ssi.breakdown(table(rows, route=["A"] * 3 + ["B"] * 3), "route")
    assert {k: r.ssi for k, r in got.items()} == {"A": 1.0, "B": -1.0}
    with pytest.raises(ValueError, match="no column 'layout'"):
        ssi.breakdown(table(rows), "layout")
