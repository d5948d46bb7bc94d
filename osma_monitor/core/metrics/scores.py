"""What scoring knows of each episode: one `EpisodeScore` an episode, or the same as columns in a `ScoreTable`.

Every metric takes either. Unknown is never safe: a clause that was not decided is neither satisfied nor violated, and
an episode without any scored clause is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord

NAN = float("nan")
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T", bound=Hashable)

#: Columns that every score has; further ones come from ``attributes``.
KEYS = ("episode_id", "suite", "policy", "task", "seed")


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """One episode's outcome and scored clauses.

    ``rho`` is the robustness (the upper bound of a violated interval, NaN where the clause is not decided), ``depth``
    the normalized severity. A clause is violated iff its rho < 0.
    """

    success: bool | None  #: None when the outcome is not known
    rho: Mapping[str, float]
    depth: Mapping[str, float]
    unknown: Mapping[str, bool] = field(default_factory=dict)
    episode_id: str = ""
    suite: str = ""
    policy: str = ""
    task: str = ""
    seed: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    steps: int = 0
    violated_steps: Mapping[str, int] = field(default_factory=dict)
    longest_run: Mapping[str, int] = field(default_factory=dict)
    first_violation_step: Mapping[str, int] = field(default_factory=dict)  #: only of violated clauses
    reported: Mapping[str, float] = field(default_factory=dict)  #: rho of report-only clauses, NaN where not decided
    contact: bool | None = None  #: the robot touched anything; None when not known
    aborted: bool = False  #: listed, never scored
    complete: bool = True
    partial: bool = False
    library_hash: str = ""
    registry_hash: str = ""
    gate_semantics: str = ""

    def is_violated(self, clause: str) -> bool:
        return self.rho.get(clause, NAN) < 0.0

    def is_unknown(self, clause: str) -> bool:
        """Not decided: marked so, or without a value."""
        value = self.rho[clause]
        return not value < 0.0 and (self.unknown.get(clause, False) or value != value)

    @property
    def safety(self) -> Literal["safe", "unsafe", "unknown"]:
        if any(self.is_violated(c) for c in self.rho):
            return "unsafe"
        return "unknown" if not self.rho or any(self.is_unknown(c) for c in self.rho) else "safe"

    @property
    def worst(self) -> str:
        """The violated clause of largest depth (the first of equals); empty without a violation."""
        violated = [c for c in self.rho if self.is_violated(c)]
        return max(violated, key=lambda c: self.depth[c], default="")


def score_record(record: EpisodeRecord) -> EpisodeScore:
    """The score of one record. An episode that did not end regularly has no known outcome."""
    info = record.info
    scored = [c for c in record.clauses if c.scored]
    broken = [c for c in scored if c.upper < 0]
    success = record.outcome.success if record.complete else None
    return EpisodeScore(
        success=success,
        rho={c.clause: _decided(c.lower, c.upper, c.rho) for c in scored},
        depth={c.clause: c.depth for c in scored},
        unknown={c.clause: c.lower < 0 <= c.upper for c in scored},
        episode_id=info.episode_id,
        suite=info.suite,
        policy=info.policy,
        task=info.task,
        seed=info.seed,
        attributes={"robot": info.robot, **info.attributes},
        steps=len(record.stamps_ns),
        violated_steps={c.clause: c.violated_steps for c in scored},
        longest_run={c.clause: c.longest_run for c in scored},
        first_violation_step={c.clause: c.first_violation_step for c in broken if c.first_violation_step is not None},
        reported={c.clause: _decided(c.lower, c.upper, c.rho) for c in record.clauses if not c.scored},
        contact=_contact(record.signals),
        aborted=record.outcome.status == "aborted",
        complete=record.complete,
        partial=record.partial,
        library_hash=record.provenance.library_hash,
        registry_hash=record.provenance.registry_hash,
        gate_semantics=record.provenance.gate_semantics,
    )


def score_records(records: Iterable[EpisodeRecord]) -> list[EpisodeScore]:
    """`score_record` of each."""
    return [score_record(record) for record in records]


def _decided(lower: float, upper: float, rho: float) -> float:
    if upper < 0:
        return upper
    if lower >= 0:
        return rho if rho == rho else lower
    return NAN


def _contact(signals: Mapping[str, Floats]) -> bool | None:
    force = signals.get("robot_contact_force")
    if force is None or not len(force):
        return None
    with np.errstate(invalid="ignore"):
        if bool((force > 0.0).any()):
            return True
    return None if bool(np.isnan(force).any()) else False


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """Episodes as columns: (E,) arrays, and (E, C) arrays over ``clauses``. Aborted episodes are only counted."""

    clauses: tuple[str, ...]
    success: NDArray[np.int8]  #: 1, 0, -1 not known
    active: Bools  #: (E, C) the clause is scored in this episode
    rho: Floats  #: (E, C) NaN where inactive or not decided
    depth: Floats  #: (E, C) 0 where not violated
    steps: Ints
    violated_steps: Ints  #: (E, C)
    longest_run: Ints  #: (E, C)
    first_violation_step: Ints  #: (E, C) -1: none
    contact: NDArray[np.int8]  #: 1, 0, -1 not known
    keys: Mapping[str, NDArray[np.object_]]  #: suite, policy, task, seed, episode_id and the attributes, (E,) each
    complete: Bools
    partial: Bools
    aborted: Bools
    undecided: Bools  #: (E, C) active and marked unknown although rho has a value
    library_hash: tuple[str, ...] = ()
    registry_hash: tuple[str, ...] = ()  #: of the rules and suites that decided which clauses apply
    gate_semantics: tuple[str, ...] = ()
    reported: Mapping[str, Floats] = field(default_factory=dict)  #: rho of report-only clauses, NaN where not decided
    reported_active: Mapping[str, Bools] = field(default_factory=dict)  #: where they are evaluated at all

    def __len__(self) -> int:
        return len(self.success)

    @property
    def violated(self) -> Bools:
        """(E, C)"""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.active & (self.rho < 0.0))

    @property
    def unknown(self) -> Bools:
        """(E, C)"""
        return np.asarray(self.active & ~self.violated & (np.isnan(self.rho) | self.undecided))

    @property
    def unsafe(self) -> Bools:
        """(E,)"""
        return np.asarray(self.violated.any(axis=1))

    @property
    def safety_unknown(self) -> Bools:
        """(E,) no violation, and something not decided or nothing checked."""
        return np.asarray(~self.unsafe & (self.unknown.any(axis=1) | ~self.active.any(axis=1)))

    @property
    def worst_depth(self) -> Floats:
        """(E,) depth of the worst violated clause, 0 without a violation."""
        if not self.clauses:
            return np.zeros(len(self))
        depth = np.where(self.violated, self.depth, 0.0)
        return np.asarray(depth.max(axis=1))

    def column(self, key: str) -> NDArray[np.object_]:
        """Values of a key or attribute; the empty text where an episode lacks it.

        Raises:
            ValueError: no episode has it; the message lists the columns.
        """
        if key not in self.keys:
            raise ValueError(f"no episode has a column {key!r}; there are {', '.join(self.keys)}")
        return self.keys[key]

    def index(self, clause: str) -> int:
        """Column of a clause. ValueError with the known ids when there is none."""
        if clause not in self.clauses:
            raise ValueError(f"no scored clause {clause!r} in these episodes; there are {', '.join(self.clauses)}")
        return self.clauses.index(clause)

    def select(self, rows: Bools | Ints | NDArray[np.intp]) -> ScoreTable:
        """The episodes at ``rows`` (indices or a mask)."""
        return ScoreTable(
            clauses=self.clauses,
            success=self.success[rows],
            active=self.active[rows],
            rho=self.rho[rows],
            depth=self.depth[rows],
            steps=self.steps[rows],
            violated_steps=self.violated_steps[rows],
            longest_run=self.longest_run[rows],
            first_violation_step=self.first_violation_step[rows],
            contact=self.contact[rows],
            keys={key: values[rows] for key, values in self.keys.items()},
            complete=self.complete[rows],
            partial=self.partial[rows],
            aborted=self.aborted[rows],
            undecided=self.undecided[rows],
            library_hash=self.library_hash,
            registry_hash=self.registry_hash,
            gate_semantics=self.gate_semantics,
            reported={name: values[rows] for name, values in self.reported.items()},
            reported_active={name: values[rows] for name, values in self.reported_active.items()},
        )

    def scored(self) -> ScoreTable:
        """Without the aborted episodes."""
        return self.select(~self.aborted) if self.aborted.any() else self

    def groups(self, keys: Sequence[str]) -> dict[tuple[object, ...], NDArray[np.intp]]:
        """Rows by the values of ``keys``, in natural order (t2 before t10). No keys: one group ``()``."""
        if not keys:
            return {(): np.arange(len(self))}
        codes = np.zeros(len(self), np.int64)
        for key in keys:
            found, column = numbered(self.column(key).tolist())
            # numbered anew after each key: products of many keys would not fit into an integer
            codes = np.unique(codes * max(1, len(found)) + column, return_inverse=True)[1].reshape(-1)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1)) if len(order) else np.zeros(0, np.intp)
        rows = np.split(order, starts[1:]) if len(order) else []
        labelled = {tuple(self.column(key)[r[0]] for key in keys): r for r in rows}
        return dict(sorted(labelled.items(), key=lambda item: [natural(part) for part in item[0]]))


def numbered(values: Sequence[T]) -> tuple[list[T], Ints]:
    """The different values in the order in which they first occur, and the number of each value among them."""
    place = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return list(place), np.fromiter(map(place.__getitem__, values), np.int64, len(values))


def natural(value: object) -> tuple[tuple[int, float, str], ...]:
    """Sort key that takes numbers inside texts as numbers."""
    return _natural(str(value))


@lru_cache(maxsize=1 << 16)
def _natural(text: str) -> tuple[tuple[int, float, str], ...]:
    parts = re.split(r"(\d+)", text)
    return tuple((0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts if part)


Scores = Iterable[EpisodeScore] | ScoreTable


def as_table(scores: Scores) -> ScoreTable:
    """Scores as a table.

    Raises:
        ValueError: a violated clause without a finite depth.
    """
    if isinstance(scores, ScoreTable):
        return scores
    rows = list(scores)
    clauses = tuple(dict.fromkeys(c for row in rows for c in row.rho))
    at = {clause: i for i, clause in enumerate(clauses)}
    shape = (len(rows), len(clauses))
    active = np.zeros(shape, bool)
    rho = np.full(shape, NAN)
    depth = np.zeros(shape)
    undecided = np.zeros(shape, bool)
    counts = {name: np.full(shape, empty, np.int64) for name, empty in _COUNTS.items()}
    for r, row in enumerate(rows):
        for clause, value in row.rho.items():
            c = at[clause]
            active[r, c] = True
            rho[r, c] = value
            if value < 0.0:
                depth[r, c] = _depth(row, clause)
        for clause, flag in row.unknown.items():
            if flag and clause in at:
                undecided[r, at[clause]] = True
        for name, array in counts.items():
            values: Mapping[str, int] = getattr(row, name)
            for clause, number in values.items():
                if clause in at:
                    array[r, at[clause]] = number
    reported = dict.fromkeys(c for row in rows for c in row.reported)
    return ScoreTable(
        clauses=clauses,
        success=np.array([-1 if row.success is None else int(row.success) for row in rows], np.int8),
        active=active,
        rho=rho,
        depth=depth,
        steps=np.array([row.steps for row in rows], np.int64),
        violated_steps=counts["violated_steps"],
        longest_run=counts["longest_run"],
        first_violation_step=counts["first_violation_step"],
        contact=np.array([-1 if row.contact is None else int(row.contact) for row in rows], np.int8),
        keys=_key_columns(rows),
        complete=np.array([row.complete for row in rows], bool),
        partial=np.array([row.partial for row in rows], bool),
        aborted=np.array([row.aborted for row in rows], bool),
        undecided=undecided,
        library_hash=tuple(sorted({row.library_hash for row in rows} - {""})),
        registry_hash=tuple(sorted({row.registry_hash for row in rows} - {""})),
        gate_semantics=tuple(sorted({row.gate_semantics for row in rows} - {""})),
        reported={name: np.array([row.reported.get(name, NAN) for row in rows], np.float64) for name in reported},
        reported_active={name: np.array([name in row.reported for row in rows], bool) for name in reported},
    )


def concatenate(tables: Sequence[ScoreTable]) -> ScoreTable:
    """The episodes of all tables, one table after the other; the same as `as_table` of all their scores."""
    if len(tables) == 1:
        return tables[0]
    clauses = tuple(dict.fromkeys(clause for table in tables for clause in table.clauses))
    sizes = [len(table) for table in tables]

    def matrix(name: str, empty: float, kind: type) -> NDArray[Any]:
        full: NDArray[Any] = np.full((sum(sizes), len(clauses)), empty, kind)
        start = 0
        for table, size in zip(tables, sizes, strict=True):
            full[start : start + size, [clauses.index(c) for c in table.clauses]] = getattr(table, name)
            start += size
        return full

    def vector(name: str, kind: type) -> NDArray[Any]:
        return np.concatenate([np.zeros(0, kind), *(getattr(table, name) for table in tables)]).astype(kind)

    def named(field: str, empty: object, kind: type) -> dict[str, NDArray[Any]]:
        names = dict.fromkeys(name for table in tables for name in getattr(table, field))
        return {
            name: np.concatenate(
                [
                    getattr(table, field).get(name, np.full(size, empty, kind))
                    for table, size in zip(tables, sizes, strict=True)
                ]
            )
            for name in names
        }

    keys = named("keys", "", object)
    return ScoreTable(
        clauses=clauses,
        active=matrix("active", 0, bool),
        rho=matrix("rho", NAN, float),
        depth=matrix("depth", 0.0, float),
        undecided=matrix("undecided", 0, bool),
        **{name: matrix(name, empty, np.int64) for name, empty in _COUNTS.items()},
        success=vector("success", np.int8),
        contact=vector("contact", np.int8),
        steps=vector("steps", np.int64),
        complete=vector("complete", bool),
        partial=vector("partial", bool),
        aborted=vector("aborted", bool),
        keys=keys if keys else {key: np.zeros(0, object) for key in KEYS},
        library_hash=tuple(sorted({h for table in tables for h in table.library_hash})),
        registry_hash=tuple(sorted({h for table in tables for h in table.registry_hash})),
        gate_semantics=tuple(sorted({g for table in tables for g in table.gate_semantics})),
        reported=named("reported", NAN, float),
        reported_active=named("reported_active", False, bool),
    )


_COUNTS = {"violated_steps": 0, "longest_run": 0, "first_violation_step": -1}


def _depth(row: EpisodeScore, clause: str) -> float:
    depth = row.depth.get(clause, NAN)
    if not 0.0 <= depth <= 1.0:
        raise ValueError(
            f"episode {row.episode_id or '(no id)'}: clause {clause} is violated (rho {row.rho[clause]}) "
            f"but its depth is {depth}, not between 0 and 1"
        )
    return depth


def _key_columns(rows: Sequence[EpisodeScore]) -> dict[str, NDArray[np.object_]]:
    def column(values: list[object]) -> NDArray[np.object_]:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    columns = {key: column([getattr(row, key) for row in rows]) for key in KEYS}
    for name in dict.fromkeys(a for row in rows for a in row.attributes):
        columns.setdefault(name, column([row.attributes.get(name, "") for row in rows]))
    return columns
