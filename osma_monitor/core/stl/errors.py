"""What goes wrong in a formula, and where."""

from __future__ import annotations

from osma_monitor.core.errors import UserError


class FormulaError(UserError, ValueError):
    """A text that is no formula.

    Attributes:
        reason: what is wrong, one sentence.
        line: line of the offending text, from 1.
        column: column of its first character, from 1.
        offending: the text that is wrong (may be empty at the end of the formula).
        hint: how to put it right.

    ``str(error)`` is several lines: the reason with its place, the line, a mark under the offending text, the hint.
    """

    def __init__(self, reason: str, text: str, start: int, stop: int, hint: str = "") -> None:
        start = min(max(start, 0), len(text))
        stop = min(max(stop, start), len(text))
        self.reason = reason
        self.hint = hint
        self.text = text
        self.line = text.count("\n", 0, start) + 1
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        self.column = start - line_start + 1
        self.offending = text[start : min(stop, line_end)]
        self._arguments = (reason, text, start, stop, hint)
        super().__init__(self._render(text[line_start:line_end]))

    def __reduce__(self) -> tuple[object, ...]:
        return (FormulaError, self._arguments)

    def _render(self, line: str) -> str:
        # a long formula is cut to a window around the mark, so that the message stays readable
        first = max(0, self.column - 1 - 60)
        # what a terminal would obey or hide must not move the mark
        shown = "".join(c if c.isprintable() else " " for c in line[first : first + 120])
        mark = " " * (self.column - 1 - first) + "^" * max(1, min(len(self.offending), 120))
        rendered = f"line {self.line}, column {self.column}: {self.reason}\n  {shown}\n  {mark}"
        return f"{rendered}\n  hint: {self.hint}" if self.hint else rendered


class UnknownSignalError(UserError, KeyError):
    """A signal name that nothing provides; the message gives the nearest known name."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class TraceError(UserError, ValueError):
    """Stamps or arrays that are no trace: lengths differ, stamps repeat or go back, wrong type."""
