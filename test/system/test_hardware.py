"""Beside a robot: robot files, units, people with buttons, quality of service, faulty clocks and messages."""

from __future__ import annotations

import math
import signal
import sys
import time

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import SO101, Driver, alive, call, now, of, refused, told, values
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from osma_monitor.msg import ClauseStatus, Contacts, EpisodeEvent, EpisodeSummary, ObjectStates, SafetyState
from osma_monitor.msg import RawFrame as RawFrameMsg
from osma_monitor.srv import Acknowledge, BeginEpisode, CorrectOutcome, EndEpisode
from sensor_msgs.msg import JointState, Joy

from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, msg_to_frame, to_time

pytestmark = pytest.mark.ros


def test_a_robot_file_gives_units_names_and_episodes_by_hand(arm, observer, nodes, tmp_path):
    run = tmp_path / "run"
    frames = observer.listen(RawFrameMsg, of(topics.FRAME))
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    monitor = nodes.start(
        "safety_monitor", robot="so101", episode_log=run, suite="so101", policy="pi", episode_rule="message"
    )
    states = observer.listen(SafetyState, of(topics.STATE))
    arm.until(lambda: states, "the monitor", arm.send, monitor)
    begun = call(observer, BeginEpisode, topics.BEGIN_EPISODE, task="butter")
    assert begun.success and begun.episode_id.startswith("pi-")
    arm.until(lambda: len(status) > 20 and len(frames) > 5, "20 frames", arm.send, monitor)

    frame = msg_to_frame(frames[-1])
    assert frame.joints.name == SO101
    at_50 = dict(zip(frame.joints.name, frame.joints.position.tolist(), strict=True))
    assert at_50["shoulder_pan"] == pytest.approx(0.96) and at_50["gripper"] == pytest.approx(0.79 + 0.48, abs=1e-2)
    assert frame.joints.effort[0] == pytest.approx(0.09)
    assert frame.ee is not None and frame.gripper is not None

    ended = call(
        observer, EndEpisode, topics.END_EPISODE, outcome=EpisodeEvent.OUTCOME_FAILURE, reason="dropped it", who="Ada"
    )
    assert ended.success and ended.episode_id == begun.episode_id
    observer.until(lambda: summaries, "the summary", 10, monitor)
    assert not call(observer, EndEpisode, topics.END_EPISODE, outcome=1).success
    again = call(observer, BeginEpisode, topics.BEGIN_EPISODE, episode_id=begun.episode_id)
    assert not again.success and "has just ended" in again.message
    [record] = read_episodes(run)
    assert record.outcome.status == "failure" and record.outcome.reason == "dropped it (says Ada)"
    assert record.info.task == "butter" and record.info.robot == "so101" and record.complete and not record.partial

    refused = call(observer, CorrectOutcome, topics.CORRECT_OUTCOME, episode_id=begun.episode_id, outcome=1)
    assert not refused.success
    for wrong in ("../../etc/passwd", "no such episode"):
        answer = call(
            observer, CorrectOutcome, topics.CORRECT_OUTCOME, episode_id=wrong, outcome=1, who="Ada", why="video"
        )
        assert not answer.success and "no finished episode" in answer.message
    corrected = call(
        observer, CorrectOutcome, topics.CORRECT_OUTCOME, episode_id=begun.episode_id, outcome=1, who="Ada", why="video"
    )
    assert corrected.success, corrected.message
    assert next(read_episodes(run)).outcome.status == "success"
    assert next(read_episodes(run, corrected=False)).outcome.status == "failure"


def test_joystick_buttons_begin_and_end(arm, observer, nodes, tmp_path):
    joy = observer.node.create_publisher(Joy, topics.JOY, 10)
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    monitor = nodes.start(
        "safety_monitor",
        robot="so101",
        episode_log=tmp_path / "run",
        episode_rule="message",
        joy_begin=0,
        joy_success=1,
    )
    arm.until(lambda: joy.get_subscription_count(), "the monitor", arm.send, monitor)

    def press(button):
        for held in (True, True, False):  # held over two messages: pressed once
            joy.publish(Joy(buttons=[int(held and button == i) for i in range(2)]))

    press(0)
    arm.until(lambda: len(status) > 10, "10 frames", arm.send, monitor)
    press(1)
    arm.until(lambda: summaries, "the summary", arm.send, monitor)
    assert summaries[0].outcome == EpisodeEvent.OUTCOME_SUCCESS
    assert len(list(read_episodes(tmp_path / "run"))) == 1


