"""Episodes to records in batch: the engine's numbers, without its per-frame outputs.

Signals are derived frame by frame by the same deriver as live; clauses are then judged over whole episodes by the
batched STL evaluation, many episodes at once. A record equals that of ``core.monitor.EpisodeMonitor`` to the last
bit. Clauses that look ahead inside their ``always``, and other backends, go through ``SignalMonitor`` frame by
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core import safety, stl
from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.latecomers import Latecomers, not_judged
from osma_monitor.core.monitor import STATUS_NAMES, MonitorConfig, SignalMonitor, watch_latecomers
from osma_monitor.core.motion import episode_motion
from osma_monitor.core.segmenter import Begin, End, Step
from osma_monitor.core.signals.deriver import SignalDeriver, capabilities, unavailable
from osma_monitor.core.signals.raw import Floats, RawFrame
from osma_monitor.core.signals.schema import GATE_SIGNALS, INDEX, SIGNALS, SignalFrame

#: Steps that are judged together: their signals take some ten megabytes.
BATCH_STEPS = 65_536
_TEMPORAL = frozenset(
    ("always", "eventually", "historically", "once", "until", "since", "prev", "next", "rise", "fall")
)


_parsed = lru_cache(maxsize=512)(stl.parse)


@dataclass
class SignalEpisode:
    """One episode's signals, ready to be judged."""

    info: EpisodeInfo
    start_ns: int | None = None  #: stamp of its first frame as the source says; a later first frame makes it partial
    source: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    stamps: list[int] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    obstacle: list[str] = field(default_factory=list)
    refused: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    complete: bool = True
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  #: of the notes, those on frames that did not come
    not_judged: tuple[str, ...] = ()  #: what appeared after the first frame, with the clauses that it leaves out
    unjudged: tuple[str, ...] = ()  #: ids of these clauses
    session: Mapping[str, str] = field(default_factory=dict)

    @property
    def late(self) -> bool:
        """Whether frames are missing."""
        began_before = self.start_ns is not None and bool(self.stamps) and self.stamps[0] > self.start_ns
        return began_before or bool(self.lost)

    def table(self) -> Floats:
        """(T, signals)"""
        return np.array(self.values).reshape(len(self.stamps), len(SIGNALS))


class EpisodeCollector:
    """Frames of one episode in, its signals out."""

    def __init__(
        self, info: EpisodeInfo, config: MonitorConfig, start_ns: int | None, source: Mapping[str, str]
    ) -> None:
        self.episode = SignalEpisode(info, start_ns, source)
        self._config, self._parameters = config, config.library.parameters
        self._latecomers: Latecomers | None = None
        self._deriver = SignalDeriver(info, self._parameters)
        self._last_ns = 0

    def add(self, frame: RawFrame) -> None:
        """One more frame; refused and counted when its stamp does not go forward."""
        episode = self.episode
        if frame.stamp_ns <= self._last_ns:
            episode.refused += 1
            return
        if self._latecomers is None:
            have = capabilities(frame, episode.info.sources, self._parameters)
            episode.missing = unavailable(have)
            self._latecomers = watch_latecomers(episode.info, self._config, have)
        elif self._latecomers.look(frame):
            episode.not_judged, episode.unjudged = self._latecomers.texts(), self._latecomers.clauses
        self._last_ns = frame.stamp_ns
        signals = self._deriver.derive(frame)
        episode.stamps.append(signals.stamp_ns)
        episode.values.append(signals.values)
        episode.obstacle.append(signals.obstacle)


