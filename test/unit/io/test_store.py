"""The episode store: exact round trips, crashes, full disks, names, corrections, compaction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from io_examples import make_record

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.motion import MotionFeatures
from osma_monitor.core.signals.raw import same
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import codec, corrections, dataset, files, store
from osma_monitor.io.store import EpisodeWriter, StoreError, read_episodes, recover
from osma_monitor.io.tables import head, record_from_head

STEP_NS = 50_000_000


def rescored(stream: store.PartialStream) -> EpisodeRecord:
    return EpisodeRecord(
        stream.info,
        Outcome(),
        stream.stamps_ns,
        stream.signals,
        stream.obstacle,
        (),
        {},
        MotionFeatures(),
        partial=True,
    )


def log(writer: EpisodeWriter, record: EpisodeRecord) -> None:
    for i, stamp in enumerate(record.stamps_ns):
        writer.append(int(stamp), [record.signals[s][i] for s in SIGNALS], record.obstacle[i])


def test_a_stored_episode_reads_back_to_the_last_bit(tmp_path: Path) -> None:
    records = [make_record(i, steps) for i, steps in enumerate((120, 0, 1, 500))]
    for record in records:
        with EpisodeWriter(tmp_path, record.info) as writer:
            log(writer, record)
            assert writer.finish(record).suffix == ".parquet"
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob(".*"))
    read = {r.info.episode_id: r for r in read_episodes(tmp_path)}
    assert len(read) == 4
    for record in records:
        assert same(read[record.info.episode_id], record)


floats = st.floats(width=64)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(floats, min_size=1, max_size=5),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
    floats,
)
def test_any_float_and_text_round_trips_through_strict_json(
    values: list[float], text: str, mapping: dict[str, str], depth: float
) -> None:
    base = make_record(0, len(values))
    record = replace(
        base,
        info=replace(base.info, instruction=text, attributes=mapping),
        motion=MotionFeatures(*([depth] * 7)),
        clauses=tuple(replace(c, rho=v, lower=v, upper=depth) for c, v in zip(base.clauses * 3, values, strict=False)),
        notes=(text,),
        inactive=mapping,
    )
    text_form = json.dumps(head(record), allow_nan=False)
    assert same(record_from_head(json.loads(text_form), record.stamps_ns, record.signals, record.obstacle), record)


def test_the_running_stream_holds_whole_seconds(tmp_path: Path) -> None:
    record = make_record(1, 50)
    with EpisodeWriter(tmp_path, record.info, {"library_hash": "abc"}) as writer:
        for i in range(50):
            writer.append(int(record.stamps_ns[i]), [record.signals[s][i] for s in SIGNALS], record.obstacle[i])
            if writer.part.stat().st_size:
                held = store.read_part(writer.part)
                assert record.stamps_ns[i] - held.stamps_ns[-1] < 1_000_000_000
    stream = store.read_part(writer.part)
    assert stream.info == record.info and stream.context == {"library_hash": "abc"} and not stream.cut
    assert same(stream.signals, dict(record.signals)) and stream.obstacle == record.obstacle


def test_kill_9_loses_at_most_the_last_second_and_no_finished_episode(tmp_path: Path) -> None:
    script = """
import sys
sys.path.insert(0, sys.argv[2])
from io_examples import make_record
from osma_monitor.io.store import EpisodeWriter
from osma_monitor.core.signals.schema import SIGNALS
done = make_record(0, 40)
EpisodeWriter(sys.argv[1], done.info).finish(done)
running = make_record(1, 95)
writer = EpisodeWriter(sys.argv[1], running.info)
for i, stamp in enumerate(running.stamps_ns):
    writer.append(int(stamp), [running.signals[s][i] for s in SIGNALS], running.obstacle[i])
