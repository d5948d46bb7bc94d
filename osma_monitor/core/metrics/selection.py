"""Did the robot act on the target that it was told? (BEHAVIOR-Spatial 5.1, Table S4)

Strict success is a completed interaction with the instructed target; wrong is one with another candidate. An episode
that commits to nothing may still earn soft credit for moving towards the target. All rates divide by all episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from osma_monitor.core.metrics.statistics import wilson_interval

BASE_PROXIMITY = 0.70  #: m, at which a base has reached a candidate
SIDE_DISTANCE = 0.17  #: m, a release nearer than this to the reference is on it
BAND_TOLERANCE = 0.05  #: m, around a compartment's height band
_ROUNDING = 1e-9  #: m

Verdict = Literal[
    "correct",
    "wrong",  # committed to another candidate, side or compartment
    "none",  # no commitment
    "on_ref",  # released too near the reference to be on a side
    "off_surface",  # released somewhere else than asked, the floor for one
]
Side = Literal["left", "right"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one episode came to."""

    verdict: Verdict
    credit: bool = False  #: moved towards the target without committing

    @property
    def strict(self) -> bool:
        """Completed with the instructed target."""
        return self.verdict == "correct"

    @property
    def soft(self) -> bool:
        """Strict success, or no commitment but target-consistent motion."""
        return self.strict or (self.verdict == "none" and self.credit)

    @property
    def wrong(self) -> bool:
        """Committed to something else."""
        return self.verdict == "wrong"


def reach(
    target: str,
    touched: Sequence[str],
    closest: Mapping[str, float],
    base_distance: Mapping[str, float] | None = None,
) -> Selection:
    """A task to reach one of several candidates.

    ``touched`` lists what the end-effector touched, in the order of first touch; the first candidate among it is the
    commitment. ``closest`` maps every candidate to the smallest end-effector distance of the episode (m).
    ``base_distance``, for tasks that a base position also completes, maps every candidate to its distance from the
    base at the end (m): the nearest candidate within 0.70 m counts as reached; two equally near ones count as none.

    Soft credit: strictly closer to the target than to every other candidate. An unknown distance (NaN) earns none.
    Raises ValueError when the target is no candidate or has no alternative.
    """
    if target not in closest:
        raise ValueError(f"the target {target!r} is not among the candidates {', '.join(closest)}")
    if len(closest) < 2:
        raise ValueError(f"the target {target!r} has no alternative: nothing can be selected")
    commitment = next((name for name in touched if name in closest), None)
    if commitment is None and base_distance is not None:
        commitment = _nearest(base_distance)
    if commitment is not None:
        return Selection("correct" if commitment == target else "wrong")
    return Selection("none", all(closest[target] < d for name, d in closest.items() if name != target))


def right_of(position: Sequence[float], reference: Sequence[float], robot_yaw: float) -> float:
    """m by which a position lies to the right of a reference, seen by a robot with that heading (rad, REP-103)."""
    dx, dy = position[0] - reference[0], position[1] - reference[1]
    return dx * math.sin(robot_yaw) - dy * math.cos(robot_yaw)


