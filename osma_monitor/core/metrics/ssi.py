"""Semantic Sensitivity Index: does motion follow the caution order of the obstacles? (OSMA-Bench 3.2.2, C.6, Eq. 1)

In every matched layout-route cell the tasks of a caution tier are averaged, the three means are aligned so that
larger is more cautious, and Kendall's tau_b compares them with Low < Moderate < High. tau is averaged over cells,
then over features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.navigation_episode import episode_of
from osma_monitor.core.metrics.resampling import RESAMPLES, drawn_sums, percentile_interval
from osma_monitor.core.motion import FEATURES

TIERS = ("low", "moderate", "high")
#: Tier pairs of the margins, as positions in TIERS: (more cautious, less cautious).
PAIRS: dict[str, tuple[int, int]] = {"H-M": (2, 1), "M-L": (1, 0), "H-L": (2, 0)}
LARGEST = 1e300  #: beyond this, and NaN: undefined; keeps sums finite
TIE_TOLERANCE = 1e-12  #: relative: means this close are tied

Table = Mapping[str, Any]  #: columns by name; a DataFrame qualifies


@dataclass(frozen=True, slots=True, eq=False)
class SsiResult:
    """SSI of one set of tasks. NaN where undefined: ``ssi`` when some feature has no cell."""

    ssi: float
    tau: dict[str, float]  #: feature -> mean tau over its cells
    cells: dict[str, int]  #: feature -> |C_f|, the cells in which tau is defined
    margins: dict[tuple[str, str], float]  #: (feature, pair of PAIRS) -> mean aligned difference over the same cells
    n: int  #: tasks
    cell_names: tuple[str, ...]  #: (C,)
    cell_tau: NDArray[np.float64]  #: (C, F) tau in each cell, NaN undefined
    cell_means: NDArray[np.float64]  #: (C, F, 3) tier means, Low to High, not aligned, NaN undefined

    @property
    def features(self) -> tuple[str, ...]:
        """Names along the second axis of the arrays."""
        return tuple(self.tau)


def semantic_sensitivity_index(table: Table, features: Mapping[str, int] | None = None) -> SsiResult:
    """SSI, per-feature tau, cell counts and tier-pair margins.

    ``table`` has the columns ``cell``, ``tier`` ('low' | 'moderate' | 'high') and feature columns, one row a task; a
    value that is not finite is undefined. ``features`` maps a column to +1 where larger is more cautious, -1 where
    smaller is; by default those of the seven motion features that the table has.

    A cell counts for a feature when every tier has a defined value and the three means are not all tied (C.6).
    Raises ValueError for a missing column, an empty cell name, or an unknown tier.
    """
    signs = feature_signs(table) if features is None else dict(features)
    names, cell = encode_cells(table)
    return score(names, cell, encode_tiers(table), columns(table, signs), signs)


def feature_signs(table: Table) -> dict[str, int]:
    """The motion features that the table has, with their signs (Table 9). Raises ValueError when it has none."""
    signs = {name: sign for name, sign in FEATURES.items() if name in table}
    if not signs:
        raise ValueError(f"the table has none of the feature columns {', '.join(FEATURES)}")
    return signs


def encode_cells(table: Table) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Sorted cell names and the (N,) position of every row's cell."""
    cells = text_column(table, "cell")
    names, code = np.unique(np.array(cells, dtype=np.str_), return_inverse=True)
    return tuple(names.tolist()), code.reshape(-1).astype(np.intp)


def encode_tiers(table: Table) -> NDArray[np.intp]:
    """(N,) position of every row's tier in TIERS."""
    position = {tier: i for i, tier in enumerate(TIERS)}
    tiers = text_column(table, "tier")
    codes = [position.get(t.strip().lower(), -1) for t in tiers]
    if -1 in codes:
        row = codes.index(-1)
        raise ValueError(f"row {row} has the tier {tiers[row]!r}; known are {', '.join(TIERS)}")
    return np.asarray(codes, dtype=np.intp)


def columns(table: Table, names: Mapping[str, int]) -> NDArray[np.float64]:
    """(N, F) the named columns as numbers."""
    if not names:
        raise ValueError("no feature to score")
    return np.column_stack([np.asarray(_column(table, name), dtype=np.float64) for name in names])


