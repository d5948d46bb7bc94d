"""A graph to Python source: one straight-line function a frame for the whole library.

Two dialects of the same program. ``point`` carries one float a node and runs while every sample so far was known.
``interval`` carries (lower, upper, rho) and takes over at the first unknown sample. The source is made from node ids,
operators and numbers alone; signal names reach it as values in its namespace, never as text.

Generated are all nodes that do not look ahead, and running accumulators for clauses whose operators that look ahead stand
directly over such nodes. Deeper nesting goes to :mod:`osma_monitor.core.stl.stream`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from osma_monitor.core.stl import runtime
from osma_monitor.core.stl.graph import GATE_THRESHOLD, Graph, GraphNode
from osma_monitor.core.stl.syntax import BINARY_TERMS, COMPARISONS, TEMPORAL, UNARY_TERMS

_ARITHMETIC: Final = UNARY_TERMS | BINARY_TERMS
# results that may be NaN although the arguments are finite: the point dialect then hands the sample over
_MAY_BE_NAN: Final = frozenset({"+", "-", "*", "/", "sqrt", "exp", "pow"})
_CALLS: Final = {"sqrt": "root", "exp": "exponential", "pow": "power", "/": "divide", "min": "least", "max": "greatest"}
Triple = tuple[str, str, str]


@dataclass(slots=True)
class _Slot:
    """One piece of state.

    ``kind`` 'track': three floats (one in the point dialect); 'window': one object a track; 'flag': one plain value. ``after``: the
    point value means something once that many samples were seen.
    """

    name: str
    kind: str
    initial: str
    initial_rho: str = "NAN"
    after: int = 0


@dataclass(frozen=True)
class Program:
    """A compiled library.

    Attributes:
        source: the generated text.
        namespace: its functions. ``make(...)`` builds one monitor's state and gives its functions by name; ``judge_point`` and
            ``judge_interval`` turn an update's data into the judged bounds and the bounds of this instant.
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


def compile_graph(graph: Graph) -> Program:
    """Generates and compiles the monitor of a graph."""
    return _Compiler(graph).program()


def is_simple(graph: Graph, clause: int) -> bool:
    """Can accumulators judge the clause: does no temporal operator stand over one that looks ahead, but for next at the top?"""
    stack, seen = [graph.roots[clause]], set()
    while stack:
        index = stack.pop()
        node = graph.nodes[index]
        if index in seen or not node.future:
            continue
        seen.add(index)
        if node.op in TEMPORAL and node.op != "next" and any(graph.nodes[a].future for a in node.args):
            return False
        stack += node.args
    return not any(graph.nodes[a].future for a in graph.antecedents[clause])


def boundary(graph: Graph, roots: list[int]) -> list[int]:
    """The nodes that do not look ahead, right below those that do."""
    found: set[int] = set()
    stack, seen = list(roots), set()
    while stack:
        index = stack.pop()
        if index in seen:
            continue
        seen.add(index)
        if graph.nodes[index].future:
            stack += graph.nodes[index].args
        elif not graph.nodes[index].scalar:
            found.add(index)
    return sorted(found)


