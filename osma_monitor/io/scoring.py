"""Scores of stored episodes without a record for each of them: from the columns of compacted data sets.

A `ScoreTable` needs few of the columns; the steps of the signals are read when somebody asks for them. Other sources
(run folders, bags, ...) are read record by record, and both give the same table.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.batch import SignalColumns, contact_of
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.core.metrics.stored import table_from_rows
from osma_monitor.io import corrections, dataset
from osma_monitor.io.errors import StoreError
from osma_monitor.io.store import episode_files
from osma_monitor.io.tables import RECORD_KEY, record_from_head

#: Attribute with the policy's own name, where a label stands behind it.
OWN_NAME = "policy_name"
CONTACT, OBSTACLE = "robot_contact_force", "obstacle_distance"
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
        label: stands behind the names of its policies, to tell them from those of another source.
        each: `map`, or that of a pool of threads, which then read parts at once.

    Raises:
        StoreError: it can't be read.
    """

    def __init__(self, path: Path | str, label: str = "", each: Each = map) -> None:
        self.path, self._label, self._each = Path(path), label, each
        episodes = dataset.read_table(self.path, "episodes", _EPISODES)
        clauses = dataset.read_table(self.path, "clauses", _CLAUSES)
        columns: dict[str, Any] = {name: _values(episodes[name]) for name in _EPISODES if name != "attributes"}
        own = columns["policy"]
        columns["policy"] = _objects([labelled(policy, label) for policy in own])
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
        #: (clause, reason that switched it off) -> number of episodes.
        self.inactive: Counter[tuple[str, str]] = Counter()
        #: How the inputs of bags were joined -> number of episodes.
        self.inputs: Counter[str] = Counter()
        columns["registry_hash"] = []
        for head in self._heads():
            made = _mapping(head, "provenance")
            columns["registry_hash"].append(str(made.get("registry_hash", "")))
            self.inactive.update(_mapping(head, "inactive").items())
            self.inputs[str(made.get("session", {}).get("inputs", ""))] += 1
        #: Rows of the episodes of each part: pieces of work that fit into memory.
        self.parts: list[range] = []
        contact, self._near = self._reduced()
        self.table: ScoreTable = table_from_rows(
            columns,
            {name: _values(clauses[name]) for name in _CLAUSES},
            contact,
            _attributes(episodes["attributes"], {"robot": columns["robot"]}) | ({OWN_NAME: own} if label else {}),
        )

    def columns(self, signals: Iterable[str], part: int | None = None) -> SignalColumns:
        """The named signals of all episodes (or of one part), end to end; NaN for a signal that is not stored."""
        found = dataset.read_columns(self.path, sorted(set(signals)), part=part)
        return SignalColumns(found.stamps_ns, found.signals, found.offsets)

    @property
    def navigating(self) -> NDArray[np.intp]:
        """Rows of the episodes that name a cell or know the distance to some obstacle."""
        cells = self.table.keys.get("cell")
        return np.flatnonzero(self._near if cells is None else self._near | (cells != ""))

    def records(self, rows: Iterable[int], signals: Iterable[str]) -> Iterator[EpisodeRecord]:
        """The records of some episodes (rows that rise) with these signals alone, a part at a time.

        They are without the names of the nearest obstacles.
        """
        wanted, names = set(rows), sorted(set(signals))
        for part, members in enumerate(self.parts):
            chosen = [row for row in members if row in wanted]
            if not chosen:
                continue
            table = dataset.read_table(self.path, "episodes", ["record", "file"], part=part)
            heads, files, columns = table["record"], table["file"], self.columns(names, part)
            for row in chosen:
                place = row - members.start
                steps = slice(int(columns.offsets[place]), int(columns.offsets[place + 1]))
                arrays = columns.stamps_ns[steps], {name: values[steps] for name, values in columns.signals.items()}
                try:
                    record = record_from_head(json.loads(heads[place].as_py()), *arrays, ())
                except (ValueError, KeyError, TypeError) as error:
                    raise StoreError(f"{self.path}: episode {row}: the stored record does not fit: {error}") from error
                yield corrections.corrected(
                    with_label(record, self._label), self._corrections.get(files[place].as_py())
                )

    def _reduced(self) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
        """Contact of every episode (1, 0, -1), and whether it knows a distance to an obstacle; a part at a time."""

        def reduce(part: int) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
            columns = self.columns([CONTACT, OBSTACLE], part)
            known = np.concatenate([[0], np.cumsum(~np.isnan(columns.signals[OBSTACLE]))])
            return contact_of(columns), known[columns.offsets[1:]] > known[columns.offsets[:-1]]

        found = list(self._each(reduce, range(dataset.part_count(self.path))))
        start = 0
        for contact, _ in found:
            self.parts.append(range(start, start + len(contact)))
            start += len(contact)
        contacts, near = zip(*found, strict=True) if found else ((), ())
        return np.concatenate([np.zeros(0, np.int8), *contacts]), np.concatenate([np.zeros(0, bool), *near])

    def _heads(self) -> Iterator[str]:
        for part in range(dataset.part_count(self.path)):
            yield from dataset.read_table(self.path, "episodes", ["record"], part=part)["record"].to_pylist()


def labelled(policy: str, label: str) -> str:
    """The name of a policy with what tells it from those of another run."""
    return f"{policy} ({label})" if label else policy


def with_label(record: EpisodeRecord, label: str) -> EpisodeRecord:
    """A record whose policy has the label behind its name, and its own name among the attributes."""
    if not label:
        return record
    info = record.info.with_attributes({OWN_NAME: record.info.policy})
    return replace(record, info=replace(info, policy=labelled(record.info.policy, label)))


def policies(path: Path | str) -> set[str]:
    """Policies of a data set, run folder or episode file, without its steps; files that can't be read say nothing."""
    if dataset.is_dataset(path):
        with contextlib.suppress(StoreError):
            return set(dataset.read_table(path, "episodes", ["policy"])["policy"].to_pylist())
        return set()
    found = set()
    for file in episode_files(path):
        with contextlib.suppress(OSError, pa.ArrowException, KeyError, ValueError, TypeError):
            found.add(str(json.loads(pq.read_schema(file).metadata[RECORD_KEY])["info"]["policy"]))
    return found


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
