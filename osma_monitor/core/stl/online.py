"""Online monitors: one sample in, verdicts out."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.stl.codegen import compile_graph
from osma_monitor.core.stl.errors import TraceError, UnknownSignalError
from osma_monitor.core.stl.graph import build_graph
from osma_monitor.core.stl.nested import open_stream
from osma_monitor.core.stl.offline import as_formula, unknown_signal
from osma_monitor.core.stl.syntax import Formula
from osma_monitor.core.stl.verdict import UNDECIDED, Bounds, Update, Verdict, make_update

Sample = Mapping[str, float | None] | Sequence[float] | NDArray[np.float64]
_SNAPSHOT_VERSION = 3


class Library:
    """Many clauses over the same signals, compiled together: one update a frame.

    Args:
        formulas: formulas or their texts (one iterable of them is accepted as well).
        gate_signals: names whose comparisons are Boolean (±inf).
        signals: names that samples may hold besides those that the formulas read. With it a formula that reads another
            name is refused at once, and samples may hold any of these names.

    Attributes:
        formulas: the clauses in order.
        signals: the names that the clauses read, sorted: the order of samples given as plain sequences.
        gate_signals: the gates.

    What of a sample is NaN, infinite, None or missing is unknown and counted. A stamp that repeats or goes back is
    refused and counted, and changes nothing else.
    """

    def __init__(
        self,
        *formulas: Formula | str | Iterable[Formula | str],
        gate_signals: Iterable[str] = (),
        signals: Iterable[str] | None = None,
    ) -> None:
        flat: list[Formula] = []
        for item in formulas:
            several = isinstance(item, Iterable) and not isinstance(item, str)
            flat += map(as_formula, item if several else (item,))  # type: ignore[arg-type]
        self.formulas = tuple(flat)
        self._graph = build_graph(self.formulas, gate_signals)
        self.signals = self._graph.signals
        self.gate_signals = self._graph.gates
        if isinstance(signals, str):
            raise TypeError(f"signals is a collection of names, not the text {signals!r}")
        self._declared = None if signals is None else frozenset(signals)
        if self._declared is not None:
            for name in self.signals:
                if name not in self._declared:
                    raise UnknownSignalError(unknown_signal(name, self._declared))
        self._program = compile_graph(self._graph)
        self.reset()

    def reset(self) -> None:
        """Back to a new monitor."""
        program = self._program
        self._streams = [open_stream(self._graph, clause, inputs) for clause, inputs in program.streamed]
        make = program.namespace["make"]
        self._parts: dict[str, Callable[..., Any]] = make(Update, program, self._slow, self._widen, self._streams)
        self._point = program.point_allowed
        self._stamp: int | None = None
        self._end: Update | None = None
        # the generated function stands in for the method below, which would cost a call more
        self.__dict__["update"] = self._parts["point" if self._point else "wide"]

    def update(self, stamp_ns: int, values: Sample) -> Update:
        """Takes one sample.

        Args:
            stamp_ns: int nanoseconds, later than the last.
            values: a mapping from signal name to number, or numbers in the order of ``signals``.

        Raises:
            TraceError: after :meth:`close`; a sequence of another length; a value that is no number.
            UnknownSignalError: the mapping lacks a signal and holds a similar name that nothing reads.
        """
        return self._slow(stamp_ns, values)

    def close(self) -> Update:
        """Ends the trace: unbounded operators collapse to what was seen, windows that the end cut off stay unknown."""
        if self._end is None:
            current = self._current()
            self._parts["stop"]()
            self._end = current._replace(closed=True, accepted=True)
            if current.samples and self._streams:
                self._end = self._end._replace(results=tuple(s.result(True) for s in self._streams))
        return self._end

    @property
    def reworked(self) -> tuple[int, ...]:
        """Positions of the clauses whose cost a sample may grow with their windows: deeply nested ones."""
        clauses = (clause for clause, _ in self._program.streamed)
        return tuple(c for c, stream in zip(clauses, self._streams, strict=True) if stream.reworks)

    @property
    def samples(self) -> int:
        """Accepted samples so far."""
        return self._current().samples

    @property
    def refused(self) -> int:
        """Samples refused so far, because their stamps repeat or go back."""
        return self._current().refused

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(clauses,) accepted samples so far in which some signal of the clause was missing, NaN or infinite."""
        return self._current().unknown

    def ages_ns(self) -> dict[str, int | None]:
        """For every signal the time from its last known value to the last stamp; None when it was never known."""
        current = self._current()
        if self._point and current.samples:
            return dict.fromkeys(self.signals, 0)
        known, stamp = self._parts["age"](), current.stamp_ns
        return {name: None if k is None else stamp - k for name, k in zip(self.signals, known, strict=True)}

    def snapshot(self) -> dict[str, Any]:
        """The state as plain data (numbers, texts, lists, dicts), for :meth:`restore` in this process or another.

        Infinities and NaN are in it as floats, which Python's ``json`` writes and reads. ``library`` is a hash of the
        formulas and gates, ``digest`` one of everything else in it.
        """
        current = self._current()
        shared = current._shared
        *counts, values, missed, results = current._frame
        plain = [[list(r[0]), list(r[1]), r[2]] for r in results]
        content = {
            "version": _SNAPSHOT_VERSION,
            "library": self._identity(),
            "formulas": [str(f) for f in self.formulas],
            "gates": sorted(self.gate_signals),
            "point": self._point,
            "closed": self._end is not None,
            "state": self._parts["get"](),
            "streams": [s.state() for s in self._streams],
            "update": [
                [shared.point, list(shared.state), list(shared.flags)],
                [*counts, list(values), list(missed), plain],
            ],
        }
        return {**content, "digest": _digest(content)}

    def _identity(self) -> str:
        """A hash of what the library watches: a state means something for the same formulas and gates only."""
        return _digest([[str(f) for f in self.formulas], sorted(self.gate_signals)])

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Takes up a state that :meth:`snapshot` gave.

        Raises:
            TraceError: the snapshot is of other formulas or gates, of another version, or damaged: a value in it is
                not what it was when it was taken. The monitor stays as it is.
        """
        try:
            same = snapshot["version"] == _SNAPSHOT_VERSION and snapshot["library"] == self._identity()
        except (KeyError, TypeError):
            same = False
        if not same:
            raise TraceError("the snapshot was taken of a library with other formulas, other gates or another version")
        try:
            whole = snapshot["digest"] == _digest({k: v for k, v in snapshot.items() if k != "digest"})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise TraceError(
                "the snapshot is damaged: its digest does not fit its content; take a new one, or begin with reset()"
            )
        try:
            self._take_up(snapshot)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            self.reset()
            raise TraceError(f"the snapshot is damaged: {error!r}; the monitor starts anew") from error

    def _take_up(self, snapshot: Mapping[str, Any]) -> None:
        self.reset()
        self._point = bool(snapshot["point"])
        self.__dict__["update"] = self._parts["point" if self._point else "wide"]
        (point, accumulators, flags), (*counts, values, missed, plain) = snapshot["update"]
        results = tuple((Bounds(*r[0]), Bounds(*r[1]), bool(r[2])) for r in plain)
        frame = (*counts, tuple(values), tuple(missed), results)
        update = make_update(self._program, point, tuple(accumulators), tuple(flags), frame)
        self._parts["put"](snapshot["state"], update)
        for stream, state in zip(self._streams, snapshot["streams"], strict=True):
            stream.load(state)
        self._stamp = update.stamp_ns if update.samples else None
        if snapshot["closed"]:
            self._end = update

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles take the state along; generated functions cannot be copied, so they are made anew."""
        return (_rebuild, (self.formulas, self.gate_signals, self._declared, self.snapshot()))

    def _current(self) -> Update:
        """What the last sample gave; before the first everything is undecided."""
        if self._end is not None:
            return self._end
        newest, refused = self._parts["newest"](), self._parts["refusals"]()
        if isinstance(newest, Update):
            return newest if newest.refused == refused else newest._replace(refused=refused)
        flags = (False,) * self._program.flags
        results = ((UNDECIDED, UNDECIDED, False),) * len(self._streams)
        return make_update(self._program, False, (), flags, (0, 0, refused, True, False, (), (), results))

    def _slow(self, stamp_ns: int, values: Sample) -> Update:
        """The way of samples that the generated function hands back: odd types, unknown values, refused stamps."""
        if self._end is not None:
            raise TraceError("the trace is closed; call reset() before the next sample")
        try:
            stamp = operator.index(stamp_ns)
        except TypeError:
            raise TraceError(f"a stamp is a whole number of nanoseconds, not {stamp_ns!r}") from None
        if not -(2**63) <= stamp < 2**63:
            raise TraceError(f"stamp {stamp} ns is no int64: stamps are nanoseconds")
        row = read_sample(values, self.signals, self._declared)
        current = self._current()
        if current.samples and stamp <= current.stamp_ns:
            self._parts["refuse"]()
            return self._current()._replace(accepted=False)
        if self._point and self._parts["known"](row):  # the generated function's own test: nothing unknown
            update: Update = self._parts["point"](stamp, row)
            return update
        return self._widen(stamp, row)

    def _widen(self, stamp: int, row: Sequence[float]) -> Update:
        """Takes a sample with something unknown or undefined in it; from here on values are intervals."""
        if self._point:
            self._point = False
            self._parts["switch"](self._current().stamp_ns)
            self.__dict__["update"] = self._parts["wide"]
        update: Update = self._parts["interval"](stamp, row)
        return update


