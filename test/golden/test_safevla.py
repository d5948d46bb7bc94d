"""Printed figures of SafeVLA-Bench from our own functions; every figure names its table in safevla.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osma_monitor.core.metrics import rankings, safety, statistics
from osma_monitor.core.metrics.batch import SignalColumns, evaluate_clauses
from osma_monitor.core.metrics.clauses import clause_summaries
from osma_monitor.core.metrics.outcomes import contingency
from osma_monitor.core.metrics.safety import EpisodeScore
from osma_monitor.core.safety import Library, Registry, active_clauses, load_library, load_registry, violation_depth
from osma_monitor.core.signals.deriver import unavailable
from osma_monitor.resources import config_path

HERE = Path(__file__).parent
DATA = json.loads((HERE / "safevla.json").read_text())
FIGURES = {row["id"]: row for row in DATA["figures"]}
TABLES = DATA["tables"]
SUITES = ("Spatial", "Object", "Goal", "Long")
#: The RoboCasa policies that share their seeds with each other (Table 4, above the rule).
MATCHED = ("pi0", "pi0.5", "GR00T-N1.5", "RLDX-1-FT-RC365")

used: set[str] = set()


def figure(name: str) -> tuple[Any, Any, float]:
    used.add(name)
    row = FIGURES[name]
    return row["inputs"], row["expected"], row["tolerance"]


def ids(prefix: str) -> pytest.MarkDecorator:
    found = [name for name in FIGURES if name.startswith(prefix)]
    assert found, prefix
    used.update(found)
    return pytest.mark.parametrize("name", found)


def episodes(n: int, success: int, safe: int, sbu: int, depth: float = 0.5, **where: str) -> list[EpisodeScore]:
    """n episodes with these counts: unsafe successes first, then safe successes, safe failures, unsafe failures."""
    kinds = [(True, True)] * sbu + [(True, False)] * (success - sbu)
    kinds += [(False, False)] * (safe - (success - sbu))
    kinds += [(False, True)] * (n - len(kinds))
    return [
        EpisodeScore(won, {"c": -1.0 if unsafe else 1.0}, {"c": depth if unsafe else 0.0}, **where)
        for won, unsafe in kinds
    ]


def cell(sr: float, safe: float, sbu: float, n: int, **where: str) -> list[EpisodeScore]:
    """Percentages of n episodes."""
    counts = [round(value * n / 100) for value in (sr, safe, sbu)]
    assert all(abs(k * 100 / n - value) < 0.051 for k, value in zip(counts, (sr, safe, sbu), strict=True))
    return episodes(n, *counts, **where)


@pytest.fixture(scope="module")
def libero() -> list[EpisodeScore]:
    """Table 6 as 14,400 episodes."""
    return [
        score
        for policy, row in TABLES["safevla_table6"].items()
        for i, suite in enumerate(SUITES)
        for score in cell(row["SR"][i], row["Safety"][i], row["SBU"][i], 200, suite=suite, policy=policy)
    ]


@pytest.fixture(scope="module")
def robocasa() -> list[EpisodeScore]:
    """Table 4 as 8,100 episodes."""
    counts = TABLES["safevla_robocasa_exact_counts_n900"]
    return [
        score
        for policy, row in counts.items()
        for score in episodes(900, row["success"], row["safe"], row["sbu"], suite="RC", policy=policy)
    ]


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library(config_path("safety", "library.yaml").read_text())


@pytest.fixture(scope="module")
def registry() -> Registry:
    suites = {path.name: path.read_text() for path in config_path("safety", "suites").glob("*.yaml")}
    return load_registry(config_path("safety", "registry.yaml").read_text(), suites)


# ---- aggregates


@ids("sv.t3_from_t6")
def test_mean_over_suites(name: str, libero: list[EpisodeScore]) -> None:
    inputs, expected, tolerance = figure(name)
    policy = name.removeprefix("sv.t3_from_t6.")
    cells = safety.by_group([s for s in libero if s.policy == policy], ("suite",), bootstrap=False)
    for key, values in zip(("sr", "safety", "sbu"), inputs.values(), strict=True):
        assert [100 * getattr(cells[(suite,)], key) for suite in SUITES] == pytest.approx(values)
    mean = safety.macro_average(cells.values())
    found = [100 * mean.values[key] for key in ("sr", "safety", "sbu")]
    assert found == pytest.approx(expected, abs=tolerance + 1e-9)


def test_default_row_of_the_sensitivity_table(libero: list[EpisodeScore]) -> None:
    _, expected, tolerance = figure("sv.t11.libero_default")
    mean = safety.macro_average(safety.by_group(libero, bootstrap=False).values())
    assert mean.cells == 72
    found = [100 * mean.values[key] for key in ("safety", "sbu", "unsafe_given_success")]
    assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("name", ["sv.t11.libero_default_vsi", "sv.t11.rc_default_vsi"])
def test_mean_vsi(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    assert safety.macro_average({"vsi": v} for v in inputs).values["vsi"] == pytest.approx(expected, abs=tolerance)


@ids("sv.t4_counts")
def test_counts_of_robocasa(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    found = safety.summarize(episodes(inputs["n"], inputs["success"], inputs["safe"], inputs["sbu"]), bootstrap=False)
    assert [100 * found.sr, 100 * found.safety, 100 * found.sbu] == pytest.approx(expected, abs=tolerance)


def test_unsafe_given_success(robocasa: list[EpisodeScore]) -> None:
    inputs, expected, tolerance = figure("sv.pus_rc")
    cells = safety.by_group(robocasa, ("policy",), bootstrap=False)
    found = [100 * cells[(policy,)].unsafe_given_success for policy in inputs]
    assert found == pytest.approx(expected, abs=tolerance)


def test_aggregate_of_ten_tasks() -> None:
    inputs, expected, tolerance = figure("sv.t17.agg")
    scores = []
    for task, (sr, safe) in enumerate(zip(inputs["SR"], inputs["Safety"], strict=True)):
        success, n_safe = round(sr / 5), round(safe / 5)
        sbu = max(0, success - n_safe)
        scores += episodes(20, success, n_safe, sbu, task=str(task))
    found = safety.summarize(scores, bootstrap=False)
    assert [100 * found.sr, 100 * found.safety] == pytest.approx(expected, abs=tolerance)
    assert len(safety.by_group(scores, ("task",), bootstrap=False)) == 10


@ids("sv.site.vsi_given_unsafe")
def test_vsi_over_unsafe_episodes(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    n, unsafe = 200, round(200 * (1 - inputs["Safety"]))
    depth = inputs["VSI"] * n / unsafe
    counts = (round(n * inputs["SR"]), n - unsafe, round(n * inputs["SBU"]))
    found = safety.summarize(episodes(n, *counts, depth=depth), bootstrap=False)
    assert [found.vsi_unsafe, found.unsafe_given_success] == pytest.approx(expected, abs=tolerance)
    assert found.vsi == pytest.approx(inputs["VSI"], abs=tolerance)


# ---- F1


def test_unsafe_successes(libero: list[EpisodeScore], robocasa: list[EpisodeScore]) -> None:
    inputs, expected, _ = figure("sv.f1.unsafe_successes")
    matched = libero + [s for s in robocasa if s.policy in MATCHED]
    assert safety.summarize(libero, bootstrap=False).n_unsafe_success == inputs["libero"]
    assert safety.summarize(matched, bootstrap=False).n_unsafe_success == expected
    # 58 % of failures violate a clause against 22 % of successes, over 18,000 episodes
    table = contingency(matched)
    assert len(matched) == 18_000
    assert [table.unsafe_given_failure, table.unsafe_given_success] == pytest.approx([0.58, 0.22], abs=0.005)


def test_success_against_safety(libero: list[EpisodeScore], robocasa: list[EpisodeScore]) -> None:
    cells = safety.by_group(libero + [s for s in robocasa if s.policy in MATCHED], bootstrap=False)
    found = rankings.correlate(cells, resamples=2000)
    _, expected, tolerance = figure("sv.f1.within_between")
    pairs = [found.pairs_within, found.pairs_between, found.kendall_within, found.kendall_between]
    assert pairs == pytest.approx(expected, abs=tolerance)
    _, expected, tolerance = figure("sv.f1.per_suite_tau")
    assert [found.per_suite[suite] for suite in (*SUITES, "RC")] == pytest.approx(expected, abs=tolerance)
    # in the text: pooled Kendall 0.53, Spearman 0.70, p < 0.05 in two of five suites, one top policy in two of five
    assert [found.kendall, found.spearman] == pytest.approx([0.53, 0.70], abs=0.005)
    assert sum(p < 0.05 for p in found.per_suite_p.values()) == 2
    assert sum(found.same_top.values()) == 2


# ---- clauses


@ids("sv.t10")
def test_rate_among_applicable_episodes(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    _, host, family = name.split(".", 2)
    host, family = family.split(".") if "." in family else (host, family)
    column = {
        "max_contact_force": "maxf",
        "self_collision_free": "self",
        "arm_furniture_force": "arm",
        "target_furniture_force": "obj",
        "held_object_tilt_world": "tilt",
    }[family]
    table = TABLES["safevla_table7_8_counts_of_200" if host == "LIBERO" else "safevla_table9_counts_of_900"]
    violating = sum(row[column] for row in table.values())
    assert violating == inputs["violating"]
    n, applicable = (14_400 if host == "LIBERO" else 8_100), inputs["applicable"]
    kinds = (
        [{family: -1.0}] * violating + [{family: 1.0}] * (applicable - violating) + [{"other": 1.0}] * (n - applicable)
    )
    scores = [EpisodeScore(True, rho, {c: 0.5 for c in rho}) for rho in kinds]
    found = clause_summaries(scores)[family]
    assert 100 * found.rate_applicable == pytest.approx(expected, abs=tolerance)
    assert (found.n_applicable, found.n) == (applicable, n)
    assert found.rate == violating / n  # the marginal table divides by all


def test_applicable_tasks(library: Library, registry: Registry) -> None:
    inputs, expected, _ = figure("sv.applicable_tasks")
    families = {
        "max_contact": "max_contact_force",
        "non_target": "non_target_max_disp",
        "tilt": "held_object_tilt_world",
        "self_collision": "self_collision_free",
        "arm_furniture": "arm_furniture_force",
        "target_furniture": "target_furniture_force",
    }
    hosts = {"libero": ("libero_spatial", "libero_object", "libero_goal", "libero_10"), "rc": ("robocasa365",)}
    for host, suites in hosts.items():
        active: dict[str, list[str]] = {}
        tasks = [task for suite in suites for task in registry.suites[suite].tasks.values()]
        for task in tasks:
            missing = unavailable(registry.suites[task.suite].capabilities)
            found, _ = active_clauses(library, registry, task.templates, task.tags, missing, suite=task.suite)
            for clause in found:
                if clause.scored:
                    active.setdefault(clause.family, []).append(f"{task.suite}/{task.id}")
        assert len(tasks) == inputs[host]["total"]
        assert {key: len(active[families[key]]) for key in expected[host]} == expected[host]
        if host == "libero":
            excluded = {f"{t.suite}/{t.id}" for t in tasks} - set(active["non_target_max_disp"])
            assert excluded == set(inputs[host]["non_target_excluded"])


# ---- intervals


@ids("sv.wilson")
def test_wilson(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    low, high = statistics.wilson_interval(inputs["k"], inputs["n"])
    scale = 1.0 if name.startswith("sv.wilson6") else 100.0
    assert [scale * low, scale * high] == pytest.approx(expected, abs=tolerance)


# ---- rankings under other thresholds


def ranking_rows(
    taus: Mapping[str, list[float]], top: Mapping[str, list[int]], binding: Mapping[str, int]
) -> list[rankings.RankingCell]:
    """Cells of five suites whose mean is the printed row: a cell that does not bind has tau 1 and an unchanged top."""
    cells = []
    for variant, row in taus.items():
        b = binding[variant]
        for metric, tau, kept in zip(("safety", "sbu", "vsi"), row, top[variant], strict=True):
            inside = (5 * tau - (5 - b)) / b if b else 1.0
            for suite in range(5):
                binds = suite < b
                same = not binds or suite < b - (5 - kept)
                cells.append(
                    rankings.RankingCell(variant, str(suite), metric, 18, inside if binds else 1.0, binds, same)
                )
    return cells


def test_agreement_under_moderate_thresholds() -> None:
    inputs, expected, tolerance = figure("sv.t12.moderate")
    binding, of_binding, _ = figure("sv.t12.binding_only")
    cells = ranking_rows(inputs["tau"], inputs["top1"], binding["binding_suites_per_metric"])
    found = [rankings.agreement(c for c in cells if c.metric == m) for m in ("safety", "sbu", "vsi")]
    assert [a.tau for a in found] + [a.top_unchanged for a in found] == pytest.approx(expected, abs=tolerance)
    everything = rankings.agreement(cells)
    assert (everything.cells, everything.binding, everything.top_unchanged) == (90, 57, 72)
    taus = [a.tau_binding for a in found] + [everything.tau_binding, everything.tau]
    assert taus + [a.top_unchanged_binding for a in found] == pytest.approx(of_binding, abs=tolerance)


def test_agreement_under_extreme_thresholds() -> None:
    inputs, expected, tolerance = figure("sv.t12.extreme")
    cells = ranking_rows(inputs, {row: [5, 5, 5] for row in inputs}, {row: 5 for row in inputs})
    found = [rankings.agreement(c for c in cells if c.metric == m).tau for m in ("safety", "sbu", "vsi")]
    assert [*found, rankings.agreement(cells).tau] == pytest.approx(expected, abs=tolerance)


# ---- severity


@ids("sv.t22")
def test_severity_anchors_of_the_library(name: str, library: Library) -> None:
    inputs, expected, tolerance = figure(name)
    clause = {
        "force_200N": "max_contact_force_under_200N",
        "disp_5mm": "non_target_max_disp_5mm",
        "disp_2cm": "non_target_max_disp_2cm",
        "disp_5cm": "non_target_max_disp_5cm",
        "grasp_2cm": "stable_grasp_maintained_2cm",
        "tilt_20": "held_object_tilt_world_20deg",
    }[name.removeprefix("sv.t22.")]
    found = library[clause]
    assert (found.threshold, found.severe) == (inputs["tau"], inputs["s"])
    assert [found.severe / found.threshold, abs(found.severe - found.threshold)] == pytest.approx(
        expected, abs=tolerance
    )


@ids("sv.vsi_depth")
def test_depth(name: str) -> None:
    inputs, expected, tolerance = figure(name)
    rho = inputs["tau"] - inputs["signal"]
    assert violation_depth(rho, inputs["tau"], inputs["severe"]) == pytest.approx(expected, abs=tolerance)


def test_depth_of_a_slip_through_its_formula(library: Library) -> None:
    inputs, expected, tolerance = figure("sv.vsi_depth.slip_h=-3.5cm")
    clause = library["stable_grasp_maintained_2cm"]
    signals = {"gripper_contact": np.array([0.0, 1.0]), "obj_above_table": np.array([0.0, -inputs["signal"]])}
    columns = SignalColumns(np.array([1, 2]), signals, np.array([0, 2]))
    upper = float(evaluate_clauses([clause], columns).upper[0, 0])
    assert clause.depth(upper) == pytest.approx(expected, abs=tolerance)


def test_thresholds_shift_the_robustness_of_an_ungated_clause(library: Library) -> None:
    inputs, expected, tolerance = figure("sv.site.rho_shift")
    clauses = [library[f"non_target_max_disp_{name}"] for name in ("5mm", "2cm", "5cm")]
    assert [clause.threshold for clause in clauses] == inputs["tau"]
    rng = np.random.default_rng(0)
    columns = SignalColumns(
        np.arange(1, 401), {"non_target_disp_max": rng.exponential(0.01, 400)}, np.arange(0, 401, 40)
    )
    mean = evaluate_clauses(clauses, columns).rho.mean(axis=0)
    assert list(np.diff(mean)) == pytest.approx(expected, abs=tolerance)


def test_every_figure_is_used() -> None:
    assert used == set(FIGURES)
