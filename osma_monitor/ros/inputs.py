"""Topics to frames and episodes: subscriptions, conversion, assembly, segmentation. Used by the monitor and by
policies.

A START event names the raw parts that its source publishes each step; those inputs are joined by stamp. Values that
arrive before the first START wait for it. What cannot be converted is counted by topic and kind, and said once.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState

from osma_monitor.core.segmenter import Begin, End, MessageSegmenter, Segmenter, Step
from osma_monitor.core.signals.assembler import AssemblyConfig, Fault, FrameAssembler, Input
from osma_monitor.core.signals.raw import PARTS, RawFrame
from osma_monitor.io.bag.cdr import Decoded, fast_decoder
from osma_monitor.msg import Contacts, EpisodeEvent, GripperState, ObjectStates
from osma_monitor.ros import conversions, topics
from osma_monitor.ros.diagnostics import InputReport
from osma_monitor.ros.quality import DeadlineWatch, Reading, choose, first_reading
from osma_monitor.ros.text import printable

RMWError = rclpy_implementation.RMWError
SECOND = 1_000_000_000
_WIDEST = 4  #: numbers an element has at most in a flat array (a quaternion)

#: Raw part -> (message type, conversion of the message to the part).
PART_TYPES: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "base": (Odometry, conversions.odometry_to_base),
    "joints": (JointState, conversions.state_to_joints),
    "ee": (PoseStamped, conversions.pose_to_ee),
    "gripper": (GripperState, conversions.msg_to_gripper),
    "contacts": (Contacts, conversions.msg_to_contacts),
    "objects": (ObjectStates, conversions.msg_to_objects),
}


Values = Iterable[tuple[str, Any]]  #: (assembler input, value) pairs


@dataclass(frozen=True)
class TopicInput:
    """A topic that gives a raw part."""

    part: str
    topic: str
    kind: type  #: message type
    convert: Callable[[Any], Any]  #: what a message says of the part
    place: Callable[[Decoded], Values]  #: the same as inputs of the assembler, in its frame and units
    deadline: float = 0.0  #: s, in place of the receiver's; 0: the receiver's

    @property
    def type_name(self) -> str:
        """Such as ``nav_msgs/msg/Odometry``."""
        return f"{self.kind.__module__.split('.')[0]}/msg/{self.kind.__name__}"

    def sample(self, message: Any) -> Decoded:
        """What a message says, and of when and in which frame."""
        return Decoded(conversions.to_ns(message.header.stamp), message.header.frame_id, self.convert(message))

    def values(self, message: Any) -> Values:
        """What a message gives the assembler."""
        return self.place(self.sample(message))


def default_inputs() -> tuple[TopicInput, ...]:
    """The topics of docs/topics.md, one a part."""

    def make(part: str) -> TopicInput:
        topic = topics.PART_TOPICS[part]
        return TopicInput(part, topic, *PART_TYPES[part], lambda sample: ((topic, sample.value),))

    return tuple(make(part) for part in PARTS)


@dataclass(frozen=True)
class ReceiverConfig:
    """How a receiver joins its inputs. Times in nanoseconds."""

    inputs: tuple[TopicInput, ...] = field(default_factory=default_inputs)
    sources: tuple[str, ...] = ()  #: parts to wait for when a START names none; empty: those with a publisher
    complete: Callable[[RawFrame], RawFrame] | None = None  #: adds what no message says (distances, mapped obstacles)
    assembly: AssemblyConfig | None = None  #: None: exact joins of what the source declares
    start_grace: float = 1.0  #: s that the first frame waits for inputs that have not come yet
    frame_timeout_ns: int = 5 * SECOND  #: exact joins: an incomplete frame is given up
    end_timeout_ns: int = 2 * SECOND  #: frames that an END promised are given up
    clock_limit_ns: int = 0
    reliability: str = "auto"  #: auto, reliable or best_effort
    depth: int = topics.DEPTH
    deadline: float = 0.0  #: s in which each input's next message is due; 0: none
    max_waiting: int = 2048  #: values kept while no START is known
    max_elements: int = 20_000  #: of an array in a message
    max_text: int = 4096  #: characters of a text in a message


@lru_cache(maxsize=64)
def _sized_fields(kind: type) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Names of a message type's texts, arrays of numbers, and arrays of texts."""
    types = kind.get_fields_and_field_types()  # type: ignore[attr-defined]
    texts = tuple(n for n, t in types.items() if t == "string")
    arrays = tuple(n for n, t in types.items() if t.startswith("sequence<") and t != "sequence<string>")
    return texts, arrays, tuple(n for n, t in types.items() if t == "sequence<string>")


