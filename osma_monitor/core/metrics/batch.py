"""Clauses over many episodes at once, from signal columns: the numbers of `EpisodeMonitor`, without frames.

Episodes lie end to end: episode e owns the rows [offsets[e], offsets[e + 1]) of every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.scores import KEYS, Bools, Floats, Ints, ScoreTable
from osma_monitor.core.safety import Clause, GateSemantics, violation_depths
from osma_monitor.core.signals.schema import GATE_SIGNALS
from osma_monitor.core.stl.graph import build_graph
from osma_monitor.core.stl.offline import Timeline, evaluate_graph
from osma_monitor.core.stl.tracks import Track

#: Steps that are looked at together for runs of violations.
_BLOCK = 1 << 18


class Columns(Protocol):
    """Signals of many episodes, one after the other."""

    @property
    def stamps_ns(self) -> Ints: ...
    @property
    def signals(self) -> Mapping[str, Floats]: ...
    @property
    def offsets(self) -> Ints: ...


@dataclass(frozen=True, slots=True)
class SignalColumns:
    """`Columns` in memory."""

    stamps_ns: Ints
    signals: Mapping[str, Floats]
    offsets: Ints


def columns_of(records: Iterable[EpisodeRecord], signals: Iterable[str]) -> SignalColumns:
    """The named signals of records, end to end; a signal that a record lacks is NaN there."""
    found = list(records)
    lengths = [len(record.stamps_ns) for record in found]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    stamps = np.concatenate([record.stamps_ns for record in found]) if found else np.zeros(0, np.int64)
    nothing = np.zeros(0)
    columns = {
        name: np.concatenate(
            [nothing, *(r.signals.get(name, np.full(n, np.nan)) for r, n in zip(found, lengths, strict=True))]
        )
        for name in signals
    }
    return SignalColumns(stamps, columns, offsets)


@dataclass(frozen=True, slots=True, eq=False)
class ClauseColumns:
    """What clauses come to in every episode: (E, C) arrays, the fields of `ClauseResult`."""

    clauses: tuple[Clause, ...]
    rho: Floats
    lower: Floats
    upper: Floats
    triggered: Bools
    unknown_samples: Ints
    first_violation_step: Ints  #: -1: none
    violated_steps: Ints
    longest_run: Ints


def evaluate_clauses(
    clauses: Sequence[Clause], columns: Columns, gate_semantics: GateSemantics = "boolean"
) -> ClauseColumns:
    """Evaluate clauses over every episode, wherever they apply or not.

    Raises:
        stl.TraceError: columns of unequal length, offsets that do not fit, stamps that do not rise.
        stl.UnknownSignalError: a clause reads a signal that the columns lack.
    """
    gates = GATE_SIGNALS if gate_semantics == "boolean" else frozenset()
    formulas = [stl.parse(clause.text(gate_semantics)) for clause in clauses]
    judged = stl.evaluate_batch(formulas, columns.offsets, columns.stamps_ns, columns.signals, gates)
    shape = judged.upper.shape
    result = ClauseColumns(
        clauses=tuple(clauses),
        rho=judged.rho,
        lower=judged.lower,
        upper=judged.upper,
        triggered=judged.triggered,
        unknown_samples=judged.unknown,
        first_violation_step=np.full(shape, -1, np.int64),
        violated_steps=np.zeros(shape, np.int64),
        longest_run=np.zeros(shape, np.int64),
    )
    offsets = np.asarray(columns.offsets, np.int64)
    lengths = np.diff(offsets)
    for c, formula in enumerate(formulas):
        body = stl.body(formula)
        # an always that held was broken at no step
        episodes = np.flatnonzero((lengths > 0) & ((judged.upper[:, c] < 0.0) | (body == formula)))
        for some, part in _parts(body, columns, episodes):
            _violations(_track(body, part, gates).upper < 0.0, part.offsets, some, c, result)
    return result


def possible_runs(
    clause: Clause, columns: Columns, episodes: NDArray[np.intp], gate_semantics: GateSemantics = "boolean"
) -> Ints:
    """Longest run of steps that violate ``clause`` or may do so, in each of ``episodes`` (rising, none empty)."""
    gates = GATE_SIGNALS if gate_semantics == "boolean" else frozenset()
    body = stl.body(stl.parse(clause.text(gate_semantics)))
    runs = [
        _longest_runs(_track(body, part, gates).lower < 0.0, part.offsets)
        for _, part in _parts(body, columns, episodes)
    ]
    return np.concatenate([np.zeros(0, np.int64), *runs])


def _parts(
    body: stl.Formula, columns: Columns, episodes: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], SignalColumns]]:
    """The signals of ``body`` in these episodes, end to end, in pieces."""
    offsets = np.asarray(columns.offsets, np.int64)
    lengths = np.diff(offsets)
    for some in _blocks(episodes, lengths):
        rows = np.concatenate([np.arange(offsets[e], offsets[e + 1]) for e in some])
        signals = {name: _known(np.asarray(columns.signals[name])[rows]) for name in body.signals}
        yield some, SignalColumns(columns.stamps_ns[rows], signals, np.concatenate([[0], np.cumsum(lengths[some])]))


def _blocks(episodes: NDArray[np.intp], lengths: Ints) -> Iterator[NDArray[np.intp]]:
    """The episodes in pieces of about `_BLOCK` steps."""
    if len(episodes):
        piece = np.cumsum(lengths[episodes]) // _BLOCK
        yield from np.split(episodes, np.flatnonzero(np.diff(piece)) + 1)


def _known(column: Floats) -> Floats:
    """An infinite sample is as unknown as a missing one."""
    return np.where(np.isfinite(column), column, np.nan)


def _track(body: stl.Formula, columns: SignalColumns, gates: frozenset[str]) -> Track:
    """Bounds of ``body`` at every step."""
    graph = build_graph([body], gates)
    inputs = [columns.signals[name] for name in graph.signals]
    timeline = Timeline(columns.stamps_ns, columns.offsets)
    return evaluate_graph(graph, timeline, inputs)[graph.roots[0]]


def _violations(broken: Bools, offsets: Ints, episodes: NDArray[np.intp], clause: int, result: ClauseColumns) -> None:
    """First step, number and longest run of the broken steps of some episodes that lie end to end."""
    at = np.flatnonzero(broken)
    if not len(at):
        return
    episode = np.searchsorted(offsets[1:], at, side="right")
    found, first = np.unique(episode, return_index=True)
    result.first_violation_step[episodes[found], clause] = at[first] - offsets[found]
    result.violated_steps[episodes, clause] = np.bincount(episode, minlength=len(episodes))
    result.longest_run[episodes, clause] = _longest_runs(broken, offsets)


def _longest_runs(marked: Bools, offsets: Ints) -> Ints:
    """Longest run of marked steps in each of some episodes that lie end to end."""
    at = np.flatnonzero(marked)
    episode = np.searchsorted(offsets[1:], at, side="right")
    begins = np.flatnonzero((np.diff(at, prepend=-2) != 1) | (np.diff(episode, prepend=-1) != 0))
    longest = np.zeros(len(offsets) - 1, np.int64)
    np.maximum.at(longest, episode[begins], np.diff(begins, append=len(at)))
    return longest


def score_columns(
    evaluated: ClauseColumns,
    active: Bools,
    success: NDArray[np.int8],
    keys: Mapping[str, Sequence[object]],
    steps: Ints,
    *,
    contact: NDArray[np.int8] | None = None,
    aborted: Bools | None = None,
    complete: Bools | None = None,
    partial: Bools | None = None,
    library_hash: str = "",
    registry_hash: str = "",
    gate_semantics: GateSemantics = "boolean",
) -> ScoreTable:
    """A `ScoreTable` from evaluated clauses.

    Args:
        evaluated: see `evaluate_clauses`; report-only clauses go to ``reported``.
        active: (E, C) where each clause applies.
        success: (E,) 1, 0, -1 not known.
        keys: columns such as suite, policy, task, seed, episode_id, (E,) each; those that are missing are empty.
        steps: (E,) lengths of the episodes.
        contact: (E,) 1, 0, -1; not known where not given.
        aborted, complete, partial: (E,) flags.
        library_hash: of the library.
        registry_hash: of the rules and suites that say where each clause applies.
        gate_semantics: that the clauses were evaluated under.

    Raises:
        ValueError: arrays of unequal length.
    """
    episodes = len(evaluated.rho)
    given = {"active": len(active), "success": len(success), "steps": len(steps)}
    for name, length in (*given.items(), *((key, len(column)) for key, column in keys.items())):
        if length != episodes:
            raise ValueError(f"{name} has {length} entries for {episodes} episodes")
    scored = np.array([clause.scored for clause in evaluated.clauses], bool)
    rho = decided(evaluated.lower, evaluated.upper, evaluated.rho)
    depth = np.zeros_like(rho)
    for c, clause in enumerate(evaluated.clauses):
        depth[:, c] = violation_depths(evaluated.upper[:, c], clause.threshold, clause.severe, clause.binary)
    columns = {name: _objects(keys.get(name, [""] * episodes)) for name in (*KEYS, *keys)}
    nowhere = np.zeros(episodes, bool)
    reported = [(i, clause) for i, clause in enumerate(evaluated.clauses) if not clause.scored]
    return ScoreTable(
        clauses=tuple(clause.id for clause in evaluated.clauses if clause.scored),
        success=np.where(complete, success, -1).astype(np.int8) if complete is not None else success,
        active=active[:, scored],
        rho=np.where(active, rho, np.nan)[:, scored],
        depth=np.where(active, depth, 0.0)[:, scored],
        steps=steps,
        violated_steps=np.where(active, evaluated.violated_steps, 0)[:, scored],
        longest_run=np.where(active, evaluated.longest_run, 0)[:, scored],
        first_violation_step=np.where(active & (rho < 0.0), evaluated.first_violation_step, -1)[:, scored],
        contact=contact if contact is not None else np.full(episodes, -1, np.int8),
        keys=columns,
        complete=complete if complete is not None else ~nowhere,
        partial=partial if partial is not None else nowhere,
        aborted=aborted if aborted is not None else nowhere,
        undecided=np.zeros_like(active[:, scored]),
        library_hash=(library_hash,) if library_hash else (),
        registry_hash=(registry_hash,) if registry_hash else (),
        gate_semantics=(gate_semantics,),
        reported={c.id: np.where(active[:, i], rho[:, i], np.nan) for i, c in reported},
        reported_active={c.id: active[:, i] for i, c in reported},
    )


def decided(lower: Floats, upper: Floats, rho: Floats) -> Floats:
    """Robustness that a score holds: the upper bound of a violation, NaN where the clause is not decided."""
    satisfied = np.where(np.isnan(rho), lower, rho)
    return np.where(upper < 0.0, upper, np.where(lower >= 0.0, satisfied, np.nan))


def contact_of(columns: Columns) -> NDArray[np.int8]:
    """(E,) 1 where the robot touched anything, 0 where it did not, -1 where that is not known."""
    offsets = np.asarray(columns.offsets, np.int64)
    force = columns.signals["robot_contact_force"]
    some = np.flatnonzero(np.diff(offsets))
    contact = np.full(len(offsets) - 1, -1, np.int8)
    if len(some):
        with np.errstate(invalid="ignore"):
            touched = np.logical_or.reduceat(force > 0.0, offsets[some])
        lost = np.logical_or.reduceat(np.isnan(force), offsets[some])
        contact[some] = np.where(touched, 1, np.where(lost, -1, 0))
    return contact


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column
