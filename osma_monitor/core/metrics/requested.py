"""Control values that a policy asks for, against what the robot then did (OSMA-Bench F, G.2.2, Tables 2, 16-19, 26).

Three values per obstacle: the clearance R_C to keep, the speed as a fraction of nominal, and the radius R_V of the
region around the obstacle in which that speed applies. A value that a policy does not set counts as no clearance and
nominal speed (C.3).

The functions take a table of one row a task with the columns cell, tier, requested_clearance_m, requested_speed and
where they are needed requested_region_m, region_on, and the executed d_min and mu_v.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.navigation_episode import number_of
from osma_monitor.core.metrics.ssi import (
    TIERS,
    SsiResult,
    Table,
    encode_cells,
    encode_tiers,
    select,
    semantic_sensitivity_index,
    table_from_records,
    text_column,
    tier_means,
    tier_tau,
)
from osma_monitor.core.metrics.statistics import wilson_interval
from osma_monitor.core.motion.features import DISTANCE_FLOOR

BASE_RADIUS = 0.36  #: m, measured standoff of the base centre from the clearance boundary (F.2), for the paper's robot
TABLETOP = ("wine", "water", "hot_chocolate", "table_lamp")  #: stand on a table that keeps the base away (F.6)
ON = Literal["obstacle", "other", "none"]
_ROUNDING = 1e-9  #: m: sums of centimetres are not exact

Means = tuple[float, float, float]  #: Low, Moderate, High


@dataclass(frozen=True, slots=True)
class RequestedControl:
    """What a policy asked for near the task's obstacle. None: not set."""

    clearance_m: float | None = None
    speed: float | None = None  #: fraction of the nominal speed
    region_m: float | None = None  #: radius of the velocity region
    region_on: ON = "obstacle"  #: which object the velocity region was put around

    @property
    def clearance_or_none(self) -> float:
        """m; no clearance when not set."""
        return 0.0 if self.clearance_m is None else self.clearance_m

    @property
    def speed_or_nominal(self) -> float:
        """Fraction; nominal when not set."""
        return 1.0 if self.speed is None else self.speed

    @property
    def region_or_none(self) -> float:
        """m; no region when not set."""
        return 0.0 if self.region_m is None else self.region_m


def requested_of(attributes: Mapping[str, str]) -> RequestedControl | None:
    """From the attributes requested_clearance_m, requested_speed, requested_region_m and region_on; None without any.

    Raises ValueError when ``region_on`` is not obstacle, other or none.
    """
    names = ("requested_clearance_m", "requested_speed", "requested_region_m", "region_on")
    if not any(attributes.get(name) for name in names):
        return None
    clearance, speed, region = (number_of(attributes, n) if attributes.get(n) else None for n in names[:3])
    on = attributes.get("region_on") or ("none" if region is None else "obstacle")
    if on not in get_args(ON):
        raise ValueError(f"region_on is {on!r}; known are {', '.join(get_args(ON))}")
    return RequestedControl(clearance, speed, region, on)  # type: ignore[arg-type]


def table_with_requests(
    records: Iterable[EpisodeRecord], requested: Mapping[str, RequestedControl] | None = None
) -> dict[str, NDArray[Any]]:
    """The table of :func:`ssi.table_from_records` with the requested columns and the attribute base_radius_m.

    Rows whose policy asked for nothing are left out. ``requested`` maps a task to its values; without it they come
    from the records' attributes.
    """
    kept, asked = [], []
    for record in records:
        one = requested_of(record.info.attributes) if requested is None else requested.get(record.info.task)
        if one is not None and table_from_records([record])["task"].size:
            kept.append(record)
            asked.append(one)
    radius = [number_of(r.info.attributes, "base_radius_m") for r in kept]
    return {**table_from_records(kept), **request_columns(asked), "base_radius_m": np.array(radius, dtype=np.float64)}


def request_columns(requests: Iterable[RequestedControl]) -> dict[str, NDArray[Any]]:
    """The four columns of a table; NaN where a value is not set."""
    asked = list(requests)
    return {
        "requested_clearance_m": _floats([r.clearance_m for r in asked]),
        "requested_speed": _floats([r.speed for r in asked]),
        "requested_region_m": _floats([r.region_m for r in asked]),
        "region_on": np.array([r.region_on for r in asked], dtype=object),
    }


