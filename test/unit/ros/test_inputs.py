"""Messages read from their bytes: what rclpy would have made of them, whatever they hold."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from osma_monitor.msg import Contacts as ContactsMsg
from rclpy.serialization import serialize_message

from osma_monitor.core.segmenter import whole
from osma_monitor.core.signals.raw import NO_CONTACTS, Base, Contacts, Joints, RawFrame, same, vector
from osma_monitor.io.bag.types import known_types
from osma_monitor.ros import conversions, inputs
from sim_bridge.bridge_node import TO_MESSAGE

from .random_frames import frames

pytestmark = pytest.mark.ros
INPUTS = {item.part: item for item in inputs.default_inputs()}
LIMITS = 20_000, 4096
INFO = conversions.EpisodeInfo("e")


def on_the_wire(message):
    """The bytes as DDS hands them over: rclpy leaves room behind the message's end, DDS does not."""
    data = serialize_message(message)
    reader = inputs.bytes_reader(INPUTS[part_of(message)], *LIMITS)
    while len(data) > 4:
        try:
            reader(data[:-4])
        except Exception:
            return data
        data = data[:-4]
    return data


def part_of(message):
    return next(part for part, item in INPUTS.items() if isinstance(message, item.kind))


def check(message):
    item = INPUTS[part_of(message)]
    read = inputs.bytes_reader(item, *LIMITS)
    expected = item.sample(message)
    for data in (serialize_message(message), on_the_wire(message)):
        for _ in range(2):  # texts are remembered from one message to the next
            sample = read(data)
            assert same(sample.value, expected.value)
            assert (sample.stamp_ns, sample.frame_id) == (expected.stamp_ns, expected.frame_id)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(frames())
def test_bytes_give_what_the_message_says(frame):
    for part in frame.parts:
        message = TO_MESSAGE[part](getattr(frame, part), frame.stamp_ns)
        message.header.frame_id = "map" if frame.stamp_ns % 2 else ""
        check(message)


def test_the_other_byte_order_is_read():
    item = INPUTS["joints"]
    store = known_types("cdr")
    little = conversions.joints_to_state(Joints(("a", "b"), vector([1, 2]), vector([3, 4]), vector([5, 6])), 7)
    message = store.deserialize_cdr(serialize_message(little), item.type_name)
    big = bytes(store.serialize_cdr(message, item.type_name, little_endian=False))
    assert big[:2] == b"\0\0"
    sample = inputs.bytes_reader(item, *LIMITS)(big)
    assert sample.stamp_ns == 7 and same(sample.value, item.convert(little))


def swapped(data):
    """The same header and texts, said to be in the other byte order: nonsense from the first number on."""
    return b"\0\0" + data[2:]


def test_names_that_change_are_read_anew():
    item = INPUTS["contacts"]
    read = inputs.bytes_reader(item, *LIMITS)
    for body in ("arm", "arn", "gripper", "a", "arm"):
        contacts = Contacts((body,), ("wall",), ("arm",), ("furniture",), np.ones((1, 3)))
        message = conversions.contacts_to_msg(contacts, 5)
        assert same(read(serialize_message(message)).value, contacts)


class Node:
    """What a receiver asks of its node."""

    def __init__(self):
        self.callbacks, self.raw, self.lines = {}, {}, []

    def has_parameter(self, name):
        return False

    def create_subscription(self, kind, topic, callback, qos, raw=False):
        self.callbacks[topic], self.raw[topic] = callback, raw

    def count_publishers(self, topic):
        return 1

    def get_logger(self):
        return self

    def warning(self, text):
        self.lines.append(text)


def receiver(**options):
    node, steps = Node(), []
    config = inputs.ReceiverConfig(sources=("base", "contacts"), **options)
    found = inputs.FrameReceiver(node, steps.append, config)
    found.begin(inputs.Begin(1, conversions.EpisodeInfo("e")))
    steps.clear()
    return node, found, steps


