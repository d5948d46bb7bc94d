"""A bag as the steps of episodes: Begin, RawFrame, End, in order, from the same assembler and segmenter as the live
node.

Three ways, the surest first. ``frame``: the bag holds the assembled frames as the monitor evaluated them.
``exact``: episode events name the parts that the source publishes each step, joined by stamp. ``hold``: the latest
value of each input at every message of a primary one. What a bag says does not depend on the order in which equal
stamps were recorded: values wait a little (``transform_wait``) and are then taken in order of stamp, topic and
sequence, the primary input last.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.segmenter import (
    Begin,
    End,
    MessageSegmenter,
    RuleSegmenter,
    Step,
    by_edge,
    by_gap,
    by_times,
    whole,
)
from osma_monitor.core.signals.assembler import SECOND, AssemblyConfig, FrameAssembler, Input
from osma_monitor.core.signals.geometry import Primitive, with_distances
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.bag import messages as msg
from osma_monitor.io.bag.cdr import Decoded
from osma_monitor.io.bag.convert import GRIPPER, Converter
from osma_monitor.io.bag.mapping import Plan, Source, TimeSpan
from osma_monitor.io.bag.messages import ODOMETRY, Malformed
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.obstacles import BASE_FRAMES, ObstacleField, ObstacleMap, footprint_solids

#: Frames that get their obstacles in one go.
_BATCH = 256
#: Values that wait at most, whatever the receipt times say.
_QUEUE_LIMIT = 20_000
#: A stamp below this is a simulator's clock or a boot time, not a date.
_EPOCH_SECONDS = 1e8
_EPOCH_NS = round(_EPOCH_SECONDS * SECOND)

#: Late, held too long, sent twice: usual on hardware and in lock-step; the frames say what they lack.
_HARMLESS = (": stale", ": duplicate", ": late", ": incomplete", "outside episode")

#: Stamp, rank, topic, number, receipt, whether it is near the newest stamp of those before it, message.
_Waiting = tuple[int, int, str, int, int, bool, Any]

OnProgress = Callable[[float, float], None]  #: fraction of the bag (NaN: not known), seconds of recording read


@dataclass
class Facts:
    """What a reading met beside frames."""

    mode: str = ""
    refused: Counter[str] = field(default_factory=Counter)  #: by "topic: why"
    first: dict[str, str] = field(default_factory=dict)  #: the first detail of each
    frames: int = 0
    received: tuple[int, int] | None = None  #: first and last receipt of what was read, ns
    source: dict[str, str] = field(default_factory=dict)  #: provenance of the running episode, as its START says

    def refuse(self, key: str, detail: str) -> None:
        self.refused[key] += 1
        self.first.setdefault(key, detail)

    def lines(self, harmless: bool) -> list[str]:
        """One sentence for each kind of trouble, or for each kind of what is usual on hardware and in lock-step."""
        result = []
        for key, count in sorted(self.refused.items()):
            if key.endswith(_HARMLESS) != harmless:
                continue
            detail = f" (first: {self.first[key]})" if self.first.get(key) else ""
            result.append(f"{key}, {count} times{detail}")
        return result


class BagFrames:
    """Reads one recording by a plan. ``facts`` is whole after the last step."""

    def __init__(self, recording: Recording, plan: Plan, name: str, on_progress: OnProgress | None = None) -> None:
        self.recording, self.plan, self.facts = recording, plan, Facts()
        self._name, self._on_progress = name, on_progress
        mapping = plan.mapping
        self._wait_ns = round(mapping.transform_wait * SECOND)
        robot = plan.robot
        leads = robot is not None and (plan.transforms or robot.transforms)
        target = mapping.frame or (robot.frame if robot is not None and leads else "")
        self._field: ObstacleField | None = None
        if isinstance(mapping.obstacles, ObstacleMap):
            footprint = footprint_solids(robot.footprint) if robot is not None else []
            self._field = ObstacleField(mapping.obstacles, footprint)
            target = mapping.obstacles.frame or target
        self._shapes: dict[str, list[Primitive]] = {}
        self._footprint = [
            Primitive(s.primitive, s.size, s.position, s.orientation)
            for s in (robot.footprint if robot is not None else ())
            if s.frame in BASE_FRAMES
        ]
        self._convert = Converter(plan, target, self.facts.refuse)
        self._keys: frozenset[str] = frozenset()
        self._by_topic: dict[str, list[Source]] = {}
        for source in plan.sources:
            self._by_topic.setdefault(source.topic.name, []).append(source)
        self._edges: list[tuple[int, bool]] = []
        self._spans: list[tuple[int, int, TimeSpan]] = []
        self._assembler: FrameAssembler | None = None
        self._assembled: tuple[str, ...] | None = None
        self._early: list[tuple[str, int, Any]] = []
        self._session = ""
        self._last_frame_ns = 0
        self._clock_ns = 0  #: newest stamp that was taken: what receipt time is to the live node, at a fixed rate
        self._pending: list[RawFrame] = []
        self._segmenter: MessageSegmenter | RuleSegmenter | None = None
        self.facts.mode = self._mode()
        if self.facts.mode == "hold":
            self._configure(())

    def _mode(self) -> str:
        if self.plan.mapping.mode != "auto":
            return self.plan.mapping.mode
        if self.plan.frame is not None:
            return "frame"
        return "exact" if self.plan.events is not None and not self.plan.mapping.primary else "hold"

    # -- the loop ------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """All steps of the bag, in order."""
        silent = self.plan.events is None and self.facts.mode != "frame"
        return self._with_given() if silent else self._steps()

    def _with_given(self) -> Iterator[Step]:
        """The mapping's word on episodes that the bag itself says nothing about."""
        span: TimeSpan | None = None
        for step in self._steps():
            if isinstance(step, Begin):
                span = next((t for start, end, t in self._spans if start <= step.stamp_ns <= end), None)
                if span is not None:
                    info = replace(step.info, task=span.task or step.info.task).with_attributes(span.attributes)
                    step = replace(step, info=info)
            elif isinstance(step, End):
                status = span.outcome if span is not None else self.plan.mapping.info.outcome
                step = replace(step, outcome=replace(step.outcome, status=status))
            yield step

    def _steps(self) -> Iterator[Step]:
        queue: list[_Waiting] = []
        primary = self._primary_topic()
        newest: dict[str, int] = {}
        newest_stamp = number = last_received = 0
        first_received: int | None = None
        progress = _Progress(self.recording, self._on_progress)
        events = self.plan.events.name if self.plan.events is not None else ""
        transforms = {t.name for t in self.plan.transforms}
        special = {t.name for t in (self.plan.events, self.plan.frame, self.plan.edge, self.plan.shapes) if t}
        straight = self.facts.mode in ("exact", "frame")  # joined by stamp alone: no order to restore
        for topic, received, message in self.recording.messages(self.plan.topics, self._short()):
            progress.at(received)
            first_received = received if first_received is None else first_received
            last_received = received
            if isinstance(message, Malformed):
                self.facts.refuse(f"{topic}: malformed messages", str(message))
                continue
            if topic in transforms:
                self._convert.transforms(topic, message)
                continue
            stamp = message.stamp_ns if isinstance(message, Decoded) else msg.stamp_of(message)
            if straight:
                if topic in self._by_topic and topic not in special:
                    self._data(topic, stamp or 0, message)
                    if self._pending and (self._field is None or len(self._pending) >= _BATCH):
                        yield from self._give()
                else:
                    yield from self._take(topic, stamp or 0, message)
                continue
            is_event = topic == events
            if stamp is None:  # a type without header is as old as the latest stamp that was recorded before it
                stamp = newest_stamp
            elif 0 < stamp < (newest_stamp if is_event else newest.get(topic, 0)) - SECOND:
                # the clock was set back: what waits belongs before
                while queue:
                    yield from self._pop(queue, newest_stamp)
                if is_event or newest[topic] >= newest_stamp - SECOND:
                    newest.clear()
                    newest_stamp, self._clock_ns = 0, stamp
                else:  # the clock of one sensor that is not that of the others
                    del newest[topic]
            newest[topic] = max(stamp, newest.get(topic, 0))
            newest_stamp = max(newest_stamp, stamp)
            number += 1
            if is_event:
                rank = -1 if getattr(message, "event", 0) == 1 else 2  # a START before its frame, an END after
            else:
                rank = int(topic == primary)
            leads = stamp >= newest_stamp - SECOND
            heapq.heappush(queue, (stamp, rank, topic, number, received, leads, message))
            while queue and (received - queue[0][4] > self._wait_ns or len(queue) > _QUEUE_LIMIT):
                yield from self._pop(queue, newest_stamp)
        if first_received is not None:
            self.facts.received = (first_received, last_received)
        while queue:
            yield from self._pop(queue, newest_stamp)
        if self._assembler is not None:
            self._pending += self._assembler.flush()
            self._take_faults()
        yield from self._give()
        if self._segmenter is not None:
            yield from self._segmenter.finish()
            for kind, count in self._segmenter.counts.items():
                if count and kind != "repeated_event":
                    self.facts.refused[f"episodes: {kind.replace('_', ' ')}"] += count
        progress.done()

    def _short(self) -> set[str]:
        """Topics whose messages are wanted as raw parts alone."""
        names = {s.topic.name for s in self.plan.sources if not s.rule.field and s.part != "base"}
        names |= {s.topic.name for s in self.plan.sources if s.part == "base" and s.topic.type == ODOMETRY}
        names |= {t.name for t in self.plan.transforms}
        if self.plan.edge is not None:
            names.discard(self.plan.edge.name)
        return names | ({self.plan.frame.name} if self.plan.frame is not None else set())

    def _pop(self, queue: list[_Waiting], newest_stamp: int) -> Iterator[Step]:
        stamp, _, topic, _, _, leads, message = heapq.heappop(queue)
        if leads and not stamp < _EPOCH_NS <= newest_stamp:  # a boot time beside dates makes no frames
            self._clock_ns = max(self._clock_ns, stamp)
        return self._take(topic, stamp, message)

    def _take(self, topic: str, stamp: int, message: Any) -> Iterator[Step]:
        if self.plan.events is not None and topic == self.plan.events.name:
            yield from self._event(message)
            return
        if self.plan.frame is not None and topic == self.plan.frame.name and self.facts.mode == "frame":
            yield from self._whole_frame(message)
            return
        if self.plan.edge is not None and topic == self.plan.edge.name:
            self._edge(stamp, message)
        if self.plan.shapes is not None and topic == self.plan.shapes.name:
            try:
                self._shapes.update(msg.object_shapes(message))
            except ValueError as error:
                self.facts.refuse(f"{topic}: malformed messages", str(error))
            return
        self._data(topic, stamp, message)
        if len(self._pending) >= _BATCH or (self._pending and self._field is None):
            yield from self._give()

    def _data(self, topic: str, stamp: int, message: Any) -> None:
        """One message of an input."""
        for source in self._by_topic.get(topic, ()):
            try:
                values = self._convert.values(source, stamp, message)
            except ValueError as error:
                self.facts.refuse(f"{topic}: malformed messages", str(error))
                continue
            for key, value in values:
                self._push(key, stamp, value)

    def _push(self, key: str, stamp: int, value: Any) -> None:
        if self._assembler is None:
            self._early.append((key, stamp, value))
            if len(self._early) > 4096:
                del self._early[0]
            return
        if key not in self._keys:
            return
        if self.plan.mapping.rate > 0 and self.facts.mode == "hold":
            self._pending += self._assembler.push(key, stamp, value, self._clock_ns)
            if self._clock_ns:
                self._pending += self._assembler.poll(self._clock_ns)
        else:
            self._pending += self._assembler.push(key, stamp, value)
        if self._assembler.counts:
            self._take_faults()

    def _take_faults(self) -> None:
        assert self._assembler is not None
        for fault in self._assembler.take_faults():
            if fault.kind == "stale" and self.facts.mode == "hold" and not self.facts.frames and not self._pending:
                continue  # before the first frame nothing is expected yet
            self.facts.refuse(f"{fault.topic}: {fault.kind.replace('_', ' ')}", fault.detail)

    def _give(self) -> Iterator[Step]:
        """Hands the frames that wait to the segmenter, with the obstacles of the map."""
        frames, self._pending = self._pending, []
        if frames and self._field is not None:
            frames = self._field.add(frames)
        if self._shapes:
            frames = [with_distances(frame, self._footprint, self._shapes) for frame in frames]
        for frame in frames:
            self.facts.frames += 1
            if self._segmenter is None:
                self._segmenter = self._make_segmenter(frame)
            if frame.stamp_ns < self._last_frame_ns:
                yield from self._segmenter.finish("the clock was set back")
            self._last_frame_ns = frame.stamp_ns
            yield from self._segmenter.push(frame)

    # -- episodes ------------------------------------------------------------------------------------------------------

    def _make_segmenter(self, first: RawFrame) -> MessageSegmenter | RuleSegmenter:
        rule, given = self.plan.mapping.episodes, self.plan.mapping.info
        if rule.by == "message" or (rule.by == "auto" and (self.plan.events is not None or self.facts.mode == "frame")):
            return MessageSegmenter(max_waiting=1 << 16)
        robot = self.plan.robot
        info = EpisodeInfo(
            episode_id=self._name,
            task=given.task,
            suite=given.suite,
            policy=given.policy,
            robot=robot.name if robot is not None else "",
            instruction=given.instruction,
            seed=given.seed,
            templates=given.templates,
            tags=given.tags,
            sources=(*self.plan.parts, *(("objects",) if self._field is not None else ())),
            attributes=given.attributes,
        )
        longest = round(rule.longest * SECOND)
        if rule.by == "edge":
            return by_edge(info, self._edge_at, longest)
        if rule.by == "times":
            start = first.stamp_ns
            self._spans = [(_absolute(t.start, start), _absolute(t.end, start), t) for t in rule.times]
            return by_times(info, [(start, end) for start, end, _ in self._spans], longest)
        return whole(info) if rule.by == "whole" else by_gap(info, round(rule.gap * SECOND), longest)

    def _event(self, message: Any) -> Iterator[Step]:
        try:
            event, provenance = msg.episode_event(message)
        except ValueError as error:
            self.facts.refuse(f"{self.plan.events.name if self.plan.events else ''}: malformed messages", str(error))
            return
        yield from self._give()
        if self._segmenter is None:
            self._segmenter = MessageSegmenter(max_waiting=1 << 16)
        if isinstance(event, Begin):
            session = msg.frame_of(message)
            restarted = bool(self._session) and session != self._session
            if restarted or event.stamp_ns < self._last_frame_ns:
                yield from self._segmenter.finish("the source was restarted" if restarted else "the clock was set back")
                self._segmenter = MessageSegmenter(max_waiting=1 << 16)
                self._last_frame_ns = 0
                if self._assembler is not None:
                    self._assembler.reset()
            self._session = session
            if self.facts.mode == "exact":
                self._configure(event.info.sources)
            self.facts.source = provenance
        yield from self._segmenter.event(event)
        yield from self._give()

    def _whole_frame(self, message: Any) -> Iterator[Step]:
        try:
            frame = message.value if isinstance(message, Decoded) else msg.raw_frame(message)
        except ValueError as error:
            self.facts.refuse(f"{self.plan.frame.name if self.plan.frame else ''}: malformed messages", str(error))
            return
        self._pending.append(frame)
        if self.plan.events is None:
            yield from self._by_id(message, frame)
        yield from self._give()

    def _by_id(self, message: Any, frame: RawFrame) -> Iterator[Step]:
        """Episodes by the id that each frame carries, where no event was recorded."""
        if message.episode_id == self._session and self._segmenter is not None:
            return
        self._session = message.episode_id
        if self._segmenter is None:
            self._segmenter = MessageSegmenter(max_waiting=1 << 16)
        yield from self._segmenter.finish("frames of another episode follow")
        # a first frame that is not the episode's first makes the record partial
        start = frame.stamp_ns if message.step == 0 else frame.stamp_ns - 1
        yield from self._segmenter.event(Begin(start, EpisodeInfo(message.episode_id, sources=())))

    def _edge(self, stamp: int, message: Any) -> None:
        rule = self.plan.mapping.episodes
        try:
            value = msg.number(message, rule.field)
        except ValueError as error:
            self.facts.refuse(f"{self.plan.edge.name if self.plan.edge else ''}: malformed messages", str(error))
            return
        self._edges.append((stamp, value > rule.above))
        if len(self._edges) > 4096:
            del self._edges[:1024]

    def _edge_at(self, frame: RawFrame) -> bool | None:
        at = bisect_right(self._edges, (frame.stamp_ns, True))
        return self._edges[at - 1][1] if at else None

    # -- inputs --------------------------------------------------------------------------------------------------------

    def _primary_topic(self) -> str:
        if self.plan.mapping.rate > 0:
            return ""
        wanted = self.plan.mapping.primary
        robot = self.plan.robot
        for source in self.plan.sources:
            if source.part == wanted or source.topic.name == wanted:
                return source.topic.name
        if not wanted and robot is not None:
            named = [s.topic.name for s in self.plan.sources if s.spec.topic == robot.primary]
            if named:
                return named[0]
        return self.plan.sources[0].topic.name if self.plan.sources else ""

    def _configure(self, parts: tuple[str, ...]) -> None:
        """An assembler for the parts that a START names (exact), or for all (hold)."""
        if self._assembled == parts and self._assembler is not None:
            return
        self._assembled = parts
        mode = "exact" if self.facts.mode == "exact" else "hold"
        inputs = []
        for source in self.plan.sources:
            if parts and source.part not in parts:
                continue
            limit = source.rule.age_limit if source.rule.age_limit is not None else source.spec.age_limit
            inputs.append(Input(source.part, source.topic.name, round(limit * SECOND), source.spec.peak_hold))
        for source in self.plan.sources:
            if source.part == "joints" and self._convert.grips(source):
                inputs.append(Input("gripper", source.topic.name + GRIPPER, round(source.spec.age_limit * SECOND)))
        self._keys = frozenset(i.key for i in inputs)
        rate = self.plan.mapping.rate
        self._assembler = _QuickAssembler(
            AssemblyConfig(
                tuple(inputs),
                "exact" if mode == "exact" else "hold",
                primary="" if rate > 0 or mode == "exact" else self._primary_topic(),
                period_ns=round(SECOND / rate) if rate > 0 else SECOND // 20,
            )
        )
        early, self._early = self._early, []
        for key, stamp, value in early:
            self._push(key, stamp, value)


