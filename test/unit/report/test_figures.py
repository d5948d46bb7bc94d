"""Paper figures: every one is drawn, deterministic, and shows the report's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import report_by_hand as by_hand
import report_examples as synthetic

from osma_monitor.core.errors import UserError
from osma_monitor.report import figures
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
