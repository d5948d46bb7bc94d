"""The transform tree of core/signals/transforms.py for recordings: the same numbers from plain floats, many times
faster.

A recording holds thousands of transforms a minute, of which few are looked up. Every operation is that of the core
in the same order, so results are equal to the last bit; the tests hold both together.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from osma_monitor.core.signals.raw import Floats
from osma_monitor.core.signals.transforms import (
    DEEPEST,
    LONGEST_HISTORY,
    Seven,
    StaleTransformError,
    UnknownFrameError,
    some_names,
)

SECOND = 1_000_000_000
IDENTITY: Seven = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def rotate(q: tuple[float, ...], p: tuple[float, ...]) -> tuple[float, float, float]:
    """Vector ``p`` turned by the unit quaternion ``q``."""
    ux, uy, uz, w = q
    px, py, pz = p
    tx, ty, tz = 2.0 * (uy * pz - uz * py), 2.0 * (uz * px - ux * pz), 2.0 * (ux * py - uy * px)
    return (
        px + w * tx + (uy * tz - uz * ty),
        py + w * ty + (uz * tx - ux * tz),
        pz + w * tz + (ux * ty - uy * tx),
    )


def multiply(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float, float]:
    """Hamilton product of quaternions x y z w."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def compose(outer: Seven, inner: Seven) -> Seven:
    """``inner`` first, then ``outer``."""
    x, y, z = rotate(outer[3:], inner[:3])
    return (x + outer[0], y + outer[1], z + outer[2], *multiply(outer[3:], inner[3:]))


def inverse(t: Seven) -> Seven:
    """The transform back."""
    conjugate = (t[3] * -1.0, t[4] * -1.0, t[5] * -1.0, t[6] * 1.0)
    x, y, z = rotate(conjugate, t[:3])
    return (-x, -y, -z, *conjugate)


def apply(t: Seven, position: Floats, orientation: Floats) -> tuple[Floats, Floats]:
    """A pose of the child frame in the parent frame."""
    x, y, z = rotate(t[3:], position.tolist())
    moved = np.array([x + t[0], y + t[1], z + t[2]])
    return moved, np.array(multiply(t[3:], orientation.tolist()))


@dataclass
class _Edge:
    parent: str
    fixed: Seven | None = None
    stamps: list[int] = field(default_factory=list)
    values: list[Seven] = field(default_factory=list)


class TransformTree:
    """As ``TransformBuffer``: set transforms, look up a path at a stamp."""

    def __init__(self, extrapolate_ns: int, history_ns: int = 10 * SECOND) -> None:
        self._history_ns, self._extrapolate_ns = history_ns, extrapolate_ns
        self._edges: dict[str, _Edge] = {}

    def set_fixed(self, parent: str, child: str, transform: Seven) -> None:
        """A transform that never changes."""
        self._edges[child.lstrip("/")] = _Edge(parent.lstrip("/"), transform)

    def set(self, parent: str, child: str, stamp_ns: int, transform: Seven) -> None:
        """A stamped transform."""
        parent, child = parent.lstrip("/"), child.lstrip("/")
        edge = self._edges.get(child)
        if edge is None or edge.fixed is not None or edge.parent != parent:
            edge = self._edges[child] = _Edge(parent)
        stamps = edge.stamps
        if stamps and stamp_ns <= stamps[-1] - self._history_ns:
            stamps.clear()  # the clock was set back
            edge.values.clear()
        at = len(stamps) if not stamps or stamp_ns >= stamps[-1] else bisect_right(stamps, stamp_ns)
        if at and stamps[at - 1] == stamp_ns:  # sent again
            edge.values[at - 1] = transform
            return
        stamps.insert(at, stamp_ns)
        edge.values.insert(at, transform)
        while len(stamps) > 2 and (stamps[-1] - stamps[0] > self._history_ns or len(stamps) > LONGEST_HISTORY):
            del stamps[0], edge.values[0]

    def lookup(self, target: str, source: str, stamp_ns: int) -> Seven:
        """From ``source`` to ``target`` coordinates at ``stamp_ns``. Raises UnknownFrameError when there is no way."""
        target, source = target.lstrip("/"), source.lstrip("/")
        if target == source:
            return IDENTITY
        up_source, up_target = self._chain(source), self._chain(target)
        common = next((f for f in up_source if f in up_target), None)
        if common is None:
            known = some_names(set(self._edges) | {e.parent for e in self._edges.values()})
            raise UnknownFrameError(f"no transform from frame {source!r} to {target!r}; known frames: {known}")
        rise = self._climb(up_source[: up_source.index(common)], stamp_ns)
        return compose(inverse(self._climb(up_target[: up_target.index(common)], stamp_ns)), rise)

    def _chain(self, frame: str) -> list[str]:
        chain = [frame]
        while (edge := self._edges.get(chain[-1])) is not None and edge.parent not in chain and len(chain) <= DEEPEST:
            chain.append(edge.parent)
        return chain

    def _climb(self, children: list[str], stamp_ns: int) -> Seven:
        total = IDENTITY
        for child in children:
            total = compose(self._at(child, stamp_ns), total)
        return total

    def _at(self, child: str, stamp_ns: int) -> Seven:
        edge = self._edges[child]
        if edge.fixed is not None:
            return edge.fixed
        stamps = edge.stamps
        i = bisect_right(stamps, stamp_ns)
        away = min(abs(stamp_ns - stamp) for stamp in stamps[max(i - 1, 0) : i + 1])
        if away > self._extrapolate_ns:
            raise StaleTransformError(
                f"transform {edge.parent} -> {child} is {away / SECOND:.2f} s away from the stamp asked for"
            )
        if i in (0, len(stamps)):
            return edge.values[max(i - 1, 0)]
        before, after = edge.values[i - 1], edge.values[i]
        s = (stamp_ns - stamps[i - 1]) / (stamps[i] - stamps[i - 1])
        dot = sum(a * b for a, b in zip(before[3:], after[3:], strict=True))
        turn = s * (1.0 if dot >= 0 else -1.0)
        x, y, z = ((1.0 - s) * a + s * b for a, b in zip(before[:3], after[:3], strict=True))
        qx, qy, qz, qw = ((1.0 - s) * a + turn * b for a, b in zip(before[3:], after[3:], strict=True))
        norm = math.sqrt(qx * qx + qy * qy + qz * qz + qw * qw)
        return x, y, z, qx / norm, qy / norm, qz / norm, qw / norm
