"""Correlations of cells and agreement of rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import rankdata

from osma_monitor.core.metrics.rankings import RankingCell, agreement, correlate, ranking_cells
from osma_monitor.core.metrics.safety import by_group
from osma_monitor.core.metrics.statistics import grouped_kendall, kendall_tau_b, permutation_p, spearman_rho

from .safety_data import synthetic


def cells(**suites: list[float]) -> dict[tuple[object, ...], dict[str, float]]:
    """Suite -> Safety of policies p0, p1, ...; SR is the same for all metrics but reversed in none."""
    return {
        (suite, f"p{i}"): {"sr": value, "safety": value, "sbu": 1 - value, "vsi": 1 - value}
        for suite, values in suites.items()
        for i, value in enumerate(values)
    }


def test_ranking_of_each_suite_and_metric() -> None:
    default = cells(a=[0.9, 0.8, 0.7], b=[0.5, 0.4, 0.3])
    moved = cells(a=[0.8, 0.9, 0.7], b=[0.5, 0.4, 0.3])
    found = ranking_cells(default, {"tighter": moved})
    assert len(found) == 2 * 3
    for cell in found:
        assert cell.binding == (cell.suite == "a")
        assert cell.tau == pytest.approx(1 / 3 if cell.suite == "a" else 1.0)
        assert cell.top_unchanged == (cell.suite == "b")
    total = agreement(found)
    assert (total.cells, total.binding, total.top_unchanged, total.top_unchanged_binding) == (6, 3, 3, 0)
    assert total.tau == pytest.approx(2 / 3) and total.tau_binding == pytest.approx(1 / 3)


def test_a_unique_top_that_becomes_a_tie_has_changed() -> None:
    (cell,) = ranking_cells(cells(a=[0.9, 0.8]), {"v": cells(a=[0.9, 0.9])}, ["safety"])
    assert not cell.top_unchanged and cell.binding
    (cell,) = ranking_cells(cells(a=[0.9, 0.8]), {"v": cells(a=[0.95, 0.8])}, ["safety"])
    assert cell.top_unchanged and cell.binding


def test_all_policies_tied() -> None:
    tied = cells(a=[0.5, 0.5])
    (same,) = ranking_cells(tied, {"v": tied}, ["vsi"])
    assert same.tau == 1.0 and not same.binding and same.top_unchanged
    (split,) = ranking_cells(tied, {"v": cells(a=[0.5, 0.6])}, ["vsi"])
    assert math.isnan(split.tau) and split.binding
    assert agreement([same, split]).undefined == 1 and agreement([same, split]).tau == 1.0
    assert agreement([]).cells == 0 and math.isnan(agreement([]).tau)


def test_a_policy_alone_or_without_a_value_has_no_rank() -> None:
    assert ranking_cells(cells(a=[0.9]), {"v": cells(a=[0.8])}) == []
    lost = cells(a=[0.9, 0.8, 0.7])
    lost["a", "p0"] = dict.fromkeys(lost["a", "p0"], math.nan)
    (cell,) = ranking_cells(cells(a=[0.9, 0.8, 0.7]), {"v": lost}, ["safety"])
    assert cell.n == 2 and cell.top_unchanged and not cell.binding
    unknown = {key: dict.fromkeys(value, math.nan) for key, value in lost.items()}
    assert ranking_cells(cells(a=[0.9, 0.8, 0.7]), {"v": unknown}) == []


def test_smaller_is_better_for_sbu_and_vsi() -> None:
    default = {("a", "p0"): {"vsi": 0.1}, ("a", "p1"): {"vsi": 0.2}, ("a", "p2"): {"vsi": 0.3}}
    variant = {("a", "p0"): {"vsi": 0.1}, ("a", "p1"): {"vsi": 0.3}, ("a", "p2"): {"vsi": 0.35}}
    (cell,) = ranking_cells(default, {"v": variant}, ["vsi"])
    assert cell.top_unchanged and cell.tau == 1.0


def test_other_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="variant v and the default have different cells"):
        ranking_cells(cells(a=[0.5, 0.4]), {"v": cells(a=[0.5])})


def test_correlation_of_cells() -> None:
    summaries = by_group(synthetic(), ("suite", "policy"), bootstrap=False)
    found = correlate(summaries, "sr", "vsi", resamples=200)
    x, y = [s.sr for s in summaries.values()], [s.vsi for s in summaries.values()]
    assert found.n == 6 and found.pairs_within == 6 and found.pairs_between == 9
    assert found.kendall == pytest.approx(kendall_tau_b(x, y))
    assert found.spearman == pytest.approx(spearman_rho(x, y))
    assert found.per_suite == {
        "s0": pytest.approx(kendall_tau_b(x[:3], y[:3])),
        "s1": pytest.approx(kendall_tau_b(x[3:], y[3:])),
    }
    assert 0 < found.kendall_p <= 1 and 0 < found.kendall_within_p <= 1 and set(found.per_suite_p) == {"s0", "s1"}
    pairs = [(x[i] - x[j], y[i] - y[j]) for i in range(3) for j in range(3, 6)]
    agreeing = sum(int(np.sign(a * b)) for a, b in pairs)
    untied = math.sqrt(sum(a != 0 for a, _ in pairs) * sum(b != 0 for _, b in pairs))
    assert found.kendall_between == pytest.approx(agreeing / untied)
    ranks = [np.concatenate([rankdata(v[:3]), rankdata(v[3:])]) - 2.0 for v in (x, y)]
    assert found.spearman_within == pytest.approx(np.corrcoef(*ranks)[0, 1])
    means = [(np.mean(v[:3]), np.mean(v[3:])) for v in (x, y)]
    assert found.spearman_between == pytest.approx(np.sign((means[0][0] - means[0][1]) * (means[1][0] - means[1][1])))
    assert 0 < found.kendall_between_p <= 1 and 0 < found.spearman_within_p <= 1
    assert found.spearman_between_p == 1.0  # of two suites every order is as extreme


def test_between_suites_a_permutation_moves_every_cell() -> None:
    """The exact share by all 720 orders of six cells."""
    suites = ["s"] * 3 + ["t"] * 3
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 3.0, 2.0, 5.0, 5.0, 4.0]

    def between(order: Sequence[int]) -> float:
        return grouped_kendall(x, [y[i] for i in order], suites).between

    observed = between(range(6))
    taus = [between(order) for order in permutations(range(6))]
    exact = sum(abs(t) >= abs(observed) - 1e-9 for t in taus if not math.isnan(t)) / len(taus)
    found = permutation_p(x, y, "kendall", 5000, groups=suites, between=True)
    assert found == pytest.approx(exact, abs=0.02)


def test_cells_without_a_value_are_left_out() -> None:
    some = cells(a=[0.9, 0.8, 0.7]) | {("a", "p9"): {"sr": math.nan, "safety": 0.1}}
    found = correlate(some, resamples=50)
    assert found.n == 3 and found.kendall == 1.0 and found.same_top == {"a": True}
    nothing = correlate({}, resamples=50)
    assert nothing.n == 0 and math.isnan(nothing.kendall) and nothing.per_suite == {}


def test_tied_tops_share_the_first_place() -> None:
    some = {("a", "p0"): {"sr": 1.0, "safety": 0.5}, ("a", "p1"): {"sr": 1.0, "safety": 0.9}}
    assert correlate(some, resamples=20).same_top == {"a": True}


def test_agreement_skips_undefined_cells() -> None:
    rows = [RankingCell("v", "a", "vsi", 3, tau, True, True) for tau in (0.5, math.nan)]
    assert agreement(rows).tau == 0.5
