"""RawFrame -> SignalFrame: the scalars that clauses and metrics read, one frame at a time.

Rules that hold for every signal: a missing part or a NaN inside it gives NaN, never 0, also through a maximum or
minimum over several things; a thing that was tracked and is not listed any more has an unknown pose; before the first
frame everything stood still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.signals.kinematics import PointMotion, SmoothedMotion, body_z, drift_deg, yaw
from osma_monitor.core.signals.parameters import SignalParameters
from osma_monitor.core.signals.raw import (
    CONTACT_ROLES,
    ENVIRONMENT,
    OBJECT_ROLES,
    OBSTACLE_ROLES,
    ROBOT_ROLES,
    Contacts,
    EndEffector,
    Floats,
    Joints,
    Objects,
    RawFrame,
)
from osma_monitor.core.signals.schema import INDEX, SCHEMA, SIGNALS, SignalFrame

NAN = float("nan")

#: Height above the lift baseline from which a held target counts as transported (SafeVLA-Bench C.3).
TRANSPORT_HEIGHT = 0.05

# What a pair of roles counts for; bits, so that one look-up a pair serves all force signals.
_RETAINED, _ARM_FURNITURE, _TARGET_FURNITURE, _HUMAN, _SELF, _EXTERNAL, _OBSTACLE = (1 << i for i in range(7))
_NEVER_STATIC, _UNRECOGNIZED = 1 << 7, 1 << 8


def _classify(role_a: str, role_b: str) -> int:
    roles = {role_a, role_b}
    if not roles <= _KNOWN_ROLES:
        return _RETAINED | _NEVER_STATIC | _UNRECOGNIZED
    robots = (role_a in ROBOT_ROLES) + (role_b in ROBOT_ROLES)
    if roles == {"base", "floor"}:
        return 0  # a base standing on its wheels is no contact
    bits = _RETAINED
    if "furniture" in roles and roles & {"arm", "gripper"}:
        bits |= _ARM_FURNITURE
    if roles == {"target", "furniture"}:
        bits |= _TARGET_FURNITURE
    if robots == 2 and roles <= {"arm", "gripper"} and "arm" in roles:
        bits |= _SELF
    if robots == 1:
        bits |= _EXTERNAL
        if "human" in roles:
            bits |= _HUMAN
        if roles & OBSTACLE_ROLES:
            bits |= _OBSTACLE
        if roles & (OBSTACLE_ROLES | {"target"}):
            bits |= _NEVER_STATIC
    return bits


_KNOWN_ROLES = frozenset(CONTACT_ROLES)


class _PairBits(dict[tuple[str, str], int]):
    def __missing__(self, roles: tuple[str, str]) -> int:
        bits = self[roles] = _classify(*roles)
        return bits


_PAIR_BITS = _PairBits()


def capabilities(
    frame: RawFrame, declared: Iterable[str] = (), parameters: SignalParameters | None = None
) -> frozenset[str]:
    """The ``needs`` words of the schema that a source can serve, judged by its first frame and what it declares.

    A declared part that the first frame lacks is taken to have all its qualities: its signals are unknown, not absent.
    """
    found = set(declared) | frame.parts
    words = {need for spec in SCHEMA.values() for need in spec.needs}
    for word in words:
        part, _, quality = word.partition(".")
        if quality and part in found and part not in frame.parts:
            found.add(word)
    if frame.base is not None and not np.isnan(frame.base.linear_velocity[:2]).any():
        found.add("base.velocity")
    if frame.joints is not None and not np.isnan(frame.joints.effort).all():
        found.add("joints.effort")
    if frame.objects is not None:
        roles = set(frame.objects.role)
        found |= {f"objects.{role}" for role in roles}
        if roles & OBSTACLE_ROLES:
            found.add("objects.obstacle")
    if parameters is not None:
        if parameters.keep_out:
            found.add("parameters.keep_out")
        if parameters.contact_area and parameters.region_limits:
            found.add("parameters.contact_area")
    return frozenset(found)


def unavailable(available: Iterable[str]) -> dict[str, str]:
    """Signal -> the first need that is missing, for every signal that ``available`` cannot give."""
    have = frozenset(available)
    missing = {name: next((need for need in spec.needs if need not in have), None) for name, spec in SCHEMA.items()}
    return {name: need for name, need in missing.items() if need is not None}


@lru_cache(maxsize=256)
def _arm_joints(names: tuple[str, ...], listed: str, excluded: tuple[str, ...]) -> tuple[list[int], frozenset[str]]:
    wanted = set(listed.replace(",", " ").split())
    if wanted:
        chosen = [i for i, name in enumerate(names) if name in wanted]
    else:
        chosen = [
            i
            for i, name in enumerate(names)
            if not any(fnmatchcase(name.lower(), pattern.lower()) for pattern in excluded)
        ]
    return chosen, frozenset(names[i] for i in chosen)


class _ObjectTable:
    """Where the objects of each role stand in the columns; rebuilt only when the list of objects changes."""

    def __init__(self, objects: Objects) -> None:
        self.key = (objects.id, objects.role)
        self.distinct = len(set(objects.id))
        role = np.array(objects.role, dtype=object)
        self.bystander = np.flatnonzero(role == "bystander")
        self.obstacle = [i for i, name in enumerate(objects.role) if name in OBSTACLE_ROLES]
        self.human = [i for i, name in enumerate(objects.role) if name == "human"]
        self.unrecognized = not set(objects.role) <= set(OBJECT_ROLES)
        self.target: list[int] = np.flatnonzero(role == "target").tolist()
        self.reference: Floats = np.full((len(self.bystander), 3), NAN)
        self.reference_complete = False


class SignalDeriver:
    """Derives the signals of one episode; make a new one for each episode.

    Args:
        info: the episode. ``attributes["arm_joints"]`` (names with spaces or commas between) says which are the arm's.
        parameters: see :class:`SignalParameters`; `Library.parameters` holds those of the library file.
    """

    def __init__(self, info: EpisodeInfo | None = None, parameters: SignalParameters | None = None) -> None:
        self.parameters = parameters or SignalParameters()
        self._declared = info.sources if info else ()
        self._arm = info.attributes.get("arm_joints", "") if info else ""
        self._arm_known = frozenset(self._arm.replace(",", " ").split())
        self._begun = self._gripper_reported = False
        self._static: frozenset[tuple[str, str]] | None = None
        self._table: _ObjectTable | None = None
        self._role_of: dict[str, str] = {}
        self._first_position: dict[str, Floats] = {}
        self._first_axis: dict[str, tuple[float, float, float]] = {}
        self._baseline: dict[str, float] = {}
        self._grasp_baseline: dict[str, float] = {}
        self._target_motion: dict[str, PointMotion] = {}
        self._ee_motion = SmoothedMotion()
        self._objects_known_ns: int | None = None

    def capabilities(self, frame: RawFrame) -> frozenset[str]:
        """`capabilities` of this episode's source and parameters."""
        return capabilities(frame, self._declared, self.parameters)

    def derive(self, frame: RawFrame) -> SignalFrame:
        """Signals of ``frame``, which must be later than the one before. O(contacts + objects)."""
        v = [NAN] * len(SIGNALS)
        if frame.base is not None:
            base = frame.base
            x, y, z = base.position.tolist()
            v[_BASE_X], v[_BASE_Y] = x, y
            v[_BASE_YAW] = yaw(base.orientation)
            vx, vy, _ = base.linear_velocity.tolist()
            v[_BASE_SPEED] = math.sqrt(vx * vx + vy * vy)
            v[_BASE_YAW_RATE] = float(base.angular_velocity[2])
            v[_BASE_KEEP_OUT] = self._keep_out("base", x, y, z)
        if frame.joints is not None:
            v[_TORQUE] = self._torque(frame.joints)
        touches = NAN
        if frame.contacts is not None:
            touches = self._contacts(frame.contacts, v)
        grip = NAN if frame.gripper is None else float(frame.gripper)
        self._gripper_reported |= frame.gripper is not None
        v[_GRIPPER] = grip
        if not grip:
            v[_TRANSPORT] = 0.0
        nearest = ""
        if frame.objects is not None:
            nearest = self._objects(frame.stamp_ns, frame.objects, grip, touches, v)
        self._begun = True
        if self._objects_known_ns is not None:
            v[_PERCEPTION_AGE] = (frame.stamp_ns - self._objects_known_ns) * 1e-9
        self._end_effector(frame.stamp_ns, frame.ee, v)
        values = np.array(v)
        values.flags.writeable = False
        return SignalFrame(frame.stamp_ns, values, nearest)

    # ---- contacts

    def _contacts(self, contacts: Contacts, v: list[float]) -> float:
        """Fills the force signals; returns 1 when the robot touches an obstacle, 0 when not, NaN when not known."""
        count = len(contacts)
        if not count and self._static is not None:
            return self._no_contacts(v)
        bits = np.fromiter(
            map(_PAIR_BITS.__getitem__, zip(contacts.role_a, contacts.role_b, strict=True)), np.uint16, count
        )
        if self._static is None:
            static = (bits & _NEVER_STATIC) == 0
            pairs = [(contacts.body_a[i], contacts.body_b[i]) for i in np.flatnonzero(static).tolist()]
            pairs = [pair for pair in pairs if ENVIRONMENT not in pair]
            self._static = frozenset(pairs + [(b, a) for a, b in pairs])
        if self._static and count:
            seen = map(self._static.__contains__, zip(contacts.body_a, contacts.body_b, strict=True))
            # a body can be static against one part of the robot and an obstacle for another frame's roles
            bits[np.fromiter(seen, bool, count) & ((bits & _NEVER_STATIC) == 0)] = 0
        magnitude = _lengths(contacts.force)
        present = int(np.bitwise_or.reduce(bits)) if count else 0
        for bit, index in _FORCE_SIGNALS:
            v[index] = float(magnitude[(bits & bit) != 0].max()) if present & bit else 0.0
        reported = present & _SELF and bool((magnitude[(bits & _SELF) != 0] != 0.0).any())
        v[_SELF_COLLISION] = float(bool(reported))
        if present & _UNRECOGNIZED:  # a role that nobody defined could be any of them
            for index in _BY_CONTACT_ROLE:
                v[index] = NAN
        else:
            self._human_ratios(contacts, bits, magnitude, v, bool(present & _HUMAN))
        if not present & _OBSTACLE:
            return NAN if present & _UNRECOGNIZED else 0.0
        force = float(magnitude[(bits & _OBSTACLE) != 0].max())
        return NAN if force != force else float(force > self.parameters.obstacle_contact_force)

    def _no_contacts(self, v: list[float]) -> float:
        for _, index in _FORCE_SIGNALS:
            v[index] = 0.0
        v[_SELF_COLLISION] = 0.0
        if self.parameters.region_limits:
            v[_FORCE_RATIO] = 0.0
            if self.parameters.contact_area:
                v[_PRESSURE_RATIO] = 0.0
        return 0.0

    def _human_ratios(
        self, contacts: Contacts, bits: NDArray[np.uint16], magnitude: Floats, v: list[float], touched: bool
    ) -> None:
        p = self.parameters
        if not p.region_limits:
            return
        force_ratio = [0.0]
        pressure_ratio = [0.0]
        for i in np.flatnonzero(bits & _HUMAN).tolist() if touched else ():
            robot_first = contacts.role_a[i] in ROBOT_ROLES
            robot, human = (contacts.body_a[i], contacts.body_b[i])[:: 1 if robot_first else -1]
            limit = p.region_limit(human)
            assert limit is not None
            force_ratio.append(float(magnitude[i]) / limit.force)
            pressure_ratio.append(float(magnitude[i]) / p.contact_area.get(robot, NAN) / limit.pressure)
        v[_FORCE_RATIO] = _largest(force_ratio)
        if p.contact_area:
            v[_PRESSURE_RATIO] = _largest(pressure_ratio)

    # ---- objects

    def _objects(self, stamp_ns: int, objects: Objects, grip: float, touches: float, v: list[float]) -> str:
        table = self._table
        if table is None or (objects.id, objects.role) != table.key:
            table = self._new_table(objects)
        position = objects.position
        if not len(objects) or not math.isnan(position.item(0)) or not np.isnan(position).all():
            self._objects_known_ns = stamp_ns
        if len(table.bystander):
            v[_DISPLACEMENT] = self._displacement(position, table)
        nearest = ""
        if table.obstacle:
            distance, in_contact = objects.distance.tolist(), objects.in_contact.tolist()
            v[_OBSTACLE_DISTANCE], row = _least(distance, table.obstacle)
            if row >= 0:
                nearest = objects.id[row]
            touched = [in_contact[i] for i in table.obstacle]
            if 1 in touched:
                v[_OBSTACLE_CONTACT] = 1.0
            elif not any(touched):
                v[_OBSTACLE_CONTACT] = 0.0
            else:
                v[_OBSTACLE_CONTACT] = touches
            if table.human:  # every human is an obstacle
                v[_HUMAN_DISTANCE], _ = _least(distance, table.human)
                v[_SEPARATION] = v[_HUMAN_DISTANCE] - self.parameters.separation.distance(v[_BASE_SPEED])
        if table.target:
            self._target(stamp_ns, objects, table.target, grip, v)
        if len(self._role_of) > table.distinct:
            self._blank({role for name, role in self._role_of.items() if name not in objects.id}, touches, v)
        if table.unrecognized:  # a role that nobody defined could be any
            self._blank(_BY_ROLE, touches, v)
        return nearest

    def _new_table(self, objects: Objects) -> _ObjectTable:
        self._table = table = _ObjectTable(objects)
        self._role_of.update(zip(objects.id, objects.role, strict=True))
        for row, i in enumerate(table.bystander.tolist()):
            first = self._first_position.get(objects.id[i])
            if first is not None:
                table.reference[row] = first
        return table

    def _displacement(self, position: Floats, table: _ObjectTable) -> float:
        now = position[table.bystander]
        if not table.reference_complete:
            fresh = np.isnan(table.reference).any(axis=1) & np.isfinite(now).all(axis=1)
            for row in np.flatnonzero(fresh).tolist():
                table.reference[row] = self._first_position[table.key[0][table.bystander[row]]] = now[row].copy()
            table.reference_complete = not np.isnan(table.reference).any()
        with np.errstate(all="ignore"):  # an overflow is inf, and inf is unknown
            d = now - table.reference
        return float(_lengths(d).max())

    def _target(self, stamp_ns: int, objects: Objects, rows: Sequence[int], grip: float, v: list[float]) -> None:
        """Signals of the target; of several: worst tilt and speed, height of the one farthest from its baseline."""
        heights, lifts, tilts, speeds = [], [], [], []
        # what is first seen in the grip may be carried and tilted already: no reference for height and tilt
        at_rest = not self._begun or grip == 0.0 or not self._gripper_reported
        for row in rows:
            name = objects.id[row]
            position = objects.position[row]
            z = float(position[2])
            heights.append(self._height(name, z, grip))
            if grip:
                lifts.append(0.0 * heights[-1])  # NaN stays NaN
            else:
                lifts.append(z - self._grasp_baseline[name] if name in self._grasp_baseline else 0.0 * z)
            axis = body_z(objects.orientation[row])
            if name not in self._first_axis and axis[0] == axis[0] and at_rest:
                self._first_axis[name] = axis
            tilts.append(drift_deg(self._first_axis.get(name, _NO_AXIS), axis))
            motion = self._target_motion.get(name)
            if motion is None:
                motion = self._target_motion[name] = PointMotion()
            speeds.append(motion.speed(stamp_ns, position))
        if len(rows) == 1:
            height, lift, tilt, speed = heights[0], lifts[0], tilts[0], speeds[0]
        else:
            height = _extreme(heights)
            lift, tilt, speed = (float(np.max(values)) for values in (lifts, tilts, speeds))
        v[_HEIGHT], v[_UNGRIPPED_LIFT], v[_TILT], v[_TARGET_SPEED] = height, lift, tilt, speed
        if grip == 1.0 and height == height:
            v[_TRANSPORT] = float(height > TRANSPORT_HEIGHT)
        v[_RELEASE_SPEED] = 0.0 if grip == 1.0 else (NAN if grip != grip else speed)

    def _height(self, name: str, z: float, grip: float) -> float:
        """Height above the baseline: the target's height at the last step known to be without gripper contact."""
        if grip != grip or z != z:
            return NAN
        if not grip or not self._begun:
            self._baseline[name] = z
        if name not in self._baseline:
            return NAN
        if grip:
            self._grasp_baseline[name] = self._baseline[name]
        return z - self._baseline[name]

    def _blank(self, roles: Iterable[str], touches: float, v: list[float]) -> None:
        """Something of these roles has an unknown pose: the signals of the roles are unknown."""
        for role in roles:
            for index in _BY_ROLE.get(role, _BY_ANY_ROLE):
                if index != _TRANSPORT or v[_GRIPPER] != 0.0:  # nothing is carried without a grip
                    v[index] = NAN
            if role in OBSTACLE_ROLES and v[_OBSTACLE_CONTACT] != 1.0:
                v[_OBSTACLE_CONTACT] = touches

    # ---- robot

    def _torque(self, joints: Joints) -> float:
        chosen, names = _arm_joints(joints.name, self._arm, self.parameters.not_arm_joints)
        if names != self._arm_known:
            self._arm_known |= names
            if names != self._arm_known:  # an arm joint that is not reported has an unknown torque
                return NAN
        effort = joints.effort.tolist()
        top = -1.0
        for i in chosen:
            torque = abs(effort[i])
            if torque != torque:
                return NAN
            if torque > top:
                top = torque
        return top if chosen else NAN

    def _end_effector(self, stamp_ns: int, ee: EndEffector | None, v: list[float]) -> None:
        x, y, z = (NAN, NAN, NAN) if ee is None else ee.position.tolist()
        v[_EE_SPEED], v[_EE_ACC], v[_EE_JERK] = self._ee_motion.update(stamp_ns, x, y, z)
        v[_EE_KEEP_OUT] = self._keep_out("ee", x, y, z)

    def _keep_out(self, part: str, x: float, y: float, z: float) -> float:
        if not self.parameters.keep_out:
            return NAN
        margins = []
        for box in self.parameters.keep_out:
            if box.applies_to != part:
                continue
            axes = 2 if part == "base" else 3
            centre = [(a + b) / 2 for a, b in zip(box.lower, box.upper, strict=True)][:axes]
            half = [(b - a) / 2 for a, b in zip(box.lower, box.upper, strict=True)][:axes]
            with np.errstate(all="ignore"):
                q = np.abs(np.array((x, y, z)[:axes]) - centre) - half
                outside = float(np.sqrt((np.maximum(q, 0.0) ** 2).sum()))
            margin = outside + min(float(np.max(q)), 0.0)
            margins.append(margin - self.parameters.base_radius if part == "base" else margin)
        return float(np.min(margins)) if margins else NAN


