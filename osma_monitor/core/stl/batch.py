"""Many finished episodes at once: one judged value an episode and clause.

Signals lie end to end, signal-major. Work goes in blocks of whole episodes that stay in the cache. Clauses of the
common shape ``always(signal < number)``, gated or not, reduce the signal itself: rounding is monotone, so the number
minus the greatest value is the least margin to the last bit. Everything else goes through whole-trace evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from osma_monitor.core.stl import tracks
from osma_monitor.core.stl.errors import TraceError, UnknownSignalError
from osma_monitor.core.stl.graph import GATE_THRESHOLD, Reduction, build_graph, reduction_of
from osma_monitor.core.stl.offline import Timeline, as_column, as_formula, evaluate_graph, unknown_signal
from osma_monitor.core.stl.online import Library
from osma_monitor.core.stl.onset import can_tell, first_violated
from osma_monitor.core.stl.syntax import Formula
from osma_monitor.core.stl.tracks import Array, Track

BLOCK_SAMPLES: Final = 65_536


@dataclass(frozen=True)
class BatchResult:
    """Judged values of every clause in every episode; arrays are (episodes, clauses).

    Attributes:
        lower, upper: bounds of the robustness, given what is unknown.
        rho: the robustness; NaN where undecided or nothing is known.
        triggered: some left side of an implication was definitely true; true without implications.
        unknown: samples in which some signal of the clause was NaN, infinite or not given.
    """

    lower: Array
    upper: Array
    rho: Array
    triggered: NDArray[np.bool_]
    unknown: NDArray[np.int64]
    _batch: _Batch

    @property
    def status(self) -> NDArray[np.int8]:
        """(episodes, clauses) 1 satisfied, -1 violated, 0 unknown."""
        return np.where(self.upper < 0, -1, np.where(self.lower >= 0, 1, 0)).astype(np.int8)

    @cached_property
    def first_violation(self) -> NDArray[np.int64]:
        """(episodes, clauses) first sample of the episode at which a monitor would have said 'violated', -1 for never.

        A clause that only the end of the trace violates (an ``eventually`` that never came) has the last sample.
        Worked out when first asked for.
        """
        return self._batch.first_violations(self.upper)


def evaluate_batch(
    formulas: Sequence[Formula | str],
    offsets: ArrayLike,
    stamps_ns: ArrayLike,
    signals: Mapping[str, ArrayLike],
    gate_signals: Iterable[str] = (),
    dtype: DTypeLike = np.float64,
    missing: Literal["error", "unknown"] = "error",
) -> BatchResult:
    """Judges clauses on many finished episodes.

    Args:
        formulas: the clauses.
        offsets: (episodes + 1,) first sample of each episode, and the total number of samples at the end.
        stamps_ns: (samples,) int64 nanoseconds, rising inside each episode.
        signals: name to (samples,) values of all episodes end to end.
        gate_signals: names whose comparisons are Boolean.
        dtype: float64, or float32 for twice the speed at six digits.
        missing: what to do when a clause reads a signal that is not given: raise, or treat it as unknown throughout.

    Returns:
        Judged values; an episode without samples is undecided.

    Raises:
        TraceError: offsets, stamps or lengths that do not fit.
        UnknownSignalError: a signal is not given and ``missing`` is 'error'.
    """
    if isinstance(formulas, Formula | str):
        raise TypeError(f"formulas is a sequence of clauses, not the one clause {str(formulas)!r}")
    if missing not in ("error", "unknown"):
        raise ValueError(f"missing is 'error' or 'unknown', not {missing!r}")
    batch = _Batch(
        [as_formula(f) for f in formulas], offsets, stamps_ns, signals, gate_signals, np.dtype(dtype), missing
    )
    return batch.judge()


class _Batch:
    def __init__(
        self, formulas: list[Formula], offsets: ArrayLike, stamps_ns: ArrayLike, signals: Mapping[str, ArrayLike],
        gate_signals: Iterable[str], dtype: np.dtype[Any], missing: str,
    ) -> None:  # fmt: skip
        if dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise TraceError(f"dtype is float64 or float32, not {dtype}")
        self.graph = build_graph(formulas, gate_signals)
        self.dtype = dtype
        self.offsets = _check_offsets(offsets)
        count = int(self.offsets[-1])
        self.stamps = np.asarray(stamps_ns)
        if self.stamps.shape != (count,) or (count and self.stamps.dtype.kind not in "iu"):
            raise TraceError(
                f"stamps have shape {self.stamps.shape} and type {self.stamps.dtype}, "
                f"expected {count} whole nanoseconds as the offsets say"
            )
        if self.stamps.dtype.kind == "u" and self.stamps.max(initial=0) >= 2**63:
            raise TraceError(f"stamps are int64 nanoseconds; {self.stamps.max()} is too large")
        self.columns: list[Array | None] = []
        for name in self.graph.signals:
            if name not in signals:
                if missing == "error":
                    raise UnknownSignalError(unknown_signal(name, signals))
                self.columns.append(None)
                continue
            column = as_column(signals[name])
            if column.shape != (count,):
                raise TraceError(f"signal {name!r} has shape {column.shape}, but there are {count} stamps")
            if column.dtype.kind not in "fiub":
                raise TraceError(f"signal {name!r} holds {column.dtype}, expected numbers")
            self.columns.append(column)
        self.reductions = [reduction_of(self.graph, root) for root in self.graph.roots]

    # --- blocks ---

    def blocks(self) -> Iterable[tuple[int, int]]:
        """Ranges of episodes of about BLOCK_SAMPLES samples."""
        offsets, episodes = self.offsets, len(self.offsets) - 1
        begin = 0
        while begin < episodes:
            end = int(np.searchsorted(offsets, offsets[begin] + BLOCK_SAMPLES, side="right")) - 1
            end = min(max(end, begin + 1), episodes)
            yield begin, end
            begin = end

    def column(self, signal: int, begin: int, end: int) -> Array:
        column = self.columns[signal]
        if column is None:
            return np.full(end - begin, np.nan, dtype=self.dtype)
        return column[begin:end].astype(self.dtype, copy=False)

    def judge(self) -> BatchResult:
        shape = (len(self.offsets) - 1, len(self.graph.roots))
        lower, upper = np.full(shape, -np.inf, self.dtype), np.full(shape, np.inf, self.dtype)
        rho = np.full(shape, np.nan, self.dtype)
        triggered = np.ones(shape, dtype=bool)
        unknown = np.zeros(shape, dtype=np.int64)
        for begin, end in self.blocks():
            block = _Block(self, begin, end)
            rows = block.rows
            for clause, reduction in enumerate(self.reductions):
                reads = self.graph.reads[clause]
                if reduction is not None and all(block.clean(s) for s in reads):
                    value, fired = block.reduce(reduction)
                    lower[rows, clause] = upper[rows, clause] = rho[rows, clause] = value
                    if fired is not None:
                        triggered[rows, clause] = fired
                    continue
                track, fired = block.general(clause)
                lower[rows, clause], upper[rows, clause], rho[rows, clause] = track.lower, track.upper, track.rho
                if fired is not None:
                    triggered[rows, clause] = fired
                if not all(block.clean(s) for s in reads):
                    unknown[rows, clause] = block.count_unknown(reads)
        for part in (lower, upper, rho):
            part += 0.0  # no negative zeros
        return BatchResult(lower, upper, rho, triggered, unknown, self)

    def first_violations(self, upper: Array) -> NDArray[np.int64]:
        found = np.full(upper.shape, -1, dtype=np.int64)
        for begin, end in self.blocks():
            block = _Block(self, begin, end)
            for clause, root in enumerate(self.graph.roots):
                node = self.graph.nodes[root]
                body = node.args[0] if node.op == "always" and node.window is None else root
                if self.graph.nodes[body].future:
                    self._look_ahead(found, upper, clause, block, range(begin, end))
                elif not node.future or (upper[begin:end, clause] < 0).any():
                    found[block.rows, clause] = block.first_below(clause, body)
        return found

    def _look_ahead(
        self, found: NDArray[np.int64], upper: Array, clause: int, block: _Block, episodes: Sequence[int]
    ) -> None:
        """Clauses that look ahead in other ways than one ``always``, in the episodes of one block."""
        broken = [e for e in episodes if upper[e, clause] < 0]
        if not broken:
            return
        if can_tell(self.graph, self.graph.roots[clause]):
            found[block.rows, clause] = block.first_decided(clause)
        for episode in broken:
            if found[episode, clause] >= 0:
                continue
            if can_tell(self.graph, self.graph.roots[clause]):
                found[episode, clause] = self.offsets[episode + 1] - self.offsets[episode] - 1
            else:
                found[episode, clause] = self._replay(clause, episode)

    def _replay(self, clause: int, episode: int) -> int:
        """The online monitor on one episode, for arithmetic and comparisons over terms that look ahead."""
        begin, end = int(self.offsets[episode]), int(self.offsets[episode + 1])
        library = Library(self.graph.formulas[clause], gate_signals=self.graph.gates)
        own = [self.graph.signals.index(name) for name in library.signals]
        values = np.stack([self.column(s, begin, end) for s in own], axis=1) if own else np.empty((end - begin, 0))
        for i, stamp in enumerate(self.stamps[begin:end].tolist()):
            if library.update(stamp, values[i]).upper[0] < 0:
                return i
        return end - begin - 1


class _Block:
    """Some whole episodes. Episodes without samples are left out of ``rows``."""

    def __init__(self, batch: _Batch, begin: int, end: int) -> None:
        self.batch = batch
        offsets = batch.offsets[begin : end + 1]
        self.first, self.last = int(offsets[0]), int(offsets[-1])
        filled = np.flatnonzero(np.diff(offsets) > 0)
        self.rows: Any = slice(begin, end) if len(filled) == end - begin else filled + begin
        self.offsets = np.append(offsets[:-1][filled], offsets[-1]) - self.first
        lengths = np.diff(self.offsets)
        self.length = int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else None
        self._columns: dict[int, Array] = {}
        self._clean: dict[int, bool] = {}
        self._check_stamps()

    def _check_stamps(self) -> None:
        stamps = self.batch.stamps[self.first : self.last]
        rising = stamps[1:] > stamps[:-1]
        rising[self.offsets[1:-1] - 1] = True  # from one episode to the next anything goes
        if not rising.all():
            at = int(np.flatnonzero(~rising)[0]) + 1
            episode = int(np.searchsorted(self.batch.offsets, self.first + at, side="right")) - 1
            place = self.first + at - int(self.batch.offsets[episode])
            raise TraceError(
                f"episode {episode}: stamp {place} ({stamps[at]} ns) does not come after the one before it "
                f"({stamps[at - 1]} ns)"
            )

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.batch.stamps[self.first : self.last].astype(np.int64), self.offsets)

    def column(self, signal: int) -> Array:
        if signal not in self._columns:
            self._columns[signal] = self.batch.column(signal, self.first, self.last)
        return self._columns[signal]

    def clean(self, signal: int) -> bool:
        """Is every sample of the signal finite? (A sum that overflows says no, which costs time, not truth.)"""
        if signal not in self._clean:
            with np.errstate(all="ignore"):
                self._clean[signal] = bool(np.isfinite(np.add.reduce(self.column(signal))))
        return self._clean[signal]

    def known(self, signal: int) -> Array:
        """The column with NaN for everything unknown."""
        column = self.column(signal)
        if self.clean(signal):
            return column
        return np.where(np.isfinite(column), column, self.batch.dtype.type(np.nan))

    def fold(self, ufunc: np.ufunc, values: Array) -> Array:
        """One ufunc over each episode."""
        if self.length is not None:
            return np.asarray(ufunc.reduce(values.reshape(-1, self.length), axis=1))
        return np.asarray(ufunc.reduceat(values, self.offsets[:-1])) if len(self.offsets) > 1 else values[:0]

    def reduce(self, reduction: Reduction) -> tuple[Array, NDArray[np.bool_] | None]:
        values, fired = self.column(reduction.signal), None
        dtype = self.batch.dtype.type
        if reduction.gate is not None:
            on = self.column(reduction.gate) > GATE_THRESHOLD
            values = np.where(on, values, dtype(-np.inf if reduction.upper else np.inf))
            fired = self.fold(np.logical_or, on)
        limit = dtype(reduction.limit)
        if reduction.upper:
            return limit - self.fold(np.maximum, values), fired
        return self.fold(np.minimum, values) - limit, fired

    def general(self, clause: int) -> tuple[Track, NDArray[np.bool_] | None]:
        """Any clause by whole-trace evaluation."""
        graph = self.batch.graph
        root = graph.roots[clause]
        node = graph.nodes[root]
        over = node.op in ("always", "eventually") and node.window is None
        target = node.args[0] if over else root
        left = graph.antecedents[clause]
        found = evaluate_graph(graph, self.timeline, self.known_columns(clause), True, {target, *left})
        if over:
            judged = self.over_episodes(found[target], node.op == "always")
        else:
            judged = found[target][self.offsets[:-1] if node.future else self.offsets[1:] - 1]
        if not left:
            return judged, None
        true = np.logical_or.reduce([found[a].lower > 0 for a in left])
        return judged, self.fold(np.logical_or, true)

    def over_episodes(self, body: Track, always: bool) -> Track:
        """Minimum (or maximum) of a track over each episode; rho skips what is unknown."""
        body = body if always else tracks.negate(body)
        if body.point:
            result = Track.exact(self.fold(np.minimum, body.lower))
        else:
            unknown = np.isnan(body.rho)
            rho = self.fold(np.minimum, np.where(unknown, body.rho.dtype.type(np.inf), body.rho))
            rho = np.where(self.fold(np.logical_and, unknown), np.nan, rho)
            result = tracks.settle(self.fold(np.minimum, body.lower), self.fold(np.minimum, body.upper), rho)
        return result if always else tracks.negate(result)

    def count_unknown(self, reads: Sequence[int]) -> NDArray[np.int64]:
        unknown = np.logical_or.reduce([~np.isfinite(self.column(s)) for s in reads])
        return self.fold(np.add, unknown.astype(np.int64))

    def first_decided(self, clause: int) -> NDArray[np.int64]:
        """First sample of each episode at which the open trace violates a clause judged at its first, -1 for none."""
        graph = self.batch.graph
        times = first_violated(graph, graph.roots[clause], self.timeline, self.known_columns(clause))
        begins = self.offsets[:-1]
        return np.where(np.isfinite(times[begins]), times[begins] - begins, -1).astype(np.int64)

    def known_columns(self, clause: int) -> list[Array]:
        """The signals that the clause reads, NaN where unknown; the others empty."""
        graph = self.batch.graph
        return [self.known(s) if s in graph.reads[clause] else self.column(s)[:0] for s in range(len(graph.signals))]

    def first_below(self, clause: int, body: int) -> NDArray[np.int64]:
        """First sample of each episode at which the body is violated, -1 for none."""
        graph = self.batch.graph
        reduction = self.batch.reductions[clause]
        if reduction is not None and all(self.clean(s) for s in graph.reads[clause]):
            column, limit = self.column(reduction.signal), self.batch.dtype.type(reduction.limit)
            broken = column > limit if reduction.upper else column < limit
            if reduction.gate is not None:
                broken &= self.column(reduction.gate) > GATE_THRESHOLD
        else:
            broken = evaluate_graph(graph, self.timeline, self.known_columns(clause), True, {body})[body].upper < 0
        places = np.append(np.flatnonzero(broken), self.last)
        place = places[np.searchsorted(places, self.offsets[:-1])]
        return np.where(place < self.offsets[1:], place - self.offsets[:-1], -1)


def _check_offsets(offsets: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(offsets)
    if array.ndim != 1 or len(array) < 1 or array.dtype.kind not in "iu":
        raise TraceError("offsets are whole numbers: the first sample of each episode, and the total at the end")
    array = array.astype(np.int64)
    if array[0] != 0 or (np.diff(array) < 0).any():
        raise TraceError("offsets start at 0 and never fall")
    return array