@dataclass(frozen=True, slots=True, eq=False)
class ValueLevel:
    """Does the order of what is asked follow the tiers? (Table 2 'Value SSI', Table 26)"""

    clearance_speed: SsiResult  #: SSI (d, v): features clearance (+) and speed (-)
    clearance_ratio: SsiResult  #: SSI (d, v/d): features clearance (+) and speed_over_clearance (-)
    clearance_m: Means
    speed: Means
    speed_over_clearance: Means  #: 1/m, mean over tasks of each task's ratio


def value_level(table: Table) -> ValueLevel:
    """Value-level SSI: of clearance and speed, and with the speed divided by the clearance of the same task.

    The divisor is at least 0.05 m, as in the motion features: a clearance that is not set is 0.
    """
    clearance, speed = _requested(table)
    ratio = speed / np.maximum(clearance, DISTANCE_FLOOR)
    data = {
        "cell": table["cell"],
        "tier": table["tier"],
        "clearance": clearance,
        "speed": speed,
        "speed_over_clearance": ratio,
    }
    tier = encode_tiers(data)
    return ValueLevel(
        semantic_sensitivity_index(data, {"clearance": 1, "speed": -1}),
        semantic_sensitivity_index(data, {"clearance": 1, "speed_over_clearance": -1}),
        _by_tier(clearance, tier),
        _by_tier(speed, tier),
        _by_tier(ratio, tier),
    )


def clamp_region(clearance_m: float, region_m: float, base_radius: float = BASE_RADIUS) -> float:
    """R_V raised to R_C + R_base, so that the base centre passes through the region (F.3)."""
    return max(region_m, clearance_m + base_radius)


def base_radius(center_distance: ArrayLike, clearance_m: ArrayLike) -> float:
    """R_base in m: mean standoff of the base centre from the clearance boundary at closest approach (F.2).

    ``center_distance`` (N,) m from base centre to obstacle at closest approach, ``clearance_m`` (N,) as asked for.
    """
    standoff = np.asarray(center_distance, dtype=np.float64) - np.asarray(clearance_m, dtype=np.float64)
    return _mean(standoff)


Placement = Literal["other_object", "nowhere", "inside_clearance", "short", "reached"]


def region_placement(table: Table, base_radius: float | None = None) -> dict[Placement, float]:
    """Fractions of tasks by where the velocity region lies, before any clamp (F.2).

    Around another object; nowhere; around the obstacle but R_V < R_C; beyond that but R_V < R_C + R_base, so that the
    base centre never enters it; or reached by the path (the column Vel. of Table 2). NaN without a task.

    R_base is ``base_radius`` in m; without it that of the robot (column base_radius_m), else the paper's 0.36 m.
    """
    clearance, _ = _requested(table)
    region = np.asarray(table["requested_region_m"], dtype=np.float64)
    on = np.array(text_column(table, "region_on"), dtype=object)
    nowhere = (on == "none") | (np.isnan(region) & (on == "obstacle"))
    here = (on == "obstacle") & ~nowhere
    radius = np.full(len(region), BASE_RADIUS if base_radius is None else base_radius)
    if base_radius is None and "base_radius_m" in table:
        own = np.asarray(table["base_radius_m"], dtype=np.float64)
        radius = np.where(np.isnan(own), radius, own)
    reached = here & (region >= clearance + radius - _ROUNDING)
    inside = here & ~reached & (region < clearance - _ROUNDING)
    masks: dict[Placement, NDArray[np.bool_]] = {
        "other_object": on == "other",
        "nowhere": nowhere,
        "inside_clearance": inside,
        "short": here & ~reached & ~inside,
        "reached": reached,
    }
    return {name: float(mask.mean()) if len(mask) else math.nan for name, mask in masks.items()}


