"""Stamped inputs to RawFrames: pure code, used live and offline.

Two modes. ``exact`` joins values of equal stamps (simulation, bags of it). ``hold`` evaluates at each sample of a
primary input, or at
a fixed rate, and holds the latest value of every other input up to its own age limit (hardware).

A value belongs to the frame of its header stamp. Receipt time never decides what a frame holds, only when a frame that
lacks an input is given up (``timeout_ns``): an exact frame closes once every input has delivered its stamp or a
later one, so the order in which topics interleave does not matter. Peak-held values (contact force, joint effort)
belong to (t - T, t].

Nothing is dropped in silence: what is refused becomes a :class:`Fault` and is counted by kind.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from osma_monitor.core.signals.raw import Contacts, Joints, Objects, RawFrame

SECOND = 1_000_000_000

FaultKind = Literal["zero_stamp", "duplicate", "late", "clock_jump", "foreign_clock", "incomplete", "stale", "overflow"]


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the assembler: a topic that gives a raw part. Several topics may give the same part."""

    part: str  #: base, joints, ee, gripper, contacts or objects
    topic: str = ""  #: distinguishes inputs of the same part; the part's name when empty
    age_limit_ns: int = SECOND // 2  #: hold mode: an older value is stale, its part absent
    peak_hold: bool = True  #: hold mode: keep the peak since the last frame (contacts, joint effort)

    @property
    def key(self) -> str:
        return self.topic or self.part


