"""What a reader asks of its publishers, and deadlines that pass."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")

from rclpy.duration import Duration
from rclpy.qos import QoSProfile, ReliabilityPolicy

from osma_monitor.ros.quality import Choice, DeadlineWatch, Reading, choose, first_reading

pytestmark = pytest.mark.ros
MS = 10**6


def publisher(name, best_effort=False, deadline_ns=(1 << 63) - 1):
    profile = QoSProfile(depth=1)
    if best_effort:
        profile.reliability = ReliabilityPolicy.BEST_EFFORT
    profile.deadline = Duration(nanoseconds=deadline_ns)
    return SimpleNamespace(node_name=name, qos_profile=profile)


def test_an_adapting_reader_asks_for_what_every_publisher_offers():
    assert first_reading("auto", 100 * MS) == Reading()
    offered = [publisher("a", deadline_ns=50 * MS), publisher("b", deadline_ns=100 * MS)]
    assert choose("auto", 100 * MS, Reading(), offered) == Choice(Reading(False, 100 * MS))
    # nobody is there: what was asked before is asked on
    assert choose("auto", 100 * MS, Reading(True, 100 * MS), []) == Choice(Reading(True, 100 * MS))


@pytest.mark.parametrize(
    ("deadline", "offer"), [((1 << 63) - 1, "a offers none"), (0, "a offers none"), (200 * MS, "a offers 0.2 s")]
)
def test_a_deadline_that_one_publisher_does_not_offer_is_not_asked_for_and_said(deadline, offer):
    offered = [publisher("a", True, deadline), publisher("b", deadline_ns=100 * MS)]
    choice = choose("auto", 100 * MS, Reading(False, 100 * MS), offered)
    assert choice.reading == Reading(True, 0) and not choice.problem
    assert choice.note == "read best effort, as a publishes it"
    assert choice.warning == f"a deadline of 0.1 s is asked for, {offer}; read without it and watched by receipt"


def test_a_reader_that_does_not_adapt_names_every_mismatch():
    now = first_reading("reliable", 100 * MS)
    assert now == Reading(False, 100 * MS)
    choice = choose("reliable", 100 * MS, now, [publisher("a", True)])
    assert choice.reading == now and choice.problem == (
        "incompatible QoS: a publishes best effort, read reliable; a deadline of 0.1 s is asked for, a offers none"
    )
    assert not choose("best_effort", 0, first_reading("best_effort", 0), [publisher("a", True)]).problem
    assert not choose("reliable", 0, first_reading("reliable", 0), [publisher("a")]).problem


def test_the_profile_carries_the_deadline():
    profile = Reading(True, 100 * MS).profile(7)
    assert (profile.deadline.nanoseconds, profile.depth) == (100 * MS, 7)
    assert profile.reliability == ReliabilityPolicy.BEST_EFFORT
    assert Reading().profile(7).deadline.nanoseconds == 0


def test_deadlines_are_counted_once_each_from_the_first_message_on():
    watch = DeadlineWatch()
    watch.look(100.0)
    watch.heard("a", 0.5, 100.0)
    watch.heard("a", 0.5, 100.25)
    watch.look(100.5)
    assert not watch.missed
    watch.look(101.0)  # 0.75 s of silence
    watch.look(101.0)
    assert watch.missed == {"a": 1}
    watch.heard("a", 0.5, 101.5)  # 1.25 s
    watch.heard("b", 0.125, 101.5)
    watch.heard("a", 0.5, 101.75)
    assert watch.missed == {"a": 2}
    watch.look(102.0)
    assert watch.missed == {"a": 2, "b": 4}
