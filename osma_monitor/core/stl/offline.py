"""Whole traces: every node of a graph at every sample.

One function walks the graph for one trace or for many laid end to end; windows are cut at the ends of each episode.
``closed`` says whether the trace has ended. On an open trace operators that look ahead keep what may still come, as
DESIGN fixes: see docs/stl.md, "When a formula is judged".
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from osma_monitor.core.stl import tracks
from osma_monitor.core.stl.errors import TraceError, UnknownSignalError
from osma_monitor.core.stl.graph import GATE_THRESHOLD, Graph, GraphNode, build_graph
from osma_monitor.core.stl.parser import parse
from osma_monitor.core.stl.syntax import Formula
from osma_monitor.core.stl.tracks import Array, Index, Track


@dataclass(frozen=True)
class Trace:
    """Bounds and value of a formula at every stamp; ``rho`` is NaN where it is undecided or nothing is known."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    rho: NDArray[np.float64]


class Timeline:
    """The stamps of one or many episodes laid end to end, and the index ranges that time windows cut out of them.

    Args:
        stamps: int64 nanoseconds, strictly rising inside each episode.
        offsets: first index of each episode, and the total at the end; default: one episode.
    """

    def __init__(self, stamps: NDArray[np.int64], offsets: NDArray[np.int64] | None = None) -> None:
        self.offsets = np.array([0, len(stamps)], dtype=np.int64) if offsets is None else offsets
        lengths = np.diff(self.offsets)
        self.count = len(stamps)
        self.first: Index = np.repeat(self.offsets[:-1], lengths)
        self.stop: Index = np.repeat(self.offsets[1:], lengths)
        self.here: Index = np.arange(self.count, dtype=np.int64)
        self.single = len(lengths) == 1
        self.stamps = stamps
        self._moved: NDArray[np.int64] | None = None
        self._reach = 0
        self._ranges: dict[tuple[str, tuple[int, int]], tuple[Index, Index]] = {}

    @cached_property
    def _span(self) -> float:
        """About the longest episode, in nanoseconds; floats cannot overflow."""
        return float((self.last_stamp.astype(np.float64) - self.stamps[self.first]).max(initial=0))

    @property
    def last_stamp(self) -> NDArray[np.int64]:
        return self.stamps[self.stop - 1]

    def _shifted(self) -> NDArray[np.int64]:
        """Stamps moved apart so that one search serves all episodes: gaps wider than any clipped window."""
        if self._moved is None:
            begins, ends = self.stamps[self.first], self.last_stamp
            self._reach = int((ends - begins).max(initial=0)) + 1
            episode = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
            self._moved = self.stamps - begins + episode * (3 * self._reach)
        return self._moved

    def window(self, window: tuple[int, int], ahead: bool) -> tuple[Index, Index]:
        """Half-open index ranges of ``[t + a, t + b]`` (ahead) or ``[t - b, t - a]`` for every sample."""
        key = ("ahead" if ahead else "back", window)
        if key not in self._ranges and 3 * self._span * len(self.offsets) >= 2.0**62:
            self._ranges[key] = self._exact_window(window, ahead)
        if key not in self._ranges:
            stamps = self._shifted()
            near, far = (min(bound, self._reach) for bound in window)
            low, high = (stamps + near, stamps + far) if ahead else (stamps - far, stamps - near)
            starts = np.searchsorted(stamps, low, side="left").astype(np.int64)
            stops = np.searchsorted(stamps, high, side="right").astype(np.int64)
            self._ranges[key] = (np.maximum(starts, self.first), np.minimum(stops, self.stop))
        return self._ranges[key]

    def _exact_window(self, window: tuple[int, int], ahead: bool) -> tuple[Index, Index]:
        """The same in whole numbers of any size, for stamps so far apart that int64 would overflow."""
        starts, stops = self.first.copy(), self.stop.copy()
        for begin, end in itertools.pairwise(self.offsets.tolist()):
            stamps = self.stamps[begin:end].tolist()
            for index, stamp in enumerate(stamps, begin):
                low, high = (stamp + b for b in window) if ahead else (stamp - b for b in reversed(window))
                starts[index] = begin + bisect.bisect_left(stamps, low)
                stops[index] = begin + bisect.bisect_right(stamps, high)
        return starts, stops

    def cut(self, window: tuple[int, int]) -> NDArray[np.bool_]:
        """Samples whose window ahead reaches past the last stamp of their episode."""
        # as uint64 a difference is right even where int64 overflows
        return np.asarray((self.last_stamp - self.stamps).view(np.uint64) < np.uint64(window[1]))


