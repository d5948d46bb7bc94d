"""Batch scoring equals the monitor, and other thresholds equal a library with those thresholds."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics.batch import (
    SignalColumns,
    columns_of,
    contact_of,
    evaluate_clauses,
    score_columns,
)
from osma_monitor.core.metrics.safety import as_table, by_group, macro_average, score_records, summarize
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.core.metrics.sensitivity import (
    FORCE_FAMILIES,
    STANDARD,
    Variant,
    apply_variant,
    needed_signals,
    sensitivity,
)
from osma_monitor.core.metrics.stored import table_from_rows
from osma_monitor.core.monitor import MonitorConfig, rescore
from osma_monitor.core.safety import Clause, GateSemantics, Library, load_library, load_registry
from osma_monitor.resources import config_path

LIBRARY = load_library(config_path("safety", "library.yaml").read_text())
REGISTRY = load_registry(config_path("safety", "registry.yaml").read_text())
MAIN = tuple(clause for clause in LIBRARY if clause.tier == "main")
READ = sorted({signal for clause in LIBRARY for signal in clause.signals})
FIELDS = ("rho", "lower", "upper", "triggered", "unknown_samples", "violated_steps", "longest_run")

SCALE = {
    "arm_furniture_contact_force": 120,
    "contact_force_max": 130,
    "target_furniture_contact_force": 120,
    "non_target_disp_max": 0.006,
    "target_obj_tilt_world_deg": 12,
    "obj_above_table": 0.06,
    "max_joint_torque": 60,
    "robot_contact_force": 1,
}


def signals(rng: np.random.Generator, steps: int, lost: float = 0.0) -> dict[str, Any]:
    found = {}
    for name in [*READ, "robot_contact_force"]:
        if name in ("gripper_contact", "transport", "self_collision"):
            column = (rng.random(steps) < (0.02 if name == "self_collision" else 0.4)).astype(float)
        else:
            column = rng.standard_normal(steps) * SCALE.get(name, 0.2)
        gone = rng.random(steps) < lost
        column[gone] = np.where(rng.random(gone.sum()) < 0.5, np.nan, np.inf)
        found[name] = column
    return found


def episode(
    seed: int, steps: int = 30, lost: float = 0.0, semantics: GateSemantics = "boolean", **info: Any
) -> EpisodeRecord:
    rng = np.random.default_rng(seed)
    templates = info.pop("templates", ("pnp_basic",))
    described = EpisodeInfo(f"e{seed}", seed=seed, templates=templates, **info)
    return rescore(
        described,
        Outcome("success" if rng.random() < 0.6 else "failure", steps=steps),
        np.cumsum(rng.integers(10**7, 10**8, steps)) + 10**9,
        signals(rng, steps, lost),
        [""] * steps,
        MonitorConfig(LIBRARY, REGISTRY, gate_semantics=semantics, prediction_horizon=0.0),
        {},
    )


def data_set(n: int = 40, lost: float = 0.0) -> list[EpisodeRecord]:
    templates = [("pnp_basic",), ("knob_twist",), ("articulated_manipulation",)]
    return [
        episode(
            i,
            20 + i % 17,
            lost if i % 3 else 0.0,
            suite=f"s{i % 2}",
            policy=f"p{i // 2 % 3}",
            task=f"t{i % 5}",
            templates=templates[i % 3],
        )
        for i in range(n)
    ]


def active_of(records: list[EpisodeRecord], clauses: tuple[Clause, ...]) -> Any:
    return np.array([[c.id in {r.clause for r in record.clauses} for c in clauses] for record in records])


def table_of(records: list[EpisodeRecord], semantics: GateSemantics = "boolean") -> ScoreTable:
    shown = tuple(c for c in LIBRARY if c.tier in ("main", "report-only"))
    columns = columns_of(records, [*READ, "robot_contact_force"])
    return score_columns(
        evaluate_clauses(shown, columns, semantics),
        active_of(records, shown),
        np.array([int(bool(r.outcome.success)) for r in records], np.int8),
        {key: [getattr(r.info, key) for r in records] for key in ("suite", "policy", "task", "seed", "episode_id")},
        np.diff(columns.offsets),
        contact=contact_of(columns),
        library_hash=LIBRARY.hash,
        registry_hash=records[0].provenance.registry_hash,
        gate_semantics=semantics,
    )


@pytest.mark.parametrize("semantics", ["boolean", "quantitative"])
@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_batch_equals_the_monitor_to_the_last_bit(semantics: GateSemantics, lost: float) -> None:
    records = [episode(i, 15 + i, lost, semantics) for i in range(12)]
    columns = columns_of(records, READ)
    clauses = tuple(c for c in LIBRARY if c.tier in ("main", "report-only"))
    found = evaluate_clauses(clauses, columns, semantics)
    for e, record in enumerate(records):
        results = {r.clause: r for r in record.clauses}
        for c, clause in enumerate(clauses):
            result = results[clause.id]
            for name in FIELDS:
                value, expected = getattr(found, name)[e, c], getattr(result, name)
                assert value == expected or (math.isnan(value) and math.isnan(expected)), (clause.id, name)
            first = -1 if result.first_violation_step is None else result.first_violation_step
            assert found.first_violation_step[e, c] == first


FORMULAS = (
    "always (base_x < 1)",
    "base_x < 1",
    "historically (base_x < 1)",
    "always (once[0,0.2] (base_x < 1))",
    "always (base_x > 0 -> base_y < 0.5)",
    "always (base_x < 0 or base_y < 0)",
)


@given(
    st.lists(
        st.lists(st.sampled_from([-1.0, 0.5, 1.0, 2.0, math.nan, math.inf]), min_size=1, max_size=9),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(FORMULAS),
)
def test_any_formula_equals_its_monitor(rows: list[list[float]], formula: str) -> None:
    clause = Clause("c", "f", "execution", "main", formula, 1.0, 2.0, "m", "test", "base_x")
    values = np.concatenate([np.array(row) for row in rows])
    other = values[::-1].copy()
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    stamps = np.concatenate([np.arange(1, len(row) + 1) * 50_000_000 for row in rows])
    found = evaluate_clauses([clause], SignalColumns(stamps, {"base_x": values, "base_y": other}, offsets))
    for e in range(len(rows)):
        library = stl.Library(stl.parse(formula))
        broken = []
        for i in range(offsets[e], offsets[e + 1]):
            point = {"base_x": values[i], "base_y": other[i]}
            update = library.update(int(stamps[i]), np.array([point[name] for name in library.signals]))
            broken.append(bool(update.now_upper[0] < 0))
        verdict = library.close()
        assert found.lower[e, 0] == verdict.lower[0] and found.upper[e, 0] == verdict.upper[0]
        assert found.violated_steps[e, 0] == sum(broken)
        assert found.first_violation_step[e, 0] == (broken.index(True) if any(broken) else -1)
        runs = "".join("x" if b else " " for b in broken).split()
        assert found.longest_run[e, 0] == max(map(len, runs), default=0)


def test_scores_of_columns_equal_scores_of_records() -> None:
    records = data_set(lost=0.02)
    from_records, from_columns = as_table(score_records(records)), table_of(records)
    assert summarize(from_columns, bootstrap=False) == summarize(from_records, bootstrap=False)
    assert by_group(from_columns, ("suite", "policy"), resamples=50) == by_group(
        from_records, ("suite", "policy"), resamples=50
    )
    order = [from_records.index(clause) for clause in from_columns.clauses]
    for name in ("active", "rho", "depth", "violated_steps", "longest_run", "first_violation_step"):
        assert np.array_equal(
            getattr(from_columns, name), getattr(from_records, name)[:, order], equal_nan=name == "rho"
        ), name
    assert np.array_equal(from_columns.contact, from_records.contact)
    for clause, rho in from_records.reported.items():
        assert np.array_equal(from_columns.reported[clause], rho, equal_nan=True)
        assert np.array_equal(from_columns.reported_active[clause], from_records.reported_active[clause])


def rows_of(records: list[EpisodeRecord]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Records as the tables of a compacted data set."""
    episodes: dict[str, list[Any]] = {
        **{key: [getattr(r.info, key) for r in records] for key in ("suite", "policy", "task", "seed", "episode_id")},
        "outcome": [r.outcome.status for r in records],
        "rows": [len(r.stamps_ns) for r in records],
        "complete": [r.complete for r in records],
        "partial": [r.partial for r in records],
        "library_hash": [r.provenance.library_hash for r in records],
        "registry_hash": [r.provenance.registry_hash for r in records],
        "gate_semantics": [r.provenance.gate_semantics for r in records],
    }
    pairs = [(e, c) for e, record in enumerate(records) for c in record.clauses]
    names = [f.name for f in dataclasses.fields(pairs[0][1])]
    return episodes, {"episode": [e for e, _ in pairs]} | {n: [getattr(c, n) for _, c in pairs] for n in names}