def check_size(message: Any, max_elements: int, max_text: int) -> None:
    """Raises MalformedMessage on arrays or texts above the limits: a broken sender must not fill our memory."""
    texts, arrays, text_arrays = _sized_fields(type(message))  # type: ignore[arg-type]
    header = getattr(message, "header", None)
    if header is not None and len(header.frame_id) > max_text:
        raise conversions.MalformedMessage(f"frame_id has more than {max_text} characters")
    for name in texts:
        if len(getattr(message, name)) > max_text:
            raise conversions.MalformedMessage(f"{name} has more than {max_text} characters")
    for name in arrays:
        if len(getattr(message, name)) > max_elements * _WIDEST:
            raise conversions.MalformedMessage(f"{name} has {len(getattr(message, name))} elements")
    for name in text_arrays:
        values = getattr(message, name)
        if len(values) > max_elements:
            raise conversions.MalformedMessage(f"{name} has {len(values)} elements")
        if values and len(max(values, key=len)) > max_text:
            raise conversions.MalformedMessage(f"{name} has a text of more than {max_text} characters")


def _check_part(sample: Decoded, max_elements: int, max_text: int) -> None:
    """As :func:`check_size`, for what was decoded without a message."""
    if len(sample.frame_id) > max_text:
        raise conversions.MalformedMessage(f"frame_id has more than {max_text} characters")
    for spec in fields(sample.value):
        values = getattr(sample.value, spec.name)
        if len(values) > max_elements:
            raise conversions.MalformedMessage(f"{spec.name} has {len(values)} elements")
        if isinstance(values, tuple) and values and len(max(values, key=len)) > max_text:
            raise conversions.MalformedMessage(f"{spec.name} has a text of more than {max_text} characters")


#: Parts of any size, none of whose texts is left out when they are decoded without a message.
_SIZED_PARTS = {"joints", "contacts", "objects"}


def bytes_reader(item: TopicInput, max_elements: int, max_text: int) -> Callable[[bytes], Decoded] | None:
    """How the bytes of an input's messages are read without making messages; None where there is no such way.

    What the short way cannot read goes through a message, to equal results. Raises what a bad message leads to.
    """

    def by_message(data: bytes) -> Decoded:
        message = deserialize_message(data, item.kind)
        check_size(message, max_elements, max_text)
        return item.sample(message)

    if item.part == "base" and item.kind is not Odometry:
        return None  # the short way takes a pose for that of the end effector
    read = fast_decoder(item.type_name, by_message)
    if read is None:
        return None
    small = min(max_elements, max_text)  # in fewer bytes nothing can be too large

    def sample(data: bytes) -> Decoded:
        if len(data) <= small:
            return read(data)
        if item.part not in _SIZED_PARTS:
            return by_message(data)
        found: Decoded = read(data)
        _check_part(found, max_elements, max_text)
        return found

    return sample


