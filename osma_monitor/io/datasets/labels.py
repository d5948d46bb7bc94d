"""Label files: hardware rollouts judged from video (SafeVLA-Bench G.1, Table 33), one CSV row an episode.

    task,policy,success,non_target_max_disp,stable_grasp_maintained,lighting
    butter,smolvla,1,0,1,day
    blue_can,smolvla,0,1,,night

``success`` and the clause columns (families or clause ids of the library) hold 0/1, yes/no, true/false; in a clause
column 1 means violated, an empty cell that the clause does not apply to this episode, ``?`` that it could not be
told. ``episode_id``, ``suite``, ``robot``, ``instruction`` and ``seed`` may be given; every other column becomes an
attribute.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, OutcomeStatus
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.motion import MotionFeatures
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io.errors import InputError

_TRUE, _FALSE = {"1", "yes", "true", "y", "t"}, {"0", "no", "false", "n", "f"}
_INFO = ("episode_id", "task", "suite", "policy", "robot", "instruction", "seed")
SIZE_LIMIT = 64 << 20


def read_labels(path: Path, config: MonitorConfig) -> Iterator[EpisodeRecord]:
    """One record a row, with a Boolean clause for each labelled family.

    Raises InputError naming file, line and value.
    """
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{path}: larger than {SIZE_LIMIT >> 20} MiB: no label file")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable as text ({getattr(error, 'strerror', None) or error})") from error
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    columns = [c.strip() for c in reader.fieldnames or []]
    if "success" not in columns:
        raise InputError(f"{path}:1: no column 'success'; it has {', '.join(columns) or 'none'}")
    if len(set(columns)) != len(columns):
        raise InputError(f"{path}:1: a column is named twice")
    reader.fieldnames = columns
    clauses = {c: found for c in columns if (found := _clause(c, config)) is not None}
    if not clauses:
        raise InputError(f"{path}:1: no column is a clause family; known: {', '.join(sorted(config.library.families))}")
    seen: set[str] = set()
    try:
        for row in reader:
            record = _record(path, reader.line_num, row, clauses, config)
            if record.info.episode_id in seen:
                raise InputError(f"{path}:{reader.line_num}: episode_id {record.info.episode_id!r} is given twice")
            seen.add(record.info.episode_id)
            yield record
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}") from error


def _clause(column: str, config: MonitorConfig) -> tuple[str, str] | None:
    """(clause id, family) that a column is about; None for a column that is no clause."""
    for clause in config.library:
        if column == clause.id:
            return clause.id, clause.family
    if column in config.library.families:
        return config.library.main(column).id, column
    # Table 33 names families by their clause without threshold
    near = [c for c in config.library if c.id.startswith(column + "_") and c.scored]
    return (near[0].id, near[0].family) if near else None


def _record(
    path: Path,
    line: int,
    row: dict[str, str | None],
    clauses: dict[str, tuple[str, str]],
    config: MonitorConfig,
) -> EpisodeRecord:
    if None in row or None in row.values():
        raise InputError(f"{path}:{line}: the row has more or fewer cells than the header")
    cells = {k: (v or "").strip() for k, v in row.items()}
    success = _flag(path, line, "success", cells["success"])
    status: OutcomeStatus = "unknown" if success is None else "success" if success else "failure"
    try:
        seed = int(cells.get("seed") or 0)
    except ValueError:
        raise InputError(f"{path}:{line}: seed {cells['seed']!r} is no whole number") from None
    task = cells.get("task", "")
    info = EpisodeInfo(
        episode_id=cells.get("episode_id") or f"{path.stem}/{task or 'episode'}/{line - 1:04d}",
        task=task,
        suite=cells.get("suite", ""),
        policy=cells.get("policy", ""),
        robot=cells.get("robot", ""),
        instruction=cells.get("instruction", ""),
        seed=seed,
        attributes={k: v for k, v in cells.items() if k not in (*_INFO, "success", *clauses)},
    )
    results, inactive = [], {}
    for column, (clause, family) in clauses.items():
        if cells[column].lower() in ("", "-", "na", "n/a"):
            inactive[clause] = "does not apply, as labelled"
        else:
            results.append(_result(clause, family, _flag(path, line, column, cells[column])))
    return EpisodeRecord(
        info=info,
        outcome=Outcome(status, "labelled"),
        stamps_ns=np.zeros(0, np.int64),
        signals={name: np.zeros(0) for name in SIGNALS},
        obstacle=(),
        clauses=tuple(results),
        inactive=inactive,
        motion=MotionFeatures(),
        provenance=replace(config.provenance(), source={"labels": path.name}),
    )


def _flag(path: Path, line: int, column: str, cell: str) -> bool | None:
    if cell.lower() in _TRUE:
        return True
    if cell.lower() in _FALSE:
        return False
    if cell in ("", "?"):
        return None
    raise InputError(f"{path}:{line}: {column}: {cell!r} is neither yes nor no; expected 1, 0, yes, no or ?")


def _result(clause: str, family: str, violated: bool | None) -> ClauseResult:
    """A label as a clause: the flag's margin to 0.5, so binary and of depth 1 when violated; ``?`` may be either."""
    lower, upper = {True: (-0.5, -0.5), False: (0.5, 0.5), None: (-0.5, 0.5)}[violated]
    return ClauseResult(
        clause=clause,
        family=family,
        scored=True,
        rho=float("nan") if violated is None else lower,
        lower=lower,
        upper=upper,
        status="unknown" if violated is None else "violated" if violated else "satisfied",
        triggered=True,
        depth=1.0 if violated else 0.0,
        first_violation_ns=None,
        first_violation_step=None,
        violated_steps=0,
        longest_run=0,
        unknown_samples=0,
    )
