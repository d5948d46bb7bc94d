"""Distances from poses and shapes: by hand, against a brute force, and never too large."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from osma_monitor.core.signals.geometry import (
    Primitive,
    convex_hull,
    distance,
    polygon_distance,
    rotation,
    with_distances,
)
from osma_monitor.core.signals.raw import Base, Objects, RawFrame, same, vector

HERE = (vector([0, 0, 0]), vector([0, 0, 0, 1]))
BASE = Primitive("box", (0.35, 0.25, 0.19), (0.0, 0.0, 0.19))


def at(x: float, y: float, z: float = 0.0, q: tuple[float, ...] = (0, 0, 0, 1)) -> Any:
    return vector([x, y, z]), vector(q)


@pytest.mark.parametrize(
    ("shape", "pose", "expected"),
    [
        (Primitive("box", (0.1, 0.1, 0.1)), at(1.0, 0, 0.1), 0.55),
        (Primitive("box", (0.1, 0.1, 0.1)), at(1.35, 1.25, 0.1), math.hypot(0.9, 0.9)),
        (Primitive("sphere", (0.1,)), at(1.0, 0, 0.1), 0.55),
        (Primitive("sphere", (0.1,)), at(0.65, 0, 0.78), math.hypot(0.3, 0.4) - 0.1),
        (Primitive("cylinder", (0.2, 0.5)), at(0.75, 0.65, 0.5), math.hypot(0.4, 0.4) - 0.2),
        (Primitive("cylinder", (0.2, 0.5)), at(0, 0, 2.0), 1.12),
        (Primitive("capsule", (0.2, 0.5)), at(1.0, 0, 0.7), 0.45),
        (Primitive("capsule", (0.2, 0.5)), at(0, 0, 2.0), 0.92),
        (Primitive("box", (0.1, 0.1, 0.1)), at(0.4, 0, 0.1), -0.05),
        (Primitive("cylinder", (0.1, 0.1)), at(0.3, 0, 0.1), -0.15),
    ],
)
def test_by_hand(shape: Primitive, pose: Any, expected: float) -> None:
    assert distance([BASE], HERE, [shape], pose) == pytest.approx(expected)
    assert distance([shape], pose, [BASE], HERE) == pytest.approx(expected)


def test_the_nearest_of_several_primitives_counts() -> None:
    table = [Primitive("cylinder", (0.02, 0.2), (0.5, 0, 0)), Primitive("cylinder", (0.02, 0.2), (-0.5, 0, 0))]
    assert distance([BASE], HERE, table, at(2, 0)) == pytest.approx(2 - 0.5 - 0.02 - 0.35)


@pytest.mark.parametrize("pose", [at(math.nan, 0), at(1, 0, 0, (0, 0, 0, 0)), at(1, math.inf)])
def test_unknown_poses(pose: Any) -> None:
    assert math.isnan(distance([BASE], HERE, [BASE], pose))


@pytest.mark.parametrize(
    ("kind", "size"),
    [("box", (1, 1)), ("sphere", (0,)), ("cylinder", (1, -1)), ("capsule", (1,)), ("sphere", (math.nan,))],
)
def test_sizes_that_make_no_shape(kind: Any, size: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"a {kind} has"):
        Primitive(kind, size)


COORDINATE = st.floats(-2, 2)
POINTS = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=8)


def test_corners_that_nearly_coincide() -> None:
    tiny = np.array([[0.0, 0.0], [1e-200, 0.0], [0.0, 1e-200]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert polygon_distance(convex_hull(tiny), np.array([[1.0, 0.0]])) == 1.0


@given(POINTS)
def test_hull_holds_every_point_and_turns_left(points: list[tuple[float, float]]) -> None:
    hull = convex_hull(np.array(points))
    assert {tuple(p) for p in hull.tolist()} <= set(points)
    if len(hull) > 2:
        edge = np.roll(hull, -1, axis=0) - hull
        for p in points:
            offset = np.array(p) - hull
            assert (edge[:, 0] * offset[:, 1] - edge[:, 1] * offset[:, 0] >= -1e-9).all()


def segment(a: np.ndarray, b: np.ndarray, n: int = 400) -> np.ndarray:
    t = np.linspace(0, 1, n)[:, None]
    return a + t * (b - a)


@given(POINTS, POINTS)
def test_polygon_distance_against_sampled_outlines(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
    p, q = convex_hull(np.array(a)), convex_hull(np.array(b))
    found = polygon_distance(p, q)
    assert found == pytest.approx(polygon_distance(q, p), abs=1e-9)
    outline_p, outline_q = (np.concatenate([segment(x[i], x[(i + 1) % len(x)]) for i in range(len(x))]) for x in (p, q))
    sampled = min(float(np.sqrt(((outline_q - x) ** 2).sum(axis=1)).min()) for x in outline_p[:: max(1, len(p))])
    if found > 0:
        assert found == pytest.approx(sampled, abs=0.03)
    else:
        # moved by the depth along the best direction they just touch
        assert found >= -4 * math.sqrt(2)


def surface(shape: Primitive, pose: Any, rng: np.random.Generator, n: int = 4000) -> np.ndarray:
    """Random points of a primitive."""
    u = rng.normal(size=(n, 3))
    if shape.kind == "box":
        points = rng.uniform(-1, 1, (n, 3)) * shape.size
    elif shape.kind == "sphere":
        points = u / np.linalg.norm(u, axis=1, keepdims=True) * shape.size[0]
    elif shape.kind == "cylinder":
        angle, r = rng.uniform(0, 2 * np.pi, n), shape.size[0] * np.sqrt(rng.random(n))
        points = np.stack([r * np.cos(angle), r * np.sin(angle), rng.uniform(-1, 1, n) * shape.size[1]], axis=1)
    else:
        ball = u / np.linalg.norm(u, axis=1, keepdims=True) * shape.size[0]
        points = ball + np.stack([np.zeros(n), np.zeros(n), rng.uniform(-1, 1, n) * shape.size[1]], axis=1)
    return np.asarray(pose[0] + points @ rotation(pose[1]).T)


SHAPES = (
    Primitive("box", (0.3, 0.1, 0.2)),
    Primitive("sphere", (0.2,)),
    Primitive("cylinder", (0.15, 0.3)),
    Primitive("capsule", (0.1, 0.3)),
)


@given(st.sampled_from(SHAPES), COORDINATE, COORDINATE, st.floats(0, 1), st.tuples(*[st.floats(-1, 1)] * 4))
def test_a_tilted_shape_is_never_farther_than_it_looks(
    shape: Primitive, x: float, y: float, z: float, q: tuple[float, float, float, float]
) -> None:
    assume(math.hypot(*q) > 0.1)
    pose = at(x, y, z, q)
    found = distance([BASE], HERE, [shape], pose)
    points = surface(shape, pose, np.random.default_rng(0))
    outside = np.maximum(np.abs(points - [0, 0, 0.19]) - [0.35, 0.25, 0.19], 0.0)
    assert found <= float(np.linalg.norm(outside, axis=1).min()) + 1e-9


@given(st.sampled_from(SHAPES), st.floats(0.9, 2), COORDINATE, st.floats(0, 1), st.floats(-3, 3))
def test_an_upright_shape_beside_the_base_is_exact(shape: Primitive, x: float, y: float, z: float, turn: float) -> None:
    pose = at(x, y, z, (0, 0, math.sin(turn), math.cos(turn)))
    found = distance([BASE], HERE, [shape], pose)
    points = surface(shape, pose, np.random.default_rng(0), 40_000)
    outside = np.maximum(np.abs(points - [0, 0, 0.19]) - [0.35, 0.25, 0.19], 0.0)
    assert found == pytest.approx(float(np.linalg.norm(outside, axis=1).min()), abs=0.05)


# ---- frames


def frame(distances: list[float], base: Base | None = None) -> RawFrame:
    n = len(distances)
    objects = Objects(
        ("vase", "bin", "cat")[:n],
        ("",) * n,
        ("obstacle",) * n,
        np.array([[1.0, 0, 0.1], [2.0, 0, 0.1], [math.nan] * 3])[:n],
        np.tile([0.0, 0, 0, 1], (n, 1)),
        np.array(distances),
        np.full(n, -1, np.int8),
    )
    standing = Base(*HERE, vector([0, 0, 0]), vector([0, 0, 0]))
    return RawFrame(1, base=base or standing, objects=objects)


CUBE = (Primitive("box", (0.1, 0.1, 0.1)),)


def test_only_unknown_distances_are_filled() -> None:
    given_frame = frame([math.nan, 0.7, math.nan])
    found = with_distances(given_frame, [BASE], {"vase": CUBE, "bin": CUBE, "cat": CUBE})
    assert found.objects is not None and given_frame.objects is not None
    assert found.objects.distance == pytest.approx([0.55, 0.7, math.nan], nan_ok=True)
    assert math.isnan(given_frame.objects.distance[0])


def test_what_cannot_be_known_stays_unknown() -> None:
    unknown = frame([math.nan])
    assert same(with_distances(unknown, [BASE], {}), unknown)
    assert same(with_distances(unknown, [], {"vase": CUBE}), unknown)
    assert same(with_distances(RawFrame(1), [BASE], {"vase": CUBE}), RawFrame(1))
    lost = Base(vector([math.nan] * 3), HERE[1], vector([0, 0, 0]), vector([0, 0, 0]))
    assert same(with_distances(frame([math.nan], lost), [BASE], {"vase": CUBE}), frame([math.nan], lost))
