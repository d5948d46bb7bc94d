"""RawFrame: what a robot or a simulator reports in one control step.

A part that the source cannot give is ``None``; a value inside a part that is not known is NaN. Absent is not zero.
SI units, REP-103 axes, quaternions x y z w. Lists of things are columns (parallel tuples and arrays), as in the
messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: The raw parts that a source can declare.
PARTS = ("base", "joints", "ee", "gripper", "contacts", "objects")

#: Roles of bodies in contacts.
CONTACT_ROLES = (
    "arm",
    "gripper",
    "base",
    "target",
    "bystander",
    "obstacle",
    "human",
    "furniture",
    "floor",
    "other",
)
#: Roles of a robot's own bodies.
ROBOT_ROLES = frozenset({"arm", "gripper", "base"})
#: Roles of tracked objects.
OBJECT_ROLES = ("target", "bystander", "obstacle", "human", "furniture", "other")
#: Object roles that a mobile base keeps its distance from.
OBSTACLE_ROLES = frozenset({"obstacle", "human"})

#: Second body of the pair that a force-torque sensor reports: it is there whether or not something touches, so it is
#: never a static contact.
ENVIRONMENT = "environment"

CONTACT_UNKNOWN, CONTACT_NO, CONTACT_YES = -1, 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """Pose of the mobile base in the world frame and its velocity in the base frame (REP-105)."""

    position: Floats  #: (3,) m
    orientation: Floats  #: (4,) x y z w
    linear_velocity: Floats  #: (3,) m/s, NaN where not measured
    angular_velocity: Floats  #: (3,) rad/s


@dataclass(frozen=True, slots=True, eq=False)
class Joints:
    """Joint state by name, in the order of the source."""

    name: tuple[str, ...]
    position: Floats  #: (n,) rad or m
    velocity: Floats  #: (n,) rad/s or m/s
    effort: Floats  #: (n,) N m or N


@dataclass(frozen=True, slots=True, eq=False)
class EndEffector:
    """Pose of the end effector in the world frame."""

    position: Floats  #: (3,) m
    orientation: Floats  #: (4,) x y z w


@dataclass(frozen=True, slots=True, eq=False)
class Contacts:
    """Contact pairs of the step (t - T, t]: the summed force of a pair where its magnitude peaked."""

    body_a: tuple[str, ...]
    body_b: tuple[str, ...]
    role_a: tuple[str, ...]
    role_b: tuple[str, ...]
    force: Floats  #: (n, 3) N, on body_b, world frame

    def __len__(self) -> int:
        return len(self.body_a)


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """Tracked objects of the step."""

    id: tuple[str, ...]
    category: tuple[str, ...]
    role: tuple[str, ...]
    position: Floats  #: (n, 3) m, NaN where not known
    orientation: Floats  #: (n, 4) x y z w
    distance: Floats  #: (n,) m, signed surface distance to the robot, NaN where not measured
    in_contact: NDArray[np.int8]  #: (n,) 1 touches the robot, 0 does not, -1 not known

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True, eq=False)
class RawFrame:
    """One control step. ``stamp_ns`` is the stamp of its inputs, int64 nanoseconds, never zero."""

    stamp_ns: int
    base: Base | None = None
    joints: Joints | None = None
    ee: EndEffector | None = None
    gripper: bool | None = None  #: the fingers report contact with an object
    contacts: Contacts | None = None
    objects: Objects | None = None

    @property
    def parts(self) -> frozenset[str]:
        """Names of the parts that are present."""
        return frozenset(name for name in PARTS if getattr(self, name) is not None)


def vector(values: Sequence[float] | Floats) -> Floats:
    """``values`` as a read-only float64 vector."""
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


NO_CONTACTS = Contacts((), (), (), (), np.zeros((0, 3)))
NO_OBJECTS = Objects((), (), (), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int8))


def same(a: Any, b: Any) -> bool:
    """Whether two frames (or parts, records, arrays) are equal to the last bit; NaN equals NaN."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        return bool(a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if type(a) is not type(b):
        return False
    if hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b))
