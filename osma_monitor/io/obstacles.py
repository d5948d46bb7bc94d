"""A map of obstacles as a small YAML file, for recordings that do not hold them.

    frame: map
    obstacles:
      - {id: vase_1, category: vase, position: [4.6, 7.6], shape: {primitive: cylinder, size: [0.15, 0.3]}}
      - id: anna
        category: human
        role: human
        position: [2.0, 1.5]
        yaw: 0.4
        shape: {primitive: box, size: [0.25, 0.2, 0.85]}

``position`` is the centre; without a height the obstacle stands on the floor (z = 0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from osma_monitor.core.robot import Primitive, Shape
from osma_monitor.core.signals.geometry import Primitive as Tilted
from osma_monitor.core.signals.geometry import shadow
from osma_monitor.core.signals.kinematics import yaw
from osma_monitor.core.signals.raw import CONTACT_UNKNOWN, Floats, Objects, RawFrame
from osma_monitor.io import yaml_files
from osma_monitor.io.clearance import Solid, distances, solid
from osma_monitor.io.faults import Place

_EXACT = {"extra": "forbid"}
#: Frames of a robot file's shapes that move with the base.
BASE_FRAMES = ("", "base", "base_link", "base_footprint")


@dataclass(frozen=True, slots=True)
class ObstacleShape:
    """A primitive; ``size`` in m: half sizes (box), radius (sphere), radius and half length (cylinder, capsule)."""

    __pydantic_config__ = _EXACT

    primitive: Primitive
    size: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that stands still."""

    __pydantic_config__ = _EXACT

    id: str
    shape: ObstacleShape
    position: tuple[float, float] | tuple[float, float, float]  #: m, centre
    category: str = ""
    role: Literal["obstacle", "human"] = "obstacle"
    yaw: float = 0.0  #: rad

    def centre(self) -> tuple[float, float, float]:
        """Centre with its height: on the floor where none is given."""
        if len(self.position) == 3:
            return self.position
        size = self.shape.size
        half = {"box": size[-1], "sphere": size[0], "cylinder": size[-1], "capsule": size[0] + size[-1]}
        return (*self.position[:2], half[self.shape.primitive])

    def solid(self) -> Solid:
        return solid(self.shape.primitive, self.shape.size, self.centre(), self.yaw)


@dataclass(frozen=True, slots=True)
class ObstacleMap:
    """Obstacles in one frame."""

    __pydantic_config__ = _EXACT

    obstacles: tuple[Obstacle, ...]
    frame: str = ""  #: empty: the frame of the odometry


def load_obstacles(path: Path | str) -> ObstacleMap:
    """Reads an obstacle file. Raises InputError naming file, line and value."""
    return yaml_files.load(path, ObstacleMap, "map of obstacles", rules)


def parse_obstacles(text: str, file: str = "<text>") -> ObstacleMap:
    """The same from text."""
    return yaml_files.parse(text, ObstacleMap, "map of obstacles", file, rules)


def rules(obstacles: ObstacleMap, above: Place = ()) -> Iterator[tuple[Place, str]]:
    """Shapes without size and ids that repeat, with their place below ``above``."""
    seen: set[str] = set()
    for number, obstacle in enumerate(obstacles.obstacles):
        place = (*above, "obstacles", number)
        if obstacle.id in seen:
            yield (*place, "id"), f"the id {obstacle.id!r} is named twice"
        seen.add(obstacle.id)
        try:
            obstacle.solid()
        except (ValueError, IndexError) as error:
            yield (*place, "shape"), f"{obstacle.id}: {error}"


def footprint_solids(shapes: Sequence[Shape]) -> list[Solid]:
    """The robot file's footprint as solids of the base frame; shapes of other frames (an arm) are left out."""
    return [_base_solid(s) for s in shapes if s.frame in BASE_FRAMES]


def _base_solid(shape: Shape) -> Solid:
    x, y, _, _ = shape.orientation
    if x == 0.0 and y == 0.0:
        return solid(shape.primitive, shape.size, shape.position, yaw(np.array(shape.orientation)))
    # a wheel or a tilted box: its shadow on the floor
    core, low, high, plane, space = shadow(Tilted(shape.primitive, shape.size, shape.position, shape.orientation))
    return Solid(core, low, high, plane, space)


@dataclass
class ObstacleField:
    """Adds the obstacles of a map to frames that have none, with their distance to the robot's footprint."""

    obstacles: ObstacleMap
    footprint: Sequence[Solid]
    _solids: list[list[Solid]] = field(init=False)
    _objects: Objects = field(init=False)

    def __post_init__(self) -> None:
        items = self.obstacles.obstacles
        self._solids = [[o.solid()] for o in items]
        half = np.array([o.yaw / 2.0 for o in items])
        zero = np.zeros(len(items))
        self._objects = Objects(
            tuple(o.id for o in items),
            tuple(o.category for o in items),
            tuple(o.role for o in items),
            np.array([o.centre() for o in items], np.float64).reshape(len(items), 3),
            np.stack([zero, zero, np.sin(half), np.cos(half)], axis=-1),
            np.full(len(items), np.nan),
            np.full(len(items), CONTACT_UNKNOWN, np.int8),
        )

    def add(self, frames: Sequence[RawFrame]) -> list[RawFrame]:
        """``frames`` with an objects part. Whether they touch is not known: an outline that overlaps is no contact."""
        position = np.array([_position(f) for f in frames]).reshape(len(frames), 3)
        orientation = np.array([_orientation(f) for f in frames]).reshape(len(frames), 4)
        if self.footprint:
            distance = distances(self.footprint, position, orientation, self._solids)
        else:
            distance = np.full((len(frames), len(self._solids)), np.nan)
        return [
            replace(f, objects=replace(self._objects, distance=row)) if f.objects is None else f
            for f, row in zip(frames, distance, strict=True)
        ]


def _position(frame: RawFrame) -> Floats:
    return np.full(3, np.nan) if frame.base is None else frame.base.position


def _orientation(frame: RawFrame) -> Floats:
    return np.full(4, np.nan) if frame.base is None else frame.base.orientation