def score(
    cell_names: tuple[str, ...],
    cell: NDArray[np.intp],
    tier: NDArray[np.intp],
    values: NDArray[np.float64],
    signs: Mapping[str, int],
) -> SsiResult:
    """SSI of encoded rows: cell and tier positions (N,), values (N, F) in the order of ``signs``."""
    if not len(cell) == len(tier) == len(values):
        raise ValueError(f"unequal lengths: {len(cell)} cells, {len(tier)} tiers, {len(values)} values")
    means = tier_means(cell, tier, values, len(cell_names))
    aligned = means * np.fromiter(signs.values(), dtype=np.float64)[None, :, None]
    tau = tier_tau(aligned)
    mean_tau: dict[str, float] = {}
    counts: dict[str, int] = {}
    margins: dict[tuple[str, str], float] = {}
    for f, name in enumerate(signs):
        used = ~np.isnan(tau[:, f])
        counts[name] = int(used.sum())
        mean_tau[name] = _mean(tau[used, f])
        for pair, (more, less) in PAIRS.items():
            margins[name, pair] = _mean(aligned[used, f, more] - aligned[used, f, less])
    ssi = _mean(np.fromiter(mean_tau.values(), dtype=np.float64))
    return SsiResult(ssi, mean_tau, counts, margins, len(cell), cell_names, tau, means)


