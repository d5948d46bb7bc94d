"""A tree of stamped coordinate transforms (REP-105), without tf2: fixed ones from a robot file, moving ones from /tf.

A transform takes coordinates in ``child`` to coordinates in ``parent``. Between two stamps translation is linear and
rotation is a
normalized linear blend of quaternions (tf2 uses slerp; at the rates of /tf the two differ by less than its noise).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from osma_monitor.core.signals.raw import Floats

SECOND = 1_000_000_000
LONGEST_HISTORY = 20_000  #: transforms kept of one edge, whatever their stamps say
DEEPEST = 200  #: transforms from a frame to its root; no robot has as many, and a longer way is not followed
_UNIT_TOLERANCE = 0.01  #: of a quaternion's squared length, as in tf2
_NAMED = 32  #: frames that an error lists

#: Translation x y z (m), then quaternion x y z w.
Seven = tuple[float, float, float, float, float, float, float]


class UnknownFrameError(LookupError):
    """No path between two frames; the message names both."""


class StaleTransformError(UnknownFrameError):
    """A path whose transforms are not known at the stamp asked for; the message names the edge."""


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """Rotation (quaternion x y z w) then translation (m)."""

    translation: Floats
    rotation: Floats

    def points(self, p: Floats) -> Floats:
        """``p`` (..., 3) in the child frame, given in the parent frame."""
        return rotate(self.rotation, p) + self.translation

    def orientations(self, q: Floats) -> Floats:
        """``q`` (..., 4) in the child frame, given in the parent frame."""
        return multiply(self.rotation, q)

    def __matmul__(self, other: Transform) -> Transform:
        return Transform(self.points(other.translation), multiply(self.rotation, other.rotation))

    def inverse(self) -> Transform:
        conjugate = self.rotation * np.array([-1.0, -1.0, -1.0, 1.0])
        return Transform(-rotate(conjugate, self.translation), conjugate)


IDENTITY = Transform(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))


def transform_fault(parent: str, child: str, seven: Seven) -> str:
    """Why a transform of /tf cannot be used, in a few words; empty where it can."""
    if not all(map(math.isfinite, seven)):
        return "not finite"
    x, y, z, w = seven[3:]
    if abs(x * x + y * y + z * z + w * w - 1.0) > _UNIT_TOLERANCE:
        return "no rotation"
    if not parent.strip("/") or not child.strip("/") or parent.strip("/") == child.strip("/"):
        return "no two frames"
    return ""


def with_unit_rotation(seven: Seven) -> Seven:
    """The same with a quaternion of length 1: a longer one would stretch what it turns."""
    px, py, pz, x, y, z, w = seven
    length = math.sqrt(x * x + y * y + z * z + w * w)
    return px, py, pz, x / length, y / length, z / length, w / length


def some_names(frames: Collection[str]) -> str:
    """Names of frames for a message to people, not all where there are many."""
    names = sorted(frames)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) + more) or "none"


def multiply(a: Floats, b: Floats) -> Floats:
    """Hamilton product of quaternions x y z w, broadcast over leading axes."""
    ax, ay, az, aw = np.moveaxis(np.asarray(a, np.float64), -1, 0)
    bx, by, bz, bw = np.moveaxis(np.asarray(b, np.float64), -1, 0)
    return np.stack(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ],
        axis=-1,
    )


def rotate(q: Floats, p: Floats) -> Floats:
    """Vectors ``p`` (..., 3) turned by unit quaternions ``q`` (..., 4)."""
    u, w = np.asarray(q)[..., :3], np.asarray(q)[..., 3:4]
    t = 2.0 * np.cross(u, p)
    turned: Floats = p + w * t + np.cross(u, t)
    return turned


@dataclass
class _Edge:
    parent: str
    fixed: Transform | None = None
    stamps: list[int] = field(default_factory=list)
    values: list[Transform] = field(default_factory=list)


class TransformBuffer:
    """Set fixed and stamped transforms; look up a path at a stamp.

    ``history_ns`` bounds memory; a stamp further than ``extrapolate_ns`` from every transform of an edge is refused,
    outside its history and in a gap of it, so that a stale transform is never taken as the present one.
    """

    def __init__(self, history_ns: int = 10 * SECOND, extrapolate_ns: int = SECOND // 2) -> None:
        self._history_ns, self._extrapolate_ns = history_ns, extrapolate_ns
        self._edges: dict[str, _Edge] = {}

    def set_fixed(self, parent: str, child: str, transform: Transform) -> None:
        """A transform that never changes (/tf_static, a robot file)."""
        self._edges[_clean(child)] = _Edge(_clean(parent), fixed=transform)

    def set(self, parent: str, child: str, stamp_ns: int, transform: Transform) -> None:
        """A stamped transform; one that is older than the newest kept is put in its place."""
        edge = self._edges.get(_clean(child))
        if edge is None or edge.fixed is not None or edge.parent != _clean(parent):
            edge = self._edges[_clean(child)] = _Edge(_clean(parent))
        if edge.stamps and stamp_ns <= edge.stamps[-1] - self._history_ns:
            edge.stamps.clear()  # the clock was set back
            edge.values.clear()
        at = bisect_right(edge.stamps, stamp_ns)
        if at and edge.stamps[at - 1] == stamp_ns:  # sent again
            edge.values[at - 1] = transform
            return
        edge.stamps.insert(at, stamp_ns)
        edge.values.insert(at, transform)
        while len(edge.stamps) > 2 and (
            edge.stamps[-1] - edge.stamps[0] > self._history_ns or len(edge.stamps) > LONGEST_HISTORY
        ):
            del edge.stamps[0], edge.values[0]

    def __len__(self) -> int:
        """How many transforms are kept, one a child frame."""
        return len(self._edges)

    def __contains__(self, child: str) -> bool:
        """Whether a transform of this child frame is kept."""
        return _clean(child) in self._edges

    @property
    def frames(self) -> frozenset[str]:
        """Every frame that is named."""
        return frozenset(self._edges) | frozenset(e.parent for e in self._edges.values())

    def lookup(self, target: str, source: str, stamp_ns: int) -> Transform:
        """The transform from ``source`` coordinates to ``target`` coordinates at ``stamp_ns``; UnknownFrameError if
        there is none."""
        target, source = _clean(target), _clean(source)
        if target == source:
            return IDENTITY
        up_source, up_target = self._chain(source), self._chain(target)
        common = next((f for f in up_source if f in up_target), None)
        if common is None:
            known = some_names(self.frames)
            raise UnknownFrameError(f"no transform from frame {source!r} to {target!r}; known frames: {known}")
        rise = self._climb(up_source[: up_source.index(common)], stamp_ns)
        return self._climb(up_target[: up_target.index(common)], stamp_ns).inverse() @ rise

    def _chain(self, frame: str) -> list[str]:
        chain = [frame]
        while (edge := self._edges.get(chain[-1])) is not None and edge.parent not in chain and len(chain) <= DEEPEST:
            chain.append(edge.parent)
        return chain

    def _climb(self, children: list[str], stamp_ns: int) -> Transform:
        total = IDENTITY
        for child in children:
            total = self._at(child, stamp_ns) @ total
        return total

    def _at(self, child: str, stamp_ns: int) -> Transform:
        edge = self._edges[child]
        if edge.fixed is not None:
            return edge.fixed
        i = bisect_right(edge.stamps, stamp_ns)
        away = min(abs(stamp_ns - stamp) for stamp in edge.stamps[max(i - 1, 0) : i + 1])
        if away > self._extrapolate_ns:
            raise StaleTransformError(
                f"transform {edge.parent} -> {child} is {away / SECOND:.2f} s away from the stamp asked for"
            )
        if i in (0, len(edge.stamps)):
            return edge.values[max(i - 1, 0)]
        before, after = edge.values[i - 1], edge.values[i]
        s = (stamp_ns - edge.stamps[i - 1]) / (edge.stamps[i] - edge.stamps[i - 1])
        sign = 1.0 if float(np.dot(before.rotation, after.rotation)) >= 0 else -1.0
        blend = (1.0 - s) * before.rotation + s * sign * after.rotation
        return Transform(
            (1.0 - s) * before.translation + s * after.translation, blend / np.sqrt(float((blend * blend).sum()))
        )


def _clean(frame: str) -> str:
    # tf1 wrote a leading slash
    return frame.lstrip("/")
