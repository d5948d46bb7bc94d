"""A synthetic data set of episodes for the tests of the safety metrics."""

from __future__ import annotations

import math

import numpy as np

from osma_monitor.core.metrics.scores import EpisodeScore

CLAUSES = ("force", "disp", "tilt", "self")


def synthetic(n: int = 500, seed: int = 0) -> list[EpisodeScore]:
    """Episodes of 3 policies on 2 suites x 5 tasks; some clauses and outcomes unknown, some aborted or incomplete."""
    rng = np.random.default_rng(seed)
    scores = []
    for e in range(n):
        suite, task = f"s{e % 2}", f"t{e // 2 % 5}"
        policy = f"p{rng.integers(3)}"
        rho, depth, unknown, steps, runs, first = {}, {}, {}, {}, {}, {}
        for c, clause in enumerate(CLAUSES):
            if clause == "tilt" and suite == "s0":
                continue
            draw = rng.random()
            if draw < 0.04:
                rho[clause], depth[clause], unknown[clause] = math.nan, 0.0, True
                continue
            value = float(rng.normal(1.2 - 0.2 * c, 1.0))
            rho[clause] = math.inf if draw > 0.95 and value > 0 else value
            depth[clause] = min(1.0, max(0.0, -value)) if clause != "self" else float(value < 0)
            unknown[clause] = False
            if value < 0:
                steps[clause] = int(rng.integers(1, 100))
                runs[clause] = int(rng.integers(1, steps[clause] + 1))
                first[clause] = int(rng.integers(0, 100))
        success = None if rng.random() < 0.03 else bool(rng.random() < 0.6)
        scores.append(
            EpisodeScore(
                success,
                rho,
                depth,
                unknown,
                episode_id=f"e{e}",
                suite=suite,
                policy=policy,
                task=task,
                seed=int(e // 10),
                attributes={"cell": f"c{e % 3}"},
                steps=100,
                violated_steps=steps,
                longest_run=runs,
                first_violation_step=first,
                reported={"speed": math.nan if rng.random() < 0.1 else float(rng.normal())} if suite == "s1" else {},
                contact=[True, False, None][int(rng.choice(3, p=[0.7, 0.25, 0.05]))],
                aborted=bool(rng.random() < 0.02),
                partial=bool(rng.random() < 0.05),
                complete=bool(rng.random() > 0.01),
                library_hash="abc",
                gate_semantics="boolean",
            )
        )
    return scores
