"""One table a policy: its headline metrics with n and 95 % interval. The same run gives the same text."""

from __future__ import annotations

import math
from dataclasses import replace

from osma_monitor.report.model import METRICS, PolicySummary, Report
from osma_monitor.report.navigation_tables import FEW_CELLS
from osma_monitor.report.safety_tables import FLAT
from osma_monitor.report.table import Basis, Column, Table, format_value, frame
from osma_monitor.report.wording import plural


def policy_table(summary: PolicySummary, basis: Basis, notes: tuple[str, ...] = ()) -> Table:
    """Metric, value, interval and n, a row a metric; ``basis`` is that of the report."""
    rows = []
    for spec in METRICS.values():
        figure = summary.figures.get(spec.key)
        if figure is None:
            continue
        low, high = (format_value(v, spec.kind, spec.digits) for v in (figure.low, figure.high))
        unit = " %" if spec.kind == "percent" else ""
        rows.append(
            {
                "metric": spec.label,
                "shown": format_value(figure.value, spec.kind, spec.digits) + (unit if figure.known else ""),
                "interval": f"{low} to {high}" if figure.low == figure.low else "–",
                "behind": figure.n,
                "better": {1: "higher", -1: "lower"}[spec.better],
                "value": figure.value,
                "low": figure.low,
                "high": figure.high,
            }
        )
    columns = (
        Column("metric", "metric"),
        Column("shown", "value"),
        Column("interval", "95 % interval"),
        Column("behind", "n", "count", help="episodes behind the value"),
        Column("better", "better"),
    )
    own = []
    if summary.unknown:
        worst, best = (format_value(v, "percent") for v in (summary.safety_worst, summary.safety_best))
        own.append(f"Safety unknown in {summary.unknown} of {summary.n}: left out; counting them {worst} to {best} %.")
    ssi = summary.figures.get("ssi")
    if ssi is not None and ssi.known and math.isnan(ssi.low):
        own.append(f"SSI without an interval: {FEW_CELLS}.")
    vsi = summary.figures.get("vsi")
    if vsi is not None and vsi.low == vsi.high:
        own.append(FLAT)
    title = summary.policy or "(no policy named)"
    mine = replace(
        basis,
        n=summary.n,
        unit="episodes of this policy",
        n_unknown=summary.unknown,
        n_outcome_unknown=summary.outcome_unknown,
        n_aborted=summary.aborted,
    )
    return Table(f"policy_{title}", title, columns, frame(rows, columns), (*own, *notes), keys=1, basis=mine)


def policy_tables(report: Report) -> list[Table]:
    """A table for every policy; what holds for all of them stands under the last one."""
    cells = max((f.cells for f in report.features), default=0)
    shared = (
        "Intervals: Wilson for rates, bootstrap over episodes for VSI, bootstrap over cells for SSI.",
        *([f"SSI compares the tiers inside {plural(cells, 'matched cell')}."] if cells else []),
    )
    last = len(report.policies) - 1
    return [policy_table(p, report.basis, shared if i == last else ()) for i, p in enumerate(report.policies)]
