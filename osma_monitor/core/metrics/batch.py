"""Clauses over many episodes at once, from signal columns: the numbers of `EpisodeMonitor`, without frames.

Episodes lie end to end: episode e owns the rows [offsets[e], offsets[e + 1]) of every column. Blocks of episodes are
taken one after the other, so that a block stays in the processor's cache and memory is that of the columns.
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
from osma_monitor.core.stl.graph import Graph, build_graph
from osma_monitor.core.stl.offline import Timeline, evaluate_graph
from osma_monitor.core.stl.tracks import Track

#: Steps of one block of episodes: ten columns of it are 5 MB.
_BLOCK = 1 << 16


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
        ValueError: columns of unequal length, offsets that do not fit, a signal that the columns lack.
    """
    stamps, offsets = columns.stamps_ns, np.asarray(columns.offsets, np.int64)
    count = len(stamps)
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != count or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets must rise from 0 to the {count} stamps, found {offsets[:3]} ... {offsets[-1:]}")
    gates = GATE_SIGNALS if gate_semantics == "boolean" else frozenset()
    graph = build_graph([stl.parse(clause.text(gate_semantics)) for clause in clauses], gates)
    inputs = []
    for name in graph.signals:
        if name not in columns.signals:
            raise ValueError(f"the columns lack the signal {name}")
        inputs.append(np.asarray(columns.signals[name], np.float64))
        if len(inputs[-1]) != count:
            raise ValueError(f"signal {name} has {len(inputs[-1])} values for {count} stamps")
    shape = (len(offsets) - 1, len(clauses))
    result = ClauseColumns(
        clauses=tuple(clauses),
        rho=np.full(shape, np.nan),
        lower=np.full(shape, -np.inf),
        upper=np.full(shape, np.inf),
        triggered=np.zeros(shape, bool),
        unknown_samples=np.zeros(shape, np.int64),
        first_violation_step=np.full(shape, -1, np.int64),
        violated_steps=np.zeros(shape, np.int64),
        longest_run=np.zeros(shape, np.int64),
    )
    for first, last in _blocks(offsets):
        rows = slice(int(offsets[first]), int(offsets[last]))
        _Block(graph, stamps[rows], offsets[first : last + 1] - offsets[first], [c[rows] for c in inputs]).write(
            result, slice(first, last)
        )
    return result


def _blocks(offsets: Ints) -> Iterator[tuple[int, int]]:
    first, episodes = 0, len(offsets) - 1
    while first < episodes:
        last = int(np.searchsorted(offsets, offsets[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), episodes)
        yield first, last
        first = last


class _Block:
    """A few episodes; those without a step keep what nothing known says."""

    def __init__(self, graph: Graph, stamps: Ints, offsets: Ints, inputs: Sequence[Floats]) -> None:
        self.graph = graph
        self.some = np.flatnonzero(np.diff(offsets))
        self.starts, self.ends = offsets[:-1][self.some], offsets[1:][self.some]
        finite = [np.isfinite(column) for column in inputs]
        self.unknown = [None if bool(mask.all()) else ~mask for mask in finite]
        # an infinite sample is as unknown as a missing one
        self.inputs = [
            column if lost is None else np.where(lost, np.nan, column)
            for column, lost in zip(inputs, self.unknown, strict=True)
        ]
        self.timeline = Timeline(stamps, np.concatenate([self.starts, self.ends[-1:]]))

    def write(self, result: ClauseColumns, episodes: slice) -> None:
        if not len(self.some):
            return
        bodies = [self._body(root) for root in self.graph.roots]
        wanted = {*self.graph.roots, *bodies, *(a for left in self.graph.antecedents for a in left)}
        skipped = {r for r, b in zip(self.graph.roots, bodies, strict=True) if r != b} - set(bodies)
        tracks = evaluate_graph(self.graph, self.timeline, self.inputs, closed=True, roots=wanted - skipped)
        rows = self.some + episodes.start
        for c, (root, body) in enumerate(zip(self.graph.roots, bodies, strict=True)):
            margins = tracks[body]
            if root != body:
                judged = self._minimum(margins)
            else:
                judged = margins[self.starts if self.graph.judged_first(c) else self.ends - 1]
            result.lower[rows, c], result.upper[rows, c], result.rho[rows, c] = judged.lower, judged.upper, judged.rho
            left = [tracks[a].lower > 0.0 for a in self.graph.antecedents[c]]
            opened = np.logical_or.reduce(left) if left else np.ones(self.timeline.count, bool)
            result.triggered[rows, c] = np.logical_or.reduceat(opened, self.starts)
            result.unknown_samples[rows, c] = self._unknown(c)
            self._violations(margins.upper < 0.0, result, rows, c)

    def _body(self, root: int) -> int:
        """What an outermost unbounded always demands at each step."""
        node = self.graph.nodes[root]
        while node.op == "always" and node.window is None:
            root = node.args[0]
            node = self.graph.nodes[root]
        return root

    def _minimum(self, a: Track) -> Track:
        lower = np.minimum.reduceat(a.lower, self.starts)
        if a.point:
            return Track.exact(lower)
        upper = np.minimum.reduceat(a.upper, self.starts)
        rho = np.fmin.reduceat(a.rho, self.starts)
        return Track(lower, upper, np.where(lower == upper, lower, np.minimum(np.maximum(rho, lower), upper)))

    def _unknown(self, clause: int) -> Ints | int:
        lost = [mask for i in self.graph.reads[clause] if (mask := self.unknown[i]) is not None]
        if not lost:
            return 0
        return np.add.reduceat(np.logical_or.reduce(lost).astype(np.int64), self.starts)

    def _violations(self, violated: Bools, result: ClauseColumns, rows: NDArray[np.intp], clause: int) -> None:
        at = np.flatnonzero(violated)
        if not len(at):
            return
        episode = np.searchsorted(self.ends, at, side="right")
        found, first = np.unique(episode, return_index=True)
        result.first_violation_step[rows[found], clause] = at[first] - self.starts[found]
        result.violated_steps[rows, clause] = np.bincount(episode, minlength=len(rows))
        begins = np.flatnonzero((np.diff(at, prepend=at[0] - 2) != 1) | (np.diff(episode, prepend=-1) != 0))
        runs = np.diff(begins, append=len(at))
        longest = np.zeros(len(rows), np.int64)
        np.maximum.at(longest, episode[begins], runs)
        result.longest_run[rows, clause] = longest


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
