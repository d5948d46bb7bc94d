"""The MuJoCo model of a task, built with MjSpec from the layout's data: room, furniture, obstacle, mobile robot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import mujoco
import numpy as np
import yaml

from osma_monitor.core.errors import UserError
from osma_monitor.resources import config_path
from sim_bridge.kitchen.layout import (
    BASE_SIZE_M,
    TABLE_MASS_KG,
    TABLE_THICKNESS_M,
    TABLE_TOP_M,
    TABLE_WIDTH_M,
    Obstacle,
    load_obstacles,
)
from sim_bridge.kitchen.tasks import Task

PHYSICS_STEP_S = 0.002
SUBSTEPS = 25

#: Gap between base and floor (m): the planar joints carry the base, its wheels are not modelled.
GROUND_CLEARANCE_M = 0.02
BASE_MASS_KG = 90.0
#: Push that the base can give (N) and turn (N m).
BASE_FORCE_N, BASE_TORQUE_NM = 350.0, 150.0

BASE_JOINTS = ("base_x", "base_y", "base_yaw")
ARM_JOINTS = ("arm_pan", "arm_lift", "arm_elbow", "arm_wrist", "arm_roll")
EE_SITE = "robot/tool"
CAMERAS = ("top", "robot_left", "robot_right", "robot_wrist")
OBSTACLE_BODY, TABLE_BODY, PERSON_BODY = "obstacle", "table", "person"

#: Role of every geom by the name of its body or itself.
ROLE_RULES = (
    ("robot/hand*", "gripper"),
    ("robot/arm*", "arm"),
    ("robot/base*", "base"),
    ("furniture/*", "furniture"),
    (TABLE_BODY, "furniture"),
    ("floor", "floor"),
)

_GEOM = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
}
_HALF = 0.7071067811865476
_AXIS_QUATERNION = {"x": [_HALF, 0, _HALF, 0], "y": [_HALF, -_HALF, 0, 0], "z": [1, 0, 0, 0]}


@cache
def load_styles() -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Colours of each visual style (config/kitchen/styles.yaml)."""
    found: Mapping[str, Mapping[str, Sequence[float]]] = yaml.safe_load(
        config_path("kitchen", "styles.yaml").read_text()
    )
    return found


def colors(style: str) -> Mapping[str, Sequence[float]]:
    """Colours of one style. UserError when it does not exist."""
    styles = load_styles()
    if style not in styles:
        raise UserError(f"style {style!r} does not exist; choose one of {', '.join(styles)}")
    return styles[style]


def build(task: Task, style: str = "modern_1") -> mujoco.MjModel:
    """Compile the model of a task. UserError for a style that does not exist."""
    color = {name: [*rgb, 1.0] for name, rgb in colors(style).items()}
    spec = mujoco.MjSpec()
    spec.modelname = "kitchen"
    spec.option.timestep = PHYSICS_STEP_S
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    _room(spec, task, color)
    _robot(spec)
    if task.goal_name == "human":
        _person(spec, task)
    if task.shape is not None:
        _obstacle(spec, task, task.shape, color)
    _cameras(spec, task)
    return spec.compile()


def _room(spec: Any, task: Task, color: Mapping[str, list[float]]) -> None:
    layout = task.kitchen
    world = spec.worldbody
    w, d = layout.width, layout.depth
    world.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[w / 2, d / 2, 0.05],
        pos=[w / 2, d / 2, 0],
        rgba=color["floor"],
    )
    lamp = world.add_light(pos=[w / 2, d / 2, 4.0], dir=[0.2, 0.1, -1], diffuse=[0.4, 0.4, 0.4], specular=[0, 0, 0])
    if hasattr(lamp, "directional"):
        lamp.directional = True
    else:  # later versions of MuJoCo
        lamp.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1280, 1280
    spec.visual.headlight.ambient = [0.45, 0.45, 0.45]
    spec.visual.headlight.diffuse = [0.25, 0.25, 0.25]
    spec.visual.headlight.specular = [0.0, 0.0, 0.0]
    walls = {
        "back": ([w / 2, -0.05, 1.0], [w / 2 + 0.1, 0.05, 1.0]),
        "front": ([w / 2, d + 0.05, 1.0], [w / 2 + 0.1, 0.05, 1.0]),
        "left": ([-0.05, d / 2, 1.0], [0.05, d / 2, 1.0]),
        "right": ([w + 0.05, d / 2, 1.0], [0.05, d / 2, 1.0]),
    }
    for name, (pos, size) in walls.items():
        world.add_geom(name=f"furniture/wall_{name}", type=_GEOM["box"], pos=pos, size=size, rgba=color["wall"])
    for name, box in layout.boxes().items():
        world.add_geom(
            name=f"furniture/{name}",
            type=_GEOM["box"],
            pos=[sum(box.x) / 2, sum(box.y) / 2, box.base + box.height / 2],
            size=[(box.x[1] - box.x[0]) / 2, (box.y[1] - box.y[0]) / 2, box.height / 2],
            rgba=color["counter" if name.startswith("counter") else "fixture"],
        )


