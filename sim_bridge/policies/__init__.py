"""Policies: the Policy protocol and the ones that come with the package, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from osma_monitor.core.errors import UserError
from sim_bridge.options import checked
from sim_bridge.policies.base import Policy
from sim_bridge.policies.learned import LearnedPolicy
from sim_bridge.policies.navigation import (
    Hold,
    RandomJoints,
    RandomWalk,
    ReversedTierTable,
    ShortestPath,
    TierTable,
)
from sim_bridge.policies.pivot import Pivot
from sim_bridge.policies.selection import NoisyShortestPath, RolloutSelection
from sim_bridge.policies.voxposer import VoxPoser

#: Policies by name. Those with a model behind them take its options; without any they fall back to a table or scorer.
POLICIES: Mapping[str, Callable[..., Policy]] = {
    "shortest_path": ShortestPath,
    "cautious": TierTable,
    "reversed": ReversedTierTable,
    "random_walk": RandomWalk,
    "random_joints": RandomJoints,
    "hold": Hold,
    "noisy_shortest_path": NoisyShortestPath,
    "voxposer": VoxPoser,
    "pivot": Pivot,
    "rollout_selection": RolloutSelection,
    "learned": LearnedPolicy,
}


def make_policy(name: str, **options: Any) -> Policy:
    """A policy by name; ``options`` go to its constructor (see sim_bridge.options).

    Raises:
        UserError: no such policy, with the names; an option that it does not take, needs, or takes otherwise.
    """
    if name not in POLICIES:
        raise UserError(f"policy {name!r} does not exist; {nearest(name)}")
    return POLICIES[name](**checked(f"the policy {name}", POLICIES[name], options))


def nearest(name: str) -> str:
    """What to say to a name that no policy has: the one that comes near, and all of them."""
    near = difflib.get_close_matches(name, POLICIES, 1)
    return (f"did you mean {near[0]}? " if near else "") + f"choose one of {', '.join(POLICIES)}"


__all__ = ["POLICIES", "Policy", "make_policy", "nearest"]