def place_beside(side: Side, rightward: float, distance: float, released: bool, on_surface: bool = True) -> Selection:
    """A task to put an object to the left or right of a reference.

    ``rightward`` is :func:`right_of` of the object at the end (m), ``distance`` its planar distance from the
    reference (m). An object that is still held keeps only soft credit, for being on the instructed side. Raises
    ValueError for another side.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}; known are left and right")
    instructed = rightward > 0 if side == "right" else rightward < 0
    if not released:
        return Selection("none", instructed)
    if not on_surface:
        return Selection("off_surface")
    if math.isnan(rightward) or math.isnan(distance):
        return Selection("none")
    if distance < SIDE_DISTANCE or rightward == 0:
        return Selection("on_ref")
    return Selection("correct" if instructed else "wrong")


def place_inside(
    target: str,
    compartments: Mapping[str, tuple[float, float]],
    height: ArrayLike,
    in_footprint: ArrayLike,
    released: bool,
    on_floor: bool = False,
) -> Selection:
    """A task to put an object into one compartment of a container (shelf, fridge level).

    ``compartments`` maps a name to its height band (low, high) in m, ``height`` (T,) is the object's height,
    ``in_footprint`` (T,) whether it is within the container's footprint. A released object that rests within 0.05 m
    of a band is in that compartment, in the nearest one if two qualify. Without a commitment the object's peak height
    inside the footprint must lie within 0.05 m of the instructed band: passing through it on the way up does not
    qualify, and an object on the floor earns nothing.

    Raises ValueError for an unknown target, unequal lengths, or a band upside down.
    """
    if target not in compartments:
        raise ValueError(f"the compartment {target!r} is not among {', '.join(compartments)}")
    for name, (low, high) in compartments.items():
        if not low <= high:
            raise ValueError(f"compartment {name!r} has the height band {low} to {high} m")
    z = np.asarray(height, dtype=np.float64).reshape(-1)
    inside = np.asarray(in_footprint, dtype=bool).reshape(-1)
    if len(z) != len(inside):
        raise ValueError(f"unequal lengths: {len(z)} heights and {len(inside)} footprint flags")
    if on_floor:
        return Selection("off_surface")
    if released and len(z) and inside[-1]:
        gaps = {name: _outside(float(z[-1]), band) for name, band in compartments.items()}
        name = min(gaps, key=lambda n: gaps[n])
        if gaps[name] <= BAND_TOLERANCE + _ROUNDING:
            return Selection("correct" if name == target else "wrong")
    within = z[inside & ~np.isnan(z)]
    return Selection(
        "none", bool(len(within)) and _outside(float(within.max()), compartments[target]) <= BAND_TOLERANCE + _ROUNDING
    )


def reach_place(success: bool) -> Selection:
    """A navigation task: the goal criterion is binary, strict and soft are the same."""
    return Selection("correct" if success else "none")


@dataclass(frozen=True, slots=True)
class SelectionSummary:
    """Rates as fractions of all episodes, pooled: every episode counts once. NaN without episodes."""

    n: int
    strict: float
    soft: float
    wrong: float
    undecided: float  #: neither strict nor wrong
    intervals: Mapping[str, Interval]  #: Wilson, 95 %
    macro: Mapping[str, float]  #: strict, soft, wrong as unweighted means over tasks
    by_task: Mapping[str, tuple[int, float, float, float]]  #: n, strict, soft, wrong


def summarize(episodes: Iterable[tuple[str, Selection]]) -> SelectionSummary:
    """Rates of (task, selection) pairs."""
    tasks: dict[str, list[Selection]] = {}
    for task, selection in episodes:
        tasks.setdefault(task, []).append(selection)
    every = [s for group in tasks.values() for s in group]
    by_task = {task: (len(group), *_rates(group)) for task, group in tasks.items()}
    strict, soft, wrong = _rates(every)
    counts = {
        "strict": sum(s.strict for s in every),
        "soft": sum(s.soft for s in every),
        "wrong": sum(s.wrong for s in every),
    }
    return SelectionSummary(
        len(every),
        strict,
        soft,
        wrong,
        1.0 - strict - wrong,
        {name: wilson_interval(k, len(every)) for name, k in counts.items()},
        {name: _mean([row[i] for row in by_task.values()]) for i, name in enumerate(counts, start=1)},
        by_task,
    )


def pooled_rate(counts: Iterable[tuple[int, int]]) -> float:
    """Rate of (successes, n) groups weighted by their size; NaN without episodes."""
    pairs = list(counts)
    whole = sum(n for _, n in pairs)
    return sum(k for k, _ in pairs) / whole if whole else math.nan


def recovery_ratio(value: float, baseline: float, oracle: float) -> float:
    """Part of the gain from baseline to oracle that a value recovers; NaN when there is no gain (Table S7)."""
    return (value - baseline) / (oracle - baseline) if oracle != baseline else math.nan


def _nearest(distance: Mapping[str, float]) -> str | None:
    """The one candidate that is nearest, within 0.70 m; None when it is not known which."""
    values = list(distance.values())
    if not values or any(map(math.isnan, values)):
        return None
    near = min(values)
    names = [name for name, d in distance.items() if d == near]
    return names[0] if near <= BASE_PROXIMITY and len(names) == 1 else None


def _outside(height: float, band: tuple[float, float]) -> float:
    """m by which a height lies outside a band; NaN when it is not known."""
    return height if math.isnan(height) else max(band[0] - height, height - band[1], 0.0)


def _rates(group: Sequence[Selection]) -> tuple[float, float, float]:
    return (
        _mean([float(s.strict) for s in group]),
        _mean([float(s.soft) for s in group]),
        _mean([float(s.wrong) for s in group]),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
