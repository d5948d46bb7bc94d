"""Mean and spread over seeds (OSMA-Bench: mean and population standard deviation over three seeds)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeedStatistic:
    """A value over seeds. ``n`` counts the seeds in which it is defined; mean and std (ddof = 0) are over those."""

    mean: float
    std: float
    n: int


def over_seeds(values: Iterable[float]) -> SeedStatistic:
    """Mean and population standard deviation of the defined (not NaN) values; NaN without one."""
    defined = [v for v in values if not math.isnan(v)]
    if not defined:
        return SeedStatistic(math.nan, math.nan, 0)
    mean = math.fsum(defined) / len(defined)
    return SeedStatistic(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in defined) / len(defined)), len(defined))