@dataclass(frozen=True, slots=True)
class AssemblyConfig:
    """How inputs become frames. Times in nanoseconds."""

    inputs: tuple[Input, ...]
    mode: Literal["exact", "hold"] = "exact"
    primary: str = ""  #: hold mode: key of the input whose samples make frames; empty: fixed rate
    period_ns: int = SECOND // 20  #: hold mode without primary: one frame each period
    timeout_ns: int = (
        SECOND // 2
    )  #: exact mode: give up an incomplete frame this long after its first value was received
    silent_after: int = (
        3  #: exact mode: an input that let this many time-outs pass is not waited for until it speaks again
    )
    jump_ns: int = SECOND  #: a stamp this far behind the last frame is a clock set back, not a late message
    jump_samples: int = 3  #: this many of them in a row reset the assembler
    clock_limit_ns: int = (
        0  #: a stamp further than this from the receipt time has another clock (boot time); 0: not checked
    )
    max_pending: int = 256  #: values or frames kept waiting at most


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was refused or is missing, for diagnostics."""

    kind: FaultKind
    topic: str
    stamp_ns: int
    detail: str = ""


@dataclass
class _Pending:
    received_ns: int
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Held:
    """What hold mode keeps of one input."""

    spec: Input
    fresh: deque[tuple[int, Any]] = field(default_factory=deque)  #: (stamp, value) that no frame has looked at yet
    stamp_ns: int = 0  #: of the latest value that a frame looked at; 0: none
    value: Any = None
    stale: bool = False


class FrameAssembler:
    """Feed samples with :meth:`push`, time with :meth:`poll`; take frames in stamp order.

    >>> from osma_monitor.core.signals.raw import NO_CONTACTS
    >>> assembler = FrameAssembler(AssemblyConfig((Input("gripper"), Input("contacts"))))
    >>> assembler.push("gripper", 1_000_000_000, True)
    []
    >>> [frame.parts for frame in assembler.push("contacts", 1_000_000_000, NO_CONTACTS)] == [{"gripper", "contacts"}]
    True
    """

    def __init__(self, config: AssemblyConfig) -> None:
        keys = [i.key for i in config.inputs]
        if len(set(keys)) != len(keys):
            raise ValueError(f"inputs with the same topic: {sorted(k for k in keys if keys.count(k) > 1)}")
        if config.mode == "hold" and config.primary and config.primary not in keys:
            raise ValueError(f"primary input {config.primary!r} is none of {keys}")
        self.config = config
        self.counts: Counter[FaultKind] = Counter()
        # in the order in which several topics of one part are joined
        self._inputs = {i.key: i for i in sorted(config.inputs, key=lambda i: i.key)}
        self._faults: deque[Fault] = deque(maxlen=config.max_pending)
        self.reset()

    def reset(self) -> None:
        """Forget all values and stamps (a new episode on a clock that was set back); counts stay."""
        self.last_stamp_ns = 0  #: stamp of the last frame that was given out
        self._newest: dict[str, int] = {}
        self._behind: dict[str, list[int]] = {}
        self._pending: dict[int, _Pending] = {}
        self._missed: Counter[str] = Counter()
        self._held = {key: _Held(spec) for key, spec in self._inputs.items()}

    def take_faults(self) -> tuple[Fault, ...]:
        """Faults since the last call, oldest first."""
        faults = tuple(self._faults)
        self._faults.clear()
        return faults

    def push(self, topic: str, stamp_ns: int, value: Any, now_ns: int | None = None) -> list[RawFrame]:
        """Take one value; give the frames that it closes, in stamp order. ``now_ns`` is the receipt time (the stamp
        if not given)."""
        if topic not in self._inputs:
            raise KeyError(f"unknown input {topic!r}; expected one of {sorted(self._inputs)}")
        now = stamp_ns if now_ns is None else now_ns
        forward = stamp_ns > self._newest.get(topic, 0) and stamp_ns > self.last_stamp_ns
        if forward and not (self.config.clock_limit_ns or self._behind or self._missed):
            self._newest[topic] = stamp_ns  # the usual case of the next line
        elif not self._accept(topic, stamp_ns, now):
            return []
        if self.config.mode == "exact":
            return self._push_exact(topic, stamp_ns, value, now)
        return self._push_hold(topic, stamp_ns, value)

    def poll(self, now_ns: int) -> list[RawFrame]:
        """Let time pass: gives up incomplete frames (exact), makes the frames that are due (fixed rate)."""
        if self.config.mode == "exact":
            due = [s for s, p in self._pending.items() if now_ns - p.received_ns >= self.config.timeout_ns]
            if not due:
                return []
            for key in self._inputs:
                if any(key not in self._pending[s].values for s in due):
                    self._missed[key] += 1
            return self._close_up_to(max(due))
        if self.config.primary:
            return []
        frames = []
        period = self.config.period_ns
        start = self.last_stamp_ns or (now_ns // period * period - period)
        newest = max(self._newest.values(), default=0)
        # after a pause without any input only the latest tick is made: the gap is for the segmenter to see
        if now_ns - start > self.config.max_pending * period:
            start = now_ns // period * period - period
        for tick in range(start + period, now_ns + 1, period):
            if newest:
                frames.append(self._hold_frame(tick))
        return frames

    def flush(self, stamp_ns: int | None = None) -> list[RawFrame]:
        """Close every pending frame (up to ``stamp_ns``) as it is: the end of an episode or of a bag."""
        due = [s for s in self._pending if stamp_ns is None or s <= stamp_ns]
        return self._close_up_to(max(due)) if due else []

    # -- stamps ------------------------------------------------------------------------------------------------

    def _fault(self, kind: FaultKind, topic: str, stamp_ns: int, detail: str = "") -> None:
        self.counts[kind] += 1
        self._faults.append(Fault(kind, topic, stamp_ns, detail))

    def _accept(self, topic: str, stamp_ns: int, now_ns: int) -> bool:
        if stamp_ns <= 0:
            self._fault("zero_stamp", topic, stamp_ns)
            return False
        limit = self.config.clock_limit_ns
        if limit and abs(now_ns - stamp_ns) > limit:
            self._fault("foreign_clock", topic, stamp_ns, f"{(now_ns - stamp_ns) / SECOND:.3f} s from the receipt time")
            return False
        newest = max(self.last_stamp_ns, self._newest.get(topic, 0))
        if newest - stamp_ns > self.config.jump_ns:
            return self._set_back(topic, stamp_ns, now_ns, newest)
        self._behind.pop(topic, None)
        if stamp_ns == self._newest.get(topic):
            self._fault("duplicate", topic, stamp_ns)
            return False
        if stamp_ns <= self.last_stamp_ns and not self._holds(topic):
            self._fault("late", topic, stamp_ns)
            return False
        if stamp_ns < self._newest.get(topic, 0) and (self.config.mode == "hold" or stamp_ns not in self._pending):
            self._fault("late", topic, stamp_ns)
            return False
        self._newest[topic] = max(stamp_ns, self._newest.get(topic, 0))
        self._missed.pop(topic, None)
        return True

    def _holds(self, topic: str) -> bool:
        # hold mode: a value older than the last frame still serves the next one, a primary sample does not
        return self.config.mode == "hold" and topic != self.config.primary

    def _set_back(self, topic: str, stamp_ns: int, now_ns: int, newest: int) -> bool:
        """A stamp far behind: one is late, several in a row mean that a clock was set back.

        Where one clock makes the frames (the primary input's; at a fixed rate that of receipt), it alone can make all
        begin anew: a sensor that is stamped by boot time is late for ever, and must not make the others forget what
        they hold. One whose own stamps had run ahead, and are now those of the frames again, begins anew alone.
        """
        run = self._behind.setdefault(topic, [])
        if run and stamp_ns <= run[-1]:
            run.clear()
        run.append(stamp_ns)
        del run[: -self.config.jump_samples]
        every = self._sets_clock(topic, now_ns)
        alone = not every and stamp_ns > self.last_stamp_ns - self.config.jump_ns
        if len(run) < self.config.jump_samples or not (every or alone):
            self._fault("late", topic, stamp_ns, f"{(newest - stamp_ns) / SECOND:.3f} s behind")
            return False
        self._fault("clock_jump", topic, stamp_ns, f"set back by {(newest - stamp_ns) / SECOND:.3f} s")
        if every:
            self.reset()
        else:
            self._held[topic] = _Held(self._inputs[topic])
            del self._behind[topic]
        self._newest[topic] = stamp_ns
        return True

    def _sets_clock(self, topic: str, now_ns: int) -> bool:
        """Whether a topic's stamps far behind mean that the clock of the frames was set back."""
        if self.config.mode == "exact" or self.config.primary:
            return not self.config.primary or topic == self.config.primary
        return self.last_stamp_ns - now_ns > self.config.jump_ns

    # -- exact -------------------------------------------------------------------------------------------------

    def _push_exact(self, topic: str, stamp_ns: int, value: Any, now_ns: int) -> list[RawFrame]:
        pending = self._pending.get(stamp_ns)
        if pending is None:
            pending = self._pending[stamp_ns] = _Pending(now_ns)
        if topic in pending.values:
            self._fault("duplicate", topic, stamp_ns)
            return []
        pending.values[topic] = value
        # per topic stamps only grow: once every input has reached t, nothing more can come for t
        awaited = [key for key in self._inputs if self._missed[key] < self.config.silent_after]
        reached = min((self._newest.get(key, 0) for key in awaited), default=0)
        decided = [s for s, p in self._pending.items() if s <= reached or all(key in p.values for key in awaited)]
        frames = self._close_up_to(max(decided)) if decided else []
        if len(self._pending) > self.config.max_pending:
            self._fault("overflow", topic, stamp_ns, f"more than {self.config.max_pending} incomplete frames")
            frames += self._close_up_to(min(self._pending))
        return frames

    def _close_up_to(self, stamp_ns: int) -> list[RawFrame]:
        frames = []
        for stamp in sorted(s for s in self._pending if s <= stamp_ns):
            values = self._pending.pop(stamp).values
            missing = [key for key in self._inputs if key not in values]
            if missing:
                self._fault("incomplete", ",".join(missing), stamp, "no value with this stamp")
            self.last_stamp_ns = stamp
            frames.append(
                self._frame(stamp, [(self._inputs[key], values[key]) for key in self._inputs if key in values])
            )
        return frames

    # -- hold --------------------------------------------------------------------------------------------------

    def _push_hold(self, topic: str, stamp_ns: int, value: Any) -> list[RawFrame]:
        held = self._held[topic]
        held.fresh.append((stamp_ns, value))
        if len(held.fresh) > self.config.max_pending:
            self._drop_oldest(held)
        return [self._hold_frame(stamp_ns)] if topic == self.config.primary else []

    def _drop_oldest(self, held: _Held) -> None:
        """Keep memory bounded without losing a peak: the two oldest become one."""
        (_, first), (stamp_ns, value) = held.fresh.popleft(), held.fresh.popleft()
        if held.spec.peak_hold:
            value = _peak(held.spec.part, [first, value])
        held.fresh.appendleft((stamp_ns, value))

    def _hold_frame(self, stamp_ns: int) -> RawFrame:
        values: list[tuple[Input, Any]] = []
        for held in self._held.values():
            spec, fresh = held.spec, held.fresh
            value = held.value
            if fresh and fresh[0][0] <= stamp_ns:
                held.stamp_ns, held.value = fresh.popleft()
                value = held.value
                if fresh and fresh[0][0] <= stamp_ns:
                    value = self._take_all(held, stamp_ns)
            elif not held.stamp_ns:
                continue
            if stamp_ns - held.stamp_ns > spec.age_limit_ns:
                if not held.stale:
                    self._fault("stale", spec.key, held.stamp_ns, f"older than {spec.age_limit_ns / SECOND:g} s")
                    held.stale = True
            else:
                held.stale = False
                values.append((spec, value))
        self.last_stamp_ns = stamp_ns
        return self._frame(stamp_ns, values)

    def _take_all(self, held: _Held, stamp_ns: int) -> Any:
        """Several values since the last frame. One that arrived too late for its own frame is among them: a peak is
        never lost."""
        several = [held.value]
        while held.fresh and held.fresh[0][0] <= stamp_ns:
            held.stamp_ns, held.value = held.fresh.popleft()
            several.append(held.value)
        return _peak(held.spec.part, several) if held.spec.peak_hold else held.value

    # -- merging -----------------------------------------------------------------------------------------------

    def _frame(self, stamp_ns: int, values: Iterable[tuple[Input, Any]]) -> RawFrame:
        parts: dict[str, list[Any]] = {}
        for spec, value in values:
            several = parts.get(spec.part)
            if several is None:
                parts[spec.part] = [value]
            else:
                several.append(value)
        return RawFrame(stamp_ns, **{part: _merge(part, several) for part, several in parts.items()})


def _peak(part: str, values: Sequence[Any]) -> Any:
    """The latest of ``values`` with the peaks of all: contact force by pair, joint effort by joint."""
    if len(values) == 1:
        return values[0]
    if part == "contacts":
        return peak_contacts(values)
    if part == "joints":
        return _peak_effort(values)
    if part == "objects":
        return _contact_held(values)
    return values[-1]


def peak_contacts(values: Iterable[Contacts]) -> Contacts:
    """Every pair of ``values`` once, with the force vector of its largest magnitude."""
    best: dict[tuple[str, str, str, str], tuple[float, Any]] = {}
    for contacts in values:
        f = contacts.force
        magnitude = np.sqrt(f[:, 0] * f[:, 0] + f[:, 1] * f[:, 1] + f[:, 2] * f[:, 2])
        for i, pair in enumerate(zip(contacts.body_a, contacts.body_b, contacts.role_a, contacts.role_b, strict=True)):
            seen = best.get(pair)
            # an unknown force (NaN) is kept: it may have been the peak
            if seen is None or np.isnan(magnitude[i]) or magnitude[i] > seen[0]:
                best[pair] = (float(magnitude[i]), f[i])
    if not best:
        return Contacts((), (), (), (), np.zeros((0, 3)))
    a, b, ra, rb = zip(*best, strict=True)
    return Contacts(a, b, ra, rb, np.array([force for _, force in best.values()]))


def _peak_effort(values: Sequence[Joints]) -> Joints:
    latest = values[-1]
    effort = latest.effort.copy()
    index = {name: i for i, name in enumerate(latest.name)}
    for joints in values[:-1]:
        for name, value in zip(joints.name, joints.effort, strict=True):
            i = index.get(name)
            if i is not None and (np.isnan(value) or abs(value) > abs(effort[i])):
                effort[i] = value
    return Joints(latest.name, latest.position, latest.velocity, effort)


def _contact_held(values: Sequence[Objects]) -> Objects:
    """The latest objects; a touch between two frames is a touch in the later one."""
    latest = values[-1]
    touched = {i for objects in values for i, c in zip(objects.id, objects.in_contact, strict=True) if c == 1}
    if not touched:
        return latest
    contact = np.array([1 if i in touched else c for i, c in zip(latest.id, latest.in_contact, strict=True)], np.int8)
    return Objects(
        latest.id, latest.category, latest.role, latest.position, latest.orientation, latest.distance, contact
    )


def _merge(part: str, values: Sequence[Any]) -> Any:
    """One part from several topics: lists are joined in topic order, the first wins where there can be only one."""
    if len(values) > 1 and part in ("contacts", "objects"):
        values = [v for v in values if len(v)] or values[:1]
    if len(values) == 1:
        return values[0]
    if part == "contacts":
        return Contacts(
            sum((v.body_a for v in values), ()),
            sum((v.body_b for v in values), ()),
            sum((v.role_a for v in values), ()),
            sum((v.role_b for v in values), ()),
            np.concatenate([v.force for v in values]),
        )
    if part == "joints":
        return Joints(
            sum((v.name for v in values), ()),
            np.concatenate([v.position for v in values]),
            np.concatenate([v.velocity for v in values]),
            np.concatenate([v.effort for v in values]),
        )
    if part == "objects":
        return Objects(
            sum((v.id for v in values), ()),
            sum((v.category for v in values), ()),
            sum((v.role for v in values), ()),
            np.concatenate([v.position for v in values]),
            np.concatenate([v.orientation for v in values]),
            np.concatenate([v.distance for v in values]),
            np.concatenate([v.in_contact for v in values]),
        )
    if part == "gripper":
        return any(values)
    return values[0]
