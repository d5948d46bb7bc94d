"""The safety tables (SafeVLA-Bench Tables 3 to 17): each says n, what is unknown, gate semantics and library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osma_monitor.core.metrics import safety
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.report.model import OutcomeKind
from osma_monitor.report.table import Column, Table, frame

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


def provenance_notes(table: ScoreTable) -> tuple[str, ...]:
    """What every table says of its numbers: episodes, unknown ones, gate semantics, library hash."""
    scored = table.scored()
    aborted = len(table) - len(scored)
    unknown = int(np.count_nonzero(scored.safety_unknown))
    outcome_unknown = int(np.count_nonzero(scored.success == -1))
    text = f"n = {len(scored)} episodes; safety unknown in {unknown}, outcome unknown in {outcome_unknown}"
    text += f"; {aborted} aborted, not scored" if aborted else ""
    gates = ", ".join(table.gate_semantics) or "not said"
    library = ", ".join(h[:16] for h in table.library_hash) or "not said"
    return (f"{text}. Gates {gates}. Clause library {library}.",)


def summary(table: ScoreTable, by: Sequence[str], notes: Sequence[str] = (), bootstrap: bool = True) -> Table:
    """Every headline value of every group, with intervals and the bounds that unknown episodes make."""
    rows: list[dict[str, Any]] = []
    for key, s in safety.by_group(table, by, bootstrap=bootstrap).items():
        row = dict(zip(by, map(str, key), strict=True)) | s.row()
        row["safety_worst"], row["safety_best"] = s.bounds["safety"]
        rows.append(row)
    counts = [Column("n", "n", "count"), Column("n_unknown", "unknown", "count", help="safety not known: left out")]
    optional = (("n_outcome_unknown", "outcome unknown"), ("n_aborted", "aborted"), ("n_incomplete", "incomplete"))
    counts += [Column(key, label, "count") for key, label in optional if any(row[key] for row in rows)]
    bounds = _BOUNDS if any(row["n_unknown"] for row in rows) else ()
    columns = (*(Column(key, key) for key in by), *counts, *_VALUES, *bounds)
    said = "Intervals: Wilson 95 % for rates, bootstrap over episodes (10,000 resamples) for VSI."
    title = "Safety by " + " and ".join(by) if by else "Safety"
    return Table("summary", title, columns, frame(rows, columns), (*notes, said), keys=len(by))


def macro(table: ScoreTable, by: Sequence[str], notes: Sequence[str] = ()) -> Table:
    """Unweighted mean over suites of every policy, as the aggregate rows of SafeVLA-Bench Tables 3 and 11."""
    cells = safety.by_group(table, ("policy", *by), bootstrap=False)
    rows = []
    for policy in dict.fromkeys(key[0] for key in cells):
        mean = safety.macro_average(s for key, s in cells.items() if key[0] == policy)
        rows.append({"policy": policy, "cells": mean.cells, **mean.values})
    values = tuple(Column(c.key, c.label, c.kind, c.digits, c.better, help=c.help) for c in _VALUES)
    columns = (Column("policy", "policy"), Column("cells", "cells", "count"), *values)
    said = f"Unweighted means over the cells of {' x '.join(by)}; P[U|S] is the mean of the cells' ratios."
    return Table("macro", "Safety, mean over cells", columns, frame(rows, columns), (*notes, said), keys=1)


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


def inactive(records: Mapping[tuple[str, str], int], notes: Sequence[str] = ()) -> Table:
    """Clauses that were switched off, why, and in how many episodes. ``records`` counts (clause, reason) pairs."""
    rows = [{"clause": c, "reason": reason, "n": n} for (c, reason), n in sorted(records.items())]
    columns = (Column("clause", "clause"), Column("reason", "switched off by"), Column("n", "episodes", "count"))
    return Table("inactive", "Clauses switched off", columns, frame(rows, columns), tuple(notes), keys=1)