@dataclass
class _Compiler:
    graph: Graph
    slots: dict[str, _Slot] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    point: bool = True
    depth: int = 2

    def __post_init__(self) -> None:
        graph = self.graph
        clauses = range(len(graph.roots))
        self.simple = [c for c in clauses if is_simple(graph, c)]
        self.streamed = [
            (c, tuple(boundary(graph, [graph.roots[c], *graph.antecedents[c]])))
            for c in clauses
            if c not in self.simple
        ]
        # (node, index) pairs judged at the index-th sample
        self.judged: dict[tuple[int, int], None] = {}
        for clause in self.simple:
            if graph.nodes[graph.roots[clause]].future:
                self._collect(graph.roots[clause])
        self.boundary = boundary(graph, [graph.roots[c] for c in self.simple])
        self.flags = list(dict.fromkeys(a for left in graph.antecedents for a in left if not graph.nodes[a].future))
        needed = {*self.boundary, *self.flags, *(n for _, inputs in self.streamed for n in inputs)}
        for index in range(len(graph.nodes) - 1, -1, -1):
            if index in needed:
                needed.update(graph.nodes[index].args)
        self.needed = sorted(needed)
        self.point_allowed = not any(
            (graph.nodes[i].op in _ARITHMETIC or graph.nodes[i].op in COMPARISONS)
            and not all(graph.nodes[a].scalar for a in graph.nodes[i].args)
            for i in self.needed
        )

    def _collect(self, root: int) -> None:
        stack = [(root, 0)]
        while stack:
            pair = stack.pop()
            if pair in self.judged:
                continue
            self.judged[pair] = None
            index, k = pair
            node = self.graph.nodes[index]
            if node.scalar or not node.future or node.op in ("always", "eventually", "until"):
                continue
            stack += [(a, k + 1 if node.op == "next" else k) for a in node.args]

    # --- writing ---

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def slot(self, name: str, kind: str, initial: str, initial_rho: str = "NAN", after: int = 0) -> str:
        self.slots.setdefault(name, _Slot(name, kind, initial, initial_rho, after))
        return name

    def triple(self, index: int) -> Triple:
        """Names of a node's lower, upper and rho in this frame."""
        if self.point:
            return (f"v{index}",) * 3
        return (f"l{index}", f"u{index}", f"r{index}")

    def parts(self, name: str) -> Triple:
        return (name,) * 3 if self.point else (f"{name}l", f"{name}u", f"{name}r")

    def scalar(self, index: int) -> str:
        node = self.graph.nodes[index]
        if node.op == "number":
            return f"({node.value!r})"
        return f"i{node.signal}" if node.op == "signal" else f"x{index}"

    def settle(self, out: Triple) -> None:
        low, high, rho = out
        self.add(
            f"{rho} = {low} if {low} == {high} else {low} if {rho} < {low} else {high} if {rho} > {high} else {rho}"
        )

    def extreme(self, out: Triple, a: Triple, b: Triple, sign: str) -> None:
        """out = min(a, b) for sign '<', max for '>'. Unknown in, unknown out, unless the interval is a point."""
        self.add(f"{out[0]} = {a[0]} if {a[0]} {sign} {b[0]} else {b[0]}")
        if self.point:
            return
        self.add(f"{out[1]} = {a[1]} if {a[1]} {sign} {b[1]} else {b[1]}")
        self.add(f"{out[2]} = {a[2]} if {a[2]} != {a[2]} or {a[2]} {sign} {b[2]} else {b[2]}")
        self.settle(out)

    def negate(self, out: Triple, a: Triple) -> None:
        self.add(f"{out[0]} = -{a[1]}")
        if not self.point:
            self.add(f"{out[1]} = -{a[0]}")
            self.add(f"{out[2]} = -{a[2]}")

    def copy(self, out: Triple, a: Triple) -> None:
        self.add(f"{out[0]} = {a[0]}" if self.point else f"{', '.join(out)} = {', '.join(a)}")

    def running(self, state: Triple, value: Triple, sign: str) -> None:
        """state = min(state, value) (or max); rho skips the unknown."""
        for part in range(1 if self.point else 2):
            self.add(f"if {value[part]} {sign} {state[part]}: {state[part]} = {value[part]}")
        if not self.point:
            other = ">=" if sign == "<" else "<="
            self.add(f"if {value[2]} == {value[2]} and not {value[2]} {other} {state[2]}: {state[2]} = {value[2]}")

    # --- one frame ---

    def frame(self) -> None:
        """The values of all needed nodes, and the state after this sample."""
        nodes = self.graph.nodes
        pure = [i for i in self.needed if nodes[i].scalar or all(nodes[a].scalar for a in nodes[i].args)]
        pure_set = set(pure)
        # the point dialect may hand the sample over while these are computed, so they come before any state
        for index in pure + [i for i in self.needed if i not in pure_set]:
            node = nodes[index]
            if node.scalar:
                self.scalar_node(index, node)
            elif node.op in ("value", "gate") or node.op in COMPARISONS:
                self.leaf(index, node)
            else:
                self.inner(index, node)
        for pair in self.judged:
            self.accumulate(*pair)
        for position, index in enumerate(self.flags):
            flag = self.slot(f"g{position}", "flag", "False")
            self.add(f"if {self.triple(index)[0]} > 0: {flag} = True")

    def hand_over(self, name: str) -> None:
        if self.point:
            self.add(f"if {name} != {name}: return widen(stamp, [{self.inputs()}])")

    def scalar_node(self, index: int, node: GraphNode) -> None:
        if node.op in ("number", "signal"):
            return
        args = [self.scalar(a) for a in node.args]
        if node.op == "neg":
            text = f"-{args[0]}"
        elif node.op == "abs":
            text = f"abs({args[0]})"
        elif node.op in _CALLS:
            text = f"{_CALLS[node.op]}({', '.join(args)})"
        else:
            text = f"{args[0]} {node.op} {args[1]}"
        self.add(f"x{index} = {text}")
        if node.op in _MAY_BE_NAN:
            self.hand_over(f"x{index}")

    def leaf(self, index: int, node: GraphNode) -> None:
        if node.op in COMPARISONS and not all(self.graph.nodes[a].scalar for a in node.args):
            sides = ", ".join(self.packed(a) for a in node.args)
            self.add(f"{', '.join(self.triple(index))} = compare({node.op!r}, {sides}, {node.boolean})")
            return
        args = [self.scalar(a) for a in node.args]
        m = f"v{index}" if self.point else f"m{index}"
        if node.op == "value":
            self.add(f"{m} = {args[0]} + 0.0")
        elif node.op in ("==", "!="):
            sign, apart = ("", "-") if node.op == "==" else ("-", "")
            self.add(f"{m} = {args[0]} - {args[1]}")
            self.hand_over(m)
            false = f"{apart}INF" if node.boolean else f"{apart}abs({m})"
            self.add(f"{m} = {sign}INF if {m} == 0 else {m} if {m} != {m} else {false}")
        elif node.op == "gate":
            self.add(f"{m} = INF if {args[0]} > {GATE_THRESHOLD!r} else {args[0]} if {args[0]} != {args[0]} else -INF")
        else:
            small, large = args if node.op in ("<", "<=") else (args[1], args[0])
            self.add(f"{m} = {large} - {small}")
            if not all(self.graph.nodes[a].op in ("signal", "number") for a in node.args):
                self.hand_over(m)
            if node.boolean:
                test = ">" if node.op in ("<", ">") else ">="
                self.add(f"{m} = INF if {m} {test} 0 else {m} if {m} != {m} else -INF")
        self.spread(index, m)

    def spread(self, index: int, m: str) -> None:
        """A number that may be unknown to an interval."""
        if self.point:
            return
        low, high, rho = self.triple(index)
        self.add(f"if {m} == {m}: {low} = {high} = {rho} = {m}")
        self.add(f"else: {low} = -INF; {high} = INF; {rho} = NAN")

    def packed(self, index: int) -> str:
        node = self.graph.nodes[index]
        return f"({self.scalar(index)},) * 3" if node.scalar else f"({', '.join(self.triple(index))})"

    def inner(self, index: int, node: GraphNode) -> None:
        out = self.triple(index)
        args = [self.triple(a) for a in node.args]
        if self.connective(out, node.op, args, f"t{index}"):
            return
        if node.op == "prev":
            state = self.parts(self.slot(f"s{index}", "track", "INF", "INF"))
            self.copy(out, state)
            self.copy(state, args[0])
        elif node.op in ("rise", "fall"):
            rising = node.op == "rise"
            edge = "-INF" if rising else "INF"
            state = self.parts(self.slot(f"s{index}", "track", edge, edge))
            turned = self.parts(f"t{index}")
            self.negate(turned, state if rising else args[0])
            self.extreme(out, args[0] if rising else state, turned, "<")
            self.copy(state, args[0])
        elif node.op in ("historically", "once"):
            self.look_back(index, node, out, args[0])
        elif node.op == "since":
            self.since(index, node, out, args[0], args[1])
        else:
            sides = ", ".join(self.packed(a) for a in node.args)
            self.add(f"{', '.join(out)} = interval_arithmetic({node.op!r}, {sides})")

    def connective(self, out: Triple, op: str, args: list[Triple], temporary: str) -> bool:
        if op == "not":
            self.negate(out, args[0])
        elif op in ("and", "or"):
            self.extreme(out, args[0], args[1], "<" if op == "and" else ">")
        elif op == "implies":
            turned = self.parts(temporary)
            self.negate(turned, args[0])
            self.extreme(out, turned, args[1], ">")
        elif op in ("iff", "xor"):
            turned, one, other = self.parts(temporary), self.parts(temporary + "a"), self.parts(temporary + "b")
            self.negate(turned, args[0])
            self.extreme(one, turned, args[1], ">")
            self.negate(turned, args[1])
            self.extreme(other, turned, args[0], ">")
            if op == "iff":
                self.extreme(out, one, other, "<")
            else:
                self.extreme(turned, one, other, "<")
                self.negate(out, turned)
        else:
            return False
        return True

    def look_back(self, index: int, node: GraphNode, out: Triple, value: Triple) -> None:
        lowest = node.op == "historically"
        if node.window is None:
            state = self.parts(self.slot(f"s{index}", "track", "INF" if lowest else "-INF"))
            self.running(state, value, "<" if lowest else ">")
            self.copy(out, state)
        else:
            window = self.parts(self.slot(f"w{index}", "window", f"SlidingMinimum{node.window!r}"))
            sign = "" if lowest else "-"
            for part in range(1 if self.point else 3):
                self.add(f"{out[part]} = {sign}{window[part]}.push(stamp, {sign}{value[part]})")
            if not self.point:
                self.add(f"if {window[2]}.empty and not {window[0]}.empty: {out[2]} = NAN")
        if not self.point:
            self.settle(out)

    def since(self, index: int, node: GraphNode, out: Triple, hold: Triple, release: Triple) -> None:
        if node.window is not None:
            window = self.parts(self.slot(f"w{index}", "window", f"SlidingSince{node.window!r}"))
            for part in range(1 if self.point else 3):
                self.add(f"{out[part]} = {window[part]}.push(stamp, {hold[part]}, {release[part]})")
            if not self.point:
                self.add(f"if {window[2]}.empty and not {window[0]}.empty: {out[2]} = NAN")
                self.settle(out)
            return
        state = self.parts(self.slot(f"s{index}", "track", "-INF"))
        for part in range(1 if self.point else 2):
            self.add(f"if {hold[part]} < {state[part]}: {state[part]} = {hold[part]}")
            self.add(f"if {release[part]} > {state[part]}: {state[part]} = {release[part]}")
        if not self.point:
            self.add(f"if {hold[2]} == {hold[2]} and {hold[2]} < {state[2]}: {state[2]} = {hold[2]}")
            self.add(f"if {release[2]} == {release[2]} and not {release[2]} <= {state[2]}: {state[2]} = {release[2]}")
        self.copy(out, state)
        if not self.point:
            self.settle(out)

    # --- judged at the k-th sample ---

    def accumulate(self, index: int, k: int) -> None:
        node = self.graph.nodes[index]
        if node.scalar or (node.future and node.op not in ("always", "eventually", "until")):
            return
        name = f"a{index}_{k}"
        depth = self.depth
        if not node.future:
            state = self.parts(self.slot(name, "track", "NAN", "NAN", k))
            self.add(f"if samples == {k}:")
            self.depth += 1
            self.copy(state, self.triple(index))
            self.depth = depth
            return
        conditions = [f"samples >= {k}"] if k else []
        late = False
        if node.window is not None:
            began = self.slot(f"k{k}", "flag", "0")
            self.add(f"if samples == {k}: {began} = stamp")
            near, far = node.window
            late = near > 0
            conditions.append(f"{began} + {near} <= stamp <= {began} + {far}" if late else f"stamp <= {began} + {far}")
        if node.op == "until":
            self.accumulate_until(name, node, k, conditions, late)
            return
        lowest = node.op == "always"
        initial = "INF" if lowest else "-INF"
        state = self.parts(self.slot(name, "track", initial, initial if late else "NAN", k))
        value = self.triple(node.args[0])
        if conditions:
            self.add(f"if {' and '.join(conditions)}:")
            self.depth += 1
        if late:
            self.first_in_window(name, state)
        self.running(state, value, "<" if lowest else ">")
        self.depth = depth

    def first_in_window(self, name: str, state: Triple) -> None:
        """An empty window has a value; its first sample makes rho unknown until one is known."""
        seen = self.slot(f"{name}f", "flag", "False")
        self.add(f"if not {seen}:")
        self.add(f"    {seen} = True")
        if not self.point:
            self.add(f"    {state[2]} = NAN")

    def accumulate_until(self, name: str, node: GraphNode, k: int, conditions: list[str], late: bool) -> None:
        best = self.parts(self.slot(name, "track", "-INF", "-INF" if late else "NAN", k))
        held = self.parts(self.slot(f"{name}h", "track", "INF", "INF"))
        hold, release = (self.triple(a) for a in node.args)
        depth = self.depth
        if conditions:
            self.add(f"if {' and '.join(conditions)}:")
            self.depth += 1
        if late:
            self.first_in_window(name, best)
        turned = self.parts("t")
        for part in range(1 if self.point else 2):
            self.add(f"{turned[part]} = {release[part]} if {release[part]} < {held[part]} else {held[part]}")
        if not self.point:
            known = f"{release[2]} != {release[2]} or {release[2]} < {held[2]}"
            self.add(f"{turned[2]} = {release[2]} if {known} else {held[2]}")
        self.running(best, turned, ">")
        self.depth = depth
        if k:
            self.add(f"if samples >= {k}:")
            self.depth += 1
        for part in range(1 if self.point else 3):
            self.add(f"if {hold[part]} < {held[part]}: {held[part]} = {hold[part]}")
        self.depth = depth

    # --- reading the accumulators ---

    def judge(self, point: bool) -> None:
        """The function from an update's data to ``(judged bounds, bounds of this instant)`` of the simple clauses."""
        graph = self.graph
        self.depth, self.point = 0, False
        self.add(f"def judge_{'point' if point else 'interval'}(data, samples, closed, stamp):")
        self.depth = 1
        names = self.data_names(point)
        self.add(f"({', '.join(names)}{',' if names else ''}) = data")
        if point:
            for name in self.read_slots():
                if self.slots[name].kind == "track":
                    self.add(f"{name}l = {name}u = {name}r = {name}")
            for index in self.boundary:
                self.add(f"l{index} = u{index} = r{index} = v{index}")
        for index, k in sorted(self.judged, key=lambda pair: (pair[0], -pair[1])):
            self.judge_pair(index, k)
        done: set[int] = set()
        for clause in self.simple:
            self.newest(graph.roots[clause], done)
        judged = [
            self.pair_names(graph.roots[c], 0) if graph.nodes[graph.roots[c]].future else self.triple(graph.roots[c])
            for c in self.simple
        ]
        now = [self.newest_names(graph.roots[c]) for c in self.simple]
        for word, triples in (("judged", judged), ("now", now)):
            self.add(f"{word} = [{', '.join(f'({a}, {b}, {c})' for a, b, c in triples)}]")
        self.add("return judged, now")

    def pair_names(self, index: int, k: int) -> Triple:
        return (f"jl{index}_{k}", f"ju{index}_{k}", f"jr{index}_{k}")

    def newest_names(self, index: int) -> Triple:
        if not self.graph.nodes[index].future:
            return self.triple(index)
        return (f"nl{index}", f"nu{index}", f"nr{index}")

    def judge_pair(self, index: int, k: int) -> None:
        node = self.graph.nodes[index]
        out = self.pair_names(index, k)
        if node.scalar:
            return
        if not node.future:
            self.copy(out, self.parts(f"a{index}_{k}"))
        elif node.op == "next":
            inner = self.pair_names(node.args[0], k + 1)
            self.add(f"if samples > {k + 1}: {', '.join(out)} = {', '.join(inner)}")
            self.add(f"else: {', '.join(out)} = (INF, INF, INF) if closed else (-INF, INF, NAN)")
        elif node.op in ("always", "eventually", "until"):
            self.copy(out, self.parts(f"a{index}_{k}"))
            self.settle(out)
            if node.window is not None:
                pending = f"stamp - k{k} < {node.window[1]}"
            else:
                pending = "not closed" if node.polarity != (1 if node.op == "always" else -1) else ""
            self.widen(out, node, pending, f"a{index}_{k}hu")
        else:
            self.judged_inner(out, node, [self.pair_names(a, k) for a in node.args], index)

    def judged_inner(self, out: Triple, node: GraphNode, args: list[Triple], index: int) -> None:
        """A connective, comparison or arithmetic over operands that look ahead."""
        if self.connective(out, node.op, args, f"t{index}"):
            return
        packed = [
            f"({self.scalar(a)},) * 3" if self.graph.nodes[a].scalar else f"({', '.join(names)})"
            for a, names in zip(node.args, args, strict=True)
        ]
        if node.op in COMPARISONS:
            call = f"compare({node.op!r}, {', '.join(packed)}, {node.boolean})"
        else:
            call = f"interval_arithmetic({node.op!r}, {', '.join(packed)})"
        self.add(f"{', '.join(out)} = {call}")

    def widen(self, out: Triple, node: GraphNode, pending: str, held: str) -> None:
        """More samples may come: opens the interval on the side that they can move."""
        if not pending:
            return
        self.add(f"if {pending}:")
        self.depth += 1
        if node.op == "always":
            self.add(f"{out[0]} = -INF")
        elif node.op == "eventually":
            self.add(f"{out[1]} = INF")
        elif node.window is None:
            self.add(f"{out[1]} = INF if {held} >= 0 else {out[1]} if {out[1]} > {held} else {held}")
        else:
            self.add(f"{out[1]} = {out[1]} if {out[1]} > {held} else {held}")
        self.add(f"{out[2]} = NAN")
        self.settle(out)
        self.depth -= 1

    def newest(self, root: int, done: set[int]) -> None:
        """The value at the newest sample: windows ahead hold that sample alone."""
        wanted: set[int] = set()
        stack = [root]
        while stack:
            index = stack.pop()
            node = self.graph.nodes[index]
            if index in wanted or index in done or not node.future:
                continue
            wanted.add(index)
            if node.op != "next":
                stack += node.args
        for index in sorted(wanted):
            done.add(index)
            node, out = self.graph.nodes[index], self.newest_names(index)
            args = [self.newest_names(a) for a in node.args]
            if node.op == "next":
                self.add(f"{', '.join(out)} = (INF, INF, INF) if closed else (-INF, INF, NAN)")
            elif node.op in ("always", "eventually", "until"):
                self.newest_ahead(out, node, args)
            else:
                self.judged_inner(out, node, args, index)

    def newest_ahead(self, out: Triple, node: GraphNode, args: list[Triple]) -> None:
        if node.window is not None and node.window[0] > 0:
            edge = "INF" if node.op == "always" else "-INF"
            self.add(f"{' = '.join(out)} = {edge}")
        else:
            self.copy(out, args[-1])
        if node.window is not None:
            pending = "True" if node.window[1] > 0 else ""
        else:
            pending = "not closed" if node.polarity != (1 if node.op == "always" else -1) else ""
        self.widen(out, node, pending, args[0][1])

    # --- the whole module ---

    def read_slots(self) -> list[str]:
        """State that an update carries away, so that it can be judged later."""
        return [n for n, s in self.slots.items() if n[0] in "ak" and s.kind != "window" and not n.endswith("f")]

    def data_names(self, point: bool) -> list[str]:
        names: list[str] = []
        for name in self.read_slots():
            names += [name] if point or self.slots[name].kind == "flag" else [f"{name}l", f"{name}u", f"{name}r"]
        for index in self.boundary:
            names += [f"v{index}"] if point else [f"l{index}", f"u{index}", f"r{index}"]
        return names

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
        self.add("def make(new, Update, program, slow, widen, streams):")
        self.depth = 1
        self.write_state()
        if self.point_allowed:
            self.write_point(bodies[True])
        self.write_interval(bodies[False])
        self.write_switch()
        self.write_access()
        names = ["interval", "switch", "get", "put", "age", "newest", "stop", "refuse", "refusals"] + (
            ["point"] if self.point_allowed else []
        )
        self.add(f"return {{{', '.join(f'{n!r}: {n}' for n in names)}}}")
        self.judge(True)
        self.judge(False)
        source = "\n".join(self.lines) + "\n"
        namespace: dict[str, Any] = {
            **{name: getattr(runtime, name) for name in (
                "INF", "NAN", "SlidingMinimum", "SlidingSince", "compare", "divide", "exponential", "greatest",
                "interval_arithmetic", "least", "power", "root",
            )},
            "ndarray": np.ndarray,
            "names": self.graph.signals,
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
            self.add(f"{slot.name} = {slot.initial}")
            if slot.kind == "track":
                self.add(f"{slot.name}l = {slot.name}u = {slot.initial}; {slot.name}r = {slot.initial_rho}")
            elif slot.kind == "window":
                self.add(f"{slot.name}l = {slot.initial}; {slot.name}u = {slot.initial}; {slot.name}r = {slot.initial}")
        for position in range(len(self.streamed)):
            self.add(f"push{position} = streams[{position}].push")
        # while the point dialect runs, ``last`` is the last stamp; else it bars the way
        self.add("last = -(2 ** 80)")
        self.add("samples = refused = 0")
        self.add("current = None")

    def inputs(self) -> str:
        return ", ".join(f"i{c}" for c in range(len(self.graph.signals)))

    def write_point(self, body: list[str]) -> None:
        columns = range(len(self.graph.signals))
        self.add("def point(stamp, values):")
        self.depth = 2
        self.add(f"nonlocal {', '.join(['last', 'samples', 'current', *self.cells(True)])}")
        self.add("if stamp.__class__ is not int or stamp <= last: return slow(stamp, values)")
        if self.graph.signals:
            self.add("try:")
            self.add("    if values.__class__ is dict:")
            self.add("        " + "; ".join(f"i{c} = values[n{c}]" for c in columns))
            self.add("    else:")
            self.add("        if values.__class__ is ndarray: values = values.tolist()")
            self.add(f"        {self.inputs()}, = values" if len(columns) == 1 else f"        {self.inputs()} = values")
            self.add(f"    check = {' + '.join(f'i{c}' for c in columns)}")
            self.add("except (KeyError, TypeError, ValueError): return slow(stamp, values)")
            self.add("if check.__class__ is not float or check - check != 0: return slow(stamp, values)")
        else:
            self.add("if len(values): return slow(stamp, values)")
        self.lines += body
        self.depth = 2
        self.finish(True)
        self.depth = 1

    def write_interval(self, body: list[str]) -> None:
        graph = self.graph
        missed = [f"missed{c}" for c in range(len(graph.roots))]
        known = [f"known{c}" for c in range(len(graph.signals))]
        self.add("def interval(stamp, row):")
        self.depth = 2
        self.add(f"nonlocal {', '.join(['samples', 'current', *missed, *known, *self.cells(False)])}")
        if graph.signals:
            self.add(f"{self.inputs()}{',' if len(graph.signals) == 1 else ''} = row")
        for column in range(len(graph.signals)):
            self.add(f"if i{column} == i{column}: known{column} = stamp")
        for clause, reads in enumerate(graph.reads):
            if reads:
                self.add(f"if {' or '.join(f'i{c} != i{c}' for c in reads)}: missed{clause} += 1")
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
        if point:
            self.add("last = stamp")
        names = self.data_names(point)
        flags = [f"g{p}" for p in range(len(self.flags))]
        missed = [] if point else [f"missed{c}" for c in range(len(self.graph.roots))]
        texts = [_tuple(part) for part in (names, flags, missed, results)]
        self.add("update = new(Update)")
        self.add(f"update._data = (program, {point}, stamp, samples, refused, True, False, {', '.join(texts)})")
        self.add("current = update")
        self.add("return update")

    def write_switch(self) -> None:
        self.add("def switch(stamp):")
        self.depth = 2
        known = [f"known{c}" for c in range(len(self.graph.signals))]
        self.add(f"nonlocal {', '.join(['last', *known, *self.cells(False)])}")
        self.add("last = 2 ** 80")
        self.add("if samples:")
        self.add("    " + ("; ".join(f"{k} = stamp" for k in known) or "pass"))
        for slot in self.slots.values():
            low, high, rho = (f"{slot.name}{part}" for part in "lur")
            if slot.kind == "track":
                self.add(f"{low} = {high} = {slot.name}")
                self.add(f"{rho} = {slot.name} if samples > {slot.after} else {slot.initial_rho}")
            elif slot.kind == "window":
                for part in (low, high, rho):
                    self.add(f"{part} = {slot.name}.clone()")
        self.depth = 1
        self.add("def stop():")
        self.add("    nonlocal last")
        self.add("    last = 2 ** 80")
        self.add("def refuse():")
        self.add("    nonlocal refused")
        self.add("    refused += 1")
        self.add("def refusals():")
        self.add("    return refused")

    def write_access(self) -> None:
        """State as plain data, and back."""
        shared = ["last", "samples", "refused", *(f"missed{c}" for c in range(len(self.graph.roots)))]
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
        self.add(f"    nonlocal current, {', '.join(plain)}")
        self.add("    current = update")
        self.add(f"    {', '.join(plain)} = state[0]")
        for position, name in enumerate(windows):
            self.add(f"    {name}.load(state[1][{position}])")
        self.add("def newest():")
        self.add("    return current")
        self.add("def age():")
        self.add(f"    return [{', '.join(f'known{c}' for c in range(len(self.graph.signals)))}]")


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