def evaluate_graph(
    graph: Graph,
    timeline: Timeline,
    columns: Sequence[Array],
    closed: bool = True,
    roots: Iterable[int] | None = None,
    given: Mapping[int, Track] | None = None,
) -> dict[int, Track]:
    """Tracks of the wanted nodes.

    Args:
        graph: compiled formulas.
        timeline: the stamps.
        columns: one array a signal in the order of ``graph.signals``, NaN where unknown (never inf).
        closed: the trace has ended.
        roots: wanted nodes; default: the roots of the graph.
        given: tracks of nodes that are known already.
    """
    given = given or {}
    wanted = set(graph.roots if roots is None else roots)
    needed = set(wanted)
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in needed and index not in given:
            needed.update(graph.nodes[index].args)
    terms: dict[int, Array] = {}
    values: dict[int, Track] = dict(given)
    dtype = columns[0].dtype if columns else np.dtype(np.float64)

    def interval(index: int) -> Track:
        return tracks.from_term(terms[index]) if index in terms else values[index]

    with np.errstate(all="ignore"):
        for index, node in enumerate(graph.nodes):
            if index not in needed or index in given:
                continue
            if node.scalar:
                if node.op == "number":
                    terms[index] = np.full(timeline.count, node.value, dtype=dtype)
                elif node.op == "signal":
                    terms[index] = columns[node.signal]
                else:
                    made = tracks.scalar_arithmetic(node.op, [terms[a] for a in node.args])
                    terms[index] = np.asarray(made, dtype=dtype)
            else:
                values[index] = evaluate_node(node, [interval(a) for a in node.args], timeline, closed)
    return {index: values[index] for index in wanted}


def evaluate_node(node: GraphNode, arguments: list[Track], timeline: Timeline, closed: bool) -> Track:
    """One interval-valued node from the tracks of its arguments."""
    op = node.op
    first = arguments[0]
    second = arguments[-1]
    if op == "value":
        return first
    if op == "gate":
        half = Track.exact(np.full_like(first.lower, GATE_THRESHOLD))
        return tracks.compare(">", first, half, boolean=True)
    if op in ("<", "<=", ">", ">=", "==", "!="):
        return tracks.compare(op, first, second, node.boolean)
    if op == "not":
        return tracks.negate(first)
    if op == "and":
        return tracks.minimum(first, second)
    if op == "or":
        return tracks.maximum(first, second)
    if op == "implies":
        return tracks.maximum(tracks.negate(first), second)
    if op == "iff":
        return _iff(first, second)
    if op == "xor":
        return tracks.negate(_iff(first, second))
    if op == "prev":
        return _shift(first, timeline, -1, np.inf, np.inf)
    if op == "next":
        edge = np.inf if closed else -np.inf
        return _shift(first, timeline, 1, edge, np.inf)
    if op == "rise":
        return tracks.minimum(first, tracks.negate(_shift(first, timeline, -1, -np.inf, -np.inf)))
    if op == "fall":
        return tracks.minimum(_shift(first, timeline, -1, np.inf, np.inf), tracks.negate(first))
    if op in ("historically", "once"):
        return _look_back(op, node.window, first, timeline)
    if op == "since":
        starts, stops = (
            (timeline.first, timeline.here + 1) if node.window is None else timeline.window(node.window, False)
        )
        return tracks.since(first, second, timeline.first, starts, stops)
    if op in ("always", "eventually"):
        return _look_ahead(node, first, timeline, closed)
    if op == "until":
        return _until(node, first, second, timeline, closed)
    return tracks.interval_arithmetic(op, arguments)


def _iff(a: Track, b: Track) -> Track:
    return tracks.minimum(tracks.maximum(tracks.negate(a), b), tracks.maximum(tracks.negate(b), a))


def _shift(a: Track, timeline: Timeline, step: int, lower: float, upper: float) -> Track:
    """The neighbour's value (-1 before, +1 after); beyond the episode's edge the interval [lower, upper]."""
    neighbour = np.clip(timeline.here + step, 0, max(timeline.count - 1, 0))
    edge = (timeline.here == timeline.first) if step < 0 else (timeline.here == timeline.stop - 1)
    if a.point and lower == upper:
        return Track.exact(np.where(edge, a.lower.dtype.type(lower), a.lower[neighbour]))
    rho = lower if lower == upper else np.nan
    parts = ((a.lower, lower), (a.upper, upper), (a.rho, rho))
    return Track(*(np.where(edge, part.dtype.type(value), part[neighbour]) for part, value in parts))


