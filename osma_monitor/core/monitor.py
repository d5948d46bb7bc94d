"""The engine: frames in, verdicts out, one EpisodeRecord at the end.

    RawFrame -> SignalDeriver -> SignalFrame -> SignalMonitor -> Update (per frame), EpisodeRecord (at the end)

:class:`EpisodeMonitor` is the whole chain for one episode. :class:`SignalMonitor` is its second half, on its own for
stored signals (:func:`rescore`): live, replayed, in process and in batch run the same code and give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import osma_monitor
from osma_monitor.core import safety, stl
from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.errors import UserError
from osma_monitor.core.motion import MotionUpdate, OnlineMotion, episode_motion
from osma_monitor.core.prediction import Prediction, TrendPredictor
from osma_monitor.core.signals.deriver import SignalDeriver, capabilities, unavailable
from osma_monitor.core.signals.raw import Floats, RawFrame
from osma_monitor.core.signals.schema import GATE_SIGNALS, INDEX, SIGNALS, SignalFrame

State = Literal["ok", "warn", "violated", "unknown"]
SATISFIED, VIOLATED, UNKNOWN = 0, 1, 2
STATUS_NAMES: tuple[Literal["satisfied", "violated", "unknown"], ...] = ("satisfied", "violated", "unknown")

_X, _Y, _DISTANCE, _CONTACT = (INDEX[n] for n in ("base_x", "base_y", "obstacle_distance", "obstacle_contact"))


@dataclass(frozen=True)
class MonitorConfig:
    """What is monitored and how. Made from config/ by :func:`osma_monitor.io.configuration.monitor_config`."""

    library: safety.Library
    registry: safety.Registry
    gate_semantics: safety.GateSemantics = "boolean"
    backend: Literal["native", "rtamt"] = "native"
    period_ns: int | None = None  #: sampling period, which the backend rtamt needs for windows
    extensions: tuple[str, ...] = ()  #: extension families that count beside those of the suite
    prediction_horizon: float = 1.0  #: s, a violation foreseen within it is a WARN; 0: no prediction
    source: Mapping[str, str] = field(default_factory=dict)  #: provenance of the frames: simulator, robot file, bag ...

    def provenance(self, session: Mapping[str, str] | None = None) -> Provenance:
        """Where the numbers of a record made under this configuration come from."""
        return Provenance(
            monitor_version=osma_monitor.__version__,
            library_hash=self.library.hash,
            registry_hash=self.registry.hash,
            gate_semantics=self.gate_semantics,
            backend=self.backend,
            source=dict(self.source),
            session=dict(session or {}),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClauseUpdate:
    """Arrays over the active clauses, in the order of ``EpisodeMonitor.clauses``."""

    rho: Floats  #: robustness of this instant, NaN where it is an interval
    rho_episode: Floats  #: robustness of the episode so far
    lower: Floats  #: bounds of rho_episode
    upper: Floats
    status: NDArray[np.uint8]  #: of this instant, may recover: 0 satisfied, 1 violated, 2 unknown
    status_episode: NDArray[np.uint8]  #: of the episode so far; a violation stays
    triggered: NDArray[np.bool_]
    first_violation_ns: NDArray[np.int64]  #: -1: none
    unknown_samples: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClauseEvent:
    """A clause begins or stops to be violated."""

    kind: Literal["enter", "exit"]
    clause: safety.Clause
    stamp_ns: int
    step: int
    rho: float  #: upper bound of this instant's robustness
    peak: float  #: lowest since entry
    depth: float  #: normalized severity of the peak
    duration_ns: int  #: since entry
    signals: Mapping[str, float]  #: the clause's inputs in this frame


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What one frame came to."""

    stamp_ns: int
    step: int
    signals: SignalFrame
    clauses: ClauseUpdate
    events: tuple[ClauseEvent, ...]
    motion: MotionUpdate
    prediction: Prediction | None
    state: State
    reasons: tuple[str, ...]  #: clause ids behind the state, or why nothing can be said


