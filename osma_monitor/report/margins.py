"""The margin of every clause over an episode, from its stored signals (SafeVLA-Bench Figure 5)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.safety import GateSemantics, Library
from osma_monitor.core.signals.schema import GATE_SIGNALS
from osma_monitor.report.traces import Margin, Margins

_parse = lru_cache(maxsize=512)(stl.parse)


def margin_source(libraries: Iterable[Library]) -> Margins:
    """Margins by the library that judged an episode, step by step and divided by |threshold|.

    An episode whose library is not among ``libraries`` has none: the thresholds of another one may differ, and a drawn
    line must not contradict the verdict beside it.
    """
    by_hash = {library.hash: library for library in libraries}

    def margins(record: EpisodeRecord) -> list[Margin]:
        library = by_hash.get(record.provenance.library_hash)
        if library is None or not len(record.stamps_ns) or not record.signals:
            return []
        semantics: GateSemantics = "quantitative" if record.provenance.gate_semantics == "quantitative" else "boolean"
        gates = GATE_SIGNALS if semantics == "boolean" else frozenset()
        out = []
        for result in record.clauses:
            clause = library[result.clause]
            rho = stl.margin_trace(_parse(clause.text(semantics)), record.stamps_ns, record.signals, gates).rho
            scale = clause.margin_unit or 1.0
            out.append(Margin(clause.id, clause.unit, clause.threshold, np.asarray(rho, dtype=np.float64) / scale))
        return out

    return margins