def _parts(body: Any, shape: Obstacle, name: str) -> None:
    volume = [8 * a * b * c for a, b, c in (p.half_extents() for p in shape.parts)]
    for i, part in enumerate(shape.parts):
        size = list(part.size) + [0.0] * (3 - len(part.size))
        body.add_geom(
            name=f"{name}/{i}",
            type=_GEOM[part.kind],
            size=size,
            pos=list(part.at),
            quat=_AXIS_QUATERNION[part.axis],
            mass=shape.mass * volume[i] / sum(volume),
            rgba=[*shape.color, 1.0],
            friction=[0.6, 0.005, 0.0001],
            condim=4,
        )


def _obstacle(spec: Any, task: Task, shape: Obstacle, color: Mapping[str, list[float]]) -> None:
    x, y, z, yaw = task.obstacle_pose
    quaternion = _yaw_quaternion(yaw)
    if shape.table:
        table = spec.worldbody.add_body(name=TABLE_BODY, pos=[x, y, 0.0], quat=quaternion)
        table.add_freejoint(name="table_free")
        half, leg = TABLE_WIDTH_M / 2, 0.012
        table.add_geom(
            name="table/top",
            type=_GEOM["box"],
            size=[half, half, TABLE_THICKNESS_M / 2],
            pos=[0, 0, TABLE_TOP_M - TABLE_THICKNESS_M / 2],
            mass=TABLE_MASS_KG * 0.7,
            rgba=color["table"],
        )
        height = (TABLE_TOP_M - TABLE_THICKNESS_M) / 2
        for i, (sx, sy) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
            table.add_geom(
                name=f"table/leg_{i}",
                type=_GEOM["box"],
                size=[leg, leg, height],
                pos=[sx * (half - leg), sy * (half - leg), height],
                mass=TABLE_MASS_KG * 0.3 / 4,
                rgba=color["table"],
            )
    body = spec.worldbody.add_body(name=OBSTACLE_BODY, pos=[x, y, z], quat=quaternion)
    body.add_freejoint(name="obstacle_free")
    _parts(body, shape, task.obstacle)


def _person(spec: Any, task: Task) -> None:
    fixture = task.kitchen.fixtures["human"]
    assert fixture.at is not None
    yaw = fixture.approach.yaw + math.pi  # the person looks at whoever arrives
    body = spec.worldbody.add_body(
        name=PERSON_BODY, pos=[*fixture.at, 0.0], quat=[float(v) for v in _yaw_quaternion(yaw)]
    )
    body.add_freejoint(name="person_free")
    _parts(body, load_obstacles()["human"], PERSON_BODY)


