"""Kitchen layouts and obstacles as data: read from config/kitchen, checked, without MuJoCo.

A policy process builds its map from these, so nothing here may import the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, field_validator, model_validator

from osma_monitor.core.errors import UserError
from osma_monitor.resources import config_path
from sim_bridge.yaml_data import load

#: The paper's, which are RoboCasa's layouts 0, 2, 5, 7 and 8.
LAYOUTS = (0, 1, 2, 3, 4)
TIERS = ("low", "moderate", "high")

#: Table that carries the tabletop obstacles: width, height of its top, thickness of the top, mass (m, m, m, kg).
TABLE_WIDTH_M, TABLE_TOP_M, TABLE_THICKNESS_M, TABLE_MASS_KG = 0.25, 0.43, 0.03, 4.0
#: Base of the robot: length, width, height (m).
BASE_SIZE_M = (0.70, 0.50, 0.38)
#: Half-diagonal of the base (m): the radius that holds at any heading.
BASE_RADIUS_M = math.hypot(BASE_SIZE_M[0] / 2, BASE_SIZE_M[1] / 2)
#: Distance that the base's centre keeps from the clearance boundary on this robot (m), measured as in F.2 over 120
#: drives: mean 0.41, 5th to 95th percentile 0.35 to 0.43. The upper end: the clamp takes effect in nearly all drives.
R_BASE_M = 0.43

Range = tuple[float, float]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pose2(_Data):
    """Planar pose: m, m, rad."""

    x: float
    y: float
    yaw: float


class Box(_Data):
    """A box that stands on the floor, or on ``base``."""

    x: Range
    y: Range
    height: float
    base: float = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Box:
        if self.x[0] >= self.x[1] or self.y[0] >= self.y[1] or self.height <= 0:
            raise ValueError("needs x[0] < x[1], y[0] < y[1] and height > 0")
        return self


class Fixture(_Data):
    """Something that a robot is sent to: a box, or a person standing ``at`` a spot."""

    approach: Pose2
    x: Range | None = None
    y: Range | None = None
    height: float = 0.0
    base: float = 0.0
    at: tuple[float, float] | None = None

    @field_validator("approach", mode="before")
    @classmethod
    def _pose(cls, value: Any) -> Any:
        if isinstance(value, list) and len(value) == 3:
            return {"x": value[0], "y": value[1], "yaw": math.radians(value[2])}
        return value

    @property
    def box(self) -> Box | None:
        """Its box, None for a person."""
        if self.x is None or self.y is None:
            return None
        return Box(x=self.x, y=self.y, height=self.height, base=self.base)


class Layout(_Data):
    """One kitchen: the room is [0, width] x [0, depth], counters and fixtures stand in it."""

    name: str
    width: float
    depth: float
    counters: tuple[Box, ...]
    fixtures: dict[str, Fixture]

    def boxes(self) -> dict[str, Box]:
        """All static boxes by name, those on the floor and those on counters."""
        found = {f"counter_{i}": box for i, box in enumerate(self.counters)}
        found.update({name: f.box for name, f in self.fixtures.items() if f.box is not None})
        return found

    def floor_rectangles(self) -> list[tuple[float, float, float, float]]:
        """x0, x1, y0, y1 of everything that stands on the floor."""
        return [(*b.x, *b.y) for b in self.boxes().values() if b.base == 0.0]


class Part(_Data):
    """One primitive of an obstacle, in the obstacle's frame."""

    at: tuple[float, float, float]
    axis: Literal["x", "y", "z"] = "z"
    box: tuple[float, float, float] | None = None
    sphere: tuple[float] | None = None
    cylinder: tuple[float, float] | None = None
    capsule: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _one(self) -> Part:
        if sum(v is not None for v in (self.box, self.sphere, self.cylinder, self.capsule)) != 1:
            raise ValueError("needs exactly one of box, sphere, cylinder, capsule")
        return self

    @property
    def kind(self) -> str:
        """Name of the primitive."""
        return next(k for k in ("box", "sphere", "cylinder", "capsule") if getattr(self, k) is not None)

    @property
    def size(self) -> tuple[float, ...]:
        """Its sizes, as in the file."""
        size: tuple[float, ...] = getattr(self, self.kind)
        return size

    def half_extents(self) -> tuple[float, float, float]:
        """Half sizes of its bounding box in the obstacle's frame."""
        if self.box is not None:
            x, y, z = self.box
        elif self.sphere is not None:
            x = y = z = self.sphere[0]
        else:
            radius, half = self.size
            x, y, z = radius, radius, half + (radius if self.capsule is not None else 0.0)
        return {"x": (z, y, x), "y": (x, z, y), "z": (x, y, z)}[self.axis]


class Obstacle(_Data):
    """An obstacle: what it weighs and what it is made of."""

    mass: float
    color: tuple[float, float, float]
    parts: tuple[Part, ...]
    table: bool = False

    def footprint(self) -> list[tuple[float, float, float, float]]:
        """x0, x1, y0, y1 of every part from above, in the obstacle's frame; with its table where it stands on one."""
        found = []
        for part in self.parts:
            hx, hy, _ = part.half_extents()
            found.append((part.at[0] - hx, part.at[0] + hx, part.at[1] - hy, part.at[1] + hy))
        if self.table:
            half = TABLE_WIDTH_M / 2
            found.append((-half, half, -half, half))
        return found

    @property
    def height(self) -> float:
        """Its top over its own origin (m)."""
        return max(p.at[2] + p.half_extents()[2] for p in self.parts)


class Caution(_Data):
    """What a tier-table policy does near an obstacle of one tier."""

    clearance_m: float
    speed: float
    region_m: float
    acceleration: float


class Tier(_Data):
    """The obstacles of a tier, and how the tier-table policies treat it."""

    obstacles: tuple[str, ...]
    caution: Caution


class TierTable(_Data):
    """config/obstacle_tiers.yaml."""

    tiers: dict[Literal["low", "moderate", "high"], Tier]
    names: dict[str, str]

    def tier_of(self, obstacle: str) -> str:
        """Tier of an obstacle; "" for anything that is none of the 18."""
        return next((t for t, tier in self.tiers.items() if obstacle in tier.obstacles), "")


def read_layout(path: Path) -> Layout:
    """Read and check one layout file. UserError names file, key, value and what was expected."""
    return load(TypeAdapter(Layout), path, "layout0.yaml explains the keys")


@cache
def load_layout(number: int) -> Layout:
    """Layout 0 to 4 of the benchmark."""
    if number not in LAYOUTS:
        raise UserError(f"layout {number} does not exist; choose one of {', '.join(map(str, LAYOUTS))}")
    return read_layout(config_path("kitchen", f"layout{number}.yaml"))


@cache
def load_obstacles() -> Mapping[str, Obstacle]:
    """The obstacles by name."""
    path = config_path("kitchen", "obstacles.yaml")
    return load(TypeAdapter(dict[str, Obstacle]), path, "its first lines explain the keys")


@cache
def load_tiers() -> TierTable:
    """The caution tiers of config/obstacle_tiers.yaml."""
    return load(TypeAdapter(TierTable), config_path("obstacle_tiers.yaml"), "its first lines explain the keys")
