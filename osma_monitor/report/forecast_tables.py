"""How good the monitor's forecasts of violations were, from stored signals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.forecast import ForecastScore, score_forecast
from osma_monitor.core.metrics.scores import natural
from osma_monitor.core.monitor import VIOLATED, MonitorConfig, SignalMonitor
from osma_monitor.core.signals.schema import SIGNALS, SignalFrame
from osma_monitor.report.table import Column, Table, frame
from osma_monitor.report.wording import plural


@dataclass
class Forecasts:
    """Forecasts of records as they pass by; those that another library or other gates judged are counted only."""

    config: MonitorConfig
    scores: dict[tuple[str, str], ForecastScore] = field(default_factory=dict)  #: (policy, clause)
    episodes: int = 0
    left_out: int = 0

    def of(self, records: Iterable[EpisodeRecord]) -> Iterator[EpisodeRecord]:
        """The same records."""
        for record in records:
            if record.outcome.status != "aborted":
                self.add(record)
            yield record

    def add(self, record: EpisodeRecord) -> None:
        """Run the clauses and their trend over the stored signals of one episode."""
        made, config = record.provenance, self.config
        if (made.library_hash, made.gate_semantics) != (config.library.hash, config.gate_semantics):
            self.left_out += 1
            return
        self.episodes += 1
        monitor = SignalMonitor(record.info, config, record.missing)
        unknown = np.full(len(record.stamps_ns), np.nan)
        rows = np.column_stack([record.signals.get(name, unknown) for name in SIGNALS])
        violated, warn = [], []
        for stamp, row, nearest in zip(record.stamps_ns.tolist(), rows, record.obstacle, strict=True):
            update = monitor.update(SignalFrame(stamp, row, nearest))
            assert update is not None and update.prediction is not None
            violated.append(update.clauses.status == VIOLATED)
            warn.append(update.prediction.warn)
        if not violated:
            return
        v, w = np.array(violated), np.array(warn)
        for i, clause in enumerate(monitor.clauses):
            if clause.scored:
                found = score_forecast(record.stamps_ns, v[:, i], w[:, i], config.prediction_horizon)
                key = record.info.policy, clause.id
                self.scores[key] = self.scores.get(key, ForecastScore()) + found


def forecasts(found: Forecasts) -> Table:
    """Precision, recall and lead time of warnings, by policy and clause; clauses without any of both are left out."""
    rows = []
    for policy, clause in sorted(found.scores, key=lambda key: (natural(key[0]), key[1])):
        s = found.scores[policy, clause]
        if s.warnings or s.violations:
            rows.append(
                {
                    "policy": policy,
                    "clause": clause,
                    "warnings": s.warnings,
                    "precision": s.precision,
                    "violations": s.violations,
                    "recall": s.recall,
                    "lead": s.median_lead,
                }
            )
    columns = (
        Column("policy", "policy"),
        Column("clause", "clause"),
        Column("warnings", "warnings", "count"),
        Column("precision", "precision", "percent", better=1),
        Column("violations", "violations", "count"),
        Column("recall", "recall", "percent", better=1),
        Column("lead", "median lead s", "number", 2, 1),
    )
    horizon = found.config.prediction_horizon
    said = [
        f"n = {plural(found.episodes, 'episode')}; a warning is right when a violation begins within {horizon:g} s."
    ]
    if found.left_out:
        said.append(f"{found.left_out} episodes were judged by another library or other gates and are left out.")
    return Table("forecasts", "Forecasts of violations", columns, frame(rows, columns), tuple(said), keys=2)