class _QuickAssembler(FrameAssembler):
    """The same frames sooner: while one frame alone is open, nothing but its completion can decide anything."""

    def __init__(self, config: AssemblyConfig) -> None:
        super().__init__(config)
        parts = {i.key: i.part for i in config.inputs}
        self._parts = parts if len(set(parts.values())) == len(parts) else {}

    def push(self, topic: str, stamp_ns: int, value: Any, now_ns: int | None = None) -> list[RawFrame]:
        """As the assembler's own. A value for the one open frame needs none of its other checks."""
        if self._missed or self._behind or self.config.mode != "exact" or len(self._pending) != 1:
            return super().push(topic, stamp_ns, value, now_ns)
        pending = self._pending.get(stamp_ns)
        if pending is None or topic in pending.values or self._newest.get(topic, 0) >= stamp_ns:
            return super().push(topic, stamp_ns, value, now_ns)
        self._newest[topic] = stamp_ns
        values = pending.values
        values[topic] = value
        if len(values) < len(self._inputs):
            return []
        if not self._parts:  # several inputs of one part are merged
            return self._close_up_to(stamp_ns)
        self._pending.clear()
        self.last_stamp_ns = stamp_ns
        return [RawFrame(stamp_ns, **{part: values[key] for key, part in self._parts.items()})]


def _absolute(seconds: float, first_ns: int) -> int:
    offset = round(seconds * SECOND)
    return offset if seconds >= _EPOCH_SECONDS else first_ns + offset


class _Progress:
    """Calls back at once, and then twice a second at most."""

    def __init__(self, recording: Recording, call: OnProgress | None) -> None:
        self._span, self._call = recording.span, call
        self._start = self._span[0] if self._span else 0
        self._next = 0.0
        self._messages = 0
        self._seconds = 0.0
        if call is not None:
            call(0.0 if self._span else float("nan"), 0.0)

    def at(self, received: int) -> None:
        if self._call is None:
            return
        self._messages += 1
        if self._messages % 256:
            return
        self._start = self._start or received
        self._seconds = (received - self._start) / 1e9
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.5
            whole = (self._span[1] - self._span[0]) / 1e9 if self._span else 0.0
            self._call(min(self._seconds / whole, 1.0) if whole else float("nan"), self._seconds)

    def done(self) -> None:
        if self._call is not None:
            self._call(1.0, self._seconds)
