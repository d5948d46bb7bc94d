"""tasks x policies x seeds in process."""

from __future__ import annotations

from osma_monitor.core.episode import Outcome
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.policies.base import Policy
from sim_bridge.simulation import Simulation, episode_info


def drive(simulation: Simulation, policy: Policy, task: str, seed: int) -> tuple[list[RawFrame], Outcome]:
    """One episode without monitor: its frames and how it ended."""
    frames = [simulation.reset(task, seed)]
    policy.reset(episode_info(simulation.info(), policy.name))
    while (outcome := simulation.outcome()) is None:
        frames.append(simulation.step(policy.act(frames[-1])))
    return frames, outcome
