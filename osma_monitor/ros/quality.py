"""Quality of service of the inputs: what is asked of publishers, what they offer, and deadlines that pass.

DDS connects nothing and says nothing where a reader asks for more than a publisher offers. So a reader that adapts
(``reliability: auto``) asks for what every publisher offers; one that does not adapt keeps asking, and the mismatch is
an error. A deadline that nobody offers is still watched, by the times at which messages come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rclpy.duration import Duration
from rclpy.qos import QoSProfile, ReliabilityPolicy

from osma_monitor.ros import topics

_NONE_NS = 1 << 62  #: DDS writes "no deadline" as the longest duration there is


@dataclass(frozen=True)
class Reading:
    """How an input is read."""

    best_effort: bool = False
    deadline_ns: int = 0  #: asked of the publishers; 0: none

    def profile(self, depth: int) -> QoSProfile:
        """The same for rclpy."""
        profile = topics.best_effort(depth) if self.best_effort else topics.reliable(depth)
        if self.deadline_ns:
            profile.deadline = Duration(nanoseconds=self.deadline_ns)
        return profile


@dataclass(frozen=True)
class Choice:
    """How an input is to be read now, and what people should know of it."""

    reading: Reading
    note: str = ""  #: what was adapted
    warning: str = ""  #: what is asked for and not offered, where reading goes on without it
    problem: str = ""  #: why nothing is received


def first_reading(reliability: str, deadline_ns: int) -> Reading:
    """How to read before any publisher is known. ``reliability``: auto, reliable or best_effort."""
    return Reading(reliability == "best_effort", 0 if reliability == "auto" else deadline_ns)


def choose(reliability: str, deadline_ns: int, now: Reading, publishers: Iterable[Any]) -> Choice:
    """What the publishers of a topic (rclpy's TopicEndpointInfo) mean for its reader.

    ``deadline_ns`` is the wanted deadline, 0 for none.
    """
    offers = list(publishers)
    weak = sorted({p.node_name for p in offers if p.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT})
    slack = sorted({f"{p.node_name} offers {_text(p)}" for p in offers if deadline_ns and _deadline(p) > deadline_ns})
    asked = f"a deadline of {deadline_ns / 1e9:g} s is asked for, {', '.join(slack)}"
    if reliability == "auto":
        note = f"read best effort, as {', '.join(weak)} publishes it" if weak else ""
        ask = now.deadline_ns if not offers else 0 if slack else deadline_ns
        warning = f"{asked}; read without it and watched by receipt" if slack else ""
        return Choice(Reading(now.best_effort or bool(weak), ask), note, warning)
    problems = [f"{', '.join(weak)} publishes best effort, read reliable"] if weak and not now.best_effort else []
    problems += [asked] if slack else []
    return Choice(now, problem=f"incompatible QoS: {'; '.join(problems)}" if problems else "")


def _deadline(publisher: Any) -> int:
    given = int(publisher.qos_profile.deadline.nanoseconds)
    return given if 0 < given < _NONE_NS else _NONE_NS


def _text(publisher: Any) -> str:
    given = _deadline(publisher)
    return f"{given / 1e9:g} s" if given < _NONE_NS else "none"


class DeadlineWatch:
    """Counts the deadlines that pass without a message, topic by topic, from the first message on.

    Times are one monotonic clock's seconds.
    """

    def __init__(self) -> None:
        self.missed: Counter[str] = Counter()
        self._period: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._counted: dict[str, int] = {}  #: of the present silence

    def heard(self, topic: str, period: float, now: float) -> None:
        """A message came. ``period`` is the topic's deadline in s."""
        if topic in self._last:
            self._settle(topic, now)
        self._period[topic], self._last[topic], self._counted[topic] = period, now, 0

    def look(self, now: float) -> None:
        """Count what has passed by now."""
        for topic in self._last:
            self._settle(topic, now)

    def _settle(self, topic: str, now: float) -> None:
        passed = int((now - self._last[topic]) / self._period[topic])
        if passed > self._counted[topic]:
            self.missed[topic] += passed - self._counted[topic]
            self._counted[topic] = passed
