"""What policies asked for against what the robot did, by tier (OSMA-Bench Tables 2, 17 and 20, F.2, F.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osma_monitor.core.metrics.failures import Failure, stall_table
from osma_monitor.core.metrics.requested import (
    TABLETOP,
    Means,
    region_placement,
    requested_against_executed,
    value_level,
)
from osma_monitor.core.metrics.scores import natural
from osma_monitor.core.metrics.ssi import select
from osma_monitor.report.table import Column, Table, frame

_TIERS = ("L", "M", "H")


def _tiers(name: str, means: Means) -> dict[str, float]:
    return {f"{name}_{t}": value for t, value in zip(_TIERS, means, strict=True)}


def _tier_columns(name: str, label: str, digits: int) -> tuple[Column, ...]:
    return tuple(Column(f"{name}_{t}", f"{label} {t}", "number", digits) for t in _TIERS)


def _parts(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    policies = np.array([str(p) for p in table["policy"]], dtype=object)
    return {p: select(table, policies == p) for p in sorted(set(policies), key=natural)}


def requested(table: Mapping[str, Any]) -> Table:
    """Requested and executed control by tier, their agreement, and value-level SSI."""
    rows = []
    for policy, part in _parts(table).items():
        r, v = requested_against_executed(part), value_level(part)
        region: dict[str, float] = {str(place): share for place, share in region_placement(part).items()}
        rows.append(
            {
                "policy": policy,
                "tasks": r.n,
                "ssi_values": v.clearance_speed.ssi,
                "ssi_ratio": v.clearance_ratio.ssi,
                **_tiers("clearance", r.clearance.requested),
                **_tiers("d_min", r.clearance.executed),
                **_tiers("speed", r.speed.requested),
                **_tiers("mu_v", r.speed.executed),
                "met": r.share_met,
                "met_low": r.share_met_interval[0],
                "met_high": r.share_met_interval[1],
                "met_floor": requested_against_executed(part, TABLETOP).share_met,
                "r_clearance": r.clearance.correlation,
                "r_speed": r.speed.correlation,
                "order_asked": r.clearance.requested_in_order,
                "order_done": r.clearance.executed_in_order,
                "speed_order_asked": r.speed.requested_in_order,
                "speed_order_done": r.speed.executed_in_order,
                **region,
            }
        )
    columns = (
        Column("policy", "policy"),
        Column("tasks", "tasks", "count"),
        Column("ssi_values", "value SSI (d, v)", "signed", 3, 1),
        Column("ssi_ratio", "value SSI (d, v/d)", "signed", 3, 1),
        *_tier_columns("clearance", "R_C m", 2),
        *_tier_columns("d_min", "d_min m", 2),
        *_tier_columns("speed", "speed", 2),
        *_tier_columns("mu_v", "mu_v 1/s", 2),
        Column("met", "R_C met", "percent", better=1, interval=True, help="tasks with d_min of at least R_C"),
        Column("met_floor", "R_C met, floor", "percent", better=1, help="without obstacles that stand on a table"),
        Column("r_clearance", "r (R_C, d_min)", "signed", 2),
        Column("r_speed", "r (speed, mu_v)", "signed", 2),
        Column("order_asked", "cells in order, R_C", "percent", better=1),
        Column("order_done", "cells in order, d_min", "percent", better=1),
        Column("speed_order_asked", "cells in order, speed", "percent", better=1),
        Column("speed_order_done", "cells in order, mu_v", "percent", better=1),
        Column("reached", "Vel.", "percent", better=1, help="the path enters the velocity region, before the clamp"),
        Column("short", "region short", "percent"),
        Column("inside_clearance", "region inside R_C", "percent"),
        Column("nowhere", "no region", "percent"),
        Column("other_object", "region elsewhere", "percent"),
    )
    said = "Speed is a fraction of nominal; a value that is not set counts as no clearance and nominal speed."
    title = "Requested against executed control"
    return Table("requested", title, columns, frame(rows, columns), (said,), keys=1)


def stalls(found: Mapping[str, Sequence[Failure]]) -> Table:
    """Slow-speed stalls: what was asked for, and where the robot stood (OSMA-Bench Table 20)."""
    rows = []
    for policy in sorted(found, key=natural):
        for group, row in stall_table(found[policy]).items():
            if row.n:
                values = row._asdict()
                rows.append({"policy": policy, "group": group, "stalls": values.pop("n"), **values})
    columns = (
        Column("policy", "policy"),
        Column("group", "group"),
        Column("stalls", "stalls", "count"),
        Column("clearance_m", "R_C m", "number", 2),
        Column("region_m", "R_V m", "number", 2),
        Column("speed", "speed", "number", 2),
        Column("start_m", "start m", "number", 2),
        Column("end_m", "end m", "number", 2),
        Column("obstacle_m", "obstacle m", "number", 2),
    )
    return Table("stalls", "Slow-speed stalls", columns, frame(rows, columns), keys=2)
