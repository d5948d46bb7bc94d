"""Transforms against SciPy's rotations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from osma_monitor.core.robot import FixedTransform, RobotModel
from osma_monitor.core.signals.transforms import (
    DEEPEST,
    LONGEST_HISTORY,
    StaleTransformError,
    Transform,
    TransformBuffer,
    UnknownFrameError,
    multiply,
    rotate,
)

S = 1_000_000_000


def random_transform(seed: int) -> Transform:
    rng = np.random.default_rng(seed)
    return Transform(rng.normal(size=3), Rotation.random(random_state=seed).as_quat())


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_algebra_agrees_with_scipy(a, b):
    ta, tb = random_transform(a), random_transform(b)
    ra, rb = Rotation.from_quat(ta.rotation), Rotation.from_quat(tb.rotation)
    p = np.random.default_rng(a + b).normal(size=(5, 3))
    assert np.allclose(rotate(ta.rotation, p), ra.apply(p))
    assert np.allclose(Rotation.from_quat(multiply(ta.rotation, tb.rotation)).as_matrix(), (ra * rb).as_matrix())
    assert np.allclose((ta @ tb).points(p), ta.points(tb.points(p)))
    assert np.allclose(ta.inverse().points(ta.points(p)), p)


def test_a_path_through_a_common_ancestor():
    b = TransformBuffer()
    quarter = Rotation.from_euler("z", 90, degrees=True).as_quat()
    b.set_fixed("map", "odom", Transform(np.array([1.0, 0, 0]), np.array([0, 0, 0, 1.0])))
    b.set("odom", "base", S, Transform(np.array([0, 2.0, 0]), quarter))
    b.set_fixed("map", "camera", Transform(np.array([0, 0, 3.0]), np.array([0, 0, 0, 1.0])))
    assert np.allclose(b.lookup("map", "base", S).points(np.array([1.0, 0, 0])), [1, 3, 0])
    assert np.allclose(b.lookup("camera", "base", S).points(np.array([1.0, 0, 0])), [1, 3, -3])
    assert np.allclose(b.lookup("base", "map", S).points(np.array([1.0, 3, 0])), [1, 0, 0])
    assert b.lookup("/map", "map", S).points(np.zeros(3)).tolist() == [0, 0, 0]


def test_between_two_stamps_and_outside_them():
    b = TransformBuffer(extrapolate_ns=S // 10)
    for t, x in ((1, 0.0), (2, 1.0)):
        b.set("odom", "base", t * S, Transform(np.array([x, 0, 0]), np.array([0, 0, 0, 1.0])))
    assert b.lookup("odom", "base", S + S // 20).translation[0] == pytest.approx(0.05)
    assert b.lookup("odom", "base", 2 * S + S // 20).translation[0] == 1.0
    with pytest.raises(UnknownFrameError, match=r"1\.00 s away"):
        b.lookup("odom", "base", 3 * S)


def test_unknown_frames_are_named():
    b = TransformBuffer()
    b.set_fixed("map", "odom", random_transform(0))
    with pytest.raises(UnknownFrameError, match=r"'lidar' to 'map'; known frames: map, odom"):
        b.lookup("map", "lidar", S)


def test_history_is_bounded_and_a_clock_set_back_starts_anew():
    b = TransformBuffer(history_ns=S)
    for k in range(1000):
        b.set("odom", "base", 100 * S + k * S // 100, random_transform(k))
    assert len(b._edges["base"].stamps) <= 102
    b.set("odom", "base", S, random_transform(0))
    assert len(b._edges["base"].stamps) == 1
    b.set("map", "base", 2 * S, random_transform(1))  # a new parent
    assert b.lookup("map", "base", 2 * S).translation.shape == (3,)


def test_a_transform_that_is_sent_again_takes_no_room_and_history_is_bounded_in_number():
    b = TransformBuffer()
    for x in range(100):
        b.set("odom", "base", S, Transform(np.array([float(x), 0, 0]), np.array([0, 0, 0, 1.0])))
    assert len(b._edges["base"].stamps) == 1 and b.lookup("odom", "base", S).translation[0] == 99.0
    for k in range(LONGEST_HISTORY + 10):
        b.set("odom", "base", S + k, random_transform(0))
    assert len(b._edges["base"].stamps) == LONGEST_HISTORY
    assert len(b) == 1 and "/base" in b and "odom" not in b


def test_a_path_that_is_known_but_old_is_told_from_none():
    b = TransformBuffer()
    b.set("odom", "base", S, random_transform(0))
    with pytest.raises(StaleTransformError, match=r"odom -> base is 9\.00 s away"):
        b.lookup("odom", "base", 10 * S)
    with pytest.raises(UnknownFrameError) as raised:
        b.lookup("odom", "camera", S)
    assert not isinstance(raised.value, StaleTransformError)


def test_a_gap_inside_the_history_is_not_crossed():
    b = TransformBuffer()
    for t in (1, 5):
        b.set("odom", "base", t * S, Transform(np.array([float(t), 0, 0]), np.array([0, 0, 0, 1.0])))
    with pytest.raises(StaleTransformError, match=r"odom -> base is 2\.00 s away"):
        b.lookup("odom", "base", 3 * S)
    for near in (1.5, 4.5):
        assert b.lookup("odom", "base", round(near * S)).translation[0] == near


def test_an_error_names_some_of_many_frames_and_no_way_is_followed_without_end():
    b = TransformBuffer()
    for k in range(DEEPEST + 100):
        b.set_fixed(f"f{k}", f"f{k + 1}", random_transform(k))
    assert b.lookup("f0", f"f{DEEPEST}", S).translation.shape == (3,)
    with pytest.raises(UnknownFrameError, match="and 269 more") as error:
        b.lookup("f0", f"f{DEEPEST + 1}", S)
    assert len(str(error.value)) < 500


def test_a_rotation_of_a_robot_file_turns_and_never_stretches():
    robot = RobotModel("r", transforms=(FixedTransform("base", "camera", (1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0)),))
    assert robot.buffer().lookup("base", "camera", S).points(np.array([2.0, 0.0, 0.0])) == pytest.approx(
        [1.0, 2.0, 0.0]
    )
