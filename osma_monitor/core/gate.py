"""What the command gate does with a command: pass it, scale it, or stop. Pure decisions; time is given.

``observe`` passes everything. ``slow`` scales the speed by the nearest obstacle's tier and distance, in the manner
of speed and separation
monitoring (ISO/TS 15066 5.5.4): full speed beyond ``slow_from``, none at ``stop_at``, linear between. ``stop`` sends
zero while a
clause is violated, until the violation is acknowledged, when the state has been unknown for too long, and when the
monitor is silent.

UNKNOWN alone never latches: one NaN does not stop the robot for ever. A monitor that was never heard stops it from
the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GateMode = Literal["observe", "slow", "stop"]
State = Literal["ok", "warn", "violated", "unknown"]


@dataclass(frozen=True, slots=True)
class SlowZone:
    """Distances in m at which a tier slows the robot."""

    slow_from: float
    stop_at: float
    least: float = 0.0  #: scale kept at stop_at and nearer (0: stand still)


#: The living are given more room than the fragile, those more than the robust (config/obstacle_tiers.yaml overrides).
ZONES: dict[str, SlowZone] = {
    "high": SlowZone(1.25, 0.30),
    "moderate": SlowZone(0.90, 0.20),
    "low": SlowZone(0.60, 0.10, least=0.1),
}


@dataclass(frozen=True, slots=True)
class GateConfig:
    mode: GateMode = "observe"
    unknown_ns: int = 500_000_000  #: stop when the state has been unknown this long
    heartbeat_ns: int = 500_000_000  #: stop when the monitor has been silent this long
    hold_latched: bool = True  #: stay stopped after a violation until it is acknowledged
    zones: Mapping[str, SlowZone] = field(default_factory=lambda: ZONES)


@dataclass(frozen=True, slots=True)
class Decision:
    """``scale`` 1 passes the command as it is; 0 is a stop. ``reason`` is empty while nothing is held back."""

    scale: float
    reason: str = ""


def scaled(speed: float, scale: float) -> float:
    """A speed at this scale (0 to 1); a stop is 0 whatever was commanded, not a number or infinite too."""
    return speed * scale if scale > 0.0 else 0.0


class Gate:
    """Feed what the monitor says, ask before every command. Times are one monotonic clock's nanoseconds."""

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self._heard_ns: int | None = None
        self._known_ns: int | None = None
        self._state: State = "unknown"
        self._latched: State = "ok"
        self._because = ""
        self._tier, self._distance = "", math.nan

    def hear(self, now_ns: int, state: State, latched: State = "ok", because: str = "") -> None:
        """A SafetyState arrived."""
        if state != "unknown" or self._known_ns is None:
            self._known_ns = now_ns
        self._heard_ns, self._state, self._latched, self._because = now_ns, state, latched, because

    def see(self, tier: str, distance: float) -> None:
        """The nearest obstacle's tier and surface distance (m, NaN: not known)."""
        self._tier, self._distance = tier, distance

    def decide(self, now_ns: int) -> Decision:
        """What to do with a command that arrives now."""
        mode = self.config.mode
        if mode == "observe":
            return Decision(1.0)
        silent = self._silent(now_ns)
        if silent:
            return Decision(0.0, silent)
        if mode == "slow":
            return self._slow()
        return self._stop(now_ns)

    def _silent(self, now_ns: int) -> str:
        if self._heard_ns is None:
            return "the monitor was never heard"
        silence = now_ns - self._heard_ns
        return f"the monitor has been silent for {silence / 1e9:.1f} s" if silence > self.config.heartbeat_ns else ""

    def _slow(self) -> Decision:
        zones = self.config.zones
        # an obstacle of no known tier counts as the most delicate one
        zone = zones.get(self._tier) or max(zones.values(), key=lambda z: z.slow_from)
        if math.isnan(self._distance):
            return Decision(zone.least, "the distance to the nearest obstacle is not known")
        if self._distance >= zone.slow_from:
            return Decision(1.0)
        share = (self._distance - zone.stop_at) / (zone.slow_from - zone.stop_at)
        scale = max(zone.least, min(1.0, share), 0.0)
        return Decision(scale, f"{self._tier or 'unknown'} obstacle at {self._distance:.2f} m")

    def _stop(self, now_ns: int) -> Decision:
        if self._state == "violated":
            return Decision(0.0, f"violated: {self._because}" if self._because else "a clause is violated")
        if self._latched == "violated" and self.config.hold_latched:
            return Decision(0.0, "an earlier violation is not acknowledged")
        if self._state == "unknown" and self._known_ns is not None and now_ns - self._known_ns > self.config.unknown_ns:
            return Decision(
                0.0, f"unknown for {(now_ns - self._known_ns) / 1e9:.1f} s: {self._because or 'no reason given'}"
            )
        return Decision(1.0)
