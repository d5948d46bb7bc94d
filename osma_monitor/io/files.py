"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.io.tables import record_table


def clean(text: str) -> str:
    """Text that UTF-8 can hold (lone surrogates come from broken file names and messages)."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(target: Path, data: bytes) -> None:
    """Writes ``data`` under a temporary name, to the disk, and then under its own name."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def write_parquet(record: EpisodeRecord, target: Path) -> None:
    """Writes one episode so that it appears under its name only after its bytes are on disk. Raises OSError."""
    sink = pa.BufferOutputStream()
    record = replace(record, obstacle=tuple(clean(o) for o in record.obstacle))
    pq.write_table(record_table(record), sink, compression="zstd", use_dictionary=["obstacle"])
    replace_file(target, sink.getvalue().to_pybytes())
