"""One episode as the page draws it: margins, distance, v/d and the path, thinned so that the page stays small.

Thinning keeps what matters: of every bucket of steps the lowest margin, the smallest distance and the largest v/d
survive, so that a violation of one step is still seen. Numbers are whole thousandths: half of the bytes of decimals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord

Floats = NDArray[np.float64]

#: Steps kept of one episode.
POINTS = 240
#: Characters of trace data in one page; episodes over it are listed without a trace.
BUDGET = 1_800_000
#: Bytes of pictures in one page; the least severe episodes go without.
PICTURE_BYTES = 20_000_000
#: v/d is shown inside the boundary, with the distance never under the floor (OSMA-Bench 3.2.2).
BOUNDARY_M, FLOOR_M = 1.25, 0.05
#: Margins are drawn down to this many thresholds below zero.
DEEPEST = -2.0

OutlineKind = Literal["room", "counter", "fixture", "obstacle", "human", "goal", "start"]


@dataclass(frozen=True, slots=True)
class Outline:
    """A polygon of the top view: ``points`` in metres, world frame."""

    kind: OutlineKind
    points: tuple[tuple[float, float], ...]
    label: str = ""

    @property
    def text(self) -> str:
        """Itself as JSON."""
        points = [[round(x, 3), round(y, 3)] for x, y in self.points]
        return json.dumps({"k": self.kind, "n": self.label, "p": points}, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Scene:
    """What stands around the robot in one task, and how large the robot's base is."""

    outlines: tuple[Outline, ...] = ()
    base: tuple[float, float] | None = None  #: length and width in m

    def view(self, pool: dict[str, int]) -> dict[str, Any]:
        """As the page takes it: outlines by number. ``pool`` numbers outlines as JSON and grows by those it lacks."""
        numbers = [pool.setdefault(o.text, len(pool)) for o in self.outlines]
        return {"o": numbers, "base": self.base}


@dataclass(frozen=True, slots=True, eq=False)
class Margin:
    """Robustness of one clause at every step of an episode, divided by |threshold| (SafeVLA-Bench Figure 5)."""

    clause: str
    unit: str
    threshold: float
    values: Floats  #: (T,) NaN unknown, +inf where the clause's gate is closed


#: Gives the margins of a record; empty when its signals or its library are not at hand.
Margins = Callable[[EpisodeRecord], Sequence[Margin]]
#: Gives the surroundings of a task, None when they are not known.
Scenes = Callable[[EpisodeRecord], Scene | None]
#: A PNG of an episode, None where there is none.
Pictures = Callable[[EpisodeRecord], bytes | None]


def buckets(length: int, points: int = POINTS) -> NDArray[np.intp]:
    """First index of each bucket: all of them when the episode is short enough."""
    if length <= points:
        return np.arange(length)
    return np.unique(np.floor(np.linspace(0, length, points, endpoint=False)).astype(np.intp))


def reduce(values: Floats, starts: NDArray[np.intp], worst: Callable[..., Floats]) -> Floats:
    """The worst known value of each bucket (``np.fmin`` or ``np.fmax``), NaN when none is known."""
    if len(values) == 0:
        return values
    return np.asarray(worst.reduceat(values, starts), dtype=np.float64)  # type: ignore[attr-defined]


def thousandths(values: Floats) -> list[int | None] | int | None:
    """Whole thousandths, None where unknown or infinite; a constant column is one number."""
    numbers = [None if not math.isfinite(v) else round(v * 1000) for v in values.tolist()]
    return numbers[0] if numbers and all(n == numbers[0] for n in numbers) else numbers


def speed_over_distance(record: EpisodeRecord) -> Floats:
    """v/d at every step in 1/s: forward difference of the path; NaN outside the boundary and at the last step."""
    t = record.stamps_ns / 1e9
    out = np.full(len(t), np.nan)
    x, y, d = (record.signals.get(name) for name in ("base_x", "base_y", "obstacle_distance"))
    if x is None or y is None or d is None or len(t) < 2:
        return out
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = np.hypot(np.diff(x), np.diff(y)) / np.diff(t)
        inside = d[:-1] <= BOUNDARY_M
        out[:-1][inside] = speed[inside] / np.maximum(d[:-1][inside], FLOOR_M)
    return out


def trace(record: EpisodeRecord, margins: Sequence[Margin], names: dict[str, int]) -> dict[str, Any]:
    """The drawable form of an episode: times in ms from its first frame, everything else in thousandths.

    ``names`` numbers the clauses of the page and grows by those that it lacks.
    """
    stamps = record.stamps_ns
    starts = buckets(len(stamps))
    first = int(stamps[0]) if len(stamps) else 0
    results = {c.clause: c for c in record.clauses}
    lines = []
    for margin in margins:
        result = results.get(margin.clause)
        if result is not None and not result.scored:
            continue
        lines.append(
            {
                "c": names.setdefault(margin.clause, len(names)),
                "unit": margin.unit,
                "limit": margin.threshold if math.isfinite(margin.threshold) else None,
                "bad": result is not None and result.status == "violated",
                "y": thousandths(np.maximum(reduce(margin.values, starts, np.fmin), DEEPEST)),
            }
        )
    out: dict[str, Any] = {
        "t": ((stamps[starts] - first) // 1_000_000).tolist() if len(stamps) else [],
        "margins": lines,
    }
    out["results"] = [
        [
            names.setdefault(c.clause, len(names)),
            ("satisfied", "violated", "unknown").index(c.status),
            int(c.scored),
            round(c.depth, 3),
            None if c.first_violation_ns is None else (c.first_violation_ns - first) // 1_000_000,
            c.violated_steps,
        ]
        for c in record.clauses
        if c.scored or c.status != "satisfied"
    ]
    distance = record.signals.get("obstacle_distance")
    if distance is not None and not np.isnan(distance).all():
        out["d"] = thousandths(reduce(distance, starts, np.fmin))
        out["r"] = thousandths(reduce(speed_over_distance(record), starts, np.fmax))
    x, y = record.signals.get("base_x"), record.signals.get("base_y")
    if x is not None and y is not None and not np.isnan(x).all():
        out["x"], out["y"] = thousandths(x[starts]), thousandths(y[starts])
        yaw = record.signals.get("base_yaw")
        if yaw is not None:
            out["h"] = thousandths(yaw[starts])
    return out


def severity_order(records: Sequence[EpisodeRecord]) -> list[int]:
    """Indices of ``records``: unsafe ones first (deepest first), then unknown, then the rest, else as given."""
    rank = {"unsafe": 0, "unknown": 1, "safe": 2}
    return sorted(range(len(records)), key=lambda i: (rank[records[i].safety], -records[i].depth, i))


def with_counterparts(order: Sequence[int], records: Sequence[EpisodeRecord]) -> list[int]:
    """``order`` with the same task and seed under the other policies moved up behind each episode, for comparison."""
    twins: dict[tuple[str, str, int], list[int]] = {}
    for i, r in enumerate(records):
        twins.setdefault((r.info.suite, r.info.task, r.info.seed), []).append(i)
    seen: dict[int, None] = {}
    for i in order:
        r = records[i]
        for j in (i, *twins[r.info.suite, r.info.task, r.info.seed]):
            seen.setdefault(j)
    return list(seen)
