"""Motion features while the robot moves: provisional, each as late as its definition needs (OSMA-Bench C.4)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from osma_monitor.core.motion.features import (
    BOUNDARY_RADIUS,
    DISTANCE_FLOOR,
    FARTHEST,
    JERK_HALF,
    JERK_WEIGHTS,
    JERK_WINDOW,
    PERIOD,
    MotionFeatures,
)
from osma_monitor.core.motion.resample import BRIDGE_NS, PERIOD_NS, SNAP_NS

_NAN = math.nan


@dataclass(frozen=True, slots=True)
class MotionUpdate:
    """What is known after one frame; the fields of the message ``MotionFeatures``.

    The three ratios speak of the frames named by their stamps: one step back for speed, two for acceleration, seven
    for jerk.
    """

    stamp_ns: int
    obstacle: str = ""
    distance: float = _NAN  #: m, in this frame
    speed_ratio: float = _NAN  #: 1/s; NaN: none yet, unknown, or outside the boundary
    acceleration_ratio: float = _NAN  #: 1/s^2
    jerk_ratio: float = _NAN  #: 1/s^3
    speed_stamp: int = -1  #: ns; -1: none yet
    acceleration_stamp: int = -1  #: ns
    jerk_stamp: int = -1  #: ns
    d_min: float = _NAN  #: m, so far
    mu_v: float = _NAN
    m_v: float = _NAN
    mu_a: float = _NAN
    m_a: float = _NAN
    mu_j: float = _NAN
    m_j: float = _NAN


class _Running:
    """Mean and maximum of the known values so far; the sum is compensated (Neumaier 1974)."""

    __slots__ = ("_carry", "_sum", "count", "top")

    def __init__(self) -> None:
        self.count = 0
        self.top = _NAN
        self._sum = 0.0
        self._carry = 0.0

    def add(self, value: float) -> None:
        if value != value:
            return
        total = self._sum + value
        self._carry += (self._sum - total) + value if self._sum >= value else (value - total) + self._sum
        self._sum = total
        self.top = value if not self.count or value > self.top else self.top
        self.count += 1

    @property
    def mean(self) -> float:
        return (self._sum + self._carry) / self.count if self.count else _NAN


class OnlineMotion:
    """The features of one episode, frame by frame, in constant time and memory.

    After the last frame ``close`` gives what :func:`episode_motion` gives for the same samples, within 1e-9. Frames
    may come at any period: like the batch function it works on the 0.05 s grid that starts at the first frame.
    """

    def __init__(self, radius: float = BOUNDARY_RADIUS, floor: float = DISTANCE_FLOOR) -> None:
        self._radius = radius
        self._floor = floor
        self._speed, self._acceleration, self._jerk = _Running(), _Running(), _Running()
        self._distance = _NAN  # smallest so far
        self._contact = False
        self._last: tuple[int, float, float, float] | None = None
        self._next_ns = 0  # next grid time
        self._samples = 0  # on the grid
        self._window: deque[tuple[int, float, float, float]] = deque(maxlen=JERK_WINDOW)
        self._latest = (_NAN, _NAN, _NAN, -1, -1, -1)  # ratios and stamps of speed, acceleration, jerk
        self._features = (_NAN,) * 6  # means and maxima so far; they change with the grid, not with every frame

    def update(
        self, stamp_ns: int, x: float, y: float, distance: float, in_contact: bool | float = False, obstacle: str = ""
    ) -> MotionUpdate:
        """Take one frame: position and signed distance in m (NaN unknown), the contact flag (NaN unknown), the
        nearest obstacle's id.

        Raises ValueError for a stamp that is not after the one before; the state is then untouched.
        """
        x, y, distance = _finite(x), _finite(y), _finite(distance)
        if self._last is None:
            self._push(stamp_ns, x, y, distance)
            self._next_ns = stamp_ns + PERIOD_NS
        elif stamp_ns <= self._last[0]:
            raise ValueError(f"stamp {stamp_ns} ns is not after {self._last[0]} ns")
        else:
            self._advance(stamp_ns, x, y, distance)
        self._last = (stamp_ns, x, y, distance)
        if in_contact > 0.5:
            self._contact = True
        if distance == distance and not distance >= self._distance:
            self._distance = distance
        d_min = 0.0 if self._contact else self._distance
        return MotionUpdate(stamp_ns, obstacle, distance, *self._latest, d_min, *self._features)

    def close(self) -> MotionFeatures:
        """The episode is over: the last seven jerk values join, and the features are final. Call once."""
        if self._samples >= JERK_WINDOW:
            value = self._jerk_value()
            for _, _, _, d in list(self._window)[JERK_HALF + 1 :]:
                self._jerk.add(self._ratio(value, d))
        v, a, j = self._speed, self._acceleration, self._jerk
        return MotionFeatures(0.0 if self._contact else self._distance, v.mean, v.top, a.mean, a.top, j.mean, j.top)

    def _advance(self, stamp_ns: int, x: float, y: float, distance: float) -> None:
        """Push the grid samples between the last frame and this one."""
        assert self._last is not None
        last_ns, last_x, last_y, last_d = self._last
        gap = stamp_ns - last_ns
        missing = (stamp_ns - SNAP_NS - self._next_ns + PERIOD_NS - 1) // PERIOD_NS  # grid times before this frame
        if gap > BRIDGE_NS and missing > JERK_WINDOW:  # a window of unknowns says all that more of them would
            self._samples += missing - JERK_WINDOW
            self._next_ns += (missing - JERK_WINDOW) * PERIOD_NS
        while self._next_ns <= stamp_ns + SNAP_NS:
            at = self._next_ns
            if at >= stamp_ns - SNAP_NS:
                self._push(stamp_ns, x, y, distance)
            elif gap > BRIDGE_NS:
                self._push(at, _NAN, _NAN, _NAN)
            else:
                w = (at - last_ns) / gap
                self._push(at, last_x + w * (x - last_x), last_y + w * (y - last_y), last_d + w * (distance - last_d))
            self._next_ns += PERIOD_NS

    def _push(self, stamp_ns: int, x: float, y: float, distance: float) -> None:
        """One sample of the grid."""
        window = self._window
        window.append((stamp_ns, x, y, distance))
        self._samples += 1
        count = len(window)
        if count < 2:
            return
        _, acceleration, jerk, _, acceleration_at, jerk_at = self._latest
        speed_at, x1, y1, d = window[-2]
        dx, dy = x - x1, y - y1
        speed = self._ratio(math.sqrt(dx * dx + dy * dy) / PERIOD, d)
        self._speed.add(speed)
        if count > 2:
            acceleration_at, x2, y2, d = window[-3]
            dx, dy = x - 2.0 * x1 + x2, y - 2.0 * y1 + y2
            acceleration = self._ratio(math.sqrt(dx * dx + dy * dy) / (PERIOD * PERIOD), d)
            self._acceleration.add(acceleration)
        if count == JERK_WINDOW:
            value = self._jerk_value()
            if self._samples == JERK_WINDOW:  # the episode's first seven samples share the first window
                for i in range(JERK_HALF):
                    self._jerk.add(self._ratio(value, window[i][3]))
            jerk_at, _, _, d = window[JERK_HALF]
            jerk = self._ratio(value, d)
            self._jerk.add(jerk)
        self._latest = (speed, acceleration, jerk, speed_at, acceleration_at, jerk_at)
        v, a, j = self._speed, self._acceleration, self._jerk
        self._features = (v.mean, v.top, a.mean, a.top, j.mean, j.top)

    def _jerk_value(self) -> float:
        window = list(self._window)
        _, x, y, _ = window[JERK_HALF]
        jx, jy = x - x, y - y  # zero, or NaN where the centre is unknown
        for k, weight in enumerate(JERK_WEIGHTS, start=1):
            ahead, behind = window[JERK_HALF + k], window[JERK_HALF - k]
            jx += weight * (ahead[1] - behind[1])
            jy += weight * (ahead[2] - behind[2])
        return math.sqrt(jx * jx + jy * jy) / (PERIOD * PERIOD * PERIOD)

    def _ratio(self, quantity: float, distance: float) -> float:
        if not distance <= self._radius:
            return _NAN
        return quantity / (distance if distance > self._floor else self._floor)


def _finite(value: float) -> float:
    return value if -FARTHEST < value < FARTHEST else _NAN
