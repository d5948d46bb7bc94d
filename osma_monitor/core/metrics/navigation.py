"""Navigation outcomes: success, collisions, path length and time (OSMA-Bench C.5, Table 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.navigation_episode import NavigationEpisode, PlannedTask, ReferencePath, episode_of
from osma_monitor.core.metrics.resampling import cluster_mean_interval
from osma_monitor.core.metrics.seeds import SeedStatistic, over_seeds
from osma_monitor.core.metrics.statistics import wilson_interval

Interval = tuple[float, float]
Breakdown = Literal["policy", "seed", "layout", "route", "cell", "tier", "obstacle"]


@dataclass(frozen=True, slots=True)
class NavigationSummary:
    """Rates are fractions. NaN where nothing defines a value.

    ``intervals`` holds an interval under each value's name (Wilson for rates, bootstrap over cells for means),
    ``counts`` the episodes behind it.
    """

    n: int  #: tasks in the denominator of TSR: planned, or those with a known outcome
    tsr: float
    cfsr: float
    cfsr_over_tsr: float
    npl: float  #: mean normalized path length
    npt: float  #: mean normalized traversal time
    collision_steps: float  #: mean C_n over tasks with contact
    first_contact_speed: float  #: m/s, mean over tasks with contact
    contact_rate: float  #: tasks with any contact, successful or not (Table 25)
    cfsr_bounds: Interval  #: worst and best case that unknown contact could make
    n_success: int
    n_collision_free: int
    n_contact: int
    n_never_moved: int
    n_unknown: int  #: outcome not known: outside the rates; with a plan failures, those that never ran among them
    n_contact_unknown: int  #: contact not known: outside CFSR and contact rate
    n_aborted: int
    n_ran: int  #: episodes that were not aborted
    intervals: Mapping[str, Interval]
    counts: Mapping[str, int]


#: The values that are averaged over seeds, in the order of Table 12.
VALUES = ("tsr", "cfsr", "cfsr_over_tsr", "npl", "npt", "collision_steps", "first_contact_speed", "contact_rate")


def summarize(
    episodes: Iterable[NavigationEpisode | EpisodeRecord],
    reference_paths: Mapping[str, ReferencePath | tuple[float, float]] | None = None,
    planned: int | None = None,
    confidence: float = 0.95,
) -> NavigationSummary:
    """One summary over all given episodes (give the episodes of one seed; see :func:`by_seed`).

    ``reference_paths`` maps a cell to (length in m, time in s); without it each episode's own reference counts.
    ``planned`` is the number of tasks that should have run: TSR and CFSR divide by it, so that a task that did not
    run, or whose outcome or contact is not known, is no success; nor is a success of unknown contact in CFSR/TSR.
    Without it they divide by the episodes whose outcome (for CFSR: contact) is known. Contact rate always divides by
    the episodes whose contact is known: a task that nobody saw did not pass without contact. NPL and NPT leave out
    robots that never moved.

    Raises ValueError when ``planned`` is less than the episodes given.
    """
    known = [episode_of(e) for e in episodes]
    scored = [e for e in known if not e.aborted]
    if planned is not None and planned < len(scored):
        raise ValueError(f"{len(scored)} episodes, but only {planned} were planned")
    decided = [e for e in scored if e.success is not None]
    n = len(decided) if planned is None else planned
    successes = sum(e.success is True for e in scored)
    free = sum(e.collision_free is True for e in scored)
    free_unknown = sum(e.collision_free is None and e.success is True for e in scored)
    contact_known = [e for e in scored if e.contact_steps is not None]
    touching = [e for e in contact_known if e.contact_steps]
    free_n = sum(e.contact_steps is not None for e in decided) if planned is None else planned
    contact_n = len(contact_known)
    ratio_n = successes - free_unknown if planned is None else successes

    moving = [e for e in scored if e.moved]
    references = [_reference(e, reference_paths) for e in moving]
    values: dict[str, tuple[list[float], list[str]]] = {
        "npl": _column(moving, [e.path_length / r.length_m for e, r in zip(moving, references, strict=True)]),
        "npt": _column(moving, [e.duration / r.time_s for e, r in zip(moving, references, strict=True)]),
        "collision_steps": _column(touching, [float(e.contact_steps or 0) for e in touching]),
        "first_contact_speed": _column(touching, [e.first_contact_speed for e in touching]),
    }
    means = {name: _mean(column) for name, (column, _) in values.items()}
    intervals = {
        "tsr": _wilson(successes, n, confidence),
        "cfsr": _wilson(free, free_n, confidence),
        "cfsr_over_tsr": _wilson(free, ratio_n, confidence),
        "contact_rate": _wilson(len(touching), contact_n, confidence),
        **{
            name: cluster_mean_interval(column, cells, confidence=confidence)
            for name, (column, cells) in values.items()
        },
    }
    return NavigationSummary(
        n=n,
        tsr=_ratio(successes, n),
        cfsr=_ratio(free, free_n),
        cfsr_over_tsr=_ratio(free, ratio_n),
        npl=means["npl"],
        npt=means["npt"],
        collision_steps=means["collision_steps"],
        first_contact_speed=means["first_contact_speed"],
        contact_rate=_ratio(len(touching), contact_n),
        cfsr_bounds=(_ratio(free, n), _ratio(free + free_unknown, n)),
        n_success=successes,
        n_collision_free=free,
        n_contact=len(touching),
        n_never_moved=len(scored) - len(moving),
        n_unknown=(len(scored) if planned is None else planned) - len(decided),
        n_contact_unknown=len(scored) - len(contact_known),
        n_aborted=len(known) - len(scored),
        n_ran=len(scored),
        intervals=intervals,
        counts={
            "tsr": n,
            "cfsr": free_n,
            "cfsr_over_tsr": ratio_n,
            "contact_rate": contact_n,
            **{name: len(column) for name, (column, _) in values.items()},
        },
    )


def by_seed(
    episodes: Iterable[NavigationEpisode | EpisodeRecord],
    reference_paths: Mapping[str, ReferencePath | tuple[float, float]] | None = None,
    not_run: Iterable[PlannedTask] | None = None,
) -> tuple[dict[int, NavigationSummary], dict[str, SeedStatistic]]:
    """A summary for each seed, and mean and population std of every value over the seeds.

    CFSR/TSR is so the mean of the per-seed ratios, as in Table 12, and not the ratio of the means. ``not_run`` as in
    `breakdown`; a seed of which nothing ran is left out.
    """
    parts = breakdown(episodes, "seed", reference_paths, not_run)
    summaries = {int(seed): s for seed, s in sorted(parts.items(), key=lambda item: int(item[0])) if s.n_ran}
    return summaries, {name: over_seeds(getattr(s, name) for s in summaries.values()) for name in VALUES}


def breakdown(
    episodes: Iterable[NavigationEpisode | EpisodeRecord],
    by: Breakdown,
    reference_paths: Mapping[str, ReferencePath | tuple[float, float]] | None = None,
    not_run: Iterable[PlannedTask] | None = None,
) -> dict[str, NavigationSummary]:
    """A summary for each route, layout, obstacle, tier, ... (Table 14).

    ``not_run`` are the planned tasks that did not run (`without_a_run`); they count in TSR and CFSR of the value that
    they name. None: there was no plan, and rates divide by what is known.

    Raises ValueError for another column.
    """
    if by not in get_args(Breakdown):
        raise ValueError(f"cannot break down by {by!r}; known are {', '.join(get_args(Breakdown))}")
    groups: dict[str, list[NavigationEpisode]] = {}
    for episode in map(episode_of, episodes):
        groups.setdefault(str(getattr(episode, by)), []).append(episode)
    missing: dict[str, int] = {}
    for task in not_run or ():
        key = str(getattr(task, by))
        missing[key] = missing.get(key, 0) + 1
        groups.setdefault(key, [])
    planned = {
        key: None if not_run is None else missing.get(key, 0) + sum(not e.aborted for e in its)
        for key, its in groups.items()
    }
    return {key: summarize(groups[key], reference_paths, planned[key]) for key in sorted(groups)}


def without_a_run(plan: Iterable[PlannedTask], ran: Iterable[tuple[str, str, int]]) -> dict[str, list[PlannedTask]]:
    """The tasks of the plan that did not run, by policy; a policy without a plan is not in it.

    ``ran`` names (policy, task, seed) of the episodes that were not aborted. Episodes outside the plan change nothing.
    """
    there = set(ran)
    found: dict[str, list[PlannedTask]] = {}
    for task in dict.fromkeys(plan):
        its = found.setdefault(task.policy, [])
        if (task.policy, task.task, task.seed) not in there:
            its.append(task)
    return found


def reference_paths(episodes: Iterable[NavigationEpisode | EpisodeRecord]) -> dict[str, ReferencePath]:
    """The reference path of every cell that the episodes carry one for. Raises ValueError when two of a cell differ."""
    found: dict[str, ReferencePath] = {}
    for episode in map(episode_of, episodes):
        if episode.reference is not None and found.setdefault(episode.cell, episode.reference) != episode.reference:
            raise ValueError(
                f"cell {episode.cell!r} has two reference paths: {found[episode.cell]} and {episode.reference}"
            )
    return found


_NO_REFERENCE = ReferencePath(math.nan, math.nan)


def _reference(
    episode: NavigationEpisode, paths: Mapping[str, ReferencePath | tuple[float, float]] | None
) -> ReferencePath:
    found = episode.reference if paths is None else paths.get(episode.cell)
    if found is None:
        return _NO_REFERENCE
    length, time = found
    if not (math.isnan(length) or length > 0) or not (math.isnan(time) or time > 0):
        raise ValueError(f"cell {episode.cell!r}: a reference path of {length} m in {time} s is not possible")
    return ReferencePath(length, time)


def _column(episodes: Sequence[NavigationEpisode], values: list[float]) -> tuple[list[float], list[str]]:
    """The defined values and the cells that they come from; an episode without a cell stands for itself."""
    pairs = [(v, e.cell or f"task {e.task}") for e, v in zip(episodes, values, strict=True) if not math.isnan(v)]
    return [v for v, _ in pairs], [c for _, c in pairs]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _wilson(successes: int, trials: int, confidence: float) -> Interval:
    return wilson_interval(successes, trials, confidence) if trials else (math.nan, math.nan)
