"""SSI of tiers that mean nothing: the reference value of a tier-indifferent policy (OSMA-Bench C.6), sampled.

Inside every cell the tiers are dealt to its tasks anew. The geometry of the cell, the sizes of the tiers and the ties
between features stay as they are, so this is the null distribution of this very table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.ssi import (
    LARGEST,
    Table,
    columns,
    encode_cells,
    encode_tiers,
    feature_signs,
    semantic_sensitivity_index,
    tier_tau,
)

_BLOCK = 1 << 20  #: table rows dealt at once


@dataclass(frozen=True, slots=True)
class Indifference:
    """SSI of a table beside the SSI of the same table with tiers dealt at random."""

    ssi: float
    p_value: float  #: two-sided: share of deals at least as far from 0, the table itself counted in
    interval: tuple[float, float]  #: where 95 % of the deals lie
    deals: int  #: with a defined SSI


def indifference(
    table: Table, features: Mapping[str, int] | None = None, deals: int = 2_000, seed: int = 0
) -> Indifference:
    """Could a policy that ignores tiers have this SSI?

    ``table`` as for :func:`ssi.semantic_sensitivity_index`. NaN where the SSI of the table or of every deal is
    undefined.
    """
    signs = feature_signs(table) if features is None else dict(features)
    value = semantic_sensitivity_index(table, signs).ssi
    names, cell = encode_cells(table)
    sampled = _dealt(cell, encode_tiers(table), columns(table, signs) * list(signs.values()), len(names), deals, seed)
    sampled = sampled[~np.isnan(sampled)]
    if math.isnan(value) or not len(sampled):
        return Indifference(value, math.nan, (math.nan, math.nan), len(sampled))
    beyond = int((np.abs(sampled) >= abs(value) - 1e-9).sum())
    low, high = np.quantile(sampled, (0.025, 0.975))
    return Indifference(value, (beyond + 1) / (len(sampled) + 1), (float(low), float(high)), len(sampled))


def _dealt(
    cell: NDArray[np.intp],
    tier: NDArray[np.intp],
    values: NDArray[np.float64],
    cells: int,
    deals: int,
    seed: int,
) -> NDArray[np.float64]:
    """(deals,) SSI with the tiers shuffled inside the cells; ``values`` (N, F) are aligned."""
    order = np.argsort(cell, kind="stable")
    cell, tier, values = cell[order], tier[order], values[order]
    known = np.abs(values) < LARGEST
    filled = np.where(known, values, 0.0)
    rng = np.random.default_rng(seed)
    out = np.full(deals, math.nan)
    step = max(1, _BLOCK // max(len(cell), 1))
    for start in range(0, deals, step):
        count = min(step, deals - start)
        # rows sorted by cell, then by a random number: a shuffle inside every cell at once
        shuffled = tier[np.argsort(cell + rng.random((count, len(cell))), axis=1)]
        group = ((np.arange(count)[:, None] * cells + cell) * 3 + shuffled).reshape(-1)
        taus = []
        for f in range(values.shape[1]):
            sums, sizes = (
                np.bincount(group, np.tile(column, count), minlength=count * cells * 3)
                for column in (filled[:, f], known[:, f].astype(np.float64))
            )
            with np.errstate(invalid="ignore"):
                taus.append(tier_tau((sums / sizes).reshape(count, cells, 3)))
        tau = np.stack(taus)  # (F, count, cells)
        defined = ~np.isnan(tau)
        with np.errstate(invalid="ignore"):
            mean = np.where(defined, tau, 0.0).sum(axis=2) / defined.sum(axis=2)
        out[start : start + count] = mean.mean(axis=0)
    return out
