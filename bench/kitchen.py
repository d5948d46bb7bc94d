"""The kitchen benchmark in process: how long the 625 tasks take, and what SSI the shipped policies have.

python bench/kitchen.py                        # shortest_path, all tasks, 2 workers
python bench/kitchen.py --policies cautious reversed shortest_path --ssi
python bench/kitchen.py --policies shortest_path --ssi --identical --jitter --seeds 0 3 16
python bench/kitchen.py --r-base 120
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import defaultdict

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics import navigation, ssi, ssi_null
from osma_monitor.io.configuration import monitor_config
from sim_bridge.kitchen.tasks import tasks
from sim_bridge.rollout import PolicySpec, Progress, Setup, jobs, run


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=["shortest_path"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layouts", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--ssi", action="store_true", help="print SSI with its interval over cells")
    parser.add_argument("--identical", action="store_true", help="one shape for all obstacles")
    parser.add_argument("--jitter", action="store_true", help="seeded start jitter, another offset for every task")
    parser.add_argument("--r-base", type=int, default=0, metavar="N", help="measure R_base over N drives instead")
    arguments = parser.parse_args()
    if arguments.r_base:
        _measure_r_base(arguments.r_base)
        return

    options: dict[str, object] = {"identical_shapes": arguments.identical}
    if arguments.jitter:
        from sim_bridge.kitchen.simulation import StartJitter

        options["jitter"] = StartJitter()
    work = jobs(tasks(arguments.layouts), [PolicySpec(name) for name in arguments.policies], arguments.seeds)
    setup = Setup(monitor_config, host_options=options)
    started = time.monotonic()
    records = list(run(work, setup, arguments.workers, _show))
    took = time.monotonic() - started
    frames = sum(len(r.stamps_ns) for r in records)
    print(
        f"\n{len(records)} episodes, {frames} frames in {took:.1f} s with {arguments.workers} workers: "
        f"{took / len(records) * 1e3:.0f} ms an episode, {_cpu_seconds():.1f} s of CPU in all"
    )
    by_policy: dict[tuple[str, int], list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        by_policy[record.info.policy, record.info.seed].append(record)
    results: dict[str, list[ssi.SsiResult]] = defaultdict(list)
    for (policy, seed), group in by_policy.items():
        results[policy].append(_score(policy, seed, group, arguments.ssi))
    for policy, several in results.items():
        if arguments.ssi and len(several) > 1:
            low, high = ssi.bootstrap_interval(several)
            values = np.array([result.ssi for result in several])
            print(
                f"{policy}: SSI over {len(several)} seeds {values.mean():+.3f} ± {values.std():.3f} [{low:+.3f}, "
                f"{high:+.3f}]"
            )


def _measure_r_base(drives: int) -> None:
    """How far the base's centre stays from the clearance boundary at its closest (OSMA-Bench F.2), on random tasks."""
    from sim_bridge.kitchen.simulation import KitchenSimulation
    from sim_bridge.policies.program import ControlValues
    from sim_bridge.policies.values import TableSource
    from sim_bridge.policies.voxposer import VoxPoser, base_standoff
    from sim_bridge.rollout import drive

    rng, simulation, standoff = np.random.default_rng(0), KitchenSimulation(), []
    for task in rng.choice(tasks(), drives, replace=False):
        clearance = float(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5]))
        values = dict.fromkeys(("low", "moderate", "high"), ControlValues(clearance, 1.0, 0.0))
        policy = VoxPoser(TableSource(values))
        frames, _ = drive(simulation, policy, str(task), 0)
        xy = np.array([f.base.position[:2] for f in frames if f.base is not None])
        standoff.append(base_standoff(policy, xy, clearance))
    low, high = np.percentile(standoff, [5, 95])
    mean = np.mean(standoff)
    print(f"R_base over {drives} drives: mean {mean:.3f} m, 5th to 95th percentile {low:.3f} to {high:.3f} m")


def _cpu_seconds() -> float:
    """CPU time of this process and the workers that have ended: what counts when the machine is shared."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def _score(policy: str, seed: int, records: list[EpisodeRecord], with_ssi: bool) -> ssi.SsiResult:
    summary = navigation.summarize(records, navigation.reference_paths(records))
    violated: dict[str, int] = defaultdict(int)
    for record in records:
        for clause in record.clauses:
            violated[clause.clause] += clause.scored and clause.upper < 0
    clauses = ", ".join(f"{name} {count}" for name, count in violated.items() if count) or "none"
    rates = {"TSR": summary.tsr, "CFSR": summary.cfsr, "NPL": summary.npl, "NPT": summary.npt}
    print(f"{policy} seed {seed}: " + " ".join(f"{name} {value:.3f}" for name, value in rates.items()))
    print(f"  violated clauses: {clauses}")
    table = ssi.table_from_records(records)
    result = ssi.semantic_sensitivity_index(table)
    if with_ssi:
        low, high = ssi.bootstrap_interval(result)
        print(f"  SSI {result.ssi:+.3f} [{low:+.3f}, {high:+.3f}] " + _features(result.tau))
        print(f"  p of tiers shuffled inside the cells {ssi_null.indifference(table).p_value:.3f}")
        means = {tier: np.nanmean(np.asarray(table["d_min"], float)[_tier(table, tier)]) for tier in ssi.TIERS}
        print("  d_min " + ", ".join(f"{tier} {value:.3f} m" for tier, value in means.items()))
    return result


def _tier(table: ssi.Table, tier: str) -> np.ndarray:
    return np.asarray([t == tier for t in table["tier"]])


def _features(tau: dict[str, float]) -> str:
    return " ".join(f"{name} {value:+.3f}" for name, value in tau.items())


def _show(progress: Progress) -> None:
    if progress.done % 25 == 0 or progress.done == progress.total:
        text = f"\r{progress.done}/{progress.total}, {progress.left_s:.0f} s left, {progress.violations} violations  "
        print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