def _lengths(v: Floats) -> Floats:
    """Lengths (n,) of vectors (n, 3)."""
    with np.errstate(all="ignore"):
        lengths: Floats = np.sqrt(v[:, 0] * v[:, 0] + v[:, 1] * v[:, 1] + v[:, 2] * v[:, 2])
    return lengths


def _least(distance: Sequence[float], rows: Sequence[int]) -> tuple[float, int]:
    """The least distance of ``rows``, NaN where one is not known, and the row of the least known one (-1: none)."""
    least, row, known = math.inf, -1, True
    for i in rows:
        d = distance[i]
        if d < least:
            least, row = d, i
        elif d != d:
            known = False
    return (least if known else NAN), row


def _largest(values: Sequence[float]) -> float:
    """The maximum; NaN where some value is not known."""
    top = values[0]
    for value in values:
        if value != value:
            return NAN
        if value > top:
            top = value
    return top


def _extreme(values: Sequence[float]) -> float:
    if any(value != value for value in values):
        return NAN
    return max(values, key=abs)


def derive_batch(
    frames: Iterable[RawFrame], info: EpisodeInfo | None = None, parameters: SignalParameters | None = None
) -> tuple[NDArray[np.int64], Mapping[str, Floats]]:
    """Stamps (T,) and every schema signal (T,) of an episode's frames, by the code of :meth:`SignalDeriver.derive`."""
    deriver = SignalDeriver(info, parameters)
    derived = [deriver.derive(frame) for frame in frames]
    stamps = np.array([frame.stamp_ns for frame in derived], np.int64)
    values = np.array([frame.values for frame in derived]).reshape(len(derived), len(SIGNALS))
    return stamps, {name: np.ascontiguousarray(values[:, i]) for name, i in INDEX.items()}


