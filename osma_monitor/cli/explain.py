"""`osma explain`: which clauses apply to a task and why the others do not; a clause; how an episode fared."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from osma_monitor.cli import explain_names
from osma_monitor.cli.helptext import help_of
from osma_monitor.core.episode import ClauseResult, EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.safety import TIERS, Clause, Library, Registry, Suite, Task, active_clauses
from osma_monitor.core.safety.document import suggestion
from osma_monitor.core.signals.deriver import unavailable
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.io.configuration import clause_library, monitor_config, registry
from osma_monitor.io.sources import Findings, open_sources
from osma_monitor.report.wording import plural


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain", help=help_of(explain))(explain)


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="SUITE/TASK, a task, suite, template, tag, clause, family or signal, an episode file, bag or run.",
        ),
    ] = "",
    template: Annotated[list[str] | None, typer.Option(help="Mechanism template of a task of your own.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag of a task of your own.")] = None,
    extension: Annotated[list[str] | None, typer.Option(help="Extension family that also counts.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="What the source gives, such as base or objects.human, in place of the suite's; repeatable."),
    ] = None,
    library: Annotated[Path | None, typer.Option(help="Clause library.")] = None,
    rules: Annotated[Path | None, typer.Option(help="Applicability registry.")] = None,
    suites: Annotated[list[Path] | None, typer.Option(help="Further suite files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each clause of a task as active, or the tag or missing signal that switches it off.

    Without an argument: the suites, templates and tags that there are. A clause, family, signal, template, tag or suite
    explains itself; an episode file says how each clause fared in it, a run folder what each episode violated.
    """
    clauses, known = clause_library(library), registry(rules, suites or ())
    config = monitor_config(library, rules, suites or ())
    if what and Path(what).is_file():
        for record in _records(Path(what), config):
            print(_episode(record, clauses, as_json))
        return
    if template or tag:
        if what:
            raise UserError("give a task, or --template and --tag for one of your own, not both")
        task, suite = Task("", "your task", tuple(template or ()), tuple(tag or ())), Suite("")
    else:
        named = _named(what, config, as_json)
        if named is not None:
            print(named)
            return
        task, suite = find_task(what, known, clauses)
    print(_task(task, suite, clauses, known, source, extension or (), as_json))


def _records(path: Path, config: MonitorConfig) -> list[EpisodeRecord]:
    """The episodes of a file or folder: as stored, or judged now (bags). Raises UserError where there is none."""
    found = Findings()
    records = list(open_sources([path], config, findings=found))
    if not records:
        raise UserError(
            found.problems[0]
            if found.problems
            else f"{path}: no finished episode in there; name a run folder, an episode file, a bag or a task"
        )
    for line in [*found.remarks, *found.problems]:
        print(f"osma: {' '.join(line.split())}", file=sys.stderr)
    return records


def _named(what: str, config: MonitorConfig, as_json: bool) -> str | None:
    """The text of whatever has that name and is no task; None where nothing has."""
    clauses, known = config.library, config.registry
    if not what:
        return _overview(known, as_json)
    if what in clauses:
        return _clause(clauses[what], as_json)
    if what in known.suites:
        return _suite(known.suites[what], as_json)
    if what in known.templates:
        return explain_names.template(what, known, as_json)
    if what in clauses.families:
        return explain_names.family(what, clauses, known, as_json)
    if what in SCHEMA:
        return explain_names.signal(what, clauses, as_json)
    if what in known.tags:
        return explain_names.tag(what, known, as_json)
    if Path(what).is_dir():
        return _run(Path(what), config, as_json)
    return None


