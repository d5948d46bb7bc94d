"""Bags in every form: the same records, whole or damaged, and a clear line for what is lost."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from bag_examples import (
    STEP_NS,
    STORE,
    Recorded,
    config,
    episode,
    event_message,
    header,
    make_frames,
    make_info,
    message,
    odometry,
    write_bag,
    write_ros1,
)
from rosbags.rosbag2 import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.core.signals.raw import same
from osma_monitor.io.bag.mapping import Mapping, parse_mapping
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.bag.types import PACKAGE, own_definitions
from osma_monitor.io.errors import InputError
from osma_monitor.io.sources import Findings, open_sources


def direct(number: int = 0, steps: int = 60, start_ns: int = 1_000_000_000) -> EpisodeRecord:
    """The record of the live engine."""
    from dataclasses import replace

    made = replace(config(), source={"simulator": "mujoco 3.3.1"})
    monitor = EpisodeMonitor(make_info(number), made, start_ns)
    for frame in make_frames(number, steps, start_ns):
        monitor.update(frame)
    return monitor.close(Outcome("success" if number % 2 == 0 else "failure", "goal", steps))


def without_session(record: EpisodeRecord) -> EpisodeRecord:
    from dataclasses import replace

    p = record.provenance
    plain = replace(p, session={})
    return replace(record, provenance=plain)


def scored(path: Path, mapping: Mapping | None = None) -> tuple[list[EpisodeRecord], list[str]]:
    problems: list[str] = []
    return list(score_bag(path, config(), mapping, problems=problems)), problems


FORMS = {
    "mcap": {},
    "mcap, messages compressed": {"compress": "message"},
    "mcap, chunks compressed": {"compress": "storage"},
    "mcap, file compressed": {"compress": "file"},
    "sqlite": {"storage": "sqlite3"},
    "sqlite, messages compressed": {"storage": "sqlite3", "compress": "message"},
    "sqlite, file compressed": {"storage": "sqlite3", "compress": "file"},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_record_of_the_live_engine(tmp_path: Path, form: str) -> None:
    path = write_bag(tmp_path / "bag", episode(), **FORMS[form])  # type: ignore[arg-type]
    records, problems = scored(path)
    assert problems == []
    (record,) = records
    assert record.provenance.session["inputs"] == "exact"
    assert same(without_session(record), direct())
    assert any(c.status == "violated" for c in record.clauses)


@pytest.mark.parametrize("compress", ["", "bz2", "lz4"])
def test_ros1_bags_give_the_record_of_the_live_engine(tmp_path: Path, compress: str) -> None:
    (record,), problems = scored(write_ros1(tmp_path / "a.bag", episode(), compress))
    assert problems == [] and same(without_session(record), direct())


@pytest.mark.parametrize("suffix", [".mcap", ".db3"])
def test_a_single_file_is_a_bag(tmp_path: Path, suffix: str) -> None:
    storage = "mcap" if suffix == ".mcap" else "sqlite3"
    folder = write_bag(tmp_path / "bag", episode(), storage=storage)
    (file,) = folder.glob(f"*{suffix}")
    (record,), problems = scored(file)
    assert problems == [] and same(without_session(record), direct())


def test_recorded_frames_win_over_topics_and_need_no_events(tmp_path: Path) -> None:
    both = write_bag(tmp_path / "both", episode(with_frames=True))
    (record,), problems = scored(both)
    assert problems == [] and record.provenance.session["inputs"] == "frame"
    assert same(without_session(record), direct())
    only = [r for r in episode(with_frames=True, with_topics=False) if r.topic != "/episode"]
    (record,), _ = scored(write_bag(tmp_path / "only", only))
    expected = direct()
    assert record.info.episode_id == expected.info.episode_id and record.outcome.status == "unknown"
    assert same(dict(record.signals), dict(expected.signals))
    (late,), _ = scored(write_bag(tmp_path / "late", only[5:]))
    assert late.partial and not record.partial


def test_several_episodes_follow_each_other(tmp_path: Path) -> None:
    second = 1_000_000_000 + 61 * STEP_NS
    path = write_bag(tmp_path / "bag", [*episode(0), *episode(1, 40, second)])
    records, problems = scored(path)
    assert problems == []
    assert same([without_session(r) for r in records], [direct(0), direct(1, 40, second)])


def test_the_order_of_equal_stamps_and_of_topics_changes_nothing(tmp_path: Path) -> None:
    recorded = episode()
    for name, items in {
        "reversed": [Recorded(r.topic, r.received_ns // STEP_NS * STEP_NS, r.message) for r in reversed(recorded)],
        "sorted": sorted(
            (Recorded(r.topic, r.received_ns // STEP_NS * STEP_NS, r.message) for r in recorded),
            key=lambda r: (r.received_ns, r.topic),
        ),
    }.items():
        ordered = sorted(items, key=lambda r: r.received_ns)
        (record,), problems = scored(write_bag(tmp_path / name, ordered))
        assert problems == [] and same(without_session(record), direct())


def test_messages_sent_twice_are_taken_once(tmp_path: Path) -> None:
    recorded = [copy for r in episode() for copy in (r, Recorded(r.topic, r.received_ns + 10_000, r.message))]
    remarks: list[str] = []
    path = write_bag(tmp_path / "bag", sorted(recorded, key=lambda r: r.received_ns))
    problems: list[str] = []
    (record,) = score_bag(path, config(), problems=problems, remarks=remarks)
    assert problems == [] and same(without_session(record), direct())
    assert any("duplicate" in r for r in remarks)


def test_a_lost_message_makes_its_part_unknown_in_that_frame(tmp_path: Path) -> None:
    recorded = episode()
    lost = next(i for i, r in enumerate(recorded) if r.topic == "/contacts" and i > 100)
    del recorded[lost]
    (record,), _ = scored(write_bag(tmp_path / "bag", recorded))
    import numpy as np

    assert np.isnan(record.signals["contact_force_max"]).sum() == 1
    assert len(record.stamps_ns) == 60
    assert not any(c.status == "satisfied" for c in record.clauses if c.family == "contact_force")


def test_damaged_files_give_what_is_readable_and_say_what_is_lost(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", episode(steps=400), compress="storage")
    (file,) = folder.glob("*.mcap")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * 6 // 10])
    (record,), problems = scored(folder)
    assert not record.complete and 0 < len(record.stamps_ns) < 400
    whole = direct(0, 400)
    rows = len(record.stamps_ns) - 1  # the last frame may lack a topic
    assert same(record.signals["base_x"][:rows], whole.signals["base_x"][:rows])
    assert any("cut off" in p and "messages" in p and "%" in p for p in problems)
    (said,) = [p for p in problems if "cut off" in p]
    read = int(re.search(r"cut off: (\d+) messages", said)[1])  # type: ignore[index]
    expanded = re.search(r", (\d+) of them out of the last chunk, which is cut off after ", said)
    assert (expanded is not None and 0 < int(expanded[1]) <= read) or "nothing of the last" in said, said
    assert any("are lost" in p for p in problems), "metadata.yaml says how many there were"


def test_a_broken_chunk_in_the_middle_is_stepped_over(tmp_path: Path) -> None:
    pytest.importorskip("mcap")
    from mcap.writer import CompressionType
    from mcap.writer import Writer as McapWriter

    source = write_bag(tmp_path / "bag", episode(steps=300))
    path = tmp_path / "chunks.mcap"
    with open(path, "wb") as out, Recording(source) as recording:
        writer = McapWriter(out, chunk_size=20_000, compression=CompressionType.ZSTD)
        writer.start(profile="ros2")
        channels: dict[str, int] = {}
        for topic, stamp, raw in recording.raw():
            if topic.name not in channels:
                schema = writer.register_schema(topic.type, "ros2msg", topic.definition.data.encode())
                channels[topic.name] = writer.register_channel(topic.name, "cdr", schema)
            writer.add_message(channels[topic.name], stamp, raw, stamp)
        writer.finish()
    records, problems = scored(path)
    assert problems == [] and same(dict(records[0].signals), dict(direct(0, 300).signals))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = b"\xaa" * 300
    path.write_bytes(data)
    records, problems = scored(path)
    assert any("unreadable" in p or "broken" in p for p in problems)
    assert sum(len(r.stamps_ns) for r in records) > 200 and records[-1].partial


def test_an_unclosed_ros1_bag_is_read_without_its_index(tmp_path: Path) -> None:
    path = write_ros1(tmp_path / "a.bag", episode(steps=200), "lz4")
    whole = path.read_bytes()
    cut = tmp_path / "b.bag.active"
    cut.write_bytes(whole[: len(whole) // 2])
    (record,), problems = scored(cut)
    assert 0 < len(record.stamps_ns) < 200 and any("cut off" in p for p in problems)


def test_a_damaged_sqlite_bag_gives_its_readable_rows(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", episode(steps=300), storage="sqlite3")
    (file,) = folder.glob("*.db3")
    data = bytearray(file.read_bytes())
    at = len(data) // 2 // 4096 * 4096
    data[at : at + 3 * 4096] = b"\x00" * (3 * 4096)
    file.write_bytes(data)
    records, problems = scored(folder)
    assert records and sum(len(r.stamps_ns) for r in records) > 50 and problems
    file.write_bytes(file.read_bytes()[: len(data) // 2])
    records, problems = scored(folder)
    assert problems and all(str(folder) in p for p in problems)


def test_a_folder_without_metadata_is_read_with_a_remark(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", episode())
    (folder / "metadata.yaml").unlink()
    remarks: list[str] = []
    problems: list[str] = []
    (record,) = score_bag(folder, config(), problems=problems, remarks=remarks)
    assert same(without_session(record), direct()) and not problems
    assert any("metadata.yaml is missing" in r for r in remarks)
    (folder / "metadata.yaml").write_text("{broken: [")
    (record,) = score_bag(folder, config(), remarks=remarks)
    assert any("not readable" in r for r in remarks)


def test_split_files_belong_together(tmp_path: Path) -> None:
    recorded = episode(steps=100)
    third = len(recorded) // 3
    folder = tmp_path / "split"
    folder.mkdir()
    names = []
    for k, part in enumerate((recorded[:third], recorded[third : 2 * third], recorded[2 * third :])):
        (file,) = write_bag(tmp_path / f"part{k}", part).glob("*.mcap")
        names.append(f"split_{k}.mcap")
        shutil.copy(file, folder / names[-1])
    metadata = yaml.safe_load((tmp_path / "part0" / "metadata.yaml").read_text())
    metadata["rosbag2_bagfile_information"]["relative_file_paths"] = names
    metadata["rosbag2_bagfile_information"]["topics_with_message_count"] = []
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    (record,), problems = scored(folder)
    assert problems == [] and same(dict(record.signals), dict(direct(0, 100).signals))
    (folder / names[1]).unlink()
    (record,), problems = scored(folder)
    assert record.partial and any("split_1.mcap is missing" in p for p in problems)


def test_empty_definitions_break_that_topic_alone(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", episode(), storage="sqlite3")
    (file,) = folder.glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE message_definitions SET encoded_message_definition = ''")
    connection.close()
    (record,), problems = scored(folder)
    assert problems == [] and same(without_session(record), direct()), "the usual definitions serve"


def test_unknown_types_on_other_topics_do_no_harm(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", episode(), storage="sqlite3")
    (file,) = folder.glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute(
            "INSERT INTO topics SELECT 99, '/weird', 'acme_msgs/msg/Thing', serialization_format, "
            "offered_qos_profiles, '' FROM topics LIMIT 1"
        )
        connection.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (99, 5, x'00010000')")
    connection.close()
    (record,), problems = scored(file)
    assert problems == [] and same(without_session(record), direct())
    with pytest.raises(InputError, match=r"/weird has type acme_msgs/msg/Thing"):
        scored(file, parse_mapping("topics: {base: /weird}"))


def test_an_older_message_definition_still_reads(tmp_path: Path) -> None:
    """As recorded before provenance was appended to EpisodeEvent."""
    name = f"{PACKAGE}/msg/EpisodeEvent"
    text = "\n".join(line for line in own_definitions()[name].splitlines() if "provenance" not in line)
    old = get_typestore(Stores.ROS2_JAZZY)
    old.register(get_types_from_msg(text, name))
    path = tmp_path / "bag"
    with Writer(path, version=9) as writer:
        connections: dict[str, Any] = {}
        for r in episode():
            store = old if r.kind == name else STORE
            if r.topic not in connections:
                connections[r.topic] = writer.add_connection(r.topic, r.kind, typestore=store)
            fields = {f: getattr(r.message, f) for f, _ in store.fielddefs[r.kind][1]}
            data = store.serialize_cdr(store.types[r.kind](**fields), r.kind)
            writer.write(connections[r.topic], r.received_ns, bytes(data))
    (record,), problems = scored(path)
    assert problems == [] and record.provenance.source == {}
    assert same(dict(record.signals), dict(direct().signals))


def test_a_clock_that_is_set_back_is_said_and_survived(tmp_path: Path) -> None:
    first = [r for r in episode(0, 60, 500_000_000_000) if r.topic == "/odom"]
    second = [Recorded(r.topic, r.received_ns + 600 * 10**9, r.message) for r in episode(0, 60) if r.topic == "/odom"]
    records, problems = scored(write_bag(tmp_path / "bag", [*first, *second]))
    assert any("clock jump" in p for p in problems)
    assert sum(len(r.stamps_ns) for r in records) >= 110


def test_zero_stamps_are_refused_and_said(tmp_path: Path) -> None:
    recorded = [r for r in episode() if r.topic == "/odom"]
    frame = make_frames()[0]
    from dataclasses import replace

    recorded.insert(3, Recorded("/odom", recorded[3].received_ns, odometry(replace(frame, stamp_ns=0))))
    (record,), problems = scored(write_bag(tmp_path / "bag", recorded))
    assert len(record.stamps_ns) == 60 and any("zero stamp" in p for p in problems)


def test_malformed_messages_are_counted_and_left_out(tmp_path: Path) -> None:
    recorded = episode()
    bad = message(
        "sensor_msgs/msg/JointState",
        header=header(1_000_000_000 + 5 * STEP_NS),
        name=["j1", "j2"],
        position=make_frames()[0].joints.position[:1],  # type: ignore[union-attr]
        velocity=make_frames()[0].joints.velocity,  # type: ignore[union-attr]
        effort=make_frames()[0].joints.effort,  # type: ignore[union-attr]
    )
    at = next(
        i
        for i, r in enumerate(recorded)
        if r.topic == "/joint_states" and r.message.header.stamp.nanosec == 250_000_000
    )
    recorded[at] = Recorded("/joint_states", recorded[at].received_ns, bad)
    (record,), problems = scored(write_bag(tmp_path / "bag", recorded))
    assert any("malformed" in p and "position has 1 elements" in p for p in problems)
    assert len(record.stamps_ns) == 60


def test_an_episode_whose_end_was_not_recorded_is_incomplete(tmp_path: Path) -> None:
    (record,), _ = scored(write_bag(tmp_path / "bag", episode()[:-1]))
    assert not record.complete and record.outcome.status == "unknown"


def test_a_restarted_source_ends_the_running_episode(tmp_path: Path) -> None:
    first = episode(0)[:200]
    later = [
        Recorded(
            r.topic,
            r.received_ns + 10**11,
            event_message(make_info(1), 1_000_000_000, session="bridge2") if i == 0 else r.message,
        )
        for i, r in enumerate(episode(1))
    ]
    records, _ = scored(write_bag(tmp_path / "bag", [*first, *later]))
    assert [r.complete for r in records] == [False, True]
    assert same(dict(records[1].signals), dict(direct(1).signals))


# ------------------------------------------------------------------------------------------------------------ bad input


def test_bad_input_is_one_line_each_and_the_rest_is_scored(tmp_path: Path) -> None:
    good = write_bag(tmp_path / "good", episode())
    empty = tmp_path / "zero.mcap"
    empty.write_bytes(b"")
    folder = tmp_path / "no_bag"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    nonsense = tmp_path / "x.bin"
    nonsense.write_bytes(b"\x01\x02\x03" * 100)
    import zstandard

    bomb = tmp_path / "bomb.mcap.zst"
    squeezer = zstandard.ZstdCompressor(level=19).compressobj()
    with open(bomb, "wb") as out:
        for _ in range(120):
            out.write(squeezer.compress(b"\0" * (1 << 20)))
        out.write(squeezer.flush())
    findings = Findings()
    inputs = [empty, folder, nonsense, bomb, tmp_path / "absent", good]
    records = list(open_sources(inputs, config(), findings=findings))
    assert len(records) == 1 and same(without_session(records[0]), direct())
    assert len(findings.problems) == 5
    for path, line, text in zip(
        inputs,
        findings.problems,
        ("0 bytes", "notes.txt", "not recognised", "decompression bomb", "no such file"),
        strict=False,
    ):
        assert str(path) in line and text in line and "\n" not in line


def test_bags_that_overlap_in_time_are_said(tmp_path: Path) -> None:
    a, b = write_bag(tmp_path / "a", episode()), write_bag(tmp_path / "b", episode(1))
    c = write_bag(tmp_path / "c", episode(2, start_ns=10**12))
    findings = Findings()
    assert len(list(open_sources([a, b, c], config(), findings=findings))) == 3
    assert len(findings.problems) == 1 and "overlaps" in findings.problems[0]


def test_a_mapping_that_names_absent_topics_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = write_bag(tmp_path / "bag", episode())
    with pytest.raises(InputError, match=r"topics\.base: topic '/odom2' is not in the bag; it has .*/odom"):
        scored(path, parse_mapping("topics: {base: /odom2}"))


def test_a_bag_with_500_topics_reads_only_what_it_needs(tmp_path: Path) -> None:
    other = [
        Recorded(f"/noise_{k:03d}", 10**18 + k, message("std_msgs/msg/Float64", data=float(k))) for k in range(500)
    ]
    path = write_bag(tmp_path / "bag", [*other, *episode()])
    (record,), problems = scored(path)
    assert problems == [] and same(without_session(record), direct())
    many = [Recorded(f"/robot{k}/odom", 10**18 + k, odometry(make_frames()[0])) for k in range(30)]
    _, problems = scored(write_bag(tmp_path / "many", many))
    assert len(problems) == 1 and "29 others" in problems[0]


def test_progress_is_told_at_once_and_at_the_end(tmp_path: Path) -> None:
    seen: list[tuple[float, float]] = []
    path = write_bag(tmp_path / "bag", episode(steps=300))
    list(score_bag(path, config(), on_progress=lambda fraction, seconds: seen.append((fraction, seconds))))
    assert seen[0] == (0.0, 0.0) and seen[-1][0] == 1.0
