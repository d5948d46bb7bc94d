"""Scores from the columns of a data set equal those of its records, read one by one."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.metrics.batch import columns_of
from osma_monitor.core.metrics.safety import summarize
from osma_monitor.core.metrics.scores import ScoreTable, as_table, concatenate, score_records
from osma_monitor.core.signals.raw import same
from osma_monitor.io import corrections, dataset, store
from osma_monitor.io.errors import StoreError
from osma_monitor.io.scoring import DatasetScores, policies

from .io_examples import make_record


def example(seed: int) -> EpisodeRecord:
    """Violations, unknown and inactive clauses, attributes that others lack, contact and none."""
    record = make_record(seed, [40, 0, 7, 1][seed % 4])
    rng = np.random.default_rng(seed)
    clauses = []
    for i, clause in enumerate(record.clauses):
        upper = float(rng.normal())
        broken = upper < 0
        clauses.append(
            replace(
                clause,
                clause=f"clause_{(i + seed) % 5}",
                scored=bool((i + seed) % 4),
                rho=upper,
                lower=upper if i else -np.inf,
                upper=upper,
                status="violated" if broken else "satisfied",
                depth=min(1.0, -upper) if broken else 0.0,
                first_violation_step=int(rng.integers(9)) if broken else None,
            )
        )
    attributes = {f"a{seed % 3}": f"x{seed}", "policy": "an attribute, not the policy"}
    if seed % 4 == 2:
        attributes["robot"] = "an attribute that names the robot"
    signals = dict(record.signals)
    signals["robot_contact_force"] = np.abs(signals["robot_contact_force"]) if seed % 2 else 0.0 * record.stamps_ns
    outcome = Outcome("aborted") if seed == 5 else record.outcome
    inactive = {"tilt": f'reason {seed % 2} with }} and \\ and "inactive":{{', "self": "none"}
    return replace(
        record,
        info=replace(record.info, attributes=attributes),
        signals=signals,
        clauses=tuple(clauses),
        inactive=inactive if seed % 3 else {},
        outcome=outcome,
    )


RECORDS = [example(seed) for seed in range(14)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and two data sets made of it."""
    base = tmp_path_factory.mktemp("scoring")
    for name, records in (("run", RECORDS), ("first", RECORDS[:8]), ("second", RECORDS[8:])):
        run = base / name if name == "run" else base / f"{name}_run"
        paths = [store.write_record(run, record) for record in records]
        if name != "run":
            corrections.correct_outcome(paths[1], records[1], "success", "ada", "seen on the video")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dataset, "FILE_ROWS", 60)  # several parts
                dataset.compact(run, base / name)
            assert dataset.part_count(base / name) > 1
    return base


def assert_same(found: ScoreTable, expected: ScoreTable) -> None:
    for f in fields(ScoreTable):
        a, b = getattr(found, f.name), getattr(expected, f.name)
        if f.name == "undecided":  # a mark beside a value that is NaN anyway
            assert np.array_equal(found.unknown, expected.unknown)
        elif isinstance(a, dict):
            assert list(a) == list(b), f.name
            assert all(same(a[k].tolist(), b[k].tolist()) for k in a), f.name
        else:
            assert same(a, b), f.name


def records_in(*paths: Path) -> list[EpisodeRecord]:
    return [record for path in paths for record in store.read_episodes(path)]


@pytest.mark.parametrize("name", ["first", "second"])
def test_the_table_is_that_of_the_records(folder: Path, name: str) -> None:
    records = records_in(folder / name)
    found = DatasetScores(folder / name)
    assert_same(found.table, as_table(score_records(records)))
    assert summarize(found.table) == summarize(as_table(score_records(records)))
    assert found.inactive == Counter(item for record in records for item in record.inactive.items())
    assert found.inputs == Counter(record.provenance.session.get("inputs", "") for record in records)
    assert found.families == {c.clause: c.family for record in records for c in record.clauses}
    columns, other = found.columns(["base_x"]), columns_of(records, ["base_x"])
    assert same(columns.stamps_ns, other.stamps_ns) and same(columns.offsets, other.offsets)
    assert same(columns.signals["base_x"], other.signals["base_x"])


def test_threads_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_GROUPS", 1)
    with ThreadPoolExecutor(3) as pool:
        found, expected = DatasetScores(folder / "first", each=pool.map), DatasetScores(folder / "first")
        assert_same(found.table, expected.table)
        a, b = found.columns(["base_x", "base_y"]), expected.columns(["base_x", "base_y"])
        assert same(a.stamps_ns, b.stamps_ns) and all(same(a.signals[k], b.signals[k]) for k in b.signals)


def test_a_label_stands_behind_the_policies(folder: Path) -> None:
    plain, found = DatasetScores(folder / "first"), DatasetScores(folder / "first", "mine")
    assert list(found.table.column("policy")) == [f"{p} (mine)" for p in plain.table.column("policy")]
    [record] = found.records([2], ["base_x"])
    assert record.info.policy == found.table.column("policy")[2]


def test_policies_are_read_without_steps(folder: Path, tmp_path: Path) -> None:
    expected = {record.info.policy for record in RECORDS[:8]}
    assert policies(folder / "first") == policies(folder / "first_run") == expected
    [one, *_] = sorted((folder / "first_run").glob("*.parquet"))
    assert len(policies(one)) == 1
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert policies(tmp_path) == set()


def test_a_correction_counts(folder: Path) -> None:
    assert DatasetScores(folder / "first").table.success[1] == 1
    assert as_table(score_records(RECORDS)).success[1] == 0


def test_records_of_some_episodes_with_some_signals(folder: Path) -> None:
    part = DatasetScores(folder / "first")
    whole = records_in(folder / "first")
    found = list(part.records([6, 0, 1], ["base_x", "base_y"]))
    assert len(found) == 3
    for record, row in zip(found, (0, 1, 6), strict=True):
        assert record.info == whole[row].info and record.outcome == whole[row].outcome
        assert record.notes == whole[row].notes and same(record.clauses, whole[row].clauses)
        assert same(record.signals["base_x"], whole[row].signals["base_x"])
        assert np.isnan(record.signals["base_yaw"]).all()


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / dataset.INDEX_FILE).write_text('{"format": 99}')
    with pytest.raises(StoreError, match="format 99"):
        DatasetScores(tmp_path)


def test_tables_end_to_end() -> None:
    pieces = [RECORDS[:1], RECORDS[1:5], RECORDS[5:6], [], RECORDS[6:]]
    found = concatenate([as_table(score_records(piece)) for piece in pieces])
    assert_same(found, as_table(score_records(RECORDS)))
    assert len(concatenate([])) == 0
