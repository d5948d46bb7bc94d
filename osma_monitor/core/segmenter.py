"""Where episodes begin and end: by message, by a gap in time, by an edge of a signal, or by a list of times. Pure code.

Feed frames and events; take steps: :class:`Begin`, RawFrame, :class:`End`. Frames outside an episode are dropped and
counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.signals.raw import RawFrame

SECOND = 1_000_000_000
#: Receipt times of frames differ from their stamps by the delivery: so much longer the silence must last.
_DELIVERY = SECOND // 2
#: Of the time between two looks no more counts as silence: a process that stood still has frames waiting.
_LONGEST_LOOK = SECOND // 4
#: Events of next episodes that wait for the end of one.
_MOST_LATER = 256


@dataclass(frozen=True, slots=True)
class Begin:
    """An episode begins. ``stamp_ns`` is the stamp of its first frame as the source says."""

    stamp_ns: int
    info: EpisodeInfo


@dataclass(frozen=True, slots=True)
class End:
    """An episode ends. ``stamp_ns`` is the stamp of its last frame; ``complete`` is False when it was cut off;
    ``attributes`` are those that its source knows now, over those of the start.
    """

    stamp_ns: int
    outcome: Outcome
    episode_id: str = ""
    complete: bool = True
    attributes: Mapping[str, str] = field(default_factory=dict)
    frames: int | None = None  #: that the source published; None when it does not say

    def lost(self, judged: int) -> tuple[str, ...]:
        """What the record shall say of frames that did not come; it is partial then."""
        if self.frames is None or judged >= self.frames:
            return ()
        return (f"{self.frames - judged} of {self.frames} frames that the source published did not come",)


Step = Begin | RawFrame | End


class Segmenter(Protocol):
    """What every rule offers. ``now_ns`` is receipt time, used for time-outs only."""

    counts: Counter[str]

    @property
    def running(self) -> bool: ...

    def push(self, frame: RawFrame, now_ns: int | None = None) -> list[Step]: ...

    def event(self, event: Begin | End, now_ns: int | None = None) -> list[Step]: ...

    def poll(self, now_ns: int, stopping: bool = False) -> list[Step]: ...

    def finish(self, reason: str = "source ended") -> list[Step]: ...


class MessageSegmenter:
    """Episodes by start and end messages (EpisodeEvent, or a service that makes one).

    Topics are not ordered among each other: frames that arrive before their start message wait for it, and an end
    message waits for the frames up to its stamp, at most ``timeout_ns``; what is said meanwhile of the next episode
    waits with it. A start while an episode runs that nobody ended ends it as aborted.
    """

    def __init__(self, timeout_ns: int = 2 * SECOND, max_waiting: int = 256) -> None:
        self.counts: Counter[str] = Counter()
        self._timeout_ns = timeout_ns
        self._waiting: deque[RawFrame] = deque()
        self._max_waiting = max_waiting
        self._begin: Begin | None = None
        self._end: End | None = None
        self._end_received_ns = 0
        self._later: deque[tuple[Begin | End, int]] = deque()
        self._last_ns = 0
        self._last_id = ""

    @property
    def running(self) -> bool:
        """Whether an episode runs."""
        return self._begin is not None

    def event(self, event: Begin | End, now_ns: int | None = None) -> list[Step]:
        """Take a start or end message."""
        now = event.stamp_ns if now_ns is None else now_ns
        if self._end is not None and self._begin is not None:
            name = event.info.episode_id if isinstance(event, Begin) else event.episode_id
            if name in (self._begin.info.episode_id, self._last_id) and name:
                self.counts["repeated_event"] += 1
                return []
            self._later.append((event, now))
            return self._close() if len(self._later) > self._max_waiting else []
        if isinstance(event, Begin):
            return self._start(event)
        if self._begin is None or (event.episode_id and event.episode_id != self._begin.info.episode_id):
            self.counts["end_without_start" if event.episode_id != self._last_id else "repeated_event"] += 1
            return []
        self._end, self._end_received_ns = event, now
        return self._close() if self._last_ns >= event.stamp_ns else []

    def _start(self, begin: Begin) -> list[Step]:
        steps: list[Step] = []
        if begin.info.episode_id and begin.info.episode_id in (
            self._last_id,
            self._begin and self._begin.info.episode_id,
        ):
            self.counts["repeated_event"] += 1
            return []
        if self._begin is not None:
            self._end = End(self._last_ns, Outcome("aborted", "a new episode began"), complete=False)
            steps += self._close()
        self._begin, self._last_ns = begin, 0
        steps.append(begin)
        early = [f for f in self._waiting if f.stamp_ns < begin.stamp_ns]
        self.counts["outside_episode"] += len(early)
        ready = [f for f in self._waiting if f.stamp_ns >= begin.stamp_ns]
        self._waiting.clear()
        for frame in ready:
            steps += self.push(frame)
        return steps

    def push(self, frame: RawFrame, now_ns: int | None = None) -> list[Step]:
        """Take a frame."""
        if self._begin is None:
            self._wait(frame)
            return []
        if frame.stamp_ns < self._begin.stamp_ns:
            self.counts["outside_episode"] += 1
            return []
        if self._end is not None and frame.stamp_ns > self._end.stamp_ns:
            return self._close() + self.push(frame, now_ns)
        self._last_ns = frame.stamp_ns
        steps: list[Step] = [frame]
        if self._end is not None and frame.stamp_ns == self._end.stamp_ns:
            steps += self._close()
        return steps

    def _wait(self, frame: RawFrame) -> None:
        self._waiting.append(frame)
        if len(self._waiting) > self._max_waiting:
            self._waiting.popleft()
            self.counts["outside_episode"] += 1

    def poll(self, now_ns: int, stopping: bool = False) -> list[Step]:
        """Give up waiting for frames that the end message promised."""
        if self._end is not None and now_ns - self._end_received_ns > self._timeout_ns:
            return self._close()
        return []

    def finish(self, reason: str = "source ended") -> list[Step]:
        """The source is gone: an episode that still runs ends incomplete."""
        if self._begin is None:
            self.counts["outside_episode"] += len(self._waiting)
            self._waiting.clear()
            return []
        if self._end is None:
            self._end = End(self._last_ns, Outcome("unknown", reason), complete=False)
        steps = self._close()
        return steps + (self.finish(reason) if self._begin is not None else [])

    def _close(self) -> list[Step]:
        assert self._begin is not None and self._end is not None
        end = replace(self._end, episode_id=self._begin.info.episode_id)
        self._last_id = end.episode_id
        self._begin = self._end = None
        steps: list[Step] = [end]
        while self._later and self._end is None:
            event, received_ns = self._later.popleft()
            steps += self.event(event, received_ns)
        return steps


class RuleSegmenter:
    """Episodes by what the frames themselves say. ``starts`` and ``ends`` look at (frame, previous frame) and the
    running episode's begin.

    Made by :func:`by_gap`, :func:`by_edge` and :func:`by_times`. ``max_ns`` splits an endless episode so that memory
    stays bounded. ``pause_ns``: a silence that ends an episode which the rule began, without a next frame; 0: none
    does. ``last`` is the reason of an episode that the end of the source ends.

    A silence ends an episode as a gap in the stamps would: equal frames give equal episodes, whenever that was
    noticed. Frames within the gap that come after it (a network that stood still) are counted as ``late_after_gap``
    and begin an episode whose first frames are missing.

    What was announced by message or by hand ends as it was announced, or at ``max_ns``, by no rule. Its end waits for
    the frames up to its stamp, as that of :class:`MessageSegmenter` does.
    """

    def __init__(
        self,
        info: EpisodeInfo,
        starts: Callable[[RawFrame, RawFrame | None], bool],
        ends: Callable[[RawFrame, RawFrame], str],
        max_ns: int = 3600 * SECOND,
        pause_ns: int = 0,
        last: str = "source ended",
        timeout_ns: int = 2 * SECOND,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._timeout_ns = timeout_ns
        self._end: End | None = None  #: was announced; frames up to its stamp are due
        self._end_received_ns = 0
        self._later: deque[tuple[Begin | End, int]] = deque()  #: what was said of the next episode meanwhile
        self._info, self._starts, self._ends, self._max_ns = info, starts, ends, max_ns
        self._pause_ns, self._last = pause_ns, last
        self._by_rule = False  #: the rule began the running episode, and nobody has promised to end it
        self._quiet_ns = self._looked_ns = 0  #: silence so far, and until when
        self._paused = False  #: a silence ended the latest episode
        self._begin: Begin | None = None
        self._last_id = ""  #: of the latest episode that ended
        self._previous: RawFrame | None = None  #: the frame before, of this or no episode
        self._number = 0

    @property
    def running(self) -> bool:
        """Whether an episode runs."""
        return self._begin is not None

    def event(self, event: Begin | End, now_ns: int | None = None) -> list[Step]:
        """A message overrides the rule for this episode. One that is sent again, or ends another one, is counted."""
        now = event.stamp_ns if now_ns is None else now_ns
        runs = self._begin.info.episode_id if self._begin is not None else ""
        if self._end is not None:
            name = event.info.episode_id if isinstance(event, Begin) else event.episode_id
            if name and name in (runs, self._last_id, self._end.episode_id):
                self.counts["repeated_event"] += 1
                return []
            self._later.append((event, now))
            return self._close() if len(self._later) > _MOST_LATER else []
        if isinstance(event, Begin):
            if event.info.episode_id and event.info.episode_id in (runs, self._last_id):
                self.counts["repeated_event"] += 1
                return []
            steps: list[Step] = [*self._finish(Outcome("aborted", "a new episode began"), complete=False)]
            self._begin, self._by_rule, self._paused = event, False, False
            self._previous = None  # what came before belongs to no pause of this episode
            return [*steps, event]
        if event.episode_id and event.episode_id != runs:
            if event.episode_id == self._last_id:
                self.counts["repeated_event"] += 1
                return []
            if not self._by_rule:
                self.counts["end_without_start"] += 1
                return []
        if self._begin is None:
            self.counts["end_without_start"] += 1
            return []
        self._end, self._end_received_ns, self._by_rule = event, now, False
        reached = max(self._begin.stamp_ns - 1, self._previous.stamp_ns if self._previous is not None else 0)
        return self._close() if reached >= event.stamp_ns else []

    def _close(self) -> list[Step]:
        """The episode ends as its end message says; what waited for that follows."""
        assert self._end is not None
        event, self._end = self._end, None
        ends = self._finish(event.outcome, complete=event.complete)
        steps: list[Step] = [replace(s, attributes=event.attributes, frames=event.frames) for s in ends]
        while self._later and self._end is None:
            steps += self.event(*self._later.popleft())
        return steps

    def push(self, frame: RawFrame, now_ns: int | None = None) -> list[Step]:
        """Take a frame."""
        if self._end is not None and frame.stamp_ns > self._end.stamp_ns:
            return self._close() + self.push(frame, now_ns)
        steps = self._ruled(frame, now_ns)
        if self._end is not None and frame.stamp_ns == self._end.stamp_ns:
            steps += self._close()
        return steps

    def _ruled(self, frame: RawFrame, now_ns: int | None) -> list[Step]:
        steps: list[Step] = []
        previous, self._previous = self._previous, frame
        self._quiet_ns, self._looked_ns = 0, frame.stamp_ns if now_ns is None else now_ns
        if self._begin is not None and previous is not None:
            reason = self._ends(frame, previous) if self._by_rule else ""
            if not reason and frame.stamp_ns - self._begin.stamp_ns > self._max_ns:
                reason = "longest episode reached"
                steps += self._finish(Outcome("unknown", reason), previous.stamp_ns)
                steps.append(self._start(frame, frame.stamp_ns))
                return [*steps, frame]
            if reason:
                steps += self._finish(Outcome("unknown", reason), previous.stamp_ns)
                previous = None if reason == "gap" else previous
        if self._begin is None and self._starts(frame, previous):
            start = frame.stamp_ns
            if self._paused and previous is not None and frame.stamp_ns - previous.stamp_ns <= self._pause_ns:
                self.counts["late_after_gap"] += 1
                start = previous.stamp_ns + 1
            steps.append(self._start(frame, start))
        if self._begin is not None:
            steps.append(frame)
        else:
            self.counts["outside_episode"] += 1
        return steps

    def _start(self, frame: RawFrame, start_ns: int) -> Begin:
        """``start_ns`` before the frame's own stamp: frames before it are missing."""
        self._number += 1
        self._paused, self._by_rule = False, True
        name = f"{self._info.episode_id}-{self._number:04d}"
        self._begin = Begin(start_ns, replace(self._info, episode_id=name))
        return self._begin

    def poll(self, now_ns: int, stopping: bool = False) -> list[Step]:
        """A silence ends the episode, and frames that an end message promised are given up. ``stopping``: this is the
        last look, there is no delivery to wait for.
        """
        if self._end is not None:
            return self._close() if now_ns - self._end_received_ns > self._timeout_ns else []
        if not self._pause_ns or self._begin is None or not self._by_rule:
            return []
        self._quiet_ns += min(max(now_ns - self._looked_ns, 0), _LONGEST_LOOK)
        self._looked_ns = now_ns
        if self._quiet_ns <= self._pause_ns + (0 if stopping else _DELIVERY):
            return []
        self._paused = True
        return list(self._finish(Outcome("unknown", "gap")))

    def finish(self, reason: str = "") -> list[Step]:
        """The source is gone: the running episode ends here, regularly."""
        if self._end is not None:
            return self._close() + self.finish(reason)
        return list(self._finish(Outcome("unknown", reason or self._last)))

    def _finish(self, outcome: Outcome, stamp_ns: int | None = None, complete: bool = True) -> list[End]:
        if self._begin is None:
            return []
        last = (
            stamp_ns if stamp_ns is not None else (self._previous.stamp_ns if self._previous else self._begin.stamp_ns)
        )
        end = End(last, outcome, self._begin.info.episode_id, complete)
        self._begin, self._last_id = None, end.episode_id
        return [end]


