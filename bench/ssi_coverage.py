"""How often does the interval over cells hold the SSI of a policy that knows no tiers, which is 0?

Drives the tier-blind policy through all 625 tasks with one shape for all obstacles and a start jitter for each task
(no monitor: features only). Prints SSI and interval of every seed. Then it deals the drives of all seeds to tiers at
random, 4,000 times: what SSI is by chance, whether the seeds scatter more than that, and how often the interval holds 0
with 5, 10, 20 and 35 cells.

python bench/ssi_coverage.py --seeds 0 3 16            # about 45 s of processor time a seed
python bench/ssi_coverage.py --drawn                   # coverage on random benchmarks, with effects, of five intervals
python bench/ssi_coverage.py --offsets 400             # do the start offsets of so many seeds know the tier?
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from osma_monitor.core.metrics import ssi, ssi_null
from osma_monitor.core.metrics.resampling import draw_counts, expanded_tail
from osma_monitor.core.motion import FEATURES, motion_features
from osma_monitor.core.signals.raw import CONTACT_YES, OBSTACLE_ROLES
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.kitchen.tasks import parse_task, tasks
from sim_bridge.policies import make_policy
from sim_bridge.rollout import drive

DEALS, RESAMPLES = 4_000, 4_000


def features(policy: str, seed: int) -> np.ndarray:
    """(625, 7) features of every task."""
    simulation, driver, rows = KitchenSimulation(identical_shapes=True, jitter=StartJitter()), make_policy(policy), []
    for task in tasks():
        simulation.restart_clock()
        frames, _ = drive(simulation, driver, task, seed)
        xy = np.array([f.base.position[:2] for f in frames if f.base is not None])
        seen = [f.objects for f in frames if f.objects is not None]
        at = next(i for i, role in enumerate(seen[0].role) if role in OBSTACLE_ROLES)
        touch = np.array([o.in_contact[at] == CONTACT_YES for o in seen])
        found = motion_features(xy, np.array([o.distance[at] for o in seen]), touch)
        rows.append([getattr(found, name) for name in FEATURES])
    print(f"\rseed {seed} done ", end="", file=sys.stderr, flush=True)
    return np.array(rows)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="shortest_path")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 3, 16])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--drawn", action="store_true", help="random benchmarks instead of drives")
    parser.add_argument("--offsets", type=int, default=0, metavar="SEEDS", help="start offsets against tiers instead")
    arguments = parser.parse_args()
    if arguments.drawn:
        _drawn()
        return
    if arguments.offsets:
        _offsets(arguments.offsets)
        return
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        values = pool.map(partial(features, arguments.policy), arguments.seeds, chunksize=1)
    parsed = [parse_task(task) for task in tasks()]
    cell, tier = np.array([t.cell for t in parsed]), np.array([t.tier for t in parsed])
    results, held = [], 0
    print()
    for seed, rows in zip(arguments.seeds, values, strict=True):
        table = {"cell": cell, "tier": tier, **{name: rows[:, i] for i, name in enumerate(FEATURES)}}
        result = ssi.semantic_sensitivity_index(table)
        low, high = ssi.bootstrap_interval(result)
        shuffled = ssi_null.indifference(table).p_value
        held += low <= 0 <= high
        results.append(result)
        print(f"seed {seed}: SSI {result.ssi:+.3f} [{low:+.3f}, {high:+.3f}], p of shuffled tiers {shuffled:.3f}")
    low, high = ssi.bootstrap_interval(results)
    mean = np.mean([r.ssi for r in results])
    print(f"0 inside {held} of {len(results)}; mean of all seeds {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
    taus = {name: float(np.mean([r.tau[name] for r in results])) for name in FEATURES}
    print("mean tau " + ", ".join(f"{name} {value:+.3f}" for name, value in taus.items()))
    by_chance = _coverage(cell, tier, np.stack(values))
    found = np.array([r.ssi for r in results])
    chi2 = float(((found / by_chance.std()) ** 2).sum())
    print(
        f"scatter of the seeds {found.std(ddof=1) if len(found) > 1 else np.nan:.3f}; chi squared {chi2:.1f} with "
        f"{len(found)} degrees of freedom, p {stats.chi2.sf(chi2, len(found)):.2f}"
    )
    means = np.random.default_rng(1).choice(by_chance, (100_000, len(found))).mean(axis=1)
    share = float((np.abs(means) >= abs(found.mean())).mean())
    print(f"so many seeds dealt at random have a mean as far from 0 in {100 * share:.1f} %")


def _offsets(seeds: int) -> None:
    """Correlation of the offset's parts, and of its length, with the rank of the task's tier."""
    rank = np.array([ssi.TIERS.index(parse_task(task).tier) for task in tasks()], float)
    drawn = np.array([[StartJitter().offset(task, seed) for task in tasks()] for seed in range(seeds)])
    parts = {"x": drawn[..., 0], "y": drawn[..., 1], "yaw": drawn[..., 2], "length": np.hypot(*drawn[..., :2].T).T}
    for name, values in parts.items():
        print(f"{name}: correlation with the tier {np.corrcoef(np.tile(rank, seeds), values.reshape(-1))[0, 1]:+.4f}")
    print(f"by chance within ±{1.96 / np.sqrt(rank.size * seeds):.4f}")


def _coverage(cell: np.ndarray, tier: np.ndarray, values: np.ndarray) -> NDArray[np.float64]:
    """``values`` (seeds, 625, 7): the drives of a cell are alike but for the jitter, so any of them may be any task.

    (DEALS,) SSI of the deals.
    """
    rng, signs = np.random.default_rng(0), np.array(list(FEATURES.values()))
    cells = np.unique(cell)
    tau = np.empty((DEALS, len(cells)))  # of each cell, mean over the features
    for j, name in enumerate(cells):
        pool = (values[:, cell == name] * signs).reshape(-1, len(FEATURES))
        counts = [int(((cell == name) & (tier == t)).sum()) for t in ssi.TIERS]
        for k in range(DEALS):
            drawn = np.split(pool[rng.permutation(len(pool))[: sum(counts)]], np.cumsum(counts)[:-1])
            tau[k, j] = ssi.tier_tau(np.stack([part.mean(axis=0) for part in drawn], axis=-1)).mean()
    by_chance = tau.mean(axis=1)
    low, high = np.quantile(by_chance, [0.025, 0.975])
    print(f"by chance: std {by_chance.std():.3f}, 95 % of all seeds in [{low:+.3f}, {high:+.3f}]")
    for n in (5, 10, 20, len(cells)):
        tails = {"percentile": 0.025, "expanded": expanded_tail(n)}
        held = dict.fromkeys(tails, 0)
        for k in range(DEALS):
            chosen = tau[k, rng.permutation(len(cells))[:n]]
            replicates = draw_counts(n, RESAMPLES, 0) @ chosen / n
            for name, tail in tails.items():
                low, high = np.quantile(replicates, [tail, 1 - tail])
                held[name] += low <= 0 <= high
        print(f"{n} cells: " + ", ".join(f"{name} holds 0 in {100 * k / DEALS:.1f} %" for name, k in held.items()))
    return np.asarray(by_chance)


#: Effect of a tier on the tier means, in standard deviations of a task; its spread over cells; cells without it.
EFFECTS = {
    "no effect": (0.0, 0.0, 0.0),
    "small": (0.2, 0.0, 0.0),
    "unequal over cells": (0.5, 0.8, 0.0),
    "in half the cells": (1.0, 0.0, 0.5),
    "strong": (1.0, 0.0, 0.0),
}


def _drawn(draws: int = 1_500) -> None:
    """Coverage of five intervals where the truth is known: it is that of 400,000 cells."""
    rng = np.random.default_rng(1)
    for name, effect in EFFECTS.items():
        truth = _cells(rng, 400_000, *effect).mean()
        print(f"{name}: SSI {truth:+.3f}")
        held: dict[str, list[float]] = {}
        for n in (5, 10, 20, 35):
            inside = np.zeros(5)
            for _ in range(draws):
                found = _intervals(_cells(rng, n, *effect), draw_counts(n, RESAMPLES, 0))
                inside += [low - 1e-12 <= truth <= high + 1e-12 for low, high in found.values()]
            for method, count in zip(found, inside, strict=True):
                held.setdefault(method, []).append(100 * count / draws)
        for method, shares in held.items():
            print(f"  {method:<12} with 5, 10, 20, 35 cells " + ", ".join(f"{v:.1f} %" for v in shares), flush=True)


def _intervals(values: np.ndarray, counts: np.ndarray) -> dict[str, tuple[float, float]]:
    """Nominal 95 % intervals of the mean of ``values`` (n,); ``counts`` (R, n) as from `draw_counts`."""
    n, mean = len(values), values.mean()
    replicates = counts @ values / n
    error = values.std(ddof=1) / np.sqrt(n)
    quantile = partial(np.quantile, replicates)
    tail, t = expanded_tail(n), stats.t.ppf(0.975, n - 1)
    # BCa (Efron 1987): bias from the share below the mean, acceleration from the skewness of the jackknife
    below = np.clip((np.count_nonzero(replicates < mean) + 0.5 * np.count_nonzero(replicates == mean)) / len(counts),
                    1e-6, 1 - 1e-6)  # fmt: skip
    bias, centred = stats.norm.ppf(below), mean - values
    spread = (centred**2).sum() ** 1.5
    acceleration = (-(centred**3)).sum() / (6 * spread) if spread else 0.0
    z = bias + stats.norm.ppf([0.025, 0.975])
    # bootstrap t: the replicates by their own standard errors
    own = np.sqrt(np.maximum(counts @ values**2 / n - replicates**2, 0.0) / (n - 1))
    ratios = np.quantile((replicates - mean)[own > 0] / own[own > 0], [0.975, 0.025]) if (own > 0).any() else (0.0, 0.0)
    return {
        "expanded": tuple(quantile([tail, 1 - tail])),
        "percentile": tuple(quantile([0.025, 0.975])),
        "Student's t": (mean - t * error, mean + t * error),
        "BCa": tuple(quantile(stats.norm.cdf(bias + z / (1 - acceleration * z)))),
        "bootstrap t": (mean - ratios[0] * error, mean - ratios[1] * error),
    }


def _cells(rng: np.random.Generator, n: int, effect: float, spread: float, without: float) -> np.ndarray:
    """(n,) mean tau of random cells: six tasks a tier, 60 % of a feature's variance shared by all features."""
    shift = effect * np.exp(spread * rng.standard_normal(n)) * (rng.random(n) >= without)
    shared, own = rng.standard_normal((n, 1, 3)), rng.standard_normal((n, len(FEATURES), 3))
    means = (np.sqrt(0.6) * shared + np.sqrt(0.4) * own) / np.sqrt(6) + shift[:, None, None] * np.array([-1.0, 0, 1])
    return np.asarray(ssi.tier_tau(means).mean(axis=1))


if __name__ == "__main__":
    main()
