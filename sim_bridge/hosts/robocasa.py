"""RoboCasa kitchens (robosuite 1.5, PandaOmron mobile arm, 20 Hz): the 18 atomic-seen task families of RoboCasa-365.

Tasks: ``robocasa365/<environment>``, such as ``robocasa365/OpenDrawer``; templates and tags come from
config/safety/suites. Actions: the environment's own action vector, or base velocities in its controller's own units.
The kitchens need RoboCasa's assets (about 10 GB): ``python -m robocasa.scripts.setup_macros`` and
``python -m robocasa.scripts.download_kitchen_assets``.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from functools import cache
from typing import Any

import numpy as np
import yaml

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import EXIT_ENVIRONMENT, MissingDependencyError, UserError
from osma_monitor.core.signals.raw import Base
from osma_monitor.resources import config_path
from sim_bridge.hosts.base import MujocoHost, record_substeps
from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, geom_roles
from sim_bridge.simulation import Action

SUITE = "robocasa365"
JOINTS = tuple(f"robot0_joint{i}" for i in range(1, 8))
_SETTLE_STEPS = 5  #: control steps without action before the first frame
_ROBOT_RULES = (
    ("gripper0_*", "gripper"),
    ("robot0_link*", "arm"),
    ("robot0_*hand", "arm"),
    ("mobilebase0_*", "base"),
    ("robot0_base", "base"),
    ("*floor*", "floor"),
)
_BASE_BODIES = ("mobilebase0_base", "mobilebase0_support", "robot0_base")
_EE_SITES = ("gripper0_right_grip_site", "gripper0_grip_site")


class RobocasaSimulation(MujocoHost):
    """One RoboCasa environment at a time; the seed chooses layout, style, objects and start as RoboCasa does."""

    suite = SUITE
    robot = "panda_omron"
    sources = ("base", "joints", "ee", "gripper", "contacts", "objects")
    package = "robocasa"  #: importing it registers its environments with robosuite

    def __init__(self, max_steps: int | None = 500) -> None:
        super().__init__(50_000_000, max_steps)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                self._robosuite: Any = importlib.import_module("robosuite")
                importlib.import_module(self.package)
        except ImportError as error:
            raise MissingDependencyError(
                f"RoboCasa is missing ({error}); pip install 'osma-monitor[robocasa]'"
            ) from error
        self._environment: Any = None

    def tasks(self) -> tuple[str, ...]:
        """See MujocoHost."""
        return tuple(f"{SUITE}/{name}" for name in _suite_tasks())

    def _start(self, task: str, seed: int) -> None:
        self.close()
        name = task.split("/")[1]
        try:
            with contextlib.redirect_stdout(sys.stderr):
                self._environment = self._robosuite.make(
                    name,
                    robots="PandaOmron",
                    has_renderer=False,
                    has_offscreen_renderer=False,
                    use_camera_obs=False,
                    control_freq=20,
                    ignore_done=True,
                    seed=seed % 2**32,
                )
                self._environment.reset()
        except (FileNotFoundError, OSError) as error:
            raise MissingAssetsError(
                f"{task}: RoboCasa's kitchen assets are missing ({error}); run "
                "`python -m robocasa.scripts.setup_macros && python -m robocasa.scripts.download_kitchen_assets`"
            ) from error
        environment = self._environment
        model, self._data = environment.sim.model._model, environment.sim.data._data
        self._sensors = self._make_sensors(model)
        names = {model.body(i).name for i in range(model.nbody)}
        self._base_body = next((name for name in _BASE_BODIES if name in names), "robot0_base")
        record_substeps(environment.sim, lambda: self._sensors.record(self._data))
        for _ in range(_SETTLE_STEPS):
            self._sensors.contacts()  # only the last step's contacts are those of the first frame
            self._environment.step(self._vector(Action()))
        self._environment.sim.forward()

    def _make_sensors(self, model: Any) -> MujocoSensors:
        tracked, rules = [], list(_ROBOT_RULES)
        for name, thing in getattr(self._environment, "objects", {}).items():
            role = "target" if name == "obj" else ("other" if name.startswith("container") else "bystander")
            tracked.append(TrackedObject(name, getattr(thing, "category", "") or name, role, thing.root_body))
            rules.append((thing.root_body, role))
        sites = {model.site(i).name for i in range(model.nsite)}
        site = next((name for name in _EE_SITES if name in sites), None)
        return MujocoSensors(model, geom_roles(model, [*rules, ("*", "furniture")]), tracked, JOINTS, site)

    def _vector(self, action: Action) -> Any:
        low, high = self._environment.action_spec
        if action.joints:
            if len(action.joints) != len(low):
                raise UserError(f"{self._task}: an action has {len(low)} numbers, got {len(action.joints)}")
            return np.clip(np.asarray(action.joints, dtype=np.float64), low, high)
        vector = np.zeros(len(low))
        wanted = np.array([action.vx, action.vy, action.yaw_rate])
        robot = self._environment.robots[0]
        parts = getattr(robot, "_action_split_indexes", {})
        if "base" in parts and wanted.any():
            start, end = parts["base"]
            vector[start:end] = wanted[: end - start]
            vector[-1] = 1.0  # the mode bit of the hybrid controller: the base is driven
        return np.clip(vector, low, high)

    def _advance(self, action: Action) -> None:
        self._environment.step(self._vector(action))
        self._environment.sim.forward()  # poses of the new state

    def _base(self) -> Base:
        body = self._data.body(self._base_body)
        w, x, y, z = (float(v) for v in body.xquat)
        yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        # cvel is about the subtree's centre of mass: carried over to the body's own origin
        spin, drift = body.cvel[:3].copy(), body.cvel[3:].copy()
        velocity = drift + np.cross(spin, body.xpos - body.subtree_com)
        c, s = math.cos(yaw), math.sin(yaw)
        return Base(
            body.xpos.copy(),
            np.array([x, y, z, w]),
            np.array([c * velocity[0] + s * velocity[1], -s * velocity[0] + c * velocity[1], velocity[2]]),
            spin,
        )

    def _judge(self) -> Outcome | None:
        return Outcome("success", "goal") if self._environment._check_success() else None

    def _describe(self) -> EpisodeInfo:
        name = self._task.split("/")[1]
        entry = _suite_tasks().get(name, {})
        meta = self._environment.get_ep_meta() if hasattr(self._environment, "get_ep_meta") else {}
        return EpisodeInfo(
            episode_id=f"{self._task.replace('/', '.')}.s{self._seed}",
            task=self._task,
            suite=SUITE,
            robot=self.robot,
            instruction=str(meta.get("lang", entry.get("name", ""))),
            seed=self._seed,
            templates=tuple(entry.get("templates", ())),
            tags=tuple(entry.get("tags", ())),
            sources=self.sources,
            attributes={key: str(meta[f"{key}_id"]) for key in ("layout", "style") if f"{key}_id" in meta},
        )

    def close(self) -> None:
        """See Simulation."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None
        super().close()


class MissingAssetsError(UserError):
    """The kitchens' models are not downloaded."""

    exit_code = EXIT_ENVIRONMENT


@cache
def _suite_tasks() -> dict[str, Any]:
    data = yaml.safe_load(config_path("safety", "suites", f"{SUITE}.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = data["tasks"]
    return found
