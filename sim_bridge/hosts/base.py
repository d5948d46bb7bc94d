"""What hosts on MuJoCo share: the clock, frames from MujocoSensors, the end of an episode."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import Base, RawFrame
from sim_bridge.mujoco_sim import MujocoSensors, check_version
from sim_bridge.simulation import FIRST_STAMP_NS, Action, Shapes
from sim_bridge.target_selection import ReachTracker


def record_substeps(sim: Any, record: Callable[[], None]) -> None:
    """Call ``record`` after every physics step of a robosuite ``MjSim``, whichever way its environment steps it."""
    for name in ("step", "step2"):
        original = getattr(type(sim), name, None)
        if original is not None:
            setattr(sim, name, _then(original.__get__(sim), record))


def _then(step: Callable[..., None], record: Callable[[], None]) -> Callable[..., None]:
    def recorded(*arguments: Any, **options: Any) -> None:
        step(*arguments, **options)
        record()

    return recorded


class MujocoHost(ABC):
    """A Simulation over somebody else's MuJoCo environment.

    A subclass starts and advances its environment and calls ``self._sensors.record(data)`` after every physics substep.
    """

    suite = ""
    robot = ""
    sources: tuple[str, ...] = ("joints", "ee", "gripper", "contacts", "objects")

    def __init__(self, control_period_ns: int, max_steps: int | None) -> None:
        if max_steps is not None and max_steps < 1:
            raise UserError(f"max_steps is {max_steps}; expected at least 1, or null for no limit")
        self._period_ns = control_period_ns
        self._max_steps = max_steps
        self._version = check_version()
        self._next_stamp = FIRST_STAMP_NS
        self._task = ""
        self._seed = self._steps = 0
        self._outcome: Outcome | None = None
        self._sensors: MujocoSensors
        self._data: Any = None
        self._selection: ReachTracker | None = None

    @property
    def control_period_ns(self) -> int:
        """See Simulation."""
        return self._period_ns

    @abstractmethod
    def tasks(self) -> Sequence[str]:
        """Task ids of the host."""

    @abstractmethod
    def _start(self, task: str, seed: int) -> None:
        """Begin an episode: set ``_data`` and ``_sensors`` (new for a new model), record its contacts."""

    @abstractmethod
    def _advance(self, action: Action) -> None:
        """Move on by one control period, recording every substep."""

    @abstractmethod
    def _judge(self) -> Outcome | None:
        """Whether the episode is over, step limit aside."""

    @abstractmethod
    def _describe(self) -> EpisodeInfo:
        """Task, instruction, templates, tags and attributes of the running episode."""

    def _base(self) -> Base | None:
        return None

    def reset(self, task: str, seed: int) -> RawFrame:
        """See Simulation."""
        if task not in self.tasks():
            near = difflib.get_close_matches(task, self.tasks(), 3) or list(self.tasks())[:3]
            raise UserError(f"{task!r} is no task of {self.suite}; did you mean {' or '.join(near)}?")
        self._task, self._seed, self._steps, self._outcome, self._selection = task, seed, 0, None, None
        self._start(task, seed)
        return self._frame()

    def step(self, action: Action) -> RawFrame:
        """See Simulation."""
        self._require_episode()
        self._advance(action)
        self._steps += 1
        if self._outcome is None:
            self._outcome = self._judge()
            if self._outcome is None and self._max_steps is not None and self._steps >= self._max_steps:
                self._outcome = Outcome("failure", "timeout")
        return self._frame()

    def _frame(self) -> RawFrame:
        stamp = self._next_stamp
        self._next_stamp = stamp + self._period_ns
        contacts, touching, fingers = self._sensors.contacts()
        frame = RawFrame(
            stamp_ns=stamp,
            base=self._base(),
            joints=self._sensors.joints(self._data),
            ee=self._sensors.end_effector(self._data),
            gripper=fingers,
            contacts=contacts,
            objects=self._sensors.report(self._data, touching),
        )
        if self._selection is None:
            self._selection = ReachTracker(frame)
        self._selection.see(frame, [self._sensors.objects[i].id for i in self._sensors.gripper_touched])
        return frame

    def findings(self) -> Mapping[str, str]:
        """Which object the robot took and which it was told to take, where there were several (BEHAVIOR-Spatial)."""
        return {} if self._selection is None else self._selection.attributes()

    def outcome(self) -> Outcome | None:
        """See Simulation."""
        found = self._outcome
        return None if found is None else Outcome(found.status, found.reason, self._steps + 1)

    def info(self) -> EpisodeInfo:
        """See Simulation."""
        self._require_episode()
        return self._describe()

    def shapes(self) -> Shapes:
        """See Simulation."""
        self._require_episode()
        return self._sensors.shapes()

    def provenance(self) -> Mapping[str, str]:
        """See Simulation."""
        return dict(self._version)

    def restart_clock(self) -> None:
        """See Simulation."""
        self._next_stamp = FIRST_STAMP_NS

    def close(self) -> None:
        """See Simulation."""
        self._data = None

    def _require_episode(self) -> None:
        if self._data is None:
            raise RuntimeError("no episode is running: call reset first")
