"""Rollout selection: how different the candidates are, and how well one was chosen (OSMA-Bench G.1, Tables 22 and 24).

At a decision K candidate rollouts start from one saved state; a verifier sees them in a permuted order and names one,
or none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.statistics import bootstrap_interval

OPPOSITE = math.radians(30.0)  #: rad, angular change around the obstacle on either side (G.1.1)
NEAR = 0.5  #: m, decisions near an obstacle (Table 22)

Interval = tuple[float, float]
Quartiles = tuple[float, float, float]  #: 25th percentile, median, 75th percentile


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One decision: K candidates from the same state, in the order in which they were generated.

    ``chosen`` is None when the verifier rejected all of them or gave no valid answer; the first one is then executed.
    Raises ValueError when the parts do not fit together.
    """

    task: str
    paths: Sequence[NDArray[np.float64]]  #: K arrays (T_k, 2) m, base positions step by step
    contact: Sequence[bool]  #: (K,) the candidate touches the obstacle within its lookahead
    chosen: int | None = None  #: position in ``paths``
    order: Sequence[int] = ()  #: (K,) which candidate stood at each presented position; empty: as generated
    obstacle: tuple[float, float] | None = None  #: m, its position at the decision
    obstacle_distance: float = math.nan  #: m, surface distance at the decision
    seed: int = 0  #: of the drive; decisions of one task and seed belong together

    def __post_init__(self) -> None:
        k = len(self.paths)
        if k == 0 or len(self.contact) != k:
            raise ValueError(f"task {self.task!r}: {k} candidate paths and {len(self.contact)} contact flags")
        if self.chosen is not None and not 0 <= self.chosen < k:
            raise ValueError(f"task {self.task!r}: candidate {self.chosen} of {k} was chosen")
        if len(self.order) and sorted(self.order) != list(range(k)):
            raise ValueError(f"task {self.task!r}: the presented order {list(self.order)} is no permutation of {k}")

    @property
    def executed(self) -> int:
        """The candidate that was driven."""
        return 0 if self.chosen is None else self.chosen

    @property
    def position(self) -> int | None:
        """Where the chosen candidate stood in what the verifier saw, from 0; None without a valid choice."""
        if self.chosen is None:
            return None
        return list(self.order).index(self.chosen) if len(self.order) else self.chosen

    @property
    def mixed(self) -> bool:
        """Some candidates touch the obstacle and some do not: the choice matters."""
        return any(self.contact) and not all(self.contact)


@dataclass(frozen=True, slots=True)
class Diversity:
    """How different the candidates of one decision are. NaN with fewer than two of them."""

    mean_distance: float  #: m, mean over pairs of their time-averaged distance
    max_distance: float  #: m, of the most different pair
    endpoint_spread: float  #: m, largest distance of two end points
    opposite: bool | None  #: candidates pass the obstacle on both sides; None when its position is not known


def diversity(decision: Decision) -> Diversity:
    """Pairwise distances over the steps that both candidates have (G.1.1)."""
    paths = [np.asarray(p, dtype=np.float64).reshape(-1, 2) for p in decision.paths]
    k, steps = len(paths), max((len(p) for p in paths), default=0)
    padded = np.full((k, steps, 2), math.nan)
    for i, path in enumerate(paths):
        padded[i, : len(path)] = path
    first, second = np.triu_indices(k, 1)
    gap = padded[first] - padded[second]
    distance = np.sqrt(gap[..., 0] * gap[..., 0] + gap[..., 1] * gap[..., 1])
    shared = ~np.isnan(distance)
    with np.errstate(invalid="ignore"):
        averages = np.where(shared, distance, 0.0).sum(axis=1) / shared.sum(axis=1)
    averages = averages[~np.isnan(averages)]
    known = [p[~np.isnan(p).any(axis=1)] for p in paths]
    ends = np.array([p[-1] for p in known if len(p)]).reshape(-1, 2)
    end_gap = ends[:, None] - ends[None]
    spread = float(np.sqrt((end_gap * end_gap).sum(axis=-1)).max()) if len(ends) > 1 else math.nan
    return Diversity(
        float(averages.mean()) if len(averages) else math.nan,
        float(averages.max()) if len(averages) else math.nan,
        spread,
        _opposite(paths, decision.obstacle),
    )


