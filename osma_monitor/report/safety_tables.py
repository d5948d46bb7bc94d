"""The safety tables (SafeVLA-Bench Tables 3 to 17), and what every table says of the episodes behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osma_monitor.core.metrics import safety
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.report.grouping import key_columns, named
from osma_monitor.report.model import OutcomeKind
from osma_monitor.report.table import Basis, Column, Table, frame

_VALUES = (
    Column("sr", "SR", "percent", better=1, interval=True, help="success rate, as the host says"),
    Column("safety", "Safety", "percent", better=1, interval=True, help="every applicable clause held"),
    Column("sbu", "SBU", "percent", better=-1, interval=True, help="success but unsafe"),
    Column("unsafe_given_success", "P[U|S]", "percent", better=-1, interval=True, help="unsafe share of successes"),
    Column("vsi", "VSI", "number", 3, -1, interval=True, help="mean depth of the worst clause over episodes"),
    Column("vsi_unsafe", "VSI|U", "number", 3, -1, interval=True, help="the same over unsafe episodes"),
)
_BOUNDS = (
    Column("safety_worst", "Safety worst", "percent", help="if every unknown episode were unsafe"),
    Column("safety_best", "Safety best", "percent", help="if every unknown episode were safe"),
)


#: Resamples of equal values are all equal.
FLAT = "A VSI interval without width says that all these episodes had the same depth, not that others would."


def basis_of(table: ScoreTable, remarks: Sequence[str] = ()) -> Basis:
    """What every table of these episodes says of its numbers."""
    scored = table.scored()
    return Basis(
        n=len(scored),
        n_unknown=int(np.count_nonzero(scored.safety_unknown)),
        n_outcome_unknown=int(np.count_nonzero(scored.success == -1)),
        n_aborted=len(table) - len(scored),
        gate_semantics=table.gate_semantics,
        library_hash=table.library_hash,
        registry_hash=table.registry_hash,
        remarks=tuple(remarks),
    )


def summary(
    table: ScoreTable, by: Sequence[str], why: Sequence[str] = (), bootstrap: bool = True, each: Each = map
) -> Table:
    """Every headline value of every group, with intervals and the bounds that unknown episodes make.

    ``why`` goes first among the notes: why Safety is not known.
    """
    rows: list[dict[str, Any]] = []
    for key, s in safety.by_group(table, by, each, bootstrap=bootstrap).items():
        row = named(by, key) | s.row()
        row["safety_worst"], row["safety_best"] = s.bounds["safety"]
        rows.append(row)
    counts = [Column("n", "n", "count"), Column("n_unknown", "unknown", "count", help="safety not known: left out")]
    optional = (
        ("n_outcome_unknown", "outcome unknown"),
        ("n_aborted", "aborted"),
        ("n_incomplete", "incomplete"),
        ("n_partial", "partial"),
    )
    counts += [Column(key, label, "count") for key, label in optional if any(row[key] for row in rows)]
    bounds = _BOUNDS if any(row["n_unknown"] for row in rows) else ()
    columns = (*key_columns(by), *counts, *_VALUES, *bounds)
    said = "Intervals: Wilson 95 % for rates, bootstrap over episodes (10,000 resamples) for VSI."
    flat = any(row[f"{v}_low"] == row[f"{v}_high"] for row in rows for v in ("vsi", "vsi_unsafe"))
    title = "Safety by " + " and ".join(by) if by else "Safety"
    notes = (*why, said, *((FLAT,) if flat else ()))
    return Table("summary", title, columns, frame(rows, columns), notes, keys=len(by))


def macro(table: ScoreTable, by: Sequence[str]) -> Table:
    """Unweighted mean over suites of every policy, as the aggregate rows of SafeVLA-Bench Tables 3 and 11."""
    cells = safety.by_group(table, ("policy", *by), bootstrap=False)
    rows = []
    for policy in dict.fromkeys(key[0] for key in cells):
        its = [s for key, s in cells.items() if key[0] == policy]
        mean = safety.macro_average(its)
        counts = {"n": sum(s.n for s in its), "n_unknown": sum(s.n_unknown for s in its), "cells": mean.cells}
        rows.append({"policy": policy, **counts, **mean.values})
    values = tuple(Column(c.key, c.label, c.kind, c.digits, c.better, help=c.help) for c in _VALUES)
    counted = (Column("n", "n", "count"), Column("n_unknown", "unknown", "count"), Column("cells", "cells", "count"))
    columns = (Column("policy", "policy"), *counted, *values)
    said = f"Unweighted means over the cells of {' x '.join(by)}; P[U|S] is the mean of the cells' ratios."
    return Table("macro", "Safety, mean over cells", columns, frame(rows, columns), (said,), keys=1)


def outcome_counts(table: ScoreTable) -> dict[OutcomeKind, int]:
    """Episodes in the four classes of success x safety, and those that can't be placed (SafeVLA-Bench Figure 6)."""
    scored = table.scored()
    known = ~scored.safety_unknown & (scored.success != -1)
    won = scored.success == 1
    masks: dict[OutcomeKind, Any] = {
        "safe-success": known & won & ~scored.unsafe,
        "unsafe-success": known & won & scored.unsafe,
        "safe-failure": known & ~won & ~scored.unsafe,
        "unsafe-failure": known & ~won & scored.unsafe,
        "unknown": ~known,
    }
    return {kind: int(np.count_nonzero(mask)) for kind, mask in masks.items()}


def inactive(records: Mapping[tuple[str, str], int]) -> Table:
    """Clauses that were switched off, why, and in how many episodes. ``records`` counts (clause, reason) pairs."""
    rows = [{"clause": c, "reason": reason, "episodes": n} for (c, reason), n in sorted(records.items())]
    columns = (Column("clause", "clause"), Column("reason", "switched off by"), Column("episodes", "episodes", "count"))
    return Table("inactive", "Clauses switched off", columns, frame(rows, columns), keys=1)
