"""Episodes from the paths of a command line, and the report that they give: shared by score, report and demo."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from osma_monitor.cli.exits import one_line
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics.navigation_episode import PlannedTask
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.safety import Library
from osma_monitor.io.configuration import clause_library, kept_libraries, monitor_config
from osma_monitor.io.partitions import score_on_cluster
from osma_monitor.io.plans import planned
from osma_monitor.io.scoring import DatasetScores, labelled, policies, with_label
from osma_monitor.io.sources import Findings, expand, kind_of, open_sources
from osma_monitor.report import build
from osma_monitor.report.model import Report
from osma_monitor.report.stored import collect_stored, together

#: Episodes after which reading says how far it is.
_TELL_EVERY = 250


def episodes(
    paths: Sequence[Path],
    config: MonitorConfig | None = None,
    mapping: Path | None = None,
    findings: Findings | None = None,
    scheduler: str = "",
) -> Iterator[EpisodeRecord]:
    """The records of whatever ``paths`` are: run folders, episode files, data sets, bags, labels.

    Stored episodes come as they were judged; what is not judged yet is judged by ``config``. Several runs of the same
    policy are told apart by run. What could not be read is in ``findings``. ``scheduler`` is the address of a Dask
    scheduler whose workers do the reading and judging.

    Raises UserError when there is no episode at all.
    """
    found = findings if findings is not None else Findings()
    labels = _labels(paths)
    count = 0
    for record in _records([(path, labels.get(path, "")) for path in paths], config, mapping, found, scheduler):
        count += 1
        yield record
    if not count:
        raise _nothing(paths, found)


def _nothing(paths: Sequence[Path], found: Findings) -> UserError:
    names = ", ".join(map(str, paths))
    why = found.problems or [f"{names}: no finished episode in there; `osma run` and safety_monitor make them"]
    return UserError(why[0])


def _records(
    sources: Sequence[tuple[Path, str]],
    config: MonitorConfig | None,
    mapping: Path | None,
    found: Findings,
    scheduler: str = "",
) -> Iterator[EpisodeRecord]:
    """The records of sources, each with the label behind the names of its policies."""
    config = config if config is not None else monitor_config()
    count = 0
    with Console(stderr=True).status("reading") as status:

        def tell(fraction: float, what: str) -> None:
            status.update(f"reading {escape(what)}")

        def count_pieces(done: int, total: int) -> None:
            status.update(f"reading: {done} of {total} pieces")

        for path, label in sources:
            if scheduler:
                records = score_on_cluster([path], config, scheduler, mapping, findings=found, on_progress=count_pieces)
            else:
                records = open_sources([path], config, mapping, findings=found, on_progress=tell)
            for record in records:
                count += 1
                if count % _TELL_EVERY == 0:
                    status.update(f"reading: {count} episodes")
                yield with_label(record, label)


def collected(
    paths: Sequence[Path],
    config: MonitorConfig | None = None,
    mapping: Path | None = None,
    findings: Findings | None = None,
    rescore: Sequence[Library] = (),
    each: Each = map,
) -> build.Collected:
    """What scoring needs of the records that `episodes` gives, compacted data sets read column by column.

    ``rescore`` are the libraries whose other thresholds are tried, where they judged; ``each`` is `map`, or that of a
    pool of threads. Raises UserError when there is no episode at all.
    """
    found = findings if findings is not None else Findings()
    labels = _labels(paths)
    parts: list[build.Collected] = []
    others: list[tuple[Path, str]] = []

    def read_others() -> None:
        if others:
            parts.append(build.collect(_records(others, config, mapping, found), rescore=rescore))
            others.clear()

    for path in paths:
        label = labels.get(path, "")
        for source in expand(path):
            stored = _columns_of(source, label, each)
            if stored is None:
                others.append((source, label))
                continue
            read_others()
            parts.append(collect_stored(stored, rescore, each))
    read_others()
    if not any(len(part.scores) for part in parts):
        raise _nothing(paths, found)
    return together(parts)


def _columns_of(source: Path, label: str, each: Each) -> DatasetScores | None:
    """A compacted data set by its columns; None for anything else, and for one that is empty or damaged.

    `_records` reads what there is of it, and says what is wrong.
    """
    with contextlib.suppress(UserError):
        if kind_of(source) == "dataset":
            with Console(stderr=True).status(f"reading {escape(source.name)}"):
                data = DatasetScores(source, label, each)
            return data if len(data.table) else None
    return None


@contextlib.contextmanager
def workers(count: int) -> Iterator[Each]:
    """The map of ``count`` threads (0: one a core); with one the plain `map`. The numbers are the same."""
    count = count or max(1, len(os.sched_getaffinity(0)))
    if count == 1:
        yield map
        return
    with ThreadPoolExecutor(count) as pool:
        yield pool.map


def told(findings: Findings) -> bool:
    """Print what was met while reading, a line each; whether any of it is a problem."""
    for line in [*findings.remarks, *findings.problems]:
        print(f"osma: {one_line(line)}", file=sys.stderr)
    return bool(findings.problems)


def _labels(paths: Sequence[Path]) -> dict[Path, str]:
    """A label for each path when the same policy occurs in several stored runs; else none."""
    stored = [p for p in paths if len(paths) > 1 and _is_stored(p)]
    seen: dict[str, Path] = {}
    for path in stored:
        for policy in policies(path):
            if seen.setdefault(policy, path) != path:
                names = [p.resolve().stem for p in stored]
                if len(set(names)) == len(names):
                    return dict(zip(stored, names, strict=True))
                return {p: str(p) for p in stored}
    return {}


def _is_stored(path: Path) -> bool:
    try:
        return kind_of(path) in ("run", "episode", "dataset")
    except UserError:
        return False  # said when it is read


def make_report(
    records: Iterable[EpisodeRecord] | build.Collected,
    by: Sequence[str] = build.DEFAULT_BY,
    traces: bool = False,
    title: str = "Safety report",
    libraries: Sequence[Library] = (),
    facts: dict[str, str] | None = None,
    rescore: bool = False,
    plan: Iterable[PlannedTask] = (),
    each: Each = map,
) -> Report:
    """The report of ``records``, or of what was collected of them.

    ``rescore`` also tries other thresholds; ``plan`` says what was to run (`plan_of`). Raises UserError for an unknown
    ``by`` column.

    ``libraries`` are those that may have judged; clauses are described, and thresholds varied, by the one that did.
    """
    again = libraries if rescore else ()
    found = records if isinstance(records, build.Collected) else build.collect(records, traces, again)
    judged = next((x for x in libraries if found.scores.library_hash == (x.hash,)), None)
    try:
        about = describe(judged) if judged else {}
        return build.build(found, by, title, facts, about, plan=plan, each=each)
    except ValueError as error:
        raise UserError(str(error)) from error


def plan_of(paths: Sequence[Path]) -> list[PlannedTask]:
    """What the runs behind ``paths`` were to carry out; policies are named as in `episodes`."""
    labels = _labels(paths)
    found = []
    for path in paths:
        label = labels.get(path, "")
        for source in expand(path) if path.exists() else ():
            for task in planned(source):
                found.append(_placed(replace(task, policy=labelled(task.policy, label))))
    return found


def _placed(planned: PlannedTask) -> PlannedTask:
    """With the place of a kitchen task, as its episodes say it; other tasks as they are."""
    from sim_bridge.kitchen.tasks import NO_OBSTACLE, parse_task

    try:
        task = parse_task(planned.task)
    except UserError:
        return planned
    obstacle = "" if task.obstacle == NO_OBSTACLE else task.obstacle
    return replace(
        planned, cell=task.cell, layout=str(task.layout), route=task.route, tier=task.tier, obstacle=obstacle
    )


def describe(library: Library) -> dict[str, str]:
    """What each clause demands, for people."""
    out = {}
    for clause in library:
        limit = "" if clause.binary else f", limit {clause.threshold:g} {clause.unit}"
        text = clause.description or clause.family.replace("_", " ")
        out[clause.id] = f"{text}{limit}"
    return out


def libraries(paths: Sequence[Path], given: Path | None = None) -> list[Library]:
    """The clause libraries that may have judged these runs: the one given, the runs' own copies, the package's.

    Raises UserError when the one that was given can't be read; the others are left out then.
    """
    found = [clause_library(given)] if given is not None else []
    for path in [*(kept for p in paths for kept in kept_libraries(p)), None]:
        if path is None or path.is_file():
            with contextlib.suppress(UserError):
                found.append(clause_library(path))
    return list({library.hash: library for library in found}.values())


def columns(words: Sequence[str]) -> tuple[str, ...]:
    """Column names from ``--by``, given repeatedly or with commas."""
    return tuple(dict.fromkeys(part.strip() for word in words for part in word.split(",") if part.strip()))