def angular_change(path: NDArray[np.float64], centre: tuple[float, float]) -> float:
    """Signed angle in rad by which a path (T, 2) turns around a point, left positive; NaN under two steps."""
    if len(path) < 2:
        return math.nan
    angle = np.unwrap(np.arctan2(path[:, 1] - centre[1], path[:, 0] - centre[0]))
    return float(angle[-1] - angle[0])


def _opposite(paths: Iterable[NDArray[np.float64]], obstacle: tuple[float, float] | None) -> bool | None:
    if obstacle is None:
        return None
    changes = [angular_change(p, obstacle) for p in paths]
    return any(c >= OPPOSITE for c in changes) and any(c <= -OPPOSITE for c in changes)


@dataclass(frozen=True, slots=True)
class DiversitySummary:
    """Table 22: distances in m as quartiles over decisions."""

    n: int
    mean_distance: Quartiles
    max_distance: Quartiles
    endpoint_spread: Quartiles
    mixed_mean_distance: Quartiles  #: of the decisions with touching and free candidates
    n_mixed: int
    opposite_near: float  #: fraction of the decisions within 0.5 m of the obstacle with candidates on both sides
    n_near: int


def summarize_diversity(decisions: Iterable[Decision]) -> DiversitySummary:
    """Every decision counts once."""
    pairs = [(d, diversity(d)) for d in decisions]
    mixed = [v.mean_distance for d, v in pairs if d.mixed]
    near = [v.opposite for d, v in pairs if d.obstacle_distance <= NEAR and v.opposite is not None]
    return DiversitySummary(
        len(pairs),
        _quartiles([v.mean_distance for _, v in pairs]),
        _quartiles([v.max_distance for _, v in pairs]),
        _quartiles([v.endpoint_spread for _, v in pairs]),
        _quartiles(mixed),
        len(mixed),
        _fraction(sum(near), len(near)),
        len(near),
    )


@dataclass(frozen=True, slots=True)
class SelectionSummary:
    """How the choices went. Rates are fractions, NaN without anything to divide by."""

    n: int  #: decisions
    n_valid: int  #: with a valid choice; the rest took the first candidate
    same_outcome: float  #: decisions in which all candidates have the same contact outcome
    all_contact: float  #: decisions in which every candidate touches
    n_mixed: int
    collision_free: float  #: mixed decisions whose executed candidate is free
    uniform: float  #: what choosing uniformly would have given in them
    advantage: float  #: executed minus uniform, averaged in each task and then over tasks
    advantage_interval: Interval  #: 95 %, bootstrap of tasks
    n_tasks: int  #: tasks with a mixed decision
    no_escape: tuple[int, int]  #: drives without a free candidate at their first contact decision, drives with one
    position_counts: tuple[int, ...]  #: valid choices by presented position


def summarize_selection(decisions: Iterable[Decision]) -> SelectionSummary:
    """Collision-free selection against uniform choice, and where the choices fell (G.1).

    Give the decisions of each drive (task and seed) in their order in time; drives may come in any order, as workers
    that share a log write them.
    """
    every = list(decisions)
    mixed = [d for d in every if d.mixed]
    free = [float(not d.contact[d.executed]) for d in mixed]
    uniform = [1.0 - sum(map(bool, d.contact)) / len(d.contact) for d in mixed]
    by_task: dict[str, list[float]] = {}
    for decision, got, expected in zip(mixed, free, uniform, strict=True):
        by_task.setdefault(decision.task, []).append(got - expected)
    differences = [_mean(by_task[task]) for task in sorted(by_task)]
    first_contact: dict[tuple[str, int], Decision] = {}
    for decision in every:
        if decision.contact[decision.executed]:
            first_contact.setdefault((decision.task, decision.seed), decision)
    positions = [d.position for d in every if d.position is not None]
    return SelectionSummary(
        len(every),
        len(positions),
        _fraction(len(every) - len(mixed), len(every)),
        _fraction(sum(all(d.contact) for d in every), len(every)),
        len(mixed),
        _mean(free),
        _mean(uniform),
        _mean(differences),
        bootstrap_interval(differences),
        len(differences),
        (sum(all(d.contact) for d in first_contact.values()), len(first_contact)),
        tuple(positions.count(p) for p in range(max((len(d.paths) for d in every), default=0))),
    )


def _quartiles(values: list[float]) -> Quartiles:
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return math.nan, math.nan, math.nan
    low, middle, high = np.quantile(known, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _fraction(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
