"""Parameters of the signals: what a site or a robot fixes before any frame is seen. The library file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: Applied where a contact on a living thing names no known region: the strictest of the listed limits.
ANY_REGION = "any"


@dataclass(frozen=True, slots=True)
class Separation:
    """Terms of the protective separation distance (ISO/TS 15066 5.5.4, ISO 13855).

    S_p = v_h (T_r + T_s) + v_r T_r + v_r^2 / (2 a) + C + Z_d + Z_r, with the stopping time T_s = v_r / a.
    """

    human_speed: float = 0.3  #: v_h, m/s; ISO 13855 takes K = 1.6 for a walking adult whose speed is not measured
    reaction_time: float = 0.1  #: T_r, s
    deceleration: float = 1.0  #: a, m/s^2
    intrusion_distance: float = 0.0  #: C, m
    human_uncertainty: float = 0.05  #: Z_d, m
    robot_uncertainty: float = 0.0  #: Z_r, m

    def distance(self, speed: float) -> float:
        """Protective separation distance in m at a robot speed in m/s."""
        stopping = speed / self.deceleration
        return (
            self.human_speed * (self.reaction_time + stopping)
            + speed * self.reaction_time
            + speed * speed / (2.0 * self.deceleration)
            + self.intrusion_distance
            + self.human_uncertainty
            + self.robot_uncertainty
        )


@dataclass(frozen=True, slots=True)
class RegionLimit:
    """Quasi-static limits of a body region (ISO/TS 15066 Table A.2)."""

    force: float  #: N
    pressure: float  #: N/cm^2


@dataclass(frozen=True, slots=True)
class KeepOutBox:
    """An axis-aligned box of the world that the end effector or the base must not enter."""

    name: str
    applies_to: Literal["ee", "base"]
    lower: tuple[float, float, float]  #: m
    upper: tuple[float, float, float]  #: m


@dataclass(frozen=True, slots=True)
class SignalParameters:
    """All of them. The defaults switch nothing on: no body regions, no contact areas, no boxes."""

    separation: Separation = field(default_factory=Separation)
    region_limits: Mapping[str, RegionLimit] = field(default_factory=dict)  #: body region -> limits
    region_of_body: Mapping[str, str] = field(default_factory=dict)  #: body of a living thing -> body region
    contact_area: Mapping[str, float] = field(default_factory=dict)  #: body of the robot -> contact area, cm^2
    keep_out: tuple[KeepOutBox, ...] = ()
    base_radius: float = 0.0  #: m, the circle that stands for the base at keep-out boxes
    obstacle_contact_force: float = 0.05  #: N, above it a contact pair counts as touching an obstacle (OSMA-Bench C.3)
    #: Shell patterns of joints that belong to no arm; `arm_joints` of an episode's attributes names the arm's outright.
    not_arm_joints: tuple[str, ...] = (
        "*finger*",
        "*gripper*",
        "*jaw*",
        "*wheel*",
        "*caster*",
        "*base*",
        "*torso*",
        "*mobile*",
        "*head*",
    )

    def region_limit(self, body: str) -> RegionLimit | None:
        """Limits of the region that ``body`` belongs to, the strictest where that is not known, None without any."""
        if not self.region_limits:
            return None
        region = self.region_of_body.get(body, "")
        if region in self.region_limits:
            return self.region_limits[region]
        if ANY_REGION in self.region_limits:
            return self.region_limits[ANY_REGION]
        limits = self.region_limits.values()
        return RegionLimit(min(limit.force for limit in limits), min(limit.pressure for limit in limits))