def test_scores_of_stored_rows_equal_scores_of_records() -> None:
    records = data_set(lost=0.02)
    records[3] = dataclasses.replace(records[3], outcome=Outcome("aborted"))
    records[4] = dataclasses.replace(records[4], complete=False)
    contact = contact_of(columns_of(records, ["robot_contact_force"]))
    found, expected = table_from_rows(*rows_of(records), contact), as_table(score_records(records))
    assert found.clauses == expected.clauses
    assert np.array_equal(found.unknown, expected.unknown) and found.unknown.any()
    for name in set(ScoreTable.__dataclass_fields__) - {"undecided"}:
        a, b = getattr(found, name), getattr(expected, name)
        if name in ("keys", "reported", "reported_active"):
            assert all(np.array_equal(a[k], b[k], equal_nan=name == "reported") for k in a)
        elif isinstance(a, np.ndarray):
            assert np.array_equal(a, b, equal_nan=name == "rho"), name
        else:
            assert a == b, name


def test_an_attribute_never_replaces_a_key() -> None:
    records = data_set(4)
    extra = [str(e) for e in range(4)]
    found = table_from_rows(*rows_of(records), attributes={"policy": extra, "cell": extra})
    assert list(found.column("policy")) == [r.info.policy for r in records]
    assert list(found.column("cell")) == extra