def base(stamp):
    return conversions.base_to_odometry(
        Base(vector([1, 2, 3]), vector([0, 0, 0, 1]), vector([4, 5, 6]), vector([7, 8, 9])), stamp
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 400), st.booleans())
def test_damaged_bytes_are_refused_or_read_and_never_end_the_node(at, value, length, other_order):
    node, found, steps = receiver()
    contacts = Contacts(("a", "b"), ("c", "d"), ("arm", "base"), ("floor", "other"), np.ones((2, 3)))
    good = serialize_message(conversions.contacts_to_msg(contacts, 5))
    bad = bytearray(good)
    bad[at % len(bad)] = value
    data = bytes(bad)[: max(length, 1)] if length < len(bad) else bytes(bad)
    node.callbacks["contacts"](swapped(data) if other_order else data)
    node.callbacks["odom"](serialize_message(base(10**12)))
    node.callbacks["contacts"](serialize_message(conversions.contacts_to_msg(contacts, 10**12)))
    found.poll()
    frame = [s for s in steps if isinstance(s, RawFrame)][-1]
    assert frame.stamp_ns == 10**12 or found.all_counts(), "what follows is read"
    assert found.received["contacts"] == 2


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0", b"\xff" * 40, b"\0\1\0\0" + b"\xff" * 40])
def test_what_is_no_message_is_counted(data):
    node, found, steps = receiver()
    for topic in ("contacts", "odom"):
        node.callbacks[topic](data)
        assert found.counts[f"{topic}: malformed"] == 1
    assert not steps and len(node.lines) == 2


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("contacts", ContactsMsg(body_a=["x"] * 30)),
        ("contacts", ContactsMsg(body_a=["x" * 200])),
        ("odom", conversions.Odometry(child_frame_id="x" * 2000)),
        ("objects", conversions.ObjectStates(id=["x"] * 2, position=[0.0] * 200)),
        ("joint_states", conversions.JointState(name=["x" * 101])),
        ("odom", conversions.Odometry(header=conversions.header(0, "x" * 101))),
        ("ee_pose", conversions.PoseStamped(header=conversions.header(0, "x" * 101))),
        ("contacts", ContactsMsg(header=conversions.header(0, "x" * 101))),
    ],
)
def test_what_is_too_large_is_refused(topic, message):
    node, found, _ = receiver(max_elements=20, max_text=100)
    message.header.stamp.sec = 5
    node.callbacks[topic](serialize_message(message))
    assert found.counts[f"{topic}: malformed"] == 1


def test_a_type_without_a_short_way_comes_as_a_message():
    node, _, _ = receiver()
    assert all(node.raw[item.topic] for item in INPUTS.values())
    from geometry_msgs.msg import PoseStamped

    pose = inputs.TopicInput("base", "pose", PoseStamped, lambda m: m, lambda s: ())
    assert inputs.bytes_reader(pose, *LIMITS) is None


def test_sources_without_input_are_one_count_however_they_are_named():
    node, found, _ = receiver()
    for k in range(300):
        found.begin(inputs.Begin(k + 2, conversions.EpisodeInfo(f"e{k}", sources=("base", f"sonar{k}"))))
    assert found.counts["episode: source without input"] == 300 and len(found.counts) == 1
    assert "'sonar0', expected some of base, joints" in node.lines[0]


@pytest.mark.parametrize("late", [True, False])
def test_at_a_fixed_rate_the_first_frame_waits_for_every_input(monkeypatch, late):
    """A clause's first sample would be unknown for want of patience, and with it the whole episode."""
    clock = SimpleNamespace(monotonic=lambda: 100.0, time_ns=lambda: 10**18)
    monkeypatch.setattr(inputs, "time", clock)
    keys = [inputs.Input(part, INPUTS[part].topic, 10**10) for part in ("base", "contacts")]
    assembly = inputs.AssemblyConfig(tuple(keys), "hold", period_ns=10**8)
    chosen = tuple(INPUTS[part] for part in ("base", "contacts"))
    node, steps = Node(), []
    found = inputs.FrameReceiver(
        node, steps.append, inputs.ReceiverConfig(inputs=chosen, assembly=assembly), segmenter=lambda: whole(INFO)
    )
    node.callbacks["odom"](serialize_message(base(10**18)))
    found.poll()
    assert not steps
    if late:
        clock.monotonic = lambda: 101.1
    else:
        node.callbacks["contacts"](serialize_message(conversions.contacts_to_msg(NO_CONTACTS, 10**18)))
    found.poll()
    [frame] = [s for s in steps if isinstance(s, RawFrame)]
    assert frame.parts == ({"base"} if late else {"base", "contacts"})


def test_what_the_assembler_refuses_is_said_once_with_its_topic():
    node, found, _ = receiver()
    for stamp in (0, 0, 5):
        node.callbacks["odom"](serialize_message(base(stamp)))
    found.poll()
    found.poll()
    assert node.lines == ["odom: zero stamp; counted from now on"] and found.all_counts()["frames: zero_stamp"] == 2


def test_values_that_no_start_claims_are_dropped_oldest_first_and_counted_by_topic():
    node, steps = Node(), []
    chosen = (INPUTS["base"], INPUTS["contacts"])
    found = inputs.FrameReceiver(node, steps.append, inputs.ReceiverConfig(inputs=chosen, max_waiting=4))
    stamps = [10**9 * k for k in range(1, 5)]
    for stamp in stamps:
        node.callbacks["odom"](serialize_message(base(stamp)))
        node.callbacks["contacts"](serialize_message(conversions.contacts_to_msg(NO_CONTACTS, stamp)))
    assert found.all_counts()["odom: dropped before a START"] == 2
    assert found.all_counts()["contacts: dropped before a START"] == 2
    assert [line.split(":")[0] for line in node.lines] == ["odom", "contacts"] and "4 values wait" in node.lines[0]
    found.begin(inputs.Begin(stamps[0], conversions.EpisodeInfo("e", sources=("base", "contacts"))))
    assert [s.stamp_ns for s in steps if isinstance(s, RawFrame)] == stamps[2:]
    node.callbacks["odom"](serialize_message(base(5 * 10**9)))
    assert sum(found.counts.values()) == 4, "after a START nothing waits"
