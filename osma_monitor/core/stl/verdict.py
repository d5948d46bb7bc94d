"""What a monitor says: one clause as a :class:`Verdict`, a whole library as an :class:`Update` of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.stl.packing import Arrays

if TYPE_CHECKING:
    from osma_monitor.core.stl.codegen import Program

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


# (stamp, samples, refused, accepted, closed, values of this sample, unknown samples by clause, results of streams)
Frame = tuple[int, int, int, bool, bool, Any, tuple[int, ...], tuple[Any, ...]]
_Lists = tuple[list[float], list[float], list[float]]


class Judged:
    """What updates share between which no judged value changed; arrays and lists are None until somebody asks."""

    __slots__ = (
        "flags",
        "frame",
        "lower",
        "plain",
        "point",
        "program",
        "rho",
        "state",
        "status",
        "triggered",
        "unknown",
        "upper",
    )

    lower: NDArray[np.float64] | None
    upper: NDArray[np.float64] | None
    rho: NDArray[np.float64] | None
    status: NDArray[np.int8] | None
    triggered: NDArray[np.bool_] | None
    unknown: NDArray[np.int64] | None
    plain: _Lists | None

    def __init__(
        self, program: Program, point: bool, state: tuple[Any, ...], flags: tuple[bool, ...], frame: Frame
    ) -> None:
        self.program = program
        self.point = point
        self.state = state
        self.flags = flags
        self.frame = frame
        self.lower = self.upper = self.rho = self.status = self.triggered = self.unknown = self.plain = None

    def bounds(self) -> Arrays:
        """Lower, upper, rho and status; kept for the next who asks."""
        arrays = self.lower, self.upper, self.rho, self.status = self.arrays("judged", self.frame)
        return arrays

    def counts(self) -> NDArray[np.int64]:
        """``unknown``; kept for the next who asks."""
        missed, packing = self.frame[6], self.program.packing
        self.unknown = packing.counts(missed) if missed else packing.zeros
        return self.unknown

    def triggers(self) -> NDArray[np.bool_]:
        """``triggered``; kept for the next who asks."""
        found = np.array([self.is_triggered(c) for c in range(len(self.program.triggers))], dtype=np.bool_)
        found.flags.writeable = False
        self.triggered = found
        return found

    def arrays(self, which: str, frame: Frame) -> Arrays:
        """What :meth:`lists` gives as read-only arrays, and the status codes."""
        quick = self.program.namespace.get(which + ("_point_arrays" if self.point else "_interval_arrays"))
        stamp, samples, _, _, closed, values, _, _ = frame
        if quick is not None and samples:
            arrays: Arrays = quick(self.state, values, samples, closed, stamp)
            return arrays
        lower, upper, rho = self.lists(which, frame)
        packing = self.program.packing
        return packing.points(*lower) if rho is lower else packing.intervals(*lower, *upper, *rho)

    def plain_lists(self) -> _Lists:
        """Lower, upper and rho of the judged values; kept for the next who asks."""
        if self.plain is None:
            self.plain = self.lists("judged", self.frame)
        return self.plain

    def lists(self, which: str, frame: Frame) -> _Lists:
        """Lower, upper and rho of all clauses, judged or of this instant ('now'), without negative zeros.

        One list thrice where all are points.
        """
        program = self.program
        stamp, samples, _, _, closed, values, _, results = frame
        count = len(program.triggers)
        if not samples:
            return [-math.inf] * count, [math.inf] * count, [math.nan] * count
        function = program.namespace[which + ("_point" if self.point else "_interval")]
        lower, upper, rho = function(self.state, values, samples, closed, stamp)
        if not program.streamed:
            return lower, upper, rho
        if rho is lower:
            upper, rho = lower.copy(), lower.copy()
        for (clause, _), result in zip(program.streamed, results, strict=True):  # in the order of clauses
            bounds: Bounds = result[0 if which == "judged" else 1]
            lower.insert(clause, bounds[0] + 0.0)
            upper.insert(clause, bounds[1] + 0.0)
            rho.insert(clause, bounds[2] + 0.0)
        return lower, upper, rho

    def verdict(self, clause: int) -> Verdict:
        """One clause's verdict, without the detour over arrays."""
        lower, upper, rho = (float(part[clause]) for part in self.plain_lists())
        status = status_name(status_code(lower, upper))
        return Verdict(rho, lower, upper, status, self.is_triggered(clause))

    def is_triggered(self, clause: int) -> bool:
        positions = self.program.triggers[clause]
        if positions is None or any(self.flags[p] for p in positions):
            return True
        results = zip(self.program.streamed, self.frame[7], strict=True)
        return any(result[2] for (c, _), result in results if c == clause)


