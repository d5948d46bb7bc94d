"""The columns that rows are grouped by. An attribute of episodes may bear the name of a column of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from osma_monitor.core.metrics.clauses import ClauseSummary, ReportedSummary
from osma_monitor.core.metrics.outcomes import DEPTH_EDGES, ContactSummary, Contingency, OutcomeComposition
from osma_monitor.core.metrics.safety import SafetySummary
from osma_monitor.report.table import Column

_SUMMARIES = (SafetySummary, ClauseSummary, ReportedSummary, OutcomeComposition, Contingency, ContactSummary)
_NAMES = {f.name for summary in _SUMMARIES for f in fields(summary)} | {
    *("safety_worst", "safety_best", "vsi_success", "vsi_failure"),
    *(f"class_{i}" for i in range(len(DEPTH_EDGES) + 1)),
}
#: Every column, with its interval, that a grouped table may have beside those that it is grouped by.
OWN = frozenset(_NAMES | {f"{name}_{end}" for name in _NAMES for end in ("low", "high")})


def key_of(name: str) -> str:
    """The column of a key or attribute: its name, or attribute_<name> where a column of ours has that name."""
    return f"attribute_{name}" if name in OWN else name


def key_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """The leading columns of a grouped table."""
    return tuple(Column(key_of(name), key_of(name)) for name in by)


def named(by: Sequence[str], key: Sequence[object]) -> dict[str, Any]:
    """What a row of the group ``key`` has in these columns."""
    return dict(zip(map(key_of, by), map(str, key), strict=True))
