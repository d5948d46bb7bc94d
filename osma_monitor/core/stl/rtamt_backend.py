"""The official library in place of our engine: ``backend: rtamt``.

rtamt's online monitor counts samples, looks back only, and knows neither unknown values nor Boolean gates. What it
would get wrong is refused here with the reason, so that whatever runs gives our engine's values. Its package is
imported when it is asked for.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.stl.codegen import Program
from osma_monitor.core.stl.errors import TraceError
from osma_monitor.core.stl.graph import build_graph
from osma_monitor.core.stl.offline import as_formula, body
from osma_monitor.core.stl.online import Sample, read_sample
from osma_monitor.core.stl.syntax import BINARY_TERMS, COMPARISONS, PAST, UNARY_TERMS, WINDOWED, Formula
from osma_monitor.core.stl.verdict import Update, make_update

_INFIX: Final = {"implies": "->"}
_UNDECIDED: Final = (-math.inf, math.inf, math.nan)
_REFUSED: Final = MappingProxyType(
    {
        "==": "a true equality is 0 there and +inf here",
        "!=": "a true inequality is capped by the distance there",
        "xor": "it is |a - b| there and min and max here",
        "iff": "it is -|a - b| there and min and max here",
        "min": "rtamt has no min(x, y)",
        "max": "rtamt has no max(x, y)",
    }
)
# inf - inf, and inf * 0, inf / inf
_DIFFERENCES: Final = COMPARISONS | {"+", "-"}
_PRODUCTS: Final = frozenset({"*", "/", "pow"})


class BackendError(UserError, ValueError):
    """A formula that this backend refuses; the message says why and what to do."""


def refusal(formula: Formula, gate_signals: Iterable[str] = (), period_ns: int | None = None) -> str | None:
    """Why rtamt cannot run a formula as we mean it; None when it can."""
    gates = formula.signals & frozenset(gate_signals)
    if gates:
        return (
            f"rtamt has no Boolean gates, and {', '.join(sorted(gates))} is one: "
            "use gate_semantics: quantitative, or the native backend"
        )
    inner = body(formula)
    if not inner.is_past:
        return "rtamt's online monitor cannot look ahead: only an outermost unbounded always is possible"
    seen: set[Formula] = set()
    infinite: list[bool] = []  # terms that are infinite where a window or the past is empty
    for index, node in enumerate(inner.nodes):
        terms = [infinite[a] for a in node.args]
        if (sum(terms) > 1 and node.op in _DIFFERENCES) or (any(terms) and node.op in _PRODUCTS):
            return (
                f"{str(inner.subformula(index))!r} compares or combines values that are infinite where there is no "
                "earlier sample: rtamt makes NaN of that and goes on, and here it is unknown"
            )
        infinite.append(node.op in PAST or (any(terms) and node.op in UNARY_TERMS | BINARY_TERMS))
        if node.op in _REFUSED:
            return f"{node.op!r} differs in rtamt: {_REFUSED[node.op]}"
        if node.op in PAST:
            part = inner.subformula(index)
            if part in seen:
                return f"rtamt keeps one state for equal subformulas, and {str(part)!r} stands in it twice"
            seen.add(part)
        if node.op in WINDOWED and node.window is not None:
            if period_ns is None:
                return "rtamt counts samples: windows need the sampling period (period_ns)"
            if any(bound % period_ns for bound in node.window):
                return f"the window {str(inner.subformula(index))!r} is no whole number of periods of {period_ns} ns"
    return None


class RtamtLibrary:
    """Clauses run by rtamt; the interface of :class:`osma_monitor.core.stl.Library`, updates included.

    Args:
        formulas: formulas or their texts, of the kind that :func:`refusal` accepts.
        gate_signals: Boolean gates; clauses that read one are refused.
        signals: names that samples may hold besides those that the formulas read.
        period_ns: sampling period, needed for clauses with windows.

    A clause meets an unknown sample as our engine would: ``always`` skips it with lower bound -inf. A clause with
    other memory is undecided from then on, and one with windows too after a stamp off the period, since rtamt counts
    samples.

    Raises:
        BackendError: a formula is refused.
        MissingDependencyError: rtamt is not installed.
    """

    def __init__(
        self,
        *formulas: Formula | str | Iterable[Formula | str],
        gate_signals: Iterable[str] = (),
        signals: Iterable[str] | None = None,
        period_ns: int | None = None,
    ) -> None:
        flat: list[Formula] = []
        for item in formulas:
            flat += [as_formula(item)] if isinstance(item, Formula | str) else [as_formula(f) for f in item]
        self.formulas = tuple(flat)
        graph = build_graph(self.formulas, gate_signals)
        for formula in self.formulas:
            reason = refusal(formula, graph.gates, period_ns)
            if reason:
                raise BackendError(f"backend rtamt refuses {str(formula)!r}: {reason}")
        self.signals, self.gate_signals = graph.signals, graph.gates
        self._declared = None if signals is None else frozenset(signals)
        self._period = period_ns
        self._rtamt = _load()
        left = [[f.subformula(n.args[0]) for n in f.nodes if n.op == "implies"] for f in self.formulas]
        functions = {
            "judged_interval": lambda state, values, *_: values[0],
            "now_interval": lambda state, values, *_: values[1],
        }
        clauses = range(len(self.formulas))
        triggers = tuple((i,) if left[i] else None for i in clauses)
        self._program = Program("", functions, tuple(clauses), (), triggers, len(clauses), False)
        self._left = left
        self.reset()

    def reset(self) -> None:
        """Back to a new monitor."""
        self._clauses = [
            _Clause(self._rtamt, f, left, self._period) for f, left in zip(self.formulas, self._left, strict=True)
        ]
        self._stamp: int | None = None
        self._samples = self._refused = 0
        self._closed = False

    def update(self, stamp_ns: int, values: Sample) -> Update:
        """Takes one sample, as :meth:`Library.update`."""
        if self._closed:
            raise TraceError("the trace is closed; call reset() before the next sample")
        stamp = operator.index(stamp_ns)
        row = dict(zip(self.signals, read_sample(values, self.signals, self._declared), strict=True))
        if self._stamp is not None and stamp <= self._stamp:
            self._refused += 1
            return self._pack(False)
        on_time = self._period is None or self._stamp is None or stamp - self._stamp == self._period
        for clause in self._clauses:
            clause.push(self._samples, row, on_time)
        self._stamp = stamp
        self._samples += 1
        return self._pack(True)

    def close(self) -> Update:
        """Ends the trace."""
        self._closed = True
        return self._pack(True)

    def _pack(self, accepted: bool) -> Update:
        judged = [list(part) for part in zip(*(c.judged for c in self._clauses), strict=True)] or [[], [], []]
        now = [list(part) for part in zip(*(c.now for c in self._clauses), strict=True)] or [[], [], []]
        flags = tuple(c.triggered for c in self._clauses)
        missed = tuple(c.unknown for c in self._clauses)
        counts = (self._stamp or 0, self._samples, self._refused, accepted, self._closed)
        return make_update(self._program, False, (), flags, (*counts, (judged, now), missed, ()))


class _Part:
    """One formula as an rtamt specification, which is given up when rtamt's memory no longer fits the trace."""

    def __init__(self, rtamt: Any, formula: Formula, period_ns: int | None, running: bool = False) -> None:
        self.names = {name: f"v{i}" for i, name in enumerate(sorted(formula.signals))}
        text = _write(formula, self.names)
        self.spec = _specification(rtamt, f"historically({text})" if running else text, self.names, period_ns)
        self.has_memory = any(n.op in PAST for n in formula.nodes)
        self.has_windows = any(n.window is not None for n in formula.nodes)
        self.lost = False

    def push(self, sample: int, row: dict[str, float], on_time: bool) -> float:
        """The value at this sample; NaN where it is unknown, undefined, or the memory was lost."""
        values = [(own, row[name]) for name, own in self.names.items()]
        self.lost = self.lost or (self.has_windows and not on_time)
        if not self.lost and not any(v != v for _, v in values):
            try:
                return float(self.spec.update(sample, values)) + 0.0
            except Exception:  # x/0, the root of a negative number (rtamt raises bare Exception): undefined is unknown
                pass
        self.lost = self.lost or self.has_memory
        return math.nan


