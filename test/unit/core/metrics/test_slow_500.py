"""What the tests of the single modules take from our own functions, recomputed slowly on the 500 synthetic episodes:
intervals, bounds, means over cells, resampling and permutation tests."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from osma_monitor.core.metrics.clauses import clause_summaries, reported_summaries
from osma_monitor.core.metrics.outcomes import contact_summary, contingency, severity_by_outcome
from osma_monitor.core.metrics.paired import compare_policies
from osma_monitor.core.metrics.rankings import correlate
from osma_monitor.core.metrics.safety import EpisodeScore, by_group, macro_average, summarize

from .safety_data import synthetic

SCORES = synthetic()
ROWS = [s for s in SCORES if not s.aborted]
KNOWN = [s for s in ROWS if s.safety != "unknown"]
Z = 1.959963984540054


def wilson(k: int, n: int) -> tuple[float, float]:
    """The roots of (p − k/n)² = z² p (1 − p) / n, by bisection."""

    def off(p: float) -> float:
        return (p - k / n) ** 2 - Z * Z * p * (1 - p) / n

    def root(a: float, b: float) -> float:
        rising = off(b) > off(a)
        for _ in range(200):
            middle = (a + b) / 2
            a, b = (a, middle) if (off(middle) > 0) == rising else (middle, b)
        return (a + b) / 2

    return root(0.0, k / n) if k else 0.0, root(k / n, 1.0) if k < n else 1.0


def depth(s: EpisodeScore) -> float:
    return max((s.depth[c] for c in s.rho if s.rho[c] < 0), default=0.0)


def resampled(values: Sequence[float], draws: int = 4000) -> tuple[float, float]:
    """2.5th and 97.5th percentile of means of samples drawn one value at a time, with another generator."""
    rng = random.Random(5)
    means = sorted(math.fsum(rng.choices(values, k=len(values))) / len(values) for _ in range(draws))
    return means[round(0.025 * draws)], means[round(0.975 * draws)]


def close_interval(found: tuple[float, float], expected: tuple[float, float]) -> None:
    """Two bootstraps with other draws: their ends differ by a few percent of the width."""
    width = expected[1] - expected[0]
    assert found == pytest.approx(expected, abs=0.08 * width)


def test_rates_have_wilson_intervals() -> None:
    s = summarize(SCORES, bootstrap=False)
    outcome = [r for r in ROWS if r.success is not None]
    won = [r for r in outcome if r.success]
    both = [r for r in outcome if r.safety != "unknown"]
    bad = [r for r in both if r.success and r.safety == "unsafe"]
    expected = {
        "sr": wilson(len(won), len(outcome)),
        "safety": wilson(sum(r.safety == "safe" for r in KNOWN), len(KNOWN)),
        "sbu": wilson(len(bad), len(both)),
        "unsafe_given_success": wilson(len(bad), sum(r.safety != "unknown" for r in won)),
    }
    for name, interval in expected.items():
        assert s.intervals[name] == pytest.approx(interval, abs=1e-9), name
    c = contingency(SCORES)
    assert c.unsafe_given_success_interval == pytest.approx(expected["unsafe_given_success"], abs=1e-9)
    lost = [r for r in both if not r.success]
    assert c.unsafe_given_failure_interval == pytest.approx(
        wilson(sum(r.safety == "unsafe" for r in lost), len(lost)), abs=1e-9
    )
    touched = [r for r in KNOWN if r.contact]
    contact = contact_summary(SCORES)
    safe = sum(r.safety == "safe" for r in touched)
    assert contact.safety_given_contact_interval == pytest.approx(wilson(safe, len(touched)), abs=1e-9)
    idle = [r for r in KNOWN if r.success is False and r.safety == "safe" and r.contact is not None]
    assert contact.contact_free_share_interval == pytest.approx(
        wilson(sum(not r.contact for r in idle), len(idle)), abs=1e-9
    )
    for name, clause in clause_summaries(SCORES).items():
        broken = sum(r.rho.get(name, math.nan) < 0 for r in ROWS)
        assert clause.rate_interval == pytest.approx(wilson(broken, len(KNOWN)), abs=1e-9)
        assert clause.rate_applicable_interval == pytest.approx(wilson(broken, clause.n_applicable), abs=1e-9)
    shown = [r.reported["speed"] for r in ROWS if not math.isnan(r.reported.get("speed", math.nan))]
    assert reported_summaries(SCORES)["speed"].interval == pytest.approx(
        wilson(sum(v < 0 for v in shown), len(shown)), abs=1e-9
    )


def test_bounds_are_the_values_with_every_unknown_episode_decided() -> None:
    def decided(value: float) -> dict[str, float]:
        """Every value with the unknown episodes safe, or unsafe to depth 1."""
        rows = []
        for r in ROWS:
            if r.safety == "unknown":
                r = EpisodeScore(r.success, {"x": value}, {"x": float(value < 0)})
            rows.append(r)
        s = summarize(rows, bootstrap=False)
        assert s.n_unknown == 0
        return {name: getattr(s, name) for name in ("safety", "sbu", "unsafe_given_success", "vsi")}

    worst, best = decided(-1.0), decided(1.0)
    bounds = summarize(SCORES, bootstrap=False).bounds
    for name in worst:
        assert bounds[name] == pytest.approx((worst[name], best[name])), name


def test_means_over_cells_are_unweighted() -> None:
    cells = by_group(SCORES, ("suite", "policy", "task"), bootstrap=False)
    found = macro_average(cells.values())
    assert found.cells == 30
    for name, value in found.values.items():
        its = [getattr(s, name) for s in cells.values() if not math.isnan(getattr(s, name))]
        assert value == pytest.approx(math.fsum(its) / len(its)) and found.defined[name] == len(its)


def test_bootstrap_intervals_are_those_of_drawing_episodes() -> None:
    s = summarize(SCORES)
    close_interval(s.intervals["vsi"], resampled([depth(r) for r in KNOWN]))
    close_interval(s.intervals["vsi_unsafe"], resampled([depth(r) for r in KNOWN if r.safety == "unsafe"]))
    for name, severity in severity_by_outcome(SCORES).items():
        its = [depth(r) for r in KNOWN if r.success is (name == "success")]
        close_interval(severity.interval, resampled(its))


def test_paired_intervals_and_tests() -> None:
    """The first half of the episodes against the second, task by task."""
    half = len(ROWS) // 2
    matched = [
        replace(r, policy="a" if i < half else "b", suite="s", task=f"t{i % half}", seed=0)
        for i, r in enumerate(ROWS[: 2 * half])
    ]
    found = compare_policies(matched, "a", "b")
    pairs = list(zip(matched[:half], matched[half:], strict=True))
    known = [(x, y) for x, y in pairs if "unknown" not in (x.safety, y.safety)]
    outcome = [(x, y) for x, y in pairs if x.success is not None and y.success is not None]
    both = [(x, y) for x, y in known if x.success is not None and y.success is not None]

    def unsafe_win(r: EpisodeScore) -> bool:
        return bool(r.success) and r.safety == "unsafe"

    differences = {
        "sr": [float(bool(y.success)) - bool(x.success) for x, y in outcome],
        "safety": [float(y.safety == "safe") - (x.safety == "safe") for x, y in known],
        "sbu": [float(unsafe_win(y)) - unsafe_win(x) for x, y in both],
        "vsi": [depth(y) - depth(x) for x, y in known],
    }
    for name, its in differences.items():
        difference = getattr(found, name)
        assert (difference.n, difference.difference) == (len(its), pytest.approx(math.fsum(its) / len(its)))
        close_interval(difference.interval, resampled(its))
    for test, its in ((found.safety_test, differences["safety"]), (found.success_test, differences["sr"])):
        a, b = sum(d < 0 for d in its), sum(d > 0 for d in its)
        tail = sum(math.comb(a + b, k) for k in range(min(a, b) + 1)) / 2 ** (a + b)
        assert (test.only_a, test.only_b, test.p) == (a, b, pytest.approx(min(1.0, 2 * tail)))


def tau(pairs: Sequence[tuple[float, float]]) -> float:
    agree = sum(((a > 0) - (a < 0)) * ((b > 0) - (b < 0)) for a, b in pairs)
    untied = sum(a != 0 for a, _ in pairs) * sum(b != 0 for _, b in pairs)
    return agree / math.sqrt(untied) if untied else 0.0


def ranks(values: Sequence[float]) -> list[float]:
    return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    top = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    scale = math.fsum((a - mx) ** 2 for a in x) * math.fsum((b - my) ** 2 for b in y)
    return top / math.sqrt(scale) if scale else 0.0


@pytest.mark.parametrize("y", ["safety", "sbu", "vsi"])
def test_correlations_and_their_p_over_all_permutations(y: str) -> None:
    """Six cells have 720 orders, and 36 that stay inside a suite: all of them in place of 10,000 drawn ones."""
    cells = by_group(SCORES, ("suite", "policy"), bootstrap=False)
    suites = [key[0] for key in cells]
    a, b = ([getattr(s, name) for s in cells.values()] for name in ("sr", y))
    assert suites == ["s0"] * 3 + ["s1"] * 3

    def kendall(b: Sequence[float], chosen: Callable[[int, int], bool]) -> float:
        return tau([(a[i] - a[j], b[i] - b[j]) for i in range(6) for j in range(i) if chosen(i, j)])

    def pooled(b: Sequence[float]) -> float:
        return kendall(b, lambda i, j: True)

    def within(b: Sequence[float]) -> float:
        return kendall(b, lambda i, j: suites[i] == suites[j])

    def between(b: Sequence[float]) -> float:
        return kendall(b, lambda i, j: suites[i] != suites[j])

    def spearman(b: Sequence[float]) -> float:
        return pearson(ranks(a), ranks(b))

    def spearman_within(b: Sequence[float]) -> float:
        inside = [[r - 2.0 for part in (v[:3], v[3:]) for r in ranks(part)] for v in (a, b)]
        return pearson(*inside)

    every = [list(order) for order in itertools.permutations(b)]
    inside = [[*p, *q] for p in itertools.permutations(b[:3]) for q in itertools.permutations(b[3:])]
    found = correlate(cells, "sr", y)
    for name, value, orders in (
        ("kendall", pooled, every),
        ("kendall_within", within, inside),
        ("kendall_between", between, every),
        ("spearman", spearman, every),
        ("spearman_within", spearman_within, inside),
    ):
        observed = value(b)
        p = sum(abs(value(order)) >= abs(observed) - 1e-9 for order in orders) / len(orders)
        assert getattr(found, name) == pytest.approx(observed), name
        assert getattr(found, f"{name}_p") == pytest.approx(p, abs=0.02), name
    means = [[math.fsum(v[k : k + 3]) / 3 for k in (0, 3)] for v in (a, b)]
    assert found.spearman_between == pytest.approx(pearson(*map(ranks, means)))
