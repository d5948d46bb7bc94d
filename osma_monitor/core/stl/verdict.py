"""What a monitor says: one clause as a :class:`Verdict`, a whole library as an :class:`Update` of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

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
    """The library after one update: arrays over clauses in the library's order. Immutable; arrays are made when asked for.

    Attributes:
        stamp_ns: stamp of the last accepted sample (of this one, unless refused).
        accepted: False when this sample was refused, because its stamp repeats or goes back.
        samples: accepted samples so far.
        refused: refused samples so far.
        closed: the trace has ended.
    """

    __slots__ = ("_judged", "_now", "_triggered", "_unknown", "accepted", "closed", "refused", "samples", "stamp_ns")

    def __init__(
        self, stamp_ns: int, accepted: bool, samples: int, refused: int, closed: bool,
        judged: tuple[Bounds, ...], now: tuple[Bounds, ...], triggered: tuple[bool, ...], unknown: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.stamp_ns = stamp_ns
        self.accepted = accepted
        self.samples = samples
        self.refused = refused
        self.closed = closed
        self._judged = judged
        self._now = now
        self._triggered = triggered
        self._unknown = unknown

    # --- the judged value: at the first stamp for formulas that look ahead, else at the current one ---

    @property
    def lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the judged value."""
        return np.array([b[0] for b in self._judged], dtype=np.float64)

    @property
    def upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the judged value; depth of a violation is ``-upper``."""
        return np.array([b[1] for b in self._judged], dtype=np.float64)

    @property
    def rho(self) -> NDArray[np.float64]:
        """(clauses,) the judged value, for ``always`` its minimum so far; NaN where nothing is known."""
        return np.array([b[2] for b in self._judged], dtype=np.float64)

    @property
    def status(self) -> NDArray[np.int8]:
        """(clauses,) 1 satisfied, -1 violated, 0 unknown."""
        return np.array([status_code(b[0], b[1]) for b in self._judged], dtype=np.int8)

    # --- this instant alone: the value at the current stamp; for always(body) the body's ---

    @property
    def now_lower(self) -> NDArray[np.float64]:
        """(clauses,) lower bound of the formula's value at this very stamp."""
        return np.array([b[0] for b in self._now], dtype=np.float64)

    @property
    def now_upper(self) -> NDArray[np.float64]:
        """(clauses,) upper bound of the formula's value at this very stamp."""
        return np.array([b[1] for b in self._now], dtype=np.float64)

    @property
    def now_rho(self) -> NDArray[np.float64]:
        """(clauses,) the formula's value at this very stamp: the margin of this step; may recover."""
        return np.array([b[2] for b in self._now], dtype=np.float64)

    @property
    def now_status(self) -> NDArray[np.int8]:
        """(clauses,) status of this instant: 1 satisfied, -1 violated, 0 unknown."""
        return np.array([status_code(b[0], b[1]) for b in self._now], dtype=np.int8)

    @property
    def triggered(self) -> NDArray[np.bool_]:
        """(clauses,) some left side of an implication has been definitely true; true without implications."""
        return np.array(self._triggered, dtype=np.bool_)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(clauses,) accepted samples so far in which some signal of the clause was missing, NaN or infinite."""
        return np.array(self._unknown, dtype=np.int64)

    def verdict(self, clause: int) -> Verdict:
        """The verdict on one clause by its position."""
        lower, upper, rho = self._judged[clause]
        return Verdict(rho, lower, upper, status_name(status_code(lower, upper)), self._triggered[clause])

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts on all clauses."""
        return tuple(self.verdict(i) for i in range(len(self._judged)))

    def __len__(self) -> int:
        return len(self._judged)

    def __repr__(self) -> str:
        return f"Update(stamp_ns={self.stamp_ns}, accepted={self.accepted}, status={self.status.tolist()}, rho={self.rho.tolist()})"
