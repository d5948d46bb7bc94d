"""What the monitor says, as messages: clause list and status, violations, motion features, state, summary.

What goes out with every frame or must go out at once is made as bytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import ClauseEvent, EpisodeMonitor, State, Update
from osma_monitor.core.motion import MotionUpdate
from osma_monitor.core.safety import Clause, Library
from osma_monitor.msg import ClauseList, EpisodeSummary, MotionFeatures, SafetyState, Violation
from osma_monitor.ros.cdr import CdrWriter
from osma_monitor.ros.conversions import OUTCOMES, header

STATES: dict[State, int] = {
    "ok": SafetyState.OK,
    "warn": SafetyState.WARN,
    "violated": SafetyState.VIOLATED,
    "unknown": SafetyState.UNKNOWN,
}
STATE_NAMES: dict[int, State] = {value: name for name, value in STATES.items()}
#: From good to bad; what is latched only grows.
_RANK: tuple[State, ...] = ("ok", "warn", "unknown", "violated")
_MOST_REASONS = 64  #: that a latch keeps; those of the clauses are fewer, texts of errors may never repeat
_VERDICTS = {"safe": EpisodeSummary.SAFE, "unsafe": EpisodeSummary.UNSAFE, "unknown": EpisodeSummary.UNKNOWN}


def clause_list(monitor: EpisodeMonitor, stamp_ns: int) -> ClauseList:
    """The clauses of this episode, the active ones first."""
    config = monitor.config
    library: Library = config.library
    inactive = monitor.inactive
    off = [library[name] for name in inactive]
    clauses: Sequence[Clause] = [*monitor.clauses, *off]
    return ClauseList(
        header=header(stamp_ns),
        episode_id=monitor.info.episode_id,
        library_hash=library.hash,
        gate_semantics=config.gate_semantics,
        clause=[c.id for c in clauses],
        family=[c.family for c in clauses],
        formula=[c.text(config.gate_semantics) for c in clauses],
        unit=[c.unit for c in clauses],
        threshold=array("d", [c.threshold for c in clauses]),
        severe=array("d", [c.severe for c in clauses]),
        requirement=[c.requirement for c in clauses],
        scored=[c.scored for c in clauses],
        inactive_reason=["" for _ in monitor.clauses] + [inactive[c.id] for c in off],
    )


def clause_status(update: Update, episode_id: str, refused: int) -> bytes:
    """ClauseStatus: every active clause after one frame."""
    c = update.clauses
    trend = update.prediction
    w = CdrWriter(update.stamp_ns)
    w.text(episode_id)
    w.count(update.step)
    w.bytes8(STATES[update.state])
    for column in (c.rho, c.rho_episode, c.lower, c.upper):
        w.sequence(column)
    for flags in (c.status, c.status_episode, c.triggered):
        w.sequence(flags, "u1")
    w.sequence(c.first_violation_ns, "<i8")
    w.sequence(c.unknown_samples, "<u4")
    w.count(refused)
    w.sequence(trend.time_to_violation if trend is not None else ())
    w.sequence(trend.deviation if trend is not None else ())
    w.sequence(trend.warn if trend is not None else (), "u1")
    return w.bytes()


def violation(event: ClauseEvent, episode_id: str) -> bytes:
    """Violation: entry into or exit from one."""
    clause = event.clause
    w = CdrWriter(event.stamp_ns)
    w.bytes8(Violation.ENTER if event.kind == "enter" else Violation.EXIT)
    w.text(episode_id)
    w.count(event.step)
    w.fixed_texts(clause.id, clause.family, clause.unit)
    w.doubles(event.rho, clause.threshold, event.peak, event.depth, event.duration_ns / 1e9)
    w.count(len(event.signals))
    w.fixed_texts(*event.signals)
    w.count(len(event.signals))
    if event.signals:
        w.doubles(*event.signals.values())
    w.text(violation_text(event))
    w.bytes8(clause.scored)
    return w.bytes()


def violation_text(event: ClauseEvent) -> str:
    """One line for people."""
    clause = event.clause
    value = event.signals.get(clause.signal, math.nan)
    unit = "" if clause.unit in ("", "1") else f" {clause.unit}"
    now = f"{clause.signal} is {value:.4g}{unit}, limit {clause.threshold:g}{unit} ({clause.requirement})"
    if event.kind == "enter":
        return f"{clause.id} violated: {now}"
    return (
        f"{clause.id} satisfied again after {event.duration_ns / 1e9:.2f} s, worst by {-event.peak:.4g}{unit}, "
        f"depth {event.depth:.2f}: {now}"
    )


def motion(update: MotionUpdate, episode_id: str) -> MotionFeatures:
    """Provisional motion features after one frame."""
    return MotionFeatures(
        header=header(update.stamp_ns),
        episode_id=episode_id,
        obstacle=update.obstacle,
        distance=float(update.distance),
        speed_ratio=float(update.speed_ratio),
        acceleration_ratio=float(update.acceleration_ratio),
        jerk_ratio=float(update.jerk_ratio),
        speed_stamp=int(update.speed_stamp),
        acceleration_stamp=int(update.acceleration_stamp),
        jerk_stamp=int(update.jerk_stamp),
        d_min=float(update.d_min),
        mu_v=float(update.mu_v),
        m_v=float(update.m_v),
        mu_a=float(update.mu_a),
        m_a=float(update.m_a),
        mu_j=float(update.mu_j),
        m_j=float(update.m_j),
    )


def summary(record: EpisodeRecord, stamp_ns: int, stored: bool, error: str) -> EpisodeSummary:
    """What became of an episode."""
    scored = [c for c in record.clauses if c.scored]
    violated = [c.clause for c in scored if c.status == "violated"]
    worst = max((c for c in scored if c.status == "violated"), key=lambda c: c.depth, default=None)
    m = record.motion
    return EpisodeSummary(
        header=header(stamp_ns),
        episode_id=record.info.episode_id,
        task=record.info.task,
        policy=record.info.policy,
        outcome=OUTCOMES.index(record.outcome.status),
        safety=_VERDICTS[record.safety],
        depth=float(record.depth),
        worst_clause=worst.clause if worst else "",
        violated=violated,
        complete=record.complete,
        partial=record.partial,
        steps=len(record.stamps_ns),
        d_min=float(m.d_min),
        mu_v=float(m.mu_v),
        m_v=float(m.M_v),
        mu_a=float(m.mu_a),
        m_a=float(m.M_a),
        mu_j=float(m.mu_j),
        m_j=float(m.M_j),
        stored=stored,
        error=error,
    )


class StateLatch:
    """The state of this instant and the worst one since the last acknowledgement."""

    def __init__(self) -> None:
        self.state: State = "unknown"
        self.reasons: tuple[str, ...] = ("no frame yet",)
        self.latched: State = "ok"
        self.stamp_ns = 0
        self.sequence = 0
        self._latched_reasons: dict[str, None] = {}

    def set(self, state: State, reasons: Sequence[str], stamp_ns: int | None = None) -> None:
        """The state of this instant. A worse one than what is latched replaces it, an equal one adds its reasons."""
        self.state, self.reasons = state, tuple(reasons)
        if stamp_ns is not None:
            self.stamp_ns = stamp_ns
        if state == "ok" or _RANK.index(state) < _RANK.index(self.latched):
            return
        if state != self.latched:
            self.latched = state
            self._latched_reasons.clear()
        for reason in self.reasons:
            if len(self._latched_reasons) < _MOST_REASONS:
                self._latched_reasons[reason] = None

    def idle(self, reason: str) -> None:
        """Nothing is judged at present: unknown, and nothing to latch."""
        self.state, self.reasons = "unknown", (reason,)

    def acknowledge(self) -> State:
        """Forget what is latched; returns it. The state of this instant stays."""
        before, self.latched = self.latched, "ok"
        self._latched_reasons.clear()
        return before

    def message(self) -> SafetyState:
        """The next message of the heartbeat."""
        self.sequence += 1
        return SafetyState(
            header=header(self.stamp_ns),
            state=STATES[self.state],
            latched=STATES[self.latched],
            reasons=list(self.reasons),
            latched_reasons=list(self._latched_reasons),
            sequence=self.sequence,
        )
