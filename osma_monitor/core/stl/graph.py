"""Formulas to one graph: what every evaluator, online and offline, walks.

Equal subformulas of a library become one node, so each is computed once a sample. State belongs to nodes, never to
names. Here also falls the decision what is a gate, which polarity an unbounded operator stands in, and what can be
known without
looking ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from osma_monitor.core.stl.syntax import BINARY_TERMS, COMPARISONS, FUTURE, UNARY_TERMS, Formula, Node, is_term

_ARITHMETIC: Final = UNARY_TERMS | BINARY_TERMS
# a bare gate is true above one half, as the gates' quantitative texts write it
GATE_THRESHOLD: Final = 0.5


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of the graph.

    Attributes:
        op: the operator. Besides those of the syntax: ``'value'``, a number-valued node standing where a formula is
            expected (its robustness is the number), and ``'gate'``, a bare gate (``±inf``).
        args: ids of the arguments, all smaller than the node's own id.
        value: the number.
        signal: position of the signal in the graph's ``signals``, -1 for other nodes.
        window: bounds in nanoseconds.
        boolean: for comparisons, all signals are gates: ``±inf`` in place of a margin.
        polarity: for unbounded future operators: +1, -1, or 0 where both occur (below xor, iff, ==, abs…).
        scalar: a term without temporal operators: one number a sample, NaN where unknown. All other nodes are
        interval-valued.
        future: some operator at or below looks ahead.
    """

    op: str
    args: tuple[int, ...]
    value: float
    signal: int
    window: tuple[int, int] | None
    boolean: bool
    polarity: int
    scalar: bool
    future: bool


@dataclass(frozen=True)
class Graph:
    """Formulas compiled together.

    Attributes:
        formulas: as given.
        signals: every signal name, sorted; the column order of sample arrays.
        nodes: in an order in which arguments come first.
        roots: the node of each formula.
        antecedents: for each formula the left sides of its implications, with unbounded operators open both
        ways while the trace is.
        reads: for each formula the positions of its signals.
    """

    formulas: tuple[Formula, ...]
    signals: tuple[str, ...]
    gates: frozenset[str]
    nodes: tuple[GraphNode, ...]
    roots: tuple[int, ...]
    antecedents: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]


def build_graph(formulas: Sequence[Formula], gate_signals: Iterable[str] = ()) -> Graph:
    """Merges formulas into one graph; ``gate_signals`` are Boolean (names that no formula reads are allowed)."""
    if isinstance(gate_signals, str):
        raise TypeError(f"gate_signals is a collection of names, not the text {gate_signals!r}")
    gates = frozenset(gate_signals)
    names = tuple(sorted(frozenset().union(*(f.signals for f in formulas))))
    builder = _Builder({name: i for i, name in enumerate(names)}, gates)
    roots: list[int] = []
    antecedents: list[tuple[int, ...]] = []
    for formula in formulas:
        root, left_sides = builder.add(formula.nodes)
        roots.append(root)
        antecedents.append(left_sides)
    return Graph(
        tuple(formulas), names, gates, tuple(builder.nodes), tuple(roots), tuple(antecedents),
        tuple(tuple(sorted(builder.columns[name] for name in f.signals)) for f in formulas),
    )  # fmt: skip


def flow_down(nodes: Sequence[Node]) -> tuple[list[bool], list[int]]:
    """For every node, from the root down: does it stand where a formula is expected, and in which polarity."""
    formula_place, polarity = [False] * len(nodes), [0] * len(nodes)
    formula_place[-1], polarity[-1] = True, 1
    for index in range(len(nodes) - 1, -1, -1):
        node, sign = nodes[index], polarity[index]
        below = formula_place[index] and node.op not in COMPARISONS and node.op not in _ARITHMETIC
        # an operator over true and false always has formulas below; always(x) passes its own place on
        below = below or node.op in ("not", "and", "or", "implies", "iff", "xor", "until", "since", "rise", "fall")
        for position, argument in enumerate(node.args):
            formula_place[argument] = below
            polarity[argument] = sign * _direction(nodes, node, position)
    return formula_place, polarity


def _direction(nodes: Sequence[Node], node: Node, position: int) -> int:
    """How a node moves when one argument grows: +1 with it, -1 against it, 0 either way."""
    op = node.op
    if op in ("not", "neg"):
        return -1
    if op == "implies":
        return -1 if position == 0 else 1
    if op in ("<", "<="):
        return -1 if position == 0 else 1
    if op in (">", ">=", "-"):
        return 1 if position == 0 else -1
    if op in ("==", "!=", "iff", "xor", "rise", "fall", "abs", "pow"):
        return 0
    if op in ("*", "/"):
        other = nodes[node.args[1 - position]]
        if other.op != "number" or (op == "/" and position == 1):
            return 0
        return (other.value > 0) - (other.value < 0)
    return 1