def _digest(content: object) -> str:
    """SHA-256 of plain data; lists and tuples, and data that went through ``json``, count the same."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _rebuild(
    formulas: tuple[Formula, ...], gates: frozenset[str], signals: frozenset[str] | None, snapshot: Mapping[str, Any]
) -> Library:
    library = Library(*formulas, gate_signals=gates, signals=signals)
    library.restore(snapshot)
    return library


def read_sample(values: Sample, signals: Sequence[str], declared: frozenset[str] | None) -> list[float]:
    """The sample's values in the order of ``signals``, NaN for what is unknown.

    Raises:
        TraceError: a sequence of another length; a value that is no number.
        UnknownSignalError: the mapping lacks a signal and holds a similar name that is not declared.
    """
    if isinstance(values, Mapping):
        _check_names(values, signals, declared)
        row: list[Any] = [values.get(name) for name in signals]
    else:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TraceError(
                f"a sample is a mapping from signal to number, or numbers in the order of the signals, not {values!r}"
            )
        row = list(values)
        if len(row) != len(signals):
            raise TraceError(f"a sample of {len(row)} values for the {len(signals)} signals {', '.join(signals)}")
    return [_number(name, value) for name, value in zip(signals, row, strict=True)]


def _check_names(values: Mapping[str, Any], signals: Sequence[str], declared: frozenset[str] | None) -> None:
    missing = [name for name in signals if name not in values]
    if not missing:
        return
    known = declared or frozenset(signals)
    extra = [name for name in values if name not in known]
    for name in missing:
        near = difflib.get_close_matches(name, extra, 1)
        if near:
            raise UnknownSignalError(
                f"the sample holds {near[0]!r}, which nothing reads, and lacks {name!r}: a typing error?"
            )


def _number(name: str, value: Any) -> float:
    if value is None:
        return math.nan
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TraceError(f"signal {name!r} is {value!r}, expected a number") from None
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


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

    @property
    def samples(self) -> int:
        """Accepted samples so far."""
        return self.library.samples

    @property
    def refused(self) -> int:
        """Samples refused so far, because their stamps repeat or go back."""
        return self.library.refused

    @property
    def unknown(self) -> int:
        """Accepted samples so far in which some signal was missing, NaN or infinite."""
        return int(self.library.unknown[0])

    def ages_ns(self) -> dict[str, int | None]:
        """For every signal the time from its last known value to the last stamp; None when it was never known."""
        return self.library.ages_ns()

    def reset(self) -> None:
        """Back to a new monitor."""
        self.library.reset()

    def snapshot(self) -> dict[str, Any]:
        """The state as plain data."""
        return self.library.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Takes up a state of a monitor of the same formula."""
        self.library.restore(snapshot)
