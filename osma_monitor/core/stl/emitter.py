"""What all parts of the source generator share: names, state, and the lines of the connectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from osma_monitor.core.stl.graph import Graph, Reduction, reduction_of
from osma_monitor.core.stl.syntax import BINARY_TERMS, COMPARISONS, TEMPORAL, UNARY_TERMS

ARITHMETIC: Final = UNARY_TERMS | BINARY_TERMS
Triple = tuple[str, str, str]


@dataclass(slots=True)
class Slot:
    """One piece of state.

    ``kind`` 'track': three floats (one in the point dialect); 'window': one object a track; 'flag': one plain value.
    ``after``: the point value means something once that many samples were seen. ``raw``: in the point dialect the
    state is a signal's extreme, starting at ``initial_raw``, and this expression of it is the value.
    """

    name: str
    kind: str
    initial: str
    initial_rho: str = "NAN"
    after: int = 0
    raw: str = ""
    initial_raw: str = ""

    def value(self) -> str:
        """The point dialect's value."""
        return self.raw.format(self.name) if self.raw else self.name


def is_simple(graph: Graph, clause: int) -> bool:
    """Can accumulators judge the clause? Only next, at the top, may stand over an operator that looks ahead."""
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
class Emitter:
    """Writes lines of source; knows the graph, the dialect, and which nodes the program must compute."""

    graph: Graph
    slots: dict[str, Slot] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    point: bool = True
    flat: bool = False  # while reading the point dialect's values: a node's bounds are one name
    lazy: bool = False  # while working out an old sample's values again: nothing can be handed over
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
        self.needed = self._below(sorted(needed))
        self.point_allowed = not any(
            (graph.nodes[i].op in ARITHMETIC or graph.nodes[i].op in COMPARISONS)
            and not all(graph.nodes[a].scalar for a in graph.nodes[i].args)
            for i in self.needed
        )

        # judged values change only when an accumulator does: then updates share what was worked out for the last change
        self.stable = (
            not self.streamed
            and all(graph.nodes[root].future for root in graph.roots)
            and not any(graph.nodes[i].window is not None or graph.nodes[i].op == "next" for i, _ in self.judged)
        )

        # in the point dialect these keep the signal's extreme in place of the margin's
        self.reductions: dict[tuple[int, int], Reduction] = {}
        for index, k in self.judged:
            reduction = reduction_of(graph, index)
            if reduction is not None and k == 0 and graph.nodes[index].polarity == 1:
                self.reductions[index, k] = reduction
        # nothing below the boundary has state: a sample's values can be worked out from its inputs when asked for
        self.stateless = not any(graph.nodes[i].op in TEMPORAL for i in self._below(self.boundary))

    def _below(self, roots: list[int]) -> list[int]:
        """The roots and everything under them, in order."""
        found = set(roots)
        for index in range(len(self.graph.nodes) - 1, -1, -1):
            if index in found:
                found.update(self.graph.nodes[index].args)
        return sorted(found)

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
        self.slots.setdefault(name, Slot(name, kind, initial, initial_rho, after))
        return name

    def triple(self, index: int) -> Triple:
        """Names of a node's lower, upper and rho in this frame."""
        if self.point or self.flat:
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

    def running(self, state: Triple, value: Triple, sign: str, judged: bool = False) -> None:
        """state = min(state, value) (or max); rho skips the unknown. ``judged``: a change makes the judgement stale."""
        also = "; fresh = True" if judged and self.stable else ""
        for part in range(1 if self.point else 2):
            self.add(f"if {value[part]} {sign} {state[part]}: {state[part]} = {value[part]}{also}")
        if not self.point:
            other = ">=" if sign == "<" else "<="
            known = f"{value[2]} == {value[2]} and not {value[2]} {other} {state[2]}"
            self.add(f"if {known}: {state[2]} = {value[2]}{also}")

    def packed(self, index: int) -> str:
        node = self.graph.nodes[index]
        return f"({self.scalar(index)},) * 3" if node.scalar else f"({', '.join(self.triple(index))})"

    def inputs(self) -> str:
        return ", ".join(f"i{c}" for c in range(len(self.graph.signals)))

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
