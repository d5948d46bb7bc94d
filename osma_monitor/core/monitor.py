"""The engine: frames in, verdicts out, one EpisodeRecord at the end.

    RawFrame -> SignalDeriver -> SignalFrame -> SignalMonitor -> Update (per frame), EpisodeRecord (at the end)

:class:`EpisodeMonitor` is the whole chain for one episode. :class:`SignalMonitor` is its second half, on its own for
stored signals (:func:`rescore`): live, replayed, in process and in batch run the same code and give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import osma_monitor
from osma_monitor.core import safety, stl
from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.errors import UserError
from osma_monitor.core.latecomers import Latecomers, not_judged
from osma_monitor.core.motion import MotionUpdate, OnlineMotion, episode_motion
from osma_monitor.core.prediction import Prediction, TrendPredictor
from osma_monitor.core.signals.deriver import SignalDeriver, capabilities, unavailable
from osma_monitor.core.signals.raw import Floats, RawFrame
from osma_monitor.core.signals.schema import GATE_SIGNALS, INDEX, SIGNALS, SignalFrame

State = Literal["ok", "warn", "violated", "unknown"]
SATISFIED, VIOLATED, UNKNOWN = 0, 1, 2
STATUS_NAMES: tuple[Literal["satisfied", "violated", "unknown"], ...] = ("satisfied", "violated", "unknown")
#: Status codes of a verdict (0 unknown, 1 satisfied, -1 violated, as an index) as ours.
_STATUS = np.array([UNKNOWN, SATISFIED, VIOLATED], np.uint8)

NAN = float("nan")
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
    status: NDArray[np.uint8]  #: of this instant, may recover: 0 satisfied, 1 violated, 2 unknown
    first_violation_ns: NDArray[np.int64]  #: -1: none
    verdict: stl.Update  #: the episode so far; its arrays are made when they are asked for

    @property
    def rho_episode(self) -> Floats:
        """Robustness of the episode so far."""
        return self.verdict.rho

    @property
    def lower(self) -> Floats:
        """Lower bound of ``rho_episode``."""
        return self.verdict.lower

    @property
    def upper(self) -> Floats:
        """Upper bound of ``rho_episode``."""
        return self.verdict.upper

    @property
    def status_episode(self) -> NDArray[np.uint8]:
        """As ``status``, of the episode so far; a violation stays."""
        return _STATUS[self.verdict.status]

    @property
    def triggered(self) -> NDArray[np.bool_]:
        """Some left side of an implication has been definitely true."""
        return self.verdict.triggered

    @property
    def unknown_samples(self) -> NDArray[np.int64]:
        """Frames in which an input of the clause was unknown."""
        return self.verdict.unknown


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


OnEvent = Callable[[ClauseEvent], None]


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

    since_ns: int = 0
    peak: float = 0.0
    violated_steps: int = 0
    run: int = 0
    longest: int = 0
    first_step: int = -1


def applicable_clauses(
    info: EpisodeInfo, config: MonitorConfig, missing: Mapping[str, str]
) -> tuple[tuple[safety.Clause, ...], dict[str, str]]:
    """The clauses of an episode whose source lacks these signals (signal -> need), and why the others do not apply."""
    return safety.active_clauses(
        config.library,
        config.registry,
        info.templates,
        info.tags,
        missing,
        suite=info.suite,
        task=info.task,
        extensions=config.extensions,
    )


def watch_latecomers(info: EpisodeInfo, config: MonitorConfig, have: frozenset[str]) -> Latecomers:
    """What to show the frames after the first one of an episode, whose source serves the needs ``have``."""

    def applicable(needs: frozenset[str]) -> frozenset[str]:
        clauses, _ = applicable_clauses(info, config, unavailable(have | needs))
        return frozenset(clause.id for clause in clauses if clause.scored)

    return Latecomers(unavailable(have), applicable)


def clauses_of_late(
    info: EpisodeInfo, config: MonitorConfig, missing: Mapping[str, str], late: Iterable[str]
) -> tuple[str, ...]:
    """Ids of the scored clauses that are not judged because the signals ``late`` of ``missing`` came too late."""
    came = missing.keys() & set(late)
    if not came:
        return ()
    # a signal may lack more than the need that is named, so only those that came count; gates come with their need
    came |= {name for name in GATE_SIGNALS & missing.keys() if missing[name] in {missing[other] for other in came}}
    rest = {name: need for name, need in missing.items() if name not in came}
    with_late, judged = (applicable_clauses(info, config, signals)[0] for signals in (rest, missing))
    return tuple(sorted({c.id for c in with_late if c.scored} - {c.id for c in judged}))


class SignalMonitor:
    """Judges SignalFrames against the active clauses of one episode."""

    def __init__(self, info: EpisodeInfo, config: MonitorConfig, missing: Mapping[str, str]) -> None:
        """``missing`` maps each signal that the source cannot give to the raw part that it would need."""
        self.info, self.config = info, config
        self.missing = dict(missing)
        self.clauses, self.inactive = applicable_clauses(info, config, self.missing)
        gates = GATE_SIGNALS if config.gate_semantics == "boolean" else frozenset()
        if config.backend != "native":
            self._drop_refused(gates)
        formulas = [stl.parse(clause.text(config.gate_semantics)) for clause in self.clauses]
        self._library = stl.make_library(formulas, gates, backend=config.backend, period_ns=config.period_ns)
        self._columns = [INDEX[name] for name in self._library.signals]
        self._inputs = [[(name, INDEX[name]) for name in sorted(formula.signals)] for formula in formulas]
        self._scored = [i for i, clause in enumerate(self.clauses) if clause.scored]
        self._all_satisfied = np.full(len(self.clauses), SATISFIED, np.uint8)
        self._all_satisfied.flags.writeable = False
        self._state = [_Excursion() for _ in self.clauses]
        self._open: set[int] = set()  #: clauses between entry and exit
        self._first_ns = np.full(len(self.clauses), -1, np.int64)
        horizon = config.prediction_horizon
        self._predictor = TrendPredictor(len(self.clauses), horizon=horizon) if horizon > 0 else None
        self._motion = OnlineMotion()
        self.steps = StepLog()
        self._last: tuple[SignalFrame, list[float]] | None = None
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

    def update(self, frame: SignalFrame, on_event: OnEvent | None = None) -> Update | None:
        """Judge one frame; None (counted in ``refused``, nothing changed) when its stamp does not go forward.

        ``on_event`` is given each event as soon as it is known, before the rest of the update is worked out.
        """
        if frame.stamp_ns <= self.last_ns:
            self.refused += 1
            return None
        self.last_ns = frame.stamp_ns
        step = len(self.steps)
        values = frame.values.tolist()
        verdict = self._library.update(frame.stamp_ns, [values[i] for i in self._columns])
        lower, upper, _ = verdict.now_lists()
        self._last = (frame, upper)
        codes = None if min(lower, default=0.0) >= 0 else _codes(lower, upper)
        events: tuple[ClauseEvent, ...] = ()
        if codes is not None or self._open:
            events = self._excursions(frame, step, codes or self._all_satisfied.tolist(), upper, on_event)
        self.steps.append(frame)
        status = self._all_satisfied if codes is None else np.array(codes, np.uint8)
        rho = np.array([low + 0.0 if low == up else NAN for low, up in zip(lower, upper, strict=True)])
        clauses = ClauseUpdate(rho, status, self._first_ns, verdict)
        prediction = self._predictor.update(frame.stamp_ns, rho) if self._predictor else None
        motion = self._motion.update(
            frame.stamp_ns, values[_X], values[_Y], values[_DISTANCE], values[_CONTACT], frame.obstacle
        )
        state, reasons = self._judge(codes, prediction)
        return Update(frame.stamp_ns, step, frame, clauses, events, motion, prediction, state, reasons)

    def _judge(self, status: list[int] | None, prediction: Prediction | None) -> tuple[State, tuple[str, ...]]:
        """The worst state over the scored clauses and those behind it; ``status`` None: all are satisfied."""
        if not self._scored:
            return "unknown", ("no scored clause is active",)
        if status is not None:
            levels: tuple[tuple[State, int], ...] = (("violated", VIOLATED), ("unknown", UNKNOWN))
            for state, code in levels:
                if hit := tuple(self.clauses[i].id for i in self._scored if status[i] == code):
                    return state, hit
        if prediction is not None and prediction.warn.any():
            warn = prediction.warn.tolist()
            if hit := tuple(self.clauses[i].id for i in self._scored if warn[i]):
                return "warn", hit
        return "ok", ()

    def _excursions(
        self, frame: SignalFrame, step: int, status: list[int], upper: list[float], on_event: OnEvent | None
    ) -> tuple[ClauseEvent, ...]:
        """Entry and exit of violations. An unknown instant ends none: unknown is not safe."""
        events = []
        for i, code in enumerate(status):
            if code != VIOLATED and i not in self._open:
                continue
            state, rho = self._state[i], upper[i] + 0.0
            if code == VIOLATED:
                state.violated_steps += 1
                state.run += 1
                state.longest = max(state.longest, state.run)
                if i in self._open:
                    state.peak = min(state.peak, rho)
                    continue
                self._open.add(i)
                state.since_ns, state.peak = frame.stamp_ns, rho
                if state.first_step < 0:
                    self._first_ns = self._first_ns.copy()  # updates given out keep theirs
                    self._first_ns[i], state.first_step = frame.stamp_ns, step
                event = self._event("enter", i, frame, step, rho)
            else:
                state.run = 0
                if code != SATISFIED:
                    continue
                event = self._event("exit", i, frame, step, rho)
                self._open.discard(i)
            events.append(event)
            if on_event is not None:
                on_event(event)
        return tuple(events)

    def _event(self, kind: Literal["enter", "exit"], i: int, frame: SignalFrame, step: int, rho: float) -> ClauseEvent:
        clause, state, values = self.clauses[i], self._state[i], frame.values
        return ClauseEvent(
            kind,
            clause,
            frame.stamp_ns,
            step,
            rho,
            state.peak,
            clause.depth(state.peak),
            frame.stamp_ns - state.since_ns,
            {name: values.item(column) for name, column in self._inputs[i]},
        )

    def exits(self) -> tuple[ClauseEvent, ...]:
        """The exit events of violations that last until the last frame: an episode that ends also ends them."""
        if self._last is None:
            return ()
        frame, upper = self._last
        step = len(self.steps) - 1
        return tuple(self._event("exit", i, frame, step, upper[i] + 0.0) for i in sorted(self._open))

    def close(
        self,
        outcome: Outcome,
        *,
        complete: bool = True,
        late: bool = False,
        session: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
        unjudged: Iterable[str] = (),
    ) -> EpisodeRecord:
        """End the episode. ``late``: the first frames were not seen; ``unjudged``: clauses that latecomers left out."""
        unjudged = tuple(unjudged)
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
                status=STATUS_NAMES[_STATUS[verdict.status[i]]],
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
            clauses=(*results, *(not_judged(self.config.library[name], len(stamps)) for name in unjudged)),
            inactive={name: why for name, why in self.inactive.items() if name not in unjudged},
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
        self._latecomers: Latecomers | None = None

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
    def not_judged(self) -> tuple[str, ...]:
        """What the source gives only since after the first frame, with the clauses that are not judged for that."""
        return self._latecomers.texts() if self._latecomers else ()

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

    def update(self, frame: RawFrame, on_event: OnEvent | None = None) -> Update | None:
        """Judge one frame; None (and counted) when its stamp is zero or does not go forward.

        ``on_event`` as for :meth:`SignalMonitor.update`.
        """
        if frame.stamp_ns <= self.last_ns:
            self._refused += 1
            return None
        if self._monitor is None:
            self._late = self._start_ns is not None and frame.stamp_ns > self._start_ns
            have = capabilities(frame, self.info.sources, self.config.library.parameters)
            missing = unavailable(have)
            self._monitor = SignalMonitor(self.info, self.config, missing)
            self._latecomers = watch_latecomers(self.info, self.config, have)
        elif self._latecomers is not None:
            self._latecomers.look(frame)
        update = self._monitor.update(self._deriver.derive(frame), on_event)
        if update is not None and update.state in ("ok", "warn") and self.not_judged:
            return replace(update, state="unknown", reasons=self.not_judged)
        return update

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
        notes = (*notes, *self.not_judged)
        unjudged = self._latecomers.clauses if self._latecomers else ()
        record = monitor.close(
            outcome, complete=complete, late=self._late, session=session, notes=notes, unjudged=unjudged
        )
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
    late: Iterable[str] = (),
) -> EpisodeRecord:
    """Run clauses over stored signals: another library or threshold, or a stream left by a crash. Never re-runs a
    simulator.

    ``signals`` has a column (T,) for each schema signal it knows; a signal that it lacks is unknown. ``late`` are
    signals of ``missing`` that appeared after the first frame: their clauses are unknown.
    """
    monitor = SignalMonitor(info, config, missing)
    unknown = np.full(len(stamps_ns), np.nan)
    values = np.column_stack([signals.get(name, unknown) for name in SIGNALS]) if len(stamps_ns) else np.zeros((0, 0))
    for stamp, row, nearest in zip(stamps_ns.tolist(), values, obstacle, strict=True):
        monitor.update(SignalFrame(stamp, row, nearest))
    unjudged = clauses_of_late(info, config, missing, late)
    return monitor.close(outcome, complete=complete, late=partial, notes=notes, unjudged=unjudged)


def _codes(lower: list[float], upper: list[float]) -> list[int]:
    """Status codes of the bounds of some clauses."""
    return [VIOLATED if u < 0 else SATISFIED if low >= 0 else UNKNOWN for low, u in zip(lower, upper, strict=True)]