def _robot(spec: Any) -> None:
    length, width, height = BASE_SIZE_M
    dark, light = [0.15, 0.15, 0.17, 1.0], [0.90, 0.90, 0.92, 1.0]
    base = spec.worldbody.add_body(name="robot/base")
    for name, axis, kind in zip(
        BASE_JOINTS,
        ([1, 0, 0], [0, 1, 0], [0, 0, 1]),
        (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE),
        strict=True,
    ):
        base.add_joint(name=name, type=kind, axis=axis)
    base.add_geom(
        name="robot/base",
        type=_GEOM["box"],
        size=[length / 2, width / 2, height / 2],
        pos=[0, 0, GROUND_CLEARANCE_M + height / 2],
        mass=BASE_MASS_KG,
        rgba=dark,
    )
    top = GROUND_CLEARANCE_M + height
    base.add_geom(
        name="robot/base_mount",
        type=_GEOM["box"],
        size=[0.08, 0.08, 0.05],
        pos=[-0.12, 0, top + 0.05],
        mass=4.0,
        rgba=light,
    )
    # the arm, folded over the base: its home is the zero of every joint
    links: list[tuple[str, Any, Any, dict[str, Any], float]] = [
        ("robot/arm_pan", [-0.12, 0, top + 0.15], [0, 0, 1], {"type": _GEOM["cylinder"], "size": [0.06, 0.04, 0]}, 2.5),
        (
            "robot/arm_lift",
            [0, 0, 0.06],
            [0, 1, 0],
            {"type": _GEOM["capsule"], "fromto": [0, 0, 0.03, -0.05, 0, 0.25], "size": [0.05, 0, 0]},
            2.5,
        ),
        (
            "robot/arm_elbow",
            [-0.05, 0, 0.27],
            [0, 1, 0],
            {"type": _GEOM["capsule"], "fromto": [0.03, 0, 0, 0.24, 0, 0.04], "size": [0.045, 0, 0]},
            2.0,
        ),
        (
            "robot/arm_wrist",
            [0.27, 0, 0.04],
            [0, 1, 0],
            {"type": _GEOM["capsule"], "fromto": [0, 0, 0, 0.03, 0, -0.09], "size": [0.04, 0, 0]},
            1.2,
        ),
    ]
    body = base
    for name, pos, turn, geom, mass in links:
        body = body.add_body(name=name, pos=pos)
        body.add_joint(name=name.split("/")[1], type=mujoco.mjtJoint.mjJNT_HINGE, axis=turn, damping=1.0)
        body.add_geom(name=name, mass=mass, rgba=light, **geom)
    hand = body.add_body(name="robot/hand", pos=[0.035, 0, -0.17])
    hand.add_joint(name="arm_roll", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1], damping=0.5)
    hand.add_geom(name="robot/hand", type=_GEOM["box"], size=[0.03, 0.08, 0.025], mass=0.5, rgba=dark)
    for side, sign in (("left", 1), ("right", -1)):
        hand.add_geom(
            name=f"robot/hand_finger_{side}",
            type=_GEOM["box"],
            size=[0.01, 0.008, 0.03],
            pos=[0, sign * 0.04, -0.055],
            mass=0.05,
            rgba=light,
        )
    hand.add_site(name=EE_SITE, pos=[0, 0, -0.085])
    for joint, gain, limit in zip(
        BASE_JOINTS, (6000.0, 6000.0, 600.0), (BASE_FORCE_N, BASE_FORCE_N, BASE_TORQUE_NM), strict=True
    ):
        motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        _affine(motor, gain, [0.0, 0.0, -gain])
        motor.forcelimited, motor.forcerange = True, [-limit, limit]
    for joint in ARM_JOINTS:
        motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        _affine(motor, 1500.0, [0.0, -1500.0, -80.0])
        motor.forcelimited, motor.forcerange = True, [-87.0, 87.0]


def _affine(motor: Any, gain: float, bias: list[float]) -> None:
    """A servo: force = gain * command + bias . (1, position, velocity)."""
    motor.gaintype, motor.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
    motor.gainprm[0] = gain
    motor.biasprm[:3] = bias


def _cameras(spec: Any, task: Task) -> None:
    layout = task.kitchen
    spec.worldbody.add_camera(
        name="top",
        pos=[layout.width / 2, layout.depth / 2, 6.0],
        quat=[1, 0, 0, 0],
        orthographic=True,
        fovy=max(layout.width, layout.depth),
    )
    base = spec.body("robot/base")
    for name, y, turn in (("left", 0.2, 0.35), ("right", -0.2, -0.35)):
        # a camera looks along its own -z: turned to the base's +x, then to the side by `turn`
        base.add_camera(name=f"robot_{name}", pos=[0.2, y, 1.15], quat=_looking(turn, 0.35), fovy=70)
    spec.body("robot/hand").add_camera(name="robot_wrist", pos=[0.05, 0, 0.0], quat=[0, 1, 0, 0], fovy=70)


def _looking(yaw: float, down: float) -> list[float]:
    """Quaternion (w x y z) of a camera that looks along +x, turned left by ``yaw`` and down by ``down``."""
    c, s, cd, sd = math.cos(yaw), math.sin(yaw), math.cos(down), math.sin(down)
    right, up = np.array([s, -c, 0.0]), np.array([c * sd, s * sd, cd])
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.column_stack([right, up, np.cross(right, up)]).ravel())
    return [float(v) for v in quaternion]


def _yaw_quaternion(yaw: float) -> list[float]:
    return [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
