"""Motion features of recordings without cells, and why their safety is unknown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import report_examples as synthetic

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.report import motion_tables
from osma_monitor.report.build import build, collect
from osma_monitor.report.model import Report


def recording(**changes: object) -> EpisodeRecord:
    """An episode as a bag gives it: no cell, no tier, no scored clause."""
    record = synthetic.episode("cautious", "A", "high", "baby")
    inactive = {
        "force": "signal contact_force_max is not available: contacts",
        "self": "signal self_collision is not available: contacts",
        "tilt": "needs the tag held_target",
        "tilt_20": "alternate tier of tilt",
        "speed": "extension, not switched on by suite or configuration",
    }
    info = replace(record.info, attributes={}, policy="dwb", task="corridor")
    return replace(record, info=info, clauses=(), inactive=inactive, **changes)  # type: ignore[arg-type]


def report(*records: EpisodeRecord) -> Report:
    return build(collect(records), bootstrap=False)


def test_an_episode_without_a_cell_shows_its_motion_features() -> None:
    record = recording()
    [table] = [t for t in report(record).tables if t.key == "motion"]
    [row] = table.frame.to_dict("records")
    assert row["episode"] == record.info.episode_id and (row["policy"], row["task"]) == ("dwb", "corridor")
    assert row["d_min"] == record.motion.d_min and row["M_j"] == record.motion.M_j


def test_many_episodes_are_means_of_the_known_values() -> None:
    record = recording()
    bare = replace(record, motion=replace(record.motion, d_min=math.nan))
    far = replace(record, motion=replace(record.motion, d_min=record.motion.d_min + 1.0))
    [table] = [t for t in report(*[record] * 30, *[far] * 30, bare).tables if t.key == "motion"]
    [row] = table.frame.to_dict("records")
    assert row["episode"] == "mean of 61" and row["d_min"] == pytest.approx(record.motion.d_min + 0.5)


def test_matched_cells_have_ssi_and_no_motion_table() -> None:
    assert "motion" not in {t.key for t in report(*synthetic.study()).tables}
    assert motion_tables.driven(synthetic.episode("cautious", "A", "high", "baby")) is None


def test_one_line_says_why_safety_is_unknown() -> None:
    [summary] = [t for t in report(recording()).tables if t.key == "summary"]
    assert summary.notes[0] == (
        "Safety is unknown: no scored clause is active: no contacts (2 clauses), needs the tag held_target (1 clause), "
        "extension not switched on (1 clause)."
    )
    [judged] = [t for t in report(*synthetic.study()).tables if t.key == "summary"]
    assert not any("no scored clause" in note for note in judged.notes)
