"""What a monitor says: one clause as a :class:`Verdict`, a whole library as an :class:`Update` of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Status = Literal["satisfied", "violated", "unknown"]
SATISFIED: Final = 1
UNKNOWN: Final = 0
VIOLATED: Final = -1
_NAMES: Final[dict[int, Status]] = {SATISFIED: "satisfied", UNKNOWN: "unknown", VIOLATED: "violated"}


class Bounds(NamedTuple):
    """``lower <= rho <= upper``; ``rho`` is NaN where the interval is no point and nothing is known."""

    lower: float
    upper: float
    rho: float


UNDECIDED: Final = Bounds(-math.inf, math.inf, math.nan)


def status_name(code: int) -> Status:
    """'satisfied', 'violated' or 'unknown' for a status code (1, -1, 0)."""
    return _NAMES[int(code)]


def status_code(lower: float, upper: float) -> int:
    """-1 (violated) as soon as ``upper < 0``, 1 (satisfied) while ``lower >= 0``, else 0 (unknown)."""
    return VIOLATED if upper < 0 else SATISFIED if lower >= 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class Verdict:
    """One clause now.

    Attributes:
        rho: robustness; NaN where it is not decided and nothing is known.
        lower, upper: what rho can be, given all that is unknown or still to come.
        status: 'violated' as soon as ``upper < 0``, 'satisfied' while ``lower >= 0``, else 'unknown'.
        triggered: some left side of an implication has been definitely true (``lower > 0``); true without implications.
    """

    rho: float
    lower: float
    upper: float
    status: Status
    triggered: bool


class Update:
    """The library after one update: arrays over clauses in the library's order.

    Immutable. Arrays are made when asked for, so that a frame costs little when only some are read.
    """

    __slots__ = ("_bounds", "_data")

    # (program, point dialect?, stamp, samples, refused, accepted, closed, values, flags, missed, results of streams)
    _data: tuple[Any, ...]
    _bounds: tuple[list[Bounds], list[Bounds]]

    @property
    def stamp_ns(self) -> int:
        """Stamp of the last accepted sample (this one, unless it was refused); 0 before the first."""
        return int(self._data[2])

    @property
    def samples(self) -> int:
        """Accepted samples so far."""
        return int(self._data[3])

    @property
    def refused(self) -> int:
        """Refused samples so far."""
        return int(self._data[4])

    @property
    def accepted(self) -> bool:
        """False when this sample was refused, because its stamp repeats or goes back."""
        return bool(self._data[5])

    @property
    def closed(self) -> bool:
        """The trace has ended."""
        return bool(self._data[6])

    def _pairs(self) -> tuple[list[Bounds], list[Bounds]]:
        """Judged bounds and those of this instant, worked out once."""
        try:
            return self._bounds
        except AttributeError:
            pass
        program, point, stamp, samples, _, _, closed, values, _, _, results = self._data
        count = len(program.simple) + len(program.streamed)
        judged, now = [UNDECIDED] * count, [UNDECIDED] * count
        if samples:
            read = program.namespace["judge_point" if point else "judge_interval"]
            for target, found in zip((judged, now), read(values, samples, closed, stamp), strict=True):
                for clause, (lower, upper, rho) in zip(program.simple, found, strict=True):
                    target[clause] = Bounds(lower + 0.0, upper + 0.0, rho + 0.0)
            for (clause, _), result in zip(program.streamed, results, strict=True):
                judged[clause], now[clause] = result[0], result[1]
        self._bounds = (judged, now)
        return self._bounds

    # --- the judged value: at the first stamp for formulas that look ahead, else at the current one ---

    @property
    def lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the judged value."""
        return np.array([b[0] for b in self._pairs()[0]], dtype=np.float64)

    @property
    def upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the judged value; the depth of a violation is ``-upper``."""
        return np.array([b[1] for b in self._pairs()[0]], dtype=np.float64)

    @property
    def rho(self) -> NDArray[np.float64]:
        """(clauses,) the judged value, for ``always`` its minimum so far; NaN where it is undecided or nothing is known."""
        return np.array([b[2] for b in self._pairs()[0]], dtype=np.float64)

    @property
    def status(self) -> NDArray[np.int8]:
        """(clauses,) 1 satisfied, -1 violated, 0 unknown."""
        return np.array([status_code(b[0], b[1]) for b in self._pairs()[0]], dtype=np.int8)

    # --- this instant alone: the value at the current stamp; for always(body) the body's ---

    @property
    def now_lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the formula's value at this very stamp."""
        return np.array([b[0] for b in self._pairs()[1]], dtype=np.float64)

    @property
    def now_upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the formula's value at this very stamp."""
        return np.array([b[1] for b in self._pairs()[1]], dtype=np.float64)

    @property
    def now_rho(self) -> NDArray[np.float64]:
        """(clauses,) the formula's value at this very stamp: the margin of this step, which may recover."""
        return np.array([b[2] for b in self._pairs()[1]], dtype=np.float64)

    @property
    def now_status(self) -> NDArray[np.int8]:
        """(clauses,) status of this instant: 1 satisfied, -1 violated, 0 unknown."""
        return np.array([status_code(b[0], b[1]) for b in self._pairs()[1]], dtype=np.int8)

    # --- what else was counted ---

    @property
    def triggered(self) -> NDArray[np.bool_]:
        """(clauses,) some left side of an implication has been definitely true; true without implications."""
        return np.array([self._triggered(c) for c in range(len(self))], dtype=np.bool_)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(clauses,) accepted samples so far in which some signal of the clause was missing, NaN or infinite."""
        missed = self._data[9]
        return np.array(missed or (0,) * len(self), dtype=np.int64)

    def _triggered(self, clause: int) -> bool:
        program, flags, results = self._data[0], self._data[8], self._data[10]
        positions = program.triggers[clause]
        if positions is None or any(flags[p] for p in positions):
            return True
        return any(result[2] for (c, _), result in zip(program.streamed, results, strict=True) if c == clause)

    def verdict(self, clause: int) -> Verdict:
        """The verdict on one clause by its position."""
        lower, upper, rho = self._pairs()[0][clause]
        return Verdict(rho, lower, upper, status_name(status_code(lower, upper)), self._triggered(clause))

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on all clauses."""
        return tuple(self.verdict(i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._data[0].triggers)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "accepted" if self.accepted else "refused"
        return f"Update({state}, stamp_ns={self.stamp_ns}, status={self.status.tolist()}, rho={self.rho.tolist()})"