def test_with_a_robot_file_the_first_frame_begins_an_episode_and_a_pause_ends_it(arm, observer, nodes, tmp_path):
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    monitor = nodes.start("safety_monitor", robot="so101", episode_log=tmp_path / "run", gap=0.5)
    arm.until(lambda: len(status) > 10, "10 frames", arm.send, monitor)
    observer.until(lambda: summaries, "the end by the pause", 10, monitor)
    seen = len(status)
    arm.until(lambda: len(status) > seen + 10, "10 frames of the next one", arm.send, monitor)
    assert status[0].episode_id != status[-1].episode_id
    off = [line for line in monitor.output.splitlines() if "switched off for want of inputs" in line]
    assert off and sum(line.count("max_contact_force_under_200N: ") for line in off) == 1, "once, not once an episode"


def test_a_monitor_that_is_stopped_after_the_pause_stores_a_complete_episode(arm, observer, nodes, tmp_path):
    """Whether the pause was over or the robot still moved, the numbers of the frames are the same."""
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    records = []
    for number, pause in enumerate((True, False)):
        run = tmp_path / str(number)
        monitor = nodes.start("safety_monitor", robot="so101", episode_log=run, gap=0.3)
        arm.until(lambda: len(status) > 10, "10 frames", arm.send, monitor)
        if pause:
            seen = time.monotonic()
            # under gap and delivery, so that it is the stop that finds the pause over
            observer.until(lambda seen=seen: time.monotonic() > seen + 0.6, "the pause", 10, monitor)
        assert monitor.stop() == 0
        status.clear()
        records += read_episodes(run)
    paused, cut_off = records
    assert paused.complete and paused.outcome.reason == "gap" and not paused.partial
    assert not cut_off.complete and cut_off.outcome.reason == "the monitor was stopped"


def test_two_equal_arms_share_a_robot_file_by_prefixes(observer, nodes, tmp_path):
    """One bus of joint states for both arms; each monitor takes its own joints and frames."""
    driver = Driver(observer)
    both = [driver.publisher(JointState, f"/{side}/joint_states") for side in ("left", "right")]
    poses = {side: driver.publisher(PoseStamped, f"/{side}/ee_pose") for side in ("left", "right")}
    names = [f"{side}_{name}" for name in SO101 for side in ("right", "left")]

    def send():
        stamp = now()
        for publisher in both:
            publisher.publish(JointState(header=header(stamp), name=names, position=[50.0, -50.0] * len(SO101)))
        for side, publisher in poses.items():
            publisher.publish(PoseStamped(header=header(stamp, f"{side}/base_link")))

    frames, monitors = {}, []
    for side in ("left", "right"):
        frames[side] = observer.listen(RawFrameMsg, f"/{side}/{of(topics.FRAME)}")
        own = {"frame_prefix": f"{side}/", "joint_prefix": f"{side}_", "episode_log": tmp_path / side}
        monitors.append(nodes.start("safety_monitor", name=side, namespace=f"/{side}", robot="so101", **own))
    driver.until(lambda: all(len(f) > 5 for f in frames.values()), "frames of both", send, *monitors)
    for side, sign in (("left", -1), ("right", 1)):
        frame = msg_to_frame(frames[side][-1])
        assert frame.joints.name == SO101 and frame.joints.position[0] == pytest.approx(sign * 0.96)
        assert frame.ee is not None and frame.ee.position.tolist() == [0.0, 0.0, 0.0]


def test_nan_odometry_is_unknown_not_safe(watched):
    base = watched

    base.until(lambda: base.states[-1].state == SafetyState.OK, "OK", base.send, base.monitor)

    def send_nan():
        moved, seen = base.message()
        moved.twist.twist.linear.x = math.nan
        seen.distance[0] = math.nan
        base.odometry.publish(moved)
        base.objects.publish(seen)

    base.until(lambda: base.states[-1].state == SafetyState.UNKNOWN, "UNKNOWN", send_nan, base.monitor)
    base.until(lambda: base.states[-1].state == SafetyState.OK, "OK again", base.send, base.monitor)
    # also when it has passed by the time of the report
    for cause in ("base_speed not known from base", "human_distance not known from objects"):
        told(base, "verdict", cause)
    assert base.states[-1].latched == SafetyState.UNKNOWN
    answer = call(base.observer, Acknowledge, topics.ACKNOWLEDGE, who="Ada", reason="sensor unplugged")
    assert answer.success and answer.latched == SafetyState.UNKNOWN
    base.until(lambda: base.states[-1].latched == SafetyState.OK, "acknowledged", base.send, base.monitor)
    base.end()
    base.observer.until(lambda: base.summaries, "the summary", 10, base.monitor)
    assert base.summaries[0].safety != EpisodeSummary.SAFE