class StepLog:
    """The stored steps of a running episode: growing columns, amortised O(1) per step."""

    def __init__(self) -> None:
        self._stamps = np.zeros(256, np.int64)
        self._values = np.zeros((256, len(SIGNALS)))
        self._obstacle: list[str] = []

    def __len__(self) -> int:
        return len(self._obstacle)

    def append(self, frame: SignalFrame) -> None:
        n = len(self)
        if n == len(self._stamps):
            self._stamps = np.concatenate([self._stamps, np.zeros_like(self._stamps)])
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._stamps[n], self._values[n] = frame.stamp_ns, frame.values
        self._obstacle.append(frame.obstacle)

    def columns(self) -> tuple[NDArray[np.int64], dict[str, Floats], tuple[str, ...]]:
        n = len(self)
        signals = {name: self._values[:n, i].copy() for i, name in enumerate(SIGNALS)}
        return self._stamps[:n].copy(), signals, tuple(self._obstacle)


@dataclass
class _Excursion:
    """Where a clause stands between entry and exit."""

    since_ns: int = -1
    peak: float = 0.0
    violated_steps: int = 0
    run: int = 0
    longest: int = 0
    first_step: int = -1


class SignalMonitor:
    """Judges SignalFrames against the active clauses of one episode."""

    def __init__(self, info: EpisodeInfo, config: MonitorConfig, missing: Mapping[str, str]) -> None:
        """``missing`` maps each signal that the source cannot give to the raw part that it would need."""
        self.info, self.config = info, config
        self.missing = dict(missing)
        self.clauses, self.inactive = safety.active_clauses(
            config.library,
            config.registry,
            info.templates,
            info.tags,
            self.missing,
            suite=info.suite,
            task=info.task,
            extensions=config.extensions,
        )
        gates = GATE_SIGNALS if config.gate_semantics == "boolean" else frozenset()
        if config.backend != "native":
            self._drop_refused(gates)
        formulas = [stl.parse(clause.text(config.gate_semantics)) for clause in self.clauses]
        self._library = stl.make_library(formulas, gates, backend=config.backend, period_ns=config.period_ns)
        self._columns = np.array([INDEX[name] for name in self._library.signals], np.intp)
        self._inputs = [sorted(formula.signals) for formula in formulas]
        self._scored = np.array([clause.scored for clause in self.clauses], bool)
        self._state = [_Excursion() for _ in self.clauses]
        self._before = np.zeros(len(self.clauses), np.uint8)
        self._first_ns = np.full(len(self.clauses), -1, np.int64)
        horizon = config.prediction_horizon
        self._predictor = TrendPredictor(len(self.clauses), horizon=horizon) if horizon > 0 else None
        self._motion = OnlineMotion()
        self.steps = StepLog()
        self._last: tuple[SignalFrame, Floats] | None = None
        self.refused = 0  #: frames with a repeated, backward or zero stamp
        self.last_ns = 0

    def _drop_refused(self, gates: frozenset[str]) -> None:
        """A clause that the backend refuses is inactive with the reason; no other backend judges it in silence."""
        kept = []
        for clause in self.clauses:
            try:
                stl.make_library(
                    [clause.text(self.config.gate_semantics)],
                    gates,
                    backend=self.config.backend,
                    period_ns=self.config.period_ns,
                )
            except UserError as error:
                self.inactive[clause.id] = f"refused by the backend {self.config.backend}: {error}"
            else:
                kept.append(clause)
        self.clauses = tuple(kept)

    def update(self, frame: SignalFrame) -> Update | None:
        """Judge one frame; None (counted in ``refused``, nothing changed) when its stamp does not go forward."""
        if frame.stamp_ns <= self.last_ns:
            self.refused += 1
            return None
        self.last_ns = frame.stamp_ns
        step = len(self.steps)
        self.steps.append(frame)
        verdict = self._library.update(frame.stamp_ns, frame.values[self._columns])
        status = _status(verdict.now_lower, verdict.now_upper)
        self._last = (frame, verdict.now_upper)
        events = self._excursions(frame, step, status, verdict.now_upper)
        rho = _point(verdict.now_lower, verdict.now_upper)
        clauses = ClauseUpdate(
            rho,
            verdict.rho,
            verdict.lower,
            verdict.upper,
            status,
            _status(verdict.lower, verdict.upper),
            verdict.triggered,
            self._first_ns.copy(),
            verdict.unknown,
        )
        prediction = self._predictor.update(frame.stamp_ns, rho) if self._predictor else None
        values = frame.values
        motion = self._motion.update(
            frame.stamp_ns, values[_X], values[_Y], values[_DISTANCE], values[_CONTACT], frame.obstacle
        )
        state, reasons = self._judge(status, prediction)
        return Update(frame.stamp_ns, step, frame, clauses, events, motion, prediction, state, reasons)

    def _judge(self, status: NDArray[np.uint8], prediction: Prediction | None) -> tuple[State, tuple[str, ...]]:
        if not self._scored.any():
            return "unknown", ("no scored clause is active",)
        levels: list[tuple[State, NDArray[np.bool_]]] = [
            ("violated", status == VIOLATED),
            ("unknown", status == UNKNOWN),
        ]
        if prediction is not None:
            levels.append(("warn", prediction.warn))
        for state, hit in levels:
            which = np.flatnonzero(hit & self._scored)
            if len(which):
                return state, tuple(self.clauses[i].id for i in which)
        return "ok", ()

    def _excursions(
        self, frame: SignalFrame, step: int, status: NDArray[np.uint8], upper: Floats
    ) -> tuple[ClauseEvent, ...]:
        """Entry and exit of violations. An unknown instant ends none: unknown is not safe."""
        violated = status == VIOLATED
        if not violated.any() and not self._before.any():
            return ()
        events = []
        for i in np.flatnonzero(violated | (self._before == 1)):
            state, rho = self._state[i], float(upper[i])
            if violated[i]:
                state.violated_steps += 1
                state.run += 1
                state.longest = max(state.longest, state.run)
                entered = state.since_ns < 0
                if entered:
                    state.since_ns, state.peak = frame.stamp_ns, rho
                    if self._first_ns[i] < 0:
                        self._first_ns[i], state.first_step = frame.stamp_ns, step
                state.peak = min(state.peak, rho)
                if entered:
                    events.append(self._event("enter", int(i), frame, step, rho))
            else:
                state.run = 0
                if status[i] == SATISFIED:
                    events.append(self._event("exit", int(i), frame, step, rho))
                    state.since_ns = -1
            self._before[i] = state.since_ns >= 0
        return tuple(events)

    def _event(self, kind: Literal["enter", "exit"], i: int, frame: SignalFrame, step: int, rho: float) -> ClauseEvent:
        clause, state = self.clauses[i], self._state[i]
        return ClauseEvent(
            kind,
            clause,
            frame.stamp_ns,
            step,
            rho,
            state.peak,
            clause.depth(state.peak),
            frame.stamp_ns - state.since_ns,
            {name: frame[name] for name in self._inputs[i]},
        )

    def exits(self) -> tuple[ClauseEvent, ...]:
        """The exit events of violations that last until the last frame: an episode that ends also ends them."""
        if self._last is None:
            return ()
        frame, upper = self._last
        step = len(self.steps) - 1
        return tuple(
            self._event("exit", i, frame, step, float(upper[i])) for i, s in enumerate(self._state) if s.since_ns >= 0
        )

    def close(
        self,
        outcome: Outcome,
        *,
        complete: bool = True,
        late: bool = False,
        session: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
    ) -> EpisodeRecord:
        """End the episode. ``late``: the first frames were not seen."""
        verdict = self._library.close()
        stamps, signals, obstacle = self.steps.columns()
        results = tuple(
            ClauseResult(
                clause=clause.id,
                family=clause.family,
                scored=clause.scored,
                rho=float(verdict.rho[i]),
                lower=float(verdict.lower[i]),
                upper=float(verdict.upper[i]),
                status=STATUS_NAMES[_status(verdict.lower, verdict.upper)[i]],
                triggered=bool(verdict.triggered[i]),
                depth=clause.depth(float(verdict.upper[i])),
                first_violation_ns=int(self._first_ns[i]) if self._first_ns[i] >= 0 else None,
                first_violation_step=self._state[i].first_step if self._state[i].first_step >= 0 else None,
                violated_steps=self._state[i].violated_steps,
                longest_run=self._state[i].longest,
                unknown_samples=int(verdict.unknown[i]),
            )
            for i, clause in enumerate(self.clauses)
        )
        motion = episode_motion(
            stamps, signals["base_x"], signals["base_y"], signals["obstacle_distance"], signals["obstacle_contact"]
        )
        return EpisodeRecord(
            info=self.info,
            outcome=outcome,
            stamps_ns=stamps,
            signals=signals,
            obstacle=obstacle,
            clauses=results,
            inactive=self.inactive,
            motion=motion,
            missing=self.missing,
            complete=complete,
            partial=late or (outcome.steps is not None and outcome.steps != len(stamps)),
            refused=self.refused,
            notes=tuple(notes),
            provenance=self.config.provenance(session),
        )


