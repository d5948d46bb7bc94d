"""`osma report`: the HTML page of one or more runs, with tables and figures beside it where asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from osma_monitor.cli.episodes import columns, episodes, libraries, make_report, plan_of, told
from osma_monitor.cli.helptext import help_of
from osma_monitor.cli.scenes import picture_source
from osma_monitor.cli.score import format_of, write
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from osma_monitor.core.safety import Library
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.sources import Findings, distinct, kind_of
from osma_monitor.report.build import DEFAULT_BY
from osma_monitor.report.model import Report
from osma_monitor.report.traces import Pictures

PAGE = "report.html"
_OURS = b'<p class="brand">osma monitor'  #: what every page of ours holds


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report", help=help_of(report))(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, episode files, data sets, bags.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the page; by default the run's own, for bags and files the working folder."),
    ] = None,
    by: Annotated[list[str] | None, typer.Option(help="Columns that the tables group by.")] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Safety report",
    tables: Annotated[str, typer.Option(help="Also write every table: text, csv, markdown or latex.")] = "",
    figures: Annotated[str, typer.Option(help="Also write paper figures: pdf, svg or png.")] = "",
    pictures: Annotated[
        str, typer.Option(help="Picture of each kitchen drive: drawn, or rendered by the simulator's top camera.")
    ] = "",
    library: Annotated[
        Path | None, typer.Option(help="Clause library that judged, where it is not the package's; judges bags too.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--map", help="Mapping of a bag's topics or of a data set's columns (osma map).")
    ] = None,
) -> int:
    """Write the page of one or more runs: which policy is safer, what broke, every episode's trace.

    The page is one file, works offline and holds its own data. Two policies are compared in pairs of the same task and
    seed. The path is printed last.
    """
    form = format_of(tables) if tables else None
    shown = picture_source(pictures) if pictures else None
    keys, found = columns(by or []) or DEFAULT_BY, Findings()
    runs = distinct(runs, found)
    place = page_place(runs, out)
    check_ours(place)
    judges = libraries(runs, library)
    records = episodes(runs, monitor_config(library), mapping, found)
    made = make_report(records, keys, True, title, judges, rescore=True, plan=plan_of(runs))
    if form is not None:
        write(made.tables, _beside(place, "tables"), form)
    if figures:
        from osma_monitor.report import figures as drawing

        drawing.save(made, _beside(place, "figures"), figures)
    code = EXIT_BAD_INPUT if told(found) else EXIT_OK
    if place.exists() and not (len(runs) == 1 and place.parent == runs[0]):
        print(f"osma: {place}: an earlier report, replaced", file=sys.stderr)
    print(write_page(made, place, judges, shown))
    return code


def page_place(runs: list[Path], out: Path | None) -> Path:
    """Where the page goes: into ``out``, into the only run's own folder, else into the working folder.

    There the page of a bag, data set or file bears its name; recordings are left as they are.
    """
    if out is not None or len(runs) > 1:
        return (out or Path()) / PAGE
    [run] = runs
    try:
        ours = run.is_dir() and kind_of(run) in ("run", "dataset")
    except UserError:  # a folder of several sources, or nothing at all: said when it is read
        ours = False
    return run / PAGE if ours else Path(f"{run.resolve().name if run.is_dir() else run.stem}.{PAGE}")


def _beside(page: Path, what: str) -> Path:
    """The folder of further files of a page: ``tables``, or ``<name>.tables`` beside ``<name>.report.html``."""
    return page.with_name(page.name.removesuffix(PAGE) + what)


def check_ours(page: Path) -> None:
    """Raises UserError when something stands in the page's place that `osma report` did not write."""
    if page.is_file() and _OURS not in page.read_bytes():
        raise UserError(f"{page}: is there and is no report of osma; move it, or choose another folder with --out")


def write_page(made: Report, path: Path, judges: Sequence[Library], pictures: Pictures | None = None) -> Path:
    """Write the page of a report and return its absolute path. UserError where that can't be done."""
    from osma_monitor.cli.scenes import scene_source
    from osma_monitor.report.margins import margin_source
    from osma_monitor.report.page import render_page

    text = render_page(made, margin_source(judges), scene_source(), pictures)
    check_ours(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose another folder with --out") from error
    return path.resolve()
