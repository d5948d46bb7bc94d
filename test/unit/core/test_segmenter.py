"""Where episodes begin and end."""

import pytest

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.segmenter import Begin, End, MessageSegmenter, by_edge, by_gap, by_times, whole
from osma_monitor.core.signals.raw import RawFrame

S = 1_000_000_000


def frame(t: float, gripper: bool | None = None) -> RawFrame:
    return RawFrame(round(t * S), gripper=gripper)


def begin(t: float, name: str = "a") -> Begin:
    return Begin(round(t * S), EpisodeInfo(name))


def end(t: float, name: str = "a", status="success") -> End:
    return End(round(t * S), Outcome(status), name)


def shape(steps) -> list:
    """Begin -> its id, frame -> its second, End -> (id, status)."""
    out = []
    for s in steps:
        if isinstance(s, Begin):
            out.append(s.info.episode_id)
        elif isinstance(s, End):
            out.append((s.episode_id, s.outcome.status))
        else:
            out.append(s.stamp_ns / S)
    return out


def test_messages_in_the_usual_order():
    m = MessageSegmenter()
    steps = m.event(begin(1)) + m.push(frame(1)) + m.push(frame(2)) + m.event(end(2))
    assert shape(steps) == ["a", 1, 2, ("a", "success")]


def test_the_end_waits_for_its_frames_and_the_start_message_may_come_late():
    m = MessageSegmenter()
    steps = (
        m.push(frame(0.5))
        + m.push(frame(1))
        + m.event(begin(1))
        + m.event(end(3))
        + m.push(frame(2))
        + m.push(frame(3))
    )
    assert shape(steps) == ["a", 1, 2, 3, ("a", "success")]
    assert m.counts["outside_episode"] == 1