def test_stored_rows_that_do_not_fit() -> None:
    episodes, clauses = rows_of(data_set(3))
    with pytest.raises(ValueError, match="episodes lacks outcome"):
        table_from_rows({k: v for k, v in episodes.items() if k != "outcome"}, clauses)
    with pytest.raises(ValueError, match=r"columns of unequal length: .*outcome 2"):
        table_from_rows(episodes | {"outcome": ["success"] * 2}, clauses)
    with pytest.raises(ValueError, match="row of episode 7, but there are 3"):
        table_from_rows(episodes, clauses | {"episode": [7, *clauses["episode"][1:]]})
    with pytest.raises(ValueError, match="occurs twice"):
        table_from_rows(episodes, clauses | {"clause": ["x"] * len(clauses["clause"])})
    with pytest.raises(ValueError, match="column cell has 1 entries for 3 episodes"):
        table_from_rows(episodes, clauses, attributes={"cell": ["x"]})
    none = {key: [] for key in clauses}
    assert len(table_from_rows({key: [] for key in episodes}, none)) == 0
    assert summarize(table_from_rows(episodes, none), bootstrap=False).n_unknown == 3


def test_episodes_without_steps_and_no_episodes() -> None:
    nothing = {name: np.zeros(0) for name in READ}
    empty = evaluate_clauses(MAIN, SignalColumns(np.zeros(0, np.int64), nothing, np.array([0, 0, 0])))
    assert empty.upper.shape == (2, 8) and np.isinf(empty.upper).all() and (empty.first_violation_step == -1).all()
    none = evaluate_clauses(MAIN, SignalColumns(np.zeros(0, np.int64), nothing, np.array([0])))
    assert none.upper.shape == (0, 8)
    assert (
        len(contact_of(SignalColumns(np.zeros(0, np.int64), {"robot_contact_force": np.zeros(0)}, np.array([0])))) == 0
    )
    assert columns_of([], READ).offsets.tolist() == [0]


def test_columns_that_do_not_fit() -> None:
    columns = {name: np.zeros(4) for name in READ}
    short = SignalColumns(np.arange(1, 5), columns | {"contact_force_max": np.zeros(3)}, np.array([0, 4]))
    with pytest.raises(stl.TraceError, match="contact_force_max"):
        evaluate_clauses(MAIN, short)
    del columns["contact_force_max"]
    with pytest.raises(stl.UnknownSignalError, match="contact_force_max"):
        evaluate_clauses(MAIN, SignalColumns(np.arange(1, 5), columns, np.array([0, 4])))


