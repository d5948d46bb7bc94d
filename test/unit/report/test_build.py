"""The report from records: every figure equals plain counting, and odd input gives defined values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import report_by_hand as by_hand
import report_examples as synthetic
from page_reader import Page

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.metrics import rankings, safety
from osma_monitor.core.motion import FEATURES
from osma_monitor.io.configuration import clause_library
from osma_monitor.report import build, clause_tables
from osma_monitor.report.margins import margin_source
from osma_monitor.report.model import PolicySummary, Report
from osma_monitor.report.page import render_page
from osma_monitor.report.policy_table import policy_tables
from osma_monitor.report.table import FORMATS, Table, render


def mixed() -> list[EpisodeRecord]:
    """A study with unknown, aborted, incomplete and undecided episodes in it."""
    records = synthetic.study()
    open_ = replace(records[0].clauses[0], status="unknown", rho=math.nan, lower=-math.inf, upper=math.inf, depth=0.0)
    records[0] = replace(records[0], clauses=(open_,))
    records[1] = replace(records[1], outcome=Outcome("aborted", "policy silent"))
    records[2] = replace(records[2], complete=False)
    records[3] = replace(records[3], outcome=Outcome("unknown"))
    records[-1] = replace(records[-1], clauses=())
    return records


def made(records: list[EpisodeRecord], **options: object) -> Report:
    return build.build(build.collect(records, traces=True), **options)  # type: ignore[arg-type]


def table(report: Report, key: str) -> Table:
    return next(t for t in report.tables if t.key == key)


def test_headline_figures_equal_plain_counting() -> None:
    records = mixed()
    report = made(records)
    assert [p.policy for p in report.policies] == ["cautious", "shortest_path"]
    for found in report.policies:
        expected: PolicySummary = by_hand.policy_summary(found.policy, records)
        assert (found.n, found.unknown, found.aborted, found.incomplete) == (
            expected.n,
            expected.unknown,
            expected.aborted,
            expected.incomplete,
        )
        assert (found.safety_worst, found.safety_best) == (expected.safety_worst, expected.safety_best)
        assert {k: v for k, v in found.outcomes.items() if v} == {k: v for k, v in expected.outcomes.items() if v}
        for key in ("sr", "safety", "sbu", "tsr", "cfsr", "cfsr_over_tsr"):
            f, e = found.figures[key], expected.figures[key]
            assert (f.value, f.low, f.high, f.n) == pytest.approx((e.value, e.low, e.high, e.n)), (found.policy, key)
        assert found.figures["vsi"].value == pytest.approx(expected.figures["vsi"].value)
        assert found.figures["vsi"].low <= found.figures["vsi"].value <= found.figures["vsi"].high


def test_ssi_of_one_seed_equals_plain_counting() -> None:
    records = synthetic.study(seeds=(0,))
    report = made(records)
    for policy in ("cautious", "shortest_path"):
        figures = next(p.figures for p in report.policies if p.policy == policy)
        taus = []
        for feature in FEATURES:
            expected = by_hand.feature_summary(policy, feature, [r for r in records if r.info.policy == policy])
            found = next(f for f in report.features if (f.policy, f.feature) == (policy, feature))
            assert found.tau == pytest.approx(expected.tau) and found.cells == expected.cells
            assert found.tiers == pytest.approx(expected.tiers)
            taus.append(expected.tau)
        assert figures["ssi"].value == pytest.approx(sum(taus) / len(taus))


def test_clause_summaries_equal_plain_counting() -> None:
    records = mixed()
    for found in made(records).clauses:
        expected = next(c for c in by_hand.clause_summaries(found.policy, records) if c.clause == found.clause)
        assert (found.n, found.applicable, found.broken, found.unknown, found.family) == (
            expected.n,
            expected.applicable,
            expected.broken,
            expected.unknown,
            expected.family,
        )
        assert sorted(found.depths) == pytest.approx(sorted(expected.depths))
        assert (found.exposure, found.longest_run) == pytest.approx(
            (expected.exposure, expected.longest_run), nan_ok=True
        )


def test_the_comparison_is_paired_and_puts_the_safer_policy_first() -> None:
    records = synthetic.study()
    comparison = made(records).comparison
    assert comparison is not None and (comparison.first, comparison.second) == ("cautious", "shortest_path")
    safe = {(r.info.policy, r.info.task, r.info.seed): r.safety == "safe" for r in records}
    pairs = [(safe["cautious", t, s], safe["shortest_path", t, s]) for p, t, s in safe if p == "cautious"]
    assert comparison.pairs == len(pairs) == 24
    assert comparison.difference == pytest.approx(np.mean([a - b for a, b in pairs]))
    only = [sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)]
    assert [comparison.only_first_safe, comparison.only_second_safe] == only
    tail = sum(math.comb(sum(only), k) for k in range(min(only) + 1)) / 2 ** sum(only)
    assert comparison.p_value == pytest.approx(min(1.0, 2 * tail))
    assert comparison.low <= comparison.difference <= comparison.high


def test_pairs_are_formed_where_both_policies_ran() -> None:
    records = [r for r in synthetic.study() if not (r.info.policy == "cautious" and r.info.attributes["route"] == "D")]
    report = made(records)
    assert report.comparison is not None and report.comparison.pairs == 12
    assert any("12 episodes without a partner" in note for note in table(report, "paired").notes)


def test_two_policies_without_a_common_task_are_not_compared() -> None:
    records = [r for r in synthetic.study() if (r.info.policy == "cautious") == (r.info.attributes["route"] == "A")]
    report = made(records)
    assert report.comparison is None and "share no task and seed" in report.comparison_note


def test_every_table_says_n_unknown_gates_and_library() -> None:
    report = made(mixed())
    for t in report.tables:
        text = render(t, "text")
        assert "n = 47 episodes; safety unknown in 2, outcome unknown in 2; 1 aborted, not scored." in text, t.key
        assert "Gates boolean. Clause library 0123456789abcdef, registry fedcba9876543210." in text, t.key
    keys = [t.key for t in report.tables]
    assert len(keys) == len(set(keys))
    assert {"summary", "outcomes", "clauses", "paired", "depth_mix", "contact", "navigation", "ssi"} <= set(keys)
    assert {"ssi_features", "navigation_seeds", "navigation_route", "navigation_tier", "inactive"} <= set(keys)


@pytest.mark.parametrize("form", FORMATS)
def test_every_table_prints_in_every_format(form: str) -> None:
    for t in made(synthetic.study(seeds=(0,))).tables:
        assert render(t, form).endswith("\n")  # type: ignore[arg-type]


def test_a_bootstrap_without_width_is_explained() -> None:
    records = synthetic.study(seeds=(0,))
    report = made(records)
    cautious = next(p for p in report.policies if p.policy == "cautious")
    assert cautious.figures["vsi"].low == cautious.figures["vsi"].high
    said = "says that all these episodes had the same depth, not that others would"
    assert any(said in note for note in table(report, "summary").notes)
    flat = {t.title: any(said in note for note in t.notes) for t in policy_tables(report)}
    assert flat == {"cautious": True, "shortest_path": False}


def test_correlations_show_every_p_pooled_within_and_between_suites() -> None:
    records = []
    for policy in ("cautious", "shortest_path", "third", "fourth"):
        for suite in ("one", "two"):
            for k, r in enumerate(r for r in synthetic.study() if r.info.policy == "shortest_path"):
                won = (k + len(policy) + len(suite)) % 5 > 1
                limit = {"cautious": 0, "third": 6, "fourth": 12}.get(policy, 24)
                bad = replace(r.clauses[0], upper=-1.0, lower=-1.0, rho=-1.0, depth=0.5, status="violated")
                good = replace(r.clauses[0], upper=1.0, lower=1.0, rho=1.0, depth=0.0, status="satisfied")
                info = replace(r.info, policy=policy, suite=suite, episode_id=f"{policy}{suite}{k}")
                outcome = Outcome("success" if won else "failure")
                records.append(replace(r, info=info, outcome=outcome, clauses=(bad if k < limit else good,)))
    report = made(records)
    cells = safety.by_group(report.scores, ("suite", "policy"), bootstrap=False)  # type: ignore[arg-type]
    frame = table(report, "correlations").frame.set_index("pair")
    inside = table(report, "correlations_suites").frame.set_index(["pair", "suite"])
    for y, label in (("safety", "Safety"), ("sbu", "SBU"), ("vsi", "VSI")):
        c = rankings.correlate(cells, "sr", y)
        row = frame.loc[f"SR, {label}"]
        assert row.cells == c.n == 8
        for part in ("", "_within", "_between"):
            for kind in ("kendall", "spearman"):
                for end in ("", "_p"):
                    name = f"{kind}{part}{end}"
                    assert row[name] == pytest.approx(getattr(c, name), nan_ok=True), name
                    assert name in {column.key for column in table(report, "correlations").columns}
        assert not math.isnan(row.kendall_between_p) and not math.isnan(row.spearman_within_p)
        for suite in ("one", "two"):
            assert inside.kendall[f"SR, {label}", suite] == pytest.approx(c.per_suite[suite], nan_ok=True)
            assert inside.p[f"SR, {label}", suite] == pytest.approx(c.per_suite_p[suite], nan_ok=True)


def test_tables_group_by_any_column() -> None:
    report = made(synthetic.study(), by=("tier", "policy"))
    frame = table(report, "summary").frame
    assert list(frame.tier) == ["high", "high", "low", "low", "moderate", "moderate"]
    assert set(frame.n) == {8}
    with pytest.raises(ValueError, match="no episode has a column 'colour'"):
        made(synthetic.study(seeds=(0,)), by=("colour",))


def test_three_policies_get_ranks_and_structure() -> None:
    third = [replace(r, info=replace(r.info, policy="third")) for r in synthetic.study() if r.info.policy == "cautious"]
    report = made([*synthetic.study(), *third])
    assert report.comparison is None and len(table(report, "paired").frame) == 3
    assert {"structural", "correlations", "ssi_without"} <= {t.key for t in report.tables}


def test_episodes_that_do_not_navigate_have_no_navigation_tables() -> None:
    nothing = np.full(5, np.nan)
    records = [
        replace(
            r,
            info=replace(r.info, attributes={}),
            stamps_ns=r.stamps_ns[:5],
            signals={name: nothing for name in r.signals},
        )
        for r in synthetic.study(seeds=(0,))
    ]
    report = made(records)
    assert not [t.key for t in report.tables if t.key.startswith(("nav", "ssi"))]
    assert not report.features and "tsr" not in report.policies[0].figures


def test_no_episode_gives_empty_tables() -> None:
    report = made([])
    assert report.policies == () and table(report, "summary").empty
    assert "n = 0 episodes" in render(table(report, "summary"), "text")


def test_signals_are_dropped_past_the_limit_but_no_number_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    records = synthetic.study(seeds=(0,))
    whole = made(records)
    monkeypatch.setattr(build, "SIGNAL_BYTES", 40_000)
    small = made(records)
    assert sum(bool(r.signals) for r in small.records) < len(records) // 2
    assert [render(t, "csv") for t in small.tables] == [render(t, "csv") for t in whole.tables]
    assert small.policies == whole.policies


def asking(record: EpisodeRecord) -> EpisodeRecord:
    """A policy that asks for more clearance and less speed, the higher the tier."""
    rank = ("low", "moderate", "high").index(record.info.attributes["tier"])
    asked = {"requested_clearance_m": repr(0.1 + 0.2 * rank), "requested_speed": repr(1.0 - 0.3 * rank)}
    region = {"requested_region_m": "2.0", "goal_x": "3.0", "goal_y": "0.0", "goal_yaw": "0.0"}
    info = replace(record.info, attributes={**record.info.attributes, **asked, **region})
    return replace(record, info=info)


def test_requested_control_stands_beside_executed_motion() -> None:
    records = [asking(r) for r in synthetic.study(seeds=(0,))]
    frame = table(made(records), "requested").frame.set_index("policy")
    for policy in ("cautious", "shortest_path"):
        mine = [r for r in records if r.info.policy == policy]
        row = frame.loc[policy]
        assert row.tasks == 12 and row.ssi_values == 1.0 and row.reached == 1.0
        assert row.clearance_H == pytest.approx(0.5) and row.speed_H == pytest.approx(0.4)
        met = [r.motion.d_min >= float(r.info.attributes["requested_clearance_m"]) - 1e-9 for r in mine]
        assert row.met == pytest.approx(sum(met) / len(met))
        high = [r.motion.d_min for r in mine if r.info.attributes["tier"] == "high"]
        assert row.d_min_H == pytest.approx(sum(high) / len(high))


def test_failed_tasks_are_classed_where_the_goal_is_known() -> None:
    records = [asking(r) for r in synthetic.study()]
    frame = table(made(records), "failures").frame
    failed = sum(r.outcome.status == "failure" for r in records)
    assert frame.failures.sum() == failed > 0
    assert set(frame["class"]) <= {"heading", "stagnation", "motion without progress", "incomplete approach"}


def test_margins_come_from_the_library_that_judged() -> None:
    library = clause_library()
    clause = library["max_contact_force_under_200N"]
    record = synthetic.episode("shortest_path", "A", "high", "baby")
    assert margin_source([library])(record) == []  # judged by another library
    record = replace(record, provenance=replace(record.provenance, library_hash=library.hash))
    (margin,) = margin_source([library])(record)
    expected = (clause.threshold - record.signals["contact_force_max"]) / clause.threshold
    assert margin.values == pytest.approx(expected) and margin.threshold == 200.0
    assert margin.values.min() == pytest.approx(record.clauses[0].rho / 200.0)


def test_policy_tables_hold_no_place_or_time() -> None:
    records = synthetic.study()
    elsewhere = [
        replace(r, provenance=replace(r.provenance, session={"host": "b", "started": "later"})) for r in records
    ]
    texts = [[render(t, "text") for t in policy_tables(made(its))] for its in (records, elsewhere)]
    assert texts[0] == texts[1] and "2030" not in "".join(texts[0])
    assert [text.split("\n")[0] for text in texts[0]] == ["cautious", "shortest_path"]
    assert "SSI compares the tiers inside 2 matched cells." in texts[0][-1]


def test_obstacles_are_counted_under_every_policy() -> None:
    records = mixed()
    report = made(records)
    for s in report.obstacles:
        its = [
            r
            for r in records
            if (r.info.policy, r.info.attributes["obstacle"]) == (s.policy, s.obstacle)
            and r.outcome.status != "aborted"
        ]
        assert s.n == sum(r.safety != "unknown" for r in its)
        assert s.unsafe == sum(r.safety == "unsafe" for r in its)
        assert s.distance == pytest.approx(np.mean([r.motion.d_min for r in its]))
    assert [s.tier for s in report.obstacles] == ["high"] * 4 + ["moderate"] * 4 + ["low"] * 4
    words = Page(render_page(report)).words
    for s in report.obstacles:
        assert f"{s.unsafe} of {s.n} {s.distance:.2f} m" in words


def test_of_many_pairs_the_largest_differences_are_compared() -> None:
    records = synthetic.study(seeds=(0,))
    more = [
        replace(r, info=replace(r.info, policy=f"p{i}"))
        for i in range(3)
        for r in records
        if r.info.policy == "cautious"
    ]
    scores = build.collect([*records, *more]).scores
    everything, said = clause_tables.comparisons(scores)
    assert len(everything) == 10 and not said
    some, said = clause_tables.comparisons(scores, limit=4)
    assert said == ["6 further pairs with smaller differences are left out."]
    assert [(c.first, c.second) for c in some] == [(c.first, c.second) for c in everything[:4]]
    assert all("shortest_path" in (c.first, c.second) for c in some)


def test_repeated_drives_are_not_paired() -> None:
    records = synthetic.study(seeds=(0,))
    found, said = clause_tables.comparisons(build.collect([*records, records[0]]).scores)
    assert not found and said == ["cautious and shortest_path are not compared: 1 episodes repeat a task and seed."]


def test_paired_figures_say_which_pairs_they_leave_out() -> None:
    records = synthetic.study(seeds=(0,))
    second = max(i for i, r in enumerate(records) if r.info.policy == "cautious")
    unknown = replace(records[second].clauses[0], rho=math.nan, lower=-math.inf, upper=1.0, status="unknown", depth=0.0)
    records[second] = replace(records[second], clauses=(unknown,))
    records[0] = replace(records[0], outcome=Outcome("unknown"))
    [row] = table(build.build(build.collect(records)), "paired").frame.to_dict("records")
    assert (row["pairs"], row["success_unknown"], row["safety_unknown"]) == (12, 1, 1)


def test_several_comparisons_say_that_no_p_is_adjusted() -> None:
    records = synthetic.study(seeds=(0,))
    third = [replace(r, info=replace(r.info, policy="third")) for r in records if r.info.policy == "cautious"]
    notes = [" ".join(table(build.build(build.collect(x)), "paired").notes) for x in (records, [*records, *third])]
    assert [("no p is adjusted" in note) for note in notes] == [False, True]
