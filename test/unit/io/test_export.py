"""Exports: MCAP with our messages, rerun, CSV, and LeRobot data sets with safety columns."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bag_examples import config, episode, make_info, write_bag
from lerobot_examples import features, make_v21, make_v30

from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.signals.raw import same
from osma_monitor.io import store
from osma_monitor.io.bag.mapping import parse_mapping
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.datasets.lerobot import LeRobotDataset
from osma_monitor.io.datasets.write_back import MARGIN, VIOLATED, write_back
from osma_monitor.io.errors import StoreError
from osma_monitor.io.export_mcap import export_mcap, exported_records
from osma_monitor.io.export_rerun import export_rerun
from osma_monitor.io.sources import Findings, open_source
from osma_monitor.resources import config_path


@pytest.fixture
def record(tmp_path: Path) -> EpisodeRecord:
    (one,) = score_bag(write_bag(tmp_path / "source", episode()), config())
    return one


def test_an_exported_mcap_holds_what_the_monitor_says(record: EpisodeRecord, tmp_path: Path) -> None:
    path = export_mcap(record, tmp_path / "a.mcap", config())
    messages: dict[str, list[object]] = {}
    with Recording(path) as recording:
        for topic, stamp, message in recording.messages():
            messages.setdefault(topic, []).append(message)
            assert record.stamps_ns[0] <= stamp <= record.stamps_ns[-1]
        assert recording.losses == []
    statuses, (clauses,) = messages["/osma/status"], messages["/osma/clauses"]
    assert len(statuses) == len(record.stamps_ns) and len(messages["/odom"]) == 60
    active = [c.clause for c in record.clauses]
    assert clauses.clause[: len(active)] == active  # type: ignore[attr-defined]
    assert statuses[-1].upper.tolist() == [c.upper for c in record.clauses]  # type: ignore[attr-defined]
    first = {v.clause: v.step for v in reversed(messages["/osma/violations"]) if v.event == 1}  # type: ignore[attr-defined]
    assert first == {c.clause: c.first_violation_step for c in record.clauses if c.first_violation_step is not None}
    (summary,) = messages["/osma/summary"]
    assert summary.d_min == record.motion.d_min and summary.m_v == record.motion.M_v  # type: ignore[attr-defined]
    force = [m.data for m in messages["/osma/signals/contact_force_max"]]  # type: ignore[attr-defined]
    assert force == record.signals["contact_force_max"].tolist()
    start, end = messages["/episode"]
    assert (start.event, end.event, end.outcome) == (1, 2, 1)  # type: ignore[attr-defined]


def test_an_exported_mcap_scores_equal_to_what_was_exported(record: EpisodeRecord, tmp_path: Path) -> None:
    path = export_mcap(record, tmp_path / "a.mcap", config())
    findings = Findings()
    (again,) = open_source(path, config(), findings=findings)
    assert same(again, record) and not findings.problems
    other = export_mcap(replace(record, info=replace(record.info, episode_id="other")), tmp_path / "b.mcap", config())
    assert len(list(open_source(tmp_path, config()))) == 2 and other.is_file()
    # a mapping asks for the topics to be judged, and a file that was cut off is a damaged bag
    (judged,) = open_source(path, config(), parse_mapping("topics: {base: /odom}"))
    assert not same(judged, record)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    assert exported_records(path) == [] and exported_records(tmp_path) == []


def test_an_export_of_an_export_and_an_empty_episode(record: EpisodeRecord, tmp_path: Path) -> None:
    empty = {name: values[:0] for name, values in record.signals.items()}
    none = replace(record, stamps_ns=record.stamps_ns[:0], signals=empty, obstacle=())
    (again,) = exported_records(export_mcap(none, tmp_path / "none.mcap", config()))
    assert same(again, none)
    first = export_mcap(record, tmp_path / "a.mcap", config())
    (read,) = exported_records(first)
    assert export_mcap(read, tmp_path / "b.mcap", config()).read_bytes()[:8] == first.read_bytes()[:8]


def test_a_wrong_format_leaves_no_folder_and_a_second_export_says_its_name(
    record: EpisodeRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = store.write_record(tmp_path / "run", record), tmp_path / "out"
    assert main(["export", str(source), "-o", str(out), "--to", "pdf"]) == 2
    assert "--to pdf: expected one of mcap, rerun, csv" in capsys.readouterr().err and not out.exists()
    assert main(["export", str(source), "-o", str(out), "--to", "csv"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["export", str(source), "-o", str(out), "--to", "csv"]) == 0
    assert "-2.csv: under this name, since" in capsys.readouterr().err


def test_the_foxglove_layout_names_topics_that_the_export_has(record: EpisodeRecord, tmp_path: Path) -> None:
    layout = json.loads(config_path("foxglove", "osma.json").read_text())
    with Recording(export_mcap(record, tmp_path / "a.mcap", config())) as recording:
        topics = set(recording.topics)
        known = {t: recording.topics[t].type for t in topics}
    paths = [p["value"] for panel in layout["configById"].values() for p in panel.get("paths", [])]
    paths += [panel["topicPath"] for panel in layout["configById"].values() if "topicPath" in panel]
    for text in paths:
        topic = text.split(".")[0]
        signal = topic.removeprefix("/osma/signals/")
        assert topic in topics or signal in record.signals or topic == "/osma/violations", text
    assert known["/osma/status"] == "osma_monitor/msg/ClauseStatus"

    def leaves(node: object) -> list[str]:
        return [node] if isinstance(node, str) else [*leaves(node["first"]), *leaves(node["second"])]  # type: ignore[index]

    assert sorted(leaves(layout["layout"])) == sorted(layout["configById"])


def test_rerun_recordings_are_written_where_the_extra_is_there(record: EpisodeRecord, tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    assert export_rerun(record, tmp_path / "a.rrd", config()).stat().st_size > 10_000


def test_export_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_bag(tmp_path / "bag", episode())
    assert main(["export", str(bag), "--out", str(tmp_path / "out"), "--to", "csv"]) == 0
    (file,) = (tmp_path / "out").glob("*.csv")
    rows = list(csv.DictReader(file.open()))
    assert len(rows) == 60 and float(rows[3]["base_x"]) == 0.09 and rows[0]["obstacle"] == "vase"
    assert main(["export", str(bag), "--out", str(tmp_path / "out")]) == 0
    assert main(["export", str(bag), "--out", str(tmp_path / "out"), "--episode", "other"]) == 2
    assert "no episode matched" in capsys.readouterr().err
    assert main(["export", str(bag), "--out", str(tmp_path / "out"), "--to", "pdf"]) == 2
    assert len(list((tmp_path / "out").glob("*.mcap"))) == 1 and make_info().episode_id


# -------------------------------------------------------------------------------------------------------------- LeRobot


@pytest.mark.parametrize("make", [make_v21, make_v30])
def test_a_copy_with_safety_columns_keeps_to_the_published_format(tmp_path: Path, make: Callable[..., Path]) -> None:
    path = make(tmp_path / "set", [30, 50, 20])
    (path / "videos").mkdir()
    (path / "videos" / "a.mp4").write_bytes(b"video")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    out = write_back(path, tmp_path / "copy", config())
    assert {p: p.read_bytes() for p in before} == before, "the original is not touched"
    records = list(open_source(path, config()))
    copy = LeRobotDataset(out)
    assert (out / "videos" / "a.mp4").read_bytes() == b"video"
    described = copy.info["features"]
    names = {c.clause for r in records for c in r.clauses}
    assert set(described) == set(features()) | {MARGIN + n for n in names} | {VIOLATED}
    assert all("/" not in n for n in described), "LeRobot refuses names with a slash"
    for entry, record in zip(copy.entries, records, strict=True):
        table = copy.table(entry)
        hints = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        for name in (*(MARGIN + n for n in names), VIOLATED):
            kind = described[name]["dtype"]
            assert str(table.schema.field(name).type) == {"float32": "float", "bool": "bool"}[kind]
            assert described[name]["shape"] == [1] and hints[name] == {"dtype": kind, "_type": "Value"}
        assert table.num_rows == entry.length == len(record.stamps_ns)
        for clause in record.clauses:
            margin = table[MARGIN + clause.clause].to_numpy()
            assert np.nanmin(margin) == np.float32(clause.rho)
            assert int((margin < 0).sum()) == clause.violated_steps
        scored = [c for c in record.clauses if c.scored]
        assert table[VIOLATED].to_numpy().any() == any(c.violated_steps for c in scored)
        assert entry.meta["safety.verdict"] == record.safety and entry.meta["safety.depth"] == record.depth
    untouched = {
        f: before[path / f] for f in (Path("meta/tasks.jsonl"), Path("meta/stats.json")) if (path / f) in before
    }
    assert all((out / f).read_bytes() == data for f, data in untouched.items())
    assert pq.read_table(next(out.rglob("data/**/*.parquet")))["action"].type is not None
    with pytest.raises(StoreError, match="exists already"):
        write_back(path, out, config())
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_hugging_face_datasets_reads_the_copy_with_the_described_features(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    os.environ["HF_HUB_OFFLINE"] = "1"
    out = write_back(make_v30(tmp_path / "set", [10, 12]), tmp_path / "copy", config())
    info = json.loads((out / "meta/info.json").read_text())
    kinds = {}
    for name, f in info["features"].items():
        if f["dtype"] != "video":
            value = datasets.Value(f["dtype"])
            kinds[name] = value if f["shape"] == [1] else datasets.Sequence(value, length=f["shape"][0])
    files = [str(p) for p in sorted(out.glob("data/*/*.parquet"))]
    read = datasets.Dataset.from_parquet(files, features=datasets.Features(kinds), cache_dir=str(tmp_path / "cache"))
    assert len(read) == 22 and VIOLATED in read.column_names