def test_offsets_that_do_not_fit() -> None:
    columns = {name: np.zeros(4) for name in READ}
    for offsets in ([0, 3], [1, 4], [0, 4, 2, 4]):
        with pytest.raises(stl.TraceError):
            evaluate_clauses(MAIN, SignalColumns(np.arange(1, 5), columns, np.array(offsets)))


def test_score_columns_of_unequal_length() -> None:
    found = evaluate_clauses(MAIN, columns_of([episode(0)], READ))
    fits = (np.ones((1, 8), bool), np.ones(1, np.int8), {"suite": ["s"]}, np.array([30]))
    assert len(score_columns(found, *fits)) == 1
    with pytest.raises(ValueError, match="success has 2 entries for 1 episodes"):
        score_columns(found, fits[0], np.ones(2, np.int8), fits[2], fits[3])
    with pytest.raises(ValueError, match="suite has 2 entries for 1 episodes"):
        score_columns(found, fits[0], fits[1], {"suite": ["s", "t"]}, fits[3])


# ---- other thresholds


def with_thresholds(variant: Variant) -> Library:
    clauses = [variant.clause(c, LIBRARY) if c.tier == "main" else c for c in LIBRARY]
    return dataclasses.replace(LIBRARY, clauses=tuple(clauses))


def judged_again(record: EpisodeRecord, library: Library) -> EpisodeRecord:
    config = MonitorConfig(library, REGISTRY, prediction_horizon=0.0)
    return rescore(
        record.info, record.outcome, record.stamps_ns, record.signals, record.obstacle, config, record.missing
    )


@pytest.mark.parametrize("variant", [v for v in STANDARD if v.thresholds], ids=lambda v: v.name)
def test_a_variant_equals_a_library_with_its_thresholds(variant: Variant) -> None:
    records = data_set(24)
    columns = columns_of(records, READ)
    found = apply_variant(score_records(records), columns, LIBRARY, variant)
    expected = as_table(score_records([judged_again(r, with_thresholds(variant)) for r in records]))
    for name in ("rho", "depth", "violated_steps", "longest_run", "first_violation_step"):
        assert np.array_equal(getattr(found, name), getattr(expected, name), equal_nan=name == "rho"), name


def test_severity_anchors_of_variants() -> None:
    def anchors(name: str) -> set[float]:
        variant = next(v for v in STANDARD if v.name == name)
        return {variant.clause(c, LIBRARY).severe for c in MAIN if c.family in variant.thresholds}

    assert anchors("force 100 N") == {200} and anchors("force 500 N") == {1000}
    assert anchors("displacement 10 mm") == {0.02} and anchors("displacement 50 mm") == {0.15}
    assert anchors("torque 176 N m") == {352} and anchors("tilt 20 deg") == {40}


