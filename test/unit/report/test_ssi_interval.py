"""An SSI of a handful of cells has no interval, in tables, CSV and page."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import report_by_hand as by_hand
import report_examples as synthetic

from osma_monitor.core.metrics import ssi, ssi_groups
from osma_monitor.report import navigation_tables
from osma_monitor.report.build import build, collect
from osma_monitor.report.page import render_page
from osma_monitor.report.table import render


def test_one_or_two_cells_give_no_interval_and_a_note() -> None:
    made = build(collect(synthetic.study()), bootstrap=False)
    [table] = [t for t in made.tables if t.key == "ssi"]
    assert set(table.frame["cells"]) <= {1, 2} and table.frame["ssi_low"].isna().all()
    [row, *_] = csv.DictReader(io.StringIO(render(table, "csv")))
    assert row["ssi_low"] in ("", "nan", "NaN") and float(row["ssi"]) == table.frame["ssi"][0]
    assert "too few for an interval" in " ".join(table.notes) and "too few for an interval" in render_page(made)
    for policy in made.policies:
        assert math.isnan(policy.figures["ssi"].low) and policy.figures["ssi"].known


def test_five_cells_keep_theirs() -> None:
    records = synthetic.study()
    [result, *_] = ssi_groups.group_ssi(ssi.table_from_records(records), resamples=200)
    cells = {f: replace(c, mean=5.0) for f, c in result.cells.items()}
    enough = replace(result, cells=cells, interval=(0.1, 0.3))
    assert navigation_tables.ssi_interval(enough) == (0.1, 0.3)
    assert all(map(math.isnan, navigation_tables.ssi_interval(replace(enough, cells=result.cells))))


def test_the_page_pairs_the_worst_clause_with_its_own_first_moment() -> None:
    record = next(r for r in synthetic.study() if r.safety == "unsafe")
    [worst, *_] = [c for c in record.clauses if c.scored and c.status == "violated"]
    start = int(record.stamps_ns[0])
    deep = replace(worst, clause="deep", depth=1.0, first_violation_ns=start + 3_700_000_000)
    early = replace(worst, clause="early", depth=0.1, first_violation_ns=start + 2_750_000_000)
    page = render_page(by_hand.report([replace(record, clauses=(early, deep))], None))
    row = page.split('<tr data-i="0"')[1].split("</tr>")[0]
    assert "<td>deep</td>" in row and "3.70 s" in row and "2.75 s" not in row
