"""The episode store: one folder a run, one Parquet file an episode, one Arrow stream (``.part``) while an episode runs.

A killed monitor loses at most the last second of the running episode and nothing of the finished ones: every batch
of the stream is whole by itself, and a finished episode appears under its name only after its bytes are on disk
(temporary file, fsync, rename, fsync of the folder). Names are made from episode ids by :func:`file_stem` and never
overwrite what is there.

    run/run.json               format, versions, what was run
    run/<episode>.parquet      a finished episode (io/tables.py)
    run/<episode>.part         the running one; <episode>.part.0002, ... where it grew past the size of a segment
    run/corrections.jsonl      outcomes that a human corrected (io/corrections.py)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from osma_monitor import __version__
from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import codec, corrections, dataset
from osma_monitor.io.errors import StoreError
from osma_monitor.io.files import clean, replace_file, write_parquet
from osma_monitor.io.recovery import (
    PartialStream,
    Recovery,
    Rescore,
    read_part,
    recover,
    remove_stream,
    rescorer,
    segment_path,
    segments,
)
from osma_monitor.io.tables import CONTEXT_KEY, FORMAT, INFO_KEY, read_record, step_schema

RUN_FILE = "run.json"
_SECOND_NS = 1_000_000_000
#: Rows kept in memory while the disk refuses them; the oldest go first (the record itself is whole at the end).
_PENDING_LIMIT = 100_000
#: A stream goes on in a new file from here on: what damages one costs no other, and no file system's limit is met.
SEGMENT_BYTES = 64 * 1024 * 1024


def file_stem(episode_id: str) -> str:
    """A file name without suffix for an episode id: its harmless characters and a hash, so that no id is a path."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", episode_id[:400]).strip("_")[:80] or "episode"
    return f"{slug}-{hashlib.sha256(episode_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def write_run(folder: Path | str, facts: Mapping[str, Any]) -> Path:
    """Writes ``run.json`` (what was run, by which version) into a run folder; an existing one is kept under
    ``history``."""
    folder = _make_folder(Path(folder))
    path = folder / RUN_FILE
    history = []
    with contextlib.suppress(OSError, ValueError):
        old = json.loads(path.read_text())
        history = [*old.pop("history", []), old]
    data = {"format": FORMAT, "monitor_version": __version__, **codec.to_jsonable(facts), "history": history}
    try:
        replace_file(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise StoreError(error.errno, f"{path}: {error.strerror}") from error
    return path


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(error.errno, f"{folder}: {error.strerror}; choose a folder that can be written") from error
    return folder


class EpisodeWriter:
    """Logs one running episode and stores its record at the end.

    ``folder`` is made if absent. ``context`` is text that :func:`recover` hands back with a recovered stream
    (library hash, gate semantics, ...). ``sync`` also survives power loss, at the price of an fsync a second. Every
    disk error is a :class:`StoreError`; the rows stay in memory and the next batch tries again, so the caller
    reports it and goes on. A stream of more than ``segment_bytes`` goes on in another file.
    """

    def __init__(
        self,
        folder: Path | str,
        info: EpisodeInfo,
        context: Mapping[str, str] | None = None,
        *,
        sync: bool = False,
        period_ns: int = _SECOND_NS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.info = info
        self._folder = _make_folder(Path(folder))
        self._sync, self._period_ns, self._segment_bytes = sync, period_ns, segment_bytes
        self._stamps: list[int] = []
        self._values: list[NDArray[np.float64]] = []
        self._obstacles: list[str] = []
        self._flushed_wall = time.monotonic()
        self._flushed_ns: int | None = None  # stamp up to which the stream holds everything
        self._refused = False  # the last batch was: try once a second of wall time
        try:
            self.stem, self._fd = _reserve(self._folder, file_stem(info.episode_id))
        except OSError as error:
            raise StoreError(error.errno, f"{self._folder}: {error.strerror}; the episode is not logged") from error
        self.context = dict(context or {})  #: may be changed until the first batch is written
        self._schema = step_schema()
        self._lock_fd = self._fd  #: of the first segment, whose lock says that the stream is alive
        self._segment = 1
        self._size = 0  #: of the segment that is written now

    @property
    def part(self) -> Path:
        """The running episode's stream, its first segment."""
        return self._folder / f"{self.stem}.part"

    @property
    def writing(self) -> bool:
        """Whether the last batch reached the disk; false before the first, and while rows wait since it is refused."""
        return (self._size > 0 or self._segment > 1) and not self._refused

    def _path(self) -> Path:
        return self.part if self._segment == 1 else segment_path(self.part, self._segment)

    def append(self, stamp_ns: int, values: ArrayLike, obstacle: str = "") -> None:
        """Adds one step: ``values`` (len(SIGNALS),) float64 in schema order.

        Raises StoreError when the disk refuses.
        """
        row = np.array(values, dtype=np.float64)
        if row.shape != (len(SIGNALS),):
            raise ValueError(f"expected {len(SIGNALS)} values in schema order, got shape {row.shape}")
        self._stamps.append(int(stamp_ns))
        self._values.append(row)
        self._obstacles.append(obstacle)
        if len(self._stamps) > _PENDING_LIMIT:
            del self._stamps[0], self._values[0], self._obstacles[0]
        wall = time.monotonic() - self._flushed_wall
        if self._flushed_ns is None:
            self._flushed_ns = self._stamps[0]
        if wall >= 1.0 or (not self._refused and abs(self._stamps[-1] - self._flushed_ns) >= self._period_ns):
            self.flush()

    def flush(self) -> None:
        """Hands the rows that wait to the system as one whole batch. Raises StoreError when the disk refuses."""
        self._flushed_wall = time.monotonic()
        if not self._stamps or self._fd is None:
            return
        values = np.ascontiguousarray(np.stack(self._values).T)
        columns = [
            pa.array(np.array(self._stamps, np.int64)),
            pa.array([clean(o) for o in self._obstacles], pa.string()),
        ]
        batch = pa.RecordBatch.from_arrays([*columns, *(pa.array(column) for column in values)], schema=self._schema)
        data = batch.serialize().to_pybytes()
        self._refused = True
        if self._size >= self._segment_bytes:
            self._next_segment()
        self._write(self._header() + data if self._size == 0 else data)
        self._refused, self._flushed_ns = False, self._stamps[-1]
        self._stamps.clear()
        self._values.clear()
        self._obstacles.clear()

    def _header(self) -> bytes:
        facts = {INFO_KEY: codec.dumps(self.info).encode(), CONTEXT_KEY: codec.dumps(self.context).encode()}
        header: bytes = step_schema(metadata=facts).serialize().to_pybytes()
        return header

    def _next_segment(self) -> None:
        path = segment_path(self.part, self._segment + 1)
        try:
            fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(error.errno, f"{path}: {error.strerror}; monitoring goes on, the log waits") from error
        if self._fd is not None and self._fd != self._lock_fd:
            os.close(self._fd)
        self._fd, self._segment, self._size = fd, self._segment + 1, 0

    def _write(self, data: bytes) -> None:
        """Appends all of ``data`` or nothing."""
        assert self._fd is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            if self._sync:
                os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
                os.lseek(self._fd, self._size, os.SEEK_SET)
            raise StoreError(
                error.errno, f"{self._path()}: {error.strerror}; monitoring goes on, the log waits"
            ) from error
        self._size += len(data)

    def finish(self, record: EpisodeRecord) -> Path:
        """Stores the record as Parquet and removes the stream.

        Raises StoreError and keeps the stream when the disk refuses.
        """
        target = self._folder / f"{self.stem}.parquet"
        try:
            write_parquet(record, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.flush()
            self.close()
            raise StoreError(
                error.errno, f"{target}: {error.strerror}; the running log {self.part.name} is kept"
            ) from error
        self.close()
        remove_stream(self.part)
        return target

    def close(self) -> None:
        """Lets go of the stream without finishing: :func:`recover` will find it. One that holds nothing is removed."""
        if self._fd is not None:
            if self._size == 0:
                with contextlib.suppress(OSError):
                    self._path().unlink()
            for fd in {self._fd, self._lock_fd}:
                os.close(fd)
            self._fd = None

    def abandon(self) -> None:
        """Closes and removes the stream: the episode is not to be kept."""
        self.close()
        remove_stream(self.part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(StoreError):
            self.flush()
        self.close()

    _fd: int | None


def _reserve(folder: Path, stem: str) -> tuple[str, int]:
    """Creates ``<stem>.part`` under a stem that nothing has yet, and locks it for as long as the process lives."""
    for number in range(1, 1_000_000):
        name = stem if number == 1 else f"{stem}-{number}"
        try:
            fd = os.open(folder / f"{name}.part", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        if (folder / f"{name}.parquet").exists():
            os.close(fd)
            os.unlink(folder / f"{name}.part")
            continue
        with contextlib.suppress(OSError):  # file systems without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return name, fd
    raise FileExistsError(17, f"no free name for {stem}")


def write_record(folder: Path | str, record: EpisodeRecord) -> Path:
    """Stores a finished record that no writer logged (batch scoring, datasets). Raises StoreError."""
    with EpisodeWriter(folder, record.info) as writer:
        return writer.finish(record)


_OURS = re.compile(r"-[0-9a-f]{8}(-\d+)?\.parquet")


def prune(folder: Path | str, limit_bytes: int) -> list[Path]:
    """Removes the oldest finished episodes until the folder's episodes and streams take at most ``limit_bytes``.

    The newest episode and running streams always stay, and files that no writer named are never touched. Returns
    what was removed; raises StoreError when the disk refuses.
    """
    folder = Path(folder)
    try:
        episodes = [f for f in folder.glob("*.parquet") if _OURS.search(f.name) and not f.name.startswith(".")]
        finished = sorted((f.stat().st_mtime_ns, f, f.stat().st_size) for f in episodes)
        total = sum(size for *_, size in finished)
        total += sum(f.stat().st_size for f in folder.glob("*.part*"))
        removed = []
        for _, file, size in finished[:-1]:
            if total <= limit_bytes:
                break
            file.unlink()
            removed.append(file)
            total -= size
    except OSError as error:
        raise StoreError(error.errno, f"{error.filename or folder}: {error.strerror}; old episodes stay") from error
    return removed


def read_episodes(paths: Path | str | Iterable[Path | str], *, corrected: bool = True) -> Iterator[EpisodeRecord]:
    """The records of files, run folders and compacted data sets, one after the other, in order of their names.

    Equal to what was written, but for outcomes that a human corrected (``corrected=False`` gives the original
    ones). Running streams are left alone: see :func:`recover`. Raises StoreError naming the file that can't be
    read.
    """
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        path = Path(path)
        if dataset.is_dataset(path):
            yield from dataset.read_records(path, corrected=corrected)
            continue
        for file in episode_files(path):
            record = read_record(file)
            yield corrections.apply(record, file) if corrected else record


def episode_files(path: Path | str) -> list[Path]:
    """The episode files of a run folder, or the file itself. Raises StoreError when there is no such thing."""
    path = Path(path)
    if path.is_dir():
        return sorted(f for f in path.glob("*.parquet") if not f.name.startswith("."))
    if not path.exists():
        raise StoreError(2, f"{path}: no such file or folder")
    return [path]


__all__ = [
    "EpisodeWriter",
    "PartialStream",
    "Recovery",
    "Rescore",
    "StoreError",
    "episode_files",
    "file_stem",
    "prune",
    "read_episodes",
    "read_part",
    "recover",
    "rescorer",
    "segments",
    "write_record",
    "write_run",
]