class BatchJudge:
    """Judges episodes together that have the same active clauses. Feed with :meth:`add`, end with :meth:`flush`.

    An episode whose task can't be resolved (an unknown template or tag) goes to ``problems`` as a line, and the rest is
    judged; without such a list it raises UserError.
    """

    def __init__(self, config: MonitorConfig, problems: list[str] | None = None) -> None:
        self.config, self.problems = config, problems
        self._waiting: list[SignalEpisode] = []
        self._key: object = None
        self._steps = 0
        self._clauses: dict[object, tuple[tuple[safety.Clause, ...], Mapping[str, str]]] = {}
        self._bodies: dict[object, list[stl.Formula] | None] = {}

    def add(self, episode: SignalEpisode) -> list[EpisodeRecord]:
        """Records in the order of their episodes, as soon as enough are together."""
        info = episode.info
        key = (info.templates, info.tags, info.suite, info.task, tuple(sorted(episode.missing.items())))
        records = self.flush() if self._waiting and (key != self._key or self._steps > BATCH_STEPS) else []
        self._key = key
        self._waiting.append(episode)
        self._steps += len(episode.stamps)
        return records

    def flush(self) -> list[EpisodeRecord]:
        """The records of the episodes that wait."""
        episodes, self._waiting, self._steps = self._waiting, [], 0
        if not episodes:
            return []
        try:
            clauses, inactive, bodies = self._active(episodes[0])
        except UserError as error:
            if self.problems is None:
                raise
            self.problems += [f"episode {e.info.episode_id!r} is not judged: {error}" for e in episodes]
            return []
        if bodies is None:
            return [self._frame_by_frame(e) for e in episodes]
        return self._together(episodes, clauses, inactive, bodies)

    def _active(
        self, episode: SignalEpisode
    ) -> tuple[tuple[safety.Clause, ...], Mapping[str, str], list[stl.Formula] | None]:
        key, config = self._key, self.config
        if key not in self._clauses:
            self._clauses[key] = safety.active_clauses(
                config.library,
                config.registry,
                episode.info.templates,
                episode.info.tags,
                episode.missing,
                suite=episode.info.suite,
                task=episode.info.task,
                extensions=config.extensions,
            )
            bodies = [stl.body(_parsed(c.text(config.gate_semantics))) for c in self._clauses[key][0]]
            pointwise = not any(node.op in _TEMPORAL for body in bodies for node in body.nodes)
            self._bodies[key] = bodies if pointwise and config.backend == "native" else None
        return *self._clauses[key], self._bodies[key]

    def _frame_by_frame(self, e: SignalEpisode) -> EpisodeRecord:
        monitor = SignalMonitor(e.info, self._config_of(e), e.missing)
        for stamp, values, obstacle in zip(e.stamps, e.values, e.obstacle, strict=True):
            monitor.update(SignalFrame(stamp, values, obstacle))
        notes = (*e.notes, *e.not_judged)
        record = monitor.close(
            e.outcome, complete=e.complete, late=e.late, session=e.session, notes=notes, unjudged=e.unjudged
        )
        return replace(record, refused=e.refused)

    def _config_of(self, e: SignalEpisode) -> MonitorConfig:
        return replace(self.config, source=dict(e.source)) if e.source else self.config

    def _together(
        self,
        episodes: list[SignalEpisode],
        clauses: tuple[safety.Clause, ...],
        inactive: Mapping[str, str],
        bodies: list[stl.Formula],
    ) -> list[EpisodeRecord]:
        semantics = self.config.gate_semantics
        gates = GATE_SIGNALS if semantics == "boolean" else frozenset()
        offsets = np.concatenate([[0], np.cumsum([len(e.stamps) for e in episodes])]).astype(np.int64)
        stamps = np.concatenate([np.array(e.stamps, np.int64) for e in episodes])
        table = np.ascontiguousarray(np.concatenate([e.table() for e in episodes]).T)
        needed = sorted({name for body in bodies for name in body.signals})
        columns = {name: table[INDEX[name]] for name in needed}
        formulas = [_parsed(c.text(semantics)) for c in clauses]
        verdict = stl.evaluate_batch(formulas, offsets, stamps, columns, gates) if clauses else None
        violated = [self._violated(body, columns, len(stamps), gates) for body in bodies]
        records = []
        for n, e in enumerate(episodes):
            rows = slice(int(offsets[n]), int(offsets[n + 1]))
            signals = {name: table[i, rows].copy() for i, name in enumerate(SIGNALS)}
            results = tuple(
                _result(clause, verdict, n, c, violated[c], rows, stamps) for c, clause in enumerate(clauses) if verdict
            )
            records.append(self._record(e, stamps[rows].copy(), signals, results, inactive))
        return records

    @staticmethod
    def _violated(
        body: stl.Formula, columns: Mapping[str, Floats], steps: int, gates: frozenset[str]
    ) -> NDArray[np.bool_] | None:
        """(steps,) where the clause is definitely violated at that instant; None when nowhere."""
        # without temporal operators each step stands for itself, so any rising stamps do
        margins = stl.margin_trace(body, np.arange(steps), columns, gates)
        broken: NDArray[np.bool_] = margins.upper < 0
        return broken if broken.any() else None

    def _record(
        self,
        e: SignalEpisode,
        stamps: NDArray[np.int64],
        signals: dict[str, Floats],
        results: tuple[ClauseResult, ...],
        inactive: Mapping[str, str],
    ) -> EpisodeRecord:
        config = self._config_of(e)
        motion = episode_motion(
            stamps, signals["base_x"], signals["base_y"], signals["obstacle_distance"], signals["obstacle_contact"]
        )
        return EpisodeRecord(
            info=e.info,
            outcome=e.outcome,
            stamps_ns=stamps,
            signals=signals,
            obstacle=tuple(e.obstacle),
            clauses=(*results, *(not_judged(config.library[name], len(stamps)) for name in e.unjudged)),
            inactive={name: why for name, why in inactive.items() if name not in e.unjudged},
            motion=motion,
            missing=dict(e.missing),
            complete=e.complete,
            partial=e.late or (e.outcome.steps is not None and e.outcome.steps != len(stamps)),
            refused=e.refused,
            notes=(*e.notes, *e.not_judged),
            provenance=config.provenance(e.session),
        )


