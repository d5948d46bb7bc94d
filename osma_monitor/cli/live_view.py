"""The live terminal view of a monitor: what its messages say, as a table that a person can watch or as plain lines.

No ROS in here: the view takes anything with the fields of the messages in msg/.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from osma_monitor.core import text as core_text

STATES = ("OK", "WARN", "VIOLATED", "UNKNOWN")
STATUS = ("satisfied", "violated", "unknown")
OUTCOMES = ("unknown", "success", "failure", "aborted")
SAFETY = ("safe", "unsafe", "unknown")
_STYLE = {
    "OK": "bold green",
    "WARN": "bold yellow",
    "VIOLATED": "bold white on red",
    "UNKNOWN": "bold magenta",
    "satisfied": "green",
    "violated": "bold red",
    "unknown": "magenta",
    "safe": "green",
    "unsafe": "bold red",
}
#: Log lines that say what Violation messages say.
_VIOLATION = re.compile(r"\S+ (violated: |satisfied again after )")
_PATIENCE = 3  #: reports of the diagnostics, one a second, before the view says what is waited for
_BAR = 20  #: characters of a full margin


def printable(text: str, limit: int = 120) -> str:
    """Text from a message without characters that steer a terminal, cut to ``limit``."""
    return core_text.printable(text, limit - 1)


def margin_bar(rho: float, threshold: float) -> str:
    """How much room is left: full where the quantity is 0, empty at the limit."""
    scale = abs(threshold) or 1.0
    if math.isnan(rho):
        return "?" * 3
    share = min(max(rho / scale, 0.0), 1.0)
    filled = round(share * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


def number(value: float, unit: str = "") -> str:
    """A value with its unit; – where it is unknown, ∞ where a gate is closed."""
    if math.isnan(value):
        return "–"
    text = ("∞" if value > 0 else "−∞") if math.isinf(value) else f"{value:.3g}".replace("-", "−")
    return f"{text} {unit}" if unit and unit != "1" else text


class LiveView:
    """What has been said so far. Each ``on_…`` takes one message and returns lines for a terminal without live view."""

    def __init__(self) -> None:
        self.state, self.latched = "UNKNOWN", "OK"
        self.reasons: tuple[str, ...] = ("waiting for the monitor",)
        self.latched_reasons: tuple[str, ...] = ()
        self.clauses: Any = None
        self.status: Any = None
        self.motion: Any = None
        self.violations = 0
        self.reported: Counter[str] = Counter()  #: violations of report-only clauses in this episode
        self.folder = ""  #: where episodes are logged, once the monitor has said it
        self.waiting = ""  #: why there is no episode yet
        self.not_known = ""  #: which inputs the present UNKNOWN comes from
        self.notes: deque[str] = deque(maxlen=4)  #: warnings and errors of the monitor
        self._announced: set[str] = set()  #: report-only clauses of which a violation was said
        self._absent: Counter[str] = Counter()
        self._reports = 0
        self.unsafe_episodes = 0
        self.episodes: deque[str] = deque(maxlen=6)
        self._seen: set[str] = set()

    def on_state(self, message: Any) -> list[str]:
        """SafetyState."""
        before = self.state
        self.state, self.latched = STATES[message.state], STATES[message.latched]
        self.reasons = tuple(printable(r) for r in message.reasons)
        self.latched_reasons = tuple(printable(r) for r in message.latched_reasons)
        if self.state != "UNKNOWN":
            self.not_known = ""
        if self.state == before:
            return []
        return [f"state {self.state}" + (f": {', '.join(self.reasons)}" if self.reasons else "")]

    def on_clauses(self, message: Any) -> list[str]:
        """ClauseList: a new episode."""
        self.clauses, self.status, self.waiting = message, None, ""
        self.reported.clear()
        active = sum(1 for reason in message.inactive_reason if not reason)
        off = len(message.clause) - active
        return [f"episode {printable(message.episode_id)}: {active} clauses active, {off} switched off"]

    def on_status(self, message: Any) -> list[str]:
        """ClauseStatus."""
        self.status = message
        return []

    def on_motion(self, message: Any) -> list[str]:
        """MotionFeatures."""
        self.motion = message
        return []

    def on_violation(self, message: Any) -> list[str]:
        """Violation."""
        text = printable(message.message, 300)
        if message.scored:
            self.violations += message.event == 1
            return [text]
        clause = printable(message.clause, 60)
        self.reported[clause] += message.event == 1
        if clause in self._announced:
            return []
        self._announced.add(clause)
        return [f"{text} (report only: it does not count; from now on these are only counted)"]

    def on_log(self, level: str, text: str) -> list[str]:
        """A warning or an error that the monitor logged."""
        if _VIOLATION.match(text):
            return []
        line = f"{level.lower()}: {printable(text, 500)}"
        self.notes.append(line)
        return [line]

    def on_diagnostics(self, message: Any, node: str) -> list[str]:
        """DiagnosticArray; those of other nodes than ``node`` say nothing here."""
        found = {s.name: s for s in message.status if s.hardware_id == node}
        values = {
            name.removeprefix(f"{node}: "): {v.key: v.value for v in status.values} for name, status in found.items()
        }
        if "inputs" not in values:
            return []
        self._reports += 1
        lines = self._tell_folder(values.get("episode log", {}))
        topics = _topics(values["inputs"])
        lines += self._tell_waiting(topics, values.get("frames", {}))
        return lines + self._tell_unknown(topics, values.get("verdict", {}))

    def _tell_folder(self, values: dict[str, str]) -> list[str]:
        folder = printable(values.get("folder", ""), 300)
        if not folder or folder == self.folder:
            return []
        self.folder = folder
        return [self.where()]

    def where(self) -> str:
        """Where episodes go."""
        return f"episodes: {'not logged' if self.folder == 'none' else self.folder}"

    def _tell_waiting(self, topics: dict[str, list[tuple[str, str]]], frames: dict[str, str]) -> list[str]:
        if self.clauses is not None or self._reports < _PATIENCE:
            return []
        every = [topic for given in topics.values() for topic in given]
        missing = [name for name, what in every if what == "no publisher"]
        silent = [name for name, what in every if what == "no message"]
        if frames.get("frames", "0") != "0":
            text = (
                "frames come, but no episode has begun: publish an EpisodeEvent (topic episode) or call ~/begin_episode"
            )
        elif len(missing) == len(every):
            text = f"waiting: nobody publishes {', '.join(missing)}"
        else:
            parts = [f"nobody publishes {', '.join(missing)}"] if missing else []
            parts += [f"no message yet on {', '.join(silent)}"] if silent else []
            text = "waiting" + (f": {'; '.join(parts)}" if parts else " for an episode")
        before, self.waiting = self.waiting, text
        return [text] if text != before else []

    def _tell_unknown(self, topics: dict[str, list[tuple[str, str]]], values: dict[str, str]) -> list[str]:
        """What was not known since the last report, with the topics that give it."""
        counts = Counter(
            {what: int(text.split()[0]) for what, text in values.items() if re.fullmatch(r"\d+ frames", text)}
        )
        fresh = sorted(what for what in counts if counts[what] > self._absent[what])
        self._absent = counts
        if not fresh:
            return []
        causes = []
        for what in fresh:
            given = topics.get(what.removesuffix(" absent"), []) if what.endswith(" absent") else []
            topic = ", ".join(f"topic {name}: {state}" if state else f"topic {name}" for name, state in given)
            causes.append(printable(what) + (f" ({topic})" if topic else ""))
        before, self.not_known = self.not_known, f"not known: {'; '.join(causes)}"
        unjudged = f"; so UNKNOWN: {', '.join(self.reasons)}" if self.state == "UNKNOWN" and self.reasons else ""
        return [self.not_known + unjudged] if self.not_known != before else []

    def on_summary(self, message: Any) -> list[str]:
        """EpisodeSummary."""
        if message.episode_id in self._seen:
            return []
        self._seen.add(message.episode_id)
        self.not_known = ""
        safety = SAFETY[message.safety]
        self.unsafe_episodes += safety == "unsafe"
        line = f"{printable(message.episode_id, 60)}: {OUTCOMES[message.outcome]}, {safety}"
        if message.violated:
            line += f", broke {', '.join(printable(v, 50) for v in message.violated)} (depth {message.depth:.2f})"
        if not message.complete:
            line += ", incomplete"
        if not message.stored and message.error:
            line += f", NOT STORED: {printable(message.error)}"
        self.episodes.append(line)
        lines = [f"episode {line}"]
        if self.reported:
            counts = ", ".join(f"{clause} violated {n} times" for clause, n in sorted(self.reported.items()))
            lines.append(f"report only in this episode: {counts}")
        self.reported.clear()
        return lines

    @property
    def runs(self) -> bool:
        """Whether an episode runs, as far as was said."""
        return self.clauses is not None and self.clauses.episode_id not in self._seen

    def render(self) -> RenderableType:
        """The whole view."""
        head = Text.assemble(
            (f" {self.state} ", _STYLE[self.state]),
            "  ",
            (", ".join(self.reasons), ""),
            ("   worst since acknowledged: ", "dim"),
            (self.latched, _STYLE[self.latched]),
            (f"   {self.violations} violations", "dim"),
        )
        parts: list[RenderableType] = [head]
        if self.state == "UNKNOWN" and self.not_known:
            parts.append(Text(self.not_known, style="magenta"))
        parts.append(self._table())
        if self.motion is not None:
            m = self.motion
            near = printable(m.obstacle, 40) or "nothing tracked"
            text = f"nearest: {near}, {number(m.distance, 'm')}, v/d {number(m.speed_ratio, '1/s')}"
            parts.append(Text(f"{text}, closest so far {number(m.d_min, 'm')}", style="dim"))
        if self.episodes:
            parts.append(Text("\n".join(["", "finished episodes", *self.episodes])))
        parts += [Text(note, style="yellow") for note in self.notes]
        if self.folder:
            parts.append(Text(self.where(), style="dim"))
        parts.append(Text("Ctrl-C ends the view and the monitor", style="dim"))
        return Group(*parts)

    def _table(self) -> RenderableType:
        if self.clauses is None:
            return Text(self.waiting or "no episode runs", style="dim")
        c, s = self.clauses, self.status
        table = Table(title=None, box=None, pad_edge=False, header_style="dim")
        for name, justify in (("clause", "left"), ("room left", "left"), ("now", "right"), ("episode", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for name in ("verdict", "first at"):
            table.add_column(name)
        start = self._start_ns()
        for i in range(len(s.rho) if s is not None else 0):
            verdict = STATUS[s.status_episode[i]]
            first = s.first_violation[i]
            table.add_row(
                Text(printable(c.clause[i], 44) + ("" if c.scored[i] else " (report only)")),
                Text(margin_bar(s.rho[i], c.threshold[i]), style=_STYLE[STATUS[s.status[i]]]),
                number(s.rho[i], printable(c.unit[i], 8)),
                number(s.rho_episode[i], printable(c.unit[i], 8)),
                Text(verdict, style=_STYLE[verdict]),
                f"{(first - start) / 1e9:.2f} s" if first >= 0 else "",
            )
        return table

    def _start_ns(self) -> int:
        stamp = self.clauses.header.stamp
        return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def _topics(inputs: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Raw part -> its topics and what is wrong with them, from the diagnostics' ``topic (part): 0 publishers, ...``."""
    found: dict[str, list[tuple[str, str]]] = {}
    for key, text in inputs.items():
        match = re.fullmatch(r"(\S+) \((\w+)\)", key)
        if match is None or " publishers, " not in text:
            continue
        wrong = "no publisher" if text.startswith("0 publishers") else "no message" if ", 0 messages" in text else ""
        found.setdefault(match[2], []).append((printable(match[1], 80), wrong))
    return found
