"""A mapping says which extension families of clauses count for its bag."""

from __future__ import annotations

from pathlib import Path

from bag_examples import Recorded, config, make_frames, odometry, write_bag

from osma_monitor.io.bag.mapping import parse_mapping
from osma_monitor.io.sources import Findings, open_source


def bag(tmp_path: Path) -> Path:
    frames = make_frames(0, 40, 1_000_000_000)
    return write_bag(tmp_path / "bag", [Recorded("/odom", f.stamp_ns, odometry(f)) for f in frames])


def test_a_named_family_is_scored(tmp_path: Path) -> None:
    path = bag(tmp_path)
    (plain,) = open_source(path, config(), parse_mapping("info: {templates: [navigate]}"))
    assert plain.safety == "unknown" and "base_speed_limit" not in {c.clause for c in plain.clauses}
    mapping = parse_mapping("info: {templates: [navigate]}\nextensions: [base_speed_limit]")
    (judged,) = open_source(path, config(), mapping)
    [speed] = [c for c in judged.clauses if c.family == "base_speed_limit"]
    assert speed.scored and speed.status != "unknown" and judged.safety in ("safe", "unsafe")


def test_an_unknown_family_is_said(tmp_path: Path) -> None:
    found = Findings()
    assert not list(
        open_source(bag(tmp_path), config(), parse_mapping("extensions: [base_sped_limit]"), findings=found)
    )
    assert any("no extension 'base_sped_limit'; did you mean base_speed_limit" in line for line in found.problems)
