"""A bag through the live node: the frames that the bag gives, published as a robot would, in lock-step or at a
rate. Needs ROS.

The replayer assembles frames exactly as `osma score` does and publishes their parts under one stamp, with episode
events that declare them. The monitor then joins by exact stamps, so its records equal those of `osma score`
whatever the speed. A rate is an upper bound: never more than ``AHEAD`` frames are out without an answer, so that none
is lost in a queue, and END says how many there were.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rclpy.duration import Duration
from rclpy.node import Node
from rosgraph_msgs.msg import Clock

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import EXIT_OK, UserError
from osma_monitor.core.segmenter import Begin, End, Step
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.msg import ClauseStatus, EpisodeEvent, EpisodeSummary
from osma_monitor.ros import conversions, topics
from osma_monitor.ros.inputs import PART_TYPES
from osma_monitor.ros.runtime import Spinner

NAME = "osma_replay"
AHEAD = 32  #: frames without an answer; well below the depth with which the monitor reads (topics.DEPTH)
_RESEND_AFTER = 1.0  #: s without an answer after which the latest frame is sent again
_TO_MESSAGE: dict[str, Callable[[Any, int], Any]] = {
    "base": conversions.base_to_odometry,
    "joints": conversions.joints_to_state,
    "ee": conversions.ee_to_pose,
    "gripper": conversions.gripper_to_msg,
    "contacts": conversions.contacts_to_msg,
    "objects": conversions.objects_to_msg,
}


class Replayer:
    """One node that publishes the steps of a bag.

    ``rate`` in recorded seconds a second, at most: the monitor's answers hold it back; 0: lock-step with the monitor.
    """

    def __init__(
        self,
        steps: Iterator[Step],
        source: Callable[[], Mapping[str, str]],
        rate: float = 0.0,
        on_episode: Callable[[str, EpisodeSummary | None], None] = lambda episode, summary: None,
        silence_limit: float = 10.0,
        losses: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.node = Node(NAME)
        self.missing_answers = 0
        self.episodes = 0
        self._steps, self._source, self._rate, self._losses = steps, source, rate, losses
        self._on_episode = on_episode
        self._out: deque[int] = deque()  #: stamps of frames that have no answer yet
        self._open = 0  #: the latest of them that lack a declared part: the next frame or END closes them
        self._latest: list[tuple[Any, Any]] = []  #: the messages of the latest frame
        self._frames = 0  #: of the running episode
        self._limit = silence_limit
        self._session = secrets.token_hex(8)
        self._summaries: dict[str, EpisodeSummary] = {}
        self._parts: dict[str, Any] = {}
        self._last_ns = 0
        self._info: EpisodeInfo | None = None
        self._due: tuple[float, int] | None = None
        node = self.node
        self._clock = node.create_publisher(Clock, topics.CLOCK, topics.reliable(1))
        self._episode = node.create_publisher(EpisodeEvent, topics.EPISODE, topics.latched(topics.EVENT_DEPTH))
        node.create_subscription(
            ClauseStatus, topics.of_monitor(topics.STATUS), self._on_status, topics.reliable(topics.DEPTH)
        )
        node.create_subscription(
            EpisodeSummary, topics.of_monitor(topics.SUMMARY), self._on_summary, topics.latched(topics.EVENT_READ_DEPTH)
        )

    def close(self) -> None:
        """Nothing to free beyond the node."""

    def _on_status(self, message: ClauseStatus) -> None:
        stamp = conversions.to_ns(message.header.stamp)
        while self._out and self._out[0] <= stamp:
            self._out.popleft()

    def _on_summary(self, message: EpisodeSummary) -> None:
        self._summaries[message.episode_id] = message

    def run(self, spinner: Spinner) -> int:
        """Publishes everything. Raises UserError when no monitor is there or it stays silent."""
        status = topics.of_monitor(topics.STATUS)
        if not spinner.until(lambda: self.node.count_publishers(status) > 0, 30.0) and not spinner.stop.is_set():
            raise UserError(
                f"no safety_monitor appeared within 30 s (nobody publishes {status}); start one, or leave out --join"
            )
        for step in _with_losses(self._steps, self._losses):
            if spinner.stop.is_set():
                break
            if isinstance(step, LossyEnd):
                self._end(spinner, step.end, step.losses)
                continue
            if isinstance(step, Begin):
                self._begin(spinner, step)
            elif isinstance(step, RawFrame):
                self._frame(spinner, step)
            else:
                self._end(spinner, step)
        return EXIT_OK

    def _begin(self, spinner: Spinner, begin: Begin) -> None:
        if begin.stamp_ns < self._last_ns:  # the clock was set back: another source, as far as readers can tell
            self._session = secrets.token_hex(8)
        self._info = begin.info
        self._due = None
        self._out.clear()
        self._open = self._frames = 0
        for part in begin.info.sources:
            self._advertise(part)
        self._match(spinner)
        self._announce(begin.info, begin.stamp_ns)

    def _advertise(self, part: str) -> None:
        if part not in self._parts:
            self._parts[part] = self.node.create_publisher(
                PART_TYPES[part][0], topics.PART_TOPICS[part], topics.reliable()
            )

    def _match(self, spinner: Spinner) -> None:
        """Every reader that is known of is matched, and the monitor reads what will be published."""
        publishers = [self._episode, *self._parts.values()]

        def matched() -> bool:
            return all(
                p.get_subscription_count() >= max(1, self.node.count_subscribers(p.topic_name)) for p in publishers
            )

        spinner.until(matched, 5.0)

    def _announce(
        self,
        info: EpisodeInfo,
        stamp_ns: int,
        outcome: Outcome | None = None,
        further: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        provenance = {**self._source(), **further}
        message = conversions.episode_to_msg(info, stamp_ns, outcome, provenance, self._session)
        self._episode.wait_for_all_acked(Duration(seconds=1.0))
        self._episode.publish(message)

    def _frame(self, spinner: Spinner, frame: RawFrame) -> None:
        stamp, info = frame.stamp_ns, self._info
        new = [part for part in frame.parts if part not in self._parts]
        if new:
            for part in sorted(new):
                self._advertise(part)
            self._match(spinner)
        self._pace(spinner, stamp)
        messages = [(self._clock, Clock(clock=conversions.to_time(stamp)))]
        messages += [(p, _TO_MESSAGE[k](getattr(frame, k), stamp)) for k, p in self._parts.items() if k in frame.parts]
        self._await_answers(spinner, AHEAD - 1)
        declared = set(info.sources) if info is not None and info.sources else set(self._parts)
        whole = declared <= frame.parts
        self._open = 0 if whole else self._open + 1
        self._frames += stamp > self._last_ns
        self._out.append(stamp)
        self._last_ns, self._latest = stamp, messages
        self._send(messages)
        # in lock-step, and once at the start: then both sides know of each other
        if whole and (self._rate <= 0 or self._frames == 1):
            self._await_answers(spinner, 0)

    def _await_answers(self, spinner: Spinner, most: int) -> None:
        """Until at most ``most`` frames are out without an answer. Raises UserError when the monitor is silent."""
        heard = sent = time.monotonic()
        out = len(self._out)
        while len(self._out) > most and not spinner.stop.is_set():
            spinner.once(0.05)
            now = time.monotonic()
            if len(self._out) < out:
                out, heard, sent = len(self._out), now, now
            elif now - heard >= self._limit:
                raise UserError(f"the monitor did not answer the frame of {self._out[0]} ns within {self._limit:g} s")
            elif now - sent >= _RESEND_AFTER:
                sent = now
                self._send(self._latest)

    @staticmethod
    def _send(messages: list[tuple[Any, Any]]) -> None:
        for publisher, message in messages:
            publisher.publish(message)

    def _pace(self, spinner: Spinner, stamp: int) -> None:
        """At a rate: hold the recording's own pace, times the factor."""
        if self._rate <= 0:
            return
        if self._due is None:
            self._due = (time.monotonic(), stamp)
        began, first = self._due
        target = began + (stamp - first) / 1e9 / self._rate
        spinner.once(0.0)
        while (left := target - time.monotonic()) > 0 and not spinner.stop.is_set():
            spinner.once(min(left, 0.05))

    def _end(self, spinner: Spinner, end: End, losses: Sequence[str] = ()) -> None:
        info = self._info
        if info is None:
            return
        self._await_answers(spinner, self._open)
        further = conversions.published(self._frames)
        if not end.complete or losses:
            further |= conversions.cut_off(losses)
        self._announce(info.with_attributes(end.attributes), end.stamp_ns, end.outcome, further)
        found = spinner.until(lambda: info.episode_id in self._summaries, self._limit)
        self.missing_answers += not found and not spinner.stop.is_set()
        self.episodes += 1
        self._on_episode(info.episode_id, self._summaries.pop(info.episode_id, None))
        self._info = None


@dataclass(frozen=True, slots=True)
class LossyEnd:
    """The end of the last episode of a recording that was damaged: what was lost is known only after reading it all."""

    end: End
    losses: tuple[str, ...]


def _with_losses(steps: Iterator[Step], losses: Callable[[], Sequence[str]]) -> Iterator[Step | LossyEnd]:
    """``steps``, with what the recording lost at the last episode that has frames, as `osma score` says it."""
    waiting: list[Step] = []  # an end, and what follows until the next frame
    seen = False
    for step in steps:
        if waiting and isinstance(step, RawFrame):
            yield from waiting
            waiting = []
        seen = seen or isinstance(step, RawFrame)
        if waiting or (seen and isinstance(step, End)):
            waiting.append(step)
            seen = False
        else:
            yield step
    lost = tuple(losses())
    for position, step in enumerate(waiting):
        yield LossyEnd(step, lost) if position == 0 and lost and isinstance(step, End) else step
