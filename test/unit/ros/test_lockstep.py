import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.ros.lockstep import LockStep

T = 1_050_000_000


def test_a_step_waits_for_every_participant():
    lock = LockStep(("policy", "monitor"))
    lock.observe(T, now=0.0)
    assert not lock.complete
    assert lock.answer("policy", T) == "accepted"
    assert lock.missing == ("monitor",)
    assert lock.answer("monitor", T) == "accepted"
    assert lock.complete


def test_duplicates_are_ignored_and_counted():
    lock = LockStep(("policy", "monitor"))
    lock.observe(T, now=0.0)
    assert [lock.answer("policy", T) for _ in range(3)] == ["accepted", "duplicate", "duplicate"]
    assert not lock.complete
    assert lock.count("duplicate") == 2


@pytest.mark.parametrize("stamp", [0, T - 1, T + 50_000_000])
def test_an_answer_with_another_stamp_is_counted_and_changes_nothing(stamp):
    lock = LockStep(("policy",))
    lock.observe(T, now=0.0)
    assert lock.answer("policy", stamp) == "foreign"
    assert not lock.complete
    assert lock.counts["policy", "foreign"] == 1


def test_who_does_not_take_part_cannot_answer():
    lock = LockStep(("policy",))
    lock.observe(T, now=0.0)
    assert lock.answer("monitor", T) == "unknown_participant"
    assert not lock.complete


def test_resend_once_a_second_then_silent():
    lock = LockStep(("policy",), resend_after=1.0, silence_limit=3.5)
    lock.observe(T, now=10.0)
    said = [(t / 10, lock.poll(t / 10)) for t in range(100, 140)]
    assert [t for t, due in said if due == "resend"] == [11.0, 12.0, 13.0]
    assert next(t for t, due in said if due == "silent") == 13.5
    assert lock.resent == 3


def test_answered_observations_are_never_sent_again():
    lock = LockStep(("policy",))
    lock.observe(T, now=0.0)
    lock.answer("policy", T)
    assert lock.poll(1e9) == "wait"


def test_the_policy_is_excused_from_the_last_observation():
    lock = LockStep(("policy", "monitor"))
    lock.observe(T, now=0.0, excuse=("policy",))
    assert lock.missing == ("monitor",)
    assert lock.answer("policy", T) == "duplicate"
    assert lock.answer("monitor", T) == "accepted"
    assert lock.complete


def test_without_participants_nothing_is_waited_for():
    lock = LockStep(())
    lock.observe(T, now=0.0)
    assert lock.complete


@pytest.mark.parametrize(("resend", "limit"), [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_nonsense_limits_are_refused(resend, limit):
    with pytest.raises(ValueError, match="resend_after"):
        LockStep(("policy",), resend_after=resend, silence_limit=limit)


def test_a_participant_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        LockStep(("policy", "policy"))


@given(st.lists(st.tuples(st.sampled_from(["policy", "monitor", "other"]), st.integers(1, 5)), max_size=60))
def test_complete_exactly_when_each_has_answered_the_current_stamp(answers):
    lock = LockStep(("policy", "monitor"))
    lock.observe(3, now=0.0)
    for who, stamp in answers:
        lock.answer(who, stamp)
    assert lock.complete == ({("policy", 3), ("monitor", 3)} <= set(answers))
    assert sum(lock.counts.values()) == len(answers)