def _running(a: Track, timeline: Timeline, back: bool) -> Track:
    """Minimum from the episode's edge to each sample (``back``), or from each sample to the end."""
    if timeline.single and a.point:
        view = a.lower if back else a.lower[::-1]
        result = np.minimum.accumulate(view)
        return Track.exact(result if back else result[::-1])
    starts, stops = (timeline.first, timeline.here + 1) if back else (timeline.here, timeline.stop)
    return tracks.window_minimum(a, starts, stops)


def _look_back(op: str, window: tuple[int, int] | None, a: Track, timeline: Timeline) -> Track:
    a = tracks.negate(a) if op == "once" else a
    result = (
        _running(a, timeline, True) if window is None else tracks.window_minimum(a, *timeline.window(window, False))
    )
    return tracks.negate(result) if op == "once" else result


def _look_ahead(node: GraphNode, a: Track, timeline: Timeline, closed: bool) -> Track:
    """always; eventually is its mirror image, polarity included."""
    mirrored = node.op == "eventually"
    a = tracks.negate(a) if mirrored else a
    if node.window is None:
        result = _running(a, timeline, False)
        counts_so_far = node.polarity == (-1 if mirrored else 1)
        if not closed and not counts_so_far:
            result = _widen(result, np.ones(timeline.count, dtype=bool), down=True)
    else:
        result = _widen(
            tracks.window_minimum(a, *timeline.window(node.window, True)), timeline.cut(node.window), down=True
        )
    return tracks.negate(result) if mirrored else result


def _widen(a: Track, where: NDArray[np.bool_], down: bool, upper: Array | None = None) -> Track:
    """Opens the interval at some samples, since more may come: downwards to -inf, or upwards to ``upper``."""
    if not where.any():
        return a
    lower = np.where(where, -np.inf, a.lower) if down else a.lower
    raised = a.upper if upper is None else np.where(where, np.maximum(a.upper, upper), a.upper)
    dtype = a.lower.dtype
    return tracks.settle(lower.astype(dtype), raised.astype(dtype), np.where(where, dtype.type(np.nan), a.rho))


def _until(node: GraphNode, hold: Track, release: Track, timeline: Timeline, closed: bool) -> Track:
    # until is since on the reversed trace
    count = timeline.count
    starts, stops = (timeline.here, timeline.stop) if node.window is None else timeline.window(node.window, True)
    mirrored = tracks.since(
        hold[::-1], release[::-1], (count - timeline.stop)[::-1], (count - stops)[::-1], (count - starts)[::-1]
    )
    result = mirrored[::-1]
    if node.window is None:
        open_ended = np.full(count, not closed and node.polarity != -1)
    else:
        open_ended = timeline.cut(node.window)
    if not open_ended.any():
        return result
    # a release may still come while hold has not been broken
    held = tracks.range_minimum(hold.upper, timeline.here, timeline.stop)
    if node.window is None:
        held = np.where(held >= 0, np.inf, held)
    return _widen(result, open_ended, down=False, upper=held)


# --- public functions ---


def as_formula(formula: Formula | str) -> Formula:
    if not isinstance(formula, Formula | str):
        raise TypeError(f"a formula is a stl.Formula or its text, not {type(formula).__name__}")
    return parse(formula) if isinstance(formula, str) else formula


