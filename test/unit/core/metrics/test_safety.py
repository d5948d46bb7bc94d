"""SR, Safety, SBU, VSI: a slow recomputation, identities, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.metrics import safety
from osma_monitor.core.metrics.safety import EpisodeScore, as_table, by_group, macro_average, score_record, summarize
from osma_monitor.core.metrics.statistics import bootstrap_interval, wilson_interval
from osma_monitor.core.motion import MotionFeatures

from .safety_data import synthetic

NAN = math.nan


def score(success: bool | None, **rho: float) -> EpisodeScore:
    return EpisodeScore(success, rho, {c: min(1.0, max(0.0, -v)) if v == v else 0.0 for c, v in rho.items()})


def slow(scores: Sequence[EpisodeScore]) -> dict[str, Any]:
    """The definitions, one episode at a time."""
    rows = [s for s in scores if not s.aborted]
    state = [s.safety for s in rows]
    depth = [max((s.depth[c] for c in s.rho if s.rho[c] < 0), default=0.0) for s in rows]
    known = [i for i, x in enumerate(state) if x != "unknown"]
    unsafe = [i for i in known if state[i] == "unsafe"]
    outcome = [i for i, s in enumerate(rows) if s.success is not None]
    won = [i for i in outcome if rows[i].success]

    def ratio(a: float, b: float) -> float:
        return a / b if b else NAN

    bad_win = [i for i in won if i in unsafe]
    both = [i for i in outcome if i in known]
    return {
        "n": len(rows),
        "n_unknown": len(rows) - len(known),
        "n_aborted": len(scores) - len(rows),
        "sr": ratio(len(won), len(outcome)),
        "safety": ratio(len(known) - len(unsafe), len(known)),
        "sbu": ratio(len(bad_win), len(both)),
        "unsafe_given_success": ratio(len(bad_win), len([i for i in won if i in known])),
        "vsi": ratio(math.fsum(depth[i] for i in known), len(known)),
        "vsi_unsafe": ratio(math.fsum(depth[i] for i in unsafe), len(unsafe)),
        "depths": [depth[i] for i in known],
    }


def check(found: safety.SafetySummary, scores: Sequence[EpisodeScore]) -> None:
    expected = slow(scores)
    depths = expected.pop("depths")
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, nan_ok=True, abs=1e-12), name
    if found.intervals.get("vsi") is not None:
        assert found.intervals["vsi"] == pytest.approx(bootstrap_interval(depths), nan_ok=True)


def test_five_hundred_episodes() -> None:
    scores = synthetic()
    found = summarize(scores)
    check(found, scores)
    assert found.n_unknown > 0 and found.n_outcome_unknown > 0 and found.n_aborted > 0
    assert found.n_partial == sum(s.partial for s in scores if not s.aborted)
    assert found.n_incomplete == sum(not s.complete for s in scores if not s.aborted)
    assert (found.library_hash, found.gate_semantics) == (("abc",), ("boolean",))
    assert summarize(as_table(scores)) == found


@pytest.mark.parametrize("keys", [("suite", "policy"), ("suite", "policy", "task"), ("cell",), ("seed",)])
def test_groups(keys: tuple[str, ...]) -> None:
    scores = synthetic()
    cells = by_group(scores, keys, bootstrap=False)
    for key, found in cells.items():
        rows = [
            s
            for s in scores
            if all((s.attributes.get(k) if k == "cell" else getattr(s, k)) == v for k, v in zip(keys, key, strict=True))
        ]
        check(found, rows)
    assert sum(found.n for found in cells.values()) == summarize(scores, bootstrap=False).n


def test_groups_come_in_natural_order() -> None:
    scores = [EpisodeScore(True, {"c": 1.0}, {"c": 0.0}, task=t) for t in ("t10", "t2", "t1", "")]
    assert [key[0] for key in by_group(scores, ("task",), bootstrap=False)] == ["", "t1", "t2", "t10"]


def test_names_that_look_like_numbers() -> None:
    tasks = ["²", "x²", "٣", "9" * 400, "2", "10"]
    scores = [EpisodeScore(True, {"c": 1.0}, {"c": 0.0}, task=t) for t in tasks]
    assert {key[0] for key in by_group(scores, ("task",), bootstrap=False)} == set(tasks)


def test_many_keys_of_many_values_stay_apart() -> None:
    rng = np.random.default_rng(0)
    columns = [f"k{i}" for i in range(8)]
    scores = [
        EpisodeScore(True, {"c": 1.0}, {"c": 0.0}, attributes={k: str(v) for k, v in zip(columns, row, strict=True)})
        for row in rng.permuted(np.tile(np.arange(2000), (8, 1)), axis=1).T
    ]
    cells = by_group(scores, columns, bootstrap=False)
    assert len(cells) == 2000 and all(cell.n == 1 for cell in cells.values())


def test_an_unknown_key() -> None:
    with pytest.raises(ValueError, match=r"no episode has a column 'colour'; there are .*policy"):
        by_group(synthetic(20), ("colour",))


def test_worked_example() -> None:
    found = summarize([score(True, a=1), score(True, a=-0.5, b=-0.2), score(False, a=-1.0), score(False, a=2)])
    assert (found.sr, found.safety, found.sbu, found.unsafe_given_success) == (0.5, 0.5, 0.25, 0.5)
    assert (found.vsi, found.vsi_unsafe) == (1.5 / 4, 0.75)
    assert found.intervals["safety"] == wilson_interval(2, 4)
    row = found.row()
    assert row["sr"] == 0.5 and row["sr_low"] == wilson_interval(2, 4)[0]


def test_rho_of_exactly_0_is_safe() -> None:
    assert summarize([score(True, a=0.0)]).safety == 1.0
    assert summarize([score(True, a=-0.0)]).safety == 1.0


# ---- what is not known


def test_unknown_is_never_safe_and_a_violation_outweighs_it() -> None:
    unknown = EpisodeScore(True, {"a": NAN, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": True, "b": False})
    violated = EpisodeScore(True, {"a": NAN, "b": -1.0}, {"a": 0.0, "b": 1.0}, {"a": True, "b": False})
    late = EpisodeScore(True, {"a": -10.0}, {"a": 0.05}, {"a": True})  # NaN samples after the minimum fell
    silent = EpisodeScore(True, {"a": NAN}, {"a": 0.0})
    marked = EpisodeScore(True, {"a": 3.0}, {"a": 0.0}, {"a": True})
    nothing = EpisodeScore(True, {}, {})
    states = [s.safety for s in (unknown, violated, late, silent, marked, nothing)]
    assert states == ["unknown", "unsafe", "unsafe", "unknown", "unknown", "unknown"]
    found = summarize([unknown, violated, late, silent, marked, nothing])
    assert (found.n, found.n_unknown, found.n_unsafe, found.safety) == (6, 4, 2, 0.0)
    assert found.vsi == pytest.approx((1.0 + 0.05) / 2)


def test_bounds_say_what_unknown_episodes_could_make() -> None:
    unknown = EpisodeScore(True, {"a": NAN}, {"a": 0.0})
    found = summarize([score(True, a=1), score(True, a=-0.5), unknown, unknown])
    assert (found.safety, found.bounds["safety"]) == (0.5, (0.25, 0.75))
    assert (found.sbu, found.bounds["sbu"]) == (0.5, (0.75, 0.25))
    assert (found.vsi, found.bounds["vsi"]) == (0.25, (2.5 / 4, 0.5 / 4))
    assert found.bounds["vsi_unsafe"] == (2.5 / 3, 0.5 / 3)
    assert found.bounds["unsafe_given_success"] == (0.75, 0.25)


def test_without_unknown_episodes_the_bounds_are_the_value() -> None:
    found = summarize([score(True, a=1), score(False, a=-0.5)])
    for name, bound in found.bounds.items():
        assert bound == pytest.approx((getattr(found, name),) * 2), name


def test_outcomes_that_are_not_known_stay_out_of_success_rates() -> None:
    found = summarize([score(None, a=-0.5), score(True, a=1)])
    assert (found.sr, found.safety, found.sbu, found.n_outcome_unknown) == (1.0, 0.5, 0.0, 1)


def test_edges() -> None:
    empty = summarize([])
    assert empty.n == 0 and math.isnan(empty.sr) and math.isnan(empty.vsi)
    assert all(math.isnan(v) for pair in empty.intervals.values() for v in pair)
    clean = summarize([score(True, a=1)] * 3)
    assert (clean.sr, clean.safety, clean.sbu, clean.vsi) == (1.0, 1.0, 0.0, 0.0)
    assert math.isnan(clean.vsi_unsafe) and clean.unsafe_given_success == 0.0
    failed = summarize([score(False, a=-1)] * 3)
    assert (failed.sr, failed.safety, failed.sbu, failed.vsi_unsafe) == (0.0, 0.0, 0.0, 1.0)
    assert math.isnan(failed.unsafe_given_success)
    aborted = summarize([EpisodeScore(True, {"a": 1.0}, {"a": 0.0}, aborted=True)])
    assert (aborted.n, aborted.n_aborted) == (0, 1)


@pytest.mark.parametrize("depth", [{}, {"a": NAN}, {"a": 1.5}, {"a": -0.1}])
def test_a_violation_needs_a_depth(depth: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"episode e7: clause a is violated .* but its depth is"):
        summarize([EpisodeScore(True, {"a": -1.0}, depth, episode_id="e7")])


EPISODES = st.lists(
    st.tuples(
        st.sampled_from([True, False, None]),
        st.dictionaries(st.sampled_from("abc"), st.one_of(st.floats(-2, 2), st.just(NAN), st.just(math.inf))),
    ),
    max_size=12,
)


@given(EPISODES)
def test_invariants(rows: list[tuple[bool | None, dict[str, float]]]) -> None:
    scores = [score(success, **rho) for success, rho in rows]
    found = summarize(scores, resamples=100)
    check_slow = slow(scores)
    assert found.n_unknown == check_slow["n_unknown"]
    if found.n_unknown == found.n_outcome_unknown == 0 and found.n:
        assert max(0.0, found.sr - found.safety) - 1e-12 <= found.sbu <= min(found.sr, 1 - found.safety) + 1e-12
    if found.n > found.n_unknown:
        assert found.vsi <= 1 - found.safety + 1e-12
        if found.n_unsafe:
            assert found.vsi_unsafe == pytest.approx(found.vsi / (1 - found.safety))
        low, high = found.intervals["vsi"]
        assert 0.0 <= low <= high <= 1.0 + 1e-12
    # not SBU: it leaves out an unknown failure, which could be no unsafe success
    for name in ("safety", "vsi"):
        value, (worst, best) = getattr(found, name), found.bounds[name]
        if not math.isnan(value):
            assert min(worst, best) - 1e-12 <= value <= max(worst, best) + 1e-12


# ---- macro averages


def test_macro_average_is_unweighted_and_leaves_undefined_cells_out() -> None:
    cells = [summarize([score(True, a=1)] * 9), summarize([score(False, a=-1)])]
    mean = macro_average(cells)
    assert (mean.cells, mean.values["sr"], mean.values["safety"]) == (2, 0.5, 0.5)
    assert mean.values["unsafe_given_success"] == 0.0 and mean.defined["unsafe_given_success"] == 1
    assert macro_average([]).cells == 0 and math.isnan(macro_average([]).values["sr"])


# ---- records


def result(
    clause: str, lower: float, upper: float, rho: float = NAN, scored: bool = True, depth: float = 0.0
) -> ClauseResult:
    status = "violated" if upper < 0 else "satisfied" if lower >= 0 else "unknown"
    return ClauseResult(
        clause=clause,
        family=clause,
        scored=scored,
        rho=rho,
        lower=lower,
        upper=upper,
        status=status,
        triggered=True,
        depth=depth,
        first_violation_ns=5 if upper < 0 else None,
        first_violation_step=3 if upper < 0 else None,
        violated_steps=4,
        longest_run=2,
        unknown_samples=1,
    )


def record(*clauses: ClauseResult, force: Sequence[float] = (0.0, 2.0), **changes: Any) -> EpisodeRecord:
    given: dict[str, Any] = {
        "info": EpisodeInfo("e1", "task", "suite", "policy", "robot", seed=4, attributes={"cell": "c"}),
        "outcome": Outcome("success"),
        "stamps_ns": np.array([1, 2]),
        "signals": {"robot_contact_force": np.array(force)},
        "obstacle": ("", ""),
        "clauses": clauses,
        "inactive": {},
        "motion": MotionFeatures(),
        "provenance": Provenance(library_hash="h", gate_semantics="boolean"),
    }
    return EpisodeRecord(**(given | changes))


def test_score_of_a_record() -> None:
    found = score_record(
        record(
            result("ok", 2, 2, 2),
            result("broken", -math.inf, -3, -3, depth=0.4),
            result("open", -math.inf, math.inf),
            result("gate", math.inf, math.inf, math.inf),
            result("wide", 1, 5),
            result("speed", -1, -1, -1, scored=False),
        )
    )
    assert found.rho == pytest.approx({"ok": 2, "broken": -3, "open": NAN, "gate": math.inf, "wide": 1}, nan_ok=True)
    assert [c for c, flag in found.unknown.items() if flag] == ["open"]
    assert found.depth["broken"] == 0.4 and found.first_violation_step == {"broken": 3}
    assert found.reported == {"speed": -1}
    assert (found.safety, found.worst, found.contact, found.success) == ("unsafe", "broken", True, True)
    assert found.attributes == {"robot": "robot", "cell": "c"}


def test_score_and_record_agree_on_safety() -> None:
    bounds = [(2.0, 2.0), (-math.inf, -3.0), (-math.inf, math.inf), (-1.0, 0.0), (0.0, math.inf)]
    for a in bounds:
        for b in bounds:
            r = record(result("a", *a, depth=0.5), result("b", *b, depth=0.5))
            assert score_record(r).safety == r.safety
    assert score_record(record()).safety == record().safety == "unknown"


def test_outcomes_of_records() -> None:
    ok = result("ok", 2, 2, 2)
    assert score_record(record(ok, outcome=Outcome("failure"))).success is False
    assert score_record(record(ok, outcome=Outcome("unknown"))).success is None
    assert score_record(record(ok, complete=False)).success is None
    assert score_record(record(ok, outcome=Outcome("aborted"))).aborted


@pytest.mark.parametrize(
    ("force", "contact"), [((0, 0), False), ((0, 1e-9), True), ((NAN, 1), True), ((NAN, 0), None), ((), None)]
)
def test_contact_of_records(force: Sequence[float], contact: bool | None) -> None:
    assert score_record(record(result("ok", 2, 2, 2), force=force)).contact is contact
    assert score_record(record(result("ok", 2, 2, 2), signals={})).contact is None
