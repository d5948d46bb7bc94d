"""Scores of stored episodes without a record for each of them: from the columns of compacted data sets.

A `ScoreTable` needs few of the columns; the steps of the signals are read when somebody asks for them. Other sources
(run folders, bags, ...) are read record by record, and both give the same table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics.batch import SignalColumns, columns_of, contact_of
from osma_monitor.core.metrics.scores import ScoreTable, as_table, concatenate, score_records
from osma_monitor.core.metrics.stored import table_from_rows
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.io import corrections, dataset
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.errors import StoreError
from osma_monitor.io.sources import Findings, expand, kind_of, open_sources
from osma_monitor.io.tables import record_from_head

CONTACT = "robot_contact_force"
_EPISODES = [
    *("episode_id", "suite", "policy", "task", "seed", "robot", "attributes", "outcome", "rows"),
    *("complete", "partial", "library_hash", "gate_semantics", "file"),
]
_CLAUSES = [
    *("episode", "clause", "family", "scored", "rho", "lower", "upper", "depth"),
    *("first_violation_step", "violated_steps", "longest_run"),
]


class DatasetScores:
    """One compacted data set: its scores at once, its signals and records when they are asked for.

    Args:
        path: the data set.

    Raises:
        StoreError: it can't be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        episodes = dataset.read_table(self.path, "episodes", _EPISODES)
        clauses = dataset.read_table(self.path, "clauses", _CLAUSES)
        columns: dict[str, Any] = {name: _values(episodes[name]) for name in _EPISODES if name != "attributes"}
        self._corrections = corrections.read(self.path)
        if self._corrections:
            changed = [self._corrections.get(str(file)) for file in columns["file"]]
            columns["outcome"] = _objects(
                [c.status if c is not None else o for c, o in zip(changed, columns["outcome"], strict=True)]
            )
        #: Clause -> family.
        self.families: dict[str, str] = dict(
            zip(clauses["clause"].unique().to_pylist(), _first(clauses, "clause", "family"), strict=True)
        )
        columns["registry_hash"] = [
            str(_mapping(head, "provenance").get("registry_hash", "")) for head in self._heads()
        ]
        self.table: ScoreTable = table_from_rows(
            columns,
            {name: _values(clauses[name]) for name in _CLAUSES},
            contact_of(self.columns([CONTACT])),
            _attributes(episodes["attributes"], {"robot": columns["robot"]}),
        )

    def columns(self, signals: Iterable[str]) -> SignalColumns:
        """The named signals of all episodes, end to end; NaN for a signal that is not stored."""
        found = dataset.read_columns(self.path, sorted(set(signals)))
        return SignalColumns(found.stamps_ns, found.signals, found.offsets)

    def inactive(self) -> Counter[tuple[str, str]]:
        """(clause, reason that switched it off) -> number of episodes."""
        found: Counter[tuple[str, str]] = Counter()
        for head in self._heads():
            found.update(_mapping(head, "inactive").items())
        return found

    def records(self, rows: Iterable[int], signals: Iterable[str]) -> Iterator[EpisodeRecord]:
        """The records of some episodes with these signals alone, and without the names of the nearest obstacles."""
        wanted = list(rows)
        if not wanted:
            return
        heads, files, columns = self._heads(), self._files(), self.columns(signals)
        for row in wanted:
            steps = slice(int(columns.offsets[row]), int(columns.offsets[row + 1]))
            arrays = columns.stamps_ns[steps], {name: values[steps] for name, values in columns.signals.items()}
            try:
                record = record_from_head(json.loads(heads[row]), *arrays, ())
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(f"{self.path}: episode {row}: the stored record does not fit: {error}") from error
            yield corrections.corrected(record, self._corrections.get(files[row]))

    def _heads(self) -> list[str]:
        return list(dataset.read_table(self.path, "episodes", ["record"])["record"].to_pylist())

    def _files(self) -> list[str]:
        return list(dataset.read_table(self.path, "episodes", ["file"])["file"].to_pylist())


@dataclass
class Scored:
    """Scores of several sources, in their order."""

    table: ScoreTable
    families: Mapping[str, str]  #: of each clause
    parts: Sequence[DatasetScores | RecordScores] = field(default_factory=tuple)

    def columns(self, signals: Iterable[str]) -> SignalColumns:
        """The named signals of all episodes, end to end, in the order of ``table``.

        Raises:
            ValueError: a source that was read record by record did not keep one of them (see `score_table`).
        """
        wanted = sorted(set(signals))
        pieces = [part.columns(wanted) for part in self.parts]
        if len(pieces) == 1:
            return pieces[0]
        lengths = [np.diff(piece.offsets) for piece in pieces]
        return SignalColumns(
            np.concatenate([np.zeros(0, np.int64), *(piece.stamps_ns for piece in pieces)]),
            {name: np.concatenate([np.zeros(0), *(piece.signals[name] for piece in pieces)]) for name in wanted},
            np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))]).astype(np.int64),
        )

    def inactive(self) -> Counter[tuple[str, str]]:
        """(clause, reason that switched it off) -> number of episodes."""
        found: Counter[tuple[str, str]] = Counter()
        for part in self.parts:
            found.update(part.inactive())
        return found


