"""A small bag played in a loop into the living node, as `ros2 bag play --loop` does: stamps go back at each round."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import of, values
from nav_msgs.msg import Odometry
from osma_monitor.msg import ClauseStatus, EpisodeEvent, EpisodeSummary, ObjectStates, SafetyState
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from std_msgs.msg import Header

from osma_monitor.io.bag.types import known_types
from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, to_time

pytestmark = pytest.mark.ros
START_NS = 1_700_000_000 * 10**9
STEP_NS = 50_000_000
STEPS = 60  #: 3 s
ROUNDS = 3
KINDS = {topics.ODOM: Odometry, topics.OBJECTS: ObjectStates, topics.EPISODE: EpisodeEvent}
CART = "name: cart\nframe: world\ninputs: [{part: base, topic: odom}, {part: objects, topic: objects}]\nprimary: odom\n"


def messages(events, end=True):
    """(receipt ns, topic, message) of one drive past a person; in the middle it is too near."""
    if events:
        begin = {"suite": "kitchen", "templates": ["navigate"], "sources": ["base", "objects"]}
        head = Header(stamp=to_time(START_NS), frame_id="driver")
        yield START_NS, topics.EPISODE, EpisodeEvent(header=head, event=EpisodeEvent.START, episode_id="one", **begin)
    for step in range(STEPS):
        stamp = START_NS + step * STEP_NS
        moved = Odometry(header=header(stamp, "world"), child_frame_id="base_link")
        moved.pose.pose.orientation.w = 1.0
        moved.twist.twist.linear.x = 0.5
        seen = ObjectStates(header=header(stamp, "world"), id=["b"], category=["baby"], role=["human"], in_contact=[0])
        seen.position.extend([1.0, 0.0, 0.0])
        seen.orientation.extend([0.0, 0.0, 0.0, 1.0])
        seen.distance.append(0.05 if step == STEPS // 2 else 2.0)
        yield stamp, topics.OBJECTS, seen
        yield stamp, topics.ODOM, moved
    if events and end:
        last = START_NS + (STEPS - 1) * STEP_NS
        over = {"episode_id": "one", "outcome": EpisodeEvent.OUTCOME_SUCCESS, "steps": STEPS}
        head = Header(stamp=to_time(last), frame_id="driver")
        yield last, topics.EPISODE, EpisodeEvent(header=head, event=EpisodeEvent.END, **over)


@pytest.fixture
def play(observer, tmp_path):
    """Writes a bag and plays it round after round, each message a moment after the other."""
    store = known_types("cdr")

    def write(**what):
        with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            connections = {}
            for at, topic, message in messages(**what):
                kind = KINDS[topic]
                name = f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}"
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, name, typestore=store)
                writer.write(connections[topic], at, serialize_message(message))

    def run(monitor, rounds, **what):
        write(**what)
        publishers = {}
        for topic, kind in KINDS.items():
            qos = topics.latched() if topic == topics.EPISODE else topics.reliable()
            if topic in (topics.ODOM, topics.OBJECTS) or what["events"]:
                publishers[topic] = observer.node.create_publisher(kind, topic, qos)
        read = [topics.ODOM, topics.OBJECTS]
        observer.until(lambda: all(publishers[t].get_subscription_count() for t in read), "the monitor", 30, monitor)
        for _ in range(rounds):
            with Reader(tmp_path / "bag") as reader:
                for connection, _, data in reader.messages():
                    publishers[connection.topic].publish(deserialize_message(data, KINDS[connection.topic]))
                    pause = time.monotonic() + 0.004
                    observer.until(lambda until=pause: time.monotonic() > until, "a moment")

    return run


@pytest.fixture
def heard(observer):
    class Heard:
        status = observer.listen(ClauseStatus, of(topics.STATUS))
        states = observer.listen(SafetyState, of(topics.STATE))
        summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
        diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)

    return Heard


def count(heard, text):
    """What the diagnostics count under that name."""
    found = (values(heard.diagnostics, "frames") or (0, "", {}))[2]
    return sum(int(n) for name, n in found.items() if text in name)


def test_each_round_of_a_bag_with_events_is_an_episode_of_its_own(play, heard, nodes, observer, tmp_path):
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", end_timeout=0.5)
    play(monitor, ROUNDS, events=True)
    observer.until(lambda: len(heard.summaries) == ROUNDS, "the summaries", 20, monitor)
    assert all(s.complete and s.outcome == EpisodeEvent.OUTCOME_SUCCESS for s in heard.summaries)
    assert all(s.safety == EpisodeSummary.UNSAFE and s.stored for s in heard.summaries)
    records = list(read_episodes(tmp_path / "run"))
    assert len(records) == ROUNDS and all(len(r.stamps_ns) == STEPS and not r.partial for r in records)
    assert {r.depth for r in records} == {records[0].depth} and records[0].depth > 0
    observer.until(lambda: count(heard, "clock: set back") == ROUNDS - 1, "the count", 10, monitor)
    assert monitor.stop() == 0


def test_rounds_without_an_end_are_cut_and_judged_again(play, heard, nodes, observer, tmp_path):
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    play(monitor, ROUNDS, events=True, end=False)
    observer.until(lambda: count(heard, "clock: set back") == ROUNDS - 1, "the count", 20, monitor)
    assert monitor.stop() == 0
    records = list(read_episodes(tmp_path / "run"))
    assert len(records) == ROUNDS and all(not r.complete and r.safety == "unsafe" for r in records)
    reasons = sorted(r.outcome.reason for r in records)
    assert reasons == ["the clock was set back"] * (ROUNDS - 1) + ["the monitor was stopped"]
    # the samples by which a set-back clock is told from a late message are refused, and counted
    assert all(len(r.stamps_ns) >= STEPS - 5 for r in records) and count(heard, "late") > 0


def test_a_robot_without_events_goes_on_through_the_loop(play, heard, nodes, observer, tmp_path):
    (tmp_path / "cart.yaml").write_text(CART)
    monitor = nodes.start(
        "safety_monitor",
        robot=tmp_path / "cart.yaml",
        episode_log=tmp_path / "run",
        suite="kitchen",
        templates=["navigate"],
    )
    play(monitor, ROUNDS, events=False)
    observer.until(lambda: count(heard, "clock: set back") == ROUNDS - 1, "the count", 20, monitor)
    assert "clock_jump" in str(values(heard.diagnostics, "frames")[2])
    observer.until(lambda: heard.states[-1].state == SafetyState.UNKNOWN, "UNKNOWN, since nothing comes any more", 10)
    assert monitor.stop() == 0
    records = list(read_episodes(tmp_path / "run"))
    assert len(records) == ROUNDS and all(r.safety == "unsafe" and not r.complete for r in records)
    assert sum(len(r.stamps_ns) for r in records) >= ROUNDS * (STEPS - 5)