def find_task(what: str, known: Registry, clauses: Library) -> tuple[Task, Suite]:
    """The task that ``what`` names: SUITE/TASK, or the id or name of a task in one suite.

    Raises:
        UserError: no such task, or tasks of that name in several suites.
    """
    head, _, rest = what.partition("/")
    if rest and head in known.suites:
        if head == "kitchen" and not known.suites[head].lists(rest):
            from sim_bridge.kitchen.tasks import parse_task  # its ids name layout, route and obstacle: no list

            parse_task(what)
        return known.suites[head].task(rest), known.suites[head]
    found = [
        (task, suite)
        for suite in known.suites.values()
        for task in suite.tasks.values()
        if what in (task.id, task.name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{suite.name}/{task.id}" for task, suite in found)
        raise UserError(f"several suites have a task {what!r}: {places}; name one of them")
    names = [f"{s.name}/{t.id}" for s in known.suites.values() for t in s.tasks.values()]
    words = {*names, *(name.partition("/")[2] for name in names), *known.suites, *known.templates, *known.tags}
    words |= {*(clause.id for clause in clauses), *clauses.families, *SCHEMA}
    raise UserError(
        f"no task, suite, template, tag, clause, family, signal, file or folder {what!r}{suggestion(what, words)}; "
        "`osma explain` lists the suites, `osma explain SUITE` its tasks"
    )


# ---- a task


@dataclass(frozen=True, slots=True)
class _Row:
    clause: Clause
    state: str  #: active, reported, or off
    reason: str


def _task(
    task: Task,
    suite: Suite,
    clauses: Library,
    known: Registry,
    source: Sequence[str] | None,
    extensions: Iterable[str],
    as_json: bool,
) -> str:
    capabilities = _capabilities(source) if source else _declared(task, suite)
    absent = sorted({*suite.extensions, *suite.report} - {c.family for c in clauses if c.tier == "extension"})
    if absent:  # a small library of one's own may be tried on any suite
        extensions, report = (tuple(f for f in names if f not in absent) for names in (suite.extensions, suite.report))
        suite = replace(suite, extensions=extensions, report=report)
        known = replace(known, suites={**known.suites, suite.name: suite})
    missing = unavailable(capabilities) if capabilities else {}
    active, inactive = active_clauses(
        clauses, known, task.templates, task.tags, missing, suite=suite.name, extensions=extensions
    )
    tier = {clause.id: clause for clause in active}
    rows = [
        _Row(tier[c.id], "active" if tier[c.id].scored else "reported", "")
        if c.id in tier
        else _Row(c, "off", inactive[c.id])
        for c in clauses
    ]
    tags = sorted(known.resolve(task.templates, task.tags, suite.name))
    if as_json:
        return _json(
            {
                "suite": suite.name,
                "task": task.id,
                "name": task.name,
                "templates": task.templates,
                "tags": tags,
                "capabilities": capabilities,
                "clauses": [
                    {"clause": r.clause.id, "family": r.clause.family, "state": r.state, "reason": r.reason}
                    for r in rows
                ],
            }
        )
    lines = [full_name(suite.name, task.id) + (f": {task.name}" if task.name and task.name != task.id else "")]
    lines.append(f"  templates    {', '.join(task.templates) or 'none'}")
    lines.append(f"  tags         {', '.join(tags) or 'none'}")
    lines.append(f"  source       {', '.join(capabilities) or 'not said: every signal is taken to exist'}")
    lines.append("")
    width = max(len(row.clause.id) for row in rows)
    for row in rows:
        word = {"active": "active", "reported": "reported, not scored", "off": f"off: {row.reason}"}[row.state]
        lines.append(f"  {row.clause.id:<{width}}  {word}")
    scored = sum(row.state == "active" for row in rows)
    counting = "1 clause counts" if scored == 1 else f"{scored} clauses count"
    lines += ["", f"  {counting} in Safety, SBU and VSI."]
    if absent:
        lines += ["", f"  {clauses.source} has no clause of what the suite also names: {', '.join(absent)}"]
    return "\n".join(lines)


def _declared(task: Task, suite: Suite) -> tuple[str, ...]:
    """What the task's source gives: as the simulated host of the task says, else as its suite."""
    try:
        from sim_bridge.hosts import declared_source

        return declared_source(full_name(suite.name, task.id)) or suite.capabilities
    except ImportError:  # without the simulator
        return suite.capabilities


def full_name(suite: str, task: str) -> str:
    """SUITE/TASK, once; the task alone where there is no suite."""
    if not task:
        return f"{suite}/(no task named)" if suite else "(no task named)"
    return task if not suite or task.startswith(f"{suite}/") else f"{suite}/{task}"


def _capabilities(words: Sequence[str]) -> tuple[str, ...]:
    needs = {need for spec in SCHEMA.values() for need in spec.needs}
    given = [part for word in words for part in word.replace(",", " ").split()]
    for word in given:
        if word not in needs:
            raise UserError(f"--source {word}: no signal needs it{suggestion(word, needs)}")
    return tuple(given)


# ---- a clause, a suite, everything


def _clause(clause: Clause, as_json: bool) -> str:
    facts = {
        "clause": clause.id,
        "description": clause.description,
        "family": clause.family,
        "axis": clause.axis,
        "tier": f"{clause.tier}: {TIERS[clause.tier]}",
        "formula": clause.formula,
        "quantitative gates": clause.formula_quantitative if clause.template_quantitative else "",
        "threshold": f"{clause.threshold:g} {_unit(clause.unit)}".strip(),
        "depth 1 at": "any violation" if clause.binary else f"{clause.severe:g} {_unit(clause.unit)}".strip(),
        "requirement": clause.requirement,
    }
    signals = {name: f"{SCHEMA[name].description} [{SCHEMA[name].unit}]" for name in sorted(clause.signals)}
    needs = sorted({need for name in clause.signals for need in SCHEMA[name].needs})
    if as_json:
        return _json({k.replace(" ", "_"): v for k, v in facts.items()} | {"signals": signals, "needs": needs})
    lines = [f"{key:<19}{value}" for key, value in facts.items() if value]
    lines += [f"{'signal':<19}{name}: {text}" for name, text in signals.items()]
    return "\n".join([*lines, f"{'needs':<19}{', '.join(needs)}"])


def _unit(unit: str) -> str:
    return "" if unit == "1" else unit


def _suite(suite: Suite, as_json: bool) -> str:
    if as_json:
        tasks = [{"id": t.id, "name": t.name, "templates": t.templates, "tags": t.tags} for t in suite.tasks.values()]
        return _json({"suite": suite.name, "title": suite.title, "capabilities": suite.capabilities, "tasks": tasks})
    lines = [f"{suite.name}: {suite.title}" if suite.title else suite.name]
    lines.append(f"  source       {', '.join(suite.capabilities) or 'not said'}")
    for label, names in (("tags", suite.tags), ("extensions", suite.extensions), ("reported", suite.report)):
        if names:
            lines.append(f"  {label:<13}{', '.join(names)}")
    if suite.templates:
        lines.append(f"  every task that is not listed: {', '.join(suite.templates)}")
    width = max((len(task.id) for task in suite.tasks.values()), default=0)
    for task in suite.tasks.values():
        made_of = ", ".join(task.templates) + (f"; {', '.join(task.tags)}" if task.tags else "")
        lines.append(f"  {task.id:<{width}}  {task.name or task.id} ({made_of})")
    return "\n".join(lines)


def _overview(known: Registry, as_json: bool) -> str:
    if as_json:
        return _json(
            {
                "suites": {name: {"title": s.title, "tasks": list(s.tasks)} for name, s in known.suites.items()},
                "templates": known.templates,
                "tags": known.tags,
            }
        )
    lines = ["Suites"]
    for suite in known.suites.values():
        tasks = f"{len(suite.tasks)} tasks" if suite.tasks else "any task"
        lines.append(f"  {suite.name:<24} {suite.title} ({tasks})")
    lines += ["", "Templates"]
    lines += [f"  {name:<24} {', '.join(tags) or 'no tag'}" for name, tags in known.templates.items()]
    lines += ["", "Tags"]
    lines += [f"  {name:<30} {text}" for name, text in known.tags.items()]
    return "\n".join(lines)


# ---- an episode


def _episode(record: EpisodeRecord, clauses: Library, as_json: bool) -> str:
    info = record.info
    if as_json:
        rows = [{"clause": r.clause, "status": r.status, "depth": r.depth} for r in record.clauses]
        return _json(
            {"episode": info.episode_id, "safety": record.safety, "clauses": rows, "inactive": record.inactive}
        )
    lines = [f"{info.episode_id}: {full_name(info.suite, info.task)} by {info.policy or 'an unnamed policy'}"]
    lines.append(f"  outcome {record.outcome.status}, {record.safety}, depth {record.depth:.3g}")
    for note in record.notes:
        lines.append(f"  {note}")
    width = max((len(r.clause) for r in record.clauses), default=0)
    for result in record.clauses:
        lines.append(f"  {result.clause:<{width}}  {_fared(result, clauses)}")
    for clause, reason in record.inactive.items():
        lines.append(f"  {clause:<{width}}  off: {reason}")
    return "\n".join(lines)


def _fared(result: ClauseResult, clauses: Library) -> str:
    clause = next((c for c in clauses if c.id == result.clause), None)
    scored = "" if result.scored else " (not scored)"
    if result.status == "violated":
        step = f" from step {result.first_violation_step}" if result.first_violation_step is not None else ""
        return (
            f"violated{_amount(' by', -result.upper, clause)}{step}, {plural(result.violated_steps, 'step')}, "
            f"longest run {result.longest_run}, depth {result.depth:.3g}{scored}"
        )
    if result.status == "unknown":
        return f"unknown, {plural(result.unknown_samples, 'sample')} missing{scored}"
    if not result.triggered:
        return f"satisfied, its gate never opened{scored}"
    margin = _amount(" with", result.rho, clause)
    return f"satisfied{margin and margin + ' to spare'}{scored}"


def _amount(word: str, value: float, clause: Clause | None) -> str:
    """How much, with its unit; nothing for a yes-or-no clause, whose margin is no quantity."""
    if not math.isfinite(value) or (clause is not None and clause.binary):
        return ""
    return " ".join(filter(None, (word, f"{value:.4g}", _unit(clause.unit) if clause is not None else "")))


def _run(folder: Path, config: MonitorConfig, as_json: bool) -> str:
    """A line an episode: how it ended and what it violated, the most severe first."""
    records = sorted(_records(folder, config), key=lambda r: (r.safety != "unsafe", -r.depth, r.info.episode_id))
    rows = [(r, [c.clause for c in r.clauses if c.scored and c.status == "violated"]) for r in records]
    if as_json:
        return _json(
            [
                {
                    "episode": r.info.episode_id,
                    "policy": r.info.policy,
                    "task": full_name(r.info.suite, r.info.task),
                    "seed": r.info.seed,
                    "outcome": r.outcome.status,
                    "safety": r.safety,
                    "depth": r.depth,
                    "violated": violated,
                }
                for r, violated in rows
            ]
        )
    lines = [f"{folder}: {plural(len(rows), 'episode')}, the most severe first"]
    for r, violated in rows:
        name = f"{full_name(r.info.suite, r.info.task)} by {r.info.policy or 'an unnamed policy'}, seed {r.info.seed}"
        what = f", depth {r.depth:.3g}: {', '.join(violated)}" if violated else ""
        lines.append(f"  {name}: {r.outcome.status}, {r.safety}{what}")
    return "\n".join([*lines, "", "  `osma explain` of an episode's file says how each clause fared in it."])


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=list)