def velocity_region_fraction(table: Table, base_radius: float | None = None) -> float:
    """Fraction of tasks in which the requested speed takes effect: R_V >= R_C + R_base, before the clamp (Eq. 7)."""
    return region_placement(table, base_radius)["reached"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One requested value against the motion feature that it governs (F.6)."""

    requested: Means  #: tier means, Low to High
    executed: Means
    correlation: float  #: within cells: Pearson's r of the deviations from the cell means
    requested_in_order: float  #: fraction of cells whose tier means strictly follow the caution order
    executed_in_order: float
    cells: int  #: with all three tiers on both sides


@dataclass(frozen=True, slots=True)
class RequestedExecuted:
    """Tables 17 and 19, and F.6."""

    n: int
    clearance: Axis  #: R_C (m) against d_min (m)
    speed: Axis  #: speed (fraction) against mu_v (1/s)
    share_met: float  #: tasks with d_min >= R_C
    share_met_interval: tuple[float, float]  #: Wilson, 95 %
    mean_surplus: float  #: m, mean of d_min - R_C
    within_cell_variance: float  #: part of the variance of d_min that lies within cells
    d_min_of_large: float  #: m, mean d_min of requests of at least 0.50 m
    d_min_of_small: float  #: m, mean d_min of requests of at most 0.30 m


def requested_against_executed(table: Table, exclude: Collection[str] = ()) -> RequestedExecuted:
    """What was asked for against what was driven. ``exclude`` leaves out obstacles by name, such as TABLETOP.

    Tasks without a defined d_min, or mu_v, are left out where it is needed. In order by chance: 1 cell in 6.
    """
    if exclude:
        table = select(table, [name not in exclude for name in text_column(table, "obstacle")])
    clearance, speed = _requested(table)
    d_min, mu_v = (np.asarray(table[name], dtype=np.float64) for name in ("d_min", "mu_v"))
    names, cell = encode_cells(table)
    tier = encode_tiers(table)
    known = ~np.isnan(d_min)
    surplus = (d_min - clearance)[known]
    met = int((surplus >= -_ROUNDING).sum())
    deviation = _deviations(d_min, cell, known)
    total = d_min[known] - _mean(d_min)
    return RequestedExecuted(
        len(cell),
        _axis(clearance, d_min, cell, tier, len(names), 1.0),
        _axis(speed, mu_v, cell, tier, len(names), -1.0),
        _divide(met, len(surplus)),
        wilson_interval(met, len(surplus)),
        _mean(surplus),
        _divide(float(deviation @ deviation), float(total @ total)),
        _mean(d_min[clearance >= 0.5 - _ROUNDING]),
        _mean(d_min[clearance <= 0.3 + _ROUNDING]),
    )


def _axis(
    asked: NDArray[np.float64],
    done: NDArray[np.float64],
    cell: NDArray[np.intp],
    tier: NDArray[np.intp],
    cells: int,
    sign: float,
) -> Axis:
    known = ~np.isnan(asked) & ~np.isnan(done)
    both = np.column_stack((np.where(known, asked, math.nan), np.where(known, done, math.nan)))
    means = tier_means(cell, tier, both, cells)  # (C, 2, 3)
    whole = ~np.isnan(means).any(axis=(1, 2))
    in_order = tier_tau(sign * means[whole]) == 1.0
    a, d = _deviations(asked, cell, known), _deviations(done, cell, known)
    return Axis(
        _by_tier(both[:, 0], tier),
        _by_tier(both[:, 1], tier),
        _divide(float(a @ d), math.sqrt(float(a @ a) * float(d @ d))),
        float(in_order[:, 0].mean()) if whole.any() else math.nan,
        float(in_order[:, 1].mean()) if whole.any() else math.nan,
        int(whole.sum()),
    )


def _deviations(values: NDArray[np.float64], cell: NDArray[np.intp], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Known values minus the mean of the known values of their cell."""
    code, value = cell[known], values[known]
    if not len(value):
        return value
    means = np.bincount(code, value) / np.maximum(np.bincount(code), 1)
    out: NDArray[np.float64] = value - means[code]
    return out


def _requested(table: Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Clearance in m and speed fraction, with the defaults where they are not set."""
    clearance = np.asarray(table["requested_clearance_m"], dtype=np.float64)
    speed = np.asarray(table["requested_speed"], dtype=np.float64)
    return np.where(np.isnan(clearance), 0.0, clearance), np.where(np.isnan(speed), 1.0, speed)


def _by_tier(values: NDArray[np.float64], tier: NDArray[np.intp]) -> Means:
    low, moderate, high = (_mean(values[tier == k]) for k in range(len(TIERS)))
    return low, moderate, high


def _floats(values: list[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return math.fsum(known.tolist()) / len(known) if len(known) else math.nan


def _divide(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