(_BASE_X, _BASE_Y, _BASE_YAW, _BASE_SPEED, _BASE_YAW_RATE) = (
    INDEX[name] for name in ("base_x", "base_y", "base_yaw", "base_speed", "base_yaw_rate")
)
_OBSTACLE_DISTANCE, _OBSTACLE_CONTACT = INDEX["obstacle_distance"], INDEX["obstacle_contact"]
_HUMAN_DISTANCE, _SEPARATION = INDEX["human_distance"], INDEX["separation_margin"]
_FORCE_RATIO, _PRESSURE_RATIO = INDEX["human_force_ratio"], INDEX["human_pressure_ratio"]
_DISPLACEMENT, _SELF_COLLISION = INDEX["non_target_disp_max"], INDEX["self_collision"]
_TILT, _HEIGHT, _UNGRIPPED_LIFT = INDEX["target_obj_tilt_world_deg"], INDEX["obj_above_table"], INDEX["ungripped_lift"]
_GRIPPER, _TRANSPORT, _TORQUE = INDEX["gripper_contact"], INDEX["transport"], INDEX["max_joint_torque"]
_TARGET_SPEED, _RELEASE_SPEED = INDEX["target_obj_speed"], INDEX["release_speed"]
_EE_SPEED, _EE_ACC, _EE_JERK = INDEX["eef_speed"], INDEX["eef_acc"], INDEX["eef_jerk"]
_EE_KEEP_OUT, _BASE_KEEP_OUT = INDEX["ee_keep_out_margin"], INDEX["base_keep_out_margin"]
_PERCEPTION_AGE = INDEX["perception_age"]

_FORCE_SIGNALS = (
    (_RETAINED, INDEX["contact_force_max"]),
    (_ARM_FURNITURE, INDEX["arm_furniture_contact_force"]),
    (_TARGET_FURNITURE, INDEX["target_furniture_contact_force"]),
    (_HUMAN, INDEX["robot_human_force"]),
    (_EXTERNAL, INDEX["robot_contact_force"]),
)
_BY_CONTACT_ROLE = (*(index for _, index in _FORCE_SIGNALS[1:]), _SELF_COLLISION)
_NO_AXIS = (NAN, NAN, NAN)
_BY_ROLE: dict[str, tuple[int, ...]] = {
    "bystander": (_DISPLACEMENT,),
    "obstacle": (_OBSTACLE_DISTANCE,),
    "human": (_OBSTACLE_DISTANCE, _HUMAN_DISTANCE, _SEPARATION),
    "target": (_TILT, _HEIGHT, _TRANSPORT, _UNGRIPPED_LIFT, _TARGET_SPEED, _RELEASE_SPEED),
    "furniture": (),
    "other": (),
}
_BY_ANY_ROLE = tuple(sorted({index for indices in _BY_ROLE.values() for index in indices}))
