"""Text to formula: an operator-precedence parser with an explicit stack, linear in the length of the text.

The language is rtamt's discrete STL. Prefix operators bind more loosely than comparisons (``always x < 3`` is
``always(x < 3)``), binary operators of equal strength associate to the left. What rtamt reads silently in a way that
few mean is refused with a hint: chained ``->``, chained comparisons, ``prev(x) < y``.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from osma_monitor.core.stl.errors import FormulaError
from osma_monitor.core.stl.syntax import COMPARISONS, PRECEDENCE, SHORT_PREFIX, TEMPORAL, WINDOWED, Formula, Node

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|\#[^\n]*)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r"|(?P<symbol><->|->|=>|<=|>=|===|!==|==|!=|&&|\|\||[-+*/<>()\[\],:=!&|^])"
)
_MAX_TEXT: Final = 1_000_000
_MAX_NUMBER: Final = 400
_MAX_NS: Final = 2**62
_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_PREFIX: Final = {
    "!": "not",
    **{op: op for op in ("not", "always", "eventually", "historically", "once", "next", "prev", "rise", "fall")},
}
# rtamt's one-letter spellings (SHORT_PREFIX) are operators only where a signal name cannot stand: before operands
_INFIX: Final = {
    **{op: op for op in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=")},
    **{op: op for op in ("and", "or", "xor", "iff", "until", "since")},
    "->": "implies", "implies": "implies", "<->": "iff", "&": "and", "&&": "and", "|": "or", "||": "or",
    "U": "until", "S": "since",
}  # fmt: skip
_FUNCTION_ARITY: Final = {"abs": 1, "sqrt": 1, "exp": 1, "pow": 2, "min": 2, "max": 2}
_INFIX_HINTS: Final = {
    "=": 'write "==" to compare',
    "===": 'write "=="',
    "!==": 'write "!="',
    "=>": 'write "->"',
    "^": "write pow(x, y)",
    "]": 'remove it or add "["',
    ":": '":" stands in time windows only, as in [0:2]',
    "unless": 'write "(a until b) or always(a)"',
    "weak_until": 'write "(a until b) or always(a)"',
    "W": 'write "(a until b) or always(a)"',
}
_SIGNAL_UNITS: Final = frozenset({"m", "cm", "mm", "s", "ms", "N", "Nm", "rad", "deg", "kg", "Hz"})
_RESERVED: Final = frozenset({*_PREFIX, *_FUNCTION_ARITY, "and", "or", "xor", "iff", "implies", "until", "since"})
_WINDOW_HINT: Final = "a window stands directly after always, eventually, until, historically, once or since"
# rtamt reads these as names of signals, which nobody means
_INFINITE_HINT: Final = "every known value lies below infinity: leave the comparison away, or write a finite bound"
_NO_NUMBERS: Final = {
    "inf": _INFINITE_HINT,
    "infinity": _INFINITE_HINT,
    "nan": "what is NaN is unknown by itself, and no comparison with it is ever true: leave it away",
}
_TRAPS: Final = frozenset({"always", "eventually", "historically", "once", "next", "prev"})
_EDGES: Final = frozenset({"rise", "fall"})
_LOGIC: Final = frozenset({"not", "and", "or", "implies", "iff", "xor", "until", "since", "rise", "fall"})


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    start: int
    stop: int


@dataclass(slots=True)
class _Pending:
    """An operator or parenthesis that waits on the stack. ``kind``: 'prefix', 'infix', 'neg', 'group' or 'call'."""

    kind: str
    op: str
    token: _Token
    window: tuple[int, int] | None = None
    operands: int = 0  # 'call': arguments read so far


@dataclass(slots=True)
class _Operand:
    index: int
    start: int
    stop: int
    term: bool


def parse(text: str) -> Formula:
    """Reads one formula.

    Args:
        text: rtamt's discrete STL syntax; windows in seconds or with units ns, us, ms, s; ``#`` starts a comment.

    Returns:
        The formula, a hashable value.

    Raises:
        FormulaError: with line, column, the offending text and a hint.
    """
    if not isinstance(text, str):
        raise FormulaError(f"a formula is a text, not {type(text).__name__}", "", 0, 0)
    if len(text) > _MAX_TEXT:
        raise FormulaError(f"the text has {len(text)} characters, more than {_MAX_TEXT}", text, _MAX_TEXT, _MAX_TEXT)
    return _Parser(text).formula()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokenize()
        self.at = 0
        self.nodes: list[Node] = []
        self.operands: list[_Operand] = []
        self.stack: list[_Pending] = []

    # --- tokens ---

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        position, text = 0, self.text
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise FormulaError(
                    f"unexpected character {text[position]!r}", text, position, position + 1,
                    "names are letters, digits, underscores and dots",
                )  # fmt: skip
            kind = match.lastgroup or ""
            if kind != "space":
                tokens.append(_Token(kind, match.group(), position, match.end()))
            position = match.end()
        tokens.append(_Token("end", "", len(text), len(text)))
        return tokens

    def _fail(self, reason: str, token: _Token, hint: str = "") -> FormulaError:
        return FormulaError(reason, self.text, token.start, token.stop, hint)

    def _peek(self) -> _Token:
        return self.tokens[self.at]

    def _take(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)  # the end token stays
        return token

    # --- the two states of an operator-precedence parser ---

    def formula(self) -> Formula:
        while True:
            while not self._read_operand():
                pass
            if not self._read_operator():
                break
        return Formula(tuple(self.nodes))

    def _read_operand(self) -> bool:
        """Reads one token where an operand must begin; True when the operand is complete."""
        token = self._take()
        following = self._peek().text
        if token.kind == "number":
            self._push(Node("number", value=self._number(token)), token.start, token.stop)
            if self._peek().kind == "name" and self._peek().start == token.stop:
                reason = f"{token.text + self._peek().text!r} is neither a number nor a name"
                hint = "units are allowed in time windows only"
                raise FormulaError(reason, self.text, token.start, self._peek().stop, hint)
            return True
        if token.text == "-":
            self.stack.append(_Pending("neg", "neg", token))
            return False
        if token.text == "(":
            self.stack.append(_Pending("group", "(", token))
            return False
        if token.text in _FUNCTION_ARITY:
            if following != "(":
                raise self._fail(f"{token.text} is a function", token, f"write {token.text}(…)")
            self._take()
            self.stack.append(_Pending("call", token.text, token))
            return False
        if token.text in SHORT_PREFIX and following == "-" and self._formula_may_begin():
            meant = f"{token.text}(-…) for {SHORT_PREFIX[token.text]}, ({token.text}) - … for a signal of that name"
            raise self._fail(f'"{token.text} -" can be read in two ways', token, f"write {meant}")
        prefix = _PREFIX.get(token.text) or (SHORT_PREFIX.get(token.text) if self._operand_follows() else None)
        if prefix is not None:
            self.stack.append(_Pending("prefix", prefix, token, self._window(prefix)))
            return False
        if token.kind == "name" and token.text not in _RESERVED:
            if following == "(":
                raise self._unknown_function(token)
            if token.text.lower() in _NO_NUMBERS:
                raise self._fail(
                    f"{token.text!r} is no number of this language", token, _NO_NUMBERS[token.text.lower()]
                )
            if token.text.lower() in ("true", "false"):
                raise self._fail(f"{token.text!r} is no formula here", token, 'write "1 > 0" or "1 < 0"')
            self._push(Node("signal", name=token.text), token.start, token.stop)
            return True
        raise self._missing_operand(token)

    def _formula_may_begin(self) -> bool:
        """Not in arithmetic, a comparison or a function's arguments."""
        top = self.stack[-1] if self.stack else None
        return top is None or top.kind in ("group", "prefix") or (top.kind == "infix" and top.op in _LOGIC)

    def _operand_follows(self) -> bool:
        token = self._peek()
        return (
            token.text in ("(", "[", "!")
            or token.kind == "number"
            or (token.kind == "name" and token.text not in _INFIX)
        )

    def _read_operator(self) -> bool:
        """Reads what may follow an operand; False at the end of the formula."""
        while True:
            token = self._take()
            if token.kind == "end":
                self._reduce(0)
                if self.stack:
                    raise self._fail('"(" is never closed', self.stack[-1].token, 'add ")"')
                return False
            if token.text == ")":
                self._close(token)
                continue
            if token.text == ",":
                self._next_argument(token)
                return True
            op = _INFIX.get(token.text)
            if op is None:
                raise self._not_an_operator(token)
            self._check_trap(op, token)
            self._reduce(PRECEDENCE[op])
            self._check_chain(op, token)
            self.stack.append(_Pending("infix", op, token, self._window(op)))
            return True

    # --- reductions ---

    def _push(self, node: Node, start: int, stop: int, term: bool = True) -> None:
        self.nodes.append(node)
        self.operands.append(_Operand(len(self.nodes) - 1, start, stop, term))

    def _reduce(self, strength: int) -> None:
        """Applies the waiting operators that bind at least as strongly as ``strength``."""
        while self.stack and self.stack[-1].kind in ("prefix", "infix", "neg"):
            top = self.stack[-1]
            if PRECEDENCE[top.op] < strength:
                return
            if top.op in COMPARISONS and strength == PRECEDENCE["<"]:
                return  # a chained comparison: _check_chain refuses it
            if top.op == "implies" and strength == PRECEDENCE["implies"]:
                return
            self.stack.pop()
            self._apply(top, 2 if top.kind == "infix" else 1)

    def _apply(self, pending: _Pending, count: int) -> None:
        arguments = self.operands[-count:]
        del self.operands[-count:]
        op = pending.op
        start, stop = min(pending.token.start, arguments[0].start), max(pending.token.stop, arguments[-1].stop)
        if op == "neg" and self.nodes[arguments[0].index].op == "number":
            number = self.nodes.pop()  # the argument is the last node: fold the sign into it
            self._push(Node("number", value=0.0 - number.value), start, stop)
            return
        logic = op in TEMPORAL or op in _LOGIC
        if not logic:
            for argument in arguments:
                if not argument.term:
                    reason = f"{pending.token.text!r} needs numbers, but this is true or false"
                    hint = "join comparisons with and, or, xor, iff, ->"
                    raise FormulaError(reason, self.text, argument.start, argument.stop, hint)
        term = arguments[0].term if op in _TRAPS else not logic and op not in COMPARISONS
        self._push(Node(op, tuple(a.index for a in arguments), window=pending.window), start, stop, term)

    def _close(self, token: _Token) -> None:
        self._reduce(0)
        if not self.stack:
            raise self._fail('")" closes nothing', token, 'remove it or add "("')
        opener = self.stack.pop()
        if opener.kind == "call":
            count, arity = opener.operands + 1, _FUNCTION_ARITY[opener.op]
            fits = count == arity or (opener.op in ("min", "max") and count > arity)
            if not fits:
                raise self._fail(
                    f"{opener.op} takes {arity} argument{'s' * (arity > 1)}, not {count}", opener.token,
                    f"write {opener.op}({', '.join('xyz'[:arity])})",
                )  # fmt: skip
            self._apply(opener, count)  # min and max of more than two arguments are one node
        self.operands[-1].start = opener.token.start
        self.operands[-1].stop = token.stop

    def _next_argument(self, token: _Token) -> None:
        self._reduce(0)
        if not self.stack or self.stack[-1].kind != "call":
            raise self._fail('"," stands outside a function\'s arguments', token, "join formulas with and")
        self.stack[-1].operands += 1

    # --- refusals ---

    def _check_chain(self, op: str, token: _Token) -> None:
        top = self.stack[-1] if self.stack else None
        if top is None or top.kind != "infix":
            return
        if op == "implies" and top.op == "implies":
            raise self._fail('chained "->" is ambiguous', token, "write (a -> b) -> c or a -> (b -> c)")
        if op in COMPARISONS and top.op in COMPARISONS:
            raise self._fail("comparisons cannot be chained", token, "write a < b and b < c")

    def _check_trap(self, op: str, token: _Token) -> None:
        """``prev(x) < y`` would read as ``prev((x) < y)``, which few mean."""
        previous = self.tokens[self.at - 2]
        if previous.text != ")" or PRECEDENCE[op] < PRECEDENCE["<"] or not self.stack:
            return
        top, operand = self.stack[-1], self.operands[-1]
        if top.kind == "prefix" and top.op in _TRAPS and operand.term and self.text[operand.start] == "(":
            inner, name = self._excerpt(operand), top.token.text
            raise self._fail(
                f'"{name}{inner} {token.text}" can be read in two ways', token,
                f"write ({name}{inner}) {token.text} … or {name}({inner} {token.text} …)",
            )  # fmt: skip
        if top.kind == "prefix" and top.op in _EDGES and operand.term and self.text[operand.start] == "(":
            inner, name = self._excerpt(operand), top.token.text
            raise self._fail(
                f'"{name}{inner} {token.text}" can be read in two ways', token,
                f"write {name}({inner} {token.text} …): {name}{inner} by itself is true or false, no number",
            )  # fmt: skip

    def _excerpt(self, operand: _Operand) -> str:
        """The operand's text on one line, shortened."""
        text = " ".join(self.text[operand.start : operand.stop].split())
        return text if len(text) <= 40 else text[:36] + " …)"

    def _missing_operand(self, token: _Token) -> FormulaError:
        if token.kind == "end":
            return self._fail(
                "the formula ends where a signal, number or formula is expected", token, self._operand_hint(token)
            )
        reason = f"{token.text!r} stands where a signal, number or formula is expected"
        if token.text == ")" and self.stack and self.stack[-1].kind == "call":
            return self._fail(reason, token, "an argument is missing before it")
        if token.text == "*" and self.text[token.start - 1 : token.start] == "*":
            return self._fail(reason, token, "write pow(x, y)")
        if token.text == "[" and not (self.stack and self.stack[-1].window):
            return self._fail(reason, token, _WINDOW_HINT)
        return self._fail(reason, token, self._operand_hint(token))

    def _operand_hint(self, token: _Token) -> str:
        before = [t for t in self.tokens[max(0, self.at - 2) : self.at] if t.start < token.start]
        return f"something is missing after {before[-1].text!r}" if before else "begin with a comparison, as in x < 3"

    def _not_an_operator(self, token: _Token) -> FormulaError:
        hint = _INFIX_HINTS.get(token.text, "")
        before = self.tokens[self.at - 2] if self.at > 1 else token
        if token.text == "=" and self.text[token.stop : token.stop + 1] == "<":
            hint = 'write "<="'
        elif not hint and token.text in _SIGNAL_UNITS and before.kind == "number":
            hint = "numbers carry no unit but in windows: leave it away, and write the threshold in the signal's unit"
        elif not hint and token.kind == "name":
            near = difflib.get_close_matches(token.text.lower()[:40], [name for name in _INFIX if name.isalpha()], 1)
            hint = f"did you mean {near[0]!r}?" if near else "an operator is missing before it"
        elif not hint and token.text == "[":
            windowed = [name for name in _PREFIX if name in WINDOWED]
            near = difflib.get_close_matches(before.text.lower()[:40], windowed, 1) if before.kind == "name" else []
            hint = f"did you mean {near[0]!r} before it?" if near else _WINDOW_HINT
        return self._fail(
            f"{token.text!r} stands where an operator is expected", token, hint or "an operator is missing before it"
        )

    def _unknown_function(self, token: _Token) -> FormulaError:
        known = [*_FUNCTION_ARITY, *_PREFIX]
        near = difflib.get_close_matches(token.text.lower()[:40], [k for k in known if k.isalpha()], 1)
        hint = f"did you mean {near[0]}?" if near else f"known functions: {', '.join(_FUNCTION_ARITY)}"
        return self._fail(f"unknown function {token.text!r}", token, hint)

    # --- numbers and windows ---

    def _number(self, token: _Token) -> float:
        if len(token.text) > _MAX_NUMBER:
            raise self._fail(
                f"a number of {len(token.text)} characters", token, "17 digits say all that a float64 holds"
            )
        value = float(token.text)
        if value == float("inf"):
            raise self._fail("the number is too large for a float64", token, "the largest is about 1.8e308")
        return value

    def _window(self, op: str) -> tuple[int, int] | None:
        if self._peek().text != "[":
            return None
        opener = self._take()
        if op not in WINDOWED:
            raise self._fail(f"{op} takes no time window", opener, f"windows belong to {', '.join(sorted(WINDOWED))}")
        first, first_unit, first_token = self._bound()
        separator = self._take()
        if separator.text not in (",", ":"):
            raise self._fail("a window is [first,last] or [first:last]", separator, 'put "," between the two bounds')
        last, last_unit, _ = self._bound()
        closer = self._take()
        if closer.text != "]":
            raise self._fail("the window is not closed", closer, 'put "]" after the second bound')
        if not first_unit and last_unit and first != 0:
            meant = " or ".join(f"[{first_token.text}{unit},…]" for unit in dict.fromkeys(("s", last_unit)))
            raise self._fail("only the second bound has a unit", first_token, f"write {meant}: bare bounds are seconds")
        low, high = (
            self._nanoseconds(first, first_unit, opener, closer),
            self._nanoseconds(last, last_unit, opener, closer),
        )
        if high < low:
            raise FormulaError(
                "the window ends before it begins",
                self.text,
                opener.start,
                closer.stop,
                "write the smaller bound first",
            )
        return (low, high)

    def _bound(self) -> tuple[Decimal, str, _Token]:
        token = self._take()
        if token.text == "-":
            raise FormulaError(
                "a window bound is negative", self.text, token.start, self._peek().stop,
                "bounds are distances from now: use a past operator (once, historically, since) to look back",
            )  # fmt: skip
        if token.kind != "number":
            near = "leave the window away for an unbounded operator" if token.text in ("inf", "infinity", "oo") else ""
            raise self._fail("a window bound is a number", token, near or "write [first,last], as in [0,2.5]")
        if len(token.text) > _MAX_NUMBER:
            raise self._fail(
                f"a number of {len(token.text)} characters", token, "17 digits say all that a float64 holds"
            )
        unit = ""
        if self._peek().kind == "name":
            unit_token = self._take()
            unit = unit_token.text
            if unit not in _UNITS:
                raise self._fail(f"unknown unit of time {unit!r}", unit_token, "units are ns, us, ms and s")
        return Decimal(token.text), unit, token

    def _nanoseconds(self, value: Decimal, unit: str, opener: _Token, closer: _Token) -> int:
        if value.adjusted() > 40 or (value.adjusted() < -40 and value != 0):
            raise FormulaError(
                "a window bound is out of range", self.text, opener.start, closer.stop, "from 1 ns to 146 years"
            )
        scaled = value * _UNITS[unit or "s"]
        if scaled >= _MAX_NS:
            raise FormulaError(
                "a window bound is out of range", self.text, opener.start, closer.stop, "at most 146 years"
            )
        whole = int(scaled)
        if whole != scaled:
            raise FormulaError("a window bound is finer than 1 ns", self.text, opener.start, closer.stop, "round it")
        return whole
