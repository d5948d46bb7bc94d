"""Compacted data sets: thousands of episodes in a few Parquet files that DuckDB, Polars and pandas read directly.

    dataset/dataset.json              format, number of episodes and steps, signals, the plans of the runs
    dataset/episodes/part-00000.parquet   one row an episode: typed columns, and its whole record as JSON
    dataset/clauses/part-00000.parquet    one row an episode and active clause
    dataset/steps/part-00000.parquet      one row a step: episode index, stamp, obstacle, signals

Steps are stored in the order of the episodes, signals column by column in large row groups, so that scanning one
signal over all episodes reads contiguous bytes. ``first_row`` and ``rows`` of the episodes table are the offsets
into it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from osma_monitor.core.episode import ClauseResult, EpisodeRecord
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.core.motion import FEATURES
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import corrections
from osma_monitor.io.errors import StoreError
from osma_monitor.io.tables import FORMAT, FORMAT_KEY, head, record_from_head, texts_of

INDEX_FILE = "dataset.json"
#: Steps of one row group: a scan of one signal reads 2 MiB at a time, and a part of episodes needs few groups.
ROW_GROUP = 262_144
#: Steps of one file, about.
FILE_ROWS = 4 * 1024 * 1024

_EPISODES = pa.schema(
    [
        ("episode", pa.int64()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),
        *[(name, pa.string()) for name in ("episode_id", "task", "suite", "policy", "robot", "instruction")],
        ("seed", pa.int64()),
        *[(name, pa.list_(pa.string())) for name in ("templates", "tags", "sources")],
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("safety", pa.string()),
        ("depth", pa.float64()),
        ("duration_s", pa.float64()),
        *[(name, pa.float64()) for name in FEATURES],
        ("complete", pa.bool_()),
        ("partial", pa.bool_()),
        ("refused", pa.int64()),
        *[(name, pa.string()) for name in ("monitor_version", "library_hash", "gate_semantics", "file", "record")],
    ],
    metadata={FORMAT_KEY: str(FORMAT).encode()},
)
_TYPES = {"str": pa.string(), "bool": pa.bool_(), "float": pa.float64(), "int": pa.int64(), "int | None": pa.int64()}
_CLAUSES = pa.schema(
    [("episode", pa.int64()), *[(f.name, _TYPES.get(str(f.type), pa.string())) for f in fields(ClauseResult)]],
    metadata={FORMAT_KEY: str(FORMAT).encode()},
)


def is_dataset(path: Path | str) -> bool:
    """Whether ``path`` is a folder made by :func:`compact`."""
    return (Path(path) / INDEX_FILE).is_file()


def episode_row(index: int, first_row: int, record: EpisodeRecord, file: str) -> dict[str, Any]:
    """The typed columns of one episode."""
    info, rows = record.info, len(record.stamps_ns)
    texts = {n: getattr(info, n) for n in ("episode_id", "task", "suite", "policy", "robot", "instruction", "seed")}
    return {
        "episode": index,
        "first_row": first_row,
        "rows": rows,
        **texts,
        "templates": list(info.templates),
        "tags": list(info.tags),
        "sources": list(info.sources),
        "attributes": list(info.attributes.items()),
        "outcome": record.outcome.status,
        "reason": record.outcome.reason,
        "safety": record.safety,
        "depth": record.depth,
        "duration_s": float(record.stamps_ns[-1] - record.stamps_ns[0]) / 1e9 if rows else 0.0,
        **{name: getattr(record.motion, name) for name in FEATURES},
        "complete": record.complete,
        "partial": record.partial,
        "refused": record.refused,
        "monitor_version": record.provenance.monitor_version,
        "library_hash": record.provenance.library_hash,
        "gate_semantics": record.provenance.gate_semantics,
        "file": file,
        "record": json.dumps(head(record), allow_nan=False, separators=(",", ":")),
    }


class _Part:
    """The open files of one part: rows are collected and written a row group at a time."""

    def __init__(self, out: Path, number: int, signals: Sequence[str]) -> None:
        name = f"part-{number:05d}.parquet"
        self.signals = tuple(signals)
        self._episodes: list[dict[str, Any]] = []
        self._clauses: list[dict[str, Any]] = []
        self._steps: list[pa.Table] = []
        self._waiting = self.rows = 0
        self._paths = {kind: out / kind / name for kind in ("episodes", "clauses", "steps")}
        self._schema = pa.schema(
            [
                pa.field("episode", pa.int32(), nullable=False),
                pa.field("stamp_ns", pa.int64(), nullable=False),
                pa.field("obstacle", pa.dictionary(pa.int32(), pa.string()), nullable=False),
                *[pa.field(s, pa.float64(), nullable=False) for s in self.signals],
            ],
            metadata={FORMAT_KEY: str(FORMAT).encode()},
        )
        # signals are stored plain: reading them is then a copy, and NaN columns cost little on disk after compression
        self._writer = pq.ParquetWriter(
            self._paths["steps"],
            self._schema,
            compression="lz4",
            use_dictionary=["obstacle", "episode"],
            write_statistics=False,
        )

    def add(self, index: int, first_row: int, record: EpisodeRecord, file: str) -> None:
        rows = len(record.stamps_ns)
        self._episodes.append(episode_row(index, first_row, record, file))
        for result in record.clauses:
            self._clauses.append({"episode": index, **{f.name: getattr(result, f.name) for f in fields(ClauseResult)}})
        columns = [
            pa.array(np.full(rows, index, np.int32)),
            pa.array(np.asarray(record.stamps_ns, np.int64)),
            pa.array(list(record.obstacle), pa.string()).dictionary_encode(),
            *[pa.array(record.signals.get(s, np.full(rows, np.nan))) for s in self.signals],
        ]
        self._steps.append(pa.Table.from_arrays(columns, schema=self._schema))
        self._waiting += rows
        self.rows += rows
        if self._waiting >= ROW_GROUP:
            self._write_steps()

    def _write_steps(self) -> None:
        if self._steps:
            table = pa.concat_tables(self._steps).unify_dictionaries()
            groups = max(1, round(table.num_rows / ROW_GROUP))  # of about one size: no small rest
            self._writer.write_table(table, row_group_size=max(1, -(-table.num_rows // groups)))
        self._steps, self._waiting = [], 0

    def close(self) -> None:
        self._write_steps()
        self._writer.close()
        for kind, rows, schema in (("episodes", self._episodes, _EPISODES), ("clauses", self._clauses, _CLAUSES)):
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), self._paths[kind], compression="zstd")


def compact(
    paths: Path | str | Iterable[Path | str],
    out: Path | str,
    *,
    progress: Callable[[int, int], None] | None = None,
    problems: list[str] | None = None,
) -> int:
    """Merges episode files, run folders and data sets into a new data set ``out``; returns the number of episodes.

    The sources stay. Files that can't be read go to ``problems`` (one line each) and the rest is merged; without
    such a list the first one raises StoreError. The clause libraries that lie beside the episodes go along.
    ``progress`` is called with episodes done and files in total.
    ``out`` must not exist; it appears whole or not at all.
    """
    from osma_monitor.io.configuration import keep_library, kept_libraries
    from osma_monitor.io.plans import plans
    from osma_monitor.io.store import episode_files
    from osma_monitor.io.tables import read_record

    out = Path(out)
    if out.exists():
        raise StoreError(17, f"{out} exists already; choose another name, a data set is never overwritten")
    sources = [Path(p) for p in ([paths] if isinstance(paths, (str, Path)) else paths)]
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    total, first_row, number, done = 0, 0, 0, 0
    carried: list[corrections.Correction] = []
    part: _Part | None = None
    try:
        for kind in ("episodes", "clauses", "steps"):
            (temporary / kind).mkdir(parents=True)
        used: set[str] = set()
        files = [f for s in sources for f in ([s] if is_dataset(s) else episode_files(s))]
        for file in files:
            try:
                changes = corrections.read(file if is_dataset(file) else file.parent)
                pairs = _records_with_files(file) if is_dataset(file) else iter([(read_record(file), file.stem)])
            except StoreError as error:
                if problems is None:
                    raise
                problems.append(str(error))
                continue
            for record, stem in pairs:
                name = _unused(stem, used)
                if stem in changes:
                    carried.append(replace(changes[stem], file=name))
                if part is None:
                    part = _Part(temporary, number, SIGNALS)
                seed = record.info.seed
                if not -(2**63) <= seed < 2**63:
                    problem = f"{file}: the seed {seed} does not fit into 64 bits; the episode is left out"
                    if problems is None:
                        raise StoreError(problem)
                    problems.append(problem)
                    continue
                part.add(total, first_row, record, name)
                total, first_row = total + 1, first_row + len(record.stamps_ns)
                if part.rows >= FILE_ROWS:
                    part.close()
                    part, number = None, number + 1
            done += 1
            if progress is not None:
                progress(done, len(files))
        if part is not None:
            part.close()
        if total == 0:
            raise StoreError(f"{', '.join(map(str, sources)) or 'nothing given'}: no episode to compact")
        for library in dict.fromkeys(file for source in sources for file in kept_libraries(source)):
            keep_library(temporary, library)
        if carried:
            corrections.append(temporary, carried)
        index: dict[str, Any] = {"format": FORMAT, "episodes": total, "steps": first_row, "signals": list(SIGNALS)}
        if found := [plan for source in sources for plan in plans(source)]:
            index["plans"] = found
        (temporary / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n")
        os.replace(temporary, out)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(error.errno, f"{out}: {error.strerror or error}; nothing was written") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return total


def _unused(stem: str, used: set[str]) -> str:
    """``stem``, with a number when another run folder had the same."""
    name, number = stem, 1
    while name in used:
        number += 1
        name = f"{stem}-{number}"
    used.add(name)
    return name


def _index(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads((path / INDEX_FILE).read_text())
        version = int(data["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path / INDEX_FILE}: no data set of osma_monitor ({type(error).__name__})") from error
    if version > FORMAT:
        raise StoreError(f"{path}: stored in format {version}, this version reads up to {FORMAT}; update osma_monitor")
    return data


def read_table(
    path: Path | str, kind: str, columns: Sequence[str] | None = None, *, part: int | None = None
) -> pa.Table:
    """The table ``episodes``, ``clauses`` or ``steps`` of a data set (or of one part), in the order of the episodes.

    Raises StoreError.
    """
    path = Path(path)
    _index(path)
    try:
        parts = sorted((path / kind).glob("part-*.parquet"))
        parts = parts if part is None else parts[part : part + 1]
        return pa.concat_tables([pq.read_table(p, columns=columns) for p in parts]).unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path / kind}: {error}") from error


@dataclass(frozen=True, slots=True)
class Columns:
    """Signals of many episodes, one after the other: episode e owns [offsets[e], offsets[e + 1])."""

    stamps_ns: NDArray[np.int64]
    signals: dict[str, NDArray[np.float64]]
    offsets: NDArray[np.int64]
    first_episode: int = 0


def part_count(path: Path | str) -> int:
    """Number of parts: the pieces of work of a distributed scoring."""
    return len(list((Path(path) / "steps").glob("part-*.parquet")))


def read_columns(path: Path | str, signals: Sequence[str], *, part: int | None = None, each: Each = map) -> Columns:
    """The named signals of every episode (or of one part) of a data set as contiguous arrays. Raises StoreError.

    Each row group is copied straight to its place in the result: one pass over the bytes, memory of the result plus
    one group for each thread. A signal that the data set lacks is NaN. ``each`` is `map`, or that of a pool of threads.
    """
    path = Path(path)
    _index(path)
    files = sorted((path / "steps").glob("part-*.parquet"))
    rows_files = sorted((path / "episodes").glob("part-*.parquet"))
    if part is not None:
        files, rows_files = files[part : part + 1], rows_files[part : part + 1]
    try:
        episodes = pa.concat_tables([pq.read_table(f, columns=["episode", "rows"]) for f in rows_files])
        offsets = np.concatenate([[0], np.cumsum(episodes["rows"].to_numpy())]).astype(np.int64)
        total = int(offsets[-1])
        stamps = np.empty(total, np.int64)
        result = {name: np.empty(total) for name in signals}
        pieces, start = [], 0
        for file in files:
            found, start = _pieces(file, start)
            pieces += found
        for _ in each(lambda piece: _fill(piece, stamps, result), pieces):
            pass
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {error}") from error
    return Columns(stamps, result, offsets, int(episodes["episode"][0].as_py()))


#: Row groups that one thread reads at a time.
_GROUPS = 8


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some row groups of a file and the rows of the result where they go."""

    file: Path
    groups: range
    start: int


