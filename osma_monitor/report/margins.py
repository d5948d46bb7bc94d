"""The margin of every clause over an episode, from its stored signals (SafeVLA-Bench Figure 5)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.safety import Library
from osma_monitor.core.signals.schema import GATE_SIGNALS
from osma_monitor.report.traces import Margin, Margins

_parse = lru_cache(maxsize=512)(stl.parse)


def margin_source(library: Library) -> Margins:
    """Margins by the clauses of ``library``, step by step and divided by |threshold|.

    An episode that another library judged has none: its thresholds may differ, and a drawn line must not contradict
    the verdict beside it.
    """

    def margins(record: EpisodeRecord) -> list[Margin]:
        if record.provenance.library_hash != library.hash or not len(record.stamps_ns):
            return []
        quantitative = record.provenance.gate_semantics == "quantitative"
        gates = frozenset() if quantitative else GATE_SIGNALS
        out = []
        for result in record.clauses:
            clause = library[result.clause]
            formula = _parse(clause.text("quantitative" if quantitative else "boolean"))
            rho = stl.margin_trace(formula, record.stamps_ns, record.signals, gates).rho
            scale = clause.margin_unit or 1.0
            out.append(Margin(clause.id, clause.unit, clause.threshold, np.asarray(rho, dtype=np.float64) / scale))
        return out

    return margins
