"""Every table that `osma score` can print says n, how many are unknown, gate semantics, library and registry."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import osma_monitor.report
from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.metrics.candidates import Decision
from osma_monitor.io.configuration import clause_library, monitor_config
from osma_monitor.report import build, decision_tables, forecast_tables
from osma_monitor.report.model import Report
from osma_monitor.report.page import render_page
from osma_monitor.report.policy_table import policy_tables
from osma_monitor.report.table import Basis, Column, Table, based, render

from . import report_examples as synthetic
from .page_reader import Page

LIBRARY = clause_library()
CLAUSE = LIBRARY["max_contact_force_under_200N"]


def rich() -> list[EpisodeRecord]:
    """Episodes that give every table there is."""
    records: list[EpisodeRecord] = []
    for r in synthetic.study():
        for policy in (r.info.policy, *(["third"] if r.info.policy == "cautious" else [])):
            for suite, layout in (("kitchen", "layout0"), ("other", "layout1")):
                more = {
                    "layout": layout,
                    "cell": f"{suite}/{r.info.attributes['cell']}",
                    "condition": "c0" if r.info.seed else "c4",
                    "target_selection": "correct",
                    "requested_clearance_m": "0.3",
                    "requested_speed": "0.1",
                    "requested_region_m": "9",
                    **{"goal_x": "90", "goal_y": "0", "goal_yaw": "0", "spot_x": "3", "spot_y": "0"},
                }
                info = replace(r.info, policy=policy, suite=suite, episode_id=f"{suite} {policy} {r.info.episode_id}")
                if suite == "other":  # the same task and seed under the second condition
                    more["condition"] = "c4" if r.info.seed else "c0"
                    info = replace(info, task=r.info.task)
                shown = replace(r.clauses[0], clause="shown", scored=False)
                records.append(
                    replace(
                        r,
                        info=info.with_attributes(more),
                        clauses=(replace(r.clauses[0], clause=CLAUSE.id, family=CLAUSE.family), shown),
                        provenance=replace(r.provenance, library_hash=LIBRARY.hash),
                    )
                )
    plain = records[0]
    records.append(replace(plain, info=replace(plain.info, episode_id="no cell", task="elsewhere", attributes={})))
    records.append(replace(plain, info=replace(plain.info, episode_id="gone", task="x"), outcome=Outcome("aborted")))
    undecided = replace(plain.clauses[0], status="unknown", rho=np.nan, lower=-np.inf, upper=np.inf, depth=0.0)
    records.append(replace(plain, info=replace(plain.info, episode_id="open", task="y"), clauses=(undecided,)))
    return records


@pytest.fixture(scope="module")
def report() -> Report:
    return build.build(build.collect(rich(), traces=True, rescore=[LIBRARY]))


@pytest.fixture(scope="module")
def tables(report: Report) -> list[Table]:
    path = np.array([[0.0, 0.0], [1.0, 0.0]])
    decisions = [Decision("a", [path, -path], [True, False], 1, (1, 0)), Decision("a", [path, path], [False] * 2)]
    trend = forecast_tables.Forecasts(monitor_config())
    tables = [*report.tables, *decision_tables.all_tables({"log": decisions})]
    return [*tables, *based([forecast_tables.forecasts(trend)], report.basis)]


def test_the_episodes_of_this_test_give_every_table(tables: list[Table]) -> None:
    folder = Path(osma_monitor.report.__path__[0])
    made = {key for path in folder.glob("*.py") for key in re.findall(r'\bTable\(\s*f?"([^"]+)"', path.read_text())}
    made -= {"policy_{title}", "navigation_{by}"}
    made |= {f"navigation_{by}" for by in ("tier", "route", "layout", "obstacle")}
    assert made == {t.key for t in tables}


def test_people_read_what_every_table_rests_on(report: Report, tables: list[Table]) -> None:
    b = report.basis
    assert (b.n, b.n_unknown, b.n_aborted, b.gate_semantics) == (146, 1, 1, ("boolean",))
    own = "n = 146 episodes; safety unknown in 1, outcome unknown in 0; 1 aborted, not scored. Gates boolean. Clause "
    own += f"library {LIBRARY.hash[:16]}, registry fedcba9876543210."
    no_clause = "n = 2 decisions; 1 without a valid choice. Gates not used. Clause library not used, registry not used."
    for t in tables:
        wanted = no_clause if t.key in ("candidates", "choices", "choice_positions") else own
        assert wanted in render(t, "text"), t.key
        assert f"- {wanted}" in render(t, "markdown").splitlines(), t.key
        caption = next(line for line in render(t, "latex").splitlines() if line.startswith(r"\caption"))
        assert wanted in caption, t.key


def test_machines_read_it_in_every_row(tables: list[Table]) -> None:
    for t in tables:
        frame = pd.read_csv(io.StringIO(render(t, "csv")), dtype=str)
        assert list(frame.columns[-3:]) == ["gate_semantics", "library_hash", "registry_hash"], t.key
        assert {"n", "n_unknown"} <= set(frame.columns), t.key
        assert len(frame) == len(t.frame)
        for name in ("n", "n_unknown"):
            assert frame[name].map(float).ge(0).all(), (t.key, name)
        expected = (
            ("not used",) * 3 if t.key in ("candidates", "choices", "choice_positions") else ("boolean", LIBRARY.hash)
        )
        for row in frame.itertuples():
            assert (row.gate_semantics, row.library_hash, row.registry_hash)[: len(expected)] == expected, t.key


def test_the_page_says_it_under_every_table(report: Report) -> None:
    text = render_page(report)
    [sentence] = report.basis.sentences()
    # every table of the section, the figures at the top, and the obstacles
    assert text.count(sentence) == len(report.tables) + 2
    assert "fedcba9876543210" in Page(text).text


def test_every_policy_table_counts_its_own_episodes(report: Report) -> None:
    for t, p in zip(policy_tables(report), report.policies, strict=True):
        own = f"n = {p.n} episodes of this policy; safety unknown in {p.unknown}, outcome unknown in 0"
        assert own in render(t, "text")
        assert "Gates boolean. Clause library" in render(t, "text")
    assert sum(p.n for p in report.policies) == report.basis.n


def test_one_is_no_plural() -> None:
    assert Basis(1).sentences()[0].startswith("n = 1 episode; ")
    assert Basis(1, unit="episodes of this policy").sentences()[0].startswith("n = 1 episode of this policy; ")
    assert Basis(2, unit="decisions").sentences()[0].startswith("n = 2 decisions; ")


def test_what_nobody_says_is_not_made_up() -> None:
    assert Basis().row() == dict.fromkeys(("gate_semantics", "library_hash", "registry_hash"), "not said") | {
        "n": 0,
        "n_unknown": 0,
    }


def test_a_table_with_one_of_both_counts_is_an_error() -> None:
    with pytest.raises(ValueError, match="table x: it has n for each row, so it needs both"):
        Table("x", "x", (Column("n", "n", "count"),), pd.DataFrame({"n": [1]}))


@pytest.mark.parametrize(
    ("libraries", "gates", "words"),
    [
        (("a", "b"), ("boolean",), "clause libraries"),
        (("a",), ("boolean", "quantitative"), "gate semantics"),
        (("a", "b"), ("boolean", "quantitative"), "clause libraries and gate semantics"),
        (("a",), ("boolean",), ""),
    ],
)
def test_episodes_that_were_judged_differently_are_said(
    libraries: tuple[str, ...], gates: tuple[str, ...], words: str
) -> None:
    mixed = " ".join(Basis(n=2, gate_semantics=gates, library_hash=libraries).sentences())
    assert ("can't be compared" in mixed) == bool(words)
    assert not words or f"Judged by different {words}:" in mixed
