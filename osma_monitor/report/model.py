"""What a report says, as data: figures with intervals, per policy, before any wording or drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.report.table import Basis, Kind, Table

OutcomeKind = Literal["safe-success", "unsafe-success", "safe-failure", "unsafe-failure", "unknown"]
#: The four classes of success x safety (SafeVLA-Bench Figure 6) and what can't be placed in them.
OUTCOME_KINDS: dict[OutcomeKind, str] = {
    "safe-success": "succeeded safely",
    "unsafe-success": "succeeded, but unsafely",
    "safe-failure": "failed safely",
    "unsafe-failure": "failed, and unsafely",
    "unknown": "safety or outcome unknown",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, its 95 % interval (NaN where there is none) and the number of episodes behind it."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A headline metric: how it is printed and which direction is better."""

    key: str
    label: str
    kind: Kind
    digits: int
    better: int
    help: str
    low: float = 0.0
    high: float = 1.0


_SSI = "Does caution follow the obstacle’s tier? +1 always, 0 no relation, −1 reversed"
METRICS: dict[str, MetricSpec] = {
    m.key: m
    for m in (
        MetricSpec("sr", "SR", "percent", 1, 1, "Success rate: the host says that the task is done"),
        MetricSpec("safety", "Safety", "percent", 1, 1, "Episodes in which every applicable clause held"),
        MetricSpec("sbu", "SBU", "percent", 1, -1, "Success but unsafe: what a success rate alone can't see"),
        MetricSpec(
            "vsi", "VSI", "number", 3, -1, "Violation severity: mean depth of an episode's worst clause, 0 to 1"
        ),
        MetricSpec(
            "tsr",
            "TSR",
            "percent",
            1,
            1,
            "Task success rate over the planned navigation tasks (without a plan: those of known outcome)",
        ),
        MetricSpec("cfsr", "CFSR", "percent", 1, 1, "Reached the goal without touching the obstacle"),
        MetricSpec("ssi", "SSI", "signed", 3, 1, f"{_SSI}, over all tasks", -1.0, 1.0),
        MetricSpec(
            "ssi_cfsr",
            "SSI, CFSR ∩",
            "signed",
            3,
            1,
            "The same over tasks that all succeed in without contact",
            -1.0,
            1.0,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One policy: how many episodes of which kind, and its headline metrics by key (absent where they don't apply)."""

    policy: str
    n: int  #: scored episodes, the unknown ones included
    unknown: int
    aborted: int
    incomplete: int
    figures: Mapping[str, Figure]
    safety_worst: float  #: Safety if every unknown episode were unsafe
    safety_best: float  #: Safety if every unknown episode were safe
    outcomes: Mapping[OutcomeKind, int]
    outcome_unknown: int = 0


@dataclass(frozen=True, slots=True)
class ClauseSummary:
    """One clause under one policy."""

    policy: str
    clause: str
    family: str
    about: str
    n: int  #: scored episodes of the policy
    applicable: int
    broken: int
    unknown: int
    depths: tuple[float, ...]  #: of the violating episodes
    exposure: float  #: median fraction of frames in violation, within violating episodes
    longest_run: float  #: median longest run in frames


@dataclass(frozen=True, slots=True)
class FeatureSummary:
    """One motion feature under one policy: mean over cells of each tier's mean, and tau against the caution order."""

    policy: str
    feature: str
    tiers: Mapping[str, float]
    tau: float
    cells: int


@dataclass(frozen=True, slots=True)
class ObstacleSummary:
    """One obstacle under one policy."""

    policy: str
    obstacle: str
    tier: str
    n: int  #: episodes of known safety
    unsafe: int
    distance: float  #: mean of the episodes' smallest distances, m


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two policies on the same tasks and seeds: difference ``first`` minus ``second`` in Safety, as fractions."""

    first: str
    second: str
    pairs: int
    difference: float
    low: float
    high: float
    p_value: float
    only_first_safe: int
    only_second_safe: int


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that tables and the page print. ``records`` keep their signals only where traces are wanted."""

    title: str
    policies: tuple[PolicySummary, ...]
    clauses: tuple[ClauseSummary, ...]
    features: tuple[FeatureSummary, ...]
    comparison: Comparison | None
    comparison_note: str
    tables: tuple[Table, ...]
    records: Sequence[EpisodeRecord]
    gate_semantics: tuple[str, ...]
    library_hashes: tuple[str, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  #: further lines of the provenance footer
    scores: ScoreTable | None = None  #: the episodes as columns
    obstacles: tuple[ObstacleSummary, ...] = ()
    basis: Basis = field(default_factory=Basis)  #: what all tables rest on