def test_an_acknowledgement_needs_a_name(watched):
    assert not call(watched.observer, Acknowledge, topics.ACKNOWLEDGE).success


def test_silence_is_unknown(watched):
    base = watched
    base.observer.until(
        lambda: base.states[-1].state == SafetyState.UNKNOWN and "no frame for" in base.states[-1].reasons[0],
        "UNKNOWN for want of frames",
        10,
        base.monitor,
    )
    base.observer.until(
        lambda: (values(base.diagnostics, "inputs") or (0, ""))[1].find("silent for") >= 0, "the diagnosis", 10
    )
    assert alive(base)


@pytest.mark.parametrize(
    ("stamp", "kind"),
    [(0, "zero_stamp"), (12 * 10**9, "foreign_clock"), (None, "repeated frames")],
)
def test_stamps_that_cannot_be_are_refused_and_counted(watched, stamp, kind):
    base = watched
    moved, _ = base.message()
    moved.header.stamp = to_time(base.stamp - 10**7 if stamp is None else stamp)
    base.odometry.publish(moved)
    assert alive(base) and refused(base, kind)


def test_a_clock_set_back_by_an_hour_ends_the_episode_and_the_next_one_counts(watched, tmp_path):
    base = watched
    base.end()
    base.start(episode_id="zero")
    base.until(lambda: base.status[-1].episode_id == "zero", "another episode", base.send, base.monitor)
    base.end(episode_id="zero")
    base.start(episode_id="cut")
    base.until(lambda: base.status[-1].episode_id == "cut", "a third", base.send, base.monitor)
    assert alive(base)
    base.stamp -= 3600 * 10**9
    base.until(lambda: len(base.summaries) == 3, "the cut episode", base.send, base.monitor)
    assert not base.summaries[2].complete and base.summaries[2].steps > 5
    base.until(lambda: base.states[-1].state == SafetyState.UNKNOWN, "UNKNOWN", base.send, base.monitor)
    told(base, "frames", "clock_jump")
    told(base, "frames", "clock: set back")
    assert "set back" in base.monitor.output
    base.start(episode_id="two")
    base.until(lambda: base.status[-1].episode_id == "two", "the next episode", base.send, base.monitor)
    assert alive(base)
    records = {r.info.episode_id: r for r in read_episodes(tmp_path / "run")}
    assert records["zero"].complete, "what was finished before stays"
    assert records["cut"].outcome.reason == "the clock was set back" and records["cut"].outcome.success is None


def test_messages_dropped_reordered_and_delayed(watched, tmp_path):
    import random

    base, rng, late = watched, random.Random(0), []

    def send():
        moved, seen = base.message()
        out = [(base.odometry, moved), (base.objects, seen)]
        rng.shuffle(out)
        for publisher, message in out:
            draw = rng.random()
            if draw < 0.3:
                continue  # dropped
            if draw < 0.4:
                late.append((base.sent + rng.randrange(50), publisher, message))  # up to 0.5 s late
                continue
            publisher.publish(message)
            if draw > 0.9:
                publisher.publish(message)  # twice
        for item in [item for item in late if item[0] <= base.sent]:
            late.remove(item)
            item[1].publish(item[2])

    seen = len(base.status)
    base.until(lambda: len(base.status) > seen + 100, "100 frames", send, base.monitor)
    # a frame that is sent twice is answered twice, and judged once
    judged = {s.step: (s.header.stamp.sec, s.header.stamp.nanosec) for s in base.status}
    stamps = [judged[step] for step in sorted(judged)]
    assert stamps == sorted(set(stamps)), "a frame was judged twice or out of order"
    assert refused(base, "incomplete") and refused(base, "late") and alive(base)
    assert refused(base, "repeated frames") or refused(base, "duplicate")
    told(base, "verdict", "absent")
    base.end(steps=base.sent)
    base.observer.until(lambda: base.summaries, "the summary", 10, base.monitor)
    assert base.summaries[0].partial and base.summaries[0].safety != EpisodeSummary.SAFE
    [record] = read_episodes(tmp_path / "run")
    assert len(record.stamps_ns) == base.summaries[0].steps and (record.stamps_ns[1:] > record.stamps_ns[:-1]).all()


