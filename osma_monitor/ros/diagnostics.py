"""/diagnostics: what the monitor's state is and why, one status a concern. Pure: a snapshot in, an array out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.ros.conversions import header
from osma_monitor.ros.outputs import StateLatch
from osma_monitor.ros.text import printable

OK, WARN, ERROR, STALE = (bytes([i]) for i in range(4))  # level is bytes; an int is serialised as garbage


@dataclass
class Concern:
    """One line of the diagnostics."""

    name: str
    level: bytes = OK
    message: str = "ok"
    values: dict[str, str] = field(default_factory=dict)

    def raise_to(self, level: bytes, message: str) -> None:
        """Make it at least this bad; the messages of the worst level are joined."""
        if level > self.level:
            self.level, self.message = level, message
        elif level == self.level and level != OK:
            self.message = f"{self.message}; {message}"


def to_message(node: str, stamp_ns: int, concerns: Iterable[Concern]) -> DiagnosticArray:
    """The array that is published once a second."""
    return DiagnosticArray(
        header=header(stamp_ns),
        status=[
            DiagnosticStatus(
                level=c.level,
                name=f"{node}: {c.name}",
                message=printable(c.message, 500),
                hardware_id=node,
                values=[KeyValue(key=printable(k), value=printable(v, 500)) for k, v in c.values.items()],
            )
            for c in concerns
        ],
    )


@dataclass(frozen=True)
class InputReport:
    """What is known of one input topic."""

    topic: str
    part: str
    expected: bool  #: the source of the running episode declares it
    publishers: int
    messages: int
    age: float | None  #: s since the last message; None: none yet
    note: str = ""
    problem: str = ""  #: why nothing is received
    warning: str = ""  #: what is asked of the publishers and not offered
    deadline: float = 0.0  #: s in which the next message is due; 0: none
    missed: int = 0  #: deadlines that passed without a message


def inputs(
    reports: Iterable[InputReport], stale_after: float, missed_before: Mapping[str, int] | None = None
) -> Concern:
    """Publishers, ages and quality of service of the inputs.

    ``missed_before``: deadlines by topic that had passed at the last report; what is fresh is a warning.
    """
    concern = Concern("inputs")
    for r in reports:
        if r.problem:
            concern.raise_to(ERROR, f"{r.topic}: {r.problem}")
        elif r.expected and r.publishers == 0:
            concern.raise_to(ERROR, f"{r.topic}: no publisher")
        elif r.expected and (r.age is None or r.age > stale_after):
            concern.raise_to(WARN, f"{r.topic}: " + ("no message" if r.age is None else f"silent for {r.age:.1f} s"))
        if r.warning:
            concern.raise_to(WARN, f"{r.topic}: {r.warning}")
        fresh = r.missed - (missed_before or {}).get(r.topic, 0)
        if fresh > 0:
            concern.raise_to(WARN, f"{r.topic}: deadline of {r.deadline:g} s missed {fresh} times")
        if r.deadline:
            concern.values[f"{r.topic} deadlines missed"] = str(r.missed)
        age = "never" if r.age is None else f"{r.age:.2f} s ago"
        text = f"{r.publishers} publishers, {r.messages} messages, last {age}"
        concern.values[f"{r.topic} ({r.part})"] = f"{text}, {r.note}" if r.note else text
    return concern


def frames(counts: Mapping[str, int], before: Mapping[str, int], total: int, rate: float) -> Concern:
    """What was refused since the last report raises a warning; totals are listed."""
    concern = Concern("frames", values={"frames": str(total), "rate": f"{rate:.1f} Hz"})
    for name, count in sorted(counts.items()):
        concern.values[name] = str(count)
        fresh = count - before.get(name, 0)
        if fresh > 0 and name not in HARMLESS:
            concern.raise_to(WARN, f"{fresh} {name}")
    return concern


#: Counts that belong to normal life.
HARMLESS = frozenset({"repeated frames", "episodes: outside_episode", "episodes: repeated_event"})


LOW_DISK_BYTES = 100_000_000  #: below it there is a warning, before episodes are lost


def episode_log(folder: str, error: str, counts: Mapping[str, int], free_bytes: int | None = None) -> Concern:
    """Whether episodes reach the disk."""
    concern = Concern("episode log", values={k: str(v) for k, v in sorted(counts.items())})
    concern.values["folder"] = folder or "none"
    if free_bytes is not None:
        concern.values["free"] = f"{free_bytes / 1e6:.0f} MB"
    if error:
        concern.raise_to(ERROR, error)
    elif not folder:
        concern.message = "off"
    elif free_bytes is not None and free_bytes < LOW_DISK_BYTES:
        concern.raise_to(WARN, f"{folder}: {free_bytes / 1e6:.0f} MB left on its disk")
    return concern


def verdict(
    latch: StateLatch,
    fault: str,
    info: EpisodeInfo | None,
    monitor: EpisodeMonitor | None,
    unknown: Mapping[str, int] | None = None,
    unknown_before: Mapping[str, int] | None = None,
) -> Concern:
    """The safety state, the running episode, clauses that a missing capability switches off, and what was not known.

    ``unknown`` counts frames by what was not known in them; what is fresh since the last report is a warning, even
    when it has passed by now.
    """
    concern = Concern("verdict", values={"state": latch.state, "latched": latch.latched})
    if fault:
        concern.raise_to(ERROR, fault)
    if latch.state == "violated":
        concern.raise_to(ERROR, f"violated: {', '.join(latch.reasons)}")
    elif latch.state == "warn" or (latch.state == "unknown" and info is not None):
        concern.raise_to(WARN, f"{latch.state}: {', '.join(latch.reasons)}")
    for what, count in sorted((unknown or {}).items()):
        concern.values[what] = f"{count} frames"
        fresh = count - (unknown_before or {}).get(what, 0)
        if fresh > 0:
            concern.raise_to(WARN, f"{what} in {fresh} frames")
    concern.values["episode"] = info.episode_id if info else "none"
    if info is not None and monitor is not None and monitor.step:
        concern.values["active clauses"] = ", ".join(c.id for c in monitor.clauses)
        concern.values.update({f"inactive {name}": reason for name, reason in monitor.inactive.items()})
        for text in monitor.not_judged:
            concern.raise_to(WARN, text)
    return concern
