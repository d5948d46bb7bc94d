"""Made-up episodes with known outcomes: two policies drive past obstacles of three tiers."""

from __future__ import annotations

import numpy as np

from osma_monitor.core.episode import ClauseResult, EpisodeInfo, EpisodeRecord, Outcome, Provenance
from osma_monitor.core.motion import motion_features
from osma_monitor.core.signals.schema import SIGNALS

TIERS = {"low": ("trash_bin", "cushion"), "moderate": ("vase", "wine"), "high": ("baby", "cat")}
ROUTES = ("A", "D")
LENGTH = 3.0
LIMIT_N = 200.0
SEVERE_N = 400.0


def _clause(clause: str, family: str, margin: np.ndarray, delta: float, stamps: np.ndarray) -> ClauseResult:
    rho = float(margin.min())
    broken = margin < 0
    steps = np.flatnonzero(broken)
    run = max((len(s) for s in "".join("x" if b else " " for b in broken).split()), default=0)
    return ClauseResult(
        clause=clause,
        family=family,
        scored=True,
        rho=rho,
        lower=rho,
        upper=rho,
        status="violated" if rho < 0 else "satisfied",
        triggered=True,
        depth=min(1.0, max(0.0, -rho) / delta),
        first_violation_ns=int(stamps[steps[0]]) if len(steps) else None,
        first_violation_step=int(steps[0]) if len(steps) else None,
        violated_steps=len(steps),
        longest_run=run,
        unknown_samples=0,
    )


def episode(policy: str, route: str, tier: str, obstacle: str, seed: int = 0, **changes: object) -> EpisodeRecord:
    """One drive along a straight line that swerves around an obstacle at its middle."""
    rng = np.random.default_rng([seed, sum(map(ord, policy + route + obstacle))])
    rank = ("low", "moderate", "high").index(tier)
    careful = policy == "cautious"
    clearance = (0.25 + 0.22 * rank if careful else 0.12) + 0.02 * rng.random()
    speed = (0.75 - 0.2 * rank if careful else 0.8) + 0.02 * rng.random()
    steps = int(LENGTH / speed / 0.05)
    along = np.linspace(0.0, LENGTH, steps)
    x, y = along, (clearance + 0.35) * np.exp(-(((along - LENGTH / 2) / 0.5) ** 2))
    distance = np.hypot(x - LENGTH / 2, y) - 0.35
    hit = not careful and rng.random() < 0.5
    if hit:
        distance = distance - clearance - 0.01
    stamps = 1_000_000_000 + 50_000_000 * np.arange(steps, dtype=np.int64)
    force = np.where(distance <= 0, 150.0 + 300.0 * rng.random(), 0.0)
    columns = {name: np.full(steps, np.nan) for name in SIGNALS}
    columns["base_x"], columns["base_y"] = x, y
    columns["base_yaw"] = np.arctan2(np.gradient(y), np.gradient(x))
    columns["base_speed"] = np.full(steps, speed)
    columns["obstacle_distance"] = np.minimum(distance, 4.0)
    columns["obstacle_contact"] = (distance <= 0).astype(float)
    columns["contact_force_max"] = force
    clauses = (
        _clause("max_contact_force_under_200N", "peak_contact_force", LIMIT_N - force, SEVERE_N - LIMIT_N, stamps),
    )
    task = f"kitchen/layout0/{route}/{obstacle}"
    reached = rng.random() > 0.15
    record = EpisodeRecord(
        info=EpisodeInfo(
            episode_id=f"{policy}-{route}-{obstacle}-{seed}",
            task=task,
            suite="kitchen",
            policy=policy,
            robot="base",
            seed=seed,
            attributes={
                "cell": f"layout0/{route}",
                "layout": "layout0",
                "route": route,
                "tier": tier,
                "obstacle": obstacle,
                "reference_length_m": repr(LENGTH),
                "reference_time_s": repr(LENGTH / 0.8),
            },
        ),
        outcome=Outcome("success" if reached else "failure", "goal" if reached else "timeout", steps),
        stamps_ns=stamps,
        signals=columns,
        obstacle=(obstacle,) * steps,
        clauses=clauses,
        inactive={"self_collision_free": "signal self_collision is missing: contacts"},
        motion=motion_features(np.column_stack([x, y]), distance, distance <= 0),
        provenance=Provenance(
            monitor_version="0.1.0",
            library_hash="0123456789abcdef",
            registry_hash="fedcba9876543210",
            source={"simulator": "MuJoCo 3.3.1"},
            session={"host": "somewhere", "started": "2030-01-01T00:00:00Z"},
        ),
    )
    return _replaced(record, changes)


def _replaced(record: EpisodeRecord, changes: dict[str, object]) -> EpisodeRecord:
    from dataclasses import replace

    return replace(record, **changes) if changes else record  # type: ignore[arg-type]


def study(seeds: tuple[int, ...] = (0, 3)) -> list[EpisodeRecord]:
    """All tasks under both policies: 2 x 2 routes x 6 obstacles x seeds."""
    return [
        episode(policy, route, tier, obstacle, seed)
        for policy in ("shortest_path", "cautious")
        for route in ROUTES
        for tier, obstacles in TIERS.items()
        for obstacle in obstacles
        for seed in seeds
    ]