def _pieces(file: Path, start: int) -> tuple[list[_Piece], int]:
    """The pieces of a file, whose first row goes to ``start``; where the row after its last goes."""
    metadata = pq.read_metadata(file)
    found = []
    for first in range(0, metadata.num_row_groups, _GROUPS):
        groups = range(first, min(first + _GROUPS, metadata.num_row_groups))
        found.append(_Piece(file, groups, start))
        start += sum(metadata.row_group(group).num_rows for group in groups)
    return found, start


def _fill(piece: _Piece, stamps: NDArray[np.int64], result: dict[str, NDArray[np.float64]]) -> None:
    """Copies row groups to their places."""
    start = piece.start
    with pq.ParquetFile(piece.file, memory_map=True) as source:
        have = [name for name in result if name in source.schema_arrow.names]
        for group in piece.groups:
            table = source.read_row_group(group, columns=["stamp_ns", *have], use_threads=False)
            end = start + table.num_rows
            stamps[start:end] = table["stamp_ns"].to_numpy()
            for name, column in result.items():
                column[start:end] = table[name].to_numpy() if name in have else math.nan
            start = end


def _records_with_files(path: Path, parts: tuple[int, int] | None = None) -> Iterator[tuple[EpisodeRecord, str]]:
    """Records of a data set with the stem of the file that each came from, reading one part at a time."""
    _index(path)
    files = sorted((path / "steps").glob("part-*.parquet"))
    for steps_file in files if parts is None else files[slice(*parts)]:
        try:
            episodes = pq.read_table(
                path / "episodes" / steps_file.name, columns=["rows", "file", "record"]
            ).to_pylist()
            steps = _StepReader(steps_file)
            for row in episodes:
                table = steps.take(row["rows"])
                signals = {
                    s: table[s].to_numpy() for s in table.column_names if s not in ("episode", "stamp_ns", "obstacle")
                }
                arrays = (table["stamp_ns"].to_numpy(), signals, texts_of(table["obstacle"]))
                yield record_from_head(json.loads(row["record"]), *arrays), row["file"]
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:
            raise StoreError(f"{steps_file}: {error}") from error


class _StepReader:
    """The next so many steps of a part, holding one row group and what is left of the last."""

    def __init__(self, file: Path) -> None:
        self._source = pq.ParquetFile(file, memory_map=True)
        self._groups = iter(range(self._source.num_row_groups))
        self._table: pa.Table = self._source.schema_arrow.empty_table()

    def take(self, rows: int) -> pa.Table:
        while self._table.num_rows < rows:
            group = next(self._groups, None)
            if group is None:
                raise ValueError(f"{rows - self._table.num_rows} steps are missing at its end")
            self._table = pa.concat_tables([self._table, self._source.read_row_group(group)])
        taken, self._table = self._table.slice(0, rows), self._table.slice(rows)
        return taken.combine_chunks()


def read_records(
    path: Path | str, *, corrected: bool = True, parts: tuple[int, int] | None = None
) -> Iterator[EpisodeRecord]:
    """The records of a data set (or of some of its parts), equal to those that were compacted, one at a time.

    Raises StoreError.
    """
    path = Path(path)
    changes = corrections.read(path) if corrected else {}
    for record, stem in _records_with_files(path, parts):
        yield corrections.corrected(record, changes.get(stem))
