"""`osma check`: lint clause and configuration files before a robot moves."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml

from osma_monitor.cli import check_kinds
from osma_monitor.cli.check_ranges import threshold_problems
from osma_monitor.cli.findings import Finding, Level
from osma_monitor.cli.helptext import help_of
from osma_monitor.core import stl
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, UserError
from osma_monitor.core.safety import load_library
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.core.stl.graph import flow_down
from osma_monitor.core.stl.syntax import COMPARISONS, FUTURE, TEMPORAL, WINDOWED, is_term
from osma_monitor.io import configuration
from osma_monitor.io.yaml_files import FaultsError
from osma_monitor.report.wording import plural

_TEXTS = ("formula", "formula_quantitative")
LIBRARY, REGISTRY = "library.yaml", "registry.yaml"


@dataclass(frozen=True)
class _Text:
    """One formula text of a file. ``line``: where its first character stands."""

    line: int
    text: str
    clause: str = ""
    unit: str = ""
    signal: str = ""
    quantitative: bool = False
    threshold: float | None = None
    severe: float | None = None
    severe_line: int = 0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("check", help=help_of(check))(check)


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Clause libraries, rules, suites, robots, mappings, obstacles, field maps (YAML); texts with one "
            "formula a line."
        ),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")] = False,
) -> int:
    """Lint clause files: syntax, unknown signals, units, thresholds that can never or always hold.

    Rules, suites, robot, mapping, obstacle and field map files are read as the monitor and `osma score` would read
    them. Where library.yaml and registry.yaml lie in one folder, every family needs a rule.

    Exit code 0: nothing found; 1: findings, each with file:line; 2: a file that cannot be read or is nothing of these,
    named on standard error. The others are checked all the same.
    """
    findings: list[Finding] = []
    count = refused = 0
    for file in files:
        try:
            found, texts = check_file(file)
        except UserError as error:
            refused += 1
            typer.echo(f"osma: {' '.join(str(error).split())}", err=True)
            continue
        findings += [f for f in found if f not in findings]  # a pair of files says the same of each other
        count += texts
    for finding in findings:
        typer.echo(str(finding))
    serious = sum(f.level != "note" for f in findings)
    read = len(files) - refused
    if not quiet and read:
        typer.echo(
            f"{plural(count, 'formula')} in {plural(read, 'file')}: {serious or 'no'} finding{'s' * (serious != 1)}"
        )
    return EXIT_BAD_INPUT if refused else EXIT_FINDINGS if serious else EXIT_OK


def check_file(path: Path) -> tuple[list[Finding], int]:
    """All findings of one file, by line, and how many formulas it holds.

    Raises:
        UserError: the file cannot be read, or holds no clauses.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder; name the files in it, as in {path / '*.yaml'}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from None
    name = str(path)
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    findings: list[Finding] = []
    if is_yaml and (load := check_kinds.loader(path, content)):
        findings = _loading_problem(path, load)
        rules = check_kinds.is_registry(content)
        return findings if findings or not rules else _without_rule(path.with_name(LIBRARY), path), 0
    texts = list(_yaml_texts(name, content, findings) if is_yaml else _plain_texts(content))
    seen: dict[tuple[stl.Formula, bool], _Text] = {}
    for text in texts:
        findings += check_text(name, text, seen)
    if is_yaml and not any(f.level == "error" for f in findings) and _is_library(content):
        findings += _loading_problem(path, lambda: load_library(content, name))
        if not any(f.level == "error" for f in findings):
            findings += _without_rule(path, path.with_name(REGISTRY))
    return sorted(findings, key=lambda f: f.line), len(texts)


def _is_library(content: str) -> bool:
    """Whether the clauses are a whole library, and not formulas alone."""
    return bool(re.search(r"^version\s*:|\b(family|tier|axis)\s*:", content, re.M))


