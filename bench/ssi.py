"""How long SSI with everything takes: 20 policies in three groups, 3 seeds, 625 tasks.

Everything: the three subsets, per-feature tau, cell counts, margins, mean and std over seeds, an interval over cells
for each, and leave-one-model-out. Run: ``python bench/ssi.py``.
"""

from __future__ import annotations

import time

import numpy as np

from osma_monitor.core.metrics import ssi_groups
from osma_monitor.core.metrics.ssi import TIERS
from osma_monitor.core.motion import FEATURES

GROUPS = {"VLA": 4, "VoxPoser": 8, "PIVOT": 8}
SEEDS = (0, 3, 16)


def table() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Random features and outcomes of every policy, seed and task."""
    tasks = [
        (f"{layout}{route}", tier, f"{layout}{route}-{tier}-{k}")
        for layout in range(5)
        for route in "ABCDEFG"
        for tier in TIERS
        for k in range(6)
        if (route, tier, k) != ("F", "high", 0)
    ]
    groups = {f"{group} {i}": group for group, size in GROUPS.items() for i in range(size)}
    rows = [(policy, seed, *task) for policy in groups for seed in SEEDS for task in tasks]
    rng = np.random.default_rng(0)
    names = ("policy", "seed", "cell", "tier", "task")
    out = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    success = rng.random(len(rows)) < 0.95
    out["success"] = success
    out["collision_free"] = success & (rng.random(len(rows)) < 0.97)
    out.update({name: rng.lognormal(size=len(rows)) for name in FEATURES})
    return out, groups


def main() -> None:
    rows, groups = table()
    start = time.perf_counter()
    subsets = ssi_groups.group_ssi(rows, groups)
    middle = time.perf_counter()
    without = ssi_groups.leave_one_out(rows, groups)
    end = time.perf_counter()
    print(f"{len(rows['task'])} rows, {len(groups)} policies, {len(SEEDS)} seeds")
    print(f"three subsets ({len(subsets)} results with interval):     {middle - start:.2f} s")
    print(f"leave one model out ({len(without)} results with interval): {end - middle:.2f} s")
    print(f"all:                                            {end - start:.2f} s")


if __name__ == "__main__":
    main()
