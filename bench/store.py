"""Scanning a compacted data set beside pyarrow's bare scan of the same columns, and the cost of partitions.

    python -m bench.store [--quick] [--partitions]

Both sides are taken in turns, round after round, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.motion import MotionFeatures
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import dataset, store
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.partitions import partitions, score_on_cluster, score_partition

STEPS = 500
SCANNED = (
    "arm_furniture_contact_force",
    "target_furniture_contact_force",
    "contact_force_max",
    "non_target_disp_max",
    "target_obj_tilt_world_deg",
    "obj_above_table",
    "gripper_contact",
    "transport",
    "max_joint_torque",
    "self_collision",
)


def make_record(number: int, steps: int = STEPS) -> EpisodeRecord:
    rng = np.random.default_rng(number)
    signals = {name: rng.normal(size=steps) for name in SIGNALS}
    stamps = np.arange(1, steps + 1, dtype=np.int64) * 50_000_000
    info = EpisodeInfo(f"episode/{number}", task="t", policy=f"p{number % 3}")
    return EpisodeRecord(info, Outcome("success"), stamps, signals, ("vase",) * steps, (), {}, MotionFeatures())


def make_dataset(folder: Path, episodes: int) -> Path:
    """A compacted data set of ``episodes``: one stored episode under many ids, since only its size matters here."""
    part: dataset._Part | None = None
    base = [make_record(i) for i in range(8)]
    for kind in ("episodes", "clauses", "steps"):
        (folder / kind).mkdir(parents=True)
    row = number = 0
    for e in range(episodes):
        if part is None:
            part = dataset._Part(folder, number, SIGNALS)
        record = base[e % len(base)]
        record = replace(record, info=replace(record.info, episode_id=f"episode/{e}"))
        part.add(e, row, record, f"e{e}")
        row += STEPS
        if part.rows >= dataset.FILE_ROWS:
            part.close()
            part, number = None, number + 1
    if part is not None:
        part.close()
    index = {"format": 1, "episodes": episodes, "steps": row, "signals": list(SIGNALS)}
    (folder / dataset.INDEX_FILE).write_text(json.dumps(index))
    return folder


def scan(path: Path) -> float:
    """Seconds until the arrays of the ten clauses' signals are there."""
    start = time.perf_counter()
    dataset.read_columns(path, SCANNED)
    return time.perf_counter() - start


def bare(path: Path) -> float:
    """Seconds of pyarrow's own scan of the same columns."""
    start = time.perf_counter()
    ds.dataset(path / "steps", format="parquet").to_table(columns=["stamp_ns", *SCANNED])
    return time.perf_counter() - start


def writing(folder: Path, episodes: int) -> dict[str, float]:
    """The running log of an episode, and its end."""
    record = make_record(0)
    rows = np.column_stack([record.signals[name] for name in SIGNALS])
    start = time.perf_counter()
    for _ in range(episodes):
        with store.EpisodeWriter(folder, record.info) as writer:
            for stamp, row in zip(record.stamps_ns.tolist(), rows, strict=True):
                writer.append(stamp, row, "vase")
            writer.finish(record)
    seconds = (time.perf_counter() - start) / episodes
    return {"ms_per_episode": 1e3 * seconds, "us_per_step": 1e6 * seconds / STEPS}


def partition_costs(folder: Path, counts: list[int], address: str | None) -> dict[str, float]:
    """Seconds a partition, one small episode each: what the partitioning itself costs."""
    config = monitor_config()
    run = folder / "run"
    first = store.write_record(run, make_record(0, 20))
    for number in range(1, max(counts)):  # copies: writing each anew would measure the disk's fsync
        shutil.copyfile(first, run / f"{number:06d}.parquet")
    costs = {}
    for count in counts:
        files = [run / f for f in sorted(os.listdir(run))[:count]]
        start = time.perf_counter()
        if address is None:
            records = sum(len(score_partition(p, config).records) for p in partitions(files))
        else:
            records = sum(1 for _ in score_on_cluster(files, config, address))
        assert records == count
        costs[str(count)] = (time.perf_counter() - start) / count
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the episodes, fewer rounds")
    parser.add_argument(
        "--partitions", action="store_true", help="also the cost of partitions, here and on two workers"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OSMA_BENCH_RESULT", "bench/results/store.json"))
    )
    options = parser.parse_args()
    episodes, rounds = (2_250, 2) if options.quick else (22_500, 5)
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = make_dataset(Path(scratch) / "set", episodes)
        size = episodes * STEPS * 8 * (len(SCANNED) + 1)
        pairs = [(bare(path), scan(path)) for _ in range(rounds)]
        alone, ours = (min(p[k] for p in pairs) for k in range(2))
        results["scan"] = {"bytes": size, "pyarrow_s": alone, "osma_s": ours, "GB_per_s": size / ours / 1e9}
        print(f"{episodes} episodes of {STEPS} steps, {size / 1e9:.2f} GB of signals")
        print(f"  pyarrow's bare scan {alone:.3f} s, read_columns {ours:.3f} s: {ours / alone:.2f} times,")
        print(f"  {size / ours / 1e9:.2f} GB/s (wanted: over 1 GB/s, or within 1.5 times)")
        results["writing"] = writing(Path(scratch) / "log", 20)
        print(f"  logging an episode: {results['writing']}")
        if options.partitions:
            counts = [1, 10, 100, 1000] if options.quick else [1, 10, 100, 1000, 10_000]
            results["partitions_here"] = partition_costs(Path(scratch) / "here", counts, None)
            from distributed import LocalCluster

            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
                address = cluster.scheduler_address
                results["partitions_on_two_workers"] = partition_costs(Path(scratch) / "there", counts, address)
            for name in ("partitions_here", "partitions_on_two_workers"):
                print(f"  {name}: seconds a partition {results[name]}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"load": os.getloadavg()[0], **results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
