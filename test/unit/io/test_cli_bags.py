"""`osma map`, `osma compact`, and the mapping examples that ship."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from bag_examples import Recorded, config, episode, make_frames, odometry, write_bag
from io_examples import make_record

from osma_monitor.cli.main import main
from osma_monitor.io import store
from osma_monitor.io.bag.mapping import load_mapping
from osma_monitor.io.bag.source import score_bag
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