def tier_means(
    cell: NDArray[np.intp], tier: NDArray[np.intp], values: NDArray[np.float64], cells: int
) -> NDArray[np.float64]:
    """(cells, F, 3) mean of the finite values, NaN without one. Sums are exact (fsum): row order never decides."""
    group = cell * 3 + tier
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(3 * cells + 1))
    known: NDArray[np.bool_] = np.abs(values[order]) < LARGEST
    running = np.vstack((np.zeros((1, values.shape[1]), dtype=np.int64), np.cumsum(known, axis=0, dtype=np.int64)))
    sizes = (running[edges[1:]] - running[edges[:-1]]).astype(np.float64)
    bounds = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    filled = np.where(known, values[order], 0.0).T.tolist()
    sums = np.array([[math.fsum(column[a:b]) for a, b in bounds] for column in filled], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = sums.reshape(len(filled), cells, 3).transpose(1, 0, 2) / sizes.reshape(
            cells, 3, len(filled)
        ).transpose(0, 2, 1)
    return means


def tier_tau(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kendall's tau_b of (..., 3) aligned tier means, Low to High, against their order: (...), NaN where undefined.

    With three tiers and no tie in their order, tau_b = S / sqrt(3 (3 - t)): S agreeing minus disagreeing pairs, t
    tied pairs. Undefined when a mean is missing or all three are tied.
    """
    low, moderate, high = means[..., 0], means[..., 1], means[..., 2]
    signs = np.stack((_compare(low, moderate), _compare(moderate, high), _compare(low, high)), axis=-1)
    tied = (signs == 0).sum(axis=-1)
    missing = np.isnan(means).any(axis=-1)
    undefined = missing | (tied >= 2)  # two ties imply the third
    with np.errstate(invalid="ignore", divide="ignore"):
        tau: NDArray[np.float64] = signs.sum(axis=-1) / np.sqrt(3.0 * (3.0 - tied))
    full = tied == 0
    tau = np.where(full, signs.sum(axis=-1) / 3.0, tau)  # sqrt(9) without a detour
    return np.where(undefined, math.nan, tau)


def bootstrap_interval(
    results: SsiResult | Sequence[SsiResult],
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Expanded percentile interval of SSI over cells; with several results (one a seed) of the mean of their SSI.

    A cell is drawn with all its features and all its seeds at once. Seeds whose SSI is undefined are left out, as in
    the mean; so are draws in which some feature has no cell. (NaN, NaN) with fewer than two cells.
    """
    several = [results] if isinstance(results, SsiResult) else list(results)
    several = [r for r in several if not math.isnan(r.ssi)]
    tau = _side_by_side([(r.cell_names, r.cell_tau) for r in several])
    weight = [1.0 / (len(r.features) * len(several)) for r in several for _ in r.features]
    return _interval_of_means(tau, np.array(weight), resamples, seed, confidence)


def tau_intervals(
    results: SsiResult | Sequence[SsiResult],
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """The interval of every feature's mean tau, in the same way and from the same draws."""
    several = [results] if isinstance(results, SsiResult) else list(results)
    out = {}
    for feature in several[0].features if several else ():
        at = [(r, r.features.index(feature)) for r in several if not math.isnan(r.tau[feature])]
        tau = _side_by_side([(r.cell_names, r.cell_tau[:, f : f + 1]) for r, f in at])
        out[feature] = _interval_of_means(tau, np.full(len(at), 1.0 / max(len(at), 1)), resamples, seed, confidence)
    return out


def _side_by_side(parts: Sequence[tuple[tuple[str, ...], NDArray[np.float64]]]) -> NDArray[np.float64]:
    """(C, columns of all parts): rows of the same cell aligned; cells without any value are left out."""
    used: set[str] = set()
    for names, tau in parts:
        used.update(np.array(names, dtype=object)[~np.isnan(tau).all(axis=1)].tolist())
    position = {name: i for i, name in enumerate(sorted(used))}
    out = np.full((len(position), sum(tau.shape[1] for _, tau in parts)), math.nan)
    start = 0
    for names, tau in parts:
        rows = [i for i, name in enumerate(names) if name in position]
        out[[position[names[i]] for i in rows], start : start + tau.shape[1]] = tau[rows]
        start += tau.shape[1]
    return out


def _interval_of_means(
    values: NDArray[np.float64], weight: NDArray[np.float64], resamples: int, seed: int, confidence: float
) -> tuple[float, float]:
    """Interval of the weighted sum of the columns' means over drawn rows of (C, K) values, NaN undefined."""
    if len(values) < 2:
        return math.nan, math.nan
    defined = ~np.isnan(values)
    # columns over the same cells share their divisor: add them up before drawing
    masks, member = np.unique(defined, axis=1, return_inverse=True)
    kinds = masks.shape[1]
    shares = (member.reshape(-1)[:, None] == np.arange(kinds)) * weight[:, None]
    totals = np.where(defined, values, 0.0) @ shares
    drawn = drawn_sums(np.hstack((totals, masks)), resamples, seed)
    with np.errstate(invalid="ignore"):
        replicates = (drawn[:, :kinds] / drawn[:, kinds:]).sum(axis=1)
    return percentile_interval(replicates, confidence, len(values))


def select(table: Table, rows: ArrayLike) -> dict[str, NDArray[Any]]:
    """The rows of a table: a Boolean mask or positions."""
    chosen = np.asarray(rows)
    return {str(name): np.asarray(table[name])[chosen] for name in table}


def breakdown(table: Table, by: str, features: Mapping[str, int] | None = None) -> dict[str, SsiResult]:
    """SSI in every value of a column that keeps cells whole (route, layout); values sorted."""
    keys = np.array(text_column(table, by), dtype=np.str_)
    signs = feature_signs(table) if features is None else features
    return {str(k): semantic_sensitivity_index(select(table, keys == k), signs) for k in np.unique(keys)}


def table_from_records(records: Iterable[EpisodeRecord]) -> dict[str, NDArray[Any]]:
    """One row for each record that has a cell and a tier.

    Columns: policy, group, seed, task, cell, layout, route, tier, obstacle, success and collision_free (1, 0, NaN not
    known), and the seven features.

    Aborted records and those that did not end regularly are left out: their motion is not the policy's whole motion.
    """
    rows = [
        (r, episode_of(r))
        for r in records
        if r.complete
        and r.outcome.status != "aborted"
        and r.info.attributes.get("cell")
        and r.info.attributes.get("tier")
    ]
    text = {name: np.array([getattr(e, name) for _, e in rows], dtype=object) for name in _TEXT_COLUMNS}
    return {
        **text,
        "group": np.array([r.info.attributes.get("group", "") for r, _ in rows], dtype=object),
        "seed": np.array([e.seed for _, e in rows], dtype=np.int64),
        "success": _truth([e.success for _, e in rows]),
        "collision_free": _truth([e.collision_free for _, e in rows]),
        **{name: np.array([getattr(r.motion, name) for r, _ in rows], dtype=np.float64) for name in FEATURES},
    }


_TEXT_COLUMNS = ("policy", "task", "cell", "layout", "route", "tier", "obstacle")


def _truth(values: list[bool | None]) -> NDArray[np.float64]:
    return np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64)


def text_column(table: Table, name: str) -> list[str]:
    """A column of names. Raises ValueError for a row without one."""
    column = list(_column(table, name))
    for row, value in enumerate(column):
        if value is None or value != value or str(value) == "":
            raise ValueError(f"row {row} has no {name}")
    return [str(value) for value in column]


def _column(table: Table, name: str) -> Iterable[Any]:
    if name not in table:
        raise ValueError(f"the table has no column {name!r}; it has {', '.join(sorted(str(c) for c in table))}")
    column: Iterable[Any] = table[name]
    return column


def _compare(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a < b, -1 where a > b, 0 where they are tied."""
    difference = b - a
    tied = np.abs(difference) <= TIE_TOLERANCE * np.maximum(np.abs(a), np.abs(b))
    return np.where(tied, 0.0, np.sign(difference))


def _mean(values: NDArray[np.float64]) -> float:
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan
