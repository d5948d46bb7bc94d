"""SO-101 arm in MuJoCo: the pick-cube and pick-and-place environments of lerobot-env-so101.

Tasks: ``so101/pick_cube`` and ``so101/pick_place``. Actions: six joint targets (rad; pan, lift, elbow, wrist flex,
wrist roll, gripper), or the environment's own four numbers (dx, dy, dz in m, gripper opening 0 to 1). Without any, the
arm holds still.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import MissingDependencyError, UserError
from sim_bridge.hosts.base import MujocoHost
from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, geom_roles
from sim_bridge.options import at_least
from sim_bridge.simulation import Action

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
ROLE_RULES = (
    ("block", "target"),
    ("floor", "furniture"),  # the arm is mounted on it: it is the table
    ("*jaw*", "gripper"),
    ("gripper", "gripper"),
    ("base", "arm"),
)
_PHYSICS_NS = 2_000_000
_SETTLE_STEPS = 100  #: physics steps before the first frame, 0.2 s
_INSTRUCTIONS = {"so101/pick_cube": "Pick up the cube.", "so101/pick_place": "Move the cube onto the goal."}
TASKS = tuple(_INSTRUCTIONS)

#: `needs` words of the signal schema that this host serves; the suite's own are those of the hardware pilot.
CAPABILITIES = ("joints", "joints.effort", "ee", "gripper", "contacts", "objects", "objects.target")


class So101Simulation(MujocoHost):
    """The arm at 20 Hz control over 2 ms physics; block and goal positions are drawn from the seed."""

    suite = "so101"
    robot = "so101"

    def __init__(self, max_steps: int | None = 400, control_period_ns: int = 50_000_000) -> None:
        super().__init__(control_period_ns, max_steps)
        at_least("the host so101", "control_period_ns", control_period_ns, _PHYSICS_NS)
        try:
            from lerobot_env_so101.pick_env import SO101PickCubeGymEnv
            from lerobot_env_so101.pick_place_env import SO101PickPlaceGymEnv
        except ImportError as error:
            raise MissingDependencyError(
                f"the SO-101 environment is missing ({error.name}); pip install 'osma-monitor[so101]'"
            ) from error
        self._classes = {"so101/pick_cube": SO101PickCubeGymEnv, "so101/pick_place": SO101PickPlaceGymEnv}
        self._environments: dict[str, tuple[Any, MujocoSensors]] = {}
        self._environment: Any = None

    def tasks(self) -> tuple[str, ...]:
        """See MujocoHost."""
        return TASKS

    def _start(self, task: str, seed: int) -> None:
        if task not in self._environments:
            environment = self._classes[task](
                random_block_position=True, control_dt=self._period_ns * 1e-9, physics_dt=_PHYSICS_NS * 1e-9
            )
            model = environment.model
            sensors = MujocoSensors(
                model,
                geom_roles(model, ROLE_RULES),
                [TrackedObject("cube", "cube", "target", "block")],
                JOINTS,
                "gripperframe",
            )
            self._environments[task] = environment, sensors
        self._environment, self._sensors = self._environments[task]
        self._environment.reset(seed=seed % 2**32)
        self._data = self._environment.data
        self._substeps = round(self._period_ns * 1e-9 / self._environment.physics_dt)
        for _ in range(_SETTLE_STEPS):  # the contacts of standing are there from the first frame
            mujoco.mj_step(self._environment.model, self._data)
        mujoco.mj_forward(self._environment.model, self._data)
        self._sensors.record(self._data)

    def _advance(self, action: Action) -> None:
        environment, model, data = self._environment, self._environment.model, self._data
        if len(action.joints) == len(JOINTS):
            limits = model.actuator_ctrlrange
            data.ctrl[:] = np.clip(np.asarray(action.joints, dtype=np.float64), limits[:, 0], limits[:, 1])
        elif len(action.joints) == 4:
            # the environment turns the action into joint targets; the physics runs here, where every substep is seen
            substeps, environment._n_substeps = environment._n_substeps, 0
            environment.apply_action(np.asarray(action.joints, dtype=np.float64))
            environment._n_substeps = substeps
        elif action.joints:
            raise UserError(f"{self._task}: an action has 6 joint targets or 4 numbers, got {len(action.joints)}")
        for _ in range(self._substeps):
            mujoco.mj_step(model, data)
            self._sensors.record(data)
        mujoco.mj_kinematics(model, data)

    def _judge(self) -> Outcome | None:
        environment = self._environment
        block = self._data.body("block").xpos
        if hasattr(environment, "_was_carried"):
            from lerobot_env_so101.pick_place_env import _MIN_CARRY_RISE

            environment._was_carried = environment._was_carried or bool(
                block[2] - environment._z_init > _MIN_CARRY_RISE
            )
        mujoco.mj_sensorPos(environment.model, self._data)
        if environment._is_success():
            return Outcome("success", "goal")
        if block[2] < -0.05 or np.abs(block[:2]).max() > 0.6:
            return Outcome("failure", "the cube left the workspace")
        return None

    def _describe(self) -> EpisodeInfo:
        return EpisodeInfo(
            episode_id=f"{self._task.replace('/', '.')}.s{self._seed}",
            task=self._task,
            suite=self.suite,
            robot=self.robot,
            instruction=_INSTRUCTIONS[self._task],
            seed=self._seed,
            templates=("pnp_basic",),
            tags=("non_spillable",),
            sources=self.sources,
        )

    def close(self) -> None:
        """See Simulation."""
        for environment, _ in self._environments.values():
            environment.close()
        self._environments.clear()
        super().close()
