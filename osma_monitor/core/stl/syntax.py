"""Formulas as values.

A formula is a flat tuple of nodes in postorder: the arguments of a node stand before it, the root is last. Flat,
because hashing, comparing, printing and evaluating are then loops, and no depth of nesting meets Python's recursion
limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

UNARY_TERMS: Final = frozenset({"neg", "abs", "sqrt", "exp"})
BINARY_TERMS: Final = frozenset({"+", "-", "*", "/", "pow", "min", "max"})
COMPARISONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
FUTURE: Final = frozenset({"always", "eventually", "until", "next"})
PAST: Final = frozenset({"historically", "once", "since", "prev", "rise", "fall"})
TEMPORAL: Final = FUTURE | PAST
WINDOWED: Final = frozenset({"always", "eventually", "until", "historically", "once", "since"})
# rtamt's one-letter spellings
SHORT_PREFIX: Final = {"G": "always", "F": "eventually", "H": "historically", "O": "once", "X": "next", "Y": "prev"}

# Binding strength, rtamt's order: a prefix operator takes a comparison whole, and stops before the connectives.
PRECEDENCE: Final = {
    "xor": 5,
    "iff": 6,
    "implies": 7,
    "or": 8,
    "and": 9,
    "since": 10,
    "until": 12,
    "not": 20,
    "always": 20,
    "eventually": 20,
    "historically": 20,
    "once": 20,
    "next": 20,
    "prev": 20,
    "rise": 20,
    "fall": 20,
    **dict.fromkeys(COMPARISONS, 22),
    "+": 24,
    "-": 24,
    "*": 26,
    "/": 26,
    "neg": 28,
}
_ATOM = 100
_INFIX_TEXT = {"implies": "->"}
_FUNCTIONS = frozenset({"abs", "sqrt", "exp", "pow", "min", "max"})


@dataclass(frozen=True, slots=True)
class Node:
    """One operator, number or signal.

    Attributes:
        op: ``'number'``, ``'signal'`` or an operator's name as written (``'implies'`` for ``->``, ``'neg'`` for unary
        minus).
        args: positions of the arguments in the formula's tuple of nodes.
        value: the number, for ``'number'``.
        name: the signal's name, for ``'signal'``.
        window: ``(first, last)`` in nanoseconds for a bounded temporal operator.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float = 0.0
    name: str = ""
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class Formula:
    """An immutable, hashable STL formula; make one with :func:`osma_monitor.core.stl.parse`.

    ``str(formula)`` is its canonical text and parses back to an equal formula.
    """

    nodes: tuple[Node, ...]

    @cached_property
    def signals(self) -> frozenset[str]:
        """Names of the signals that the formula reads."""
        return frozenset(node.name for node in self.nodes if node.op == "signal")

    @cached_property
    def is_past(self) -> bool:
        """True when no operator looks ahead: the formula is judged at the current stamp, else at the first."""
        return not any(node.op in FUTURE for node in self.nodes)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"stl.parse({self._text!r})"

    @cached_property
    def _text(self) -> str:
        return _write(self.nodes)

    def subformula(self, index: int) -> Formula:
        """The formula whose root is node ``index``."""
        return Formula(_copy_tree(self.nodes, index))

    def __reduce__(self) -> tuple[object, ...]:
        return (Formula, (self.nodes,))


def is_term(nodes: tuple[Node, ...]) -> list[bool]:
    """For every node: is it a number-valued term (a signal, arithmetic, or a temporal operator over a term)?"""
    terms: list[bool] = []
    for node in nodes:
        if node.op in ("always", "eventually", "historically", "once", "next", "prev"):
            terms.append(terms[node.args[0]])
        else:
            terms.append(node.op in ("number", "signal") or node.op in UNARY_TERMS or node.op in BINARY_TERMS)
    return terms


def format_number(value: float) -> str:
    """Shortest text that reads back as ``value``; whole numbers without a decimal point."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def format_seconds(nanoseconds: int) -> str:
    """Nanoseconds as exact decimal seconds."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)


def _copy_tree(nodes: tuple[Node, ...], root: int) -> tuple[Node, ...]:
    keep: set[int] = set()
    stack = [root]
    while stack:
        index = stack.pop()
        keep.add(index)
        stack += nodes[index].args
    place: dict[int, int] = {}
    copied: list[Node] = []
    for index in sorted(keep):
        node = nodes[index]
        place[index] = len(copied)
        copied.append(Node(node.op, tuple(place[a] for a in node.args), node.value, node.name, node.window))
    return tuple(copied)


def _write(nodes: tuple[Node, ...]) -> str:
    """Canonical text, written by a loop over (node | finished piece of text)."""
    pieces: list[str] = []
    work: list[int | str] = [len(nodes) - 1]
    while work:
        item = work.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        node = nodes[item]
        if node.op == "number":
            pieces.append(format_number(node.value))
        elif node.op == "signal":
            pieces.append(node.name)
        elif node.op in _FUNCTIONS:
            arguments: list[int | str] = [node.args[0]]
            for other in node.args[1:]:
                arguments += [", ", other]
            work += reversed([f"{node.op}(", *arguments, ")"])
        elif node.op == "neg":
            work += reversed(["-", *_operand(nodes, node.args[0], 29)])
        elif len(node.args) == 1:
            pieces.append(node.op + _window_text(node))
            work += [")", node.args[0], "("]
        else:
            strength = PRECEDENCE[node.op]
            # the left side may be as strong as the operator (left association), the right side must be stronger
            left = strength + 1 if node.op in COMPARISONS or node.op == "implies" else strength
            operator = f" {_INFIX_TEXT.get(node.op, node.op)}{_window_text(node)} "
            first = nodes[node.args[0]]
            if node.op == "-" and first.op == "signal" and first.name in SHORT_PREFIX:
                left = _ATOM + 1  # "G - x" can be read in two ways
            sides = [*_operand(nodes, node.args[0], left), operator, *_operand(nodes, node.args[1], strength + 1)]
            work += reversed(sides)
    return "".join(pieces)


def _operand(nodes: tuple[Node, ...], index: int, least: int) -> list[int | str]:
    node = nodes[index]
    strength = _ATOM if node.op in _FUNCTIONS else PRECEDENCE.get(node.op, _ATOM)
    if node.op == "number" and node.value < 0:
        strength = PRECEDENCE["neg"]
    return [index] if strength >= least else ["(", index, ")"]


def _window_text(node: Node) -> str:
    if node.window is None:
        return ""
    return f"[{format_seconds(node.window[0])},{format_seconds(node.window[1])}]"
