"""HDF5 demonstrations of robomimic and LIBERO (and others by a field map): one group an episode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.robot import RobotModel
from osma_monitor.io.datasets.fieldmap import (
    EpisodeColumns,
    FieldMap,
    JointColumns,
    PartColumns,
    PoseColumns,
    episode_columns,
    known_columns,
    stamps_of,
)
from osma_monitor.io.errors import InputError

MAGIC = b"\x89HDF\r\n\x1a\n"
#: An array that claims more than this is no episode.
ARRAY_LIMIT = 4 << 30


@dataclass(frozen=True)
class ArrayEpisode:
    """One episode out of arrays."""

    info: EpisodeInfo
    outcome: Outcome
    columns: EpisodeColumns
    stamps_ns: NDArray[np.int64]


def episodes(path: Path, fields: FieldMap) -> Iterator[ArrayEpisode | InputError]:
    """The episodes of an HDF5 file; one that can't be used comes as the error that says why.

    Raises InputError when the file has none, MissingDependencyError's ImportError when h5py is absent.
    """
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path}: not readable as HDF5 ({' '.join(str(error).split())[:120]})") from error
    with file:
        name = fields.episodes or ("data" if "data" in file else "/")
        group = file.get(name)
        if not isinstance(group, h5py.Group):
            raise InputError(f"{path}: no group {name!r}; it has {known_columns(list(file))}")
        demos = sorted((n for n in group if isinstance(group[n], h5py.Group)), key=_number)
        if not demos:
            raise InputError(f"{path}: group {name!r} has no episodes (groups) in it")
        about = _about(group)
        for demo in demos:
            try:
                yield _episode(path, group[demo], demo, fields, about)
            except InputError as error:
                yield error


def _number(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _about(group: Any) -> dict[str, Any]:
    """What the group's attributes say: task name, instruction, control rate (robomimic's env_args, LIBERO's
    problem_info)."""
    result: dict[str, Any] = {}
    for key in ("env_args", "problem_info"):
        try:
            data = json.loads(group.attrs[key])
        except (KeyError, ValueError, TypeError):
            continue
        if not isinstance(data, dict):
            continue
        keywords = data.get("env_kwargs") if isinstance(data.get("env_kwargs"), dict) else {}
        result.setdefault("task", data.get("env_name") or data.get("problem_name"))
        result.setdefault("rate", (keywords or {}).get("control_freq"))
        language = data.get("language_instruction")
        result["instruction"] = (
            "".join(language) if isinstance(language, list) else language or result.get("instruction")
        )
    return result


def _suggested(group: Any) -> PartColumns:
    """Columns by the names that robomimic and LIBERO use."""

    def first(*names: str) -> str:
        return next((n for n in names if n in group), "")

    position = first("obs/robot0_joint_pos", "obs/joint_states", "obs/joint_pos")
    ee = first("obs/robot0_eef_pos", "obs/ee_pos")
    turn = first("obs/robot0_eef_quat", "obs/ee_ori")
    return PartColumns(
        joints=JointColumns(position, first("obs/robot0_joint_vel"), first("obs/robot0_joint_effort"))
        if position
        else None,
        ee=PoseColumns(ee, turn, "axis_angle" if turn == "obs/ee_ori" else "quat_xyzw") if ee else None,
    )


def _episode(path: Path, group: Any, name: str, fields: FieldMap, about: dict[str, Any]) -> ArrayEpisode:
    import h5py

    where = f"{path}: {name}"

    def column(text: str) -> NDArray[Any]:
        data = group.get(text)
        if not isinstance(data, h5py.Dataset):
            found: list[str] = []
            group.visititems(lambda key, item: found.append(key) if isinstance(item, h5py.Dataset) else None)
            raise KeyError(text, known_columns(found))
        if data.size * data.dtype.itemsize > ARRAY_LIMIT:
            raise InputError(f"{where}: {text!r} claims {data.size * data.dtype.itemsize / 1e9:.3g} GB; refused")
        try:
            return np.asarray(data[()])
        except OSError as error:
            raise InputError(f"{where}: {text!r} can't be read ({' '.join(str(error).split())[:100]})") from error

    if not fields.columns.parts():
        fields = replace(fields, columns=_suggested(group))
    columns = episode_columns(column, fields, where)
    rate = fields.rate or float(about.get("rate") or 0.0) or 20.0
    seconds = column(fields.time).astype(np.float64).reshape(-1) if fields.time else None
    stamps = stamps_of(seconds, columns.rows, rate, where)
    given = fields.info
    info = EpisodeInfo(
        episode_id=f"{path.stem}/{name}",
        task=given.task or str(about.get("task") or path.stem),
        suite=given.suite,
        policy=given.policy,
        robot=fields.robot.name if isinstance(fields.robot, RobotModel) else "",
        instruction=given.instruction or str(about.get("instruction") or ""),
        seed=given.seed,
        templates=given.templates,
        tags=given.tags,
        sources=fields.columns.parts(),
        attributes=given.attributes,
    )
    return ArrayEpisode(info, _outcome(group, column, fields, columns.rows), columns, stamps)


def _outcome(group: Any, column: Any, fields: FieldMap, rows: int) -> Outcome:
    name = fields.success
    if name and name in group.attrs:
        return Outcome("success" if bool(group.attrs[name]) else "failure", "labelled in the file", rows)
    if name or "dones" in group:
        # robomimic and LIBERO: done is set in the step in which the task succeeds
        try:
            done = bool(np.asarray(column(name or "dones")).reshape(-1)[-1:].any())
        except KeyError as error:
            raise InputError(f"no column {name!r}; it has {error.args[-1]}") from None
        return Outcome("success" if done else "failure", "labelled in the file", rows)
    return Outcome(fields.info.outcome, "", rows)
