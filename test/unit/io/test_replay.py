"""`osma replay`: a bag through the live node gives the records of `osma score`, to the last bit, at any speed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bag_examples import STEP_NS, config, episode, write_bag

from osma_monitor.cli.main import main
from osma_monitor.cli.replay import _equal, _plain, difference
from osma_monitor.core.signals.raw import same
from osma_monitor.io.bag.mapping import Mapping, load_mapping
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes, write_record

pytestmark = pytest.mark.ros

MAPPING = """
robot: turtlebot
obstacles:
  obstacles: [{id: vase, category: vase, position: [1.0, 0.9], shape: {primitive: cylinder, size: [0.15, 0.3]}}]
info: {templates: [navigate], policy: dwb}
"""


@pytest.fixture
def two_episodes(tmp_path: Path) -> Path:
    return write_bag(tmp_path / "bag", [*episode(0, 40), *episode(1, 30, 1_000_000_000 + 41 * STEP_NS)])


def osma(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user calls it: the node wants a process of its own."""
    command = [sys.executable, "-m", "osma_monitor.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("executor", "options"), [("events", []), ("single", ["--rate", "10"])], ids=["lock-step", "at a rate"]
)
def test_the_live_node_says_what_score_says(
    two_episodes: Path,
    tmp_path: Path,
    executor: str,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    ros_domain: int,
) -> None:
    monkeypatch.setenv("OSMA_EXECUTOR", executor)
    shown = osma("replay", str(two_episodes), "--out", str(tmp_path / "run"), "--check", *options)
    assert shown.returncode == 0, shown.stderr
    assert "2 of 2 records equal" in shown.stdout and "joined by exact stamps" in shown.stdout
    records = sorted(read_episodes(tmp_path / "run"), key=lambda r: r.info.episode_id)
    expected = list(score_bag(two_episodes, config()))
    assert all(same(dict(a.signals), dict(b.signals)) for a, b in zip(records, expected, strict=True))


def test_a_rate_beyond_the_monitor_loses_no_frame(tmp_path: Path, ros_domain: int) -> None:
    """More frames than any queue holds, far faster than a slow monitor takes them."""
    bag = write_bag(tmp_path / "bag", episode(0, 300))
    parameters = ["-p", f"episode_log:={tmp_path / 'run'}", "-p", "frame_delay_ms:=5.0"]
    command = [sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args", *parameters]
    with subprocess.Popen(command) as monitor:
        try:
            shown = osma("replay", str(bag), "--join", "--rate", "1000000")
        finally:
            monitor.terminate()
    assert shown.returncode == 0, shown.stderr
    (stored,), (expected,) = read_episodes(tmp_path / "run"), score_bag(bag, monitor_config())
    assert difference(_plain(stored), _plain(expected)) == ""


def test_the_first_difference_is_named(two_episodes: Path) -> None:
    record = next(score_bag(two_episodes, config()))
    assert difference(record, record) == ""
    changed = record.signals["base_x"].copy()
    changed[7] = 12.5
    other = replace(record, signals={**record.signals, "base_x": changed})
    assert difference(other, record).startswith("signals[base_x][7] is 12.5, expected ")
    shorter = replace(record, stamps_ns=record.stamps_ns[:-1], partial=True)
    assert difference(shorter, record) == "number of stamps_ns is 39, expected 40"
    assert difference(replace(record, partial=True), record) == "partial is True, expected False"


def test_check_says_where_a_record_differs(
    two_episodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = score_bag(two_episodes, monitor_config())
    write_record(tmp_path / "run", replace(first, notes=("a note\x1b",)))
    write_record(tmp_path / "run", replace(second, info=replace(second.info, episode_id="other")))
    assert not _equal(two_episodes, Mapping(), tmp_path / "run")
    shown = capsys.readouterr()
    assert "0 of 2 records equal" in shown.out
    a, b, c = shown.err.splitlines()
    assert first.info.episode_id in a and "number of notes is 1, expected 0" in a
    assert "stored no record" in b and "`osma score` has no such episode" in c


@pytest.mark.long
def test_held_inputs_and_a_map_of_obstacles_replay_too(tmp_path: Path, ros_domain: int) -> None:
    odometry = [r for r in episode(0, 40) if r.topic == "/odom"]
    bag = write_bag(tmp_path / "bag", odometry)
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    mapping = str(tmp_path / "mapping.yaml")
    shown = osma("replay", str(bag), "--out", str(tmp_path / "run"), "--map", mapping, "--check")
    assert shown.returncode == 0, shown.stderr
    assert "1 of 1 records equal" in shown.stdout and "held" in shown.stdout


def test_join_leaves_the_log_to_the_running_monitor(two_episodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(two_episodes), "--join", "--check"]) == 2
    assert "--join leaves the log" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", [False, True], ids=["no END", "file cut"])
def test_an_episode_that_the_bag_cuts_off_ends_as_score_ends_it(tmp_path: Path, ros_domain: int, damaged: bool) -> None:
    recorded = [*episode(0, 40), *episode(1, 200, 1_000_000_000 + 41 * STEP_NS)]
    bag = write_bag(tmp_path / "bag", recorded[:-20])
    if damaged:
        (file,) = bag.glob("*.mcap")
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    _, last = score_bag(bag, config())
    assert not last.complete and last.outcome.reason == "source ended" and bool(last.notes) == damaged
    shown = osma("replay", str(bag), "--out", str(tmp_path / "run"), "--check")
    assert shown.returncode == (2 if damaged else 0), shown.stderr
    assert "2 of 2 records equal" in shown.stdout, shown.stderr


@pytest.mark.long
def test_episodes_by_times_keep_what_the_mapping_says_of_them(tmp_path: Path, ros_domain: int) -> None:
    bag = write_bag(tmp_path / "bag", [r for r in episode(0, 60) if r.topic == "/odom"])
    spans = "[{start: -9, end: -1}, {start: 0, end: 1, outcome: success, task: there, attributes: {cell: B}}, "
    times = f"episodes: {{by: times, times: {spans}{{start: 1.5, end: 2.5, outcome: failure}}]}}\n"
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(MAPPING + times)
    first, second = score_bag(bag, config(), load_mapping(mapping))
    assert (first.outcome.status, first.info.task, first.info.attributes["cell"]) == ("success", "there", "B")
    assert second.outcome.status == "failure" and "cell" not in second.info.attributes
    shown = osma("replay", str(bag), "--out", str(tmp_path / "run"), "--map", str(mapping), "--check")
    assert shown.returncode == 0 and "2 of 2 records equal" in shown.stdout, shown.stderr