class _Builder:
    def __init__(self, columns: dict[str, int], gates: frozenset[str]) -> None:
        self.columns = columns
        self.gates = gates
        self.nodes: list[GraphNode] = []
        self._ids: dict[GraphNode, int] = {}
        self._opened: dict[int, int] = {}

    def add(self, nodes: tuple[Node, ...]) -> tuple[int, tuple[int, ...]]:
        formula_place, polarity = flow_down(nodes)
        terms = is_term(nodes)
        only_gates = self._only_gates(nodes)
        ids: list[int] = []
        left_sides: list[int] = []
        for index, node in enumerate(nodes):
            arguments = [ids[a] for a in node.args]
            scalar = node.op in ("number", "signal") or (
                node.op in _ARITHMETIC and all(self.nodes[a].scalar for a in arguments)
            )
            if not scalar and not (node.op in COMPARISONS and all(self.nodes[a].scalar for a in arguments)):
                arguments = [self._interval(a, formula_place[i]) for a, i in zip(arguments, node.args, strict=True)]
            unbounded = node.op in ("always", "eventually", "until") and node.window is None
            made = self._node(
                node.op, tuple(arguments), value=node.value, signal=self.columns.get(node.name, -1), window=node.window,
                boolean=node.op in COMPARISONS and only_gates[index], polarity=polarity[index] if unbounded else 0,
                scalar=scalar,
            )  # fmt: skip
            if node.op == "implies":
                left_sides.append(self._open(self.nodes[made].args[0]))
            ids.append(made)
        root = self._interval(ids[-1], formula_place[-1]) if terms[-1] else ids[-1]
        return root, tuple(dict.fromkeys(left_sides))

    def _only_gates(self, nodes: tuple[Node, ...]) -> list[bool]:
        """For every node: it reads at least one signal, and only gates."""
        reads_gate, reads_other = [False] * len(nodes), [False] * len(nodes)
        for index, node in enumerate(nodes):
            reads_gate[index] = node.name in self.gates or any(reads_gate[a] for a in node.args)
            reads_other[index] = (node.op == "signal" and node.name not in self.gates) or any(
                reads_other[a] for a in node.args
            )
        return [g and not o for g, o in zip(reads_gate, reads_other, strict=True)]

    def _open(self, root: int) -> int:
        """The node with its unbounded operators open both ways: true is only what no later sample can change."""
        stack = [root]
        while stack:
            index = stack[-1]
            node = self.nodes[index]
            waiting = [a for a in node.args if node.future and a not in self._opened]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if node.future and index not in self._opened:
                args = tuple(self._opened[a] for a in node.args)
                changed = replace(node, args=args, polarity=0)
                self._opened[index] = index if changed == node else self._known(changed)
            else:
                self._opened.setdefault(index, index)
        return self._opened[root]

    def _interval(self, node: int, formula_place: bool) -> int:
        """The node itself, or the interval-valued form of a scalar term."""
        made = self.nodes[node]
        if not made.scalar:
            return node
        is_gate = formula_place and made.op == "signal" and made.signal in {self.columns.get(g) for g in self.gates}
        return self._node("gate" if is_gate else "value", (node,))

    def _node(
        self,
        op: str,
        args: tuple[int, ...],
        value: float = 0.0,
        signal: int = -1,
        window: tuple[int, int] | None = None,
        boolean: bool = False,
        polarity: int = 0,
        scalar: bool = False,
    ) -> int:
        future = op in FUTURE or any(self.nodes[a].future for a in args)
        return self._known(GraphNode(op, args, value, signal, window, boolean, polarity, scalar, future))

    def _known(self, node: GraphNode) -> int:
        known = self._ids.get(node)
        if known is None:
            known = len(self.nodes)
            self.nodes.append(node)
            self._ids[node] = known
        return known


@dataclass(frozen=True)
class Reduction:
    """``always([gate ->] signal < limit)`` or ``> limit``: one signal's extreme decides, perhaps where a gate is on.

    Rounding is monotone: the limit minus the greatest value is the least margin, to the last bit.
    """

    signal: int
    limit: float
    upper: bool  # the signal must stay below
    gate: int | None = None


def reduction_of(graph: Graph, index: int) -> Reduction | None:
    """An ``always`` node as a reduction of one signal, when it has that shape."""
    nodes = graph.nodes
    root = nodes[index]
    if root.op != "always" or root.window is not None:
        return None
    body, gate = nodes[root.args[0]], None
    if body.op == "implies":
        left = nodes[body.args[0]]
        if left.op == "gate":
            gate = nodes[left.args[0]].signal
        elif left.boolean and left.op == ">" and nodes[left.args[1]].value == GATE_THRESHOLD:
            operands = [nodes[a].op for a in left.args]
            gate = nodes[left.args[0]].signal if operands == ["signal", "number"] else None
        if gate is None:
            return None
        body = nodes[body.args[1]]
    if body.op not in ("<", "<=", ">", ">=") or body.boolean:
        return None
    small, large = (nodes[a] for a in (body.args if body.op in ("<", "<=") else reversed(body.args)))
    if (small.op, large.op) == ("signal", "number"):
        return Reduction(small.signal, large.value, True, gate)
    if (small.op, large.op) == ("number", "signal"):
        return Reduction(large.signal, small.value, False, gate)
    return None
