"""What scoring needs of a compacted data set, without a record for every episode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.sensitivity import needed_signals
from osma_monitor.core.safety import Library
from osma_monitor.io.scoring import DatasetScores
from osma_monitor.report.build import Collected, collect

#: What the tables of navigation read of the steps.
_SIGNALS = ("base_x", "base_y", "base_yaw", "obstacle_distance", "obstacle_contact")


def collect_stored(data: DatasetScores, rescore: Library | None = None) -> Collected:
    """As `build.collect` of the records of ``data``, but for the records themselves, which are left out.

    Scores come from the columns. Only episodes that navigate (they name a cell, or know an obstacle) become records for
    a moment. ``rescore`` keeps the signals that other thresholds of this library need.
    """
    navigation = collect(data.records(_navigating(data).tolist(), _SIGNALS))
    return replace(
        navigation,
        scores=data.table,
        inactive=dict(data.inactive()),
        families=data.families,
        records=(),
        columns=data.columns(needed_signals(rescore)) if rescore is not None else None,
    )


def _navigating(data: DatasetScores) -> NDArray[np.intp]:
    """Episodes with a cell or with some known distance to an obstacle."""
    columns = data.columns(["obstacle_distance"])
    known = np.concatenate([[0], np.cumsum(~np.isnan(columns.signals["obstacle_distance"]))])
    some = known[columns.offsets[1:]] > known[columns.offsets[:-1]]
    cells = data.table.keys.get("cell")
    return np.flatnonzero(some if cells is None else some | (cells != ""))
