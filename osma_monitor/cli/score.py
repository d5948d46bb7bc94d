"""`osma score`: the metrics of logged episodes as tables."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from osma_monitor.cli.episodes import collected, columns, episodes, libraries, make_report, plan_of, told, workers
from osma_monitor.cli.helptext import help_of
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, UserError
from osma_monitor.core.metrics.candidates import Decision
from osma_monitor.core.metrics.preferences import STATE_KEYS, preference_pairs, to_json_lines
from osma_monitor.core.metrics.scores import KEYS, ScoreTable
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.safety import GATE_SEMANTICS
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.rejudge import rejudge
from osma_monitor.io.sources import Findings, distinct
from osma_monitor.report import decision_tables, forecast_tables
from osma_monitor.report.build import DEFAULT_BY
from osma_monitor.report.forecast_tables import Forecasts
from osma_monitor.report.grouping import key_of
from osma_monitor.report.table import FORMATS, Format, Table, based, render

#: Printed without --all; the rest is for papers and a closer look.
MAIN = (
    *("summary", "motion", "outcomes", "clauses", "paired", "navigation", "ssi"),
    *("candidates", "choices", "choice_positions", "forecasts"),
)
_ONE = "only episodes of one library at hand (--library) and one gate semantics are scored again"
#: What a table needs, where that is not plain.
_WHY = {
    "sensitivity": _ONE,
    "rankings": f"it needs two policies, and {_ONE}",
    "paired": "it needs two policies",
    "structural": "it needs three policies",
    "correlations": "it needs three policies",
    "correlations_suites": "it needs three policies",
}
SUFFIX: dict[Format, str] = {"text": ".txt", "csv": ".csv", "markdown": ".md", "latex": ".tex"}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("score", help=help_of(score))(score)


def score(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, episode files, data sets, bags, label files.")],
    by: Annotated[
        list[str] | None, typer.Option(help="Columns to group by: suite, policy, task, seed or any attribute.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, csv, markdown or latex.")] = "text",
    table: Annotated[list[str] | None, typer.Option(help="Only this table; several with commas.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table, not only the main ones.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write one file a table into this folder.")] = None,
    mapping: Annotated[
        Path | None, typer.Option("--map", help="Mapping of a bag's topics or of a data set's columns (osma map).")
    ] = None,
    library: Annotated[Path | None, typer.Option(help="Clause library for what is not judged yet.")] = None,
    rules: Annotated[
        Path | None, typer.Option(help="Applicability registry for it, with rules for new families.")
    ] = None,
    gates: Annotated[
        str | None, typer.Option(help="Gate semantics for it: boolean (the default) or quantitative.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--rejudge", help="Judge stored episodes again by these, from their stored signals.")
    ] = False,
    scheduler: Annotated[str, typer.Option(help="Dask scheduler whose workers read and judge, tcp://host:8786.")] = "",
    preferences: Annotated[
        Path | None, typer.Option(help="Write preference pairs as JSON lines: safe over unsafe successes of one start.")
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(help="Log of rollout selection's decisions (its option log); adds their tables."),
    ] = None,
    forecasts: Annotated[
        bool, typer.Option("--forecasts", help="Run the trends over the stored signals: how good the warnings were.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--workers", min=0, help="Threads; 0: one a core. The numbers are the same.")
    ] = 0,
    fail_on_violation: Annotated[
        bool, typer.Option("--fail-on-violation", help="Exit with 1 when an episode is unsafe or unknown.")
    ] = False,
) -> int:
    """Compute the metrics of logged episodes.

    Unknown episodes are left out of the denominators; every table says how many there are. CSV holds full-precision
    fractions; text, Markdown and LaTeX print percentages. A source that can't be read is a line on standard error and
    exit code 2; the rest is scored.
    """
    chosen = format_of(form)
    names = columns(table or [])
    if mapping is not None and not mapping.is_file():
        raise UserError(f"--map {mapping}: no such file; osma map BAG writes one")
    whole = everything or out is not None
    rescore = whole or bool({"sensitivity", "rankings"} & set(names))
    keys = columns(by or []) or DEFAULT_BY
    found = Findings()
    paths = distinct(paths, found)
    config = judge(library, gates or "boolean", rules)
    trend = Forecasts(config) if forecasts else None
    judges, records = libraries(paths, library), None
    if scheduler or trend is not None or again:
        read = episodes(paths, config, mapping, found, scheduler)
        read = rejudge(read, config, found.problems, judges, found.remarks) if again else read
        records = trend.of(read) if trend is not None else read
    with workers(jobs) as each:
        given = (
            records
            if records is not None
            else collected(paths, config, mapping, found, judges if rescore else (), each)
        )
        report = make_report(given, keys, libraries=judges, rescore=rescore, plan=plan_of(paths), each=each)
    tables = [*report.tables, *decision_tables.all_tables(_decisions(decisions or []))]
    tables += based([forecast_tables.forecasts(trend)], report.basis) if trend is not None else []
    selected = [grouped(t, keys) for t in select(tables, names, whole, chosen == "csv" and out is None)]
    if chosen == "csv" and out is None and not names:
        print(
            f"osma: CSV prints one table, here {selected[0].key}; --table names another, --out writes all",
            file=sys.stderr,
        )
    if out is not None:
        for path in write(selected, out, chosen):
            print(path)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(render(t, chosen, width) for t in selected), end="")
    if preferences is not None:
        _write_preferences(report.scores, preferences)
    if report.scores is not None and len(report.scores) and not report.scores.clauses:
        print("osma: Safety is unknown: no scored clause is active; --table inactive says why", file=sys.stderr)
    if report.scores is not None:
        # what was judged again was judged by them; what could not be is told above
        found.remarks += [] if again else _not_used(report.scores, config, library, rules, gates)
        found.remarks += _repeated(report.scores)
    if told(found):
        return EXIT_BAD_INPUT
    if fail_on_violation and report.scores is not None:
        scores = report.scores
        if bool(((scores.unsafe | scores.safety_unknown) & ~scores.aborted).any()):
            return EXIT_FINDINGS
    return EXIT_OK


def _not_used(
    scores: ScoreTable, config: MonitorConfig, library: Path | None, rules: Path | None, gates: str | None
) -> list[str]:
    """What was asked for and judged none of the episodes."""
    asked = {
        f"--library {library}": library is not None and config.library.hash not in scores.library_hash,
        f"--rules {rules}": rules is not None and config.registry.hash not in scores.registry_hash,
        f"--gates {gates}": gates is not None and gates not in scores.gate_semantics,
    }
    words = " and ".join(word for word, unused in asked.items() if unused)
    return [f"{words}: not used, these episodes are judged already; --rejudge does it anew"] if words else []


def _repeated(scores: ScoreTable) -> list[str]:
    """Episodes that are there more than once, such as copies of a file: each of them counts."""
    counts = Counter(zip(*(scores.column(key) for key in KEYS), strict=True))
    again = [key for key, count in counts.items() if count > 1]
    if not again:
        return []
    more = sum(counts[key] - 1 for key in again)
    named = f"{again[0][0]}{', ...' if len(again) > 1 else ''}"
    return [f"{more} of the episodes repeat one of the same id, policy, task and seed, and count again ({named})"]


def _decisions(paths: Sequence[Path]) -> dict[str, list[Decision]]:
    if not paths:
        return {}
    from sim_bridge.policies.selection import read_decisions

    names = [path.stem for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    try:
        return {label: read_decisions(path) for label, path in zip(labels, paths, strict=True)}
    except (OSError, UnicodeDecodeError) as error:
        named = ", ".join(map(str, paths))
        raise UserError(
            f"--decisions {named}: {error}; expected the file that rollout_selection's option log named"
        ) from error


def judge(library: Path | None, gates: str, rules: Path | None = None) -> MonitorConfig:
    """What judges sources that are not judged yet."""
    for known in GATE_SEMANTICS:
        if gates == known:
            return monitor_config(library, rules, gate_semantics=known)
    raise UserError(f"--gates {gates}: expected one of {', '.join(GATE_SEMANTICS)}")


def _write_preferences(scores: ScoreTable | None, path: Path) -> None:
    pairs = preference_pairs(scores) if scores is not None else []
    try:
        path.write_text(to_json_lines(pairs), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose a file that can be written") from error
    print(f"{len(pairs)} preference pairs in {path}", file=sys.stderr)
    if scores is None or not pairs:
        return
    states = scores.scored().groups(("policy", *STATE_KEYS)).values()
    several = sum(len(rows) > 1 for rows in states)
    if several:
        print(
            f"osma: the seed stands for the initial state; {several} of {len(states)} hold several episodes of one "
            "policy, which start alike only if the source says its seeds",
            file=sys.stderr,
        )


def format_of(word: str) -> Format:
    """The output format of that name."""
    for known in FORMATS:
        if word == known:
            return known
    raise UserError(f"--format {word}: expected one of {', '.join(FORMATS)}")


def select(tables: Sequence[Table], keys: Sequence[str], everything: bool, only_one: bool) -> list[Table]:
    """The tables to print. ``only_one``: a stream of CSV holds one table, the first unless one is named."""
    known = {t.key: t for t in tables}
    wrong = [key for key in keys if key not in known]
    if wrong:
        why = f"; {_WHY[wrong[0]]}" if wrong[0] in _WHY else ""
        raise UserError(f"--table {wrong[0]}: these episodes give {', '.join(known)}{why}")
    picked = [known[key] for key in keys] if keys else [t for t in tables if everything or t.key in MAIN]
    if only_one and len(picked) > 1:
        if keys:
            raise UserError("--format csv prints one table; name one with --table, or write all with --out FOLDER")
        picked = picked[:1]
    return picked


def grouped(table: Table, by: Sequence[str]) -> Table:
    """The table, with a note where it has no column that it was to be grouped by."""
    absent = [name for name in by if key_of(name) not in table.frame.columns and name not in DEFAULT_BY]
    if not absent or table.empty:
        return table
    return replace(table, notes=(*table.notes, f"This table is not grouped by {', '.join(absent)}."))


def write(tables: Sequence[Table], folder: Path, form: Format) -> list[Path]:
    """One file a table in ``folder`` (made if absent)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for t in tables:
            path = folder / f"{t.key}{SUFFIX[form]}"
            path.write_text(render(t, form), encoding="utf-8")
            paths.append(path)
        return paths
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose a folder that can be written") from error
