"""SSI of many policies on the task sets that make them comparable (OSMA-Bench 3.2.2, C.6, Table 13).

Policies are compared only within a policy group. All tasks, those that every policy of the group completes (TSR
intersection), and those that every one completes without contact (CFSR intersection, the primary setting); the sets
are formed for each seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics.resampling import RESAMPLES
from osma_monitor.core.metrics.seeds import SeedStatistic, over_seeds
from osma_monitor.core.metrics.ssi import (
    PAIRS,
    SsiResult,
    Table,
    bootstrap_interval,
    columns,
    encode_cells,
    encode_tiers,
    feature_signs,
    score,
    text_column,
)

Subset = Literal["all", "tsr", "cfsr"]
SUBSETS: tuple[Subset, ...] = ("all", "tsr", "cfsr")


@dataclass(frozen=True, slots=True, eq=False)
class PolicySsi:
    """One policy on one task set, over seeds: mean and population standard deviation, interval over cells."""

    policy: str
    group: str
    subset: Subset
    by_seed: Mapping[int, SsiResult]
    ssi: SeedStatistic
    tau: Mapping[str, SeedStatistic]  #: feature
    cells: Mapping[str, SeedStatistic]  #: feature -> |C_f|
    margins: Mapping[tuple[str, str], SeedStatistic]  #: (feature, pair)
    interval: tuple[float, float]  #: of the mean SSI, over cells
    left_out: str = ""  #: policy without which the intersection was formed

    @property
    def n(self) -> int:
        """Tasks over all seeds."""
        return sum(r.n for r in self.by_seed.values())


def group_ssi(
    table: Table,
    groups: Mapping[str, str] | None = None,
    subsets: Sequence[Subset] = SUBSETS,
    features: Mapping[str, int] | None = None,
    resamples: int = RESAMPLES,
) -> list[PolicySsi]:
    """Every policy on every subset, in the order of the table's policies.

    ``table`` has the columns policy, task, cell, tier, the features, success and collision_free (1, 0, NaN not known:
    then not in an intersection), and seed and group where there is more than one. ``groups`` maps a policy to its
    group instead. A policy that did not run in a seed does not shrink that seed's intersections; a task that it did
    not run is not in them.

    A task that a policy ran several times is in an intersection only if every run qualifies.

    Raises ValueError for a missing column, an unknown subset, or a policy without a group.
    """
    rows = _Rows(table, groups, features)
    return [
        rows.result(policy, subset, rows.eligible(rows.peers(policy), subset), resamples)
        for policy in rows.policies
        for subset in subsets
    ]


def leave_one_out(
    table: Table,
    groups: Mapping[str, str] | None = None,
    subset: Subset = "cfsr",
    features: Mapping[str, int] | None = None,
    resamples: int = RESAMPLES,
) -> list[PolicySsi]:
    """The intersections again with each policy of a group taken out in turn (last SSI column of Table 13).

    One weak policy can decide which tasks all others are judged on; this shows by how much. Groups of one are
    skipped.
    """
    rows = _Rows(table, groups, features)
    out = []
    for left_out in rows.policies:
        rest = [p for p in rows.peers(left_out) if p != left_out]
        if rest:
            eligible = rows.eligible(rest, subset)
            out += [rows.result(policy, subset, eligible, resamples, left_out) for policy in rest]
    return out


class _Rows:
    """The table with every name as a number, so that a task set is a mask."""

    def __init__(self, table: Table, groups: Mapping[str, str] | None, features: Mapping[str, int] | None) -> None:
        self.signs = dict(feature_signs(table) if features is None else features)
        self.cell_names, self.cell = encode_cells(table)
        self.tier = encode_tiers(table)
        self.values = columns(table, self.signs)
        policy = text_column(table, "policy")
        self.policies = list(dict.fromkeys(policy))
        self.policy = _codes(policy)
        self.task = _codes(text_column(table, "task"))
        seed = table["seed"] if "seed" in table else [0] * len(policy)
        self.seed = np.asarray(list(seed), dtype=np.int64)
        if groups is not None:
            unknown = sorted(set(self.policies) - set(groups))
            if unknown:
                raise ValueError(f"no group is given for the policies {', '.join(unknown)}")
            self.group = {p: groups[p] for p in self.policies}
        elif "group" in table:
            self.group = dict(zip(policy, (str(g) for g in table["group"]), strict=True))
        else:
            self.group = dict.fromkeys(self.policies, "")
        self.outcome: dict[Subset, NDArray[np.bool_]] = {"all": np.ones(len(policy), dtype=bool)}
        if "success" in table:
            self.outcome["tsr"] = _true(table["success"])
        if "collision_free" in table:
            self.outcome["cfsr"] = _true(table["collision_free"])

    def peers(self, policy: str) -> list[str]:
        """The policies of the same group, itself too."""
        return [p for p in self.policies if self.group[p] == self.group[policy]]

    def eligible(self, policies: Iterable[str], subset: Subset) -> NDArray[np.bool_]:
        """(N,) rows whose (seed, task) each of ``policies`` that ran in the seed has, with the outcome asked for."""
        if subset not in self.outcome:
            missing = {"tsr": "success", "cfsr": "collision_free"}.get(subset)
            raise ValueError(f"the table has no column {missing!r}" if missing else f"unknown subset {subset!r}")
        if subset == "all":
            return self.outcome["all"]
        out = np.zeros(len(self.policy), dtype=bool)
        members = np.isin(self.policy, [self.policies.index(p) for p in policies])
        for seed in np.unique(self.seed):
            here = members & (self.seed == seed)
            running = len(np.unique(self.policy[here]))
            runs = self._per_policy_and_task(here)
            done = (runs > 0) & (self._per_policy_and_task(here & self.outcome[subset]) == runs)
            common = done.sum(axis=0) == running
            out |= (self.seed == seed) & common[self.task] & (running > 0)
        return out

    def result(
        self, policy: str, subset: Subset, eligible: NDArray[np.bool_], resamples: int, left_out: str = ""
    ) -> PolicySsi:
        mine = self.policy == self.policies.index(policy)
        by_seed = {int(s): self._score(mine & eligible & (self.seed == s)) for s in np.unique(self.seed[mine])}
        results = list(by_seed.values())
        return PolicySsi(
            policy,
            self.group[policy],
            subset,
            by_seed,
            over_seeds(r.ssi for r in results),
            {f: over_seeds(r.tau[f] for r in results) for f in self.signs},
            {f: over_seeds(float(r.cells[f]) for r in results) for f in self.signs},
            {(f, p): over_seeds(r.margins[f, p] for r in results) for f in self.signs for p in PAIRS},
            bootstrap_interval(results, resamples) if resamples else (math.nan, math.nan),
            left_out,
        )

    def _score(self, mask: NDArray[np.bool_]) -> SsiResult:
        return score(self.cell_names, self.cell[mask], self.tier[mask], self.values[mask], self.signs)

    def _per_policy_and_task(self, mask: NDArray[np.bool_]) -> NDArray[np.intp]:
        """(policies, tasks) how many rows."""
        tasks = int(self.task.max(initial=-1)) + 1
        key = self.policy[mask] * tasks + self.task[mask]
        return np.bincount(key, minlength=len(self.policies) * tasks).reshape(len(self.policies), tasks)


def _codes(names: list[Any]) -> NDArray[np.intp]:
    """(N,) numbers in order of first appearance."""
    position = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.fromiter((position[n] for n in names), dtype=np.intp, count=len(names))


def _true(column: Iterable[Any]) -> NDArray[np.bool_]:
    """(N,) what is known to be true; None and NaN are not."""
    return np.array([value is not None and value == 1 for value in column], dtype=bool)