class Update:
    """The library after one update: arrays over clauses in the library's order.

    Immutable, arrays too. They are made when asked for, so that a frame costs little when only some are read.

    Attributes:
        lower: lower bound of the judged value (at the first stamp for formulas that look ahead, else at the current
        one).
        upper: upper bound of the judged value; the depth of a violation is ``-upper``.
        rho: the judged value, for ``always`` its minimum so far; NaN where undecided or nothing is known.
        status: int8, 1 satisfied, -1 violated, 0 unknown.
        triggered: some left side of an implication has been definitely true; true without implications.
        now_lower, now_upper, now_rho, now_status: the same for this instant alone: the formula's value at the current
            stamp, for ``always(body)`` the body's; the margin of this step, which may recover.
        unknown: accepted samples so far in which some signal of the clause was missing, NaN or infinite.
    """

    __slots__ = ("_frame", "_instant", "_shared")

    _frame: Frame
    _shared: Judged
    _instant: Arrays

    @property
    def lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the judged value."""
        found = self._shared.lower
        return found if found is not None else self._shared.bounds()[0]

    @property
    def upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the judged value."""
        found = self._shared.upper
        return found if found is not None else self._shared.bounds()[1]

    @property
    def rho(self) -> NDArray[np.float64]:
        """(clauses,) the judged value, NaN where undecided or nothing is known."""
        found = self._shared.rho
        return found if found is not None else self._shared.bounds()[2]

    @property
    def status(self) -> NDArray[np.int8]:
        """(clauses,) 1 satisfied, -1 violated, 0 unknown."""
        found = self._shared.status
        return found if found is not None else self._shared.bounds()[3]

    @property
    def triggered(self) -> NDArray[np.bool_]:
        """(clauses,) some left side has been definitely true."""
        found = self._shared.triggered
        return found if found is not None else self._shared.triggers()

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(clauses,) samples in which some signal of the clause was unknown."""
        found = self._shared.unknown
        return found if found is not None else self._shared.counts()

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

    def _now(self) -> Arrays:
        try:
            return self._instant
        except AttributeError:
            self._instant = self._shared.arrays("now", self._frame)
            return self._instant

    def now_lists(self) -> _Lists:
        """Lower bound, upper bound and rho of this instant as plain lists: the values of the arrays below.

        They may be one and the same list, where every value is a point: to be read, not changed.
        """
        return self._shared.lists("now", self._frame)

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
        """(clauses,) the formula's value at this very stamp."""
        return self._now()[2]

    @property
    def now_status(self) -> NDArray[np.int8]:
        """(clauses,) status of this instant: 1 satisfied, -1 violated, 0 unknown."""
        return self._now()[3]

    def verdict(self, clause: int) -> Verdict:
        """The verdict on one clause by its position."""
        return self._shared.verdict(clause)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on all clauses."""
        return tuple(self.verdict(i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._shared.program.triggers)

    def _replace(self, **changes: Any) -> Update:
        """A copy with other entries of the frame: ``refused``, ``accepted``, ``closed``, ``results``."""
        frame = list(self._frame)
        for name, value in changes.items():
            frame[{"refused": 2, "accepted": 3, "closed": 4, "results": 7}[name]] = value
        shared = self._shared
        return make_update(shared.program, shared.point, shared.state, shared.flags, tuple(frame))

    def __repr__(self) -> str:
        state = "closed" if self.closed else "accepted" if self.accepted else "refused"
        return f"Update({state}, stamp_ns={self.stamp_ns}, status={self.status.tolist()}, rho={self.rho.tolist()})"


def make_update(program: Program, point: bool, state: tuple[Any, ...], flags: tuple[bool, ...], frame: Any) -> Update:
    """An update from its parts."""
    update = Update()
    update._frame = frame
    update._shared = Judged(program, point, state, flags, frame)
    return update
