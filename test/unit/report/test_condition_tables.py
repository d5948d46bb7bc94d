"""Flips between conditions, target selection and decisions of rollout selection as tables."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.metrics.candidates import Decision
from osma_monitor.io import dataset, store
from osma_monitor.io.scoring import DatasetScores
from osma_monitor.report.build import build, collect
from osma_monitor.report.decision_tables import all_tables
from osma_monitor.report.stored import collect_stored

from .report_examples import episode


def under(condition: str, task: int, success: bool, touched: bool = False, **attributes: str) -> EpisodeRecord:
    record = episode("p", "A", "high", f"o{task}")
    contact = np.zeros(len(record.stamps_ns))
    contact[3] = touched
    info = replace(record.info, episode_id=f"{condition}-{task}-{success}").with_attributes(
        {"condition": condition, **attributes}
    )
    outcome = Outcome("success" if success else "failure")
    return replace(record, info=info, outcome=outcome, signals={**record.signals, "obstacle_contact": contact})


def table(records: list[EpisodeRecord], key: str):
    return next((t for t in build(collect(records)).tables if t.key == key), None)


def test_flips_are_counted_by_task_and_outcome(tmp_path: Path) -> None:
    before = [under("c0", t, success) for t, success in enumerate([True, True, False, False, True])]
    after = [under("c4", t, success, t == 0) for t, success in enumerate([True, False, True, True])]
    after.append(replace(under("c4", 4, True), outcome=Outcome("aborted")))
    after.append(under("c4", 7, True))
    found = table([*before, *after], "flips").frame.set_index("outcome")
    plain, free = found.loc["success"], found.loc["collision-free success"]
    assert (plain.before, plain.after, plain.n, plain.lost, plain.gained, plain.n_unknown) == ("c0", "c4", 4, 1, 2, 2)
    assert plain.difference == 0.25 and plain.p == 1.0
    assert (free.n, free.lost, free.gained, free.difference) == (4, 2, 2, 0.0)
    # the same task and seed with two outcomes under one condition is not known
    twice = table([*before, *after, under("c4", 1, True)], "flips").frame.set_index("outcome").loc["success"]
    assert (twice.n, twice.lost) == (3, 0)
    assert table(before, "flips") is None
    for record in [*before, *after]:
        store.write_record(tmp_path / "run", record)
    dataset.compact(tmp_path / "run", tmp_path / "set")
    stored = build(collect_stored(DatasetScores(tmp_path / "set")))
    assert next(t for t in stored.tables if t.key == "flips").frame.equals(found.reset_index()[stored_columns(stored)])


def stored_columns(report) -> list[str]:
    return list(next(t for t in report.tables if t.key == "flips").frame.columns)


@pytest.mark.parametrize("stored", [False, True])
def test_two_runs_under_two_conditions_give_flips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: bool
) -> None:
    paths = []
    for condition, successes in (("c0", [True, True, False]), ("c4", [True, False, False])):
        for t, success in enumerate(successes):
            store.write_record(tmp_path / condition, under(condition, t, success))
        paths.append(tmp_path / condition)
    if stored:
        for path in paths:
            dataset.compact(path, path.with_name(f"{path.name}_set"))
        paths = [path.with_name(f"{path.name}_set") for path in paths]
    words = ["score", *map(str, paths), "--format", "csv", "--table"]
    assert main([*words, "flips"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("outcome")
    for row in frame.itertuples():
        assert (row.policy, row.before, row.after, row.n, row.lost, row.gained) == ("p", "c0", "c4", 3, 1, 0)
    assert set(frame.index) == {"success", "collision-free success"}
    # elsewhere the runs stay apart
    assert main([*words, "summary"]) == 0
    assert pd.read_csv(io.StringIO(capsys.readouterr().out)).policy.nunique() == 2


def test_target_selection_is_that_of_the_attributes() -> None:
    said = [("correct", ""), ("wrong", ""), ("none", "true"), ("none", "false"), ("on_ref", "")]
    records = [under("c0", t, True, target_selection=v, target_credit=c) for t, (v, c) in enumerate(said)]
    records.append(under("c0", 9, True))  # says nothing
    [row] = table(records, "target_selection").frame.itertuples()
    assert (row.episodes, row.strict, row.soft, row.wrong) == (5, 0.2, 0.4, 0.2)
    assert row.undecided == pytest.approx(0.6)
    with pytest.raises(ValueError, match="target_selection is 'yes'"):
        build(collect([under("c0", 0, True, target_selection="yes")]))


def test_decisions_give_diversity_contact_rate_and_choices() -> None:
    left, right = (np.array([[0.0, 0.0], [1.0, y]]) for y in (0.5, -0.5))
    made = [
        Decision("a", [left, right], [True, False], 1, (1, 0)),
        Decision("a", [left, right], [True, True], 0, (0, 1)),
        Decision("b", [left, right], [False, False], None, (0, 1)),
        Decision("b", [left, right], [False, True], 1, (0, 1)),
    ]
    diversity, choices, positions = (t.frame for t in all_tables({"log": made}))
    assert diversity.mean_distance[0] == 0.5 and diversity.endpoint_spread[0] == 1.0 and diversity.n_mixed[0] == 2
    row = choices.iloc[0]
    assert (row.decisions, row.n_valid, row.contact_rate, row.candidate_contact) == (4, 3, 0.5, 0.5)
    assert (row.collision_free, row.uniform, row.all_contact, row.same_outcome) == (0.5, 0.5, 0.25, 0.5)
    assert positions.chosen.tolist() == [2, 1] and positions.share.tolist() == [2 / 3, 1 / 3]
    assert all_tables({}) == []


def test_score_prints_the_decisions_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_record(tmp_path / "run", under("c0", 0, True))
    log = tmp_path / "k4.jsonl"
    line = '{"task": "a", "paths": [[[0, 0], [1, 0]]], "contact": [true], "chosen": 0, "order": [0], '
    log.write_text(line + '"obstacle": null, "obstacle_distance": null}\n')
    assert main(["score", str(tmp_path / "run"), "--decisions", str(log)]) == 0
    out = capsys.readouterr().out
    assert "Choice among candidates" in out and "k4" in out
    log.write_text("{}\n")
    assert main(["score", str(tmp_path / "run"), "--decisions", str(log)]) == 2
    assert f"{log}:1: is no decision" in capsys.readouterr().err
    assert main(["score", str(tmp_path / "run"), "--decisions", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
