"""Precision, recall and lead time of forecasts, measured on recorded kitchen episodes.

    python -m bench.prediction [--episodes 60]

Drives a spread of the 625 tasks under the tier-blind and the cautious policy, then looks back at every frame's
forecast.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from osma_monitor.core.metrics.forecast import ForecastScore
from osma_monitor.io.configuration import monitor_config
from osma_monitor.report.forecast_tables import Forecasts
from sim_bridge import rollout
from sim_bridge.kitchen.tasks import tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=60, help="episodes per policy")
    parser.add_argument("--out", type=Path, default=Path("bench/results/prediction.json"))
    options = parser.parse_args()
    config = monitor_config()
    every = list(tasks())
    spread = [t for t in every[:: max(1, len(every) // options.episodes)]][: options.episodes]
    policies = [rollout.PolicySpec("shortest_path"), rollout.PolicySpec("cautious")]
    found = Forecasts(config)
    for record in rollout.run(rollout.jobs(spread, policies, [0]), rollout.Setup(monitor_config), workers=2):
        found.add(record)
    scores: dict[str, ForecastScore] = defaultdict(ForecastScore)
    for (_, clause), score in found.scores.items():
        scores[clause] += score
    print(f"{len(spread)} tasks x {len(policies)} policies, horizon {config.prediction_horizon:g} s")
    print(f"{'clause':34} {'violations':>10} {'warnings':>9} {'precision':>10} {'recall':>7} {'lead s':>7}")
    for clause, s in scores.items():
        if s.violations or s.warnings:
            print(
                f"{clause:34} {s.violations:10} {s.warnings:9} {s.precision:10.2f} {s.recall:7.2f} {s.median_lead:7.2f}"
            )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = {
        c: {
            "violations": s.violations,
            "warnings": s.warnings,
            "right": s.right,
            "foreseen": s.foreseen,
            "lead": s.lead,
        }
        for c, s in scores.items()
    }
    options.out.write_text(json.dumps({"tasks": len(spread), "clauses": rows}, indent=2))


if __name__ == "__main__":
    main()
