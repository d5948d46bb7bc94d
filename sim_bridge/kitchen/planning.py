"""Path planning for the base on a 2-D grid: distance fields of furniture and obstacles, A*, shortcuts. No MuJoCo here.

Grids are indexed [ix, iy]; cell (ix, iy) is centred at ((ix + 0.5) r, (iy + 0.5) r) for resolution r.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from sim_bridge.kitchen.layout import BASE_RADIUS_M, BASE_SIZE_M, Layout

Floats = NDArray[np.float64]
Rectangle = tuple[float, float, float, float]  #: x0, x1, y0, y1

RESOLUTION_M = 0.05
#: The base fits between walls nearer than its radius only at the right heading; nearer than this never.
BASE_HALF_WIDTH_M = BASE_SIZE_M[1] / 2
#: Planning margin beyond the base's radius: half a cell and the tracking error of the base.
MARGIN_M = 0.04
#: Cost per metre of ground where the base fits at some headings only: driven through when nothing else leads out.
_TIGHT_COST = 30.0


def rectangle_distance(x: Floats, y: Floats, rectangle: Rectangle) -> Floats:
    """Distance from points to a rectangle, zero inside (m)."""
    x0, x1, y0, y1 = rectangle
    dx = np.maximum(np.maximum(x0 - x, x - x1), 0.0)
    dy = np.maximum(np.maximum(y0 - y, y - y1), 0.0)
    distance: Floats = np.sqrt(dx * dx + dy * dy)
    return distance


@dataclass(frozen=True, eq=False)
class Footprint:
    """Outline of an obstacle from above: rectangles in its own frame, placed at a planar pose."""

    rectangles: tuple[Rectangle, ...]
    x: float
    y: float
    yaw: float

    def distance(self, x: Floats, y: Floats) -> Floats:
        """Distance from points to the outline, zero inside (m)."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x - self.x, y - self.y
        u, v = c * dx + s * dy, -s * dx + c * dy
        nearest = rectangle_distance(u, v, self.rectangles[0])
        for rectangle in self.rectangles[1:]:
            nearest = np.minimum(nearest, rectangle_distance(u, v, rectangle))
        return nearest


def disc(x: float, y: float, radius: float) -> Footprint:
    """A square of the disc's area seen from above: the outline of a thing whose shape is not known."""
    half = radius * math.sqrt(math.pi) / 2
    return Footprint(((-half, half, -half, half),), x, y, 0.0)


