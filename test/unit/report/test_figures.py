"""Paper figures: every one is drawn, deterministic, and shows the report's values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_by_hand as by_hand
import report_examples as synthetic

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.report import figures
from osma_monitor.report.build import build, collect
from osma_monitor.report.traces import Margin


def test_all_figures_are_written_and_repeatable(tmp_path: Path) -> None:
    report = by_hand.report(synthetic.study(seeds=(0,)))
    first = figures.save(report, tmp_path / "a", "pdf")
    second = figures.save(report, tmp_path / "b", "pdf")
    assert [p.name for p in first] == [f"{name}.pdf" for name in figures.FIGURES]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))


def test_outcome_bars_add_up_to_all_episodes() -> None:
    report = by_hand.report(synthetic.study())
    widths = np.array([[bar.get_width() for bar in bars] for bars in figures.outcomes(report).axes[0].containers])
    assert widths.sum(axis=0) == pytest.approx([100.0] * len(report.policies))


def test_adaptation_shows_the_ratio_of_the_table() -> None:
    """Where a failure's contact is unknown, CFSR and TSR divide by other episodes: their quotient is no CFSR/TSR."""
    records: list[EpisodeRecord] = []
    for record in synthetic.study(seeds=(0,)):
        if not record.outcome.success and len(records) % 2:
            lost = record.signals["obstacle_contact"] * np.nan
            record = replace(record, signals={**record.signals, "obstacle_contact": lost})
        records.append(record)
    report = build(collect(records), bootstrap=False)
    lines = figures.adaptation(report).axes[0].get_lines()
    dots = {str(d.get_label()): np.asarray(d.get_xdata())[0] for d in lines if d.get_marker() == "o"}
    table = next(t for t in report.tables if t.key == "navigation").frame.set_index("policy")
    assert dots == pytest.approx((100 * table["cfsr_over_tsr"]).to_dict())
    assert (table["cfsr"] / table["tsr"] - table["cfsr_over_tsr"]).abs().max() > 0.001


def test_depth_mix_adds_up_to_sbu() -> None:
    report = by_hand.report(synthetic.study())
    widths = np.array([[bar.get_width() for bar in bars] for bars in figures.depth_mix(report).axes[0].containers])
    assert widths.sum(axis=0) == pytest.approx([100.0 * p.figures["sbu"].value for p in report.policies])


def test_the_worst_clause_is_the_red_one() -> None:
    record = synthetic.episode("shortest_path", "A", "high", "baby")
    assert record.safety == "unsafe"
    lines = (
        figures.margin_trace(
            record,
            [
                Margin("other", "m", 1.0, np.ones(len(record.stamps_ns))),
                Margin(
                    "max_contact_force_under_200N", "N", 200.0, (200.0 - record.signals["contact_force_max"]) / 200.0
                ),
            ],
        )
        .axes[0]
        .lines
    )
    assert lines[1].get_label() == "max_contact_force_under_200N" and lines[1].get_color() == "#cf3a43"
    with pytest.raises(UserError, match="there are other"):
        figures.margin_trace(record, [Margin("other", "m", 1.0, np.ones(len(record.stamps_ns)))], "tilt")


def test_no_episode_is_an_empty_figure(tmp_path: Path) -> None:
    assert figures.save(by_hand.report([]), tmp_path, "png")
    with pytest.raises(UserError, match="choose one of pdf"):
        figures.save(by_hand.report([]), tmp_path, "gif")
