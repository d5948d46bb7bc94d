"""LeRobot data sets (v2.0, v2.1, v3.0) with pyarrow alone: episodes to frames; videos are for
videos.py.

v2 keeps one Parquet file an episode and JSON lines about them, v3 many episodes a file and Parquet about them. Both
describe their columns in ``meta/info.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.robot import RobotModel
from osma_monitor.io.datasets.fieldmap import (
    EpisodeColumns,
    FieldMap,
    JointColumns,
    PartColumns,
    episode_columns,
    known_columns,
    stamps_of,
)
from osma_monitor.io.errors import InputError

INFO = Path("meta") / "info.json"
_DATA_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_DATA_V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
#: Columns that are looked at for success, where the field map names none.
_SUCCESS = ("next.success", "success", "is_success")


def is_lerobot(path: Path) -> bool:
    """Whether the folder is a LeRobot data set."""
    return (path / INFO).is_file()


@dataclass(frozen=True)
class EpisodeEntry:
    """Where one episode's frames are: file, and rows of it from ``start`` on (None: found by its index column)."""

    index: int
    length: int
    file: Path
    task: str
    meta: dict[str, Any]


class LeRobotDataset:
    """One data set. Raises InputError when its meta files can't be read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.info = self._json(self.path / INFO)
        self.version = str(self.info.get("codebase_version", ""))
        if not self.version.startswith(("v2", "v3")):
            raise InputError(
                f"{self.path / INFO}: codebase_version is {self.version or 'absent'}, expected v2.x or v3.x; "
                "convert it with LeRobot first"
            )
        self.v3 = self.version.startswith("v3")
        self.features: dict[str, dict[str, Any]] = dict(self.info.get("features") or {})
        try:
            self.fps = float(self.info["fps"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.path / INFO}: fps is missing or no number") from None
        self.entries = self._episodes_v3() if self.v3 else self._episodes_v2()

    @staticmethod
    def _json(path: Path) -> dict[str, Any]:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not readable as JSON ({error})") from error
        if not isinstance(data, dict):
            raise InputError(f"{path}: expected an object")
        return data

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.path / "meta" / name
        try:
            with open(path, encoding="utf-8") as source:
                for number, line in enumerate(source, 1):
                    if line.strip():
                        try:
                            yield json.loads(line)
                        except ValueError as error:
                            raise InputError(f"{path}:{number}: not valid JSON ({error})") from error
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error

    def _episodes_v2(self) -> list[EpisodeEntry]:
        size = int(self.info.get("chunks_size") or 1000)
        template = str(self.info.get("data_path") or _DATA_V2)
        entries = []
        for meta in self._lines("episodes.jsonl"):
            try:
                index = int(meta["episode_index"])
                file = self.inside(template.format(episode_chunk=index // size, episode_index=index))
                entries.append(EpisodeEntry(index, int(meta["length"]), file, _first(meta.get("tasks")), meta))
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise InputError(f"{self.path}/meta/episodes.jsonl: an entry does not fit ({error!r})") from error
        return entries

    def _episodes_v3(self) -> list[EpisodeEntry]:
        template = str(self.info.get("data_path") or _DATA_V3)
        files = sorted((self.path / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        if not files:
            raise InputError(f"{self.path}/meta/episodes: no chunk-*/file-*.parquet in it")
        entries = []
        for file in files:
            try:
                schema = pq.read_schema(file)
                table = pq.read_table(file, columns=[n for n in schema.names if not n.startswith("stats/")])
                for meta in table.to_pylist():
                    place = template.format(chunk_index=meta["data/chunk_index"], file_index=meta["data/file_index"])
                    index = int(meta["episode_index"])
                    task = _first(meta.get("tasks"))
                    entries.append(EpisodeEntry(index, int(meta["length"]), self.inside(place), task, meta))
            except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, IndexError) as error:
                raise InputError(f"{file}: no episode table of LeRobot v3 ({error!r})") from error
        return entries

    def inside(self, place: str, key: str = "data_path") -> Path:
        """A file of the data set; what info.json says under ``key`` never leads out of it."""
        path = self.path / place
        if ".." in Path(place).parts or Path(place).is_absolute():
            raise InputError(f"{self.path / INFO}: {key} {place!r} leaves the data set")
        return path

    def names_of(self, column: str) -> tuple[str, ...]:
        """Names of a vector's elements, without the ``.pos`` that LeRobot appends to joints."""
        names: Any = (self.features.get(column.partition("[")[0]) or {}).get("names")
        if isinstance(names, dict):
            names = next(iter(names.values()), None)
        if not isinstance(names, (list, tuple)):
            return ()
        return tuple(str(n).removesuffix(".pos") for n in names)

    def table(self, entry: EpisodeEntry, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one episode, in order of frame_index."""
        try:
            table = _file_table(entry.file, None if columns is None else tuple(columns))
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{entry.file}: not readable as Parquet ({' '.join(str(error).split())[:120]})") from error
        if self.v3 or "episode_index" in table.column_names:
            found = np.flatnonzero(table["episode_index"].to_numpy() == entry.index)
            if len(found) and found[-1] - found[0] + 1 == len(found):
                table = table.slice(int(found[0]), len(found))
            else:
                table = table.take(found)
        return table

    def defaults(self, fields: FieldMap) -> FieldMap:
        """``fields``, or what the data set's own columns suggest where it names none."""
        if fields.columns.parts():
            return fields
        state = next((n for n in ("observation.state", "observation.qpos", "action") if n in self.features), "")
        if not state:
            raise InputError(f"{self.path}: no observation.state; name columns in a mapping (it has {self.columns()})")
        velocity = next((n for n in ("observation.velocity", "observation.qvel") if n in self.features), "")
        effort = next((n for n in ("observation.effort", "observation.torque") if n in self.features), "")
        return replace(fields, columns=PartColumns(joints=JointColumns(state, velocity, effort)))

    def columns(self) -> str:
        return known_columns([n for n, f in self.features.items() if f.get("dtype") not in ("video", "image")])

    def wanted(self, fields: FieldMap) -> list[str]:
        """Columns of the data files that ``fields`` needs."""
        named = {t.partition("[")[0] for t in fields.columns.texts()}
        named |= {"episode_index", "frame_index", "timestamp", fields.time, *self._success_columns(fields)}
        return [n for n in self.features if n in named and self.features[n].get("dtype") not in ("video", "image")]

    def _success_columns(self, fields: FieldMap) -> tuple[str, ...]:
        return (fields.success,) if fields.success else _SUCCESS

    def episode(
        self, entry: EpisodeEntry, fields: FieldMap
    ) -> tuple[EpisodeColumns, NDArray[np.int64], EpisodeInfo, Outcome]:
        """Columns, stamps, info and outcome of one episode. Raises InputError naming file and column."""
        table = self.table(entry, self.wanted(fields))
        where = f"{entry.file}: episode {entry.index}"

        def column(name: str) -> NDArray[Any]:
            if name not in table.column_names:
                raise KeyError(name, self.columns())
            return array_of(table[name])

        parts = episode_columns(column, fields, where, self.names_of)
        if entry.length != parts.rows:
            raise InputError(f"{where}: its meta says {entry.length} frames, the file holds {parts.rows}")
        seconds = None
        if fields.time or (not fields.rate and "timestamp" in table.column_names):
            seconds = column(fields.time or "timestamp").astype(np.float64).reshape(-1)
        # float32 seconds jitter by microseconds: an even grid of the data set's own rate is what was meant
        if seconds is not None and not fields.time and np.allclose(np.diff(seconds), 1.0 / self.fps, atol=2e-3):
            seconds = None
        stamps = stamps_of(seconds, parts.rows, fields.rate or self.fps, where)
        return parts, stamps, self._info(entry, fields), self._outcome(entry, fields, table, parts.rows)

    def _info(self, entry: EpisodeEntry, fields: FieldMap) -> EpisodeInfo:
        given = fields.info
        robot = fields.robot.name if isinstance(fields.robot, RobotModel) else str(self.info.get("robot_type") or "")
        return EpisodeInfo(
            episode_id=f"{self.path.resolve().name}/{entry.index:06d}",
            task=given.task or entry.task,
            suite=given.suite or self.path.resolve().name,
            policy=given.policy,
            robot=robot,
            instruction=given.instruction or entry.task,
            seed=given.seed,
            templates=given.templates,
            tags=given.tags,
            sources=fields.columns.parts(),
            attributes={**given.attributes, "episode_index": str(entry.index)},
        )

    def _outcome(self, entry: EpisodeEntry, fields: FieldMap, table: pa.Table, rows: int) -> Outcome:
        for name in self._success_columns(fields):
            if name in table.column_names and rows:
                last = bool(array_of(table[name]).reshape(rows, -1)[-1, 0])
                return Outcome("success" if last else "failure", "labelled in the data set", rows)
            if entry.meta.get(name) is not None:
                done = bool(entry.meta[name])
                return Outcome("success" if done else "failure", "labelled in the data set", rows)
        return Outcome(fields.info.outcome, "", rows)


@lru_cache(maxsize=2)
def _file_table(file: Path, columns: tuple[str, ...] | None) -> pa.Table:
    # v3 packs many episodes into a file: read it once
    return pq.read_table(file, columns=None if columns is None else list(columns))


def array_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column of numbers (T,) or of equal lists (T, k). Raises InputError on lists of unequal length."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    combined = column.combine_chunks()
    flat = combined.flatten()
    if pa.types.is_list(flat.type) or pa.types.is_fixed_size_list(flat.type):
        raise InputError("nested lists can't be read as vectors")
    values = flat.to_numpy(zero_copy_only=False)
    rows = len(combined)
    if rows == 0:
        return values.reshape(0, 0)
    if len(values) % rows or combined.null_count:
        raise InputError("its rows have lists of unequal length")
    return np.asarray(values.reshape(rows, -1))


def _first(value: Any) -> str:
    if isinstance(value, (list, tuple, np.ndarray)):
        return str(value[0]) if len(value) else ""
    return "" if value is None else str(value)
