"""The live terminal view of a monitor: what its messages say, as a table that a person can watch or as plain lines.

No ROS in here: the view takes anything with the fields of the messages in msg/.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

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
_BAR = 20  #: characters of a full margin


def printable(text: str, limit: int = 120) -> str:
    """Text from a message without characters that steer a terminal, cut to ``limit``."""
    clean = "".join(c if c.isprintable() else "?" for c in str(text)[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


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
        self.unsafe_episodes = 0
        self.episodes: deque[str] = deque(maxlen=6)
        self._seen: set[str] = set()

    def on_state(self, message: Any) -> list[str]:
        """SafetyState."""
        before = self.state
        self.state, self.latched = STATES[message.state], STATES[message.latched]
        self.reasons = tuple(printable(r) for r in message.reasons)
        self.latched_reasons = tuple(printable(r) for r in message.latched_reasons)
        if self.state == before:
            return []
        return [f"state {self.state}" + (f": {', '.join(self.reasons)}" if self.reasons else "")]

    def on_clauses(self, message: Any) -> list[str]:
        """ClauseList: a new episode."""
        self.clauses, self.status = message, None
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
        if message.event == 1 and getattr(message, "scored", True):
            self.violations += 1
        return [printable(message.message, 300)]

    def on_summary(self, message: Any) -> list[str]:
        """EpisodeSummary."""
        if message.episode_id in self._seen:
            return []
        self._seen.add(message.episode_id)
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
        return [f"episode {line}"]

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
        parts: list[RenderableType] = [head, self._table()]
        if self.motion is not None:
            m = self.motion
            near = printable(m.obstacle, 40) or "nothing tracked"
            text = f"nearest: {near}, {number(m.distance, 'm')}, v/d {number(m.speed_ratio, '1/s')}"
            parts.append(Text(f"{text}, closest so far {number(m.d_min, 'm')}", style="dim"))
        if self.episodes:
            parts.append(Text("\n".join(["", "finished episodes", *self.episodes])))
        parts.append(Text("Ctrl-C ends the view and the monitor", style="dim"))
        return Group(*parts)

    def _table(self) -> RenderableType:
        if self.clauses is None:
            return Text("no episode runs", style="dim")
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
