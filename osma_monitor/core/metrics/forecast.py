"""How good the forecasts of violations are: precision, recall and lead time of warnings (core/prediction.py).

A warning is a run of frames that warn without interruption. It is right when the clause enters a violation within
``horizon`` of its last frame. A violation is foreseen when a right warning precedes it; its lead time runs from the
first frame of that warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """Counts over one trace, or their sum over several."""

    warnings: int = 0
    right: int = 0  #: warnings that a violation followed
    violations: int = 0
    foreseen: int = 0
    lead: tuple[float, ...] = ()  #: s, one for each violation that was foreseen

    def __add__(self, other: ForecastScore) -> ForecastScore:
        return ForecastScore(
            self.warnings + other.warnings,
            self.right + other.right,
            self.violations + other.violations,
            self.foreseen + other.foreseen,
            self.lead + other.lead,
        )

    @property
    def precision(self) -> float:
        """Share of warnings that a violation followed; NaN without any."""
        return self.right / self.warnings if self.warnings else float("nan")

    @property
    def recall(self) -> float:
        """Share of violations that were foreseen; NaN without any."""
        return self.foreseen / self.violations if self.violations else float("nan")

    @property
    def median_lead(self) -> float:
        """Median lead time in s; NaN when nothing was foreseen."""
        return float(np.median(self.lead)) if self.lead else float("nan")


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[first, last] index of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def score_forecast(
    stamps_ns: NDArray[np.int64], violated: NDArray[np.bool_], warn: NDArray[np.bool_], horizon: float = 1.0
) -> ForecastScore:
    """Score one clause of one episode: ``violated`` and ``warn`` (T,) of each frame, ``horizon`` in s. ValueError on
    unequal lengths."""
    if not len(stamps_ns) == len(violated) == len(warn):
        raise ValueError(f"unequal lengths: {len(stamps_ns)} stamps, {len(violated)} verdicts, {len(warn)} warnings")
    t = stamps_ns / 1e9
    onsets = [a for a, _ in _runs(violated)]
    warnings = _runs(warn & ~violated)
    right, lead = 0, []
    foreseen: set[int] = set()
    for first, last in warnings:
        onset = next((o for o in onsets if last < o and t[o] - t[last] <= horizon), None)
        if onset is None:
            continue
        right += 1
        if onset not in foreseen:
            foreseen.add(onset)
            lead.append(float(t[onset] - t[first]))
    return ForecastScore(len(warnings), right, len(onsets), len(foreseen), tuple(lead))


def total(scores: Iterable[ForecastScore]) -> ForecastScore:
    """The sum of many scores."""
    result = ForecastScore()
    for score in scores:
        result += score
    return result
