"""A `ScoreTable` from stored tables: one row an episode, one row an episode and clause, no object an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.batch import decided
from osma_monitor.core.metrics.scores import KEYS, ScoreTable, numbered

Column = Sequence[Any] | NDArray[Any]

_SUCCESS = {"success": 1, "failure": 0}
_INTEGERS = {"first_violation_step": -1, "violated_steps": 0, "longest_run": 0}


def table_from_rows(
    episodes: Mapping[str, Column],
    clauses: Mapping[str, Column],
    contact: NDArray[np.int8] | None = None,
    attributes: Mapping[str, Column] | None = None,
) -> ScoreTable:
    """Scores of a stored data set; the same as `as_table(score_records(records))` of its records.

    Args:
        episodes: columns (E,): episode_id, suite, policy, task, seed, outcome (success, failure, aborted, unknown),
            rows (steps), complete, partial, library_hash, gate_semantics; registry_hash where it is known.
        clauses: columns with one entry for each episode and active clause: episode (row of ``episodes``), clause,
            scored, rho, lower, upper, depth, first_violation_step (None or NaN: none), violated_steps, longest_run.
        contact: (E,) 1, 0, -1 not known; see `batch.contact_of`.
        attributes: further columns (E,).

    Raises:
        ValueError: columns that are missing or of unequal length, a row of an episode that does not exist, a clause
            twice in an episode.
    """
    wanted = (*KEYS, "outcome", "rows", "complete", "partial", "library_hash", "gate_semantics")
    count = _length(episodes, wanted, "episodes")
    of_rows = ("episode", "clause", "scored", "rho", "lower", "upper", "depth", *_INTEGERS)
    _length(clauses, of_rows, "clauses")
    row = np.asarray(clauses["episode"], np.int64)
    if len(row) and (row.min() < 0 or row.max() >= count):
        raise ValueError(
            f"clauses: row of episode {row[(row < 0) | (row >= count)][0]}, but there are {count} episodes"
        )
    scored = np.asarray(clauses["scored"], bool)
    names, code = numbered([str(v) for v in clauses["clause"]])
    cell = row * max(1, len(names)) + code
    if len(np.unique(cell)) != len(cell):
        raise ValueError("clauses: a clause occurs twice in an episode")
    lower, upper, rho, depth = (np.asarray(clauses[k], np.float64) for k in ("lower", "upper", "rho", "depth"))
    value = decided(lower, upper, rho)
    main = list(dict.fromkeys(code[scored].tolist()))  # in the order in which they first count
    at = np.full(len(names), -1)
    at[main] = np.arange(len(main))
    keep = scored & (at[code] >= 0)
    r, c = row[keep], at[code[keep]]

    def matrix(values: NDArray[Any], empty: float, kind: type) -> NDArray[Any]:
        full: NDArray[Any] = np.full((count, len(main)), empty, kind)
        full[r, c] = values[keep]
        return full

    integers = {name: _integers(clauses[name], empty) for name, empty in _INTEGERS.items()}
    broken = value < 0.0
    integers["first_violation_step"] = np.where(broken, integers["first_violation_step"], -1)
    outcome = np.array([_SUCCESS.get(str(v), -1) for v in episodes["outcome"]], np.int8)
    complete = np.asarray(episodes["complete"], bool)
    reported, where = {}, {}
    for i in dict.fromkeys(code[~scored].tolist()):
        here = ~scored & (code == i)
        reported[names[i]] = np.full(count, np.nan)
        reported[names[i]][row[here]] = value[here]
        where[names[i]] = np.zeros(count, bool)
        where[names[i]][row[here]] = True
    columns = dict(attributes or {}) | {key: episodes[key] for key in KEYS}  # an attribute never replaces a key
    columns = {key: columns[key] for key in (*KEYS, *(key for key in columns if key not in KEYS))}
    return ScoreTable(
        clauses=tuple(names[i] for i in main),
        success=np.where(complete, outcome, -1).astype(np.int8),
        active=matrix(np.ones(len(row), bool), 0, bool),
        rho=matrix(value, np.nan, float),
        depth=matrix(np.where(broken, depth, 0.0), 0.0, float),
        steps=np.asarray(episodes["rows"], np.int64),
        violated_steps=matrix(integers["violated_steps"], 0, np.int64),
        longest_run=matrix(integers["longest_run"], 0, np.int64),
        first_violation_step=matrix(integers["first_violation_step"], -1, np.int64),
        contact=contact if contact is not None else np.full(count, -1, np.int8),
        keys={key: _objects(values, count, key) for key, values in columns.items()},
        complete=complete,
        partial=np.asarray(episodes["partial"], bool),
        aborted=np.array([v == "aborted" for v in episodes["outcome"]], bool),
        undecided=np.zeros((count, len(main)), bool),
        library_hash=tuple(sorted({str(v) for v in episodes["library_hash"]} - {""})),
        registry_hash=tuple(sorted({str(v) for v in episodes.get("registry_hash", ())} - {""})),
        gate_semantics=tuple(sorted({str(v) for v in episodes["gate_semantics"]} - {""})),
        reported=reported,
        reported_active=where,
    )


def _length(columns: Mapping[str, Column], wanted: Sequence[str], what: str) -> int:
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise ValueError(f"{what} lacks {', '.join(missing)}")
    lengths = {name: len(columns[name]) for name in wanted}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what} has columns of unequal length: {', '.join(f'{k} {n}' for k, n in lengths.items())}")
    return next(iter(lengths.values()))


def _integers(values: Column, empty: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype == object:
        return np.array([empty if v is None else int(v) for v in array], np.int64)
    if array.dtype.kind == "f":
        return np.where(np.isnan(array), empty, array).astype(np.int64)
    return array.astype(np.int64)


def _objects(values: Column, count: int, name: str) -> NDArray[np.object_]:
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(listed) != count:
        raise ValueError(f"column {name} has {len(listed)} entries for {count} episodes")
    column = np.empty(count, dtype=object)
    column[:] = listed
    return column