@pytest.mark.parametrize(
    ("forces", "k", "state"),
    [
        ([250, math.nan, 250, 0], 2, "unknown"),  # the lost step may have been above too
        ([250, math.nan, 250, 0], 4, "safe"),
        ([250, 0, math.nan, 0], 2, "safe"),
        ([250, 0, math.nan, math.nan], 2, "unknown"),
        ([250, 250, math.nan, 0], 2, "unsafe"),
        ([250, 0, 250, 0], 2, "safe"),
        ([100, 0, math.nan, 0], 1, "unknown"),
    ],
)
def test_lost_steps_in_a_sustained_violation(forces: list[float], k: int, state: str) -> None:
    (record,) = data_set(1)
    quiet = {name: np.zeros(4) for name in record.signals} | {"contact_force_max": np.array(forces, float)}
    config = MonitorConfig(LIBRARY, REGISTRY)
    stamps = np.arange(1, 5, dtype=np.int64) * 50_000_000
    judged = rescore(record.info, Outcome("success"), stamps, quiet, [""] * 4, config, {})
    columns = columns_of([judged], READ)
    variant = Variant("sustained", sustained={"max_contact_force": k})
    found = apply_variant(as_table(score_records([judged])), columns, LIBRARY, variant)
    c = found.index("max_contact_force_under_200N")
    assert bool(found.violated[0, c]) == (state == "unsafe") and bool(found.unknown[0, c]) == (state == "unknown")
    assert found.depth[0, c] == (0.25 if state == "unsafe" else 0.0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sustained_violations_by_hand(k: int) -> None:
    records = data_set(24)
    columns = columns_of(records, READ)
    variant = Variant("sustained", sustained=dict.fromkeys(FORCE_FAMILIES, k))
    base = as_table(score_records(records))
    found = apply_variant(base, columns, LIBRARY, variant)
    for c, name in enumerate(base.clauses):
        clause = LIBRARY[name]
        for e, record in enumerate(records):
            if not base.active[e, c]:
                continue
            expected = base.depth[e, c]
            if clause.family in FORCE_FAMILIES:
                above = "".join("x" if v > clause.threshold else " " for v in record.signals[clause.signal]).split()
                longest = max(map(len, above), default=0)
                peak = max(record.signals[clause.signal])
                expected = clause.depth(clause.threshold - peak) if longest >= k else 0.0
                assert (found.rho[e, c] < 0) == (longest >= k)
            assert found.depth[e, c] == pytest.approx(expected)


def test_sensitivity_cells() -> None:
    records = data_set(36)
    columns = columns_of(records, needed_signals(LIBRARY))
    scores = score_records(records)
    found = sensitivity(scores, columns, LIBRARY)
    assert list(found.variants) == [v.name for v in STANDARD]
    assert found.default == by_group(scores, ("suite", "policy"), bootstrap=False)
    safe = {name: macro_average(cells.values()).values["safety"] for name, cells in found.variants.items()}
    default = macro_average(found.default.values()).values["safety"]
    assert safe["force 100 N"] <= default <= safe["force 500 N"] <= safe["all relaxed"]
    assert default <= safe["force for 2 steps"]
    assert set(found.scope.values()) == {"moderate", "extreme", "duration"}


def test_an_inactive_clause_stays_inactive() -> None:
    records = [episode(i, templates=("articulated_manipulation",)) for i in range(4)]
    found = apply_variant(
        score_records(records), columns_of(records, READ), LIBRARY, Variant("v", {"arm_furniture_force": 0.001})
    )
    assert "arm_furniture_force_under_200N" not in found.clauses


def test_unknown_samples_stay_unknown_under_other_thresholds() -> None:
    records = [episode(3, lost=0.2)]
    found = apply_variant(
        score_records(records), columns_of(records, READ), LIBRARY, Variant("v", {"joint_torque": 1e6})
    )
    c = found.index("joint_torque_under_87Nm")
    assert math.isnan(found.rho[0, c]) and found.unknown[0, c]


@pytest.mark.parametrize(
    ("variant", "error", "message"),
    [
        (Variant("v", {"force": 1.0}), UserError, "no scored clause of family 'force'"),
        (Variant("v", sustained={"x": 2}), UserError, "no scored clause of family 'x'"),
        (Variant("v", sustained={"joint_torque": 0}), UserError, "at least 1 step"),
        (Variant("v", {"self_collision_free": 2.0}), UserError, "no threshold that can be varied"),
    ],
)
def test_variants_that_make_no_sense(variant: Variant, error: type[Exception], message: str) -> None:
    records = [episode(0)]
    with pytest.raises(error, match=message):
        apply_variant(score_records(records), columns_of(records, READ), LIBRARY, variant)


def test_other_episodes_are_refused() -> None:
    records = [episode(0), episode(1)]
    with pytest.raises(ValueError, match="1 scores for the signals of 2 episodes"):
        apply_variant(score_records(records[:1]), columns_of(records, READ), LIBRARY, STANDARD[0])
    with pytest.raises(ValueError, match="two variants share a name"):
        sensitivity(score_records(records), columns_of(records, READ), LIBRARY, [STANDARD[0]] * 2)


@cache
def nine_episodes() -> tuple[ScoreTable, SignalColumns]:
    records = data_set(9)
    return as_table(score_records(records)), columns_of(records, READ)


@settings(max_examples=25)
@given(st.floats(1, 600), st.floats(1, 600))
def test_a_tighter_threshold_is_never_safer(a: float, b: float) -> None:
    scores, columns = nine_episodes()
    tight, wide = (
        apply_variant(scores, columns, LIBRARY, Variant("v", {"max_contact_force": t})) for t in sorted((a, b))
    )
    c = tight.index("max_contact_force_under_200N")
    assert (tight.violated[:, c] >= wide.violated[:, c]).all()
