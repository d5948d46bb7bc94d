"""Clause tables, outcomes, structural index: slow recomputations on 500 episodes, and edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from osma_monitor.core.metrics.clauses import clause_summaries, clauses_by_group, first_violations, reported_summaries
from osma_monitor.core.metrics.outcomes import (
    contact_summary,
    contingency,
    depth_mix,
    outcome_composition,
    severity_by_outcome,
)
from osma_monitor.core.metrics.safety import EpisodeScore, as_table, summarize
from osma_monitor.core.metrics.statistics import wilson_interval
from osma_monitor.core.metrics.structural import structural_indices

from .safety_data import CLAUSES, synthetic

NAN = math.nan
SCORES = synthetic()
ROWS = [s for s in SCORES if not s.aborted]
KNOWN = [s for s in ROWS if s.safety != "unknown"]


def quantile(values: list[float], q: float) -> float:
    """Linear interpolation between order statistics, written out."""
    if not values:
        return NAN
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("clause", CLAUSES)
def test_clause_summary(clause: str) -> None:
    found = clause_summaries(SCORES)[clause]
    broken = [s for s in ROWS if s.rho.get(clause, NAN) < 0]
    listed = [s for s in ROWS if clause in s.rho]
    undecided = [s for s in listed if math.isnan(s.rho[clause])]
    assert (found.n, found.n_violated, found.n_unknown) == (len(KNOWN), len(broken), len(undecided))
    assert found.n_applicable == len(listed) - len(undecided)
    assert found.rate == len(broken) / len(KNOWN)
    assert found.rate_applicable == len(broken) / found.n_applicable
    assert found.rate_interval == wilson_interval(len(broken), len(KNOWN))
    wins = [s for s in ROWS if s.success]
    total = sum(v < 0 for s in wins for v in s.rho.values())
    assert found.n_unsafe_success == sum(s.rho.get(clause, NAN) < 0 for s in wins)
    assert found.share == found.n_unsafe_success / total
    assert found.mean_depth == pytest.approx(math.fsum(s.depth[clause] for s in broken) / len(broken))
    exposure = [s.violated_steps[clause] / s.steps for s in broken]
    assert found.exposure_median == pytest.approx(quantile(exposure, 0.5))
    assert found.exposure_p90 == pytest.approx(quantile(exposure, 0.9))
    assert found.longest_run_median == pytest.approx(quantile([s.longest_run[clause] for s in broken], 0.5))
    assert found.first_violation_median == pytest.approx(
        quantile([s.first_violation_step[clause] for s in broken], 0.5)
    )


def test_shares_sum_to_1_and_the_union_bounds_hold() -> None:
    found = clause_summaries(SCORES).values()
    assert math.fsum(c.share for c in found) == pytest.approx(1.0)
    unsafe = 1 - summarize(SCORES, bootstrap=False).safety
    assert max(c.rate for c in found) <= unsafe <= sum(c.rate for c in found)


def test_clauses_by_group_cover_every_cell() -> None:
    cells = clauses_by_group(SCORES, ("suite",))
    assert set(cells) == {("s0",), ("s1",)}
    tilt = cells[("s0",)]["tilt"]
    # a clause that is inactive throughout a cell has no rate there
    assert tilt.n_applicable == 0 and math.isnan(tilt.rate) and math.isnan(tilt.rate_applicable)
    assert all(math.isnan(v) for v in tilt.rate_interval) and math.isnan(tilt.share)


def test_an_episode_that_breaks_two_clauses_counts_in_each() -> None:
    scores = [
        EpisodeScore(True, {"a": -1.0, "b": -1.0}, {"a": 1.0, "b": 1.0}),
        EpisodeScore(True, {"a": -1.0, "b": 1.0}, {"a": 1.0, "b": 0.0}),
        EpisodeScore(False, {"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 1.0}),
    ]
    found = clause_summaries(scores)
    assert (found["a"].share, found["b"].share) == (2 / 3, 1 / 3)
    assert (found["a"].rate, found["b"].rate) == (2 / 3, 2 / 3)


def test_first_violations() -> None:
    found = first_violations(SCORES, "force")
    assert found == {s.episode_id: s.first_violation_step["force"] for s in ROWS if s.rho.get("force", NAN) < 0}
    with pytest.raises(ValueError, match="no scored clause 'forse' in these episodes; there are force"):
        first_violations(SCORES, "forse")


def test_report_only_clauses_have_rates_of_their_own() -> None:
    found = reported_summaries(SCORES)["speed"]
    values = [s.reported["speed"] for s in ROWS if "speed" in s.reported]
    decided = [v for v in values if not math.isnan(v)]
    assert (found.n, found.n_unknown) == (len(decided), len(values) - len(decided))
    assert found.rate == sum(v < 0 for v in decided) / len(decided)
    assert "speed" not in clause_summaries(SCORES)


def test_no_episodes() -> None:
    assert clause_summaries([]) == {}
    assert reported_summaries([]) == {}
    clean = clause_summaries([EpisodeScore(True, {"a": 1.0}, {"a": 0.0})])["a"]
    assert clean.rate == 0.0 and math.isnan(clean.share) and math.isnan(clean.exposure_median)


# ---- outcomes


def test_outcome_composition() -> None:
    both = [s for s in KNOWN if s.success is not None]
    found = outcome_composition(SCORES)
    assert (found.n, found.n_unknown) == (len(both), len(ROWS) - len(both))
    for name, success, safety in (
        ("safe_success", True, "safe"),
        ("unsafe_success", True, "unsafe"),
        ("safe_failure", False, "safe"),
        ("unsafe_failure", False, "unsafe"),
    ):
        share = sum(s.success is success and s.safety == safety for s in both) / len(both)
        assert getattr(found, name) == pytest.approx(share)
    assert math.isnan(outcome_composition([]).safe_success)


def test_contingency() -> None:
    both = [s for s in KNOWN if s.success is not None]
    count = {
        (w, x): sum(s.success is w and s.safety == x for s in both) for w in (True, False) for x in ("safe", "unsafe")
    }
    a, b, c, d = count[True, "safe"], count[True, "unsafe"], count[False, "safe"], count[False, "unsafe"]
    found = contingency(SCORES)
    assert (found.safe_success, found.unsafe_success, found.safe_failure, found.unsafe_failure) == (a, b, c, d)
    assert found.unsafe_given_success == b / (a + b) and found.unsafe_given_failure == d / (c + d)
    assert found.odds_ratio == pytest.approx(a * d / (b * c))
    phi = np.corrcoef([not s.success for s in both], [s.safety == "unsafe" for s in both])[0, 1]
    assert found.phi == pytest.approx(phi)
    assert found.p == pytest.approx(stats.fisher_exact([[a, b], [c, d]]).pvalue)


def test_contingency_with_an_empty_margin() -> None:
    clean = contingency([EpisodeScore(True, {"a": 1.0}, {"a": 0.0})] * 3)
    assert clean.unsafe_given_success == 0.0
    assert all(math.isnan(v) for v in (clean.unsafe_given_failure, clean.odds_ratio, clean.phi, clean.p))
    split = [EpisodeScore(w, {"a": 1.0 if w else -1.0}, {"a": 0.0 if w else 1.0}) for w in (True, False)]
    assert contingency(split).odds_ratio == math.inf


def test_contact_summary() -> None:
    found = contact_summary(SCORES)
    touched = [s for s in KNOWN if s.contact]
    assert found.n_contact == len(touched)
    assert found.safety_given_contact == sum(s.safety == "safe" for s in touched) / len(touched)
    assert found.change == pytest.approx(found.safety_given_contact - summarize(SCORES, bootstrap=False).safety)
    idle = [s for s in KNOWN if s.success is False and s.safety == "safe"]
    assert found.n_safe_failure == len(idle)
    assert found.n_contact_free_failure == sum(s.contact is False for s in idle)
    assert found.contact_free_share == found.n_contact_free_failure / sum(s.contact is not None for s in idle)
    assert found.n_contact_unknown == sum(s.contact is None for s in ROWS)
    assert math.isnan(contact_summary([]).change)


def test_depth_mix() -> None:
    both = [s for s in KNOWN if s.success is not None]
    found = depth_mix(SCORES)
    depths = [max(s.depth[c] for c in s.rho if s.rho[c] < 0) for s in both if s.success and s.safety == "unsafe"]
    expected = (
        sum(d <= 0.25 for d in depths),
        sum(0.25 < d <= 0.5 for d in depths),
        sum(0.5 < d < 1 for d in depths),
        sum(d >= 1 for d in depths),
    )
    assert found.counts == expected
    assert math.fsum(found.shares) == pytest.approx(summarize(SCORES, bootstrap=False).sbu)


@pytest.mark.parametrize("edges", [(0.5,), (0.0, 1.0), (0.5, 0.5, 1.0), (0.9, 0.5, 1.0)])
def test_depth_mix_edges(edges: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="edges must rise"):
        depth_mix(SCORES, edges)


def test_severity_by_outcome() -> None:
    found = severity_by_outcome(SCORES, resamples=200)
    for name, success in (("success", True), ("failure", False)):
        depths = [max((s.depth[c] for c in s.rho if s.rho[c] < 0), default=0.0) for s in KNOWN if s.success is success]
        assert found[name].n == len(depths)
        assert found[name].mean == pytest.approx(math.fsum(depths) / len(depths))
        assert found[name].interval[0] <= found[name].mean <= found[name].interval[1]


# ---- structural index


def test_structural_index() -> None:
    wins = [s for s in KNOWN if s.success]
    expected = {}
    for suite, task in {(s.suite, s.task) for s in wins}:
        rates = {}
        for policy in ("p0", "p1", "p2"):
            rows = [s for s in wins if (s.suite, s.task, s.policy) == (suite, task, policy)]
            if rows:
                rates[policy] = sum(s.safety == "unsafe" for s in rows) / len(rows)
        if len(rates) >= 3:
            expected[suite, task] = min(rates.values())
    found = structural_indices(SCORES)
    assert {(row.suite, row.task): row.index for row in found} == pytest.approx(expected)
    assert [row.index for row in found] == sorted((row.index for row in found), reverse=True)


def test_structural_index_needs_three_policies_that_succeed() -> None:
    def one(policy: str, success: bool, rho: float) -> EpisodeScore:
        return EpisodeScore(success, {"a": rho}, {"a": float(rho < 0)}, suite="s", task="t", policy=policy)

    two = [one("a", True, -1), one("b", True, -1), one("c", False, 1)]
    assert structural_indices(two) == []
    (found,) = structural_indices([*two, one("c", True, -1), one("c", True, 1)])
    assert (found.index, found.policy, found.n_policies, found.n_successes) == (0.5, "c", 3, 2)
    assert structural_indices(two, minimum_policies=2)[0].index == 1.0


def test_metrics_take_tables_as_well_as_scores() -> None:
    table = as_table(SCORES)
    assert clause_summaries(table) == clause_summaries(SCORES)
    assert depth_mix(table) == depth_mix(SCORES)
    assert structural_indices(table) == structural_indices(SCORES)
