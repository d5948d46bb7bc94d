"""Episodes of a monitor's life, without ROS: what is stored, what is not, and what a broken disk changes."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy")  # osma_monitor.ros is importable without it, its messages are not

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.segmenter import Begin, End
from osma_monitor.core.signals.raw import NO_CONTACTS, Base, Objects, RawFrame, vector
from osma_monitor.io.configuration import kept_libraries, monitor_config
from osma_monitor.io.store import read_episodes
from osma_monitor.resources import config_path
from osma_monitor.ros.tracker import MOST_NOTES, EpisodeTracker, LogConfig

pytestmark = pytest.mark.ros
SECOND = 1_000_000_000


def frame(step):
    base = Base(vector([0.01 * step, 0, 0]), vector([0, 0, 0, 1]), vector([0.2, 0, 0]), vector([0, 0, 0]))
    return RawFrame(SECOND + step * 50_000_000, base=base, contacts=NO_CONTACTS)


def info(name="one"):
    return EpisodeInfo(name, suite="kitchen", templates=("navigate",), sources=("base", "contacts"))


def run(tracker, steps, name="one", first=0, **begin):
    tracker.begin(Begin(SECOND, info(name)), {"simulator": "none"}, **begin)
    run_on(tracker, first, steps)


def run_on(tracker, first, steps):
    for step in range(first, steps):
        tracker.log(tracker.frame(frame(step)))


def end(tracker, steps, status="success", **fields):
    return tracker.end(End(SECOND + (steps - 1) * 50_000_000, Outcome(status, "done", steps), **fields))


def test_an_episode_is_stored_with_where_its_frames_come_from(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path, {"transport": "test"})
    run(tracker, 30)
    assert [p.suffix for p in tmp_path.iterdir()] == [".part"]
    finished = end(tracker, 30)
    assert finished.path.parent == tmp_path and not finished.error
    [record] = read_episodes(tmp_path)
    assert record.provenance.source == {"simulator": "none"}
    assert record.provenance.session["transport"] == "test" and "started" in record.provenance.session
    assert not record.partial and record.complete and len(record.stamps_ns) == 30
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".parquet", ".yaml"]


def test_an_episode_without_frames_leaves_nothing(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path)
    tracker.begin(Begin(SECOND, info()))
    assert end(tracker, 0) is None
    assert not list(tmp_path.iterdir()) and tracker.counts["without frames"] == 1
    assert tracker.frame(frame(1)) is None


def test_a_late_first_frame_is_partial_unless_nobody_knew_the_first(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path)
    run(tracker, 30, "late", first=5)
    assert end(tracker, 30).record.partial
    run(tracker, 30, "by hand", first=5, start_known=False)
    assert not tracker.end(End(SECOND, Outcome("success"))).record.partial


def test_repeated_and_backward_stamps_are_refused(tmp_path):
    tracker = EpisodeTracker(monitor_config(), None)
    run(tracker, 10)
    assert tracker.frame(frame(9)) is None and tracker.frame(frame(3)) is None
    finished = end(tracker, 10)
    assert finished.record.refused == 2 and len(finished.record.stamps_ns) == 10 and finished.path is None


def test_a_disk_that_refuses_stops_neither_the_monitoring_nor_the_next_episode(tmp_path):
    said = []
    folder = tmp_path / "run"
    folder.write_text("a file")
    tracker = EpisodeTracker(monitor_config(), folder, report=said.append)
    run(tracker, 30)
    finished = end(tracker, 30)
    assert finished.path is None and "run" in finished.error and tracker.disk_error
    assert len(finished.record.stamps_ns) == 30 and len(said) == 1, "said once, not once a frame"
    folder.unlink()
    run(tracker, 30, "two")
    assert end(tracker, 30).path is not None and not tracker.disk_error
    assert [r.info.episode_id for r in read_episodes(folder)] == ["two"]


def test_what_a_crash_left_is_recovered_and_the_rest_of_the_episode_says_so(tmp_path):
    dead = EpisodeTracker(monitor_config(), tmp_path)
    run(dead, 100)
    dead._writer.close()  # as a killed process lets go of the stream
    said = []
    tracker = EpisodeTracker(monitor_config(), tmp_path, report=said.append)
    [recovery] = tracker.recover()
    assert recovery.record.complete is False and 80 <= len(recovery.record.stamps_ns) <= 100
    assert "did not end" in said[0]
    run(tracker, 150, first=100)
    record = end(tracker, 150).record
    assert record.partial and "restarted" in record.notes[0]
    assert sorted(len(r.stamps_ns) for r in read_episodes(tmp_path)) == [50, len(recovery.record.stamps_ns)]


def test_signals_of_a_recovered_episode_are_those_that_were_judged(tmp_path):
    dead = EpisodeTracker(monitor_config(), tmp_path)
    run(dead, 100)
    dead._writer.flush()
    dead._writer.close()
    [recovery] = EpisodeTracker(monitor_config(), tmp_path).recover()
    whole = EpisodeTracker(monitor_config(), None)
    run(whole, 100)
    expected = end(whole, 100).record
    assert np.array_equal(recovery.record.stamps_ns, expected.stamps_ns)
    for name, column in expected.signals.items():
        assert np.array_equal(recovery.record.signals[name], column, equal_nan=True)
    assert {c.clause: c.rho for c in recovery.record.clauses} == pytest.approx(
        {c.clause: c.rho for c in expected.clauses}, nan_ok=True
    )


def test_the_folder_keeps_the_library_that_judged(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(config_path("safety", "library.yaml").read_text() + "\n# changed\n")
    for library, found in ((None, 1), (None, 1), (own, 2), (own, 2)):
        tracker = EpisodeTracker(monitor_config(library), tmp_path / "run", library=library)
        run(tracker, 20, name=f"{library}-{found}")
        assert end(tracker, 20).path is not None
        assert len(kept_libraries(tmp_path / "run")) == found
    first, second = kept_libraries(tmp_path / "run")
    assert first.name.startswith("library-") and second.name == "library.yaml"
    assert second.read_bytes() == config_path("safety", "library.yaml").read_bytes()
    assert first.read_bytes() == own.read_bytes()


def test_a_folder_that_cannot_be_written_is_said_at_start_and_tried_again_in_the_same_episode(tmp_path, monkeypatch):
    said = []
    folder = tmp_path / "run"
    folder.write_text("a file")
    tracker = EpisodeTracker(monitor_config(), folder, report=said.append)
    tracker.probe()
    assert "run: File exists; episodes are not logged until it can be written" in said[0] and tracker.disk_error
    run(tracker, 30)
    assert len(said) == 2
    folder.unlink()
    run_on(tracker, 30, 60)
    assert tracker.disk_error, "not tried at every frame"
    monkeypatch.setattr("osma_monitor.ros.tracker.RETRY_PERIOD", 0.0)
    tracker._retry_wall = 0.0
    run_on(tracker, 60, 120)
    assert not tracker.disk_error and said[-1] == "episodes are logged again"
    assert list(folder.glob("*.part"))
    finished = end(tracker, 120)
    assert len(finished.record.stamps_ns) == 120 and finished.path is not None


def test_a_log_folder_is_kept_below_its_limit(tmp_path):
    said = []
    tracker = EpisodeTracker(monitor_config(), tmp_path, report=said.append, log=LogConfig(limit_bytes=1))
    for name in ("a", "b", "c"):
        run(tracker, 20, name)
        end(tracker, 20)
    assert [r.info.episode_id for r in read_episodes(tmp_path)] == ["c"]
    assert tracker.counts["removed"] == 2 and tracker.counts["stored"] == 3 and "oldest episodes removed" in said[-1]


def test_an_episode_of_ten_hours_is_logged_in_segments(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path, log=LogConfig(segment_bytes=50_000))
    run(tracker, 1000)
    parts = sorted(p.stat().st_size for p in tmp_path.iterdir())
    assert len(parts) > 5 and parts[-1] < 100_000
    finished = end(tracker, 1000)
    assert [p.suffix for p in tmp_path.iterdir() if p.suffix != ".yaml"] == [".parquet"]
    assert len(finished.record.stamps_ns) == 1000


def test_a_recovered_episode_says_what_appeared_after_its_first_frame(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path)
    tracker.begin(Begin(SECOND, info()))
    one = np.zeros(1, np.int8)
    baby = Objects(("b",), ("baby",), ("human",), np.ones((1, 3)), np.array([[0.0, 0, 0, 1]]), np.ones(1), one)
    for step in range(60):
        seen = frame(step)
        tracker.log(tracker.frame(seen if step < 20 else replace(seen, objects=baby)))
    assert any("objects.human appeared after the episode began" in text for text in tracker.monitor.not_judged)
    tracker._writer.close()
    [recovery] = EpisodeTracker(monitor_config(), tmp_path).recover()
    assert (
        "appeared after the episode began, their clauses are not judged: human_distance, " in recovery.record.notes[0]
    )


def test_frames_that_did_not_come_make_the_record_partial(tmp_path):
    tracker = EpisodeTracker(monitor_config(), tmp_path)
    run(tracker, 30)
    end(tracker, 30, frames=33)
    run(tracker, 30, name="two")
    end(tracker, 30, frames=30)
    one, two = sorted(read_episodes(tmp_path), key=lambda r: r.info.episode_id)
    assert one.partial and one.notes == ("3 of 33 frames that the source published did not come",)
    assert not two.partial and two.notes == ()


def test_notes_that_differ_in_every_frame_are_bounded():
    tracker = EpisodeTracker(monitor_config(), None)
    run(tracker, 3)
    for k in range(1000):
        tracker.note(f"error {k}")
    notes = end(tracker, 3).record.notes
    assert len(notes) == MOST_NOTES and notes[0] == "error 0"