def _without_rule(library: Path, rules: Path) -> list[Finding]:
    """Clauses whose family has no rule, where library and rules lie side by side."""
    if not (library.is_file() and rules.is_file()):
        return []
    try:
        clauses, known = configuration.clause_library(library), configuration.registry(rules).rules
    except UserError:
        return []  # said when that file itself is checked
    return [
        Finding(
            str(library), c.line or 1, "error", f"family {c.family} of clause {c.id} has no rule in {rules}; add one"
        )
        for c in clauses
        if c.family not in known
    ]


def _loading_problem(path: Path, load: Callable[[], object]) -> list[Finding]:
    """What keeps a file from being loaded: in it, or in a file that it names."""
    try:
        load()
    except FaultsError as error:
        return [Finding(error.file, line, "error", words) for line, words in error.found]
    except UserError as error:
        place = re.match(r"(?P<file>[^\n]+?):(?P<line>\d+): ", str(error))
        if place is None:
            return [Finding(str(path), 1, "error", str(error).removeprefix(f"{path}: "))]
        file = str(path) if Path(place["file"]).name == path.name else place["file"]
        return [Finding(file, int(place["line"]), "error", str(error)[place.end() :])]
    return []


# --- reading ---


def _plain_texts(content: str) -> Iterator[_Text]:
    for number, line in enumerate(content.split("\n"), 1):  # splitlines would count form feeds, editors do not
        text = line.split("#", 1)[0].rstrip()
        if text.strip():
            yield _Text(number, text)