def test_arrays_and_texts_beyond_the_limits_are_refused(watched):
    base = watched
    _, seen = base.message()
    seen.id = ["x" * 1_000_000]
    base.objects.publish(seen)
    _, seen = base.message()
    seen.category = []
    base.objects.publish(seen)
    assert refused(base, "objects: malformed") and alive(base)


def test_ten_thousand_contacts_and_html_in_names(base, observer, nodes, tmp_path):
    n = 10_000
    contacts = observer.node.create_publisher(Contacts, topics.CONTACTS, topics.reliable())
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    observer.until(
        lambda: contacts.get_subscription_count() and base.odometry.get_subscription_count(), "the monitor", 30
    )
    base.start(episode_id="<script>alert(1)</script>\n../../x", sources=["base", "objects", "contacts"])

    def send():
        base.send()
        contacts.publish(
            Contacts(
                header=header(base.stamp, "world"),
                body_a=["<b>arm</b>\n"] * n,
                body_b=["wall"] * n,
                role_a=["arm"] * n,
                role_b=["furniture"] * n,
                force_x=[1.0] * n,
                force_y=[0.0] * n,
                force_z=[0.0] * n,
            )
        )

    base._period = 0.1
    base.until(lambda: len(status) > 5, "5 frames", send, monitor)
    assert monitor.stop() == 0
    assert {f.parent for f in tmp_path.rglob("*.parquet")} == {tmp_path / "run"}
    [record] = read_episodes(tmp_path / "run")
    assert record.info.episode_id == "<script>alert(1)</script>\n../../x"
    assert "\n../../x" not in monitor.output


def test_objects_that_appear_vanish_and_repeat(watched):
    base = watched
    steps = iter(range(10**6))

    def send():
        moved, seen = base.message()
        ids = [["v"], [], ["v", "v"], ["a", "b", "v"]][next(steps) % 4]
        n = len(ids)
        base.odometry.publish(moved)
        seen = ObjectStates(
            header=seen.header, id=ids, category=["vase"] * n, role=["obstacle"] * n, in_contact=[0] * n
        )
        seen.position.extend([1.0, 0.0, 0.0] * n)
        seen.orientation.extend([0.0, 0.0, 0.0, 1.0] * n)
        seen.distance.extend([2.0] * n)
        base.objects.publish(seen)

    before, seen_states = len(base.status), len(base.states)
    base.until(lambda: len(base.status) > before + 40, "40 frames", send, base.monitor)
    told(base, "verdict", "separation_margin not known from base and objects", send)
    states = {s.state for s in base.states[seen_states + 5 :]}
    assert SafetyState.OK not in states, "the person who is tracked no more may be anywhere"
    assert alive(base)
    base.end()
    base.observer.until(lambda: base.summaries, "the summary", 10, base.monitor)
    assert base.summaries[0].safety != EpisodeSummary.SAFE


def test_a_person_who_comes_after_the_first_frame_is_never_passed_over_in_silence(base, observer, nodes, tmp_path):
    """Its clauses were chosen without her: the state is UNKNOWN, and diagnostics and record name what is not judged."""
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    states = observer.listen(SafetyState, of(topics.STATE))
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    contacts = base.publisher(Contacts, topics.CONTACTS)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    observer.until(lambda: base.odometry.get_subscription_count() and contacts.get_subscription_count(), "it", 30)
    base.start(sources=["base", "objects", "contacts"])

    def alone(somebody=False):
        moved, seen = base.message()
        base.odometry.publish(moved)
        base.objects.publish(seen if somebody else ObjectStates(header=seen.header))
        contacts.publish(Contacts(header=seen.header))

    def together():
        alone(somebody=True)

    base.until(lambda: len(status) > 10 and states[-1].state == SafetyState.OK, "OK", alone, monitor)
    base.until(lambda: states[-1].state == SafetyState.UNKNOWN, "UNKNOWN", together, monitor)
    text = "objects.human appeared after the episode began; not judged in this episode: "
    told = lambda: (values(diagnostics, "verdict") or (0, ""))[1]  # noqa: E731
    base.until(lambda: text in told() and "human_separation" in told(), "the diagnosis", together, monitor)
    base.until(lambda: states[-1].state == SafetyState.UNKNOWN, "UNKNOWN stays when she leaves", alone, monitor)
    base.end()
    observer.until(lambda: summaries, "the summary", 10, monitor)
    [record] = read_episodes(tmp_path / "run")
    assert any(text in note for note in record.notes)
    assert monitor.output.count(text) == 1
    base.start(episode_id="two", sources=["base", "objects", "contacts"])
    base.until(lambda: status[-1].episode_id == "two" and states[-1].state == SafetyState.OK, "OK", together, monitor)


