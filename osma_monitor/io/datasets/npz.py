"""npz archives by a field map: the arrays of one episode, or of several told apart by a column of episode numbers."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.robot import RobotModel
from osma_monitor.io.datasets.fieldmap import FieldMap, episode_columns, known_columns, pick, stamps_of
from osma_monitor.io.datasets.hdf5 import ArrayEpisode
from osma_monitor.io.errors import InputError

#: An archive may expand to this much, and past 64 MiB to no more than 200 times its size.
EXPANDED_LIMIT, RATIO_LIMIT, FREE_EXPANSION = 16 << 30, 200, 64 << 20


def episodes(path: Path, fields: FieldMap) -> Iterator[ArrayEpisode | InputError]:
    """The episodes of an npz file; one that can't be used comes as the error that says why. Raises InputError."""
    arrays = _load(path, fields)
    number = pick(_column(arrays), fields.episodes, str(path)).reshape(-1) if fields.episodes else None
    if number is None:
        yield _episode(path, arrays, fields, "")
        return
    for value in dict.fromkeys(number.tolist()):
        rows = np.flatnonzero(number == value)
        part = {n: a[rows] if len(a.shape) and len(a) == len(number) else a for n, a in arrays.items()}
        try:
            yield _episode(path, part, fields, f"/{value:g}" if isinstance(value, float) else f"/{value}")
        except InputError as error:
            yield error


def _load(path: Path, fields: FieldMap) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(i.file_size for i in archive.infolist())
        packed = max(path.stat().st_size, 1)
        if expanded > EXPANDED_LIMIT or (expanded > FREE_EXPANSION and expanded > RATIO_LIMIT * packed):
            raise InputError(
                f"{path}: {packed / 1e6:.3g} MB claim to expand to {expanded / 1e6:.3g} MB; "
                "refused as a decompression bomb"
            )
        with np.load(path, allow_pickle=False) as data:
            result = {}
            for name in data.files:
                try:
                    result[name] = data[name]
                except ValueError:  # object arrays would be unpickled: never
                    continue
            return result
    except InputError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path}: not readable as npz ({' '.join(str(error).split())[:120]})") from error


def _column(arrays: dict[str, NDArray[Any]]) -> Any:
    def column(name: str) -> NDArray[Any]:
        if name not in arrays:
            raise KeyError(name, known_columns(list(arrays)))
        return arrays[name]

    return column


def _episode(path: Path, arrays: dict[str, NDArray[Any]], fields: FieldMap, suffix: str) -> ArrayEpisode:
    where, column, given = f"{path}{suffix}", _column(arrays), fields.info
    columns = episode_columns(column, fields, where)
    seconds = pick(column, fields.time, where).astype(np.float64).reshape(-1) if fields.time else None
    stamps = stamps_of(seconds, columns.rows, fields.rate, where)
    outcome = Outcome(given.outcome, "", columns.rows)
    if fields.success:
        done = bool(pick(column, fields.success, where).reshape(-1)[-1:].any())
        outcome = Outcome("success" if done else "failure", "labelled in the file", columns.rows)
    task = given.task
    if fields.task and fields.task in arrays:
        task = str(arrays[fields.task].reshape(-1)[0])
    info = EpisodeInfo(
        episode_id=f"{path.stem}{suffix}",
        task=task or path.stem,
        suite=given.suite,
        policy=given.policy,
        robot=fields.robot.name if isinstance(fields.robot, RobotModel) else "",
        instruction=given.instruction,
        seed=given.seed,
        templates=given.templates,
        tags=given.tags,
        sources=fields.columns.parts(),
        attributes=given.attributes,
    )
    return ArrayEpisode(info, outcome, columns, stamps)