def _yaml_texts(name: str, content: str, findings: list[Finding]) -> Iterator[_Text]:
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except RecursionError:
        raise UserError(f"{name}: no valid YAML: nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise UserError(f"{where}: no valid YAML: {getattr(error, 'problem', None) or error}") from None
    clauses = _mapping(root).get("clauses")
    if clauses is None:
        raise UserError(f"{name}: no clauses here: expected a key 'clauses' at the top")
    if isinstance(clauses, yaml.ScalarNode):
        said = "clauses: expected clauses by their ids, or a list of clauses with ids"
        findings.append(Finding(name, clauses.start_mark.line + 1, "error", said))
    if _is_library(content):
        findings += check_kinds.clause_keys(name, clauses)
    first: dict[str, int] = {}
    for clause, entry in _entries(clauses):
        line = entry.start_mark.line + 1
        if clause in first:
            findings.append(
                Finding(name, line, "error", f"a second clause {clause!r}; the first is at line {first[clause]}")
            )
        first.setdefault(clause, line)
        yield from _clause_texts(name, clause, entry, findings)


def _clause_texts(name: str, clause: str, entry: yaml.Node, findings: list[Finding]) -> Iterator[_Text]:
    fields = _mapping(entry)
    if "<<" in fields:
        said = f"{clause}: merged keys (<<) are not read in clauses; write them out"
        findings.append(Finding(name, entry.start_mark.line + 1, "error", said))
        return
    if "formula" not in fields:
        findings.append(Finding(name, entry.start_mark.line + 1, "error", f"clause {clause!r} has no formula"))
    threshold, severe = _number(fields.get("threshold")), _number(fields.get("severe"))
    for key, number in (("threshold", threshold), ("severe", severe)):
        node = fields.get(key)
        if node is not None and number is None:
            said = f"{clause}: {key}: expected a number, got {_scalar(node) or 'no text'!r}"
            findings.append(Finding(name, node.start_mark.line + 1, "error", said))
    for key in _TEXTS:
        node = fields.get(key)
        if node is None:
            continue
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            findings.append(Finding(name, line, "error", f"{key} of clause {clause!r} is no text"))
            continue
        unknown = [word for word in re.findall(r"\{([^{}]*)\}", node.value) if word != "threshold"]
        if unknown:
            said = f"{clause}: {{{unknown[0]}}} is no placeholder; did you mean {{threshold}}?"
            findings.append(Finding(name, line, "error", said))
            continue
        if "{threshold}" in node.value and threshold is None:
            if "threshold" not in fields:
                findings.append(
                    Finding(name, line, "error", f"{clause}: {{threshold}} stands for no key threshold here")
                )
            continue
        text = node.value.replace("{threshold}", _scalar(fields.get("threshold")) or "0")
        yield _Text(
            line + (node.style in ("|", ">")),
            text,
            clause,
            _scalar(fields.get("unit")),
            _scalar(fields.get("signal")),
            key == "formula_quantitative",
            threshold,
            severe,
            fields["severe"].start_mark.line + 1 if severe is not None else 0,
        )


def _number(node: yaml.Node | None) -> float | None:
    """The finite number of a scalar; None for anything else."""
    value = yaml.safe_load(_scalar(node)) if isinstance(node, yaml.ScalarNode) and not node.style else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < math.inf else None


def _entries(clauses: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """Clauses as a mapping from id to entry, or as a list of entries with an id."""
    if isinstance(clauses, yaml.MappingNode):
        yield from ((_scalar(key), value) for key, value in clauses.value)
    elif isinstance(clauses, yaml.SequenceNode):
        for number, entry in enumerate(clauses.value, 1):
            yield _scalar(_mapping(entry).get("id")) or f"#{number}", entry


def _mapping(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {_scalar(key): value for key, value in node.value}


def _scalar(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


# --- what is wrong with one formula ---


def check_text(name: str, text: _Text, seen: dict[tuple[stl.Formula, bool], _Text]) -> list[Finding]:
    """Findings of one formula text; ``seen`` collects formulas, so that a repetition is noticed."""

    def finding(level: Level, message: str, line: int = 0) -> Finding:
        prefix = f"{text.clause}: " if text.clause else ""
        return Finding(name, text.line + line, level, prefix + message)

    try:
        formula = stl.parse(text.text)
    except stl.FormulaError as error:
        said = str(error).removeprefix(f"line {error.line}, ")  # the line of the file is said
        return [finding("error", said, error.line - 1)]
    findings = [finding("error", _unknown(signal)) for signal in sorted(formula.signals) if signal not in SCHEMA]
    if findings:
        return findings
    findings += [finding("error", message) for message in _unit_problems(formula, text)]
    findings += [finding("warning", message) for message in threshold_problems(formula, text.quantitative)]
    if not text.quantitative and (problem := _anchor_problem(formula, text)):
        findings.append(finding("error", problem, text.severe_line - text.line))
    key = (formula, text.quantitative)
    if key in seen:
        findings.append(finding("warning", f"the same formula as {seen[key].clause or f'line {seen[key].line}'}"))
    seen.setdefault(key, text)
    if not any(node.op in TEMPORAL for node in formula.nodes):
        findings.append(finding("warning", "without a temporal operator only the last sample is judged: always(…)?"))
    elif momentary := _momentary(formula):
        level: Level = "warning" if formula.is_past else "note"  # at the start it may be meant: "if it starts so, then"
        sample = "last" if formula.is_past else "first"
        said = f"{momentary[0]!r} is judged at the {sample} sample only: no always, historically, … stands over it"
        findings.append(finding(level, said))
    findings += [finding("note", message) for message in _cost_notes(formula)]
    return findings


def _momentary(formula: stl.Formula) -> list[str]:
    """Comparisons and bare terms over which no operator spans time, as y > 1 in ``always x < 3 and y > 1``."""
    nodes, found, stack = formula.nodes, [], [len(formula.nodes) - 1]
    terms = is_term(nodes)
    while stack:
        index = stack.pop()
        if nodes[index].op in COMPARISONS or terms[index]:
            if not any(n.op in WINDOWED for n in formula.subformula(index).nodes):
                found.append(str(formula.subformula(index)))
        elif nodes[index].op not in WINDOWED:
            stack += reversed(nodes[index].args)
    return found


def _unknown(signal: str) -> str:
    word = signal.lower()
    near = difflib.get_close_matches(word, SCHEMA, 1, 0.5) or [n for n in SCHEMA if len(word) > 2 and word in n]
    return f"unknown signal {signal!r}" + (
        f": did you mean {near[0]!r}?" if near else "; docs/metrics.md lists the signals"
    )


def _unit_problems(formula: stl.Formula, text: _Text) -> list[str]:
    """Sums and comparisons of different units, and a clause whose unit is not that of its signal."""
    problems: list[str] = []
    units: list[str | None] = []  # None: any unit fits
    compared: set[str] = set()
    for node in formula.nodes:
        below = [units[a] for a in node.args]
        known = [u for u in below if u is not None]
        unit: str | None = None
        if node.op == "signal":
            spec = SCHEMA[node.name]
            unit = None if spec.kind != "scalar" else spec.unit
        elif node.op in ("+", "-", "min", "max") or node.op in COMPARISONS:
            if len(set(known)) > 1:
                problems.append(f"{node.op!r} joins {known[0]} and {known[1]}")
            unit = known[0] if known and node.op not in COMPARISONS else None
            compared.update(known if node.op in COMPARISONS else ())
        elif node.op in ("neg", "abs") or node.op in TEMPORAL:
            unit = below[0]
        units.append(unit)
    named = SCHEMA.get(text.signal)
    if text.signal and named is None:
        problems.append(_unknown(text.signal))
    elif named and text.signal not in formula.signals:
        problems.append(f"the formula never reads {text.signal}, which the clause names as its signal")
    if text.threshold is not None and abs(text.threshold) not in {
        abs(n.value) for n in formula.nodes if n.op == "number"
    }:
        problems.append(f"the formula never uses the threshold {text.threshold:g}; write {{threshold}} where it goes")
    expected = {named.unit} if named else compared
    if text.unit and expected and text.unit not in expected:
        signal = f"{text.signal} is" if named else "the formula compares"
        problems.append(f"the unit is given as {text.unit}, but {signal} in {' and '.join(sorted(expected))}")
    return problems


def _anchor_problem(formula: stl.Formula, text: _Text) -> str:
    """A severity anchor on the side of the threshold where nothing is violated: depth would run the wrong way."""
    if text.threshold is None or text.severe is None:
        return ""
    _, polarity = flow_down(formula.nodes)
    for index, node in enumerate(formula.nodes):
        if node.op not in COMPARISONS or polarity[index] not in (1, -1):
            continue
        left, right = (formula.subformula(a) for a in node.args)
        bounded, limit = (left, right) if text.signal in left.signals else (right, left)
        if text.signal not in bounded.signals or _constant(limit) != text.threshold:
            continue
        upward = node.op in ("<", "<=")  # then flipped by each of two: the sides swapped, and a negation around it
        upward ^= (bounded is right) ^ (polarity[index] == -1)
        if (text.severe > text.threshold) != upward:
            side = "above" if upward else "below"
            return (
                f"severe: {text.severe:g} lies where nothing is violated; {str(formula.subformula(index))!r} breaks "
                f"{side} {text.threshold:g}, so the magnitude at which the depth is 1 lies {side} it too"
            )
    return ""


def _constant(term: stl.Formula) -> float | None:
    """The value of a term of one number and its sign."""
    *inner, last = term.nodes
    if last.op == "number":
        return last.value
    return -inner[0].value if last.op == "neg" and len(inner) == 1 and inner[0].op == "number" else None


def _cost_notes(formula: stl.Formula) -> list[str]:
    """Unbounded operators that look ahead inside another temporal operator keep the whole trace in memory; operators
    that look ahead in deep nesting pass changes on from one to the next.
    """
    notes: list[str] = []
    nodes = formula.nodes
    inside = [False] * len(nodes)
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if inside[index] and node.op in FUTURE and node.op != "next" and node.window is None:
            notes.append(f"{node.op} without a window inside another temporal operator keeps the whole trace in memory")
        for argument in node.args:
            inside[argument] = inside[index] or node.op in TEMPORAL
    if stl.Library(formula).reworked:
        notes.append(
            "operators that look ahead are nested so deep that a sample costs what changes inside their open windows: "
            "some 0.05 ms, more while a slow signal moves many of them; docs/stl.md lists the shapes of constant cost"
        )
    return list(dict.fromkeys(notes))
