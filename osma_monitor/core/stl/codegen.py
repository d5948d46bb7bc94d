"""A graph to Python source: one straight-line function a frame for the whole library.

Two dialects of the same program. ``point`` carries one float a node and runs while every sample so far was known.
``interval`` carries (lower, upper, rho) and takes over at the first unknown sample. The source is made from node ids,
operators and numbers alone; signal names reach it as values in its namespace, never as text.

Generated are all nodes that do not look ahead, and running accumulators for clauses whose operators that look ahead
stand directly over such nodes. Deeper nesting goes to :mod:`osma_monitor.core.stl.stream`.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from osma_monitor.core.stl import runtime
from osma_monitor.core.stl.emitter import ARITHMETIC
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.judge import JudgeEmitter
from osma_monitor.core.stl.packing import Packing, packing_for
from osma_monitor.core.stl.syntax import COMPARISONS
from osma_monitor.core.stl.verdict import Judged

_TERMS: Final = 50  # of one sum in the source; Python's parser has its own limits


@dataclass(frozen=True)
class Program:
    """A compiled library.

    Attributes:
        source: the generated text.
        namespace: its functions. ``make(...)`` builds one monitor's state and gives its functions by name;
            ``judged_point``, ``judged_interval``, ``now_point`` and ``now_interval`` turn an update's data into bounds.
        simple: positions of the clauses that the program judges by itself.
        streamed: the other clauses, and for each the ids of the nodes that feed its stream.
        triggers: for each clause the positions of its flags among the triggers; None: it has no implication.
        flags: how many flags there are.
        point_allowed: the point dialect may run at all.
    """

    source: str
    namespace: dict[str, Any]
    simple: tuple[int, ...]
    streamed: tuple[tuple[int, tuple[int, ...]], ...]
    triggers: tuple[tuple[int, ...] | None, ...]
    flags: int
    point_allowed: bool

    @functools.cached_property
    def packing(self) -> Packing:
        """Makes arrays over the clauses."""
        return packing_for(len(self.triggers))


def compile_graph(graph: Graph) -> Program:
    """Generates and compiles the monitor of a graph."""
    return _Compiler(graph).program()


class _Compiler(JudgeEmitter):
    """Puts the pieces together into a module."""

    def program(self) -> Program:
        bodies: dict[bool, list[str]] = {}
        for point in (True, False):
            self.lines, self.point, self.depth = [], point, 2
            if point and not self.point_allowed:
                self.lines = []
            else:
                self.frame()
            bodies[point] = self.lines
        self.lines = []
        self.depth = 0
        self.add("def make(Update, program, slow, widen, streams):")
        self.depth = 1
        self.write_state()
        if self.point_allowed:
            self.write_point(bodies[True])
        self.write_interval(bodies[False])
        self.write_wide()
        self.write_switch()
        self.write_access()
        names = ["interval", "wide", "switch", "get", "put", "age", "newest", "stop", "refuse", "refusals"] + (
            ["point", "known"] if self.point_allowed else []
        )
        self.add(f"return {{{', '.join(f'{n!r}: {n}' for n in names)}}}")
        self.judge(True)
        self.judge(False)
        source = "\n".join(self.lines) + "\n"
        packing = packing_for(len(self.graph.roots))
        namespace: dict[str, Any] = {
            **{name: getattr(runtime, name) for name in (
                "INF", "NAN", "SlidingMinimum", "SlidingSince", "compare", "divide", "exponential", "greatest",
                "interval_arithmetic", "least", "power", "root",
            )},
            "Judged": Judged,
            "itemgetter": operator.itemgetter,
            "ndarray": np.ndarray,
            "names": self.graph.signals,
            "points": packing.points,
            "intervals": packing.intervals,
        }  # fmt: skip
        exec(compile(source, "<stl program>", "exec"), namespace)
        positions = {node: i for i, node in enumerate(self.flags)}
        triggers = tuple(
            tuple(positions[a] for a in left if a in positions) if left else None for left in self.graph.antecedents
        )
        return Program(
            source, namespace, tuple(self.simple), tuple(self.streamed), triggers, len(self.flags), self.point_allowed
        )

    def cells(self, point: bool) -> list[str]:
        """Names of the state variables of one dialect."""
        found: list[str] = []
        for name, slot in self.slots.items():
            found += [name] if point or slot.kind == "flag" else [f"{name}l", f"{name}u", f"{name}r"]
        return found

    def write_state(self) -> None:
        for column in range(len(self.graph.signals)):
            self.add(f"n{column} = names[{column}]")
            self.add(f"known{column} = None")
        for clause in range(len(self.graph.roots)):
            self.add(f"missed{clause} = 0")
        for slot in self.slots.values():
            self.add(f"{slot.name} = {slot.initial_raw or slot.initial}")
            if slot.kind == "track":
                self.add(f"{slot.name}l = {slot.name}u = {slot.initial}; {slot.name}r = {slot.initial_rho}")
            elif slot.kind == "window":
                self.add(f"{slot.name}l = {slot.initial}; {slot.name}u = {slot.initial}; {slot.name}r = {slot.initial}")
        for position in range(len(self.streamed)):
            self.add(f"push{position} = streams[{position}].push")
        # each dialect's last stamp while it runs; else it bars the way
        self.add("last = -(2 ** 63) - 1")
        self.add("latest = 2 ** 80")
        self.add("samples = refused = 0")
        self.add("current = None")
        self.add("shared = None")
        if len(self.graph.signals) > 1:
            self.add("pick = itemgetter(*names)")

    def write_point(self, body: list[str]) -> None:
        columns = range(len(self.graph.signals))
        self.add("def point(stamp, values):")
        self.depth = 2
        self.add(f"nonlocal {', '.join(['last', 'samples', 'current', 'shared', *self.cells(True)])}")
        self.add("if stamp.__class__ is not int or not last < stamp < 2 ** 63: return slow(stamp, values)")
        self.read_sample()
        if columns:
            self.add_check()
            self.add(
                "except (KeyError, TypeError, ValueError, OverflowError, RuntimeWarning): return slow(stamp, values)"
            )
            self.add("if check.__class__ is not float or check - check != 0.0: return slow(stamp, values)")
            # a whole number beside a float is as good as one, two with each other count without rounding and limit
            strange = [f"i{c}.__class__ is not float" for c in self.meeting()]
            if strange:
                self.add(f"if {' or '.join(strange)}: return slow(stamp, values)")
        self.add("fresh = False")
        self.lines += body
        self.depth = 2
        self.finish(True)
        self.depth = 1
        self.add("def known(row):")
        if columns:
            self.add(f"    {self.inputs()}{',' if len(columns) == 1 else ''} = row")
            self.add_check()
        self.add(f"    return {'check - check == 0.0' if columns else True}")

    def meeting(self) -> list[int]:
        """Signals that some operation joins with a signal."""
        nodes = self.graph.nodes
        joining = [
            i for i, node in enumerate(nodes)
            if node.op in ARITHMETIC | COMPARISONS and sum(nodes[a].op != "number" for a in node.args) > 1
        ]  # fmt: skip
        return [nodes[i].signal for i in self._below(joining) if nodes[i].op == "signal"]

    def add_check(self) -> None:
        """A sum that is finite when all inputs are: pair by pair, which is quicker than ``sum`` or one by one."""
        pairs = [f"(i{c} + i{c + 1})" for c in range(0, len(self.graph.signals) - 1, 2)]
        if len(self.graph.signals) % 2:
            pairs.append(f"i{len(self.graph.signals) - 1}")
        for begin in range(0, len(pairs), _TERMS):
            terms = [*(["check"] if begin else []), *pairs[begin : begin + _TERMS]]
            self.add(f"    check = {' + '.join(terms)}")

    def read_sample(self) -> None:
        """Opens a try block that takes the sample's values apart."""
        columns = range(len(self.graph.signals))
        if not columns:
            self.add("if len(values): return slow(stamp, values)")
            self.add("row = ()")
            return
        single = len(columns) == 1
        self.add("try:")
        self.add(f"    if values.__class__ is dict: row = {'(values[n0],)' if single else 'pick(values)'}")
        self.add("    else: row = tuple(values.tolist() if values.__class__ is ndarray else values)")
        self.add(f"    {self.inputs()}{',' if single else ''} = row")

    def write_wide(self) -> None:
        """The quick way into the interval dialect, for samples of plain floats."""
        columns = range(len(self.graph.signals))
        self.add("def wide(stamp, values):")
        self.depth = 2
        self.add("if stamp.__class__ is not int or not latest < stamp < 2 ** 63: return slow(stamp, values)")
        self.read_sample()
        if columns:
            self.add("except (KeyError, TypeError, ValueError): return slow(stamp, values)")
            strange = " or ".join(f"i{c}.__class__ is not float" for c in columns)
            self.add(f"if {strange}: return slow(stamp, values)")
        for column in columns:
            self.add(f"if i{column} - i{column} != 0.0: i{column} = NAN")
        self.add(f"return interval(stamp, [{self.inputs()}])")
        self.depth = 1

    def write_interval(self, body: list[str]) -> None:
        graph = self.graph
        missed = [f"missed{c}" for c in range(len(graph.roots))]
        known = [f"known{c}" for c in range(len(graph.signals))]
        self.add("def interval(stamp, row):")
        self.depth = 2
        self.add(
            f"nonlocal {', '.join(['samples', 'latest', 'current', 'shared', *missed, *known, *self.cells(False)])}"
        )
        if graph.signals:
            self.add(f"{self.inputs()}{',' if len(graph.signals) == 1 else ''} = row")
        for column in range(len(graph.signals)):
            self.add(f"if i{column} == i{column}: known{column} = stamp")
        also = "; fresh = True" if self.stable else ""
        self.add("fresh = False")
        for clause, reads in enumerate(graph.reads):
            if reads:
                self.add(f"if {' or '.join(f'i{c} != i{c}' for c in reads)}: missed{clause} += 1{also}")
        self.lines += body
        self.depth = 2
        self.finish(False)
        self.depth = 1

    def finish(self, point: bool) -> None:
        """Counts the sample, feeds the streams, and packs the update."""
        self.point = point
        self.add("samples += 1")
        results: list[str] = []
        for position, (_, inputs) in enumerate(self.streamed):
            packed = ", ".join(f"({', '.join(self.triple(i))})" for i in inputs)
            self.add(f"z{position} = push{position}(stamp, ({packed}{',' if inputs else ''}))")
            results.append(f"z{position}")
        self.add("last = stamp" if point else "latest = stamp")
        flags = [f"g{p}" for p in range(len(self.flags))]
        missed = [] if point else [f"missed{c}" for c in range(len(self.graph.roots))]
        values = "row" if point and self.stateless else _tuple(self.value_names(point))
        frame = f"(stamp, samples, refused, True, False, {values}, {_tuple(missed)}, {_tuple(results)})"
        if not self.stable:
            self.add(f"frame = {frame}")
            frame = "frame"
        shared = f"Judged(program, {point}, {_tuple(self.state_names(point))}, {_tuple(flags)}, {frame})"
        self.add(f"if fresh or shared is None: shared = {shared}" if self.stable else f"shared = {shared}")
        self.add("update = Update()")
        self.add("update._shared = shared")
        self.add(f"update._frame = {frame}")
        self.add("current = update")
        self.add("return update")

    def write_switch(self) -> None:
        self.add("def switch(stamp):")
        self.depth = 2
        known = [f"known{c}" for c in range(len(self.graph.signals))]
        self.add(f"nonlocal {', '.join(['last', 'shared', *known, *self.cells(False)])}")
        self.add("last = 2 ** 80")
        self.add("shared = None")
        self.add("if samples:")
        self.add("    " + ("; ".join(f"{k} = stamp" for k in known) or "pass"))
        for slot in self.slots.values():
            low, high, rho = (f"{slot.name}{part}" for part in "lur")
            if slot.kind == "track":
                self.add(f"{low} = {high} = {slot.value()}")
                self.add(f"{rho} = {low} if samples > {slot.after} else {slot.initial_rho}")
            elif slot.kind == "window":
                for part in (low, high, rho):
                    self.add(f"{part} = {slot.name}.clone()")
        self.depth = 1
        self.add("def stop():")
        self.add("    nonlocal last, latest")
        self.add("    last = latest = 2 ** 80")
        self.add("def refuse():")
        self.add("    nonlocal refused")
        self.add("    refused += 1")
        self.add("def refusals():")
        self.add("    return refused")

    def write_access(self) -> None:
        """State as plain data, and back."""
        shared = ["last", "latest", "samples", "refused", *(f"missed{c}" for c in range(len(self.graph.roots)))]
        shared += [f"known{c}" for c in range(len(self.graph.signals))]
        plain, windows = list(shared), []
        for name, slot in self.slots.items():
            parts = [name] if slot.kind == "flag" else [name, f"{name}l", f"{name}u", f"{name}r"]
            if slot.kind == "window":
                windows += parts
            else:
                plain += parts
        self.add("def get():")
        self.add(f"    return [[{', '.join(plain)}], [{', '.join(f'{w}.state()' for w in windows)}]]")
        self.add("def put(state, update):")
        self.add(f"    nonlocal current, shared, {', '.join(plain)}")
        self.add("    current = update; shared = None")
        self.add(f"    {', '.join(plain)} = state[0]")
        for position, name in enumerate(windows):
            self.add(f"    {name}.load(state[1][{position}])")
        self.add("def newest():")
        self.add("    return current")
        self.add("def age():")
        self.add(f"    return [{', '.join(f'known{c}' for c in range(len(self.graph.signals)))}]")


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
