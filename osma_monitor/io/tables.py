"""The shapes in which episodes are stored: the step table, and the EpisodeRecord to and from one Parquet file.

Rows are steps: ``stamp_ns`` (int64), ``obstacle`` (text) and every signal of the schema (float64, NaN where
unknown). What belongs to the episode as a whole is JSON in the key-value metadata under ``osma.record``;
``osma.format`` says the version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import codec
from osma_monitor.io.errors import StoreError

#: Version of the stored form. Raised when an older reader would misread a file; new fields and signals do not raise it.
FORMAT = 1
FORMAT_KEY, RECORD_KEY, INFO_KEY, CONTEXT_KEY = b"osma.format", b"osma.record", b"osma.info", b"osma.context"

_ARRAYS = ("stamps_ns", "signals", "obstacle")
_NO_SIGNAL = ("stamp_ns", "obstacle", "episode")


def step_schema(signals: Iterable[str] = SIGNALS, metadata: Mapping[bytes, bytes] | None = None) -> pa.Schema:
    """Columns of a running episode (``obstacle`` as plain text, so that a stream needs no dictionary batches)."""
    columns = [pa.field("stamp_ns", pa.int64(), nullable=False), pa.field("obstacle", pa.string(), nullable=False)]
    columns += [pa.field(name, pa.float64(), nullable=False) for name in signals]
    return pa.schema(columns, metadata={FORMAT_KEY: str(FORMAT).encode(), **(metadata or {})})


def head(record: EpisodeRecord) -> dict[str, Any]:
    """Everything of the record but its per-step arrays, as a JSON tree."""
    return {f.name: codec.to_jsonable(getattr(record, f.name)) for f in fields(record) if f.name not in _ARRAYS}


def record_from_head(
    data: dict[str, Any],
    stamps_ns: NDArray[np.int64],
    signals: Mapping[str, NDArray[np.float64]],
    obstacle: Sequence[str],
) -> EpisodeRecord:
    """The record that :func:`head` described, with its per-step arrays.

    Raises ValueError when the tree does not fit.
    """
    rows = len(stamps_ns)
    columns = {name: signals[name] if name in signals else np.full(rows, np.nan) for name in (*SIGNALS, *signals)}
    whole = codec.fields_from_jsonable(EpisodeRecord, data, leave_out=_ARRAYS)
    return EpisodeRecord(stamps_ns=stamps_ns, signals=columns, obstacle=tuple(obstacle), **whole)


def record_table(record: EpisodeRecord) -> pa.Table:
    """One episode as a table with its record in the schema metadata."""
    schema = step_schema(
        record.signals, {RECORD_KEY: json.dumps(head(record), allow_nan=False, separators=(",", ":")).encode()}
    )
    schema = schema.set(1, pa.field("obstacle", pa.dictionary(pa.int32(), pa.string()), nullable=False))
    names = pa.array(list(record.obstacle), pa.string()).dictionary_encode()
    columns = [pa.array(np.asarray(record.stamps_ns, np.int64)), names]
    columns += [pa.array(np.asarray(column, np.float64)) for column in record.signals.values()]
    return pa.Table.from_arrays(columns, schema=schema)


def steps_of(table: pa.Table) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]], tuple[str, ...]]:
    """Stamps, signals and obstacle names of a step table."""
    signals = {name: table[name].to_numpy() for name in table.column_names if name not in _NO_SIGNAL}
    return table["stamp_ns"].to_numpy(), signals, texts_of(table["obstacle"])


def texts_of(column: pa.ChunkedArray) -> tuple[str, ...]:
    """A text column as a tuple; equal texts are one object."""
    result: list[str] = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        words = coded.dictionary.to_pylist()
        result += [words[i] for i in coded.indices.to_pylist()]
    return tuple(result)


def check_format(metadata: Mapping[bytes, bytes] | None, path: Path) -> None:
    """Raises StoreError when the file is none of ours or newer than this version."""
    text = (metadata or {}).get(FORMAT_KEY)
    if text is None:
        raise StoreError(f"{path}: no episode file of osma_monitor (its metadata lack {FORMAT_KEY.decode()})")
    if not text.isdigit() or int(text) > FORMAT:
        version = text.decode(errors="replace")
        raise StoreError(f"{path}: stored in format {version}, this version reads up to {FORMAT}; update osma_monitor")


def read_record(path: Path) -> EpisodeRecord:
    """The episode of one Parquet file. Raises StoreError naming the file when it can't be read."""
    try:
        table = pq.read_table(path, memory_map=False)
        metadata = table.schema.metadata
        check_format(metadata, path)
        return record_from_head(json.loads(metadata[RECORD_KEY]), *steps_of(table))
    except StoreError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: not readable as Parquet: {_one_line(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: the stored record does not fit: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
