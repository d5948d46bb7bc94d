"""The main job as users run it: three processes over DDS, live verdicts, the same record as in process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from osma_monitor.msg import ClauseList, ClauseStatus, EpisodeEvent, EpisodeSummary, Violation

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.core.signals.raw import same
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes
from osma_monitor.resources import config_path
from osma_monitor.ros import topics
from sim_bridge.hosts import make_simulation
from sim_bridge.policies import make_policy
from sim_bridge.simulation import episode_info

pytestmark = pytest.mark.ros

TASK = "kitchen/layout0/A/human"
LATCHED = topics.latched(10)


def in_process(tasks: list[str], policy_name: str, seed: int = 0) -> list[EpisodeRecord]:
    """The same episodes without ROS."""
    simulation, policy = make_simulation("kitchen"), make_policy(policy_name)
    config = monitor_config(source=simulation.provenance())
    records = []
    for task in tasks:
        frame = simulation.reset(task, seed)
        info = episode_info(simulation.info(), policy_name)
        policy.reset(info)
        monitor = EpisodeMonitor(info, config, frame.stamp_ns)
        monitor.update(frame)
        steps = 1
        while (outcome := simulation.outcome()) is None:
            frame = simulation.step(policy.act(frame))
            monitor.update(frame)
            steps += 1
        records.append(monitor.close(replace(outcome, steps=steps)))
    simulation.close()
    return records


def without_session(record: EpisodeRecord) -> EpisodeRecord:
    return replace(record, provenance=replace(record.provenance, session={}))


def differing_fields(a: EpisodeRecord, b: EpisodeRecord) -> list[str]:
    a, b = without_session(a), without_session(b)
    return [name for name in a.__dataclass_fields__ if not same(getattr(a, name), getattr(b, name))]


def test_a_violation_arrives_while_the_episode_runs(nodes, observer, tmp_path):
    violations = observer.listen(Violation, topics.of_monitor(topics.VIOLATIONS))
    status = observer.listen(ClauseStatus, topics.of_monitor(topics.STATUS))
    clauses = observer.listen(ClauseList, topics.of_monitor(topics.CLAUSES), LATCHED)
    episode = observer.listen(EpisodeEvent, topics.EPISODE, LATCHED)
    summary = observer.listen(EpisodeSummary, topics.of_monitor(topics.SUMMARY), LATCHED)
    # a slow monitor makes the episode last seconds: a busy observer still sees the violation before the end
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", frame_delay_ms=20.0)
    policy = nodes.start("policy", policy="shortest_path")
    observer.meet(monitor)
    bridge = nodes.start("mujoco_bridge", tasks=[TASK], policy="shortest_path")

    observer.until(lambda: violations, "a violation", 30, monitor, policy, bridge)
    assert not any(e.event == EpisodeEvent.END for e in episode), "the episode was over before the violation arrived"
    first = violations[0]
    assert first.event == Violation.ENTER

    observer.until(lambda: summary, "the summary", 30, monitor, policy, bridge)
    observer.until(lambda: len(status) >= summary[0].steps, "every status", 30, monitor, policy)
    assert bridge.wait() == 0
    # the violation has the stamp of the step in which the status says that it happened
    names = list(clauses[0].clause)
    index = names.index(first.clause)
    stamps = [(s.header.stamp.sec, s.header.stamp.nanosec) for s in status if s.status[index] == 1]
    assert stamps[0] == (first.header.stamp.sec, first.header.stamp.nanosec)
    at = next(s for s in status if s.status[index] == 1)
    assert at.step == first.step and at.rho[index] == first.rho < 0
    # each violation is said once on entry and once on exit
    for clause in {v.clause for v in violations}:
        kinds = [v.event for v in violations if v.clause == clause]
        assert kinds == [Violation.ENTER, Violation.EXIT] * (len(kinds) // 2) + [Violation.ENTER] * (len(kinds) % 2)
    [record] = read_episodes(tmp_path / "run")
    assert summary[0].safety == EpisodeSummary.UNSAFE and record.safety == "unsafe"
    assert summary[0].steps == len(record.stamps_ns) == len(status)
    assert [policy.stop(), monitor.stop()] == [0, 0]


@pytest.mark.parametrize("frame_delay_ms", [0.0, 20.0])
def test_over_ros_and_in_process_give_equal_records(nodes, observer, tmp_path, frame_delay_ms):
    tasks = [TASK, "kitchen/layout0/A/baby"] if not frame_delay_ms else [TASK]
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", frame_delay_ms=frame_delay_ms)
    policy = nodes.start("policy", policy="cautious")
    bridge = nodes.start("mujoco_bridge", tasks=tasks, policy="cautious")
    expected = in_process(tasks, "cautious")
    assert bridge.wait(60) == 0, bridge.output + monitor.output + policy.output
    stored = sorted(read_episodes(tmp_path / "run"), key=lambda r: r.stamps_ns[0])
    assert len(stored) == len(expected)
    for over_ros, direct in zip(stored, expected, strict=True):
        assert differing_fields(over_ros, direct) == []
        assert not over_ros.partial and over_ros.complete and over_ros.refused == 0
        assert over_ros.provenance.session["transport"] == "ros"


def test_the_folder_of_a_run_holds_finished_episodes_only(nodes, observer, tmp_path):
    run = tmp_path / "run"
    monitor = nodes.start("safety_monitor", episode_log=run)
    nodes.start("policy", policy="shortest_path")
    bridge = nodes.start("mujoco_bridge", tasks=[TASK], policy="shortest_path")
    assert bridge.wait(60) == 0, bridge.output + monitor.output
    assert monitor.stop() == 0
    assert {p.suffix for p in Path(run).iterdir()} == {".parquet", ".yaml"}
    assert (run / "library.yaml").read_bytes() == config_path("safety", "library.yaml").read_bytes()
