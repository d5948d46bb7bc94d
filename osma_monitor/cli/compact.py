"""`osma compact`: merges episode files into a data set that DuckDB, Polars and pandas read directly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from osma_monitor.cli.episodes import told
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_OK
from osma_monitor.io.dataset import compact
from osma_monitor.io.sources import Findings, distinct


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compact")(compact_runs)


def compact_runs(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, episode files, compacted data sets.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new data set; must not exist.")],
) -> int:
    """Merge many episode files into one partitioned data set (episodes, clauses, steps as Parquet).

    The sources stay. Files that can't be read are named, the rest is merged, and the exit code is 2.
    """
    found = Findings()
    paths = distinct(paths, found)
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        count = compact(
            paths,
            out,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            problems=found.problems,
        )
    wrong = told(found)
    print(f"{out}: {count} episodes")
    return EXIT_BAD_INPUT if wrong else EXIT_OK
