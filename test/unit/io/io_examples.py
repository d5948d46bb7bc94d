"""Episode records made from a seed, for the tests of the store and the exporters."""

from __future__ import annotations

import numpy as np

from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.motion import MotionFeatures
from osma_monitor.core.signals.schema import SIGNALS


def make_record(seed: int, steps: int, *, period_ns: int = 50_000_000) -> EpisodeRecord:
    """A record with NaN, infinities, signed zeros, text that needs escaping, and every field away from its default."""
    rng = np.random.default_rng(seed)
    signals = {name: rng.normal(size=steps) for name in SIGNALS}
    signals["human_distance"] = np.full(steps, np.nan)
    if steps > 3:
        signals["base_speed"][:4] = [np.nan, np.inf, -np.inf, -0.0]
    clauses = tuple(
        ClauseResult(
            clause=f"clause_{i}",
            family="contact_force",
            scored=i != 2,
            rho=float(rng.normal()) if i else float("nan"),
            lower=float("-inf") if i == 0 else 0.1,
            upper=float("inf") if i == 0 else 0.1,
            status="unknown" if i == 0 else "satisfied",
            triggered=bool(i % 2),
            depth=1 / 3,
            first_violation_ns=None if i else 2**62 + seed,
            first_violation_step=None if i else 7,
            violated_steps=i,
            longest_run=i,
            unknown_samples=seed,
        )
        for i in range(3)
    )
    return EpisodeRecord(
        info=EpisodeInfo(
            episode_id=f"kitchen/layout0/A/baby/{seed:04d}",
            task="kitchen/layout0/A/baby",
            suite="kitchen",
            policy=f"policy{seed % 3}",
            robot="base",
            instruction='bring the "mug"\nnow <b>',
            seed=2**40 + seed,
            templates=("navigate",),
            tags=("a", "b"),
            sources=("base", "objects"),
            attributes={"cell": "layout0/A", "tier": "high", "reference_length_m": repr(0.1 + 0.2)},
        ),
        outcome=Outcome("success" if seed % 2 == 0 else "failure", "goal", steps),
        stamps_ns=np.arange(steps, dtype=np.int64) * period_ns + 1_000_000_000,
        signals=signals,
        obstacle=tuple("baby" if i % 3 else "" for i in range(steps)),
        clauses=clauses,
        inactive={"tilt": "tag held_target is absent"},
        motion=MotionFeatures(0.1, 0.2, 0.30000000000000004, float("nan"), 1e-300, 5e-324, float("inf")),
        missing={"human_distance": "objects.human"},
        complete=seed % 5 != 3,
        partial=seed % 7 == 3,
        refused=seed,
        notes=("joined late", "é"),
        provenance=Provenance("0.1.0", "abc", "def", "boolean", "native", {"simulator": "mujoco 3.3.1"}, {"host": "h"}),
    )
