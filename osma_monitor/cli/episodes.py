"""Episodes from the paths of a command line, and the report that they give: shared by score, report and demo."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.safety import Library
from osma_monitor.io.configuration import clause_library
from osma_monitor.io.store import read_episodes
from osma_monitor.report import build
from osma_monitor.report.model import Report

#: A run folder's own copy of the clause library that judged it.
LIBRARY_FILE = "library.yaml"
#: Episodes after which reading says how far it is.
_TELL_EVERY = 250


def episodes(paths: Sequence[Path]) -> Iterator[EpisodeRecord]:
    """The records of files, run folders and data sets. Several runs of the same policy are told apart by run.

    Raises UserError when a path is not there or when there is no finished episode at all.
    """
    labels = _labels(paths)
    count = 0
    console = Console(stderr=True)
    with console.status("reading episodes") as status:
        for path in paths:
            for record in read_episodes(path):
                count += 1
                if count % _TELL_EVERY == 0:
                    status.update(f"reading episodes: {count}")
                label = labels.get(path, "")
                yield (
                    replace(record, info=replace(record.info, policy=f"{record.info.policy} ({label})"))
                    if label
                    else record
                )
    if not count:
        names = ", ".join(map(str, paths))
        raise UserError(
            f"{names}: no finished episode (*.parquet) in there; `osma run` or the safety_monitor node make them"
        )


def _labels(paths: Sequence[Path]) -> dict[Path, str]:
    """A label for each path when the same policy occurs in several of them; else none."""
    if len(paths) < 2:
        return {}
    seen: dict[str, Path] = {}
    for path in paths:
        for policy in {record.info.policy for record in read_episodes(path)}:
            if seen.setdefault(policy, path) != path:
                names = [p.resolve().stem for p in paths]
                if len(set(names)) == len(names):
                    return dict(zip(paths, names, strict=True))
                return {p: str(p) for p in paths}
    return {}


def make_report(
    records: Iterable[EpisodeRecord],
    by: Sequence[str] = build.DEFAULT_BY,
    traces: bool = False,
    title: str = "Safety report",
    libraries: Sequence[Library] = (),
    facts: dict[str, str] | None = None,
    rescore: bool = False,
) -> Report:
    """The report of ``records``; ``rescore`` also tries other thresholds. UserError for an unknown ``by`` column.

    ``libraries`` are those that may have judged; clauses are described, and thresholds varied, by the one that did.
    """
    # which one it was is known after reading, and the signals to keep are the same in all but exotic libraries
    collected = build.collect(records, traces, libraries[0] if rescore and libraries else None)
    judged = next((x for x in libraries if collected.scores.library_hash == (x.hash,)), None)
    try:
        again = judged if rescore else None
        return build.build(collected, by, title, facts, describe(judged) if judged else {}, rescore=again)
    except ValueError as error:
        raise UserError(str(error)) from error


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
    for path in [*(p / LIBRARY_FILE for p in paths), None]:
        if path is None or path.is_file():
            with contextlib.suppress(UserError):
                found.append(clause_library(path))
    return list({library.hash: library for library in found}.values())


def columns(words: Sequence[str]) -> tuple[str, ...]:
    """Column names from ``--by``, given repeatedly or with commas."""
    return tuple(dict.fromkeys(part.strip() for word in words for part in word.split(",") if part.strip()))
