"""A Simulation without physics for tests of the ROS side, and nodes around it that run as processes.

A point robot integrates its velocity beside one obstacle. The task ``steps/<n>`` ends with success after n steps.
Run as a script: ``python kinematic.py bridge|policy [ros arguments]``.
"""

from __future__ import annotations

import sys

import numpy as np

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import Base, Contacts, Objects, RawFrame, vector
from sim_bridge.simulation import FIRST_STAMP_NS, Action, Shapes

PERIOD_NS = 50_000_000


class KinematicSimulation:
    """Deterministic; every float has a full mantissa so that a lossy transport would show."""

    def __init__(self) -> None:
        self._stamp = FIRST_STAMP_NS - PERIOD_NS
        self._x = self._y = self._yaw = 0.0
        self._step = self._length = 0
        self._task, self._seed = "", 0

    @property
    def control_period_ns(self) -> int:
        return PERIOD_NS

    def reset(self, task: str, seed: int) -> RawFrame:
        kind, _, length = task.partition("/")
        if kind != "steps" or not length.isdigit():
            raise UserError(f"unknown task {task!r}, expected steps/<n>")
        self._task, self._seed, self._length, self._step = task, seed, int(length), 0
        rng = np.random.default_rng(seed)
        self._x, self._y, self._yaw = rng.random(3).tolist()
        self._obstacle = rng.random(3) + np.array([1.0, 0.0, 0.0])
        return self._frame(np.zeros(3))

    def step(self, action: Action) -> RawFrame:
        dt = PERIOD_NS / 1e9
        self._yaw += action.yaw_rate * dt
        c, s = np.cos(self._yaw), np.sin(self._yaw)
        self._x += float(c * action.vx - s * action.vy) * dt
        self._y += float(s * action.vx + c * action.vy) * dt
        self._x += 1e-3 * sum(action.joints)  # joint targets leave a trace, too
        self._step += 1
        return self._frame(np.array([action.vx, action.vy, action.yaw_rate]))

    def _frame(self, velocity: np.ndarray) -> RawFrame:
        self._stamp += PERIOD_NS
        position = vector([self._x, self._y, 0.1])
        distance = float(np.sqrt(((position - self._obstacle)[:2] ** 2).sum())) - 0.3
        touching = distance < 0.0
        half = self._yaw / 2
        force = np.array([[np.pi * 40 * -distance, 0.1, 0.0]]) if touching else np.zeros((0, 3))
        names = [("base_shell", "vase_1", "base", "obstacle")] if touching else []
        columns = tuple(zip(*names, strict=True)) if names else ((), (), (), ())
        return RawFrame(
            self._stamp,
            base=Base(
                position,
                vector([0.0, 0.0, float(np.sin(half)), float(np.cos(half))]),
                vector([velocity[0], velocity[1], 0.0]),
                vector([0.0, 0.0, velocity[2]]),
            ),
            contacts=Contacts(*columns, force),
            objects=Objects(
                ("vase_1",),
                ("vase",),
                ("obstacle",),
                self._obstacle.reshape(1, 3).copy(),
                np.array([[0.0, 0.0, 0.0, 1.0]]),
                np.array([distance]),
                np.array([int(touching)], np.int8),
            ),
        )

    def outcome(self) -> Outcome | None:
        return Outcome("success", "goal") if self._step >= self._length else None

    def info(self) -> EpisodeInfo:
        return EpisodeInfo(
            "",
            task=self._task,
            suite="kitchen",
            robot="point",
            seed=self._seed,
            templates=("navigate",),
            sources=("base", "contacts", "objects"),
            attributes={"tier": "high", "radius": repr(0.1 + 0.2)},
        )

    def shapes(self) -> Shapes:
        return Shapes(("vase_1",), (1,), np.array([[0.1, 0, 0]]), np.zeros((1, 3)), np.array([[0, 0, 0, 1.0]]))

    def provenance(self) -> dict[str, str]:
        return {"simulator": "kinematic"}

    def restart_clock(self) -> None:
        self._stamp = FIRST_STAMP_NS - PERIOD_NS

    def close(self) -> None:
        pass


class ChasePolicy:
    """Drives at the obstacle, slower the nearer it is: the command depends on every bit of the observation."""

    def reset(self, info: EpisodeInfo) -> None:
        self._gain = float(info.attributes["radius"])

    def act(self, frame: RawFrame) -> Action:
        assert frame.base is not None and frame.objects is not None
        delta = frame.objects.position[0] - frame.base.position
        return Action(
            vx=float(delta[0]) * self._gain * 3,
            vy=float(delta[1]) * 0.7,
            yaw_rate=float(np.sin(delta[0])),
            joints=(float(delta[0]) / 3, float(delta[1]) / 7),
        )


class ReportingPolicy(ChasePolicy):
    """Says what it asks for; its pipeline breaks at the 12th observation of an episode with an odd seed."""

    name = "reporting"

    def reset(self, info: EpisodeInfo) -> None:
        super().reset(info)
        self._breaks, self._frames = info.seed % 2 == 1, 0
        self.failure: str | None = None

    def act(self, frame: RawFrame) -> Action:
        self._frames += 1
        if self._breaks and self._frames == 12:
            self.failure = "no plan"
        return super().act(frame)

    @property
    def requested(self) -> dict[str, str]:
        return {"requested_speed": repr(self._gain), "tier": "asked", "replans": str(self._frames // 5)}


def main() -> int:
    role = sys.argv.pop(1)
    from osma_monitor.ros.runtime import run_application

    if role == "bridge":
        from sim_bridge.bridge_node import NAME, Bridge

        return run_application(NAME, lambda argv: Bridge(argv, KinematicSimulation()))
    from sim_bridge.policy_node import NAME as POLICY_NAME
    from sim_bridge.policy_node import PolicyNode

    policy = ReportingPolicy() if role == "reporting" else ChasePolicy()
    return run_application(POLICY_NAME, lambda argv: PolicyNode(argv, policy))


if __name__ == "__main__":
    sys.exit(main())
