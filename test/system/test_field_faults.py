"""What happens to robots in the field: drivers that die, joints without values, floods of contacts, short spikes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import SO101, Driver, alive, now, of, refused, told
from geometry_msgs.msg import WrenchStamped
from nav_msgs.msg import Odometry
from osma_monitor.msg import (
    ClauseList,
    ClauseStatus,
    Contacts,
    EpisodeEvent,
    EpisodeSummary,
    ObjectStates,
    RawFrame,
    SafetyState,
    Violation,
)
from osma_monitor.srv import Tare
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics
from osma_monitor.ros.conversions import header, msg_to_frame, to_time

pytestmark = pytest.mark.ros
DRIVER = Path(__file__).with_name("driver_process.py")


class Listening(Driver):
    """A driver that hears what the monitor says."""

    def __init__(self, observer, period=0.02):
        super().__init__(observer, period)
        self.status = observer.listen(ClauseStatus, of(topics.STATUS))
        self.states = observer.listen(SafetyState, of(topics.STATE))
        self.violations = observer.listen(Violation, of(topics.VIOLATIONS))
        self.summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
        self.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)

    def send(self):
        """Nothing of its own."""

    def state(self, wanted, what):
        self.until(lambda: self.states and self.states[-1].state == wanted, what, self.send, self.monitor)


def event(kind, stamp, name, **fields):
    head = Header(stamp=to_time(stamp), frame_id="operator")
    return EpisodeEvent(header=head, event=kind, episode_id=name, **fields)


def test_a_driver_that_is_killed_and_restarted_mid_episode(observer, nodes, tmp_path):
    base = Listening(observer)
    episodes = base.publisher(EpisodeEvent, topics.EPISODE, topics.latched())
    base.monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    begin = {"suite": "kitchen", "templates": ["navigate"], "sources": ["base", "objects"]}

    def run():
        return nodes.run([sys.executable, str(DRIVER)], "driver")

    driver = run()
    observer.until(lambda: episodes.get_subscription_count(), "the monitor", 30, base.monitor)
    episodes.publish(event(EpisodeEvent.START, now(), "one", **begin))
    base.state(SafetyState.OK, "OK")
    episodes.publish(event(EpisodeEvent.END, now(), "one", outcome=EpisodeEvent.OUTCOME_SUCCESS))
    observer.until(lambda: base.summaries, "the first summary", 20, base.monitor)
    episodes.publish(event(EpisodeEvent.START, now(), "two", **begin))
    base.until(lambda: base.status[-1].episode_id == "two", "the second episode", base.send, base.monitor)
    base.state(SafetyState.OK, "OK")
    driver.kill()  # -9: its publishers stay known for a while, so it is its silence that tells
    base.state(SafetyState.UNKNOWN, "UNKNOWN")
    told(base, "inputs", "odom: silent for")
    told(base, "verdict", "no frame for 0.5 s")
    run()
    base.state(SafetyState.OK, "OK again")
    assert base.states[-1].latched == SafetyState.UNKNOWN
    episodes.publish(event(EpisodeEvent.END, now(), "two", outcome=EpisodeEvent.OUTCOME_SUCCESS, steps=100_000))
    observer.until(lambda: len(base.summaries) == 2, "the second summary", 20, base.monitor)
    assert base.summaries[1].partial and {s.stored for s in base.summaries} == {True}
    assert {r.info.episode_id for r in read_episodes(tmp_path / "run")} == {"one", "two"}


def test_joint_states_that_are_empty_or_in_another_order(observer, nodes, tmp_path):
    arm = Listening(observer)
    joints = arm.publisher(JointState, topics.JOINT_STATES)
    objects = arm.publisher(ObjectStates, topics.OBJECTS)
    arm.names, arm.effort = list(SO101), 100.0

    def send(**fields):
        stamp, n = now(), len(arm.names)
        given = {"name": arm.names, "position": [0.0] * n, "velocity": [0.0] * n, "effort": [arm.effort] * n}
        joints.publish(JointState(header=header(stamp), **{**given, **fields}))
        objects.publish(ObjectStates(header=header(stamp, "base_link")))

    arm.send = send
    arm.monitor = nodes.start(
        "safety_monitor", robot="so101", episode_log=tmp_path / "run", templates=["pnp_basic"], gap=60.0
    )
    # the arm has no pose topic here, so its speed is unknown throughout; torque is what this looks at
    clauses = observer.listen(ClauseList, of(topics.CLAUSES), topics.latched())

    def torque():
        active = zip(clauses[-1].clause, arm.status[-1].status, strict=False)
        return [status for clause, status in active if "torque" in clause]

    known, unknown, broken = [0], [2], [1]  # STATUS_SATISFIED, STATUS_UNKNOWN, STATUS_VIOLATED
    arm.until(
        lambda: arm.status and clauses and torque() == known,
        "torque known",
        send,
        arm.monitor,
    )
    for fields in ({"effort": []}, {"name": [], "position": [], "velocity": [], "effort": []}):
        arm.until(
            lambda: torque() == unknown,
            f"unknown by {fields}",
            lambda f=fields: send(**f),
            arm.monitor,
        )
        told(arm, "verdict", "max_joint_torque not known from joints", lambda f=fields: send(**f))
        arm.until(lambda: torque() == known, "known again", send, arm.monitor)
    arm.names = list(reversed(SO101))
    assert alive(arm) and torque() == known
    # an effort of the gripper, which is no arm joint, is none of the arm's in any order
    high = [1e9 if name == "gripper" else 100.0 for name in arm.names]
    arm.until(lambda: len(arm.status) > 30, "30 frames", lambda: send(effort=high), arm.monitor)
    assert torque() == known
    high = [1e9 if name == "elbow_flex" else 100.0 for name in arm.names]
    arm.until(lambda: torque() == broken, "a violation", lambda: send(effort=high), arm.monitor)


def crowd(count, peak=0.1):
    """Contacts of 0.1 N, of which one is stronger."""
    forces = [0.1] * count
    forces[count // 2] = peak
    return Contacts(
        body_a=["arm"] * count,
        body_b=["wall"] * count,
        role_a=["arm"] * count,
        role_b=["furniture"] * count,
        force_x=forces,
        force_y=[0.0] * count,
        force_z=[0.0] * count,
    )


def test_one_strong_contact_among_ten_thousand_counts_and_more_than_the_limit_is_refused(
    base, observer, nodes, tmp_path
):
    contacts = base.publisher(Contacts, topics.CONTACTS)
    base.status = observer.listen(ClauseStatus, of(topics.STATUS))
    base.states = observer.listen(SafetyState, of(topics.STATE))
    base.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    violations = observer.listen(Violation, of(topics.VIOLATIONS))
    base.monitor = nodes.start(
        "safety_monitor", episode_log="", max_elements=10_000, stale_after=5.0, frame_timeout=2.0
    )
    observer.until(lambda: base.odometry.get_subscription_count() and contacts.get_subscription_count(), "it", 30)
    base.start(sources=["base", "objects", "contacts"])
    # bodies that touch in the first frame are taken for static: the flood begins later
    flood = [Contacts()]  # made beforehand, which takes a while

    def send():
        moved, seen = base.message()
        flood[0].header = header(base.stamp, "world")
        contacts.publish(flood[0])
        base.odometry.publish(moved)
        base.objects.publish(seen)

    base.send, base._period = send, 0.1
    base.until(lambda: base.states and base.states[-1].state == SafetyState.OK, "OK", send, base.monitor)
    flood[0] = crowd(10_000)
    assert alive(base) and base.states[-1].state == SafetyState.OK and not violations
    flood[0] = crowd(10_000, peak=5000.0)
    base.until(lambda: violations, "a violation", send, base.monitor)
    flood[0] = crowd(10_001)
    told(base, "frames", "contacts: malformed")
    base.until(lambda: base.states[-1].state == SafetyState.UNKNOWN, "UNKNOWN for want of contacts", send, base.monitor)
    assert base.monitor.popen.poll() is None


RATE = """
name: cart
frame: world
inputs: [{part: base, topic: odom}, {part: contacts, topic: contacts}]
rate: 5.0
"""


def test_a_spike_between_two_ticks_is_not_lost(observer, nodes, tmp_path):
    """Frames at 5 Hz, contacts at 50 Hz: a single one of 5 kN between two frames."""
    cart = Listening(observer)
    odometry = cart.publisher(Odometry, topics.ODOM)
    contacts = cart.publisher(Contacts, topics.CONTACTS)
    (tmp_path / "cart.yaml").write_text(RATE)

    def send(peak=0.0):
        stamp = now()
        moved = Odometry(header=header(stamp, "world"), child_frame_id="base_link")
        moved.pose.pose.orientation.w = 1.0
        odometry.publish(moved)
        touched = crowd(1, peak=peak) if peak else Contacts()
        touched.header = header(stamp, "world")
        contacts.publish(touched)

    cart.send = send
    cart.monitor = nodes.start(
        "safety_monitor", robot=tmp_path / "cart.yaml", episode_log="", suite="kitchen", templates=["navigate"]
    )
    cart.until(lambda: len(cart.status) > 5, "5 frames", send, cart.monitor)
    assert not cart.violations
    once = iter([5000.0])
    cart.until(lambda: cart.violations, "the violation", lambda: send(next(once, 0.0)), cart.monitor)
    entered = cart.violations[0]
    assert entered.rho == pytest.approx(200.0 - 5000.0)
    cart.until(lambda: len(cart.violations) > 1, "its end", send, cart.monitor)


def test_text_with_newlines_and_markup_reaches_no_log_as_it_is(observer, nodes, tmp_path, base):
    base.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
    base.status = observer.listen(ClauseStatus, of(topics.STATUS))
    base.monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run", max_text=100)
    observer.until(lambda: base.odometry.get_subscription_count() and base.objects.get_subscription_count(), "it", 30)
    base.start(episode_id="two\n\x1b[31m<img src=x onerror=alert(1)>")
    base.until(lambda: len(base.status) > 5, "frames", base.send, base.monitor)

    def long():
        moved, seen = base.message()
        seen.id = ["y" * 101]
        base.odometry.publish(moved)
        base.objects.publish(seen)

    base.until(lambda: len(base.status) > 10, "frames", base.send, base.monitor)
    for _ in range(5):
        long()
    assert refused(base, "objects: malformed") and alive(base)
    texts = [base.monitor.output, *(s.message for a in base.diagnostics for s in a.status)]
    texts += [v.value for a in base.diagnostics for s in a.status for v in s.values]
    assert all("\x1b" not in text and "two\n" not in text for text in texts)


SENSOR = """
name: cell
frame: base
inputs: [{part: joints, topic: joint_states}]
primary: joint_states
gripper: {joint: finger, least_effort: 2.0}
force_sensors: [{topic: wrench, frame: tool, body: hand, payload_mass: 1.0}]
transforms: [{parent: base, child: tool, rotation: [1.0, 0.0, 0.0, 0.0]}]
"""


@pytest.fixture
def cell(observer, nodes, tmp_path):
    """An arm that points down, with a force sensor that is off by 7 N and a gripper that is told by its effort."""
    arm = Listening(observer)
    joints = arm.publisher(JointState, topics.JOINT_STATES)
    wrench = arm.publisher(WrenchStamped, "wrench")
    arm.grip, arm.pressed = 0.0, 0.0

    def send():
        stamp = now()
        measured = WrenchStamped(header=header(stamp, "tool"))
        measured.wrench.force.z = 9.81 + 7.0 + arm.pressed  # payload, bias, contact; z of the tool points down
        wrench.publish(measured)
        joints.publish(JointState(header=header(stamp), name=["finger"], position=[0.0], effort=[arm.grip]))

    arm.send = send
    arm.frames = observer.listen(RawFrame, of(topics.FRAME))
    (tmp_path / "cell.yaml").write_text(SENSOR)
    arm.start = lambda **more: nodes.start(
        "safety_monitor", robot=tmp_path / "cell.yaml", episode_log=tmp_path / "run", templates=["pnp_basic"], **more
    )
    return arm


def test_force_sensors_are_tared_on_command_and_the_payload_is_taken_off(cell, observer):
    cell.monitor = cell.start()

    def force():
        return np.abs(msg_to_frame(cell.frames[-1]).contacts.force).max() if cell.frames else np.nan

    cell.until(lambda: force() == pytest.approx(7.0), "the bias alone", cell.send, cell.monitor)
    client = observer.node.create_client(Tare, of(topics.TARE))
    cell.until(client.service_is_ready, "the service", cell.send, cell.monitor)
    answer = client.call_async(Tare.Request(seconds=0.2))
    cell.until(answer.done, "the answer", cell.send, cell.monitor)
    assert answer.result().success and list(answer.result().bias) == pytest.approx([0.0, 0.0, 7.0])
    cell.until(lambda: force() == pytest.approx(0.0, abs=1e-9), "nothing", cell.send, cell.monitor)
    cell.pressed = 25.0
    cell.until(lambda: force() == pytest.approx(25.0), "the contact alone", cell.send, cell.monitor)


def test_a_gripper_that_closes_begins_an_episode_and_one_that_opens_ends_it(cell, tmp_path):
    cell.monitor = cell.start(episode_rule="gripper")
    cell.until(lambda: cell.states, "the monitor", cell.send, cell.monitor)
    assert not cell.status
    cell.grip = 5.0
    cell.until(lambda: len(cell.status) > 10, "10 frames", cell.send, cell.monitor)
    cell.grip = 0.0
    cell.until(lambda: cell.summaries, "the end", cell.send, cell.monitor)
    seen = len(cell.status)
    cell.until(lambda: cell.states[-1].reasons == ["no episode runs"], "no episode", cell.send, cell.monitor)
    assert len(cell.status) == seen
    [record] = read_episodes(tmp_path / "run")
    assert record.complete and record.outcome.reason == "edge"
