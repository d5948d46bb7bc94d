"""Online monitors: one sample in, verdicts out."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.stl.errors import TraceError, UnknownSignalError
from osma_monitor.core.stl.graph import build_graph
from osma_monitor.core.stl.offline import Timeline, as_formula, evaluate_graph, unknown_signal
from osma_monitor.core.stl.syntax import Formula
from osma_monitor.core.stl.verdict import UNDECIDED, Bounds, Update, Verdict

Sample = Mapping[str, float | None] | Sequence[float] | NDArray[np.float64]


class Library:
    """Many clauses over the same signals, compiled together: one update a frame.

    Args:
        formulas: formulas or their texts (one iterable of them is accepted as well).
        gate_signals: names whose comparisons are Boolean (±inf).
        signals: names that samples may hold besides those that the formulas read. With it a formula that reads another name is
            refused at once, and samples may hold any of these names.

    Attributes:
        formulas: the clauses in order.
        signals: the names that the clauses read, sorted: the order of samples given as plain sequences.

    A sample's part that is NaN, infinite, None or missing is unknown and counted. A stamp that repeats or goes back is refused and
    counted, and changes nothing else.
    """

    def __init__(
        self,
        *formulas: Formula | str | Iterable[Formula | str],
        gate_signals: Iterable[str] = (),
        signals: Iterable[str] | None = None,
    ) -> None:
        flat: list[Formula] = []
        for item in formulas:
            flat += [as_formula(item)] if isinstance(item, Formula | str) else [as_formula(f) for f in item]
        self.formulas = tuple(flat)
        self._graph = build_graph(self.formulas, gate_signals)
        self.signals = self._graph.signals
        self.gate_signals = self._graph.gates
        self._declared = None if signals is None else frozenset(signals)
        if self._declared is not None:
            for name in self.signals:
                if name not in self._declared:
                    raise UnknownSignalError(unknown_signal(name, self._declared))
        self.reset()

    def reset(self) -> None:
        """Back to a new monitor."""
        self._stamps: list[int] = []
        self._rows: list[list[float]] = []
        self._refused = 0
        self._closed = False
        self._last = Update(
            0, False, 0, 0, False, (UNDECIDED,) * len(self.formulas), (UNDECIDED,) * len(self.formulas),
            tuple(not left for left in self._graph.antecedents), (0,) * len(self.formulas),
        )  # fmt: skip

    def update(self, stamp_ns: int, values: Sample) -> Update:
        """Takes one sample.

        Args:
            stamp_ns: int nanoseconds, later than the last.
            values: a mapping from signal name to number, or numbers in the order of ``signals``.
        """
        if self._closed:
            raise TraceError("the trace is closed; call reset() before the next sample")
        stamp = operator.index(stamp_ns)
        row = self._row(values)
        if self._stamps and stamp <= self._stamps[-1]:
            self._refused += 1
            return self._make(accepted=False)
        self._stamps.append(stamp)
        self._rows.append(row)
        return self._make(accepted=True)

    def close(self) -> Update:
        """Ends the trace: unbounded operators collapse to what was seen, bounded windows that the end cut off stay unknown."""
        self._closed = True
        return self._make(accepted=True)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain data (numbers, texts, lists, dicts), for :meth:`restore`."""
        return {
            "formulas": [str(f) for f in self.formulas], "gates": sorted(self.gate_signals),
            "stamps": list(self._stamps), "rows": [list(r) for r in self._rows], "refused": self._refused, "closed": self._closed,
        }  # fmt: skip

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Takes up a state that :meth:`snapshot` gave, of a library with the same formulas and gates."""
        if snapshot["formulas"] != [str(f) for f in self.formulas] or snapshot["gates"] != sorted(self.gate_signals):
            raise TraceError("the snapshot was taken of a library with other formulas or gates")
        self.reset()
        self._stamps = list(snapshot["stamps"])
        self._rows = [list(r) for r in snapshot["rows"]]
        self._refused, self._closed = snapshot["refused"], snapshot["closed"]
        if self._stamps:
            self._make(accepted=True)

    def ages_ns(self) -> dict[str, int | None]:
        """For every signal the time from its last known value to the last stamp; None when it was never known."""
        ages: dict[str, int | None] = {}
        for column, name in enumerate(self.signals):
            known = [s for s, r in zip(self._stamps, self._rows, strict=True) if not math.isnan(r[column])]
            ages[name] = self._stamps[-1] - known[-1] if known else None
        return ages

    def _row(self, values: Sample) -> list[float]:
        if isinstance(values, Mapping):
            self._check_names(values)
            row = [values.get(name) for name in self.signals]
        else:
            row = list(values)
            if len(row) != len(self.signals):
                raise TraceError(
                    f"a sample of {len(row)} values for {len(self.signals)} signals: {', '.join(self.signals)}"
                )
        floats = [math.nan if v is None else float(v) for v in row]
        return [v if math.isfinite(v) else math.nan for v in floats]

    def _check_names(self, values: Mapping[str, Any]) -> None:
        missing = [name for name in self.signals if name not in values]
        if not missing:
            return
        extra = [
            name
            for name in values
            if name not in self.signals and (self._declared is None or name not in self._declared)
        ]
        for name in missing:
            near = difflib.get_close_matches(name, extra, 1)
            if near:
                raise UnknownSignalError(f"the sample holds {near[0]!r}, which no formula reads, and lacks {name!r}")

    def _make(self, accepted: bool) -> Update:
        if not self._stamps:
            return self._last
        rows = np.array(self._rows, dtype=np.float64).reshape(len(self._stamps), len(self.signals))
        columns = list(rows.T.copy())
        graph = self._graph
        wanted = set(graph.roots) | {a for left in graph.antecedents for a in left}
        wanted = {w for w in wanted if not graph.nodes[w].scalar}
        found = evaluate_graph(graph, Timeline(np.array(self._stamps, dtype=np.int64)), columns, self._closed, wanted)

        def bounds(node: int, at: int) -> Bounds:
            track = found[node]
            return Bounds(float(track.lower[at]) + 0.0, float(track.upper[at]) + 0.0, float(track.rho[at]) + 0.0)

        judged = tuple(bounds(root, 0 if graph.judged_first(i) else -1) for i, root in enumerate(graph.roots))
        triggered = tuple(not left or any(bool((found[a].lower > 0).any()) for a in left) for left in graph.antecedents)
        unknown = tuple(int(np.isnan(rows[:, list(reads)]).any(axis=1).sum()) for reads in graph.reads)
        self._last = Update(
            self._stamps[-1], accepted, len(self._stamps), self._refused, self._closed, judged,
            tuple(bounds(root, -1) for root in graph.roots), triggered, unknown,
        )  # fmt: skip
        return self._last


class OnlineMonitor:
    """One formula, one sample at a time; arguments as :class:`Library`."""

    def __init__(
        self, formula: Formula | str, gate_signals: Iterable[str] = (), signals: Iterable[str] | None = None
    ) -> None:
        self.formula = as_formula(formula)
        self.library = Library(self.formula, gate_signals=gate_signals, signals=signals)

    def update(self, stamp_ns: int, values: Sample) -> Verdict:
        """Takes one sample, gives the verdict so far."""
        return self.library.update(stamp_ns, values).verdict(0)

    def close(self) -> Verdict:
        """Ends the trace."""
        return self.library.close().verdict(0)

    def reset(self) -> None:
        """Back to a new monitor."""
        self.library.reset()

    def snapshot(self) -> dict[str, Any]:
        """The state as plain data."""
        return self.library.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Takes up a state of a monitor of the same formula."""
        self.library.restore(snapshot)
