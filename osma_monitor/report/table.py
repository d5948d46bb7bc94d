"""A result table: tidy numbers in a DataFrame, how to print them, and the sentences that belong under them.

The frame holds plain numbers (fractions, not percentages), so CSV keeps full precision. A column with an interval reads
``<key>``, ``<key>_low`` and ``<key>_high``. People read the same numbers as text, Markdown or LaTeX. What the numbers
rest on is the table's `Basis`: a sentence for people, columns in CSV.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from osma_monitor.core.text import printable

Kind = Literal["text", "count", "percent", "number", "signed", "p"]
Format = Literal["text", "csv", "markdown", "latex"]
FORMATS: tuple[Format, ...] = ("text", "csv", "markdown", "latex")

#: What is printed where a figure does not exist (no episode, no violation, division by zero).
UNDEFINED = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is printed. ``better`` is +1 where larger is better, -1 where smaller is, 0 where neither."""

    key: str
    label: str
    kind: Kind = "text"
    digits: int = 1
    better: int = 0
    interval: bool = False
    spread: bool = False  #: has a standard deviation, ``<key>_std``, printed after ±
    help: str = ""


@dataclass(frozen=True, slots=True)
class Basis:
    """What the numbers of a table rest on; every table says it in every format."""

    n: int = 0  #: scored episodes, the unknown ones included
    n_unknown: int = 0  #: of unknown safety
    n_outcome_unknown: int = 0
    n_aborted: int = 0  #: listed, never scored
    gate_semantics: tuple[str, ...] = ()
    library_hash: tuple[str, ...] = ()
    registry_hash: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  #: further sentences, such as how a bag's inputs were joined
    unit: str = "episodes"
    unknown: str = ""  #: what is not known, where it is not safety and outcome

    def sentences(self) -> tuple[str, ...]:
        """For people: hashes are cut to 16 digits."""
        what = self.unknown or f"safety unknown in {self.n_unknown}, outcome unknown in {self.n_outcome_unknown}"
        things, of, whose = self.unit.partition(" ")
        text = f"n = {self.n} {things.removesuffix('s') if self.n == 1 else things}{of}{whose}; {what}"
        text += f"; {self.n_aborted} aborted, not scored" if self.n_aborted else ""
        library, registry = (
            ", ".join(h[:16] for h in hashes) or NOT_SAID for hashes in (self.library_hash, self.registry_hash)
        )
        gates = ", ".join(self.gate_semantics) or NOT_SAID
        said = f"{text}. Gates {gates}. Clause library {library}, registry {registry}."
        return (said, *self._mixed(), *self.remarks)

    def _mixed(self) -> tuple[str, ...]:
        """What makes figures over all episodes mean different things."""
        mixed = {
            "clause libraries": len(self.library_hash) > 1,
            "gate semantics": len(self.gate_semantics) > 1,
        }
        words = " and ".join(word for word, several in mixed.items() if several)
        if not words:
            return ()
        return (f"Judged by different {words}: figures of episodes that were judged differently can't be compared.",)

    def row(self) -> dict[str, int | str]:
        """For machines: the columns that CSV has behind those of the table."""
        return {
            "n": self.n,
            "n_unknown": self.n_unknown,
            "gate_semantics": " ".join(self.gate_semantics) or NOT_SAID,
            "library_hash": " ".join(self.library_hash) or NOT_SAID,
            "registry_hash": " ".join(self.registry_hash) or NOT_SAID,
        }