def test_a_promised_frame_that_never_comes():
    m = MessageSegmenter(timeout_ns=S)
    steps = m.event(begin(1)) + m.push(frame(1)) + m.event(end(3), now_ns=3 * S)
    assert shape(steps) == ["a", 1]
    assert m.poll(3 * S + S // 2) == []
    assert shape(m.poll(5 * S)) == [("a", "success")]


def test_a_later_frame_closes_the_episode_and_waits_for_the_next():
    m = MessageSegmenter()
    m.event(begin(1))
    m.push(frame(1))
    m.event(end(2))
    assert shape(m.push(frame(3))) == [("a", "success")]
    assert shape(m.event(begin(3, "b"))) == ["b", 3]


def test_a_start_while_one_runs_aborts_it():
    m = MessageSegmenter()
    m.event(begin(1))
    m.push(frame(1))
    steps = m.event(begin(5, "b"))
    assert shape(steps) == [("a", "aborted"), "b"]
    assert isinstance(steps[0], End) and not steps[0].complete


def test_the_next_episode_waits_until_the_frames_of_the_last_have_come():
    m = MessageSegmenter()
    steps = m.event(begin(1)) + m.push(frame(1)) + m.event(end(3)) + m.event(begin(4, "b")) + m.event(end(5, "b"))
    assert shape(steps) == ["a", 1]
    steps = [s for t in (2, 3, 4, 5) for s in m.push(frame(t))]
    assert shape(steps) == [2, 3, ("a", "success"), "b", 4, 5, ("b", "success")]
    m = MessageSegmenter(timeout_ns=S)
    m.event(begin(1))
    m.event(end(3), now_ns=3 * S)
    m.event(begin(4, "b"), now_ns=4 * S)
    assert m.event(begin(4, "a"), now_ns=4 * S) == []
    assert shape(m.poll(5 * S)) == [("a", "success"), "b"]
    assert shape(m.finish()) == [("b", "unknown")]


def test_repeated_and_foreign_events_are_counted():
    m = MessageSegmenter()
    m.event(begin(1))
    assert m.event(begin(1)) == []
    assert m.event(end(2, "other")) == []
    m.event(end(2))
    m.push(frame(2))
    assert m.event(end(2)) == []
    assert m.event(begin(1)) == [], "a latched start of an episode that is over"
    assert m.counts["repeated_event"] == 3
    assert m.counts["end_without_start"] == 1


def test_a_source_that_goes_away():
    m = MessageSegmenter()
    m.event(begin(1))
    m.push(frame(1))
    (last,) = m.finish()
    assert isinstance(last, End) and not last.complete and last.outcome.status == "unknown"
    assert MessageSegmenter().finish() == []


def test_gap():
    g = by_gap(EpisodeInfo("bag"), gap_ns=S)
    steps = [s for t in (1, 1.5, 2, 10, 10.5) for s in g.push(frame(t))] + g.finish()
    assert shape(steps) == [
        "bag-0001",
        1,
        1.5,
        2,
        ("bag-0001", "unknown"),
        "bag-0002",
        10,
        10.5,
        ("bag-0002", "unknown"),
    ]


def test_edge_ignores_the_unknown():
    e = by_edge(EpisodeInfo("bag"), lambda f: f.gripper)
    seen = [(1, False), (2, True), (3, None), (4, True), (5, False), (6, None)]
    steps = [s for t, g in seen for s in e.push(frame(t, g))] + e.finish()
    assert shape(steps) == ["bag-0001", 2, 3, 4, ("bag-0001", "unknown")]
    assert e.counts["outside_episode"] == 3


def test_times():
    t = by_times(EpisodeInfo("bag"), [(2 * S, 3 * S), (5 * S, 6 * S)])
    steps = [s for k in range(1, 8) for s in t.push(frame(k))] + t.finish()
    assert shape(steps) == ["bag-0001", 2, 3, ("bag-0001", "unknown"), "bag-0002", 5, 6, ("bag-0002", "unknown")]
    with pytest.raises(ValueError, match="overlap"):
        by_times(EpisodeInfo("bag"), [(1, 5), (5, 6)])
    with pytest.raises(ValueError, match="before it begins"):
        by_times(EpisodeInfo("bag"), [(5, 5)])


def test_an_endless_episode_is_split():
    g = by_gap(EpisodeInfo("bag"), gap_ns=10 * S, max_ns=2 * S)
    steps = [s for k in range(1, 8) for s in g.push(frame(k))] + g.finish()
    assert [x for x in shape(steps) if not isinstance(x, tuple)] == [
        "bag-0001",
        1,
        2,
        3,
        "bag-0002",
        4,
        5,
        6,
        "bag-0003",
        7,
    ]


MS = S // 1000


def wait(segmenter, begin_ns: int, seconds: float, step_ns: int = 50 * MS) -> list:
    """Looks of the node while no frame comes."""
    return [s for t in range(begin_ns + step_ns, begin_ns + round(seconds * S) + 1, step_ns) for s in segmenter.poll(t)]


def test_a_silence_ends_the_episode_as_the_next_frame_would():
    live, bag = (by_gap(EpisodeInfo("bag"), gap_ns=2 * S) for _ in range(2))
    seen = []
    for stamp, received in ((1, 101), (1.5, 101.5), (10, 110), (10.5, 110.5)):
        seen += live.push(frame(stamp), received * S if isinstance(received, int) else round(received * S))
        if stamp in (1.5, 10.5):
            ended = wait(live, round(received * S), 3)
            assert shape(ended) == [(f"bag-000{1 + (stamp > 9)}", "unknown")], "no frame came for the gap"
            assert not live.running
            seen += ended
    recorded = [s for t in (1, 1.5, 10, 10.5) for s in bag.push(frame(t))] + bag.finish()
    assert [(s.stamp_ns, getattr(s, "outcome", None), getattr(s, "complete", None)) for s in seen] == [
        (s.stamp_ns, getattr(s, "outcome", None), getattr(s, "complete", None)) for s in recorded
    ]
    assert live.finish("the monitor was stopped") == [] and not live.counts


def test_a_silence_that_is_shorter_than_gap_and_delivery_ends_nothing():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.push(frame(1), 100 * S)
    assert wait(g, 100 * S, 2.3) == []
    assert shape(g.push(frame(2.9), round(102.4 * S))) == [2.9] and g.running
    # at the end there is no delivery to wait for
    assert wait(g, round(102.4 * S), 2.2) == []
    (end_,) = g.poll(round(104.65 * S), stopping=True)
    assert end_.complete and end_.outcome.reason == "gap" and end_.stamp_ns == round(2.9 * S)


def test_a_process_that_stood_still_hears_the_waiting_frames_first():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.push(frame(1), 100 * S)
    assert g.poll(160 * S) == [], "one look after a minute is no minute of silence"
    assert shape(g.push(frame(1.1), 160 * S)) == [1.1]


def test_frames_within_the_gap_that_come_after_the_silence_are_counted_and_leave_a_partial_episode():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.push(frame(1), 100 * S)
    assert wait(g, 100 * S, 3)
    start, first = g.push(frame(1.1), 104 * S)
    assert start.stamp_ns < first.stamp_ns and g.counts["late_after_gap"] == 1
    assert shape(g.push(frame(1.2), 104 * S)) == [1.2] and g.counts["late_after_gap"] == 1


def test_a_silence_does_not_end_what_a_person_began():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.event(begin(1), 100 * S)
    g.push(frame(1), 100 * S)
    assert wait(g, 100 * S, 10) == [] and g.running
    assert shape(g.event(end(1))) == [("a", "success")]


def test_the_whole_source_is_one_episode():
    w = whole(EpisodeInfo("bag"))
    steps = [s for t in (1, 100, 5000) for s in w.push(frame(t))] + w.finish()
    assert shape(steps) == ["bag-0001", 1, 100, 5000, ("bag-0001", "unknown")]
    assert steps[-1].outcome.reason == "source ended"


def test_an_end_says_how_many_frames_did_not_come():
    assert End(1, Outcome(), frames=None).lost(3) == () and End(1, Outcome(), frames=3).lost(3) == ()
    assert End(1, Outcome(), frames=5).lost(3) == ("2 of 5 frames that the source published did not come",)
    m = MessageSegmenter()
    m.event(begin(1))
    m.push(frame(1))
    assert m.event(End(S, Outcome(), "a", frames=2))[0].frames == 2


def test_a_pause_before_a_person_begins_an_episode_does_not_end_it():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.push(frame(1))
    steps = g.event(begin(50)) + g.push(frame(50)) + g.push(frame(51)) + g.event(end(51))
    assert shape(steps) == [("bag-0001", "aborted"), "a", 50, 51, ("a", "success")]


def test_events_that_are_sent_again_or_come_from_elsewhere_change_no_episode_of_a_rule():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    assert shape(g.event(begin(1)) + g.push(frame(1))) == ["a", 1]
    assert g.event(begin(1)) == [] and g.counts["repeated_event"] == 1
    assert g.event(end(1, "other")) == [] and g.counts["end_without_start"] == 1
    assert shape(g.event(end(1))) == [("a", "success")]
    assert shape(g.push(frame(2))) == ["bag-0001", 2]
    assert g.event(end(1)) == [] and g.event(begin(1)) == [] and g.counts["repeated_event"] == 3
    # the START of this one was lost
    assert shape(g.event(end(2, "b", "failure"))) == [("bag-0001", "failure")]


def test_an_end_that_says_that_it_was_cut_off_ends_no_complete_episode():
    g = by_gap(EpisodeInfo("bag"))
    g.push(frame(1))
    [ended] = g.event(End(S, Outcome("failure"), "", complete=False))
    assert not ended.complete


def test_the_end_of_an_episode_waits_for_its_frames_under_a_rule_too():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    steps = g.event(begin(1)) + g.push(frame(1)) + g.event(end(3)) + g.push(frame(2)) + g.push(frame(3))
    assert shape(steps) == ["a", 1, 2, 3, ("a", "success")] and steps[-1].stamp_ns == 3 * S
    assert g.event(end(3)) == [] and g.counts["repeated_event"] == 1
    assert shape(g.push(frame(4))) == ["bag-0001", 4]
    # of an episode whose START was lost, and whose last frame is
    assert g.event(End(7 * S, Outcome("failure"), "b", attributes={"x": "y"}, frames=3)) == []
    steps = g.push(frame(6)) + g.push(frame(8))
    assert shape(steps) == [6, ("bag-0001", "failure"), "bag-0002", 8]
    assert (steps[1].stamp_ns, steps[1].attributes, steps[1].frames) == (6 * S, {"x": "y"}, 3)


def test_a_promised_frame_that_never_comes_under_a_rule():
    g = by_gap(EpisodeInfo("bag"), gap_ns=S, timeout_ns=3 * S)
    g.event(begin(1), 101 * S)
    g.push(frame(1), 101 * S)
    assert g.event(end(3), 103 * S) == [] and wait(g, 103 * S, 2.9) == [] and g.running
    (ended,) = g.poll(107 * S)
    assert shape([ended]) == [("a", "success")] and ended.complete and ended.stamp_ns == S and not g.running
    g.event(begin(10, "b"))
    g.push(frame(10))
    g.event(end(11, "b"))
    assert shape(g.finish()) == [("b", "success")], "the end of the source takes nothing of what was said"


def test_what_is_said_meanwhile_of_the_next_episode_waits_under_a_rule_too():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    steps = g.event(begin(1)) + g.push(frame(1)) + g.event(end(3)) + g.event(begin(4, "b")) + g.event(end(5, "b"))
    assert shape(steps) == ["a", 1]
    steps = [s for t in (2, 3, 4, 5) for s in g.push(frame(t))]
    assert shape(steps) == [2, 3, ("a", "success"), "b", 4, 5, ("b", "success")]
    g.event(begin(6, "c"))
    g.event(end(7, "c"))
    g.event(begin(8, "d"))
    assert shape(g.finish()) == [("c", "success"), "d", ("d", "unknown")]


def test_an_episode_by_hand_without_a_frame_ends_at_once():
    g = by_gap(EpisodeInfo("bag"), gap_ns=2 * S)
    g.push(frame(1))
    g.event(Begin(S + 1, EpisodeInfo("a")))
    assert shape(g.event(end(1))) == [("a", "success")]
    assert g.event(end(1, "z")) == [] and g.event(end(1, "")) == [] and g.counts["end_without_start"] == 2


@pytest.mark.parametrize("rule", ["gap", "gripper", "times"])
def test_a_rule_ends_only_what_it_began(rule: str):
    info = EpisodeInfo("bag")
    g = {
        "gap": by_gap(info, gap_ns=S),
        "gripper": by_edge(info, lambda f: f.gripper),
        "times": by_times(info, [(S, 2 * S)]),
    }[rule]
    steps = g.event(begin(1)) + [s for t in (1, 2, 9, 10) for s in g.push(frame(t, False))] + g.event(end(10))
    assert shape(steps) == ["a", 1, 2, 9, 10, ("a", "success")]
    steps = g.push(frame(11, True)) + g.push(frame(20, False)) + g.finish()
    ruled = {"gap": ["bag-0001", 11, ("bag-0001", "unknown"), "bag-0002", 20, ("bag-0002", "unknown")],
             "gripper": ["bag-0001", 11, ("bag-0001", "unknown")], "times": []}  # fmt: skip
    assert shape(steps) == ruled[rule], "its own episodes end as ever"