def test_a_best_effort_publisher_is_read_and_named(observer, nodes, tmp_path):
    odometry = observer.node.create_publisher(Odometry, topics.ODOM, topics.best_effort())
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="")

    def received():
        odometry.publish(Odometry(header=header(now(), "world")))
        report = values(diagnostics, "inputs")
        return (
            report and "read best effort" in report[2]["odom (base)"] and " 0 messages" not in report[2]["odom (base)"]
        )

    observer.until(received, "messages read best effort", 20, monitor)


def test_a_best_effort_publisher_of_a_reliable_reader_is_an_error(observer, nodes):
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="", reliability="reliable")
    observer.until(lambda: diagnostics, "the diagnostics", 20, monitor)
    observer.node.create_publisher(Odometry, topics.ODOM, topics.best_effort())
    began = time.monotonic()
    observer.until(lambda: "incompatible QoS" in values(diagnostics, "inputs")[1], "the diagnosis", 10, monitor)
    assert values(diagnostics, "inputs")[0] == 2
    assert time.monotonic() - began < 2.5


def test_another_message_type_on_the_topic_is_an_error(observer, nodes):
    from std_msgs.msg import String

    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log="")
    observer.node.create_publisher(String, topics.ODOM, 10)
    observer.until(
        lambda: "std_msgs/msg/String, expected nav_msgs/msg/Odometry" in (values(diagnostics, "inputs") or (0, ""))[1],
        "the diagnosis",
        20,
        monitor,
    )
    assert values(diagnostics, "inputs")[0] == 2


def test_markers_show_boundary_clearance_and_violation(watched):
    from visualization_msgs.msg import MarkerArray

    base = watched
    arrays = base.observer.listen(MarkerArray, of(topics.MARKERS), topics.reliable(1))
    base.speed, base.distance = 0.7, 0.2
    base.until(
        lambda: arrays and {m.ns for m in arrays[-1].markers} >= {"boundary", "clearance", "nearest", "violation"},
        "the markers",
        base.send,
        base.monitor,
    )
    marker = {m.ns: m for m in arrays[-1].markers}
    assert marker["distance"].text == "0.20 m" and "human_separation" in marker["violation"].text
    ring = marker["boundary"].points
    assert all(math.hypot(p.x - 1.0, p.y) == pytest.approx(1.25) for p in ring)
    assert marker["clearance"].header.frame_id == "world"


