"""Why a navigation task failed: classes of failed executions (OSMA-Bench E.3, F.7 and Table 20)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.navigation_episode import contact_of, number_of, signal_of
from osma_monitor.core.metrics.requested import RequestedControl, requested_of

FailureClass = Literal[
    "pipeline_error",  # the policy's pipeline broke: empty answer, error in generated code, time-out of a query
    "target_not_grounded",  # the named goal is no object of the scene, or none was named
    "heading",  # near the goal, but turned away from it
    "slow_speed_stall",  # beside the obstacle inside its velocity region, at a fifth of the nominal speed or less
    "stagnation",  # stands still, away from the goal
    "motion_without_progress",  # moves, but comes no closer
    "incomplete_approach",  # comes closer, but time is up
    "unknown",  # the stored steps do not tell
]
CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)

GOAL_RADIUS = 0.5  #: m (C.5)
FINAL_SEGMENT = 4.95  #: s, the part of the episode that tells how it got stuck (E.3)
STILL = 0.05  #: m travelled in the final segment, up to which the robot stands still
PROGRESS = 0.05  #: m by which the goal must come closer in the final segment to count as approach
SLOW_SPEED = 0.2  #: of nominal: all failures of Table 20 asked for this or less


class Pose(NamedTuple):
    """Planar pose, m and rad."""

    x: float
    y: float
    yaw: float


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed task. NaN and None: not known."""

    kind: FailureClass
    contact: bool | None
    start_distance: float = math.nan  #: m to the goal at the first step
    end_distance: float = math.nan  #: m to the goal at the last step
    heading_cosine: float = math.nan  #: of the last heading with the goal's
    final_travel: float = math.nan  #: m of path in the final segment
    final_progress: float = math.nan  #: m by which the goal came closer in the final segment
    obstacle_distance: float = math.nan  #: m from the base centre to the obstacle's spot at the last step
    requested: RequestedControl | None = None
    task: str = ""


def classify(
    stamps_ns: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    yaw: ArrayLike,
    goal: Pose | None,
    reason: str = "",
    contact: bool | None = None,
    spot: tuple[float, float] | None = None,
    requested: RequestedControl | None = None,
) -> Failure:
    """The class of one failed task from its steps (T,), its goal and what the host said.

    ``reason`` decides first: it names a pipeline error or a target that was not grounded. Then the last pose: within
    0.5 m of the goal only the heading can be missing. Then the speed that the policy asked for. The rest is how the
    last 4.95 s went.
    """
    said = _said(reason)
    stamps = np.asarray(stamps_ns, dtype=np.int64)
    px, py, heading = (np.asarray(c, dtype=np.float64) for c in (x, y, yaw))
    known = np.flatnonzero(np.isfinite(px) & np.isfinite(py))
    if not len(known) or goal is None:
        return Failure(said or "unknown", contact, requested=requested)
    stamps, px, py, heading = stamps[known], px[known], py[known], heading[known]
    to_goal = np.hypot(px - goal.x, py - goal.y)
    final = stamps >= stamps[-1] - round(FINAL_SEGMENT * 1e9)
    travel = math.fsum(np.hypot(np.diff(px[final]), np.diff(py[final])).tolist())
    progress = float(to_goal[final][0] - to_goal[-1])
    obstacle = math.hypot(px[-1] - spot[0], py[-1] - spot[1]) if spot else math.nan
    kind: FailureClass
    if said is not None:
        kind = said
    elif to_goal[-1] <= GOAL_RADIUS:
        kind = "heading"
    elif requested is not None and requested.speed_or_nominal <= SLOW_SPEED and obstacle <= requested.region_or_none:
        kind = "slow_speed_stall"
    elif travel <= STILL:
        kind = "stagnation"
    elif progress <= PROGRESS:
        kind = "motion_without_progress"
    else:
        kind = "incomplete_approach"
    return Failure(
        kind,
        contact,
        float(to_goal[0]),
        float(to_goal[-1]),
        math.cos(heading[-1] - goal.yaw),
        travel,
        progress,
        obstacle,
        requested,
    )


def failure_of(record: EpisodeRecord, requested: RequestedControl | None = None) -> Failure | None:
    """The failure of a record, None when it did not fail (success, aborted, not known).

    Goal, obstacle spot and requested values come from the attributes goal_x, goal_y, goal_yaw, spot_x, spot_y and
    those of :func:`requested_of`.
    """
    if record.outcome.success is not False:
        return None
    attributes = record.info.attributes
    goal = _numbers(attributes, ("goal_x", "goal_y", "goal_yaw"))
    spot = _numbers(attributes, ("spot_x", "spot_y"))
    x, y = signal_of(record, "base_x"), signal_of(record, "base_y")
    steps, _ = contact_of(record.stamps_ns, x, y, signal_of(record, "obstacle_contact"))
    found = classify(
        record.stamps_ns,
        x,
        y,
        signal_of(record, "base_yaw"),
        Pose(*goal) if goal else None,
        record.outcome.reason,
        None if steps is None else steps > 0,
        (spot[0], spot[1]) if spot else None,
        requested or requested_of(attributes),
    )
    return replace(found, task=record.info.task)


def class_counts(failures: Iterable[Failure]) -> dict[FailureClass, int]:
    """How many failures of each class, in the order of CLASSES; classes without one are left out."""
    kinds = [f.kind for f in failures]
    return {kind: kinds.count(kind) for kind in CLASSES if kind in kinds}


class StallRow(NamedTuple):
    """One row of Table 20: group means in m and fractions of the nominal speed."""

    n: int
    clearance_m: float
    region_m: float
    speed: float
    start_m: float
    end_m: float
    obstacle_m: float


def stall_table(failures: Iterable[Failure]) -> dict[str, StallRow]:
    """Table 20: the slow-speed stalls without contact, with contact, and all of them."""
    stalls = [f for f in failures if f.kind == "slow_speed_stall"]
    groups = {
        "time-out, no contact": [f for f in stalls if f.contact is False],
        "contact": [f for f in stalls if f.contact is True],
        "all": stalls,
    }
    return {name: _stall_row(group) for name, group in groups.items()}


def _stall_row(group: list[Failure]) -> StallRow:
    asked = [f.requested for f in group if f.requested is not None]
    return StallRow(
        len(group),
        _mean([r.clearance_or_none for r in asked]),
        _mean([r.region_or_none for r in asked]),
        _mean([r.speed_or_nominal for r in asked]),
        _mean([f.start_distance for f in group]),
        _mean([f.end_distance for f in group]),
        _mean([f.obstacle_distance for f in group]),
    )


def _said(reason: str) -> FailureClass | None:
    text = reason.lower().replace("_", " ").replace("-", " ")
    if re.search(r"not grounded|ungrounded|(unresolved|empty) (navigation )?target|\bno target(:|$)", text):
        return "target_not_grounded"
    if any(word in text for word in ("pipeline", "policy error", "generated code", "empty answer")):
        return "pipeline_error"
    return None


def _numbers(attributes: Mapping[str, str], names: tuple[str, ...]) -> tuple[float, ...] | None:
    values = tuple(number_of(attributes, name) for name in names)
    return values if all(map(math.isfinite, values)) else None


def _mean(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return math.fsum(known) / len(known) if known else math.nan
