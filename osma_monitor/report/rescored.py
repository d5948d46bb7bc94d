"""The same episodes under other thresholds, piece by piece: the signals of a piece are dropped when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osma_monitor.core.metrics.batch import Columns
from osma_monitor.core.metrics.scores import ScoreTable, concatenate
from osma_monitor.core.metrics.sensitivity import apply_variant, known_variants, needed_signals
from osma_monitor.core.safety import GateSemantics, Library


@dataclass(frozen=True, slots=True, eq=False)
class Rescored:
    """Scores of some episodes under each variant of the thresholds of the library that judged them."""

    library: str  #: its hash
    gate_semantics: str
    tables: Mapping[str, ScoreTable]  #: variant -> scores


def signals_of(libraries: Sequence[Library]) -> frozenset[str]:
    """What `rescored` reads, whichever of the libraries judged."""
    return frozenset().union(*(needed_signals(library) for library in libraries))


def rescored(table: ScoreTable, columns: Columns, libraries: Sequence[Library]) -> Rescored | None:
    """The scores of ``table`` under every variant; None where none of the libraries, or several, judged.

    ``columns`` holds the signals of the same episodes.
    """
    library = next((x for x in libraries if table.library_hash == (x.hash,)), None)
    if library is None or len(table.gate_semantics) != 1:
        return None
    semantics: GateSemantics = "quantitative" if table.gate_semantics == ("quantitative",) else "boolean"
    tables = {v.name: apply_variant(table, columns, library, v, semantics) for v in known_variants(library)}
    return Rescored(library.hash, semantics, tables)


def together(parts: Sequence[Rescored | None]) -> Rescored | None:
    """The pieces end to end; None without a piece, or where they were not judged alike."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts) or len({(part.library, part.gate_semantics) for part in known}) > 1:
        return None
    names = list(known[0].tables)
    return Rescored(
        known[0].library,
        known[0].gate_semantics,
        {name: concatenate([part.tables[name] for part in known]) for name in names},
    )