class FrameReceiver:
    """Gives :class:`Begin`, RawFrame and :class:`End` to ``on_step`` in order.

    ``on_repeat(stamp_ns)`` is called when a frame that was given already is sent again: lock-step wants its answer
    once more. ``segmenter`` makes the rule by which episodes begin and end; a source that restarts gets a fresh one.
    """

    def __init__(
        self,
        node: Node,
        on_step: Callable[[Step], None],
        config: ReceiverConfig | None = None,
        on_repeat: Callable[[int], None] | None = None,
        segmenter: Callable[[], Segmenter] | None = None,
    ) -> None:
        self.config = config or ReceiverConfig()
        self.counts: Counter[str] = Counter()  #: what was refused before assembly, by "topic: kind"
        self._told: set[tuple[str, str]] = set()  #: topics and kinds of assembly faults that were logged
        self.received: Counter[str] = Counter()
        self.last_received: dict[str, float] = {}
        self._sim_time = bool(node.has_parameter("use_sim_time") and node.get_parameter("use_sim_time").value)
        self.frames = 0
        self._rate_time, self._rate_frames = time.monotonic(), 0
        self.provenance: Mapping[str, str] = {}  #: of the latest START
        self.end_notes: tuple[str, tuple[str, ...]] = (
            "",
            (),
        )  #: episode that its source cut off, and what it says of it
        self._promised: tuple[int, int] | None = None  #: until when an END waits for frames up to which stamp, ns
        self.last_stamp_ns = 0
        self._node, self._on_step, self._on_repeat = node, on_step, on_repeat
        self._make_segmenter = segmenter or (lambda: MessageSegmenter(timeout_ns=self.config.end_timeout_ns))
        self.segmenter: Segmenter = self._make_segmenter()
        self.assembler: FrameAssembler | None = None
        self._sources: tuple[str, ...] = ()  #: parts that are assembled
        self._declared: tuple[str, ...] = ()  #: what the latest START said
        self._repeat_topic = ""
        self._session = ""
        self._latest_start: Begin | None = None  #: whose END has not come
        self._waiting: deque[tuple[TopicInput, str, int, Any]] = deque()
        self._inputs = {i.topic: i for i in self.config.inputs}
        self._subscriptions: dict[str, Any] = {}
        self.qos_notes: dict[str, str] = {}
        self.qos_warnings: dict[str, str] = {}
        self.deadlines = DeadlineWatch()
        self._readings: dict[str, Reading] = {}
        for item in self.config.inputs:
            self._subscribe(item, first_reading(self.config.reliability, self._deadline_ns(item)))
        self._event_subscription = node.create_subscription(
            EpisodeEvent, topics.EPISODE, self._event, topics.latched(topics.EVENT_READ_DEPTH)
        )
        self._first_value = 0.0
        self._unseen: set[str] = set()
        if self.config.assembly is not None:
            self._unseen = {i.topic for i in self.config.inputs}
            self._sources = tuple({i.part for i in self.config.assembly.inputs})
            self._use(replace(self.config.assembly, clock_limit_ns=self.config.clock_limit_ns))
        elif self.config.sources:
            self._configure(self.config.sources)

    def destroy(self) -> None:
        """Stop listening."""
        for subscription in [*self._subscriptions.values(), self._event_subscription]:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    # -- subscriptions -------------------------------------------------------------------------------------------

    def _deadline_ns(self, item: TopicInput) -> int:
        return round((item.deadline or self.config.deadline) * SECOND)

    def _subscribe(self, item: TopicInput, reading: Reading) -> None:
        period = self._deadline_ns(item) / SECOND
        limits = self.config.max_elements, self.config.max_text
        read = bytes_reader(item, *limits)

        def sample(message: Any) -> Decoded:
            check_size(message, *limits)
            return item.sample(message)

        take = partial(self._value, item, read or sample)

        def take_timed(message: Any) -> None:
            self.deadlines.heard(item.topic, period, time.monotonic())
            take(message)

        old = self._subscriptions.pop(item.topic, None)
        if old is not None:
            self._node.destroy_subscription(old)
        self._readings[item.topic] = reading
        self._subscriptions[item.topic] = self._node.create_subscription(
            item.kind,
            item.topic,
            take_timed if period else take,
            reading.profile(self.config.depth),
            raw=read is not None,
        )

    def check_publishers(self) -> dict[str, str]:
        """Looks at who publishes the inputs and adapts to them (``reliability: auto``). Returns problems by topic.

        A best-effort publisher never reaches a reliable reader, and DDS says nothing: this does.
        """
        problems: dict[str, str] = {}
        for topic, item in self._inputs.items():
            offered = self._node.get_publishers_info_by_topic(topic)
            choice = choose(self.config.reliability, self._deadline_ns(item), self._readings[topic], offered)
            if choice.reading != self._readings[topic]:
                self._subscribe(item, choice.reading)
            if choice.note:
                self.qos_notes[topic] = choice.note
            self.qos_warnings[topic] = choice.warning
            if choice.problem:
                problems[topic] = choice.problem
            foreign = sorted({p.topic_type for p in offered if p.topic_type != item.type_name})
            if foreign:
                problems[topic] = f"published as {', '.join(foreign)}, expected {item.type_name}"
        return problems

    def publisher_counts(self) -> dict[str, int]:
        """Publishers of each input topic that this node sees."""
        return {topic: self._node.count_publishers(topic) for topic in self._inputs}

    # -- values --------------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Receipt time: steady for exact joins, the clock of the stamps where frames are made at a fixed rate."""
        if self.config.assembly is None and not self.config.clock_limit_ns:
            return time.monotonic_ns()
        # the node's clock is slow to ask and, without simulation time, the system's
        return self._node.get_clock().now().nanoseconds if self._sim_time else time.time_ns()

    def _value(self, item: TopicInput, read: Callable[[Any], Decoded], message: Any) -> None:
        self.received[item.topic] += 1
        self.last_received[item.topic] = time.monotonic()
        try:
            sample = read(message)
            values = item.place(sample)
        except (ValueError, RMWError) as error:
            self.refuse(item.topic, "malformed", str(error))
            return
        except Exception as error:  # whatever a message holds, it must not end the node
            self.refuse(item.topic, f"not converted ({type(error).__name__})", str(error))
            return
        for key, value in values:
            if self.assembler is None:
                self._wait((item, key, sample.stamp_ns, value))
            else:
                self._push(item.part, key, sample.stamp_ns, value)

    def _wait(self, value: tuple[TopicInput, str, int, Any]) -> None:
        """Values wait for the first START; of too many the oldest go."""
        self._waiting.append(value)
        if len(self._waiting) > self.config.max_waiting:
            oldest = self._waiting.popleft()[0]
            limit = f"more than {self.config.max_waiting} values wait"
            self.refuse(oldest.topic, "dropped before a START", limit)

    def _push(self, part: str, topic: str, stamp_ns: int, value: Any) -> None:
        assembler = self.assembler
        assert assembler is not None
        if part not in self._sources or (self._unseen and self._too_early(topic)):
            return
        if stamp_ns == self.last_stamp_ns and self._on_repeat is not None and topic == self._repeat_topic:
            self.counts["repeated frames"] += 1
            self._on_repeat(stamp_ns)
            return
        now = self.now_ns()
        for frame in assembler.push(topic, stamp_ns, value, now):
            self._frame(frame, now)

    def _too_early(self, topic: str) -> bool:
        self._unseen.discard(topic)
        self._first_value = self._first_value or time.monotonic()
        assert self.config.assembly is not None
        return self._starting() and topic == self.config.assembly.primary

    def _starting(self) -> bool:
        """At start frames wait for every input, since an episode's clauses are chosen at its first frame.

        An input that has not come ``start_grace`` seconds after the first one is missing, and so reported.
        """
        if self._unseen and self._first_value and time.monotonic() - self._first_value > self.config.start_grace:
            self._unseen.clear()
        return bool(self._unseen)

    def _frame(self, frame: RawFrame, now: int) -> None:
        if self.config.complete is not None:
            try:
                frame = self.config.complete(frame)
            except Exception as error:  # the frame as it came still counts
                self.refuse("frames", f"not completed ({type(error).__name__})", str(error))
        if frame.stamp_ns <= self.last_stamp_ns:
            # the assembler has made sure that it is no single late message
            self.refuse("clock", "set back", f"from {self.last_stamp_ns} to {frame.stamp_ns} ns")
            self._new_segmenter("the clock was set back")
            if self._latest_start is not None and self._latest_start.stamp_ns <= frame.stamp_ns:
                self._give(self.segmenter.event(self._latest_start, now))  # a loop whose START came before its frames
        self.frames += 1
        self.last_stamp_ns = frame.stamp_ns
        self._give(self.segmenter.push(frame, now))

    def _give(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._on_step(step)

    def refuse(self, topic: str, kind: str, detail: str) -> None:
        """Count something that was refused; the first of each kind is logged."""
        key = printable(f"{topic}: {kind}")
        self.counts[key] += 1
        if self.counts[key] == 1:
            self._node.get_logger().warning(f"{key}: {printable(detail, 500)}; counted from now on")

    # -- episodes ------------------------------------------------------------------------------------------------

    def _event(self, message: EpisodeEvent) -> None:
        stamp_ns = conversions.to_ns(message.header.stamp)
        try:
            check_size(message, self.config.max_elements, self.config.max_text)
            info = conversions.msg_to_info(message)
            provenance = conversions.msg_to_provenance(message)
        except ValueError as error:
            self.refuse(topics.EPISODE, "malformed", str(error))
            return
        if message.event == EpisodeEvent.START:
            self.provenance = provenance
            self.begin(Begin(stamp_ns, info), session=message.header.frame_id)
        elif message.event == EpisodeEvent.END:
            outcome = conversions.msg_to_outcome(message)
            notes = conversions.cut_off_notes(provenance)
            if notes is not None:
                self.end_notes = (info.episode_id, tuple(printable(note, self.config.max_text) for note in notes))
            frames = conversions.published_frames(provenance)
            self.end(End(stamp_ns, outcome, info.episode_id, notes is None, info.attributes, frames))
        else:
            self.refuse(topics.EPISODE, "malformed", f"event is {message.event}, expected START (1) or END (2)")

    def begin(self, begin: Begin, session: str | None = None) -> None:
        """An episode begins. ``session`` names the process that publishes it; None: a person says so."""
        if session is not None and session != self._session:
            if self._session:
                self.restart("the source was restarted")
            self._session = session
        elif session is not None and not self.segmenter.running and begin.stamp_ns < self.last_stamp_ns - SECOND:
            # no repetition of a START comes after its END: this is a recording that is played again
            self.refuse("clock", "set back", f"{begin.info.episode_id!r} begins at {begin.stamp_ns} ns again")
            self.restart("the clock was set back")
        self._latest_start = begin
        sources = begin.info.sources or self.config.sources
        if self.config.assembly is None and (self.assembler is None or tuple(sources) != self._declared):
            self._configure(tuple(sources))
        self._give(self.segmenter.event(begin, self.now_ns()))

    def end(self, end: End) -> None:
        """An episode ends."""
        self._latest_start = None
        now = self.now_ns()
        self._promised = (now + self.config.end_timeout_ns, end.stamp_ns)
        self._give(self.segmenter.event(end, now))

    def restart(self, reason: str) -> None:
        """Forget stamps and episodes: the running one ends incomplete, unless a pause has ended it by now."""
        self._give(self.segmenter.poll(self.now_ns(), stopping=True))
        self._new_segmenter(reason)
        self.last_stamp_ns = 0
        if self.assembler is not None:
            self.assembler.reset()

    def _new_segmenter(self, reason: str) -> None:
        # a rule would call this a regular end; what interrupts a source is none
        self._give([replace(s, complete=False) if isinstance(s, End) else s for s in self.segmenter.finish(reason)])
        self._promised = None
        counts = self.segmenter.counts
        self.segmenter = self._make_segmenter()
        self.segmenter.counts.update(counts)

    def _configure(self, sources: tuple[str, ...]) -> None:
        """Make the assembler for what the source declares, or for what has a publisher where it declares nothing."""
        offered = {i.part for i in self.config.inputs}
        for name in sorted(set(sources) - offered):
            self.refuse(topics.EPISODE, "source without input", f"{name!r}, expected some of {', '.join(PARTS)}")
        self._declared = sources
        self._sources = tuple(s for s in sources if s in offered) or tuple(
            dict.fromkeys(i.part for i in self.config.inputs if self._node.count_publishers(i.topic) > 0)
        )
        inputs = [i for i in self.config.inputs if i.part in self._sources]
        self._repeat_topic = inputs[0].topic if inputs else ""
        self._use(
            AssemblyConfig(
                inputs=tuple(Input(i.part, i.topic) for i in inputs),
                timeout_ns=self.config.frame_timeout_ns,
                clock_limit_ns=self.config.clock_limit_ns,
            )
        )

    def _use(self, assembly: AssemblyConfig) -> None:
        old, self.assembler = self.assembler, FrameAssembler(assembly)
        if old is not None:
            self.assembler.counts.update(old.counts)
        waiting, self._waiting = self._waiting, deque()
        for item, key, stamp_ns, value in waiting:
            self._push(item.part, key, stamp_ns, value)

    def poll(self) -> None:
        """Let time pass: incomplete frames, promised frames, fixed rate. Call a few times a second, or at the frame
        rate.
        """
        now = self.now_ns()
        if self.assembler is not None and not self._starting():
            for frame in self.assembler.poll(now):
                self._frame(frame, now)
            # what is still incomplete when an END gives up waiting belongs to its episode as it is
            if self._promised is not None and now >= self._promised[0]:
                for frame in self.assembler.flush(self._promised[1]):
                    self._frame(frame, now)
                self._promised = None
            self._tell(self.assembler.take_faults())
        self._give(self.segmenter.poll(now))

    def _tell(self, faults: Iterable[Fault]) -> None:
        """Log the first of each kind with its topic, which the counts do not name."""
        for fault in faults:
            if (fault.topic, fault.kind) not in self._told:
                self._told.add((fault.topic, fault.kind))
                what = fault.kind.replace("_", " ") + (f" ({fault.detail})" if fault.detail else "")
                self._node.get_logger().warning(f"{fault.topic}: {what}; counted from now on")

    def rate(self) -> float:
        """Frames a second since the last call."""
        now = time.monotonic()
        seconds, self._rate_time = now - self._rate_time, now
        frames, self._rate_frames = self.frames - self._rate_frames, self.frames
        return frames / seconds if seconds > 0 else 0.0

    def reports(self, problems: Mapping[str, str]) -> list[InputReport]:
        """What is known of each input, for the diagnostics."""
        now = time.monotonic()
        self.deadlines.look(now)
        publishers = self.publisher_counts()
        return [
            InputReport(
                topic,
                item.part,
                item.part in self._sources,
                publishers[topic],
                self.received[topic],
                now - self.last_received[topic] if topic in self.last_received else None,
                self.qos_notes.get(topic, ""),
                problems.get(topic, ""),
                self.qos_warnings.get(topic, ""),
                self._deadline_ns(item) / SECOND,
                self.deadlines.missed[topic],
            )
            for topic, item in self._inputs.items()
        ]

    def all_counts(self) -> Mapping[str, int]:
        """Everything that was refused so far: malformed messages, assembly faults, frames outside episodes."""
        total: Counter[str] = Counter(self.counts)
        if self.assembler is not None:
            total.update({f"frames: {kind}": n for kind, n in self.assembler.counts.items()})
        total.update({f"episodes: {kind}": n for kind, n in self.segmenter.counts.items()})
        return total
