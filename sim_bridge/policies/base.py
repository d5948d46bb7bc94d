"""The Policy protocol: a policy sees what a policy process over ROS sees, the episode's info and the frames."""

from __future__ import annotations

from typing import Protocol

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.simulation import Action


class Policy(Protocol):
    """Drives a robot. Its answers depend on ``info`` and the frames alone: they are equal in process and over ROS.

    A class with ``seeded = True`` draws from ``info.seed``: its episodes differ by seed even from one start.
    """

    @property
    def name(self) -> str:
        """Name in tables and records."""
        ...

    def reset(self, info: EpisodeInfo) -> None:
        """A new episode starts; everything that the policy may know before its first frame."""
        ...

    def act(self, frame: RawFrame) -> Action:
        """The command for the next control step."""
        ...
