"""What ends badly ends as the design says, in bounded time: dead policies, late monitors, restarted bridges."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from nav_msgs.msg import Odometry
from osma_monitor.msg import ClauseStatus, EpisodeEvent, EpisodeSummary

from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics

pytestmark = pytest.mark.ros

LATCHED = topics.latched(10)
STATUS = topics.of_monitor(topics.STATUS)
SUMMARY = topics.of_monitor(topics.SUMMARY)
LONG = "steps/1000000"  #: an episode that does not end by itself


def logging(run: Path) -> bool:
    """Whether an episode is being written now. Unlike a message, a file is seen however late DDS peers find us."""
    return any(part.stat().st_size > 0 for part in run.glob("*.part"))


def test_a_dead_policy_ends_the_episode_as_aborted(nodes, observer, tmp_path):
    status = observer.listen(ClauseStatus, STATUS)
    events = observer.listen(EpisodeEvent, topics.EPISODE, LATCHED)
    summaries = observer.listen(EpisodeSummary, SUMMARY, LATCHED)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    policy = nodes.kinematic("policy")
    bridge = nodes.kinematic("bridge", tasks=[LONG], policy="chase", silence_limit=1.0, resend_after=0.3)
    observer.until(lambda: len(status) > 20, "20 frames", 30, bridge, policy, monitor)
    policy.kill()
    killed = time.monotonic()
    observer.until(lambda: summaries, "the summary", 30, bridge, monitor)
    assert time.monotonic() - killed < 10
    end = events[-1]
    assert (end.event, end.outcome) == (EpisodeEvent.END, EpisodeEvent.OUTCOME_ABORTED)
    assert end.reason == "policy silent for 1 s"
    assert bridge.wait() == 1
    [record] = read_episodes(tmp_path / "run")
    assert record.outcome.status == "aborted" and record.outcome.success is None
    assert record.outcome.steps == len(record.stamps_ns) == end.steps
    assert not record.partial


def test_a_dead_monitor_ends_the_episode_as_aborted(nodes, observer, tmp_path):
    status = observer.listen(ClauseStatus, STATUS)
    events = observer.listen(EpisodeEvent, topics.EPISODE, LATCHED)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    nodes.kinematic("policy")
    bridge = nodes.kinematic(
        "bridge", tasks=[LONG], policy="chase", silence_limit=1.0, resend_after=0.3, summary_limit=0.5
    )
    observer.until(lambda: len(status) > 20, "20 frames", 30, bridge, monitor)
    monitor.kill()
    observer.until(lambda: events[-1].event == EpisodeEvent.END, "the end", 30, bridge)
    assert events[-1].reason == "monitor silent for 1 s"
    assert bridge.wait() == 1


def test_a_monitor_that_joins_late_marks_the_episode_partial(nodes, observer, tmp_path):
    odometry = observer.listen(Odometry, topics.ODOM)
    status = observer.listen(ClauseStatus, STATUS)
    summaries = observer.listen(EpisodeSummary, SUMMARY, LATCHED)
    nodes.kinematic("policy")
    # in real time, as beside hardware
    bridge = nodes.kinematic("bridge", tasks=[LONG], policy="chase", lockstep_participants=[], real_time_factor=2.0)
    observer.until(lambda: len(odometry) > 20, "20 frames", 30, bridge)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", end_timeout=0.5)
    observer.until(lambda: len(status) > 20, "20 verdicts", 30, monitor)
    bridge.stop()
    observer.until(lambda: summaries, "the summary", 30, monitor)
    assert summaries[0].partial
    [record] = read_episodes(tmp_path / "run")
    assert record.partial and record.stamps_ns[0] > 1_000_000_000


@pytest.mark.long
def test_a_restarted_bridge_begins_its_episodes_again(nodes, observer, tmp_path):
    summaries = observer.listen(EpisodeSummary, SUMMARY, LATCHED)
    # a slow monitor: the first bridge still runs when it is killed
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", frame_delay_ms=5.0)
    nodes.kinematic("policy")
    # the same task, so the same episode id and, on a clock that starts again, the same first stamp
    first = nodes.kinematic("bridge", tasks=["steps/1500"], policy="chase")
    observer.until(lambda: logging(tmp_path / "run"), "the first frames in the log", 30, first, monitor)
    first.kill()
    second = nodes.kinematic("bridge", tasks=["steps/1500"], policy="chase")
    observer.until(lambda: len(summaries) == 2, "both summaries", 120, second, monitor)
    assert second.wait(120) == 0
    cut, whole = sorted(read_episodes(tmp_path / "run"), key=lambda r: r.complete)
    assert not cut.complete and cut.outcome.status == "unknown" and cut.outcome.reason == "the source was restarted"
    assert whole.complete and not whole.partial and whole.outcome.status == "success"
    assert len(whole.stamps_ns) == 1501 and whole.refused == 0


def test_a_killed_monitor_loses_at_most_a_second_and_recovers_the_rest(nodes, observer, tmp_path):
    run = tmp_path / "run"
    status = observer.listen(ClauseStatus, STATUS)
    summaries = observer.listen(EpisodeSummary, SUMMARY, LATCHED)
    # a slow monitor: the episode still runs when a late observer has seen 100 frames
    monitor = nodes.start("safety_monitor", episode_log=run, frame_delay_ms=5.0)
    nodes.kinematic("policy")
    bridge = nodes.kinematic(
        "bridge", tasks=["steps/30", "steps/1500"], policy="chase", silence_limit=20.0, resend_after=0.3
    )
    observer.until(lambda: summaries and status and status[-1].step > 100, "100 frames", 30, bridge, monitor)
    monitor.kill()
    last = status[-1].step
    [finished] = run.glob("*.parquet")
    before = finished.read_bytes()
    [part] = run.glob("*.part")

    again = nodes.start("safety_monitor", episode_log=run)
    observer.until(lambda: any(not s.complete or s.partial for s in summaries), "the summary", 120, bridge, again)
    assert bridge.wait(120) == 0
    assert "did not end" in again.output and "recovered" in again.output
    assert finished.read_bytes() == before and not part.exists()
    records = {(r.complete, r.partial): r for r in read_episodes(run)}
    recovered = next(r for r in records.values() if not r.complete)
    rest = next(r for r in records.values() if r.complete and r.partial)
    assert recovered.info.task == rest.info.task == "steps/1500"
    lost = last + 1 - len(recovered.stamps_ns)
    assert lost * 0.05 <= 1.0 + 0.05, f"{lost} of {last + 1} steps lost"
    assert recovered.outcome.status == "unknown" and recovered.outcome.success is None
    assert any("restarted" in note for note in rest.notes)


@pytest.mark.long
def test_a_stopped_policy_may_go_on(nodes, observer, tmp_path):
    """SIGSTOP shorter than the limit: the observation is sent again, and no number changes."""
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", frame_delay_ms=5.0)
    policy = nodes.kinematic("policy")
    bridge = nodes.kinematic("bridge", tasks=["steps/1500"], policy="chase", resend_after=0.2, silence_limit=20.0)
    observer.until(lambda: logging(tmp_path / "run"), "the first frames in the log", 30, bridge, policy, monitor)
    policy.send(signal.SIGSTOP)
    observer.until(lambda: "sent again" in bridge.output, "an observation sent again", 30, bridge)
    policy.send(signal.SIGCONT)
    assert bridge.wait(120) == 0, bridge.output
    [record] = read_episodes(tmp_path / "run")
    assert len(record.stamps_ns) == 1501 and not record.partial and record.refused == 0
