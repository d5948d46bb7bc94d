"""A live run that is recorded scores the same from the bag: by `~/frame`, and by the exactly stamped inputs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

pytest.importorskip("rclpy")

from osma_monitor.msg import EpisodeEvent, EpisodeSummary, RawFrame
from rosbags.rosbag2 import Writer

from osma_monitor.core.signals.raw import same
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.bag.types import known_types
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics
from osma_monitor.ros.inputs import PART_TYPES

pytestmark = pytest.mark.ros


@pytest.fixture
def recorder(observer, tmp_path):
    """Writes topics into a bag as they come, as `ros2 bag record` would."""
    bag = tmp_path / "bag"
    writer = Writer(bag, version=9)
    writer.open()
    store = known_types()

    def record(kind, topic, qos=None):
        name = f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}"
        connection = writer.add_connection(f"/{topic}", name, typestore=store)
        observer.node.create_subscription(
            kind,
            topic,
            lambda data: writer.write(connection, time.time_ns(), data),
            qos or topics.reliable(10_000),
            raw=True,
        )

    record.path, record.close = bag, writer.close
    return record


@pytest.mark.parametrize("by", ["frame", "inputs"])
def test_a_recording_scores_as_the_live_run(nodes, observer, recorder, tmp_path, by):
    recorder(EpisodeEvent, topics.EPISODE, topics.latched(10))
    if by == "frame":
        recorder(RawFrame, topics.of_monitor(topics.FRAME))
    else:
        for part in ("base", "contacts", "objects"):
            recorder(PART_TYPES[part][0], topics.PART_TOPICS[part])
    summaries = observer.listen(EpisodeSummary, topics.of_monitor(topics.SUMMARY), topics.latched(10))
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    policy = nodes.kinematic("policy")
    observer.meet(monitor)
    # this recorder writes topic by topic, so that across two episodes the order of receipt would be lost
    tasks = ["steps/80", "steps/60"] if by == "frame" else ["steps/80"]
    bridge = nodes.kinematic("bridge", tasks=tasks, policy="chase", settle_time=6.0)
    observer.until(lambda: len(summaries) == len(tasks), "the episodes", 60, bridge, policy, monitor)
    observer.until(lambda: bridge.popen.poll() is not None, "the end", 30, bridge)
    recorder.close()

    live = {r.info.episode_id: r for r in read_episodes(tmp_path / "run")}
    scored = list(score_bag(recorder.path, monitor_config()))
    assert {r.info.episode_id for r in scored} == set(live) and len(live) == len(tasks)
    for record in scored:
        other = live[record.info.episode_id]
        a, b = (replace(r, provenance=replace(r.provenance, session={})) for r in (record, other))
        assert [n for n in a.__dataclass_fields__ if not same(getattr(a, n), getattr(b, n))] == []