class EpisodeMonitor:
    """The whole chain for one episode.

    The active clauses are decided at the first frame, from the task's templates and tags and from what the source
    gives: the parts
    that it declares (``info.sources``), or those of that frame where it declares none. ``start_ns`` is the stamp of the
    episode's first frame as the source says; a later first frame makes the record ``partial``.
    """

    def __init__(self, info: EpisodeInfo, config: MonitorConfig, start_ns: int | None = None) -> None:
        self.info, self.config = info, config
        self._start_ns = start_ns
        self._deriver = SignalDeriver(info, config.library.parameters)
        self._monitor: SignalMonitor | None = None
        self._late = False
        self._refused = 0

    @property
    def clauses(self) -> tuple[safety.Clause, ...]:
        """The active clauses; empty before the first frame."""
        return self._monitor.clauses if self._monitor else ()

    @property
    def inactive(self) -> Mapping[str, str]:
        """Clause id -> what switches it off; empty before the first frame."""
        return self._monitor.inactive if self._monitor else {}

    @property
    def missing(self) -> Mapping[str, str]:
        """Signal -> raw part that the source lacks; what :func:`rescore` needs to know beside the stored signals."""
        return self._monitor.missing if self._monitor else {}

    @property
    def step(self) -> int:
        """Number of frames judged so far."""
        return len(self._monitor.steps) if self._monitor else 0

    @property
    def last_ns(self) -> int:
        """Stamp of the latest frame judged, 0 before the first."""
        return self._monitor.last_ns if self._monitor else 0

    @property
    def refused(self) -> int:
        """Frames with a repeated, backward or zero stamp."""
        return self._refused + (self._monitor.refused if self._monitor else 0)

    def update(self, frame: RawFrame) -> Update | None:
        """Judge one frame; None (and counted) when its stamp is zero or does not go forward."""
        if frame.stamp_ns <= self.last_ns:
            self._refused += 1
            return None
        if self._monitor is None:
            self._late = self._start_ns is not None and frame.stamp_ns > self._start_ns
            missing = unavailable(capabilities(frame, self.info.sources, self.config.library.parameters))
            self._monitor = SignalMonitor(self.info, self.config, missing)
        return self._monitor.update(self._deriver.derive(frame))

    def exits(self) -> tuple[ClauseEvent, ...]:
        """The exit events of violations that last until the last frame; to publish when the episode ends."""
        return self._monitor.exits() if self._monitor else ()

    def close(
        self,
        outcome: Outcome,
        session: Mapping[str, str] | None = None,
        *,
        complete: bool = True,
        notes: Iterable[str] = (),
    ) -> EpisodeRecord:
        """End the episode; the record of an episode without any frame has no steps and no clause."""
        monitor = self._monitor or SignalMonitor(self.info, self.config, unavailable(frozenset()))
        record = monitor.close(outcome, complete=complete, late=self._late, session=session, notes=notes)
        return replace(record, refused=self.refused)


