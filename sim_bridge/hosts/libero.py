"""LIBERO's task suites (robosuite 1.4, Panda arm, 20 Hz), with contacts, torques and object poses read from its MuJoCo
state.

Tasks: ``<suite>/<number>``, such as ``libero_goal/3``; templates and tags come from config/safety/suites. Actions: the
seven numbers of its OSC_POSE controller (six pose deltas and the gripper, each -1 to 1). The seed chooses the initial
state.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import yaml

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.resources import config_path
from sim_bridge.hosts.base import MujocoHost, record_substeps
from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, geom_roles
from sim_bridge.simulation import Action

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
TASKS_A_SUITE = 10
JOINTS = tuple(f"robot0_joint{i}" for i in range(1, 8))
_NO_OP = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)
_SETTLE_STEPS = 10  #: control steps without action before the first frame, as is usual with LIBERO
_ROBOT_RULES = (
    ("gripper0_*", "gripper"),
    ("robot0_link*", "arm"),
    ("robot0_*hand", "arm"),
    ("robot0_base", "base"),
    ("mount0_*", "base"),
    ("floor", "floor"),
)


class LiberoSimulation(MujocoHost):
    """One LIBERO environment at a time; a new one for each task (3 to 14 s), reused for the seeds of a task."""

    robot = "franka_panda"

    def __init__(self, max_steps: int | None = 300) -> None:
        super().__init__(50_000_000, max_steps)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # it talks while it is imported
                from libero.libero import benchmark, get_libero_path
                from libero.libero.envs.env_wrapper import ControlEnv
        except ImportError as error:
            raise MissingDependencyError(f"LIBERO is missing ({error}); pip install 'osma-monitor[libero]'") from error
        self._benchmark, self._path, self._class = benchmark.get_benchmark_dict(), get_libero_path, ControlEnv
        self._environment: Any = None
        self._loaded = ""
        self._initial: Any = None

    def tasks(self) -> tuple[str, ...]:
        """See MujocoHost."""
        return tuple(f"{suite}/{number}" for suite in SUITES for number in range(TASKS_A_SUITE))

    def _load(self, task: str) -> None:
        suite, number = task.split("/")
        with contextlib.redirect_stdout(sys.stderr):
            tasks = self._benchmark[suite]()
            found = tasks.get_task(int(number))
            self._initial = tasks.get_task_init_states(int(number))
            self.close()
            self._environment = self._class(
                bddl_file_name=os.path.join(self._path("bddl_files"), found.problem_folder, found.bddl_file),
                use_camera_obs=False,
                has_renderer=False,
                has_offscreen_renderer=False,
                horizon=1_000_000,
                hard_reset=False,
            )
        self._instruction = str(found.language)
        self._loaded = task

    def _start(self, task: str, seed: int) -> None:
        if task != self._loaded:
            self._load(task)
        environment = self._environment
        environment.seed(seed % 2**32)
        environment.reset()
        environment.set_init_state(self._initial[seed % len(self._initial)])
        model, self._data = environment.sim.model._model, environment.sim.data._data
        self._sensors = self._make_sensors(model)
        record_substeps(environment.sim, lambda: self._sensors.record(self._data))
        for _ in range(_SETTLE_STEPS):
            self._sensors.contacts()  # only the last step's contacts are those of the first frame
            environment.step(np.array(_NO_OP))

    def _make_sensors(self, model: Any) -> MujocoSensors:
        problem = self._environment.env
        target, of_interest = _target(problem)
        tracked, rules = [], list(_ROBOT_RULES)
        for name, thing in problem.objects_dict.items():
            role = "target" if name == target else ("other" if name in of_interest else "bystander")
            tracked.append(TrackedObject(name, thing.category_name, role, thing.root_body))
            rules.append((thing.root_body, role))
        rules += [(thing.root_body, "furniture") for thing in problem.fixtures_dict.values()]
        return MujocoSensors(
            model, geom_roles(model, [*rules, ("*", "furniture")]), tracked, JOINTS, "gripper0_grip_site"
        )

    def _advance(self, action: Action) -> None:
        if action.joints and len(action.joints) != len(_NO_OP):
            raise UserError(f"{self._task}: an action has {len(_NO_OP)} numbers, got {len(action.joints)}")
        self._environment.step(np.array(action.joints or _NO_OP, dtype=np.float64))
        self._environment.sim.forward()  # poses of the new state

    def _judge(self) -> Outcome | None:
        return Outcome("success", "goal") if self._environment.check_success() else None

    def _describe(self) -> EpisodeInfo:
        suite, number = self._task.split("/")
        entry = _suite_tasks(suite).get(number, {})
        return EpisodeInfo(
            episode_id=f"{self._task.replace('/', '.')}.s{self._seed}",
            task=self._task,
            suite=suite,
            robot=self.robot,
            instruction=self._instruction,
            seed=self._seed,
            templates=tuple(entry.get("templates", ())),
            tags=tuple(entry.get("tags", ())),
            sources=self.sources,
            attributes={"initial_state": str(self._seed % len(self._initial))},
        )

    def close(self) -> None:
        """See Simulation."""
        if self._environment is not None:
            self._environment.close()
            self._environment, self._loaded = None, ""
        super().close()


def _target(problem: Any) -> tuple[str, tuple[str, ...]]:
    """The movable object that the goal speaks of first, and all things of interest."""
    interest = tuple(problem.obj_of_interest)
    goal = [name for clause in problem.parsed_problem["goal_state"] for name in clause[1:]]
    movable = [name for name in (*goal, *interest) if name in problem.objects_dict]
    return (movable[0] if movable else ""), interest


@cache
def _suite_tasks(suite: str) -> Mapping[str, Any]:
    data = yaml.safe_load(config_path("safety", "suites", f"{suite}.yaml").read_text(encoding="utf-8"))
    found: Mapping[str, Any] = data["tasks"]
    return found
