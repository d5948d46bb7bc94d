"""The Simulation protocol: one interface for the kitchen, other benchmarks, and whatever drives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.signals.raw import RawFrame

#: Stamp of the first frame of a simulation instance. A zero stamp is always a fault, so the clock starts at 1 s.
FIRST_STAMP_NS = 1_000_000_000

#: Codes of primitives, as in msg/ObjectShapes.msg.
BOX, SPHERE, CYLINDER, CAPSULE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy asks for during one control step.

    ``vx``, ``vy`` in m/s and ``yaw_rate`` in rad/s are the base velocity in the base frame (REP-105). ``joints`` are
    joint targets in the order of the simulation's joints (rad or m, or the host's own action vector); empty: hold.
    """

    vx: float = 0.0
    vy: float = 0.0
    yaw_rate: float = 0.0
    joints: tuple[float, ...] = ()


STOP = Action()


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Collision shapes of the objects as primitives in their object's frame; element i of a column is primitive i."""

    id: tuple[str, ...] = ()
    primitive: tuple[int, ...] = ()  #: BOX, SPHERE, CYLINDER or CAPSULE
    dimensions: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))  #: m; see msg/ObjectShapes.msg
    position: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))  #: m
    orientation: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4)))  #: x y z w


class Simulation(Protocol):
    """A host of episodes.

    A host may also have ``findings() -> Mapping[str, str]``: see :func:`findings_of`.

    The clock starts at 1 s and never goes back: ``reset`` continues one control period after the last stamp. Stamps
    therefore depend on what the same instance ran before; two runs have equal stamps when they run the same episodes in
    the same order from a fresh instance, or when :meth:`restart_clock` is called at the same places.
    """

    @property
    def control_period_ns(self) -> int:
        """Time between frames in nanoseconds."""
        ...

    def reset(self, task: str, seed: int) -> RawFrame:
        """Start the episode of this task id and return its first frame. UserError when the id names no task."""
        ...

    def step(self, action: Action) -> RawFrame:
        """Apply the action for one control period and return the frame at its end."""
        ...

    def outcome(self) -> Outcome | None:
        """None while the episode runs, then how it ended."""
        ...

    def info(self) -> EpisodeInfo:
        """What the running episode is; policy and episode id are filled in by whoever pairs it with a policy."""
        ...

    def shapes(self) -> Shapes:
        """Collision shapes of the tracked objects of the running episode."""
        ...

    def provenance(self) -> Mapping[str, str]:
        """Simulator, its version and model, for :class:`osma_monitor.core.episode.Provenance`."""
        ...

    def restart_clock(self) -> None:
        """Let the next ``reset`` stamp its first frame with 1 s again (a fresh run on the same instance)."""
        ...

    def close(self) -> None:
        """Free what the simulation holds."""
        ...


def episode_info(info: EpisodeInfo, policy: str, instruction: str | None = None) -> EpisodeInfo:
    """``info`` of a simulation paired with a policy: names the policy, sets the episode id and any instruction.

    The id is a pure function of policy, task and seed, so that an in-process run and a run over ROS agree on it.
    """
    slug = info.task.replace("/", ".")
    return replace(
        info,
        episode_id=f"{policy}.{slug}.s{info.seed}",
        policy=policy,
        instruction=info.instruction if instruction is None else instruction,
    )


def findings_of(simulation: Simulation) -> Mapping[str, str]:
    """Attributes of the running episode that are known only at its end, such as which object the robot chose."""
    said: Mapping[str, str] = getattr(simulation, "findings", dict)()
    return said