#: Where no episode says it.
NOT_SAID = "not said"
#: Counts that a table has for each row, or for none: then CSV has those of all episodes.
COUNTS = ("n", "n_unknown")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Numbers, their columns, and notes. ``key`` names the table in files and commands."""

    key: str
    title: str
    columns: tuple[Column, ...]
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    keys: int = 0  #: how many leading columns name the row
    basis: Basis | None = None  #: see `based`

    def __post_init__(self) -> None:
        if len(own := {c.key for c in self.columns} & set(COUNTS)) == 1:
            raise ValueError(f"table {self.key}: it has {own.pop()} for each row, so it needs both of {COUNTS}")
        wanted = [name for c in self.columns for name in _names(c)]
        missing = [name for name in wanted if name not in self.frame.columns]
        if missing:
            raise ValueError(f"table {self.key}: the frame lacks {', '.join(missing)}")

    @property
    def empty(self) -> bool:
        return self.frame.empty

    @property
    def said(self) -> tuple[str, ...]:
        """What stands under the table: its notes, and what it rests on."""
        return (*self.notes, *(self.basis.sentences() if self.basis is not None else ()))


def based(tables: Iterable[Table], basis: Basis) -> list[Table]:
    """The tables with what they rest on, where they do not say it already."""
    return [replace(t, basis=basis) if t.basis is None else t for t in tables]


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pd.DataFrame:
    """Rows as a frame that has every column even when there is no row."""
    if rows:
        return pd.DataFrame(list(rows))
    return pd.DataFrame({name: pd.Series(dtype=object) for c in columns for name in _names(c)})


def _names(column: Column) -> list[str]:
    extra = ["_low", "_high"] if column.interval else []
    return [column.key, *(column.key + end for end in extra + (["_std"] if column.spread else []))]


def _undefined(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def format_value(value: Any, kind: Kind, digits: int = 1) -> str:
    """``value`` as people read it: a fraction of kind percent is printed times 100, without the sign; a p-value that
    rounds to 0 as the bound that it is under.
    """
    if _undefined(value):
        return UNDEFINED
    if kind == "text":
        return printable(str(value))
    if kind == "count":
        return f"{int(value)}"
    number = float(value) * (100.0 if kind == "percent" else 1.0)
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if kind == "p" and 0.0 < number < 0.5 * 10.0**-digits:
        return f"<{10.0**-digits:.{digits}f}"
    text = f"{number:+.{digits}f}" if kind == "signed" else f"{number:.{digits}f}"
    if float(text) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def format_cell(row: Any, column: Column) -> str:
    """The cell of ``column``, with its standard deviation and its interval where it has them."""
    text = format_value(row[column.key], column.kind, column.digits)
    if text == UNDEFINED:
        return text
    kind: Kind = "number" if column.kind == "signed" else column.kind
    if column.spread and not _undefined(row[f"{column.key}_std"]):
        text += f" ± {format_value(row[f'{column.key}_std'], kind, column.digits)}"
    if column.interval:
        bounds = [row[f"{column.key}_low"], row[f"{column.key}_high"]]
        if not any(map(_undefined, bounds)):
            text += f" [{', '.join(format_value(v, column.kind, column.digits) for v in bounds)}]"
    return text


def header(column: Column) -> str:
    """The column's heading with its unit."""
    return f"{column.label} %" if column.kind == "percent" else column.label


def cells(table: Table) -> list[list[str]]:
    """Every row as printed text."""
    return [[format_cell(row, c) for c in table.columns] for row in table.frame.to_dict("records")]


def to_text(table: Table, width: int | None = None) -> str:
    """Plain text in columns. Wider than ``width``: split into blocks that repeat the row's name."""
    body, heads = cells(table), [header(c) for c in table.columns]
    widths = [max([len(h), *(len(r[i]) for r in body)]) for i, h in enumerate(heads)]
    title = printable(table.title)
    lines = [title, "=" * len(title)]
    if not body:
        lines.append("(no rows)")
    for block in _blocks(widths, table.keys, width) if body else ():
        if len(lines) > 2:
            lines.append("")
        lines.append(_line([heads[i] for i in block], [widths[i] for i in block], [_left(table, i) for i in block]))
        lines.append("  ".join("-" * widths[i] for i in block))
        lines += [
            _line([r[i] for i in block], [widths[i] for i in block], [_left(table, i) for i in block]) for r in body
        ]
    for note in table.said:
        lines += textwrap.wrap(
            printable(note), max(width or 0, 40) if width else 10_000, initial_indent="  ", subsequent_indent="    "
        )
    return "\n".join(lines) + "\n"


def _left(table: Table, index: int) -> bool:
    return table.columns[index].kind == "text"