def test_a_log_that_cannot_be_written_is_diagnosed_and_monitoring_goes_on(base, observer, nodes, tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    observer.until(lambda: base.odometry.get_subscription_count() and base.objects.get_subscription_count(), "it", 30)
    base.start()
    base.until(
        lambda: len(status) > 10 and (values(diagnostics, "episode log") or (0,))[0] == 2,
        "verdicts and the diagnosis",
        base.send,
        monitor,
    )
    base.end()
    observer.until(lambda: summaries, "the summary", 10, monitor)
    assert not summaries[0].stored and "run" in summaries[0].error


def test_a_publisher_that_is_killed_and_restarted(watched):
    base = watched
    base.observer.node.destroy_publisher(base.objects)
    moved = [base.odometry]

    def only_odometry():
        moved[0].publish(base.message()[0])

    base.until(
        lambda: (values(base.diagnostics, "inputs") or (0, ""))[1].find("objects: no publisher") >= 0,
        "the diagnosis",
        only_odometry,
        base.monitor,
    )
    # the diagnosis may come before the last frame counts as old
    base.until(lambda: base.states[-1].state == SafetyState.UNKNOWN, "UNKNOWN", only_odometry, base.monitor)
    base.objects = base.publisher(ObjectStates, topics.OBJECTS)
    base.until(lambda: base.states[-1].state == SafetyState.OK, "OK again", base.send, base.monitor)
    base.end()
    base.observer.until(lambda: base.summaries, "the summary", 10, base.monitor)
    assert base.summaries[0].safety == EpisodeSummary.UNKNOWN


def test_two_publishers_of_one_topic_with_different_quality(watched):
    base = watched
    other = base.observer.node.create_publisher(Odometry, topics.ODOM, topics.best_effort())

    def send_both():
        moved, seen = base.message()
        base.odometry.publish(moved)
        other.publish(moved)
        base.objects.publish(seen)

    base.until(
        lambda: (
            "read best effort" in (values(base.diagnostics, "inputs") or (0, "", {"odom (base)": ""}))[2]["odom (base)"]
        ),
        "the diagnosis",
        send_both,
        base.monitor,
    )
    seen = len(base.status)
    base.until(lambda: len(base.status) > seen + 20, "frames of both", send_both, base.monitor)
    judged = {s.step: (s.header.stamp.sec, s.header.stamp.nanosec) for s in base.status}
    assert [judged[k] for k in sorted(judged)] == sorted(set(judged.values()))


def test_a_monitor_that_is_stopped_for_a_while(watched):
    """SIGSTOP: what came meanwhile is judged or counted, nothing twice, and the gap is no verdict of safety."""
    base = watched
    base.monitor.send(signal.SIGSTOP)
    seen, wake = len(base.status), time.monotonic() + 5.0
    base.until(lambda: time.monotonic() > wake, "five seconds", base.send)
    assert len(base.status) <= seen + 5
    base.monitor.send(signal.SIGCONT)
    assert alive(base) and refused(base, "safety_monitor: suspended")
    steps = {s.step: (s.header.stamp.sec, s.header.stamp.nanosec) for s in base.status}
    assert [steps[k] for k in sorted(steps)] == sorted(set(steps.values()))
    base.end(steps=base.sent)
    base.observer.until(lambda: base.summaries, "the summary", 10, base.monitor)
    assert base.summaries[0].partial


def test_a_full_disk_is_diagnosed_and_what_is_finished_stays(base, observer, nodes, tmp_path):
    """The files of the monitor may not grow past 48 KiB: writing fails as on a full disk."""
    run = tmp_path / "run"
    status = observer.listen(ClauseStatus, of(topics.STATUS))
    summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
    diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    limited = f"ulimit -f 48; exec {sys.executable} -m osma_monitor.ros.safety_monitor --ros-args -p episode_log:={run}"
    monitor = nodes.run(["bash", "-c", limited], "safety_monitor")
    observer.until(lambda: base.odometry.get_subscription_count() and base.objects.get_subscription_count(), "it", 30)
    base.start(episode_id="short")
    base.until(lambda: len(status) > 10, "10 frames", base.send, monitor)
    base.start(episode_id="one")  # ends the short one
    base._period = 0.002
    base.until(
        lambda: (values(diagnostics, "episode log") or (0,))[0] == 2 and len(status) > 400,
        "the diagnosis of a full disk",
        base.send,
        monitor,
    )
    seen = len(status)
    base.until(lambda: len(status) > seen + 50, "monitoring goes on", base.send, monitor)
    base.end()
    observer.until(lambda: len(summaries) == 2, "both summaries", 20, monitor)
    assert monitor.stop() == 0
    records = {r.info.episode_id: r for r in read_episodes(run)}
    assert len(records["short"].stamps_ns) > 10


def test_two_robots_in_namespaces_do_not_meet(observer, nodes, tmp_path):
    summaries, processes = {}, []
    for name, steps in (("left", 120), ("right", 150)):
        topic = f"/{name}/{of(topics.SUMMARY)}"
        summaries[name] = observer.listen(EpisodeSummary, topic, topics.latched(10))
        processes.append(nodes.start("safety_monitor", name=name, namespace=f"/{name}", episode_log=tmp_path / name))
        processes.append(nodes.kinematic("policy", namespace=f"/{name}"))
        processes.append(nodes.kinematic("bridge", namespace=f"/{name}", tasks=[f"steps/{steps}"], policy=name))
    observer.until(lambda: all(summaries.values()), "both summaries", 60, *processes)
    assert [s.steps for s in summaries["left"]] == [121] and [s.steps for s in summaries["right"]] == [151]
    for name in ("left", "right"):
        [record] = read_episodes(tmp_path / name)
        assert record.info.policy == name and not record.partial
