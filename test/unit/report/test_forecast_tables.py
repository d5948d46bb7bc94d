"""Forecasts of stored episodes: a force that rises into its limit is foreseen, a sudden one is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import rescore
from osma_monitor.io import store
from osma_monitor.io.configuration import monitor_config
from osma_monitor.report.forecast_tables import Forecasts, forecasts

from .report_examples import episode

CONFIG = monitor_config()


def with_force(force: np.ndarray, name: str) -> EpisodeRecord:
    base = episode("p", "A", "high", "baby")
    stamps = 1_000_000_000 + 50_000_000 * np.arange(len(force), dtype=np.int64)
    signals = {n: np.full(len(force), np.nan) for n in base.signals} | {"contact_force_max": force}
    info = replace(base.info, episode_id=name)
    return rescore(info, base.outcome, stamps, signals, ("",) * len(force), CONFIG, {})


def test_a_rise_is_foreseen_and_a_jump_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = np.zeros(20)
    rise = with_force(np.concatenate([quiet, np.linspace(0.0, 300.0, 40)]), "rise")
    jump = with_force(np.concatenate([quiet, np.full(10, 300.0)]), "jump")
    other = replace(jump, provenance=replace(jump.provenance, library_hash="another"))
    found = Forecasts(CONFIG)
    assert list(found.of([rise, jump, other])) == [rise, jump, other]
    assert (found.episodes, found.left_out) == (2, 1)
    rows = forecasts(found).frame
    row = rows[rows.clause.str.contains("200N")].iloc[0]
    assert (row.violations, row.recall) == (2, 0.5)
    assert row.warnings >= 1 and 0.0 < row.lead <= 1.1
    for record in (rise, jump):
        store.write_record(tmp_path / "run", record)
    assert main(["score", str(tmp_path / "run"), "--forecasts", "--table", "forecasts"]) == 0
    assert "Forecasts of violations" in capsys.readouterr().out