def _line(texts: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    parts = [t.ljust(w) if to_left else t.rjust(w) for t, w, to_left in zip(texts, widths, left, strict=True)]
    return "  ".join(parts).rstrip()


def _blocks(widths: Sequence[int], keys: int, limit: int | None) -> list[list[int]]:
    names, rest = list(range(keys)), list(range(keys, len(widths)))
    blocks: list[list[int]] = []
    current = list(names)
    for i in rest:
        used = sum(widths[j] + 2 for j in current) + widths[i]
        if limit is not None and used > limit and len(current) > len(names):
            blocks.append(current)
            current = list(names)
        current.append(i)
    blocks.append(current)
    return blocks


def to_csv(table: Table) -> str:
    """Full precision, one column a number; fractions stay fractions. Notes are not part of CSV.

    The last columns say in every row what the table rests on: ``gate_semantics``, ``library_hash`` and
    ``registry_hash``, and ``n`` and ``n_unknown`` of all episodes where the rows have no such counts of their own.

    Text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection); numbers stay as
    they are.
    """
    names = [name for c in table.columns for name in _names(c)]
    rest = {} if table.basis is None else {k: v for k, v in table.basis.row().items() if k not in names}
    names += rest
    safe = table.frame.assign(**rest)[names].map(
        lambda value: spreadsheet_safe(value) if isinstance(value, str) else value
    )
    text: str = safe.to_csv(index=False, header=[spreadsheet_safe(name) for name in names], lineterminator="\n")
    return text


def spreadsheet_safe(text: str) -> str:
    """``text`` with a leading apostrophe where a spreadsheet would read it as a formula; numbers are none."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


#: What Markdown reads as a mark (GitHub Flavored Markdown, 4.10 and 6). An underscore inside a word is none, nor is a
#: bracket that no link follows.
_MARKDOWN = re.compile(r"[\\`*|~$]|\](?=\()|(?<![^\W_])_|_(?![^\W_])")


def to_markdown(table: Table) -> str:
    """A GitHub table with its notes as a list."""

    def clean(text: str) -> str:
        return _MARKDOWN.sub(r"\\\g<0>", printable(text)).replace("&", "&amp;").replace("<", "&lt;")

    heads = [clean(header(c)) for c in table.columns]
    lines = [f"### {clean(table.title)}", "", "| " + " | ".join(heads) + " |"]
    lines.append("| " + " | ".join("---" if c.kind == "text" else "---:" for c in table.columns) + " |")
    lines += ["| " + " | ".join(clean(t) for t in row) + " |" for row in cells(table)]
    if table.said:
        lines += ["", *(f"- {clean(note)}" for note in table.said)]
    return "\n".join(lines) + "\n"


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "φ": r"$\varphi$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "°": r"$^{\circ}$",
    "·": r"$\cdot$",
    "²": "$^2$",
    "³": "$^3$",
    "μ": r"$\mu$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "∩": r"$\cap$",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def tex(text: str) -> str:
    """``text`` with every character that LaTeX would read as a command made harmless."""
    return "".join(_TEX.get(ch, ch) for ch in printable(text))


def to_latex(table: Table) -> str:
    """A booktabs table; the best value of a column is bold (all rows that share it)."""
    best = {c.key: _best(table, c) for c in table.columns}
    arrows = {1: r" $\uparrow$", -1: r" $\downarrow$", 0: ""}
    heads = " & ".join(tex(header(c)) + arrows[c.better] for c in table.columns)
    spec = "".join("l" if c.kind == "text" else "r" for c in table.columns)
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{tex(table.title)}. {tex(' '.join(table.said))}}}"]
    lines += [rf"\label{{tab:{table.key}}}", rf"\begin{{tabular}}{{{spec}}}", r"\toprule", heads + r" \\", r"\midrule"]
    for row, printed in zip(table.frame.to_dict("records"), cells(table), strict=True):
        parts = []
        for column, text in zip(table.columns, printed, strict=True):
            value = format_value(row[column.key], column.kind, column.digits)
            bold = best[column.key] is not None and value == best[column.key]
            parts.append(tex(text).replace(tex(value), rf"\textbf{{{tex(value)}}}", 1) if bold else tex(text))
        if parts[0].startswith(("[", "*")):
            parts[0] = "{}" + parts[0]  # else the command before would read it as its argument
        lines.append(" & ".join(parts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _best(table: Table, column: Column) -> str | None:
    if not column.better:
        return None
    values = pd.to_numeric(table.frame[column.key], errors="coerce").dropna()
    if len(values) < 2:
        return None
    return format_value(values.max() if column.better > 0 else values.min(), column.kind, column.digits)


_RENDERERS: dict[Format, Callable[[Table], str]] = {
    "text": to_text,
    "csv": to_csv,
    "markdown": to_markdown,
    "latex": to_latex,
}


def render(table: Table, form: Format, width: int | None = None) -> str:
    """``table`` in one of ``FORMATS``; ``width`` (characters) only concerns text."""
    return to_text(table, width) if form == "text" else _RENDERERS[form](table)
