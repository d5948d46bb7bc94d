"""The tables of a data set, from its columns and from its records."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.core.signals.raw import same
from osma_monitor.io import dataset, store
from osma_monitor.io.configuration import clause_library
from osma_monitor.io.scoring import DatasetScores
from osma_monitor.report.build import Collected, build, collect
from osma_monitor.report.stored import collect_stored, together

from .report_examples import study


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("stored")
    records = study()
    still = {name: np.full(len(records[0].stamps_ns), np.nan) for name in records[0].signals}
    plain = replace(records[0], info=replace(records[0].info, episode_id="arm", attributes={}), signals=still)
    for record in [*records, plain]:
        store.write_record(base / "run", record)
    dataset.compact(base / "run", base / "set")
    return base / "set"


def test_what_is_collected_is_that_of_the_records(data: Path) -> None:
    library = clause_library()
    found = collect_stored(DatasetScores(data), [library])
    expected = collect(dataset.read_records(data), rescore=[library])
    assert found.records == () and len(expected.records) > len(found.episodes) > 0
    for name in {f.name for f in fields(Collected)} - {"records", "scores", "rescored"}:
        assert same(getattr(found, name), getattr(expected, name)), name
    # another library judged these
    assert found.rescored is None and expected.rescored is None


def test_every_table_is_the_same(data: Path) -> None:
    library = clause_library()
    reports = [
        build(collected)
        for collected in (
            collect_stored(DatasetScores(data), [library]),
            collect(dataset.read_records(data), False, [library]),
        )
    ]
    assert [t.key for t in reports[0].tables] == [t.key for t in reports[1].tables]
    for a, b in zip(reports[0].tables, reports[1].tables, strict=True):
        assert a.frame.equals(b.frame), a.key
        assert a.notes == b.notes and a.title == b.title


def test_parts_and_threads_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two data sets of several parts and loose episodes, with one to three threads, against all records one by one."""
    monkeypatch.setattr(dataset, "FILE_ROWS", 500)
    library = clause_library()
    records = [
        replace(
            r,
            provenance=replace(r.provenance, library_hash=library.hash),
            clauses=tuple(replace(c, family="max_contact_force") for c in r.clauses),
        )
        for r in study()
    ]
    pieces = [records[:20], records[20:29], records[29:]]
    for name, its in zip(("a", "b"), (pieces[0], pieces[2]), strict=True):
        for record in its:
            store.write_record(tmp_path / f"{name}_run", record)
        dataset.compact(tmp_path / f"{name}_run", tmp_path / name)
    assert dataset.part_count(tmp_path / "a") > 2
    # a data set holds its episodes in the order of their files
    ordered = [*dataset.read_records(tmp_path / "a"), *pieces[1], *dataset.read_records(tmp_path / "b")]
    expected = build(collect(ordered, rescore=[library]))
    assert "sensitivity" in {t.key for t in expected.tables}
    for threads in (1, 2, 3):
        with ThreadPoolExecutor(threads) as pool:
            each = map if threads == 1 else pool.map
            first, last = (collect_stored(DatasetScores(tmp_path / n, each=each), [library], each) for n in ("a", "b"))
            found = build(together([first, collect(pieces[1], rescore=[library]), last]), each=each)
        assert [t.key for t in found.tables] == [t.key for t in expected.tables]
        for a, b in zip(found.tables, expected.tables, strict=True):
            assert a.frame.equals(b.frame), (threads, a.key)
            assert a.said == b.said