print("ready", flush=True)
sys.stdin.read()
"""
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), here], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline().strip() == "ready"
    assert recover(tmp_path, rescored) == [], "a stream whose writer lives is left alone"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close(), process.stdout.close()
    (recovery,) = recover(tmp_path, rescored)
    expected = make_record(1, 95)
    record = recovery.record
    assert record is not None and not record.complete and record.outcome.status == "unknown"
    rows = len(record.stamps_ns)
    assert expected.stamps_ns[-1] - record.stamps_ns[-1] <= 1_000_000_000
    assert same(record.signals["base_x"], expected.signals["base_x"][:rows])
    assert "did not end" in recovery.message and str(rows) in recovery.message
    assert [r.complete for r in read_episodes(tmp_path)] == [True, False]
    assert same(next(iter(read_episodes(tmp_path))), make_record(0, 40))
    assert recover(tmp_path, rescored) == []


def test_a_stream_cut_at_any_byte_gives_its_whole_batches(tmp_path: Path) -> None:
    record = make_record(2, 70)
    with EpisodeWriter(tmp_path / "whole", record.info) as writer:
        log(writer, record)
    data = writer.part.read_bytes()
    lengths = set()
    for end in range(0, len(data) + 1, 997):
        part = tmp_path / "cut.part"
        part.write_bytes(data[:end])
        try:
            stream = store.read_part(part)
        except StoreError:
            assert end < 20_000
            continue
        rows = len(stream.stamps_ns)
        lengths.add(rows)
        assert same(stream.signals["base_y"], record.signals["base_y"][:rows])
    assert len(lengths) > 2


def test_an_unreadable_stream_is_kept_and_said_so(tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(b"\xff")
    (tmp_path / "y.part").write_bytes(b"\xff\xff\xff\xffnonsense" * 10)
    messages = [r.message for r in recover(tmp_path, rescored)]
    assert len(messages) == 2 and all("unreadable" in m for m in messages)
    assert len(list(tmp_path.glob("*.unreadable"))) == 2


def test_a_stream_without_a_step_leaves_no_file(tmp_path: Path) -> None:
    record = make_record(0, 5)
    EpisodeWriter(tmp_path, record.info).close()
    with EpisodeWriter(tmp_path, record.info):
        pass
    assert list(tmp_path.iterdir()) == []
    writer = EpisodeWriter(tmp_path, record.info)  # lives, and has nothing to write yet
    (tmp_path / "killed.part").touch()
    (recovery,) = recover(tmp_path, rescored)
    assert recovery.part.name == "killed.part" and recovery.message.endswith("removed")
    assert list(tmp_path.iterdir()) == [writer.part]
    writer.finish(record)
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


@pytest.mark.parametrize(
    "episode_id",
    ["../../etc/passwd", "/abs/olute", "a\x00b", "", "." * 300, "né\n<b>", "kitchen/layout0/A/baby/3", "\ud800"],
)
def test_episode_ids_are_never_paths(tmp_path: Path, episode_id: str) -> None:
    record = make_record(0, 5)
    record = replace(record, info=replace(record.info, episode_id=episode_id))
    folder = tmp_path / "run"
    path = store.write_record(folder, record)
    assert path.parent == folder and len(path.name) < 120
    assert list(tmp_path.iterdir()) == [folder]
    (read,) = read_episodes(folder)
    assert same(read, record)


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    record = make_record(0, 5)
    first = store.write_record(tmp_path, record)
    before = first.read_bytes()
    open_writer = EpisodeWriter(tmp_path, record.info)
    third = store.write_record(tmp_path, record)
    second = open_writer.finish(record)
    assert len({first, second, third}) == 3 and first.read_bytes() == before
    assert len(list(read_episodes(tmp_path))) == 3


def test_a_full_disk_is_a_typed_error_and_nothing_written_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_record(3, 100)
    writer = EpisodeWriter(tmp_path, record.info)
    real_write, full = os.write, False

    def write(fd: int, data: bytes) -> int:
        if full:
            real_write(fd, bytes(data[:100]))  # a torn write, as on a full disk
            raise OSError(28, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", write)
    errors = 0
    for i, stamp in enumerate(record.stamps_ns):
        full = 30 <= i < 60
        try:
            writer.append(int(stamp), [record.signals[s][i] for s in SIGNALS], record.obstacle[i])
        except StoreError as error:
            assert error.errno == 28 and "No space left" in str(error) and "monitoring goes on" in str(error)
            errors += 1
    assert errors
    writer.flush()
    assert same(dict(store.read_part(writer.part).signals), dict(record.signals))
    monkeypatch.setattr(files, "replace_file", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="No space left"):
        writer.finish(record)
    monkeypatch.undo()
    (recovery,) = recover(tmp_path, rescored)
    assert recovery.record is not None and same(dict(recovery.record.signals), dict(record.signals))


def test_folders_that_cannot_be_made_are_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        EpisodeWriter(tmp_path / "file" / "run", EpisodeInfo("x"))
    with pytest.raises(StoreError, match="no such file"):
        list(read_episodes(tmp_path / "absent"))


def test_files_that_are_no_episodes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match=r"a\.parquet: not readable as Parquet"):
        list(read_episodes(tmp_path))
    import pyarrow as pa

    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    with pytest.raises(StoreError, match="no episode file"):
        list(read_episodes(tmp_path))


def test_older_records_read_with_defaults_and_newer_formats_are_refused(tmp_path: Path) -> None:
    record = make_record(0, 5)
    path = store.write_record(tmp_path, record)
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    data = json.loads(metadata[b"osma.record"])
    del data["notes"], data["refused"], data["provenance"]["backend"]
    data["info"]["of_a_later_version"] = 1
    metadata[b"osma.record"] = json.dumps(data).encode()
    old = table.drop_columns([SIGNALS[-1]]).replace_schema_metadata(metadata)
    pq.write_table(old, path)
    (read,) = read_episodes(path)
    assert read.notes == () and read.refused == 0 and read.provenance.backend == "native"
    assert np.isnan(read.signals[SIGNALS[-1]]).all() and same(read.signals["base_x"], record.signals["base_x"])
    metadata[b"osma.format"] = b"99"
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(StoreError, match="format 99"):
        list(read_episodes(path))
    del data["outcome"]
    metadata |= {b"osma.record": json.dumps(data).encode(), b"osma.format": b"1"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(StoreError, match=r"EpisodeRecord\.outcome is missing"):
        list(read_episodes(path))


def test_codec_names_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"EpisodeInfo\.seed: '3' is no int"):
        codec.loads(EpisodeInfo, '{"episode_id": "a", "seed": "3"}')
    with pytest.raises(TypeError, match="object"):
        codec.dumps(object())


def test_a_correction_is_stored_beside_the_original(tmp_path: Path) -> None:
    record = make_record(0, 5)
    path = store.write_record(tmp_path, record)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="who"):
        corrections.correct_outcome(path, record, "failure", "", "slipped")
    corrections.correct_outcome(path, record, "aborted", "ada", "wrong scene")
    corrections.correct_outcome(path, record, "failure", "ada", "the mug slipped")
    assert path.read_bytes() == before
    (read,) = read_episodes(tmp_path)
    assert read.outcome.status == "failure" and "by ada" in read.notes[-1] and "the mug slipped" in read.notes[-1]
    (original,) = read_episodes(tmp_path, corrected=False)
    assert same(original, record)
    dataset.compact(tmp_path, tmp_path.parent / "compacted_with_corrections")
    (kept,) = read_episodes(tmp_path.parent / "compacted_with_corrections")
    assert kept.outcome.status == "failure"
    with open(tmp_path / "corrections.jsonl", "a") as out:
        out.write("{broken\n")
    with pytest.raises(StoreError, match=r"corrections\.jsonl:3"):
        list(read_episodes(tmp_path))


def test_run_facts_keep_their_history(tmp_path: Path) -> None:
    store.write_run(tmp_path, {"policies": ["a"]})
    store.write_run(tmp_path, {"policies": ["b"]})
    data = json.loads((tmp_path / "run.json").read_text())
    assert data["policies"] == ["b"] and data["history"][0]["policies"] == ["a"] and data["format"] == 1


@pytest.fixture
def compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[EpisodeRecord]]:
    monkeypatch.setattr(dataset, "ROW_GROUP", 300)
    monkeypatch.setattr(dataset, "FILE_ROWS", 1000)
    records = [make_record(i, 17 * i % 230) for i in range(30)]
    for i, record in enumerate(records):
        store.write_record(tmp_path / f"run{i % 2}", record)
    assert dataset.compact([tmp_path / "run0", tmp_path / "run1"], tmp_path / "set") == 30
    ordered = list(read_episodes([tmp_path / "run0", tmp_path / "run1"]))
    return tmp_path / "set", ordered


def test_a_compacted_data_set_holds_equal_records(compacted: tuple[Path, list[EpisodeRecord]], tmp_path: Path) -> None:
    path, records = compacted
    assert dataset.part_count(path) > 2
    read = list(read_episodes(path))
    assert len(read) == len(records) and all(same(a, b) for a, b in zip(read, records, strict=True))
    assert dataset.compact([path, tmp_path / "run0"], tmp_path / "again") == 45
    assert all(same(a, b) for a, b in zip(read_episodes(tmp_path / "again"), records, strict=False))


def test_columns_of_a_data_set_are_those_of_its_records(compacted: tuple[Path, list[EpisodeRecord]]) -> None:
    path, records = compacted
    columns = dataset.read_columns(path, ["base_x", "obstacle_distance", "no_such_signal"])
    assert np.isnan(columns.signals["no_such_signal"]).all()
    for e, record in enumerate(records):
        rows = slice(columns.offsets[e], columns.offsets[e + 1])
        assert same(columns.stamps_ns[rows], record.stamps_ns)
        assert same(columns.signals["obstacle_distance"][rows], record.signals["obstacle_distance"])
    pieces = [dataset.read_columns(path, ["base_x"], part=p) for p in range(dataset.part_count(path))]
    assert same(np.concatenate([p.signals["base_x"] for p in pieces]), columns.signals["base_x"])
    assert pieces[0].first_episode == 0 and sum(len(p.offsets) - 1 for p in pieces) == 30


def test_pandas_duckdb_and_polars_read_a_data_set(compacted: tuple[Path, list[EpisodeRecord]]) -> None:
    import pandas as pd

    path, records = compacted
    episodes = pd.read_parquet(path / "episodes")
    steps = pd.read_parquet(path / "steps", columns=["episode", "obstacle_distance", "obstacle"])
    assert len(episodes) == 30 and set(episodes["policy"]) == {r.info.policy for r in records}
    total = sum(len(r.stamps_ns) for r in records)
    assert len(steps) == total
    assert len(pd.read_parquet(path / "clauses")) == sum(len(r.clauses) for r in records)
    duckdb = pytest.importorskip("duckdb")
    count = duckdb.connect().execute(f"select count(*) from '{path}/steps/*.parquet'").fetchone()
    assert count == (total,)
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(f"{path}/steps/*.parquet", columns=["episode", "base_x"])
    assert frame.height == total


def test_compaction_goes_on_past_broken_files_and_never_overwrites(tmp_path: Path) -> None:
    store.write_record(tmp_path / "run", make_record(0, 5))
    (tmp_path / "run" / "a.parquet").write_bytes(b"")
    problems: list[str] = []
    assert dataset.compact(tmp_path / "run", tmp_path / "set", problems=problems) == 1
    assert len(problems) == 1 and "a.parquet" in problems[0]
    with pytest.raises(StoreError, match="exists already"):
        dataset.compact(tmp_path / "run", tmp_path / "set")
    with pytest.raises(StoreError, match=r"a\.parquet"):
        dataset.compact(tmp_path / "run", tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "set"]


def logged_in_segments(folder: Path, record: EpisodeRecord, segment_bytes: int = 20_000) -> EpisodeWriter:
    writer = EpisodeWriter(folder, record.info, {"missing": "{}"}, segment_bytes=segment_bytes)
    log(writer, record)
    writer.flush()
    return writer


def test_a_long_stream_goes_on_in_new_files_and_reads_as_one(tmp_path: Path) -> None:
    record = make_record(1, 2000)
    writer = logged_in_segments(tmp_path, record)
    files_of = store.segments(writer.part)
    assert len(files_of) > 10 and {f.name for f in tmp_path.iterdir()} == {f.name for f in files_of}
    assert files_of[1].name == f"{writer.part.name}.0002"
    assert all(f.stat().st_size < 20_000 + 20_000 for f in files_of), "a batch more at most"
    stream = store.read_part(writer.part)
    assert not stream.cut and stream.info == record.info and stream.context == {"missing": "{}"}
    assert np.array_equal(stream.stamps_ns, record.stamps_ns) and stream.obstacle == record.obstacle
    assert same(dict(stream.signals), dict(record.signals))
    path = writer.finish(record)
    assert list(tmp_path.iterdir()) == [path] and same(next(read_episodes(path)), record)


def test_a_dead_writer_s_segments_become_one_record(tmp_path: Path) -> None:
    record = make_record(1, 1000)
    logged_in_segments(tmp_path, record).close()
    [recovery] = recover(tmp_path, rescored)
    assert recovery.record is not None and np.array_equal(recovery.record.stamps_ns, record.stamps_ns)
    assert [f.suffix for f in tmp_path.iterdir()] == [".parquet"]


@pytest.mark.parametrize("damaged", [0, 1, -1])
@pytest.mark.parametrize("how", ["head", "tail"])
def test_a_damaged_segment_costs_no_other(tmp_path: Path, damaged: int, how: str) -> None:
    record = make_record(1, 1000)
    writer = logged_in_segments(tmp_path, record)
    writer.close()
    file = store.segments(writer.part)[damaged]
    rows = [len(store.read_part(f).stamps_ns) for f in store.segments(writer.part)[1:]]
    rows.insert(0, 1000 - sum(rows))
    data = file.read_bytes()
    file.write_bytes(b"\xff" * 100 if how == "head" else data[:-100])
    stream = store.read_part(writer.part)
    assert stream.cut and 1000 - rows[damaged] <= len(stream.stamps_ns) < 1000
    assert np.all(np.diff(stream.stamps_ns) > 0) and set(stream.stamps_ns) < set(record.stamps_ns)


def test_a_disk_that_fills_between_two_segments_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record(1, 400)
    writer = EpisodeWriter(tmp_path, record.info, segment_bytes=20_000)
    opened = os.open
    full = True

    def no_room(path: object, *rest: object) -> int:
        if full and str(path).endswith(".0002"):
            raise OSError(28, "No space left on device")
        return opened(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", no_room)
    assert not writer.writing
    refused = 0
    for i, stamp in enumerate(record.stamps_ns):
        try:
            writer.append(int(stamp), [record.signals[s][i] for s in SIGNALS], record.obstacle[i])
        except StoreError as error:
            refused += 1
            assert "0002: No space left on device" in str(error) and not writer.writing
        if i == 300:
            assert refused
            full = False
    writer.flush()
    assert writer.writing and np.array_equal(store.read_part(writer.part).stamps_ns, record.stamps_ns)


def test_the_oldest_episodes_go_when_the_folder_is_over_its_limit(tmp_path: Path) -> None:
    stored = [store.write_record(tmp_path, make_record(i, 200)) for i in range(5)]
    for age, path in enumerate(reversed(stored)):
        os.utime(path, ns=(10**18 - age * 10**9,) * 2)
    own = tmp_path / "notes.parquet"
    own.write_bytes(b"x" * 100_000)
    running = logged_in_segments(tmp_path, make_record(9, 100))
    assert store.prune(tmp_path, 10**9) == []
    streams = sum(f.stat().st_size for f in store.segments(running.part))
    keep_two = streams + sum(p.stat().st_size for p in stored[3:])
    assert store.prune(tmp_path, keep_two) == stored[:3]
    assert store.prune(tmp_path, 0) == [stored[3]], "the newest stays"
    assert own.exists() and running.part.exists() and stored[4].exists()
    running.abandon()
    assert sorted(tmp_path.iterdir()) == sorted([own, stored[4]])


def test_a_seed_that_no_column_holds_is_named_and_the_rest_is_compacted(tmp_path: Path) -> None:
    good = make_record(0, 20)
    for number, seed in enumerate((2**63 - 1, 2**63, -(2**63))):
        info = replace(good.info, episode_id=f"e{number}", seed=seed)
        store.write_record(tmp_path / "run", replace(good, info=info))
    problems: list[str] = []
    assert dataset.compact(tmp_path / "run", tmp_path / "set", problems=problems) == 2
    assert len(problems) == 1 and f"seed {2**63} does not fit" in problems[0] and "e1" in problems[0]
    assert {r.info.seed for r in read_episodes(tmp_path / "set")} == {2**63 - 1, -(2**63)}
    with pytest.raises(StoreError, match="64 bits"):
        dataset.compact(tmp_path / "run", tmp_path / "other")
    assert not (tmp_path / "other").exists()
