"""What a monitor that died left behind: streams up to their last whole batch, made into incomplete records."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from osma_monitor.core import monitor
from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.latecomers import appeared
from osma_monitor.io import codec
from osma_monitor.io.errors import StoreError
from osma_monitor.io.files import write_parquet
from osma_monitor.io.tables import CONTEXT_KEY, INFO_KEY, check_format, read_record, steps_of


@dataclass(frozen=True)
class PartialStream:
    """What a ``.part`` still holds, up to its last whole batch."""

    path: Path
    info: EpisodeInfo
    context: Mapping[str, str]
    stamps_ns: NDArray[np.int64]
    signals: Mapping[str, NDArray[np.float64]]
    obstacle: tuple[str, ...]
    cut: bool  #: bytes after the last whole batch were left out


def segment_path(part: Path, number: int) -> Path:
    """The file in which the stream ``part`` goes on for the ``number``-th time, from 2 on."""
    return part.with_name(f"{part.name}.{number:04d}")


def segments(part: Path) -> list[Path]:
    """The files of a stream in the order in which they were written."""
    later = [f for f in part.parent.glob(f"{glob.escape(part.name)}.*") if f.suffix[1:].isdecimal()]
    return [part, *sorted(later, key=lambda f: int(f.suffix[1:]))]


def remove_stream(part: Path) -> None:
    """Removes all files of a stream, the first one last: while it is there, recovery looks for the others."""
    for file in reversed(segments(part)):
        with contextlib.suppress(OSError):
            file.unlink()


def read_part(path: Path | str) -> PartialStream:
    """Reads a running or abandoned stream, each of its segments up to the last whole batch.

    Raises StoreError when not even the head of one segment is readable.
    """
    path = Path(path)
    head: tuple[EpisodeInfo, Mapping[str, str], pa.Schema] | None = None
    batches: list[pa.RecordBatch] = []
    cut, unreadable = False, None
    for file in segments(path):
        try:
            found, more, whole = _read_segment(file)
        except StoreError as error:
            cut, unreadable = True, unreadable or error
            continue
        head = head or found
        batches += more
        cut |= not whole
    if head is None:
        assert unreadable is not None
        raise unreadable
    info, context, schema = head
    # without the heads' metadata, which segments of other versions need not share
    table = pa.Table.from_batches([b.replace_schema_metadata() for b in batches], schema.remove_metadata())
    stamps, signals, obstacle = steps_of(table)
    return PartialStream(path, info, context, stamps, signals, obstacle, cut)


def _read_segment(
    path: Path,
) -> tuple[tuple[EpisodeInfo, Mapping[str, str], pa.Schema], list[pa.RecordBatch], bool]:
    """Head and whole batches of one file, and whether nothing follows them."""
    batches: list[pa.RecordBatch] = []
    try:
        # a copy: a mapped file that its writer truncates would kill the reader
        reader = pa.ipc.open_stream(path.read_bytes())
        schema = reader.schema
        check_format(schema.metadata, path)
        info = codec.loads(EpisodeInfo, schema.metadata[INFO_KEY])
        context = json.loads(schema.metadata.get(CONTEXT_KEY, b"{}"))
    except StoreError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise StoreError(f"{path}: the head of the stream is not readable ({type(error).__name__})") from error
    try:
        while True:
            batches.append(reader.read_next_batch())
    except StopIteration:
        return (info, context, schema), batches, True
    except (OSError, pa.ArrowException):
        return (info, context, schema), batches, False


#: Makes the record of a recovered stream: runs the clauses again over its stored signals.
Rescore = Callable[[PartialStream], EpisodeRecord]


@dataclass(frozen=True)
class Recovery:
    """One stream that a dead monitor left, and what became of it."""

    part: Path
    stored: Path | None  #: the Parquet file; None when nothing could be stored
    record: EpisodeRecord | None
    message: str  #: one line for people


def rescorer(config: monitor.MonitorConfig) -> Rescore:
    """The usual way to make a record of a recovered stream: the clauses of ``config`` over its stored signals."""

    def rescore(stream: PartialStream) -> EpisodeRecord:
        missing = json.loads(stream.context.get("missing", "{}"))
        notes = []
        written_with = stream.context.get("library_hash", config.library.hash)
        if written_with != config.library.hash:
            notes.append(f"logged with clause library {written_with}, judged with {config.library.hash}")
        late = appeared(missing, stream.signals)
        if late:
            notes.append(f"appeared after the episode began, their clauses are not judged: {', '.join(sorted(late))}")
        return monitor.rescore(
            stream.info,
            Outcome("unknown", "recovered after a crash"),
            stream.stamps_ns,
            stream.signals,
            stream.obstacle,
            config,
            missing,
            complete=False,
            notes=notes,
            late=late,
        )

    return rescore


def recover(folder: Path | str, rescore: Rescore | monitor.MonitorConfig) -> list[Recovery]:
    """Turns the streams that dead monitors left in ``folder`` into records with ``complete = False``.

    ``rescore`` makes a record from what was recovered; a MonitorConfig stands for :func:`rescorer` of it. Streams
    that a living monitor holds are left alone, empty ones are removed, unreadable ones are kept as
    ``.part.unreadable``. Says what it did, one entry a stream.
    """
    if isinstance(rescore, monitor.MonitorConfig):
        rescore = rescorer(rescore)
    return [_recover_one(path, rescore) for path in sorted(Path(folder).glob("*.part")) if not in_use(path)]


def is_empty(path: Path) -> bool:
    """Whether nothing was written to the stream yet, or it is gone."""
    try:
        return path.stat().st_size == 0
    except OSError:
        return True


def remove_empty(path: Path) -> bool:
    """Removes a stream that no living writer holds and nothing was ever written to; whether it was one."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0 and not in_use(path):
            path.unlink()
            return True
    return False


def _recover_one(path: Path, rescore: Rescore) -> Recovery:
    if remove_empty(path):
        return Recovery(path, None, None, f"{path}: an episode that ended before its first step was logged; removed")
    try:
        stream = read_part(path)
    except StoreError as error:
        kept = path.with_name(path.name + ".unreadable")
        for file in reversed(segments(path)):
            with contextlib.suppress(OSError):
                os.replace(file, file.with_name(file.name + ".unreadable"))
        return Recovery(path, None, None, f"{error}; kept as {kept.name}, no step of it is recovered")
    rows = len(stream.stamps_ns)
    seconds = (stream.stamps_ns[-1] - stream.stamps_ns[0]) / 1e9 if rows else 0.0
    name = repr(stream.info.episode_id)
    message = f"episode {name} did not end: {rows} steps ({seconds:.1f} s) recovered, up to a second is lost"
    finished = path.with_suffix(".parquet")
    try:
        if finished.exists():  # it died between the two steps of finishing
            remove_stream(path)
            return Recovery(path, finished, read_record(finished), f"episode {name} was already stored")
        record = rescore(stream)
        reason = record.outcome.reason or "recovered after a crash"
        record = replace(
            record,
            outcome=Outcome("unknown", reason, None),
            complete=False,
            notes=(*record.notes, f"recovered from {path.name}"),
        )
        write_parquet(record, finished)
        remove_stream(path)
    except OSError as error:
        return Recovery(path, None, None, f"{path}: recovery could not be stored ({error}); the stream is kept")
    except UserError as error:
        return Recovery(path, None, None, f"{path}: episode {name} can't be judged ({error}); the stream is kept")
    return Recovery(path, finished, record, message)


def in_use(path: Path) -> bool:
    """Whether a living writer holds the stream."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
