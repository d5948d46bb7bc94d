"""What a monitor says: one clause as a :class:`Verdict`, a whole library as an :class:`Update` of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
_Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]


def _arrays(lower: list[float], upper: list[float], rho: list[float]) -> _Arrays:
    """Read-only arrays without negative zeros, and the status codes."""
    values = np.array((lower, upper, rho), dtype=np.float64) + 0.0
    status = np.array(
        [-1 if u < 0 else 1 if low >= 0 else 0 for low, u in zip(lower, upper, strict=True)], dtype=np.int8
    )
    values.flags.writeable = status.flags.writeable = False
    return values[0], values[1], values[2], status


class Judged:
    """What updates share between which no judged value changed; the arrays are worked out when somebody asks."""

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

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    rho: NDArray[np.float64]
    status: NDArray[np.int8]
    triggered: NDArray[np.bool_]
    unknown: NDArray[np.int64]
    plain: tuple[list[float], list[float], list[float]]

    def __init__(
        self, program: Program, point: bool, state: tuple[Any, ...], flags: tuple[bool, ...], frame: Frame
    ) -> None:
        self.program = program
        self.point = point
        self.state = state
        self.flags = flags
        self.frame = frame

    def __getattr__(self, name: str) -> Any:  # only for slots that are still empty
        if name in ("lower", "upper", "rho", "status"):
            self.lower, self.upper, self.rho, self.status = self.read("judged", self.frame)
        elif name == "triggered":
            self.triggered = np.array([self.is_triggered(c) for c in range(len(self.program.triggers))], dtype=np.bool_)
            self.triggered.flags.writeable = False
        elif name == "plain":
            self.plain = self.lists("judged", self.frame)
        elif name == "unknown":
            self.unknown = np.array(self.frame[6] or [0] * len(self.program.triggers), dtype=np.int64)
            self.unknown.flags.writeable = False
        else:
            raise AttributeError(name)
        return getattr(self, name)

    def read(self, which: str, frame: Frame) -> _Arrays:
        """The arrays of ``which`` ('judged' or 'now') at a frame."""
        return _arrays(*self.lists(which, frame))

    def lists(self, which: str, frame: Frame) -> tuple[list[float], list[float], list[float]]:
        """Lower, upper and rho of all clauses."""
        program = self.program
        stamp, samples, _, _, closed, values, _, results = frame
        count = len(program.triggers)
        if not samples:
            return [-math.inf] * count, [math.inf] * count, [math.nan] * count
        function = program.namespace[which + ("_point" if self.point else "_interval")]
        lower, upper, rho = function(self.state, values, samples, closed, stamp)
        if not program.streamed:
            return lower, upper, rho
        bounds = dict(zip(program.simple, zip(lower, upper, rho, strict=True), strict=True))
        for (clause, _), result in zip(program.streamed, results, strict=True):
            bounds[clause] = result[0 if which == "judged" else 1]
        ordered = [bounds[c] for c in range(count)]
        return [b[0] for b in ordered], [b[1] for b in ordered], [b[2] for b in ordered]

    def verdict(self, clause: int) -> Verdict:
        """One clause's verdict, without the detour over arrays."""
        lower, upper, rho = (float(part[clause]) + 0.0 for part in self.plain)
        status = status_name(status_code(lower, upper))
        return Verdict(rho, lower, upper, status, self.is_triggered(clause))

    def is_triggered(self, clause: int) -> bool:
        positions = self.program.triggers[clause]
        if positions is None or any(self.flags[p] for p in positions):
            return True
        results = zip(self.program.streamed, self.frame[7], strict=True)
        return any(result[2] for (c, _), result in results if c == clause)


def _through(name: str, doc: str) -> Any:
    """A property that reads through to :class:`Judged` without running Python code."""
    return property(attrgetter(f"_shared.{name}"), doc=doc)


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
    _instant: _Arrays

    lower: NDArray[np.float64] = _through("lower", "(clauses,) lower bound of the judged value.")
    upper: NDArray[np.float64] = _through("upper", "(clauses,) upper bound of the judged value.")
    rho: NDArray[np.float64] = _through("rho", "(clauses,) the judged value, NaN where undecided or nothing is known.")
    status: NDArray[np.int8] = _through("status", "(clauses,) 1 satisfied, -1 violated, 0 unknown.")
    triggered: NDArray[np.bool_] = _through("triggered", "(clauses,) some left side has been definitely true.")
    unknown: NDArray[np.int64] = _through(
        "unknown", "(clauses,) samples in which some signal of the clause was unknown."
    )

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

    def _now(self) -> _Arrays:
        try:
            return self._instant
        except AttributeError:
            self._instant = self._shared.read("now", self._frame)
            return self._instant

    def now_lists(self) -> tuple[list[float], list[float], list[float]]:
        """Lower bound, upper bound and rho of this instant as plain lists: what the arrays below are made from."""
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
