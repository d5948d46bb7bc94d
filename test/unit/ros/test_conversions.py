"""Round trips through real serialisation, to the last bit: what goes over a topic comes back as it was."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")
pytestmark = pytest.mark.ros

from osma_monitor.msg import RawFrame as RawFrameMsg  # noqa: E402
from rclpy.serialization import deserialize_message, serialize_message  # noqa: E402
from sensor_msgs.msg import JointState  # noqa: E402

from osma_monitor.core.episode import EpisodeInfo, Outcome  # noqa: E402
from osma_monitor.core.signals.raw import (  # noqa: E402
    NO_CONTACTS,
    NO_OBJECTS,
    PARTS,
    Contacts,
    RawFrame,
    same,
)
from osma_monitor.ros import conversions  # noqa: E402
from osma_monitor.ros.inputs import PART_TYPES  # noqa: E402
from sim_bridge.bridge_node import TO_MESSAGE  # noqa: E402

from .random_frames import frames, names, stamps  # noqa: E402


def over_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(frames())
def test_a_frame_survives_its_message(frame):
    data = conversions.frame_to_bytes(frame, "episode", 7, "map")
    message = deserialize_message(data, RawFrameMsg)
    assert same(conversions.msg_to_frame(message), frame)
    assert (message.episode_id, message.step, message.header.frame_id) == ("episode", 7, "map")
    with pytest.raises(Exception, match="deserialize"):  # the bytes end with the message
        deserialize_message(data[:-8], RawFrameMsg)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(frames())
def test_each_part_survives_its_topic(frame):
    for part in frame.parts:
        value = getattr(frame, part)
        message = over_the_wire(TO_MESSAGE[part](value, frame.stamp_ns))
        kind, convert = PART_TYPES[part]
        assert isinstance(message, kind)
        assert conversions.to_ns(message.header.stamp) == frame.stamp_ns
        assert same(convert(message), value)


@given(stamps)
def test_stamps_survive_to_the_nanosecond(stamp):
    assert conversions.to_ns(conversions.to_time(stamp)) == stamp


def test_empty_is_not_absent():
    frame = RawFrame(10**9, contacts=NO_CONTACTS, objects=NO_OBJECTS)
    back = conversions.msg_to_frame(deserialize_message(conversions.frame_to_bytes(frame, "", 0), RawFrameMsg))
    assert back.contacts is not None and len(back.contacts) == 0
    assert back.objects is not None and len(back.objects) == 0
    assert back.base is None and back.gripper is None


@settings(deadline=None, derandomize=True)
@given(
    st.builds(
        EpisodeInfo,
        episode_id=names,
        task=names,
        suite=names,
        policy=names,
        robot=names,
        instruction=names,
        seed=st.integers(-(2**63), 2**63 - 1),
        templates=st.lists(names, max_size=3).map(tuple),
        tags=st.lists(names, max_size=3).map(tuple),
        sources=st.lists(st.sampled_from(PARTS), unique=True).map(tuple),
        attributes=st.dictionaries(names, names, max_size=4),
    ),
    st.builds(
        Outcome,
        status=st.sampled_from(["success", "failure", "aborted", "unknown"]),
        reason=names,
        steps=st.none() | st.integers(1, 2**32 - 1),
    ),
)
def test_episode_events_survive(info, outcome):
    start = over_the_wire(conversions.episode_to_msg(info, 10**9))
    end = over_the_wire(conversions.episode_to_msg(info, 10**9, outcome))
    assert start.event == start.START and end.event == end.END
    assert same(conversions.msg_to_info(start), info)
    assert same(conversions.msg_to_info(end), info)
    assert conversions.msg_to_outcome(end) == outcome


def test_empty_joint_arrays_mean_not_measured():
    joints = conversions.state_to_joints(JointState(name=["a", "b"], position=[1.0, 2.0]))
    assert joints.position.tolist() == [1.0, 2.0]
    assert np.isnan(joints.velocity).all() and np.isnan(joints.effort).all()


@pytest.mark.parametrize("field", ["role_b", "force_z"])
def test_columns_of_unequal_length_are_refused_by_name(field):
    message = conversions.contacts_to_msg(Contacts(("a",), ("b",), ("base",), ("floor",), np.ones((1, 3))), 1)
    setattr(message, field, [])
    with pytest.raises(conversions.MalformedMessage, match=f"{field} has 0 elements, expected 1"):
        conversions.msg_to_contacts(message)


def test_a_short_position_array_is_refused():
    message = conversions.objects_to_msg(NO_OBJECTS, 1)
    message.id, message.category, message.role, message.in_contact = ["x"], ["mug"], ["target"], [0]
    with pytest.raises(conversions.MalformedMessage, match="position has 0 elements, expected 3"):
        conversions.msg_to_objects(message)


def test_ten_thousand_contacts_convert():
    n = 10_000
    contacts = Contacts(("a",) * n, ("b",) * n, ("arm",) * n, ("floor",) * n, np.random.default_rng(0).random((n, 3)))
    assert same(conversions.msg_to_contacts(over_the_wire(conversions.contacts_to_msg(contacts, 5))), contacts)
