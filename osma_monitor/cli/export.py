"""`osma export`: episodes in formats of other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pyarrow.csv
import typer

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.io.bag.pictures import keep_pictures
from osma_monitor.io.bag.source import bag_name
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.datasets.lerobot import is_lerobot
from osma_monitor.io.datasets.videos import keep_video_frames
from osma_monitor.io.export_mcap import export_mcap
from osma_monitor.io.export_rerun import export_rerun
from osma_monitor.io.sources import Findings, expand, open_sources
from osma_monitor.io.store import file_stem
from osma_monitor.io.tables import record_table

Write = Callable[[EpisodeRecord, Path, MonitorConfig], Path]


def _csv(record: EpisodeRecord, path: Path, config: MonitorConfig) -> Path:
    table = record_table(record)
    pyarrow.csv.write_csv(table.set_column(1, "obstacle", table["obstacle"].cast("string")), path)
    return path


FORMATS: dict[str, tuple[str, Write]] = {
    "mcap": (".mcap", export_mcap),
    "rerun": (".rrd", export_rerun),
    "csv": (".csv", _csv),
}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("export")(export)


def export(
    paths: Annotated[list[Path], typer.Argument(help="Runs, episode files, bags, data sets.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for one file an episode.")],
    to: Annotated[str, typer.Option(help="mcap (Foxglove; layout in config/foxglove), rerun or csv.")] = "mcap",
    mapping: Annotated[
        Path | None, typer.Option("--map", help="Mapping file for bags, field map for data sets.")
    ] = None,
    episode: Annotated[list[str] | None, typer.Option(help="Only this episode id; may be given again.")] = None,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Also keep the pictures of bags and video frames of LeRobot data sets nearest to each violation.",
        ),
    ] = False,
    write_back: Annotated[
        bool, typer.Option("--write-back", help="Copy LeRobot data sets with safety columns added, into the folder.")
    ] = False,
) -> int:
    """Write episodes as MCAP, rerun recordings or CSV; or LeRobot data sets with safety columns."""
    if to not in FORMATS:
        raise UserError(f"--to {to}: expected one of {', '.join(FORMATS)}")
    config = monitor_config()
    findings = Findings()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}; choose a folder that can be written") from error
    if write_back:
        from osma_monitor.io.datasets.write_back import write_back as copy

        for path in paths:
            print(copy(path, out / path.resolve().name, config, mapping, findings=findings))
        return _end(findings)
    suffix, write = FORMATS[to]
    films = [s for path in paths for s in expand(path) if pictures and is_lerobot(s)]
    if films:
        import av  # noqa: F401 - a missing package is said before the work, not after it
    wanted = set(episode or ())
    written = 0
    judged: dict[str, list[EpisodeRecord]] = {}
    filmed: dict[str, list[EpisodeRecord]] = {}
    for record in open_sources(paths, config, mapping, findings=findings):
        if wanted and record.info.episode_id not in wanted:
            continue
        path = _free(out, record, suffix)
        usual = f"{file_stem(record.info.episode_id)}{suffix}"
        if path.name != usual:
            findings.remarks.append(f"{path}: under this name, since {usual} is there")
        print(write(record, path, config))
        written += 1
        if pictures and "bag" in record.provenance.session:
            judged.setdefault(record.provenance.session["bag"], []).append(_without_steps(record))
        elif pictures and record.provenance.session.get("inputs") == "lerobot":
            filmed.setdefault(record.provenance.session["data"], []).append(_without_steps(record))
    for source in films:
        try:
            for kept in keep_video_frames(source, filmed.get(source.name, ()), out, findings.problems):
                print(kept)
        except UserError as error:
            findings.problems.append(str(error))
    bags = [s for path in paths if judged for s in expand(path) if s not in films]
    for source in bags:
        try:
            for kept in keep_pictures(source, judged.get(bag_name(source), ()), out):
                print(kept)
        except UserError as error:
            findings.problems.append(str(error))
    if not written:
        findings.problems.append("nothing was written: no episode matched")
    return _end(findings)


def _without_steps(record: EpisodeRecord) -> EpisodeRecord:
    """What the pictures need of a record, without its signals."""
    return replace(record, signals={}, obstacle=())


def _free(out: Path, record: EpisodeRecord, suffix: str) -> Path:
    """A name that nothing has yet."""
    stem = file_stem(record.info.episode_id)
    path, number = out / f"{stem}{suffix}", 1
    while path.exists():
        number += 1
        path = out / f"{stem}-{number}{suffix}"
    return path


def _end(findings: Findings) -> int:
    for line in [*findings.remarks, *findings.problems]:
        print(f"osma: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT if findings.problems else EXIT_OK
