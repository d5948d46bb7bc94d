"""Sources as people hand them over: our own runs, running and dead streams, folders of several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bag_examples import Recorded, config, episode, event_message, make_frames, make_info, write_bag
from io_examples import make_record

from osma_monitor.core.episode import Outcome
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.core.signals.raw import same
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import dataset, store
from osma_monitor.io.errors import InputError
from osma_monitor.io.sources import Findings, expand, kind_of, open_source, open_sources
from osma_monitor.io.store import EpisodeWriter, recover


def live_run(folder: Path, steps: int) -> tuple[EpisodeMonitor, EpisodeWriter]:
    """A monitor that logs an episode and has not ended it."""
    monitor = EpisodeMonitor(make_info(), config())
    writer = None
    for frame in make_frames(0, 60)[:steps]:
        update = monitor.update(frame)
        assert update is not None
        if writer is None:
            facts = {"missing": json.dumps(dict(monitor.missing)), "library_hash": config().library.hash}
            writer = EpisodeWriter(folder, monitor.info, facts)
        writer.append(update.stamp_ns, update.signals.values, update.signals.obstacle)
    assert writer is not None
    writer.flush()
    return monitor, writer


def test_a_recovered_stream_is_judged_as_the_dead_monitor_would_have(tmp_path: Path) -> None:
    monitor, writer = live_run(tmp_path, 40)
    expected = monitor.close(Outcome())
    writer.close()
    (recovery,) = recover(tmp_path, config())
    record = recovery.record
    assert record is not None and not record.complete
    assert same(record.clauses, expected.clauses) and same(record.motion, expected.motion)
    assert same(dict(record.inactive), dict(expected.inactive)) and record.safety == expected.safety == "unsafe"


def test_a_stream_written_with_another_library_is_judged_and_said(tmp_path: Path) -> None:
    record = make_record(0, 30)
    info = replace(record.info, tags=(), templates=())
    for number, made in enumerate((info, record.info)):
        made = replace(made, episode_id=f"{number}")
        with EpisodeWriter(tmp_path, made, {"library_hash": "old"}) as writer:
            for i, stamp in enumerate(record.stamps_ns):
                writer.append(int(stamp), [record.signals[s][i] for s in SIGNALS], "")
    first, second = recover(tmp_path, config())
    assert first.record is not None
    assert any("logged with clause library old" in n for n in first.record.notes)
    assert second.stored is None and "no rule knows the tag 'a'" in second.message and second.part.exists()


def test_an_episode_whose_task_cannot_be_resolved_leaves_the_others(tmp_path: Path) -> None:
    wrong = replace(make_info(1), tags=("no_such_tag",))
    second = episode(1, 20, 10**10)
    second[0] = Recorded("/episode", second[0].received_ns, event_message(wrong, 10**10))
    bag = write_bag(tmp_path / "bag", [*episode(0, 20), *second])
    findings = Findings()
    (record,) = open_source(bag, config(), findings=findings)
    assert record.info.episode_id == make_info(0).episode_id
    (problem,) = findings.problems
    assert "'kitchen/A/mug/1' is not judged" in problem and "no_such_tag" in problem and str(bag) in problem


def test_running_and_dead_streams_are_scored_without_being_touched(tmp_path: Path) -> None:
    store.write_record(tmp_path, make_record(0, 20))
    _, running = live_run(tmp_path, 30)
    findings = Findings()
    finished, partial = open_source(tmp_path, config(), findings=findings)
    assert finished.complete and not partial.complete and len(partial.stamps_ns) == 30
    assert any("still runs" in r for r in findings.remarks) and findings.problems == []
    running.close()
    findings = Findings()
    (one,) = open_source(running.part, config(), findings=findings)
    assert same(one, partial) and any("did not end" in r for r in findings.remarks)
    assert running.part.exists()
    (tmp_path / "a.part").write_bytes(b"")
    (tmp_path / "b.part").write_bytes(b"nonsense")
    list(open_source(tmp_path, config(), findings=findings))
    (problem,) = findings.problems
    assert "b.part" in problem, "an empty stream holds no episode"


def test_stored_episodes_come_as_they_were_stored(tmp_path: Path) -> None:
    records = [make_record(i, 10) for i in range(3)]
    for record in records:
        store.write_record(tmp_path / "run", record)
    dataset.compact(tmp_path / "run", tmp_path / "set")
    for path in (tmp_path / "run", tmp_path / "set"):
        assert all(same(a, b) for a, b in zip(open_source(path, config()), records, strict=True))
    (file, *_) = store.episode_files(tmp_path / "run")
    assert [kind_of(p) for p in (file, tmp_path / "run", tmp_path / "set")] == ["episode", "run", "dataset"]


def test_a_folder_of_several_sources_is_opened_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    write_bag(tmp_path / "all" / "one", episode(0, 20))
    write_bag(tmp_path / "all" / "two", episode(1, 20, 10**12))
    (tmp_path / "all" / "readme.txt").write_text("hello")
    assert [p.name for p in expand(tmp_path / "all")] == ["one", "two"]
    assert len(list(open_sources([tmp_path / "all"], config()))) == 2
    loose = tmp_path / "loose"
    loose.mkdir()
    for name, folder in (("a.mcap", "one"), ("b.mcap", "two")):
        (file,) = (tmp_path / "all" / folder).glob("*.mcap")
        (loose / name).write_bytes(file.read_bytes())
    assert [p.name for p in expand(loose)] == ["a.mcap", "b.mcap"], "recordings of their own, not a split one"
    with pytest.raises(InputError, match="neither run, bag nor data set"):
        kind_of(tmp_path / "all")


def test_a_mapping_of_the_wrong_kind_is_said(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", episode(0, 20))
    fields = tmp_path / "fields.yaml"
    fields.write_text("columns: {base: {position: xy}}")
    with pytest.raises(InputError, match=r"fields\.yaml:1: columns"):
        list(open_source(bag, config(), fields))
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("topics: {base: /odom}")
    np.savez(tmp_path / "a.npz", xy=np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"mapping\.yaml:1: topics"):
        list(open_source(tmp_path / "a.npz", config(), mapping))
