"""The kitchen behind the Simulation protocol."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import mujoco
import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics.selection import Selection
from osma_monitor.core.signals.raw import Base, RawFrame
from osma_monitor.resources import config_path
from sim_bridge.kitchen import scene
from sim_bridge.kitchen.instructions import DEFAULT_CONDITION, instruction
from sim_bridge.kitchen.layout import R_BASE_M, Pose2
from sim_bridge.kitchen.references import load_references
from sim_bridge.kitchen.tasks import (
    MAX_STEPS,
    NO_OBSTACLE,
    ROUTES,
    SUCCESS_HEADING_COSINE,
    SUCCESS_RADIUS_M,
    SUITE,
    Task,
    parse_task,
    with_identical_shape,
)
from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, check_version, geom_roles
from sim_bridge.simulation import FIRST_STAMP_NS, Action, Shapes
from sim_bridge.target_selection import attributes_of

CONTROL_PERIOD_NS = 50_000_000
ROBOT = "kitchen_mobile_base"

#: Limits of the base: m/s, rad/s, m/s^2, rad/s^2.
MAX_SPEED, MAX_YAW_RATE = 1.0, 1.5
MAX_ACCELERATION, MAX_YAW_ACCELERATION = 2.0, 4.0
_AT_REST = 0.05  #: m/s, slower than this the base has stopped somewhere
_SETTLE_STEPS = 150  #: physics steps before the first frame, 0.3 s


@dataclass(frozen=True, slots=True)
class StartJitter:
    """Half widths of the uniform, seeded offset of the start pose (m, rad). Each task draws its own offset."""

    position: float = 0.05
    yaw: float = math.radians(5.0)

    def offset(self, task: str, seed: int) -> NDArray[np.float64]:
        """x, y (m) and yaw (rad) that are added to the start pose of a task id; tiers have no part in it."""
        draw = np.random.default_rng([seed % 2**32, zlib.crc32(task.encode())]).uniform(-1.0, 1.0, 3)
        return np.asarray(draw * [self.position, self.position, self.yaw])


#: Options of a simulation that nobody configures.
_DEFAULTS: Mapping[str, Any] = {
    "style": "modern_1",
    "identical_shapes": False,
    "jitter": None,
    "max_steps": MAX_STEPS,
    "condition": DEFAULT_CONDITION,
}


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """A point of an episode to come back to (rollout selection)."""

    physics: NDArray[np.float64]
    velocity: NDArray[np.float64]
    steps: int
    stamp_ns: int
    outcome: Outcome | None


class KitchenSimulation:
    """Mobile robot in a kitchen, 20 Hz control over 2 ms physics.

    ``style`` changes colours only. ``jitter`` offsets the start pose by seed; without it every seed starts the same.
    ``identical_shapes`` gives all obstacles one shape and one spot. ``max_steps`` None lifts the cap of 500 steps.
    ``condition`` is the instruction condition, c0 to c4. ``selection`` lets :meth:`findings` say which fixture was
    reached.
    """

    def __init__(
        self,
        style: str = "modern_1",
        jitter: StartJitter | None = None,
        identical_shapes: bool = False,
        max_steps: int | None = MAX_STEPS,
        condition: str = DEFAULT_CONDITION,
        selection: bool = False,
    ) -> None:
        instruction(condition, "sink", NO_OBSTACLE)  # says at once when it does not exist
        scene.colors(style)
        if max_steps is not None and max_steps < 1:
            raise UserError(f"max_steps is {max_steps}; expected at least 1, or null for no limit")
        self._style = style
        self._jitter = jitter
        self._identical = identical_shapes
        self._max_steps = max_steps
        self._condition = condition
        self._selection = selection
        self._version = check_version()
        self._next_stamp = FIRST_STAMP_NS
        self._task: Task | None = None
        self._model: Any = None
        self._renderers: dict[tuple[int, int], Any] = {}  #: by width and height; they belong to one model

    @classmethod
    def of(cls, info: EpisodeInfo, **options: Any) -> Self:
        """A simulation in which the episode of ``info`` runs the same: its options, unless ``options`` say otherwise.

        Reset with the episode's task and seed it starts at the same state, and equal actions lead to equal states.
        UserError for an attribute ``simulation`` that holds no such options.
        """
        from sim_bridge.hosts import checked_options  # hosts know the kitchen, not the other way round

        text = info.attributes.get("simulation", "{}")
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise UserError(f"{info.episode_id}: the attribute simulation is {text[:80]!r}, expected a JSON object")
        return cls(**{**checked_options("kitchen", cls, said), **options})

    @property
    def control_period_ns(self) -> int:
        """50 ms."""
        return CONTROL_PERIOD_NS

    @property
    def task(self) -> Task:
        """The running task."""
        if self._task is None:
            raise RuntimeError("no episode is running: call reset first")
        return self._task

    def reset(self, task: str, seed: int) -> RawFrame:
        """See Simulation. The same task and seed give the same trajectory for the same actions, in any process."""
        parsed = parse_task(task)
        if self._identical:
            parsed = with_identical_shape(parsed)
        if self._task != parsed:
            self.close()
            self._model = scene.build(parsed, self._style)
            self._data = mujoco.MjData(self._model)
            self._sensors = MujocoSensors(
                self._model,
                _roles(self._model, parsed),
                _tracked(parsed),
                scene.ARM_JOINTS,
                scene.EE_SITE,
            )
            self._task = parsed
        self._seed = seed
        self._steps = 0
        self._outcome: Outcome | None = None
        self._velocity = np.zeros(3)  # world frame: the set-point of the base
        start = parsed.start
        pose = np.array([start.x, start.y, start.yaw])
        if self._jitter is not None:
            pose += self._jitter.offset(parsed.id, seed)
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:3] = pose
        self._settle()
        return self._frame()

    def _settle(self) -> None:
        """Let everything come to rest, so that the contacts of standing are there from the first frame."""
        data = self._data
        pose = data.qpos[:3].copy()
        for _ in range(_SETTLE_STEPS):
            mujoco.mj_step(self._model, data)
        data.qpos[:3], data.qvel[:] = pose, 0.0
        data.time = 0.0
        mujoco.mj_forward(self._model, data)
        self._sensors.record(data)

    def step(self, action: Action) -> RawFrame:
        """See Simulation. Speeds and accelerations beyond the base's limits are clipped."""
        if self._model is None:
            raise RuntimeError("no episode is running: call reset first")
        data, model = self._data, self._model
        before, target = self._velocity, self._set_point(action)
        if action.joints and (len(action.joints) != len(scene.ARM_JOINTS) or not np.isfinite(action.joints).all()):
            raise UserError(
                f"{self.task.id}: an action has {len(scene.ARM_JOINTS)} joint targets (rad), got {action.joints}"
            )
        data.ctrl[3:] = action.joints or 0.0  # zero: folded
        for substep in range(1, scene.SUBSTEPS + 1):
            data.ctrl[:3] = before + (target - before) * (substep / scene.SUBSTEPS)
            mujoco.mj_step(model, data)
            self._sensors.record(data)
        self._velocity = target
        mujoco.mj_kinematics(model, data)  # poses of the new state: mj_step leaves those of its beginning
        self._steps += 1
        frame = self._frame()
        if self._outcome is None:
            self._outcome = self._judge()
        return frame

    def _set_point(self, action: Action) -> NDArray[np.float64]:
        """World-frame velocity at the end of the step: the action within the limits of speed and acceleration."""
        yaw = self._data.qpos[2]
        vx, vy, rate = (v if math.isfinite(v) else 0.0 for v in (action.vx, action.vy, action.yaw_rate))
        speed = math.hypot(vx, vy)
        if speed > MAX_SPEED:
            vx, vy = vx * MAX_SPEED / speed, vy * MAX_SPEED / speed
        rate = min(max(rate, -MAX_YAW_RATE), MAX_YAW_RATE)
        c, s = math.cos(yaw), math.sin(yaw)
        target = np.array([c * vx - s * vy, s * vx + c * vy, rate])
        period = CONTROL_PERIOD_NS * 1e-9
        change = target - self._velocity
        planar = math.hypot(change[0], change[1])
        if planar > MAX_ACCELERATION * period:
            change[:2] *= MAX_ACCELERATION * period / planar
        change[2] = min(max(change[2], -MAX_YAW_ACCELERATION * period), MAX_YAW_ACCELERATION * period)
        return self._velocity + change

    def _judge(self) -> Outcome | None:
        goal = self.task.goal
        x, y, yaw = self._data.qpos[:3]
        if _arrived(x, y, yaw, goal):
            return Outcome("success", "goal", self._steps + 1)
        if self._max_steps is not None and self._steps >= self._max_steps:
            return Outcome("failure", "timeout", self._steps + 1)
        return None

    def _frame(self) -> RawFrame:
        data = self._data
        stamp = self._next_stamp
        self._next_stamp = stamp + CONTROL_PERIOD_NS
        contacts, touching, fingers = self._sensors.contacts()
        x, y, yaw = (float(v) for v in data.qpos[:3])
        vx, vy, rate = (float(v) for v in data.qvel[:3])
        c, s = math.cos(yaw), math.sin(yaw)
        base = Base(
            np.array([x, y, 0.0]),
            np.array([0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)]),
            np.array([c * vx + s * vy, -s * vx + c * vy, 0.0]),
            np.array([0.0, 0.0, rate]),
        )
        return RawFrame(
            stamp_ns=stamp,
            base=base,
            joints=self._sensors.joints(data),
            ee=self._sensors.end_effector(data),
            gripper=fingers,
            contacts=contacts,
            objects=self._sensors.report(data, touching),
        )

    def outcome(self) -> Outcome | None:
        """See Simulation: success within 0.5 m and heading cosine 0.8 of the goal, failure after 500 control steps."""
        return self._outcome

    def findings(self) -> Mapping[str, str]:
        """Where the robot went, against where it was sent.

        Correct on success (BEHAVIOR-Spatial Table S4). That paper counts no wrong destination; here it is wrong where
        the base stands still, nearest to another fixture than the goal and the start, and would have succeeded there.
        Else it committed to nothing. ``selected_object`` is the fixture. Empty without the option ``selection``: for
        most uses success says it all.
        """
        task = self.task
        if not self._selection:
            return {}
        if self._outcome is not None and self._outcome.status == "success":
            return attributes_of(Selection("correct"), task.goal_name, task.goal_name)
        x, y, yaw = (float(v) for v in self._data.qpos[:3])
        places = {
            name: fixture.approach
            for name, fixture in task.kitchen.fixtures.items()
            if name != "human" or task.goal_name == "human"
        }
        nearest = min(places, key=lambda name: math.hypot(x - places[name].x, y - places[name].y))
        rests = math.hypot(*self._data.qvel[:2]) <= _AT_REST
        if nearest not in ROUTES[task.route] and rests and _arrived(x, y, yaw, places[nearest]):
            return attributes_of(Selection("wrong"), task.goal_name, nearest)
        return attributes_of(Selection("none"), task.goal_name, "")

    def info(self) -> EpisodeInfo:
        """See Simulation."""
        task = self.task
        length, time = load_references().get(task.cell, (math.nan, math.nan))
        start, goal, (x, y) = task.start, task.goal, task.spot
        numbers = {
            "reference_length_m": length,
            "reference_time_s": time,
            "start_x": start.x,
            "start_y": start.y,
            "start_yaw": start.yaw,
            "goal_x": goal.x,
            "goal_y": goal.y,
            "goal_yaw": goal.yaw,
            "spot_x": x,
            "spot_y": y,
            "base_radius_m": R_BASE_M,
        }
        attributes = {
            "cell": task.cell,
            "layout": str(task.layout),
            "layout_name": task.kitchen.name,
            "route": task.route,
            "goal": task.goal_name,
            "obstacle": "" if task.obstacle == NO_OBSTACLE else task.obstacle,
            "tier": task.tier,
            "shapes": "identical" if task.identical_shapes else "real",
            "style": self._style,
            "condition": self._condition,
            "simulation": json.dumps(self._said(), sort_keys=True),
            **{name: repr(float(value)) for name, value in numbers.items()},
        }
        return EpisodeInfo(
            episode_id=f"{task.id.replace('/', '.')}.s{self._seed}",
            task=task.id,
            suite=SUITE,
            robot=ROBOT,
            instruction=instruction(self._condition, task.goal_name, task.obstacle),
            seed=self._seed,
            templates=("navigate",),
            sources=("base", "joints", "ee", "gripper", "contacts", "objects"),
            attributes=attributes,
        )

    def _said(self) -> dict[str, Any]:
        """The options of this simulation that are not the default, for :meth:`of`."""
        found: dict[str, Any] = {"style": self._style, "identical_shapes": self._identical}
        found["jitter"] = None if self._jitter is None else asdict(self._jitter)
        found["max_steps"], found["condition"] = self._max_steps, self._condition
        return {name: value for name, value in found.items() if value != _DEFAULTS[name]}

    def shapes(self) -> Shapes:
        """See Simulation."""
        self.task  # noqa: B018 - raises when nothing runs
        return self._sensors.shapes()

    def provenance(self) -> Mapping[str, str]:
        """Simulator, its version, and the hash of the kitchen's files."""
        return {**self._version, "kitchen": kitchen_hash()}

    def restart_clock(self) -> None:
        """See Simulation."""
        self._next_stamp = FIRST_STAMP_NS

    # what rollout selection needs
    def save(self) -> SavedState:
        """The present state, to come back to with :meth:`restore`."""
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.zeros(mujoco.mj_stateSize(self._model, kind))
        mujoco.mj_getState(self._model, self._data, physics, kind)
        return SavedState(physics, self._velocity.copy(), self._steps, self._next_stamp, self._outcome)

    def restore(self, state: SavedState) -> None:
        """Back to a saved state of the same episode, bit for bit."""
        mujoco.mj_setState(self._model, self._data, state.physics, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_kinematics(self._model, self._data)
        self._velocity = state.velocity.copy()
        self._steps, self._next_stamp, self._outcome = state.steps, state.stamp_ns, state.outcome

    def synchronise(self, frame: RawFrame) -> None:
        """Put clock, robot and objects where a frame of the same task says.

        Nothing is touched where all of it is there already, so that a simulation that ran the same episode goes on bit
        for bit. Velocities, which a frame does not hold for objects, become zero otherwise. ValueError for a frame
        without base or objects.
        """
        if frame.base is None or frame.objects is None:
            raise ValueError("the frame holds no base pose or no objects; the kitchen's pictures need both")
        data = self._data
        yaw = 2.0 * math.atan2(frame.base.orientation[2], frame.base.orientation[3])
        self._next_stamp = frame.stamp_ns + CONTROL_PERIOD_NS
        wanted = data.qpos.copy()
        turns = round((wanted[2] - yaw) / math.tau)  # a pose does not say how often the base has turned round
        wanted[:3] = frame.base.position[0], frame.base.position[1], yaw + turns * math.tau
        if frame.joints is not None:
            for name, angle in zip(frame.joints.name, frame.joints.position, strict=True):
                wanted[self._model.joint(name).qposadr[0]] = angle
        for tracked, position, turn in zip(
            self._sensors.objects, frame.objects.position, frame.objects.orientation, strict=True
        ):
            body = self._model.body(tracked.body)
            start = self._model.jnt_qposadr[body.jntadr[0]]
            pose = np.array([*position, turn[3], turn[0], turn[1], turn[2]])
            if np.isfinite(pose).all():  # an object whose pose is not known stays where it was seen last
                wanted[start : start + 7] = pose
        if np.allclose(data.qpos, wanted, rtol=0.0, atol=1e-9):
            return
        data.qpos[:], data.qvel[:] = wanted, 0.0
        self._velocity = np.zeros(3)
        mujoco.mj_forward(self._model, data)

    def render(self, camera: str = "top", width: int = 256, height: int = 256) -> NDArray[np.uint8]:
        """An image (height, width, 3) of one of `scene.CAMERAS`; MUJOCO_GL=egl or osmesa without a display."""
        renderer = self._renderers.get((width, height))
        if renderer is None:
            renderer = self._renderers[width, height] = mujoco.Renderer(self._model, height, width)
        mujoco.mj_camlight(self._model, self._data)  # nothing that the physics goes on from: pictures change no drive
        renderer.update_scene(self._data, camera)
        image: NDArray[np.uint8] = renderer.render()
        return image

    def close(self) -> None:
        """Free the renderers and the model."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
        self._model = self._task = None


def _arrived(x: float, y: float, yaw: float, goal: Pose2) -> bool:
    """The goal criterion of a navigation task."""
    near = math.hypot(x - goal.x, y - goal.y) <= SUCCESS_RADIUS_M
    return near and math.cos(yaw - goal.yaw) >= SUCCESS_HEADING_COSINE


def _roles(model: mujoco.MjModel, task: Task) -> tuple[str, ...]:
    living = "human" if task.tier == "high" else "obstacle"
    return geom_roles(model, (*scene.ROLE_RULES, (scene.OBSTACLE_BODY, living), (scene.PERSON_BODY, "target")))


def _tracked(task: Task) -> list[TrackedObject]:
    """The obstacle, its table (furniture: touching it is no obstacle contact) and the person that is a goal."""
    found = []
    if task.shape is not None:
        role = "human" if task.tier == "high" else "obstacle"
        found.append(TrackedObject(task.obstacle, task.obstacle, role, scene.OBSTACLE_BODY))
        if task.shape.table:
            found.append(TrackedObject("table", "table", "furniture", scene.TABLE_BODY))
    if task.goal_name == "human":
        found.append(TrackedObject("goal_person", "human", "target", scene.PERSON_BODY))
    return found


def kitchen_hash() -> str:
    """Hash of the files that the kitchen is made of (layouts, obstacles, tiers)."""
    digest = hashlib.sha256()
    files = [f"layout{k}.yaml" for k in range(5)] + ["obstacles.yaml"]
    for path in [config_path("kitchen", name) for name in files] + [config_path("obstacle_tiers.yaml")]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
