"""Where episodes begin and end."""

import pytest

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.segmenter import Begin, End, MessageSegmenter, by_edge, by_gap, by_times
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
