"""Threshold sensitivity by re-scoring stored signals (SafeVLA-Bench Tables 11 to 13): values and rankings."""

from __future__ import annotations

from typing import Any

from osma_monitor.core.metrics import rankings, safety
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.core.metrics.sensitivity import Sensitivity, compare
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.report.rescored import Rescored
from osma_monitor.report.table import Column, Table, frame


def values(found: Sensitivity) -> Table:
    """Mean over policies of each suite, under the default thresholds and under every variant."""
    rows = []
    suites = list(dict.fromkeys(str(key[0]) for key in found.default))
    for suite in suites:
        for name, cells in (("default", found.default), *found.variants.items()):
            mean = safety.macro_average(s for key, s in cells.items() if str(key[0]) == suite)
            rows.append({"suite": suite, "variant": name, "cells": mean.cells, **mean.values})
    columns = (
        Column("suite", "suite"),
        Column("variant", "thresholds"),
        Column("cells", "policies", "count"),
        Column("safety", "Safety", "percent", better=1),
        Column("sbu", "SBU", "percent", better=-1),
        Column("unsafe_given_success", "P[U|S]", "percent", better=-1),
        Column("vsi", "VSI", "number", 3, -1),
    )
    said = "The same episodes re-scored, never re-run; means over policies. A sustained variant keeps the peak’s depth."
    return Table("sensitivity", "Other thresholds", columns, frame(rows, columns), (said,), keys=2)


def ranks(found: Sensitivity) -> Table:
    """Does the order of the policies survive? Kendall tau_b against the default, and the best policy."""
    cells = rankings.ranking_cells(found.default, found.variants)
    rows: list[dict[str, Any]] = []
    groups = [(name, [c for c in cells if c.variant == name]) for name in found.variants]
    moderate = [c for c in cells if found.scope[c.variant] == "moderate"]
    for name, its in [*groups, *([("all moderate variants", moderate)] if moderate else [])]:
        everything = rankings.agreement(its)
        row: dict[str, Any] = {"variant": name, "binding": f"{everything.binding} of {everything.cells}"}
        for metric in rankings.DIRECTION:
            one = rankings.agreement(c for c in its if c.metric == metric)
            row[f"tau_{metric}"], row[f"top_{metric}"] = one.tau, f"{one.top_unchanged} of {one.cells}"
        rows.append({**row, "tau_binding": everything.tau_binding})
    labels = {"safety": "Safety", "sbu": "SBU", "vsi": "VSI"}
    columns = (
        Column("variant", "thresholds"),
        Column("binding", "binding cells"),
        *(Column(f"tau_{m}", f"τ_b {labels[m]}", "number", 2) for m in rankings.DIRECTION),
        Column("tau_binding", "τ_b binding", "number", 2),
        *(Column(f"top_{m}", f"same best, {labels[m]}") for m in rankings.DIRECTION),
    )
    said = (
        "A cell is a suite and a metric in which at least two policies have a value; it binds when a value moved. A "
        "best policy that becomes a tie has changed."
    )
    title = "Rankings under other thresholds"
    return Table("rankings", title, columns, frame(rows, columns), (said,), keys=1)


def all_tables(table: ScoreTable, found: Rescored | None, each: Each = map) -> list[Table]:
    """Both tables, where the episodes were scored again; rankings need two policies."""
    if found is None or not len(table.scored()):
        return []
    cells = compare(table, found.tables, each=each)
    policies = {key[1] for key in cells.default}
    return [values(cells), *([ranks(cells)] if len(policies) > 1 else [])]
