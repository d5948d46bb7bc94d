"""Scoring of 22,500 episodes of 500 steps from one compacted data set: every table, bootstrap included.

Run: ``python bench/scoring.py [DATA_SET]``. Without a data set a synthetic one is made first (a minute and about 2 GB
in the temporary folder, removed at the end); ``--episodes N`` makes a smaller one. Aim: under 20 s on two cores and
2 GB; from the per-clause results alone, without bootstrap, under 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.cli.episodes import workers
from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.metrics import clauses, outcomes, safety
from osma_monitor.core.metrics.batch import SignalColumns, evaluate_clauses
from osma_monitor.core.metrics.scores import ScoreTable
from osma_monitor.core.metrics.stored import table_from_rows
from osma_monitor.core.metrics.structural import structural_indices
from osma_monitor.core.motion import MotionFeatures
from osma_monitor.core.safety import Library
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io import dataset
from osma_monitor.io.configuration import clause_library
from osma_monitor.io.scoring import DatasetScores
from osma_monitor.report.build import build
from osma_monitor.report.stored import collect_stored
from osma_monitor.report.table import render

STEPS = 500
SUITES, POLICIES, TASKS = 5, 27, 12
#: Standard deviations of the synthetic signals, so that some clauses break in some episodes.
SCALE = {
    "arm_furniture_contact_force": 48.0,
    "contact_force_max": 50.0,
    "target_furniture_contact_force": 47.0,
    "non_target_disp_max": 0.0012,
    "target_obj_tilt_world_deg": 3.8,
    "obj_above_table": 0.006,
    "max_joint_torque": 15.0,
    "robot_contact_force": 20.0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_set", nargs="?", type=Path)
    parser.add_argument("--episodes", type=int, default=22_500)
    parser.add_argument("--workers", type=int, default=0, help="threads; 0: one a core")
    given = parser.parse_args()
    library = clause_library()
    if given.data_set is not None:
        figures: dict[str, Any] | None = measure(given.data_set, library, given.workers)
    else:
        folder = Path(tempfile.mkdtemp(prefix="osma-scoring-"))
        try:
            make(folder / "data", given.episodes, library)
            figures = in_a_process_of_its_own(folder / "data", given.workers)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    target = os.environ.get("OSMA_BENCH_RESULT")
    if target and figures is not None:
        Path(target).write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if figures is not None else 1


def in_a_process_of_its_own(path: Path, threads: int) -> dict[str, Any] | None:
    """Measure apart from what made the data, so that the peak of memory is that of scoring."""
    import subprocess

    result = path.parent / "figures.json"
    environment = {**os.environ, "OSMA_BENCH_RESULT": str(result)}
    done = subprocess.run(
        [sys.executable, __file__, str(path), "--workers", str(threads)], env=environment, check=False
    )
    figures: dict[str, Any] | None = json.loads(result.read_text()) if done.returncode == 0 else None
    return figures


# ---- the data set


def make(out: Path, episodes: int, library: Library) -> None:
    """A data set as `osma compact` writes it."""
    for kind in ("episodes", "clauses", "steps"):
        (out / kind).mkdir(parents=True)
    part: Any = None
    number = rows = 0
    for index, record in enumerate(records(episodes, library)):
        part = part or dataset._Part(out, number, SIGNALS)
        part.add(index, rows, record, f"e{index}")
        rows += len(record.stamps_ns)
        if part.rows >= dataset.FILE_ROWS:
            part.close()
            part, number = None, number + 1
        if index % 2500 == 2499:
            print(f"made {index + 1} of {episodes} episodes", flush=True)
    if part is not None:
        part.close()
    facts = {"format": dataset.FORMAT, "episodes": episodes, "steps": rows, "signals": list(SIGNALS)}
    (out / dataset.INDEX_FILE).write_text(json.dumps(facts))


def records(episodes: int, library: Library) -> Iterator[EpisodeRecord]:
    """Synthetic episodes of 27 policies on 5 suites with 12 tasks each."""
    main_clauses = [c for c in library if c.tier == "main"]
    names = sorted({s for c in main_clauses for s in c.signals} | {"robot_contact_force"})
    stamps = np.arange(1, STEPS + 1, dtype=np.int64) * 50_000_000
    unknown = np.full(STEPS, np.nan)
    provenance = Provenance(library_hash=library.hash)
    block = 250
    for start in range(0, episodes, block):
        count = min(block, episodes - start)
        rng = np.random.default_rng(start)
        signals = {}
        for name in names:
            if name in ("gripper_contact", "transport"):
                signals[name] = (rng.random(count * STEPS) < 0.4).astype(float)
            elif name == "self_collision":
                signals[name] = (rng.random(count * STEPS) < 5e-5).astype(float)
            else:
                signals[name] = rng.standard_normal(count * STEPS) * SCALE[name]
        columns = SignalColumns(np.tile(stamps, count), signals, np.arange(count + 1, dtype=np.int64) * STEPS)
        found = evaluate_clauses(main_clauses, columns)
        for e in range(count):
            index = start + e
            suite, rest = index % SUITES, index // SUITES
            # the held-object clauses apply in two suites of five
            applies = [c for c, k in enumerate(main_clauses) if suite < 2 or k.axis != "object_handling"]
            results = tuple(_result(found, main_clauses[c], e, c) for c in applies)
            yield EpisodeRecord(
                EpisodeInfo(
                    f"e{index}",
                    task=f"t{rest // POLICIES % TASKS}",
                    suite=f"s{suite}",
                    policy=f"p{rest % POLICIES}",
                    seed=rest // (POLICIES * TASKS),
                ),
                Outcome("success" if rng.random() < 0.7 else "failure", steps=STEPS),
                stamps,
                {n: signals[n][e * STEPS : (e + 1) * STEPS] if n in signals else unknown for n in SIGNALS},
                ("",) * STEPS,
                results,
                {},
                MotionFeatures(),
                provenance=provenance,
            )


def _result(found: Any, clause: Any, e: int, c: int) -> ClauseResult:
    upper, first = float(found.upper[e, c]), int(found.first_violation_step[e, c])
    return ClauseResult(
        clause=clause.id,
        family=clause.family,
        scored=True,
        rho=float(found.rho[e, c]),
        lower=float(found.lower[e, c]),
        upper=upper,
        status="violated" if upper < 0 else "satisfied",
        triggered=bool(found.triggered[e, c]),
        depth=clause.depth(upper),
        first_violation_ns=(first + 1) * 50_000_000 if first >= 0 else None,
        first_violation_step=first if first >= 0 else None,
        violated_steps=int(found.violated_steps[e, c]),
        longest_run=int(found.longest_run[e, c]),
        unknown_samples=0,
    )


# ---- the measurement


def measure(path: Path, library: Library, threads: int = 0) -> dict[str, Any]:
    seconds: dict[str, float] = {}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        start, busy = time.perf_counter(), time.process_time()
        value = action()
        seconds[name] = time.perf_counter() - start
        print(f"{name:<54} {seconds[name]:7.2f} s, processor {time.process_time() - busy:7.2f} s", flush=True)
        return value

    begin, busy = time.perf_counter(), time.process_time()
    episodes, steps = every_table(path, library, threads, timed)
    total, processor = time.perf_counter() - begin, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{episodes} episodes, {steps} steps: {total:.1f} s in all, peak memory {peak:.2f} GB")
    print(f"processor time of both cores: {processor:.1f} s")

    stored = timed("read per-clause results", lambda: read_scores(path))
    table = timed("scores from them", lambda: table_from_rows(*stored))
    timed("every metric without bootstrap", lambda: metrics(table))
    results_only = sum(seconds[name] for name in ("scores from them", "every metric without bootstrap"))
    print(f"from per-clause results, without bootstrap: {results_only:.2f} s")
    main_clauses = [c for c in library if c.id in table.clauses]
    needed = {s for c in main_clauses for s in c.signals}
    columns = timed("read the signals of every clause", lambda: dataset.read_columns(path, sorted(needed)))
    timed("evaluate every clause again", lambda: evaluate_clauses(main_clauses, columns))
    return {
        "episodes": episodes,
        "total_s": total,
        "processor_s": processor,
        "results_only_s": results_only,
        "peak_gb": peak,
        "seconds": seconds,
    }


def every_table(
    path: Path, library: Library, threads: int, timed: Callable[[str, Callable[[], Any]], Any]
) -> tuple[int, int]:
    """What `osma score --all` does with a data set; how many episodes and steps that were."""
    with workers(threads) as each:
        collected = timed(
            "scores from the columns, again under other thresholds",
            lambda: collect_stored(DatasetScores(path, each=each), [library], each),
        )
        report = timed("every table of `osma score --all`", lambda: build(collected, each=each))
    timed("their text", lambda: [render(table, "text", None) for table in report.tables])
    return len(collected.scores), int(collected.scores.steps.sum())


def read_scores(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted = {
        "episodes": "episode_id suite policy task seed outcome rows complete partial library_hash gate_semantics",
        "clauses": "episode clause scored rho lower upper depth first_violation_step violated_steps longest_run",
    }
    return tuple(  # type: ignore[return-value]
        {
            name: table[name].to_numpy(zero_copy_only=False)
            for table in [dataset.read_table(path, kind, names.split())]
            for name in table.column_names
        }
        for kind, names in wanted.items()
    )


def metrics(table: ScoreTable) -> None:
    for keys in (("suite", "policy"), ("suite", "policy", "task")):
        safety.by_group(table, keys, bootstrap=False)
    clauses.clauses_by_group(table, ("suite", "policy"))
    outcomes.outcome_composition(table)
    outcomes.contingency(table)
    outcomes.contact_summary(table)
    outcomes.depth_mix(table)
    structural_indices(table)


if __name__ == "__main__":
    sys.exit(main())
