"""Grid planning against an independent shortest-path solver."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from sim_bridge.kitchen.layout import load_layout
from sim_bridge.kitchen.planning import (
    RESOLUTION_M,
    Footprint,
    astar,
    disc,
    floor_map,
    plan,
    polyline,
    rectangle_distance,
    shortcut,
)


def path_cost(cost, cells):
    total = 0.0
    for (ax, ay), (bx, by) in itertools.pairwise(cells):
        total += math.hypot(ax - bx, ay - by) * (1 + (cost[ax, ay] + cost[bx, by]) / 2)
    return total


def solver_cost(cost, start, goal):
    nx, ny = cost.shape
    rows, columns, weights = [], [], []
    for x in range(nx):
        for y in range(ny):
            for dx in (-1, 0, 1):
                for dy in (-1, 0, 1):
                    u, v = x + dx, y + dy
                    if (dx or dy) and 0 <= u < nx and 0 <= v < ny:
                        corner = dx and dy and (math.isinf(cost[u, y]) or math.isinf(cost[x, v]))
                        if math.isinf(cost[x, y]) or math.isinf(cost[u, v]) or corner:
                            continue
                        rows.append(x * ny + y)
                        columns.append(u * ny + v)
                        weights.append(math.hypot(dx, dy) * (1 + (cost[x, y] + cost[u, v]) / 2))
    graph = coo_matrix((weights, (rows, columns)), (nx * ny, nx * ny)).tocsr()
    return dijkstra(graph, indices=start[0] * ny + start[1])[goal[0] * ny + goal[1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_astar_finds_the_cheapest_way(seed):
    rng = np.random.default_rng(seed)
    cost = rng.choice([0.0, 0.5, 3.0, np.inf], size=(9, 12), p=[0.5, 0.15, 0.1, 0.25])
    cost[0, 0] = cost[-1, -1] = 0.0
    cells = astar(cost, (0, 0), (8, 11))
    expected = solver_cost(cost, (0, 0), (8, 11))
    if not cells:
        assert math.isinf(expected)
        return
    assert cells[0] == (0, 0) and cells[-1] == (8, 11)
    assert path_cost(cost, cells) == pytest.approx(expected)


def test_no_way_and_blocked_goal():
    cost = np.zeros((5, 5))
    cost[2, :] = np.inf
    assert astar(cost, (0, 0), (4, 4)) == []
    cost[2, :] = 0.0
    cost[4, 4] = np.inf
    assert astar(cost, (0, 0), (4, 4)) == []


def test_a_blocked_start_can_be_left():
    cost = np.zeros((5, 5))
    cost[0, 0] = np.inf
    assert astar(cost, (0, 0), (4, 4))[-1] == (4, 4)


def test_shortcut_never_enters_blocked_cells_and_is_not_longer():
    cost = np.zeros((40, 40))
    cost[20, :30] = np.inf
    cells = astar(cost, (5, 5), (35, 5))
    points = (np.array(cells) + 0.5) * RESOLUTION_M
    short = shortcut(cost, points)
    long_length, length = polyline(points).length, polyline(short).length
    assert length <= long_length + 1e-9
    sampled = polyline(short, 0.01).points
    assert np.isfinite(
        cost[(sampled[:, 0] / RESOLUTION_M).astype(int), (sampled[:, 1] / RESOLUTION_M).astype(int)]
    ).all()


def test_empty_floor_gives_the_straight_line():
    cost = np.zeros((60, 60))
    floor = floor_map(load_layout(0))
    path = plan(cost, floor, (0.51, 0.52), (2.4, 1.9))
    assert path is not None
    assert path.length == pytest.approx(math.dist((0.51, 0.52), (2.4, 1.9)), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3.2, 3.2))
def test_footprint_distance_is_that_of_its_nearest_point(x, y, yaw):
    footprint = Footprint(((-0.3, 0.5, -0.1, 0.2), (0.4, 0.6, -0.3, 0.3)), 0.2, -0.1, yaw)
    u, v = np.meshgrid(np.linspace(0, 1, 81), np.linspace(0, 1, 81))
    best = math.inf
    for x0, x1, y0, y1 in footprint.rectangles:
        a, b = x0 + u * (x1 - x0), y0 + v * (y1 - y0)
        px = 0.2 + math.cos(yaw) * a - math.sin(yaw) * b
        py = -0.1 + math.sin(yaw) * a + math.cos(yaw) * b
        best = min(best, float(np.hypot(px - x, py - y).min()))
    assert float(footprint.distance(np.array(x), np.array(y))) == pytest.approx(best, abs=0.011)


def test_disc_and_rectangle():
    assert rectangle_distance(np.array([2.0]), np.array([3.0]), (0, 1, 0, 1))[0] == pytest.approx(math.hypot(1, 2))
    square = disc(1.0, 1.0, 0.2).rectangles[0]
    assert (square[1] - square[0]) ** 2 == pytest.approx(math.pi * 0.2**2)