class RecordScores:
    """Sources that are read record by record; keeps ``signals`` of each, nothing else of its steps."""

    #: Episodes whose steps are in memory at a time.
    CHUNK = 256

    def __init__(self, records: Iterable[EpisodeRecord], signals: Iterable[str] = ()) -> None:
        self._signals = sorted(set(signals))
        self.families: dict[str, str] = {}
        self._inactive: Counter[tuple[str, str]] = Counter()
        self._pieces: list[SignalColumns] = []
        tables: list[ScoreTable] = []
        chunk: list[EpisodeRecord] = []

        def take() -> None:
            tables.append(as_table(score_records(chunk)))
            self._pieces.append(columns_of(chunk, self._signals))
            chunk.clear()

        for record in records:
            chunk.append(record)
            self._inactive.update(record.inactive.items())
            for result in record.clauses:
                self.families.setdefault(result.clause, result.family)
            if len(chunk) == self.CHUNK:
                take()
        if chunk or not tables:
            take()
        self.table = concatenate(tables)

    def columns(self, signals: Iterable[str]) -> SignalColumns:
        wanted = sorted(set(signals))
        missing = [name for name in wanted if name not in self._signals]
        if missing:
            raise ValueError(f"the signal {missing[0]} was not kept; kept are {', '.join(self._signals) or 'none'}")
        lengths = np.concatenate([np.diff(piece.offsets) for piece in self._pieces])
        return SignalColumns(
            np.concatenate([piece.stamps_ns for piece in self._pieces]),
            {name: np.concatenate([piece.signals[name] for piece in self._pieces]) for name in wanted},
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )

    def inactive(self) -> Counter[tuple[str, str]]:
        return Counter(self._inactive)


def score_table(
    paths: Iterable[Path | str],
    config: MonitorConfig | None = None,
    mapping: Path | str | None = None,
    *,
    signals: Iterable[str] = (),
    findings: Findings | None = None,
    on_progress: Callable[[float, str], None] | None = None,
) -> Scored:
    """Scores of whatever ``paths`` are; the same table as that of all their records.

    Compacted data sets are read column by column, everything else record by record.

    Args:
        paths: data sets, run folders, episode files, bags, labels.
        config: judges what is not judged yet; the shipped library without it.
        mapping: of a bag's topics or a data set's columns.
        signals: kept of sources that are read record by record, for `Scored.columns`; a data set gives any signal.
        findings: what could not be read, a line each.
        on_progress: is told the fraction of a source that is read (NaN: not known) and what is being read.
    """
    found = findings if findings is not None else Findings()
    judge = config if config is not None else monitor_config()
    wanted = tuple(signals)
    parts: list[DatasetScores | RecordScores] = []
    others: list[Path] = []

    def read_others() -> None:
        if others:
            records = open_sources(others, judge, mapping, findings=found, on_progress=on_progress)
            parts.append(RecordScores(records, wanted))
            others.clear()

    for path in (source for given in paths for source in expand(given)):
        try:
            compacted = kind_of(path) == "dataset"
        except UserError:  # what is wrong with it is said by the reader of sources
            compacted = False
        if not compacted:
            others.append(path)
            continue
        read_others()
        if on_progress is not None:
            on_progress(float("nan"), path.name)
        try:
            parts.append(DatasetScores(path))
        except StoreError as error:
            found.problems.append(str(error))
    read_others()
    families: dict[str, str] = {}
    for part in parts:
        families = part.families | families
    return Scored(concatenate([part.table for part in parts]), families, tuple(parts))


# ---- columns of Arrow


def _values(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_string(column.type):
        coded = column.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        words = _objects(coded.dictionary.to_pylist())
        return words[coded.indices.to_numpy()] if len(words) else np.zeros(0, object)
    values: NDArray[Any] = column.to_numpy()
    return values


def _first(table: pa.Table, by: str, name: str) -> list[str]:
    """Value of ``name`` in the first row of each value of ``by``, in the order in which these first occur."""
    found: dict[str, str] = {}
    for key, value in zip(table[by].to_pylist(), table[name].to_pylist(), strict=True):
        found.setdefault(key, value)
    return list(found.values())


def _attributes(column: pa.ChunkedArray, over: Mapping[str, NDArray[np.object_]]) -> dict[str, NDArray[np.object_]]:
    """A map column as one column a key, over those that there are; the empty text where an episode lacks a key."""
    found = {name: values.copy() for name, values in over.items()}
    start = 0
    for chunk in column.chunks:
        offsets = chunk.offsets.to_numpy()
        rows = start + np.repeat(np.arange(len(chunk)), np.diff(offsets))
        keys = chunk.keys.slice(offsets[0], offsets[-1] - offsets[0]).to_pylist()
        items = chunk.items.slice(offsets[0], offsets[-1] - offsets[0]).to_pylist()
        for row, key, value in zip(rows.tolist(), keys, items, strict=True):
            if key not in found:
                found[key] = _objects([""] * len(column))
            found[key][row] = value
        start += len(chunk)
    return found


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


_decode = json.JSONDecoder().raw_decode


def _mapping(head: str, name: str) -> dict[str, Any]:
    """The mapping of that name in a head, without reading the rest of it.

    Inside a text of JSON a quote is escaped, so that the key is found only where it is one; a key of that name inside
    another mapping holds a text and no mapping.
    """
    key = f'"{name}":'
    start = head.find(key + "{")
    found: dict[str, Any] = _decode(head, start + len(key))[0] if start >= 0 else {}
    return found