def by_gap(
    info: EpisodeInfo, gap_ns: int = 2 * SECOND, max_ns: int = 3600 * SECOND, timeout_ns: int = 2 * SECOND
) -> RuleSegmenter:
    """A new episode after every pause longer than ``gap_ns``; the first frame begins the first one.

    The pause may be seen in the stamps or, by :meth:`RuleSegmenter.poll`, before the next frame comes. What ends the
    source is a pause too: whether a live run or a recording of it shows the pause makes no difference.
    """
    return RuleSegmenter(
        info,
        lambda frame, previous: True,
        lambda frame, previous: "gap" if frame.stamp_ns - previous.stamp_ns > gap_ns else "",
        max_ns,
        gap_ns,
        "gap",
        timeout_ns,
    )


def whole(info: EpisodeInfo) -> RuleSegmenter:
    """One episode of all frames."""
    return RuleSegmenter(info, lambda frame, previous: True, lambda frame, previous: "", 1 << 62)


def by_edge(
    info: EpisodeInfo,
    signal: Callable[[RawFrame], bool | None],
    max_ns: int = 3600 * SECOND,
    timeout_ns: int = 2 * SECOND,
) -> RuleSegmenter:
    """An episode while ``signal(frame)`` is true; an unknown value (None) changes nothing."""

    def ends(frame: RawFrame, previous: RawFrame) -> str:
        return "edge" if signal(frame) is False else ""

    return RuleSegmenter(info, lambda frame, previous: signal(frame) is True, ends, max_ns, timeout_ns=timeout_ns)


def by_times(info: EpisodeInfo, spans_ns: Sequence[tuple[int, int]], max_ns: int = 3600 * SECOND) -> RuleSegmenter:
    """One episode for each [start, end] span of stamps, both ends included.

    Raises ValueError on spans that overlap or are empty.
    """
    spans = sorted(spans_ns)
    for (a, b), (c, d) in pairwise(spans):
        if c <= b:
            raise ValueError(f"episode spans overlap: [{a}, {b}] and [{c}, {d}]")
    if any(b <= a for a, b in spans):
        raise ValueError("an episode span ends before it begins")

    def inside(frame: RawFrame) -> int:
        return next((i for i, (a, b) in enumerate(spans) if a <= frame.stamp_ns <= b), -1)

    def ends(frame: RawFrame, previous: RawFrame) -> str:
        return "end of span" if inside(frame) != inside(previous) else ""

    return RuleSegmenter(info, lambda frame, previous: inside(frame) >= 0, ends, max_ns)