def as_column(values: ArrayLike) -> Array:
    """An array; what a masked array hides is NaN."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        return np.where(np.ma.getmaskarray(values), np.float32(np.nan), values.data)
    return np.asarray(values)


def check_stamps(stamps_ns: ArrayLike) -> NDArray[np.int64]:
    """Stamps of one trace as int64, or a TraceError that names the first bad place."""
    if np.ma.is_masked(stamps_ns):
        raise TraceError("some stamps are masked: every sample needs its stamp; drop those samples first")
    stamps = np.asarray(stamps_ns)
    if stamps.ndim != 1 or (stamps.dtype.kind not in "iu" and stamps.size):
        raise TraceError(f"stamps are a 1-D array of whole nanoseconds, not {stamps.ndim}-D {stamps.dtype}")
    if stamps.dtype.kind == "u" and stamps.max(initial=0) >= 2**63:
        raise TraceError(f"stamps are int64 nanoseconds; {stamps.max()} is too large")
    stamps = stamps.astype(np.int64)
    bad = np.flatnonzero(stamps[1:] <= stamps[:-1])
    if len(bad):
        at = int(bad[0])
        raise TraceError(
            f"stamps must rise: stamp {at + 1} ({stamps[at + 1]} ns) does not come after stamp {at} ({stamps[at]} ns); "
            "drop the repeated or late samples first"
        )
    return stamps


def check_columns(
    graph: Graph,
    count: int,
    signals: Mapping[str, ArrayLike],
    dtype: DTypeLike = np.float64,
    optional: frozenset[str] = frozenset(),
) -> list[Array]:
    """One array a signal of the graph, inf turned to NaN; the caller's arrays are never written to."""
    columns: list[Array] = []
    for name in graph.signals:
        if name not in signals:
            if name in optional:
                columns.append(np.full(count, np.nan, dtype=dtype))
                continue
            raise UnknownSignalError(unknown_signal(name, signals))
        column = as_column(signals[name])
        if column.dtype.kind not in "fiub":
            raise TraceError(f"signal {name!r} holds {column.dtype}, expected numbers")
        column = column.astype(dtype, copy=False)
        if column.ndim != 1 or len(column) != count:
            raise TraceError(
                f"signal {name!r} has shape {column.shape}, but there are {count} stamps: one value a stamp is expected"
            )
        infinite = np.isinf(column)
        columns.append(np.where(infinite, column.dtype.type(np.nan), column) if infinite.any() else column)
    return columns


def unknown_signal(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known signals: {', '.join(sorted(known)) or 'none'}"
    return f"the formula reads the signal {name!r}, which is not given; {hint}"


def evaluate_bounds(
    formula: Formula | str,
    stamps_ns: ArrayLike,
    signals: Mapping[str, ArrayLike],
    gate_signals: Iterable[str] = (),
    closed: bool = True,
) -> Trace:
    """Bounds and robustness of a formula at every stamp of one trace.

    Args:
        formula: a Formula or its text.
        stamps_ns: (n,) rising int64 nanoseconds.
        signals: name to (n,) values; NaN and inf are unknown. Names that the formula does not read are ignored.
        gate_signals: names whose comparisons are Boolean (±inf).
        closed: the trace has ended; False gives what an online monitor could say at its last stamp.

    Raises:
        TraceError: stamps that do not rise, lengths that differ.
        UnknownSignalError: a signal of the formula is not given.
    """
    graph = build_graph([as_formula(formula)], gate_signals)
    stamps = check_stamps(stamps_ns)
    columns = check_columns(graph, len(stamps), signals)
    if not len(stamps):
        empty = np.empty(0)
        return Trace(empty, empty.copy(), empty.copy())
    track = evaluate_graph(graph, Timeline(stamps), columns, closed)[graph.roots[0]]
    # adding zero turns -0.0 into 0.0 and makes arrays of our own
    return Trace(*(np.asarray(part, dtype=np.float64) + 0.0 for part in (track.lower, track.upper, track.rho)))


def evaluate(
    formula: Formula | str, stamps_ns: ArrayLike, signals: Mapping[str, ArrayLike], gate_signals: Iterable[str] = ()
) -> NDArray[np.float64]:
    """Robustness of a formula at every stamp of one finished trace; arguments and errors as :func:`evaluate_bounds`.

    A formula that looks ahead is judged by element 0, a pure-past one by the last. NaN where the trace cannot tell:
    unknown samples, bounded windows that the end cut off.
    """
    return evaluate_bounds(formula, stamps_ns, signals, gate_signals).rho


def body(formula: Formula | str) -> Formula:
    """What an outermost unbounded ``always`` demands at each step; other formulas are their own body."""
    formula = as_formula(formula)
    root = len(formula.nodes) - 1
    while formula.nodes[root].op == "always" and formula.nodes[root].window is None:
        root = formula.nodes[root].args[0]
    return formula if root == len(formula.nodes) - 1 else formula.subformula(root)


def margin_trace(
    formula: Formula | str, stamps_ns: ArrayLike, signals: Mapping[str, ArrayLike], gate_signals: Iterable[str] = ()
) -> Trace:
    """The margin of each step by itself: bounds and robustness of the formula's :func:`body` at every stamp.

    For ``always(speed < 1)`` that is ``1 - speed`` step by step: negative where the clause was broken, for exposure
    times and plots.
    """
    return evaluate_bounds(body(formula), stamps_ns, signals, gate_signals)
