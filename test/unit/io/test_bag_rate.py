"""Frames at a fixed rate: which clock makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bag_examples import Recorded, contacts_message, make_frames, odometry, write_bag

from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.bag.frames import BagFrames
from osma_monitor.io.bag.mapping import parse_mapping, plan
from osma_monitor.io.bag.recording import Recording

S = 1_000_000_000
DATE = 1_700_000_000 * S


def read(folder: Path, recorded: Sequence[Recorded], wait: float = 0.1) -> tuple[list[RawFrame], BagFrames]:
    path = write_bag(folder / "bag", sorted(recorded, key=lambda r: r.received_ns))
    mapping = parse_mapping(f"rate: 20\ntransform_wait: {wait}")
    with Recording(path) as recording:
        reader = BagFrames(recording, plan(recording.topics, mapping, "bag"), "bag")
        return [s for s in reader.steps() if isinstance(s, RawFrame)], reader


def odometries(stamp_ns: int, received_ns: int, steps: int = 60) -> list[Recorded]:
    frames = make_frames(steps=steps, start_ns=stamp_ns)
    return [Recorded("/odom", received_ns + f.stamp_ns - stamp_ns, odometry(f)) for f in frames]


def touches(stamp_ns: int, received_ns: int, steps: int = 60) -> list[Recorded]:
    frames = make_frames(steps=steps, start_ns=stamp_ns)
    return [Recorded("/contacts", received_ns + f.stamp_ns - stamp_ns, contacts_message(f)) for f in frames]


@pytest.mark.parametrize("boot", [5 * S, 3000 * S])
@pytest.mark.parametrize("lead", [-S // 100, S // 100, S])
@pytest.mark.parametrize("wait", [0.0, 0.1, 1.0])
def test_a_boot_time_sensor_makes_no_frames_and_resets_nobody(tmp_path: Path, boot: int, lead: int, wait: float):
    sensor = touches(boot, DATE + lead)
    frames, reader = read(tmp_path, odometries(DATE, DATE) + sensor, wait)
    alone, _ = read(tmp_path / "alone", odometries(DATE, DATE), wait)
    if lead > 0 or wait:  # else nothing else was recorded before its first value
        assert [f.stamp_ns for f in frames] == [f.stamp_ns for f in alone]
    ours = [f for f in frames if f.stamp_ns >= DATE]
    assert len(frames) - len(ours) <= 1 and len(ours) == len(alone) > 50
    assert all(f.contacts is None and f.base is not None for f in ours[1:])
    assert [f.base and f.base.position.tolist() for f in ours] == [f.base and f.base.position.tolist() for f in alone]
    assert {key for key in reader.facts.refused if not key.startswith("/contacts")} == set()
    assert {key.rpartition(": ")[2] for key in reader.facts.refused} & {"late", "stale"}


@pytest.mark.parametrize("start", [10 * S, DATE])
def test_a_clock_that_is_set_back_goes_on_from_there(tmp_path: Path, start: int):
    recorded = odometries(start + 100 * S, DATE) + touches(start + 100 * S, DATE)
    recorded += odometries(start, DATE + 4 * S) + touches(start, DATE + 4 * S)
    frames, reader = read(tmp_path, recorded)
    stamps = np.array([f.stamp_ns for f in frames])
    [back] = np.flatnonzero(np.diff(stamps) < 0)
    assert 59 <= back + 1 <= 61 and 55 <= len(stamps) - back - 1 <= 60 and stamps[back + 1] < start + S
    assert all(f.contacts is not None and f.base is not None for f in frames[back + 5 :])
    assert any(key.endswith("clock jump") for key in reader.facts.refused)


def test_a_boot_time_sensor_that_starts_again_resets_nobody(tmp_path: Path):
    sensor = touches(3000 * S, DATE, 30) + touches(2 * S, DATE + 3 * S // 2, 30)
    frames, reader = read(tmp_path, odometries(DATE, DATE) + sensor)
    alone, _ = read(tmp_path / "alone", odometries(DATE, DATE))
    assert [f.stamp_ns for f in frames] == [f.stamp_ns for f in alone]
    assert not any(key.startswith("/odom") for key in reader.facts.refused)
