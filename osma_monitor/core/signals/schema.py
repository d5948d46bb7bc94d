"""The signal schema: the one table of every scalar that clauses and metrics read.

Each row says the signal's name, unit, kind, the raw parts that it needs, and what it is. Every other place (deriver,
linter,
store, docs) asks this table; its order is the column order of :class:`SignalFrame` and of the episode log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["scalar", "gate", "flag"]


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """One signal. ``needs`` names raw parts and qualities of them (``objects.target``: an object of that role)."""

    name: str
    unit: str
    kind: Kind
    needs: tuple[str, ...]
    description: str
    source: str = ""


_ROWS: tuple[SignalSpec, ...] = (
    # where the base is: stored so that motion features and path lengths never need the raw frames
    SignalSpec("base_x", "m", "scalar", ("base",), "base position, world x", "REP-105"),
    SignalSpec("base_y", "m", "scalar", ("base",), "base position, world y", "REP-105"),
    SignalSpec("base_yaw", "rad", "scalar", ("base",), "base heading about world z", "REP-103"),
    SignalSpec(
        "base_speed", "m/s", "scalar", ("base.velocity",), "planar speed of the base", "nav_msgs/Odometry twist"
    ),
    SignalSpec(
        "base_yaw_rate", "rad/s", "scalar", ("base.velocity",), "turning rate of the base", "nav_msgs/Odometry twist"
    ),
    # obstacles
    SignalSpec(
        "obstacle_distance",
        "m",
        "scalar",
        ("objects.obstacle",),
        "signed surface distance between robot and nearest obstacle or human",
        "OSMA-Bench C.3",
    ),
    SignalSpec(
        "obstacle_contact",
        "1",
        "flag",
        ("objects.obstacle",),
        "the robot touches an obstacle or human",
        "OSMA-Bench C.3",
    ),
    SignalSpec(
        "human_distance",
        "m",
        "scalar",
        ("objects.human",),
        "signed surface distance to the nearest living thing",
        "ISO 13855",
    ),
    SignalSpec(
        "separation_margin",
        "m",
        "scalar",
        ("objects.human", "base.velocity"),
        "human_distance minus the protective separation distance at the current speed",
        "ISO/TS 15066 5.5.4",
    ),
    # contact forces (SafeVLA-Bench Tables 23, 24, 32)
    SignalSpec(
        "contact_force_max",
        "N",
        "scalar",
        ("contacts",),
        "peak force over all retained pairs",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "arm_furniture_contact_force",
        "N",
        "scalar",
        ("contacts",),
        "peak force, arm or gripper on furniture",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "target_furniture_contact_force",
        "N",
        "scalar",
        ("contacts",),
        "peak force, target object on furniture",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "robot_human_force", "N", "scalar", ("contacts",), "peak force, robot on a living thing", "ISO/TS 15066 Annex A"
    ),
    # objects
    SignalSpec(
        "non_target_disp_max",
        "m",
        "scalar",
        ("objects.bystander",),
        "largest displacement of a bystander object from its first position",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "target_obj_tilt_world_deg",
        "deg",
        "scalar",
        ("objects.target",),
        "angle between the target's body z axis and its first direction",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "obj_above_table",
        "m",
        "scalar",
        ("objects.target", "gripper"),
        "target height above its lift baseline",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec("gripper_contact", "1", "gate", ("gripper",), "the fingers hold something", "SafeVLA-Bench Table 32"),
    SignalSpec(
        "transport",
        "1",
        "gate",
        ("objects.target", "gripper"),
        "gripper contact and the target more than 0.05 m up",
        "SafeVLA-Bench C.3",
    ),
    # execution
    SignalSpec(
        "max_joint_torque", "N m", "scalar", ("joints.effort",), "largest arm joint torque", "SafeVLA-Bench Table 24"
    ),
    SignalSpec(
        "self_collision", "1", "flag", ("contacts",), "an arm-arm contact pair is reported", "SafeVLA-Bench Table 24"
    ),
    # diagnostics, never scored
    SignalSpec(
        "target_obj_speed", "m/s", "scalar", ("objects.target",), "speed of the target object", "SafeVLA-Bench Table 24"
    ),
    SignalSpec(
        "release_speed",
        "m/s",
        "scalar",
        ("objects.target", "gripper"),
        "target speed while not gripped",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "eef_speed", "m/s", "scalar", ("ee",), "end-effector speed, 5-step rolling mean", "SafeVLA-Bench Table 24"
    ),
    SignalSpec(
        "eef_acc",
        "m/s^2",
        "scalar",
        ("ee",),
        "end-effector acceleration, 5-step rolling mean",
        "SafeVLA-Bench Table 24",
    ),
    SignalSpec(
        "eef_jerk", "m/s^3", "scalar", ("ee",), "end-effector jerk, 5-step rolling mean", "SafeVLA-Bench Table 24"
    ),
    SignalSpec(
        "ungripped_lift",
        "m",
        "scalar",
        ("objects.target", "gripper"),
        "height of the target above its latest grasp's baseline while not gripped, 0 while gripped or never gripped",
        "SafeVLA-Bench C.6",
    ),
    SignalSpec(
        "robot_contact_force",
        "N",
        "scalar",
        ("contacts",),
        "peak force between the robot and anything that is not the robot",
        "SafeVLA-Bench A.3",
    ),
    # extensions, off until a suite or configuration switches their clauses on
    SignalSpec(
        "human_force_ratio",
        "1",
        "scalar",
        ("contacts",),
        "largest force on a living thing over the limit of the body region that it acts on",
        "ISO/TS 15066 Table A.2",
    ),
    SignalSpec(
        "human_pressure_ratio",
        "1",
        "scalar",
        ("contacts", "parameters.contact_area"),
        "largest pressure on a living thing over the limit of the body region that it acts on",
        "ISO/TS 15066 Table A.2",
    ),
    SignalSpec(
        "ee_keep_out_margin",
        "m",
        "scalar",
        ("ee", "parameters.keep_out"),
        "signed distance of the end effector to the nearest keep-out box",
        "ISO 10218-2 (restricted space)",
    ),
    SignalSpec(
        "base_keep_out_margin",
        "m",
        "scalar",
        ("base", "parameters.keep_out"),
        "signed distance of the base's circle to the nearest keep-out box, on the floor plane",
        "ISO 13482 (protected space)",
    ),
    SignalSpec(
        "perception_age",
        "s",
        "scalar",
        ("objects",),
        "time since the objects were last reported with at least one known pose",
        "ISO 13482 (localization and sensing)",
    ),
)

SCHEMA: dict[str, SignalSpec] = {row.name: row for row in _ROWS}
SIGNALS: tuple[str, ...] = tuple(SCHEMA)
INDEX: dict[str, int] = {name: i for i, name in enumerate(SIGNALS)}
GATE_SIGNALS: frozenset[str] = frozenset(row.name for row in _ROWS if row.kind == "gate")


@dataclass(frozen=True, slots=True, eq=False)
class SignalFrame:
    """The signals of one frame, float64 in schema order; NaN is unknown. Flags and gates are 0 or 1."""

    stamp_ns: int
    values: NDArray[np.float64]  #: (len(SIGNALS),)
    obstacle: str = ""  #: id of the nearest obstacle, empty when none is known

    def __getitem__(self, name: str) -> float:
        return float(self.values[INDEX[name]])