class _Clause:
    """One clause as rtamt specifications: what is judged, what holds now, and the left sides of its implications."""

    def __init__(self, rtamt: Any, formula: Formula, left: list[Formula], period_ns: int | None) -> None:
        inner = body(formula)
        self.names = sorted(formula.signals)
        self.instant = _Part(rtamt, inner, period_ns)
        self.running = _Part(rtamt, inner, period_ns, running=True) if inner != formula else None
        self.left = [_Part(rtamt, f, period_ns) for f in left]
        self.judged = self.now = _UNDECIDED
        self.triggered = False
        self.unknown = 0
        self.gap = False  # some sample was unknown, or its value undefined

    def push(self, sample: int, row: dict[str, float], on_time: bool) -> None:
        self.unknown += any(row[name] != row[name] for name in self.names)
        for part in self.left:
            self.triggered = part.push(sample, row, on_time) > 0 or self.triggered
        now = self.instant.push(sample, row, on_time)
        self.now = _UNDECIDED if now != now else (now, now, now)
        if self.running is None:
            self.judged = self.now
            return
        rho = self.running.push(sample, row, on_time)
        self.gap = self.gap or rho != rho
        _, upper, so_far = self.judged
        upper, so_far = (upper, so_far) if rho != rho else (rho, rho)
        self.judged = (-math.inf if self.gap and upper != -math.inf else upper, upper, so_far)


def _load() -> Any:
    try:
        import rtamt
    except ImportError as error:
        raise MissingDependencyError(
            "backend rtamt needs the package rtamt (Python 3.11 or 3.12): "
            "pip install rtamt==0.4.10 antlr4-python3-runtime==4.7"
        ) from error
    return rtamt


def _specification(rtamt: Any, text: str, names: dict[str, str], period_ns: int | None) -> Any:
    spec = rtamt.StlDiscreteTimeSpecification()
    for own in names.values():
        spec.declare_var(own, "float")
    if period_ns is not None:
        spec.set_sampling_period(period_ns, "ns", 0.1)
    spec.spec = text
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        spec.parse()
    except Exception as error:  # rtamt raises classes of its own and of antlr
        raise BackendError(f"rtamt cannot read {text!r}: {error}") from error
    finally:
        logging.disable(level)
    return spec


def _write(formula: Formula, names: dict[str, str]) -> str:
    """Text for rtamt: every operator in parentheses, spaces around division, windows in nanoseconds, names replaced."""
    texts: list[str] = []
    for node in formula.nodes:
        args = [texts[a] for a in node.args]
        window = "" if node.window is None else f"[{node.window[0]}ns,{node.window[1]}ns]"
        if node.op == "number":
            text = repr(node.value)
        elif node.op == "signal":
            text = names[node.name]
        elif node.op == "neg":
            text = f"(0 - {args[0]})"
        elif node.op in ("abs", "sqrt", "exp", "pow"):
            text = f"{node.op}({', '.join(args)})"
        elif len(args) == 1:
            text = f"({node.op}{window}({args[0]}))"
        else:
            text = f"({args[0]} {_INFIX.get(node.op, node.op)}{window} {args[1]})"
        texts.append(text)
    return texts[-1]
