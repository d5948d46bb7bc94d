"""Assembly: what a frame holds never depends on the order in which topics interleave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.signals.assembler import AssemblyConfig, FrameAssembler, Input
from osma_monitor.core.signals.raw import Contacts, Joints, Objects, same

S = 1_000_000_000


def contacts(force: float, body: str = "table") -> Contacts:
    return Contacts(("finger",), (body,), ("gripper",), ("furniture",), np.array([[0.0, 0.0, force]]))


def joints(effort: float, name: str = "j1") -> Joints:
    return Joints((name,), np.zeros(1), np.zeros(1), np.array([effort]))


def exact(*parts: str, **options) -> FrameAssembler:
    return FrameAssembler(AssemblyConfig(tuple(Input(p) for p in parts), **options))


def hold(*inputs: Input, **options) -> FrameAssembler:
    return FrameAssembler(AssemblyConfig(inputs, mode="hold", **options))


def test_exact_frame_closes_on_completeness():
    a = exact("gripper", "contacts")
    assert a.push("contacts", S, contacts(1.0)) == []
    (frame,) = a.push("gripper", S, False)
    assert frame.stamp_ns == S
    assert frame.gripper is False
    assert frame.parts == {"gripper", "contacts"}


@given(st.permutations([(p, t) for t in range(1, 5) for p in ("gripper", "contacts")]))
def test_interleaving_of_topics_never_matters(order):
    # each topic is in order with itself, as DDS and bags keep it
    sent = {p: sorted(t for q, t in order if q == p) for p in ("gripper", "contacts")}
    a = exact("gripper", "contacts")
    frames = []
    for part, _ in order:
        t = sent[part].pop(0)
        frames += a.push(part, t * S, contacts(float(t)) if part == "contacts" else bool(t % 2))
    frames += a.flush()
    assert [f.stamp_ns for f in frames] == [S, 2 * S, 3 * S, 4 * S]
    for f in frames:
        t = f.stamp_ns // S
        assert f.gripper is bool(t % 2)
        assert f.contacts is not None and f.contacts.force[0, 2] == t


def test_a_lost_value_closes_its_frame_once_every_input_is_past_it():
    a = exact("gripper", "contacts")
    a.push("gripper", S, True)
    a.push("gripper", 2 * S, True)
    frames = a.push("contacts", 2 * S, contacts(0.0))
    assert [f.stamp_ns for f in frames] == [S, 2 * S]
    assert frames[0].contacts is None
    assert a.counts["incomplete"] == 1


def test_time_out_gives_up_an_incomplete_frame_and_a_silent_input_is_no_longer_waited_for():
    a = exact("gripper", "contacts", timeout_ns=S // 2, silent_after=2)
    a.push("gripper", S, True, now_ns=S)
    assert a.poll(S + S // 4) == []
    assert [f.stamp_ns for f in a.poll(S + S // 2)] == [S]
    a.push("gripper", 2 * S, True, now_ns=2 * S)
    assert len(a.poll(3 * S)) == 1
    assert len(a.push("gripper", 4 * S, True)) == 1, "two time-outs: not waited for"
    a.push("contacts", 5 * S, contacts(1.0))
    assert len(a.push("gripper", 5 * S, True)) == 1
    assert a.push("gripper", 6 * S, True) == [], "it spoke again: waited for"


@pytest.mark.parametrize("stamp", [0, -5])
def test_zero_stamp_is_a_fault(stamp):
    a = exact("gripper")
    assert a.push("gripper", stamp, True) == []
    assert a.counts["zero_stamp"] == 1
    assert a.take_faults()[0].topic == "gripper"
    assert a.take_faults() == ()


def test_duplicates_and_late_values_are_refused_and_counted():
    a = exact("gripper")
    assert len(a.push("gripper", 2 * S, True)) == 1
    assert a.push("gripper", 2 * S, False) == []
    assert a.push("gripper", 2 * S - 1, False) == []
    assert a.counts["duplicate"] == 1
    assert a.counts["late"] == 1


def test_clock_set_back_survives():
    a = exact("gripper")
    a.push("gripper", 4000 * S, True)
    frames = [f for k in range(1, 6) for f in a.push("gripper", k * S, True)]
    assert [f.stamp_ns // S for f in frames] == [3, 4, 5]
    assert a.counts["clock_jump"] == 1


def test_a_sensor_stamped_by_boot_time_is_late_and_takes_no_peak_from_the_others():
    a = hold(Input("gripper"), Input("contacts"), Input("joints"), primary="gripper")
    day = 1_700_000_000 * S
    assert len(a.push("gripper", day, True)) == 1
    a.push("contacts", day + 1, contacts(500.0))
    for k in range(12, 20):
        assert a.push("joints", k * S, joints(1.0)) == []
    [frame] = a.push("gripper", day + S // 10, True)
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 500.0 and frame.joints is None
    assert a.counts["late"] == 8 and a.counts["clock_jump"] == 0
    # the primary's own clock may be set back: then all begin anew
    frames = [f for k in range(1, 6) for f in a.push("gripper", k * S, True)]
    assert [f.stamp_ns // S for f in frames] == [3, 4, 5] and a.counts["clock_jump"] == 1
    a.push("joints", 5 * S, joints(2.0))
    [frame] = a.push("gripper", 5 * S + 1, True)
    assert frame.joints is not None


def test_at_a_fixed_rate_the_clock_of_receipt_alone_makes_all_begin_anew():
    a = hold(Input("contacts"), Input("joints"), period_ns=S // 10)
    day = 1_700_000_000 * S
    a.push("contacts", day, contacts(1.0), day)
    assert len(a.poll(day)) == 1
    a.push("contacts", day + 1, contacts(500.0), day + 1)
    for k in range(12, 20):
        a.push("joints", k * S, joints(1.0), day + k)
    [frame] = a.poll(day + S // 10)
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 500.0 and frame.joints is None
    assert a.counts["late"] == 8 and a.counts["clock_jump"] == 0
    for k in range(3):  # an hour back, and every sensor with it
        a.push("contacts", day - 3600 * S + k, contacts(2.0), day - 3600 * S + k)
    [frame] = a.poll(day - 3600 * S + S // 10)
    assert a.counts["clock_jump"] == 1 and frame.contacts is not None and frame.contacts.force[0, 2] == 2.0


@pytest.mark.parametrize("primary", ["gripper", ""])
def test_an_input_whose_stamps_ran_ahead_once_is_used_again(primary):
    a = hold(Input("gripper"), Input("joints"), primary=primary, period_ns=S // 10)
    day = 1_700_000_000 * S
    a.push("joints", 2 * day, joints(9.0), day)
    frames = []
    for k in range(1, 7):
        now = day + k * S // 10
        a.push("joints", now, joints(1.0), now)
        frames += a.push("gripper", now, True, now) + a.poll(now)
    assert a.counts["clock_jump"] == 1 and [f.gripper for f in frames] == [True] * 6
    assert [f.joints is not None and f.joints.effort.tolist() for f in frames] == [False] * 2 + [[1.0]] * 4


def test_a_foreign_clock_is_refused():
    a = exact("gripper", clock_limit_ns=60 * S)
    assert a.push("gripper", 12 * S, True, now_ns=1_700_000_000 * S) == []
    assert a.counts["foreign_clock"] == 1


def test_hold_keeps_the_peak_between_two_ticks():
    a = hold(Input("base"), Input("contacts"), Input("joints"), primary="base")
    for k, f in enumerate([10.0, 300.0, 20.0]):
        a.push("contacts", S + k, contacts(f))
        a.push("joints", S + k, joints(-f))
    (frame,) = a.push("base", S + 10, "pose")
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 300.0
    assert frame.joints is not None and frame.joints.effort[0] == -300.0
    (frame,) = a.push("base", S + 20, "pose")
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 20.0, "the peak belongs to one frame"


def test_hold_a_peak_that_comes_late_counts_in_the_next_frame():
    a = hold(Input("base"), Input("contacts"), primary="base")
    a.push("contacts", S, contacts(1.0))
    a.push("base", S + 10, "pose")
    a.push("contacts", S + 5, contacts(500.0))
    (frame,) = a.push("base", S + 20, "pose")
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 500.0


def test_hold_a_value_from_the_future_waits():
    a = hold(Input("base"), Input("gripper"), primary="base")
    a.push("gripper", S, False)
    a.push("gripper", 3 * S, True)
    (frame,) = a.push("base", S + 1, "pose")
    assert frame.gripper is False


def test_hold_stale_input_is_absent_and_said_once():
    a = hold(Input("base"), Input("gripper", age_limit_ns=S), primary="base")
    a.push("gripper", S, True)
    assert a.push("base", 2 * S, "pose")[0].gripper is True
    assert a.push("base", 2 * S + 1, "pose")[0].gripper is None
    assert a.push("base", 2 * S + 2, "pose")[0].gripper is None
    assert a.counts["stale"] == 1


def test_hold_at_a_fixed_rate():
    a = hold(Input("gripper"), period_ns=S // 10)
    a.push("gripper", S, True)
    assert [f.stamp_ns for f in a.poll(S)] == [S]
    assert [f.stamp_ns for f in a.poll(S + S // 4)] == [S + S // 10, S + S // 5]
    assert a.poll(S + S // 4) == []


def test_hold_memory_is_bounded_and_no_peak_is_lost():
    a = hold(Input("base"), Input("contacts"), primary="base", max_pending=8)
    for k in range(1000):
        a.push("contacts", S + k, contacts(900.0 if k == 17 else 1.0))
    assert len(a._held["contacts"].fresh) <= 8
    (frame,) = a.push("base", S + 1000, "pose")
    assert frame.contacts is not None and frame.contacts.force[0, 2] == 900.0


def test_two_topics_of_one_part_are_joined_in_topic_order():
    a = FrameAssembler(AssemblyConfig((Input("joints", "right"), Input("joints", "left"))))
    a.push("right", S, joints(1.0, "r"))
    (frame,) = a.push("left", S, joints(2.0, "l"))
    assert frame.joints is not None and frame.joints.name == ("l", "r")


def test_a_touch_between_two_ticks_is_kept():
    def objects(contact: int) -> Objects:
        one = np.zeros((1, 3)), np.zeros((1, 4)), np.zeros(1)
        return Objects(("cat",), ("cat",), ("obstacle",), *one, np.array([contact], np.int8))

    a = hold(Input("base"), Input("objects"), primary="base")
    a.push("objects", S, objects(1))
    a.push("objects", S + 1, objects(0))
    (frame,) = a.push("base", S + 2, "pose")
    assert frame.objects is not None and frame.objects.in_contact[0] == 1


def test_unknown_topic_and_bad_configuration_are_refused():
    with pytest.raises(KeyError, match="unknown input 'odom'"):
        exact("base").push("odom", S, None)
    with pytest.raises(ValueError, match="same topic"):
        FrameAssembler(AssemblyConfig((Input("base"), Input("joints", "base"))))
    with pytest.raises(ValueError, match="primary input 'nose'"):
        hold(Input("base"), primary="nose")


def test_same_tells_bits_apart():
    a, b = contacts(float("nan")), contacts(float("nan"))
    assert same(a, b)
    assert not same(a, contacts(1.0))
    assert not same(1, 1.0)
