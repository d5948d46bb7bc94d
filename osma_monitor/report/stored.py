"""What scoring needs of compacted data sets, without a record for every episode, and of several sources together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from osma_monitor.core.metrics.failures import Failure
from osma_monitor.core.metrics.scores import concatenate
from osma_monitor.core.metrics.statistics import Each
from osma_monitor.core.safety import Library
from osma_monitor.io.scoring import DatasetScores
from osma_monitor.report.build import Collected, collect
from osma_monitor.report.rescored import Rescored, rescored, signals_of
from osma_monitor.report.rescored import together as rescored_together

#: What the tables of navigation read of the steps.
_SIGNALS = ("base_x", "base_y", "base_yaw", "obstacle_distance", "obstacle_contact")


def collect_stored(data: DatasetScores, rescore: Sequence[Library] = (), each: Each = map) -> Collected:
    """As `build.collect` of the records of ``data``, but for the records themselves, which are left out.

    Scores come from the columns. Only episodes that navigate (they name a cell, or know an obstacle) become records for
    a moment. ``rescore`` are the libraries that may have judged. One part of the data set for each thread of ``each``
    is in memory.
    """
    wanted = signals_of(rescore)

    def again(part: int) -> Rescored | None:
        rows = data.parts[part]
        return rescored(data.table.select(np.arange(rows.start, rows.stop)), data.columns(wanted, part), rescore)

    navigation = collect(data.records(data.navigating.tolist(), _SIGNALS))
    return replace(
        navigation,
        scores=data.table,
        inactive=dict(data.inactive),
        families=data.families,
        records=(),
        inputs=dict(data.inputs),
        rescored=rescored_together(list(each(again, range(len(data.parts))))) if rescore else None,
    )


def together(parts: Sequence[Collected]) -> Collected:
    """What `build.collect` gives of the records of all parts, one part after the other."""
    # a source without an episode was judged by nothing, and takes no table away
    parts = [part for part in parts if len(part.scores)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    failures: dict[str, tuple[Failure, ...]] = {}
    for part in parts:
        for policy, its in part.failures.items():
            failures[policy] = (*failures.get(policy, ()), *its)
    inactive: Counter[tuple[str, str]] = Counter()
    inputs: Counter[str] = Counter()
    for part in parts:
        inactive.update(part.inactive)
        inputs.update(part.inputs)
    return Collected(
        concatenate([part.scores for part in parts]),
        tuple(chain.from_iterable(part.episodes for part in parts)),
        _rows([part.adaptation for part in parts]),
        _rows([part.requests for part in parts]),
        failures,
        dict(inactive),
        {clause: family for part in parts for clause, family in part.families.items()},
        tuple(chain.from_iterable(part.records for part in parts)),
        rescored_together([part.rescored for part in parts]),
        tuple(chain.from_iterable(part.driven for part in parts)),
        dict(inputs),
    )


def _rows(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns end to end; tables without a column are left out."""
    some = [table for table in tables if table]
    return {name: np.concatenate([table[name] for table in some]) for name in some[0]} if some else {}
