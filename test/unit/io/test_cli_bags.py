"""`osma map`, `osma compact`, and the mapping examples that ship."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
import zstandard
from bag_examples import Recorded, config, episode, make_frames, message, odometry, write_bag
from io_examples import make_record

from osma_monitor.cli.main import main
from osma_monitor.io import store
from osma_monitor.io.bag.mapping import load_mapping
from osma_monitor.io.bag.source import INPUTS, score_bag
from osma_monitor.io.bag.suggest import suggest
from osma_monitor.io.datasets.fieldmap import load_field_map
from osma_monitor.io.obstacles import ObstacleMap, load_obstacles
from osma_monitor.io.store import read_episodes
from osma_monitor.resources import config_path


def test_map_writes_a_mapping_that_scores_as_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_bag(tmp_path / "bag", episode())
    target = tmp_path / "m.yaml"
    assert main(["map", str(bag), "--out", str(target)]) == 0
    shown = capsys.readouterr().out
    for part, topic in {"base": "/odom", "contacts": "/contacts", "objects": "/objects"}.items():
        assert f"{part:9} {topic}" in shown
    assert "Motion features: yes" in shown and "max_contact_force_under_200N" in shown
    (with_it,) = score_bag(bag, config(), load_mapping(target))
    (without,) = score_bag(bag, config())
    assert [c.rho for c in with_it.clauses] == [c.rho for c in without.clauses]
    assert main(["map", str(bag), "--out", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["map", str(bag), "--out", str(target), "--force"]) == 0
    capsys.readouterr()
    assert main(["map", str(bag), "--out", "-"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["topics"]["base"] == "/odom"


def test_map_says_what_is_missing_in_plain_words(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", [r for r in episode() if r.topic == "/odom"])
    found = suggest(bag, config(), "turtlebot", ("navigate",))
    assert found.given == {"base": "/odom"} and not found.motion and found.active == {}
    assert any("no obstacles" in h for h in found.hints) and any("no contacts" in h for h in found.hints)
    assert "is not available: contacts" in found.inactive["max_contact_force_under_200N"]
    several = [Recorded(f"/r{k}/odom", 10**18 + k, odometry(make_frames()[0])) for k in range(3)]
    found = suggest(write_bag(tmp_path / "many", several), config())
    assert any("took /r0/odom, there are 2 others" in h for h in found.hints)


@pytest.mark.parametrize("name", ["/a: b", '/x"y', "/# no", "/ü\u2028x", "relative"])
def test_topic_names_never_break_the_written_file(tmp_path: Path, name: str) -> None:
    bag = write_bag(tmp_path / "bag", [Recorded(name, 10**18 + i, odometry(f)) for i, f in enumerate(make_frames())])
    found = suggest(bag, config())
    assert yaml.safe_load(found.text)["topics"] == {"base": name}


def test_map_lists_what_it_leaves_unused_and_what_that_is_good_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    transforms = [Recorded("/tf", 10**18 + k, message("tf2_msgs/msg/TFMessage", transforms=[])) for k in range(3)]
    flags = [Recorded("/estop", 10**18 + k, message("std_msgs/msg/Bool", data=True)) for k in range(3)]
    other = [Recorded("/r2/odom", 10**18 + k, odometry(make_frames()[0])) for k in range(3)]
    moves = [r for r in episode() if r.topic == "/odom"]
    write_bag(tmp_path / "bag", [*moves, *transforms, *flags, *other])
    assert main(["map", "bag"]) == 0
    block = capsys.readouterr().out.split("Topics that are left unused:\n")[1].split("Motion features")[0]
    assert block.splitlines() == [
        "  /estop  std_msgs/msg/Bool",
        "  /r2/odom  nav_msgs/msg/Odometry; could give base under topics",
        "  /tf  tf2_msgs/msg/TFMessage; brings poses to the frame that `frame` names",
    ]


def test_map_refuses_what_is_no_bag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(tmp_path)]) == 2
    assert "no bag" in capsys.readouterr().err


def test_compact_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        store.write_record(tmp_path / "run", make_record(i, 10))
    assert main(["compact", str(tmp_path / "run"), "--out", str(tmp_path / "set")]) == 0
    assert "3 episodes" in capsys.readouterr().out and len(list(read_episodes(tmp_path / "set"))) == 3
    assert main(["compact", str(tmp_path / "run"), "--out", str(tmp_path / "set")]) == 2
    (tmp_path / "run" / "x.parquet").write_bytes(b"no")
    assert main(["compact", str(tmp_path / "run"), "--out", str(tmp_path / "other")]) == 2
    shown = capsys.readouterr()
    assert "3 episodes" in shown.out and "x.parquet" in shown.err


def test_the_shipped_examples_read() -> None:
    folder = config_path("mapping")
    assert isinstance(load_mapping(folder / "mobile_robot.yaml").obstacles, ObstacleMap)
    assert load_mapping(folder / "arm.yaml").episodes.by == "edge"
    assert len(load_obstacles(folder / "obstacles.yaml").obstacles) == 3
    for name in ("lerobot.yaml", "hdf5.yaml"):
        assert load_field_map(folder / name).columns.parts()
    assert {p.name for p in folder.glob("*.yaml")} == {
        "arm.yaml",
        "hdf5.yaml",
        "lerobot.yaml",
        "mobile_robot.yaml",
        "obstacles.yaml",
    }


def test_score_goes_on_past_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zero.mcap").write_bytes(b"")
    store.write_record(tmp_path / "run", make_record(0, 10))
    (tmp_path / "run" / "x.parquet").write_bytes(b"no")
    bag = write_bag(tmp_path / "bag", episode())
    sources = [str(tmp_path / "zero.mcap"), str(tmp_path / "run"), str(bag), str(tmp_path / "absent")]
    assert main(["score", *sources]) == 2
    shown = capsys.readouterr()
    assert "n = 2 episodes" in shown.out
    assert all(text in shown.err for text in ("0 bytes", "x.parquet", "no such file"))


def bad_source(kind: str, folder: Path) -> list[str]:
    """One bad input as the arguments of `osma score`."""
    folder.mkdir()
    if kind == "no bag":
        (folder / "notes.txt").write_text("hello")
        return [str(folder)]
    if kind == "bomb":
        with open(folder / "bomb.mcap.zst", "wb") as out:
            packer = zstandard.ZstdCompressor().stream_writer(out)
            for _ in range(70):
                packer.write(b"\0" * (1 << 20))
            packer.flush(zstandard.FLUSH_FRAME)
        return [str(folder / "bomb.mcap.zst")]
    if kind == "clock":
        late = [r for r in episode(1, 30, 500_000_000_000) if r.topic != "/episode"]
        early = [replace(r, received_ns=r.received_ns + 600 * 10**9) for r in episode(2, 30)]
        return [str(write_bag(folder / "jumps", [*episode(1, 30, 499_000_000_000)[:1], *late, *early[1:]]))]
    if kind == "overlap":
        bags = [write_bag(folder / name, episode(i, 20, 10**13)) for i, name in enumerate("ab", 1)]
        return [str(bag) for bag in bags]
    others = [Recorded("/elsewhere", 10**18 + k * 10**7, odometry(f)) for k, f in enumerate(make_frames())]
    (folder / "mapping.yaml").write_text("topics: {base: /odom}")
    return [str(write_bag(folder / "other", others)), "--map", str(folder / "mapping.yaml")]


@pytest.mark.parametrize(
    ("kind", "episodes", "line"),
    [
        ("no bag", 1, "neither run, bag nor data set; the folder holds notes.txt"),
        ("bomb", 1, "refused as a decompression bomb"),
        ("clock", 2, "clock jump"),
        ("overlap", 3, "overlaps"),
        ("absent topic", 1, "topics.base: topic '/odom' is not in the bag; it has /elsewhere"),
    ],
)
def test_score_says_one_line_of_each_bad_input_and_scores_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, episodes: int, line: str
) -> None:
    good = write_bag(tmp_path / "good", episode(0, 40))
    assert main(["score", *bad_source(kind, tmp_path / "bad"), str(good)]) == 2
    shown = capsys.readouterr()
    assert f"n = {episodes} episode" in shown.out
    said = [text for text in shown.err.splitlines() if line in text]
    assert len(said) == 1 and said[0].startswith("osma: ") and "bad" in said[0]
    assert "Traceback" not in shown.err


def test_score_and_report_say_whether_the_inputs_were_those_of_a_live_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = write_bag(tmp_path / "exact", episode(0, 40))
    whole = write_bag(tmp_path / "whole", episode(1, 40, 10**12, with_frames=True))
    held = write_bag(tmp_path / "held", [r for r in episode(2, 40, 10**14) if r.topic == "/odom"])
    sources = [str(exact), str(whole), str(held)]
    said = "Episodes from bags: " + "; ".join(f"1 with {text}" for text in INPUTS.values())
    assert main(["score", *sources]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert main(["report", *sources, "--out", str(tmp_path / "page")]) == 0
    assert said in " ".join((tmp_path / "page" / "report.html").read_text(encoding="utf-8").split())
    store.write_record(tmp_path / "run", make_record(0, 10))
    capsys.readouterr()
    assert main(["score", str(tmp_path / "run")]) == 0
    assert "Episodes from bags" not in capsys.readouterr().out