@dataclass(frozen=True, eq=False)
class FloorMap:
    """The free floor of a layout: distance from every cell centre to the nearest wall or furniture."""

    x: Floats  #: (nx, 1) m
    y: Floats  #: (1, ny) m
    distance: Floats  #: (nx, ny) m

    def __deepcopy__(self, memo: object) -> FloorMap:
        return self  # never changed: copies of a policy share it

    @cached_property
    def base_cost(self) -> Floats:
        """Extra cost per metre of the furniture alone: inf where the base never fits."""
        cost = np.zeros(self.distance.shape)
        cost[self.distance < BASE_RADIUS_M + MARGIN_M] = _TIGHT_COST
        cost[self.distance < BASE_HALF_WIDTH_M + MARGIN_M] = np.inf
        return cost

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Cell that holds a point, clipped to the grid."""
        nx, ny = self.distance.shape
        return min(max(int(x / RESOLUTION_M), 0), nx - 1), min(max(int(y / RESOLUTION_M), 0), ny - 1)


def floor_map(layout: Layout, extra: Iterable[Rectangle] = ()) -> FloorMap:
    """Free floor of a layout, ``extra`` rectangles counted as furniture."""
    return _floor_map(layout.width, layout.depth, tuple(layout.floor_rectangles()) + tuple(extra))


def _centres(length: float) -> Floats:
    return (np.arange(round(length / RESOLUTION_M), dtype=np.float64) + 0.5) * np.float64(RESOLUTION_M)


@lru_cache(maxsize=32)
def _floor_map(width: float, depth: float, rectangles: tuple[Rectangle, ...]) -> FloorMap:
    x = _centres(width)[:, None]
    y = _centres(depth)[None, :]
    distance = np.minimum(np.minimum(x, width - x), np.minimum(y, depth - y))
    for rectangle in rectangles:
        distance = np.minimum(distance, rectangle_distance(x, y, rectangle))
    return FloorMap(x, y, distance)


_STEPS = tuple((dx, dy, math.hypot(dx, dy)) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)


def astar(cost: Floats, start: tuple[int, int], goal: tuple[int, int]) -> list[tuple[int, int]]:
    """Cheapest 8-connected way between two cells, both included; empty when there is none.

    A step costs its length in cells times (1 + mean extra cost of its ends); cells of infinite cost are never entered,
    and no diagonal cuts their corner. Ties are broken by position, so that the answer depends on the map alone.
    """
    nx, ny = cost.shape
    width = ny + 2  # a rim of infinite cells saves the bounds checks
    padded = np.full((nx + 2, width), np.inf)
    padded[1:-1, 1:-1] = cost
    extra: list[float] = padded.ravel().tolist()
    source, target = (start[0] + 1) * width + start[1] + 1, (goal[0] + 1) * width + goal[1] + 1
    extra[source] = min(extra[source], 1e3)  # a start inside a blocked cell can still be left
    if math.isinf(extra[target]):
        return []
    inf = math.inf
    gx, gy = divmod(target, width)
    moves = [(dx * width + dy, dx * width, dy, length / 2) for dx, dy, length in _STEPS]
    best = {source: 0.0}
    parent: dict[int, int] = {}
    closed = bytearray(len(extra))
    diagonal = math.sqrt(2.0) - 1.0
    heap = [(0.0, source)]
    while heap:
        _, here = heapq.heappop(heap)
        if closed[here]:
            continue
        if here == target:
            break
        closed[here] = 1
        so_far, at = best[here], extra[here]
        for move, mx, my, half in moves:
            there = here + move
            if closed[there]:
                continue
            value = extra[there]
            if value == inf or (mx and my and (extra[here + mx] == inf or extra[here + my] == inf)):
                continue
            total = so_far + half * (2.0 + at + value)
            if total < best.get(there, inf):
                best[there] = total
                parent[there] = here
                tx, ty = divmod(there, width)
                dx, dy = abs(tx - gx), abs(ty - gy)
                heapq.heappush(heap, (total + (dx + diagonal * dy if dx > dy else dy + diagonal * dx), there))
    if target not in best:
        return []
    cells = [target]
    while cells[-1] != source:
        cells.append(parent[cells[-1]])
    return [(c // width - 1, c % width - 1) for c in reversed(cells)]


def cost_to_go(cost: Floats, goal: tuple[int, int]) -> Floats:
    """Cost of the cheapest way from every cell to the goal, in cells, as :func:`astar` counts; inf: none."""
    nx, ny = cost.shape
    index = np.arange(nx * ny).reshape(nx, ny)
    rows, columns, weights = [], [], []
    for dx, dy, length in _STEPS:
        here = (slice(max(-dx, 0), nx - max(dx, 0)), slice(max(-dy, 0), ny - max(dy, 0)))
        there = (slice(max(dx, 0), nx - max(-dx, 0)), slice(max(dy, 0), ny - max(-dy, 0)))
        weight = length * (1.0 + (cost[here] + cost[there]) / 2.0)
        if dx and dy:  # no diagonal cuts a corner
            weight = weight + np.where(
                np.isinf(cost[there[0], here[1]]) | np.isinf(cost[here[0], there[1]]), np.inf, 0.0
            )
        open_ = np.isfinite(weight)
        rows.append(index[here][open_])
        columns.append(index[there][open_])
        weights.append(weight[open_])
    edges = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    graph = coo_matrix(edges, shape=(nx * ny, nx * ny)).tocsr()
    found: Floats = dijkstra(graph, directed=False, indices=index[goal]).reshape(nx, ny)
    return found


def _segment_cost(cost: Floats, a: Floats, b: Floats) -> float:
    """Cost of the straight line between two points (m, extra cost included); inf through blocked cells."""
    delta = b - a
    length = math.sqrt(float(delta[0] * delta[0] + delta[1] * delta[1]))
    n = max(int(length / (RESOLUTION_M / 2)), 1)
    t = (np.arange(n) + 0.5) / n
    ix = ((a[0] + t * delta[0]) / RESOLUTION_M).astype(np.intp).clip(0, cost.shape[0] - 1)
    iy = ((a[1] + t * delta[1]) / RESOLUTION_M).astype(np.intp).clip(0, cost.shape[1] - 1)
    return length * (1.0 + float(cost[ix, iy].mean()))


def shortcut(cost: Floats, points: Floats) -> Floats:
    """The polyline with every corner removed whose straight replacement costs no more. ``points`` (n, 2) m."""
    kept = [points[0]]
    i = 0
    costs = [_segment_cost(cost, points[k], points[k + 1]) for k in range(len(points) - 1)]
    while i < len(points) - 1:
        end = i + 1
        along = costs[i]
        for j in range(i + 2, len(points)):
            along += costs[j - 1]
            direct = _segment_cost(cost, points[i], points[j])
            if direct <= along + 1e-9:
                end = j
            elif math.isinf(direct):
                break
        kept.append(points[end])
        i = end
    return np.array(kept)


@dataclass(frozen=True, eq=False)
class Path:
    """A polyline sampled every ``spacing`` metres: (n, 2) points and the way along it (n,) in m."""

    points: Floats
    along: Floats

    @property
    def length(self) -> float:
        """Metres from its first point to its last."""
        return float(self.along[-1])


def polyline(points: Floats | Sequence[Sequence[float]], spacing: float = 0.05) -> Path:
    """Sample a polyline evenly, both ends included."""
    corners = np.asarray(points, dtype=np.float64)
    steps = np.sqrt(((corners[1:] - corners[:-1]) ** 2).sum(axis=1))
    s = np.concatenate([[0.0], np.cumsum(steps)])
    n = max(math.ceil(s[-1] / spacing - 1e-9), 1)
    along = np.linspace(0.0, s[-1], n + 1)
    return Path(np.stack([np.interp(along, s, corners[:, 0]), np.interp(along, s, corners[:, 1])], axis=1), along)


def plan(cost: Floats, floor: FloorMap, start: tuple[float, float], goal: tuple[float, float]) -> Path | None:
    """Way of the base's centre from start to goal (m) under an extra cost per metre; None when there is none."""
    cells = astar(cost, floor.cell(*start), floor.cell(*goal))
    if not cells:
        return None
    middle = [((ix + 0.5) * RESOLUTION_M, (iy + 0.5) * RESOLUTION_M) for ix, iy in cells[1:-1]]
    return polyline(shortcut(cost, np.array([start, *middle, goal])))


def reference_path(layout: Layout, start: tuple[float, float], goal: tuple[float, float]) -> Path | None:
    """Shortest way of the base with the whole footprint clear of furniture at every heading, no obstacle placed."""
    floor = floor_map(layout)
    cost = np.where(floor.distance < BASE_RADIUS_M, np.inf, 0.0)
    return plan(cost, floor, start, goal)