def rescore(
    info: EpisodeInfo,
    outcome: Outcome,
    stamps_ns: NDArray[np.int64],
    signals: Mapping[str, Floats],
    obstacle: Iterable[str],
    config: MonitorConfig,
    missing: Mapping[str, str],
    *,
    complete: bool = True,
    partial: bool = False,
    notes: Iterable[str] = (),
) -> EpisodeRecord:
    """Run clauses over stored signals: another library or threshold, or a stream left by a crash. Never re-runs a
    simulator.

    ``signals`` has a column (T,) for each schema signal it knows; a signal that it lacks is unknown.
    """
    monitor = SignalMonitor(info, config, missing)
    unknown = np.full(len(stamps_ns), np.nan)
    values = np.column_stack([signals.get(name, unknown) for name in SIGNALS]) if len(stamps_ns) else np.zeros((0, 0))
    for stamp, row, nearest in zip(stamps_ns.tolist(), values, obstacle, strict=True):
        monitor.update(SignalFrame(stamp, row, nearest))
    return monitor.close(outcome, complete=complete, late=partial, notes=notes)


def _status(lower: Floats, upper: Floats) -> NDArray[np.uint8]:
    return np.where(upper < 0, VIOLATED, np.where(lower >= 0, SATISFIED, UNKNOWN)).astype(np.uint8)


def _point(lower: Floats, upper: Floats) -> Floats:
    return np.where(lower == upper, lower, np.nan)