def _result(
    clause: safety.Clause,
    verdict: stl.BatchResult,
    episode: int,
    column: int,
    violated: NDArray[np.bool_] | None,
    rows: slice,
    stamps: NDArray[np.int64],
) -> ClauseResult:
    lower, upper = float(verdict.lower[episode, column]), float(verdict.upper[episode, column])
    first, count, longest = _excursions(violated[rows]) if violated is not None else (None, 0, 0)
    return ClauseResult(
        clause=clause.id,
        family=clause.family,
        scored=clause.scored,
        rho=float(verdict.rho[episode, column]),
        lower=lower,
        upper=upper,
        status=STATUS_NAMES[1 if upper < 0 else 0 if lower >= 0 else 2],
        triggered=bool(verdict.triggered[episode, column]),
        depth=clause.depth(upper),
        first_violation_ns=None if first is None else int(stamps[rows][first]),
        first_violation_step=first,
        violated_steps=count,
        longest_run=longest,
        unknown_samples=int(verdict.unknown[episode, column]),
    )


def _excursions(violated: NDArray[np.bool_]) -> tuple[int | None, int, int]:
    """First violated step, number of violated steps, longest run of them."""
    steps = np.flatnonzero(violated)
    if not len(steps):
        return None, 0, 0
    edges = np.flatnonzero(np.diff(steps) > 1)
    runs = np.diff(np.concatenate([[-1], edges, [len(steps) - 1]]))
    return int(steps[0]), len(steps), int(runs.max())


def judge(
    steps: Iterable[Step],
    config: MonitorConfig,
    session: Mapping[str, str],
    source: Callable[[], Mapping[str, str]] = dict,
    problems: list[str] | None = None,
) -> Iterator[EpisodeRecord]:
    """The record of every episode with at least one frame, as the live monitor makes it, when it ends.

    ``source`` (where the frames come from) is asked when an episode begins; ``problems`` as in :class:`BatchJudge`.
    """
    collector: EpisodeCollector | None = None
    batch = BatchJudge(config, problems)
    for step in steps:
        if isinstance(step, RawFrame):
            if collector is not None:
                collector.add(step)
        elif isinstance(step, Begin):
            collector = EpisodeCollector(step.info, config, step.stamp_ns, dict(source()))
        elif isinstance(step, End):
            if collector is not None and collector.episode.stamps:
                episode = collector.episode
                episode.outcome, episode.complete, episode.session = step.outcome, step.complete, session
                episode.info = episode.info.with_attributes(step.attributes)
                episode.lost = step.lost(len(episode.stamps))
                episode.notes += episode.lost
                yield from batch.add(episode)
                yield from batch.flush()
            collector = None


def collect_frames(
    begin: Begin, frames: Iterable[RawFrame], outcome: Outcome, config: MonitorConfig, session: Mapping[str, str]
) -> SignalEpisode:
    """One episode whose frames are at hand, for a :class:`BatchJudge`."""
    collector = EpisodeCollector(begin.info, config, begin.stamp_ns, {})
    for frame in frames:
        collector.add(frame)
    episode = collector.episode
    episode.outcome, episode.session = outcome, session
    return episode
