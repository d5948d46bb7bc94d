"""Printed figures of OSMA-Bench from our own functions; every figure names its table in osma.json."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.core.metrics import navigation, requested, ssi
from osma_monitor.core.metrics.candidates import Decision, summarize_selection
from osma_monitor.core.metrics.failures import Failure, class_counts, stall_table
from osma_monitor.core.metrics.flips import outcome_flips
from osma_monitor.core.metrics.navigation import NavigationEpisode, ReferencePath
from osma_monitor.core.metrics.requested import RequestedControl
from osma_monitor.core.metrics.seeds import over_seeds
from osma_monitor.core.motion import FEATURES, jerk, motion_features
from sim_bridge.kitchen.tasks import tasks

HERE = Path(__file__).parent
FIGURES = {row["id"]: row for row in json.loads((HERE / "osma.json").read_text())["figures"]}
DRIVES = json.loads((HERE / "osma_reference_drives.json").read_text())["rows"]
#: Sign-aligned tier means, Low to High, that give each tau.
MEANS = {
    1.0: (0, 1, 2), 1 / 3: (0, 2, 1), -1 / 3: (1, 2, 0), -1.0: (2, 1, 0),
    math.sqrt(2 / 3): (0, 0, 1), -math.sqrt(2 / 3): (1, 0, 0), 0.0: (0, 1, 0),
}  # fmt: skip


def ids(prefix):
    found = [name for name in FIGURES if name.startswith(prefix)]
    assert found, prefix
    return pytest.mark.parametrize("name", found)


def figure(name):
    row = FIGURES[name]
    return row["inputs"], row["expected"], row["tolerance"]


def episodes(n, successes, collision_free, **more):
    return [
        NavigationEpisode(f"t{i}", success=i < successes, contact_steps=0 if i < collision_free else 1, **more)
        for i in range(n)
    ]


# --- ordering ----------------------------------------------------------------------------------------------------


@ids("os.taub")
def test_tau_of_one_cell(name):
    means, expected, tolerance = figure(name)
    assert float(ssi.tier_tau(np.array(means, dtype=float))) == pytest.approx(expected, abs=tolerance)


def test_tau_of_an_indifferent_policy_is_0_on_average():
    _, expected, tolerance = figure("os.tau_null_mean")
    taus = ssi.tier_tau(np.array(list(itertools.permutations((0.0, 1.0, 2.0)))))
    assert taus.mean() == pytest.approx(expected, abs=tolerance)
    assert (taus == 1.0).mean() == pytest.approx(1 / 6)  # F.6: 17 % of cells in full order by chance


def thirds(total, cells):
    """One tau for each cell, of 1, 1/3, -1/3 and -1, that sum to total / 3."""
    units = [-3] * cells
    for i in range(cells):
        units[i] += min(6, total - sum(units))
    assert sum(units) == total
    return [u / 3 for u in units]


def table_of_taus(taus, signs):
    """A table whose cells have these taus: {feature: [tau, ...]}."""
    cells = len(next(iter(taus.values())))
    columns = {
        name: [signs[name] * m for tau in values for m in MEANS[min(MEANS, key=lambda t: abs(t - tau))]]
        for name, values in taus.items()
    }
    return {"cell": np.repeat(np.arange(cells), 3), "tier": list(ssi.TIERS) * cells, **columns}


@pytest.mark.parametrize("name", [n for n in FIGURES if n.startswith(("os.t16", "os.t18"))])
def test_ssi_is_the_mean_of_the_seven_mean_taus(name):
    """Tables 16 and 18: every printed tau is k / (3 |C_f|) with |C_f| = 35 and 19."""
    inputs, expected, tolerance = figure(name)
    taus = {f: thirds(k, inputs["n_cells"]) for f, k in zip(FEATURES, inputs["tau_thirds_sum"], strict=True)}
    result = ssi.semantic_sensitivity_index(table_of_taus(taus, FEATURES))
    assert result.cells == dict.fromkeys(FEATURES, inputs["n_cells"])
    for feature, printed in inputs["tau_printed"].items():
        assert result.tau[feature] == pytest.approx(printed, abs=0.005)
    assert result.ssi == pytest.approx(expected, abs=tolerance)


T16 = {"per_obstacle": "+ Per obstacle", "collision_risk": "+ Collision risk", "2step": "2-step"}


@pytest.mark.parametrize("name", T16)
def test_differences_to_the_baseline(name):
    """Table 2 prints the difference of the rounded values of Table 16."""
    inputs, expected, tolerance = figure(f"os.t2.delta.{name}")

    def printed(method):
        return round(sum(FIGURES[f"os.t16.{method}"]["inputs"]["tau_thirds_sum"]) / (7 * 3 * 35), 2)

    assert printed(T16[name]) == pytest.approx(inputs["ssi"])
    assert printed(T16[name]) - printed("VoxPoser") == pytest.approx(expected[1], abs=tolerance)


def taus_with_mean(mean, cells=35):
    """Taus of 1, sqrt(2/3), 1/3 and 0 whose mean is within rounding of a printed one."""
    values = np.array([1.0, math.sqrt(2 / 3), 1 / 3, 0.0])
    counts = np.indices((cells + 1,) * 3).reshape(3, -1).T
    counts = counts[counts.sum(axis=1) <= cells]
    best = counts[np.argmin(np.abs(counts @ values[:3] / cells - mean))]
    return np.repeat(values, [*best, cells - best.sum()]).tolist()


@ids("os.t26")
def test_value_level_ssi_of_two_values(name):
    """Table 26: SSI (d, v) and (d, v/d) are the means of the two taus."""
    inputs, expected, tolerance = figure(name)
    signs = {"clearance": 1, "speed": -1, "speed_over_clearance": -1}
    taus = {f: taus_with_mean(inputs[k]) for f, k in zip(signs, ("tau_d", "tau_v", "tau_vd"), strict=True)}
    table = table_of_taus(taus, signs)
    for pair, want in zip((("clearance", "speed"), ("clearance", "speed_over_clearance")), expected, strict=True):
        result = ssi.semantic_sensitivity_index(table, {f: signs[f] for f in pair})
        assert result.ssi == pytest.approx(want, abs=tolerance)


# --- outcomes ----------------------------------------------------------------------------------------------------


@ids("os.t12.ratio")
def test_ratio_of_collision_free_success_to_success(name):
    inputs, expected, tolerance = figure(name)
    s = navigation.summarize(episodes(1000, round(10 * inputs["TSR"]), round(10 * inputs["CFSR"])))
    assert 100 * s.tsr == pytest.approx(inputs["TSR"]) and 100 * s.cfsr == pytest.approx(inputs["CFSR"])
    assert 100 * s.cfsr_over_tsr == pytest.approx(expected, abs=tolerance)


@ids("os.t14.std")
def test_mean_and_population_deviation_over_seeds(name):
    inputs, expected, tolerance = figure(name)
    every = [
        e for seed, k in enumerate(inputs["success_counts"]) for e in episodes(inputs["n_per_seed"], k, 0, seed=seed)
    ]
    _, values = navigation.by_seed(every)
    assert [100 * values["tsr"].mean, 100 * values["tsr"].std] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("name", ["os.t14.XR-1", "os.t14.GR00T N1.5"])
def test_breakdown_by_route_adds_up(name):
    """Table 14: 270 tasks a route, 255 on Route F, give the overall rate."""
    inputs, expected, tolerance = figure(name)
    every = []
    for route, rate in zip("ABCDEFG", inputs["routes_A_to_G"], strict=True):
        n = 255 if route == "F" else 270
        every += episodes(n, round(rate * n / 100), 0, route=route)
    rows = navigation.breakdown(every, "route")
    assert 100 * navigation.summarize(every).tsr == pytest.approx(expected[0], abs=tolerance)
    for route, rate in zip("ABCDEFG", inputs["routes_A_to_G"], strict=True):
        assert 100 * rows[route].tsr == pytest.approx(rate, abs=0.05)
    assert np.mean([100 * rows[r].tsr for r in "ABCDG"]) == pytest.approx(expected[2], abs=tolerance)
    assert over_seeds(inputs["layouts"]).mean == pytest.approx(expected[1], abs=tolerance)


@ids("os.t4")
def test_flips_between_two_styles(name):
    inputs, expected, tolerance = figure(name)
    free_before, free_after = inputs["CFSR_counts"]
    before = {f"t{i}": i < free_before for i in range(625)}
    after = dict(before)
    for i in range(inputs["S_to_F"]):
        after[f"t{i}"] = False
    for i in range(inputs["F_to_S"]):
        after[f"t{624 - i}"] = True
    flips = outcome_flips(before, after)
    assert len(flips.success_to_failure) == inputs["S_to_F"] and len(flips.failure_to_success) == inputs["F_to_S"]
    assert (flips.n, flips.before, flips.after) == (625, free_before, free_after)
    tsr = [100 * navigation.summarize(episodes(625, k, 0)).tsr for k in inputs["TSR_counts"]]
    cfsr = [100 * k / flips.n for k in (flips.before, flips.after)]
    assert [*tsr, *cfsr] == pytest.approx(expected[:4], abs=tolerance)


def test_every_rate_of_the_third_question_is_a_whole_number_of_tasks():
    """Tables 3, 21b, 24c and 25."""
    rates, counts, tolerance = figure("os.rq3.integers")
    for rate, count in zip(rates, counts, strict=True):
        assert 100 * navigation.summarize(episodes(625, count, 0)).tsr == pytest.approx(rate, abs=tolerance)


def test_failures_of_the_waypoint_policies():
    """E.3: pipeline interruption, terminal orientation, not reached."""
    inputs, expected, tolerance = figure("os.pivot_breakdown")
    kinds = ("pipeline_error", "heading", "stagnation")
    failures = [Failure(k, None) for k, n in zip(kinds, inputs["counts"], strict=True) for _ in range(n)]
    counts = class_counts(failures)
    assert [100 * counts[k] / len(failures) for k in kinds] == pytest.approx(expected, abs=tolerance)
    rates, total, slack = figure("os.pivot_failures")
    n = 8 * 1875
    solved = sum(navigation.summarize(episodes(1875, round(18.75 * r), 0)).n_success for r in rates["TSR"])
    assert n - solved == pytest.approx(total, abs=slack) and total == len(failures)


def test_failures_of_the_learned_policies():
    rates, total, slack = figure("os.vla_failures")
    solved = sum(navigation.summarize(episodes(1875, round(18.75 * r), 0)).n_success for r in rates["TSR"])
    assert 4 * 1875 - solved == pytest.approx(total, abs=slack)


def test_slow_speed_stalls():
    """Table 20: the row of all failures follows from the two groups."""
    columns = {
        "R_C_cm": "clearance_m",
        "R_V_cm": "region_m",
        "start_m": "start_m",
        "end_m": "end_m",
        "obstacle_m": "obstacle_m",
    }
    groups = []
    for group, contact, n in (("timeout", False, 17), ("contact", True, 5)):
        v = {k: FIGURES[f"os.t20.{k}"]["inputs"][group] for k in columns}
        asked = RequestedControl(v["R_C_cm"] / 100, 0.2, v["R_V_cm"] / 100)
        one = Failure(
            "slow_speed_stall", contact, v["start_m"], v["end_m"], obstacle_distance=v["obstacle_m"], requested=asked
        )
        groups += [one] * n
    table = stall_table(groups)
    assert (table["time-out, no contact"].n, table["contact"].n, table["all"].n) == (17, 5, 22)
    for key, name in columns.items():
        _, expected, tolerance = figure(f"os.t20.{key}")
        scale = 100 if key.endswith("cm") else 1
        assert scale * getattr(table["all"], name) == pytest.approx(expected, abs=tolerance + 1e-9)


def test_share_of_tasks_whose_speed_takes_effect():
    """Table 2, column Vel.: 369 of 625."""
    inputs, expected, tolerance = figure("os.vel59")
    k, n = inputs["k"], inputs["n"]
    asked = [RequestedControl(0.393, 0.5, 0.9 if i < k else 0.5) for i in range(n)]
    table = {"tier": ["low"] * n, **requested.request_columns(asked)}
    assert 100 * requested.velocity_region_fraction(table) == pytest.approx(expected, abs=tolerance)


def test_decisions_of_the_six_selection_conditions():
    """Table 23."""
    inputs, expected, _ = figure("os.t23")
    one = Decision("t", [np.zeros((2, 2)), np.ones((2, 2))], [False, True], 0)
    assert sum(summarize_selection([one] * n).n for n in inputs) == expected


def test_number_of_tasks():
    """Table 1: 5 layouts, 7 routes, 18 obstacles, without the human on the route to the human."""
    _, expected, _ = figure("os.total")
    found = tuple(tasks())
    assert len(found) == len(set(found)) == expected


# --- reference paths ---------------------------------------------------------------------------------------------


def drives(layout=None, route=None):
    rows = [r for r in DRIVES if layout in (None, r[0]) and route in (None, r[1])]
    every = [
        NavigationEpisode(f"{r[0]}{r[1]}", f"{r[0]}{r[1]}", True, 0, path_length=r[3], duration=r[4]) for r in rows
    ]
    return rows, every


def test_path_length_of_the_reference_drives():
    """NPL divides by the planned length, NPT by the driven time: even the reference drives have NPL 1.222."""
    _, expected, tolerance = figure("os.ref.npl_of_reference_drive")
    rows, every = drives()
    paths = {f"{r[0]}{r[1]}": ReferencePath(r[2], r[4]) for r in rows}
    s = navigation.summarize(every, paths)
    each = [navigation.summarize([e], paths).npl for e in every]
    assert [s.npl, min(each), max(each)] == pytest.approx(expected, abs=tolerance)
    assert s.npt == pytest.approx(1.0) and s.counts["npl"] == 35


@ids("os.ref.overall")
def test_reference_paths_overall(name):
    _, expected, tolerance = figure(name)
    column = {"planned": 2, "executed": 3, "time": 4, "detour": 5}[name.rsplit(".", 1)[1]]
    values = [r[column] for r in DRIVES]
    assert [over_seeds(values).mean, min(values), max(values), math.fsum(values)] == pytest.approx(
        expected, abs=tolerance
    )


@pytest.mark.parametrize("name", [n for n in FIGURES if n.startswith(("os.ref.layout", "os.ref.route"))])
def test_reference_paths_by_layout_and_route(name):
    inputs, expected, tolerance = figure(name)
    rows, _ = drives(**inputs)
    values = [f for c in (2, 3, 4, 5) for f in (np.mean([r[c] for r in rows]), math.fsum(r[c] for r in rows))]
    assert values == pytest.approx(expected, abs=tolerance)


# --- kinematics --------------------------------------------------------------------------------------------------


def test_jerk_of_a_cubic_is_exact_at_every_sample():
    inputs, expected, tolerance = figure("os.kin.cubic")
    t = inputs["dt"] * np.arange(inputs["T"])
    j = jerk(t**3, 2 * t**3, inputs["dt"])
    assert len(j) == inputs["T"] and [j.min(), j.max()] == pytest.approx(expected, abs=tolerance)


def test_acceleration_of_a_parabola():
    inputs, expected, tolerance = figure("os.kin.quadratic")
    t = inputs["dt"] * np.arange(inputs["T"])
    path = np.column_stack((t**2, 0 * t))
    got = motion_features(path, np.ones(len(t)), np.zeros(len(t)), inputs["dt"])
    assert [got.mu_a, got.M_a] == pytest.approx(expected[:2], abs=tolerance)
    inside_only_at_the_end = np.where(np.arange(len(t)) >= expected[2], 1.0, 2.0)
    assert math.isnan(motion_features(path, inside_only_at_the_end, np.zeros(len(t))).mu_a)


def test_acceleration_on_a_circle_at_constant_speed():
    inputs, expected, tolerance = figure("os.kin.circle_acc")
    t = inputs["dt"] * np.arange(40)
    got = motion_features(np.column_stack((np.cos(t), np.sin(t))), np.ones(40), np.zeros(40), inputs["dt"])
    assert got.mu_a == pytest.approx(expected[0], abs=tolerance)
