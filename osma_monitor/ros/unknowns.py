"""Why clauses cannot be judged at an instant, in words that lead to a sensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from osma_monitor.core.monitor import UNKNOWN, Update
from osma_monitor.core.safety import Clause
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.core.signals.schema import SCHEMA


def causes(update: Update, clauses: Sequence[Clause], frame: RawFrame) -> frozenset[str]:
    """What is not known in a frame with unknown clauses: raw parts that are absent, or signals that parts lack."""
    names = {name for i in np.flatnonzero(update.clauses.status == UNKNOWN).tolist() for name in clauses[i].signals}
    found = set()
    for name in names:
        if math.isfinite(update.signals[name]):
            continue
        parts = {need.partition(".")[0] for need in SCHEMA[name].needs} - {"parameters"}
        absent = {part for part in parts if getattr(frame, part) is None}
        found |= {f"{part} absent" for part in absent} or {f"{name} not known from {' and '.join(sorted(parts))}"}
    return frozenset(found)
