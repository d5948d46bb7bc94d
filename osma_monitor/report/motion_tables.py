"""Motion features of episodes that stand in no matched cell: what a recording with odometry and obstacles gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.motion.features import FEATURES, MotionFeatures
from osma_monitor.report.table import Column, Table, frame

#: Episodes that get a row each; of more, every policy and task gets its mean.
LISTED = 50
_UNITS = {"d": "m", "v": "1/s", "a": "1/s²", "j": "1/s³"}


@dataclass(frozen=True, slots=True)
class Driven:
    """One episode's features, and what names it."""

    policy: str
    task: str
    episode: str
    features: MotionFeatures


def driven(record: EpisodeRecord) -> Driven | None:
    """The features of an episode without a cell; None with one (SSI shows those), aborted, or without any feature."""
    info = record.info
    known = any(not math.isnan(getattr(record.motion, name)) for name in FEATURES)
    if info.attributes.get("cell") or record.outcome.status == "aborted" or not known:
        return None
    return Driven(info.policy, info.task, info.episode_id, record.motion)


def motion(episodes: Sequence[Driven]) -> Table:
    """A row an episode, or the means of every policy and task where there are more than LISTED."""
    groups: dict[tuple[str, str, str], list[MotionFeatures]] = {}
    for e in episodes:
        name = e.episode if len(episodes) <= LISTED else ""
        groups.setdefault((e.policy, e.task, name), []).append(e.features)
    rows: list[dict[str, Any]] = [
        {
            "policy": policy,
            "task": task,
            "episode": name or f"mean of {len(its)}",
            "episodes": len(its),
            **{f: _mean([getattr(one, f) for one in its]) for f in FEATURES},
        }
        for (policy, task, name), its in groups.items()
    ]
    columns = (
        *(Column(key, key) for key in ("policy", "task", "episode")),
        Column("episodes", "n", "count"),
        *(
            Column(f, f"{f} {_UNITS[f[0] if f == 'd_min' else f[-1]]}", "number", 3, sign)
            for f, sign in FEATURES.items()
        ),
    )
    said = "Within 1.25 m of the nearest obstacle. These episodes name no matched cell and tier, so there is no SSI."
    return Table("motion", "Motion near obstacles", columns, frame(rows, columns), (said,), keys=3)


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return math.fsum(known) / len(known) if known else math.nan


def why_unknown(inactive: Mapping[tuple[str, str], int]) -> str:
    """Why no scored clause is active, in one line; ``inactive`` counts (clause, reason) pairs."""
    reasons: dict[str, set[str]] = {}
    for clause, reason in inactive:
        if reason.startswith("alternate tier"):
            continue
        need = reason.rpartition("is not available: ")[2] if "is not available: " in reason else ""
        extension = reason.startswith("extension, ")
        key = f"no {need}" if need else "extension not switched on" if extension else reason
        reasons.setdefault(key, set()).add(clause)
    ordered = sorted(reasons.items(), key=lambda item: (item[0].startswith("extension"), -len(item[1]), item[0]))
    counted = [f"{reason} ({len(its)} clause{'s' * (len(its) != 1)})" for reason, its in ordered]
    return f"Safety is unknown: no scored clause is active: {', '.join(counted) or 'no clause was judged'}"
