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


_Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]


def _arrays(lower: list[float], upper: list[float], rho: list[float]) -> _Arrays:
    """Read-only arrays without negative zeros, and the status codes."""
    values = np.array((lower, upper, rho), dtype=np.float64) + 0.0
    status = np.array(
        [-1 if u < 0 else 1 if low >= 0 else 0 for low, u in zip(lower, upper, strict=True)], dtype=np.int8
    )
    values.flags.writeable = status.flags.writeable = False
    return values[0], values[1], values[2], status


class Update:
    """The library after one update: arrays over clauses in the library's order.

    Immutable, arrays too. They are made when asked for, so that a frame costs little when only some are read.
    """

    __slots__ = ("_frame", "_instant", "_shared")

    # (program, point dialect?, accumulators, triggers, [judged arrays once somebody asked]): shared by updates between
    # which no judged value changed
    _shared: tuple[Any, bool, tuple[Any, ...], tuple[bool, ...], list[_Arrays]]
    # (stamp, samples, refused, accepted, closed, values of this sample, unknown samples by clause, results of streams)
    _frame: tuple[int, int, int, bool, bool, Any, tuple[int, ...], tuple[Any, ...]]
    _instant: _Arrays

    @property
    def stamp_ns(self) -> int:
        """Stamp of the last accepted sample (this one, unless it was refused); 0 before the first."""
        return self._frame[0]

    @property
    def samples(self) -> int:
        """Accepted samples so far."""
        return self._frame[1]

    @property
    def refused(self) -> int:
        """Refused samples so far."""
        return self._frame[2]

    @property
    def accepted(self) -> bool:
        """False when this sample was refused, because its stamp repeats or goes back."""
        return self._frame[3]

    @property
    def closed(self) -> bool:
        """The trace has ended."""
        return self._frame[4]

    def _read(self, which: str) -> _Arrays:
        program, point, state, _, _ = self._shared
        stamp, samples, _, _, closed, values, _, results = self._frame
        if not samples:
            count = len(self)
            return _arrays([-math.inf] * count, [math.inf] * count, [math.nan] * count)
        read = program.namespace[which + ("_point" if point else "_interval")]
        lists = read(state, values, samples, closed, stamp)
        if not program.streamed:
            return _arrays(*lists)
        bounds = dict(zip(program.simple, zip(*lists, strict=True), strict=True))
        for (clause, _), result in zip(program.streamed, results, strict=True):
            bounds[clause] = result[0 if which == "judged" else 1]
        ordered = [bounds[c] for c in range(len(self))]
        return _arrays(*([b[part] for b in ordered] for part in range(3)))

    def _judged(self) -> _Arrays:
        cache = self._shared[4]
        if not cache:
            cache.append(self._read("judged"))
        return cache[0]

    def _now(self) -> _Arrays:
        try:
            return self._instant
        except AttributeError:
            self._instant = self._read("now")
            return self._instant

    # --- the judged value: at the first stamp for formulas that look ahead, else at the current one ---

    @property
    def lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the judged value."""
        cache = self._shared[4]
        return cache[0][0] if cache else self._judged()[0]

    @property
    def upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the judged value; the depth of a violation is ``-upper``."""
        cache = self._shared[4]
        return cache[0][1] if cache else self._judged()[1]

    @property
    def rho(self) -> NDArray[np.float64]:
        """(clauses,) the judged value, for ``always`` its minimum so far; NaN where undecided or nothing is known."""
        cache = self._shared[4]
        return cache[0][2] if cache else self._judged()[2]

    @property
    def status(self) -> NDArray[np.int8]:
        """(clauses,) 1 satisfied, -1 violated, 0 unknown."""
        cache = self._shared[4]
        return cache[0][3] if cache else self._judged()[3]

    # --- this instant alone: the value at the current stamp; for always(body) the body's ---

    @property
    def now_lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the formula's value at this very stamp."""
        return self._now()[0]

    @property
    def now_upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the formula's value at this very stamp."""
        return self._now()[1]

    @property
    def now_rho(self) -> NDArray[np.float64]:
        """(clauses,) the formula's value at this very stamp: the margin of this step, which may recover."""
        return self._now()[2]

    @property
    def now_status(self) -> NDArray[np.int8]:
        """(clauses,) status of this instant: 1 satisfied, -1 violated, 0 unknown."""
        return self._now()[3]

    # --- what else was counted ---

    @property
    def triggered(self) -> NDArray[np.bool_]:
        """(clauses,) some left side of an implication has been definitely true; true without implications."""
        return np.array([self._triggered(c) for c in range(len(self))], dtype=np.bool_)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(clauses,) accepted samples so far in which some signal of the clause was missing, NaN or infinite."""
        missed = self._frame[6]
        return np.array(missed, dtype=np.int64) if missed else self._shared[0].zeros

    def _triggered(self, clause: int) -> bool:
        program, flags, results = self._shared[0], self._shared[3], self._frame[7]
        positions = program.triggers[clause]
        if positions is None or any(flags[p] for p in positions):
            return True
        return any(result[2] for (c, _), result in zip(program.streamed, results, strict=True) if c == clause)

    def verdict(self, clause: int) -> Verdict:
        """The verdict on one clause by its position."""
        lower, upper, rho, _ = (float(part[clause]) for part in self._judged())
        return Verdict(rho, lower, upper, status_name(status_code(lower, upper)), self._triggered(clause))

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on all clauses."""
        return tuple(self.verdict(i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._shared[0].triggers)

    def _replace(self, **changes: Any) -> Update:
        """A copy with other entries of the frame: ``refused``, ``accepted``, ``closed``, ``results``."""
        frame = list(self._frame)
        for name, value in changes.items():
            frame[{"refused": 2, "accepted": 3, "closed": 4, "results": 7}[name]] = value
        return make_update((*self._shared[:4], []), tuple(frame))

    def __repr__(self) -> str:
        state = "closed" if self.closed else "accepted" if self.accepted else "refused"
        return f"Update({state}, stamp_ns={self.stamp_ns}, status={self.status.tolist()}, rho={self.rho.tolist()})"


def make_update(shared: tuple[Any, ...], frame: tuple[Any, ...]) -> Update:
    """An update from its two parts; see the comments in :class:`Update`."""
    update = Update()
    update._shared = shared
    update._frame = frame
    return update
