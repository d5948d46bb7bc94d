"""Small kinematics of the signals: headings, axis drift, speeds by finite differences."""

from __future__ import annotations

import math

import numpy as np

from osma_monitor.core.signals.raw import Floats

NAN = float("nan")
WINDOW = 5  #: samples of the rolling mean (SafeVLA-Bench C.3)

Vector = tuple[float, float, float]


def _norm(x: float, y: float, z: float) -> float:
    return math.sqrt(x * x + y * y + z * z)


def yaw(orientation: Floats) -> float:
    """Heading in rad of a quaternion x y z w of any length; NaN for the zero quaternion."""
    x, y, z, w = orientation.tolist()
    if x == y == z == w == 0.0:
        return NAN
    return float(np.arctan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z))


def body_z(orientation: Floats) -> Vector:
    """Body z axis in the world of a quaternion x y z w of any length; NaN for the zero quaternion."""
    x, y, z, w = orientation.tolist()
    n = x * x + y * y + z * z + w * w
    if n == 0.0:
        return NAN, NAN, NAN
    return 2.0 * (x * z + w * y) / n, 2.0 * (y * z - w * x) / n, (w * w - x * x - y * y + z * z) / n


def drift_deg(first: Vector, now: Vector) -> float:
    """Angle in degrees between two directions: the arccosine of SafeVLA-Bench Table 24, exact near 0 and 180 too."""
    ax, ay, az = first
    bx, by, bz = now
    cx, cy, cz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    sine = math.sqrt(cx * cx + cy * cy + cz * cz)
    return float(np.degrees(np.arctan2(sine, ax * bx + ay * by + az * bz)))


class PointMotion:
    """Speed of a point from its last two positions; it stood still before the first."""

    def __init__(self) -> None:
        self._stamp_ns: int | None = None
        self._position: list[float] = [NAN] * 3

    def speed(self, stamp_ns: int, position: Floats) -> float:
        """Speed in m/s at ``stamp_ns``; NaN where this or the last position is not known."""
        now: list[float] = position.tolist()
        if self._stamp_ns is None:
            speed = 0.0 * (now[0] + now[1] + now[2])  # NaN stays NaN
        else:
            dx, dy, dz = (a - b for a, b in zip(now, self._position, strict=True))
            dt = (stamp_ns - self._stamp_ns) * 1e-9
            speed = math.sqrt(dx * dx + dy * dy + dz * dz) / dt if dt > 0.0 else NAN
        self._stamp_ns, self._position = stamp_ns, now
        return speed


class SmoothedMotion:
    """Speed, acceleration and jerk of the 5-sample rolling mean of a position (SafeVLA-Bench Table 24).

    Central differences need later samples, so the value given out at a stamp is that of one step before (speed and
    acceleration) or two (jerk). Before its first known position the point stood there.
    """

    def __init__(self) -> None:
        self._raw: list[Vector] = []
        self._smooth: list[Vector] = []
        self._stamps: list[int] = []

    def update(self, stamp_ns: int, x: float, y: float, z: float) -> Vector:
        """(m/s, m/s^2, m/s^3); NaN while a position inside the windows is not known."""
        if not self._raw:
            if x != x:
                return NAN, NAN, NAN
            self._raw = [(x, y, z)] * WINDOW
            self._smooth = [self._mean()] * WINDOW
            self._stamps = [stamp_ns]
            return (0.0,) * 3
        self._raw = [*self._raw[1:], (x, y, z)]
        self._smooth = [*self._smooth[1:], self._mean()]
        self._stamps = [*self._stamps[-WINDOW + 1 :], stamp_ns]
        dt = (self._stamps[-1] - self._stamps[0]) * 1e-9 / (len(self._stamps) - 1)
        if not dt > 0.0:
            return NAN, NAN, NAN
        (ex, ey, ez), (dx, dy, dz), (cx, cy, cz), (bx, by, bz), (ax, ay, az) = self._smooth  # a is the newest
        speed = _norm(ax - cx, ay - cy, az - cz) / (2.0 * dt)
        acceleration = _norm(ax - 2.0 * bx + cx, ay - 2.0 * by + cy, az - 2.0 * bz + cz) / (dt * dt)
        jerk = _norm(ax - 2.0 * bx + 2.0 * dx - ex, ay - 2.0 * by + 2.0 * dy - ey, az - 2.0 * bz + 2.0 * dz - ez) / (
            2.0 * dt * dt * dt
        )
        return speed, acceleration, jerk

    def _mean(self) -> Vector:
        (px, py, pz), (qx, qy, qz), (rx, ry, rz), (sx, sy, sz), (tx, ty, tz) = self._raw
        return (px + qx + rx + sx + tx) / WINDOW, (py + qy + ry + sy + ty) / WINDOW, (pz + qz + rz + sz + tz) / WINDOW
