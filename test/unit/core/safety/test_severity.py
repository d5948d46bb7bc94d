"""Normalized violation depth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.safety import violation_depth, violation_depths


@pytest.mark.parametrize(
    ("rho", "depth"),
    [(-1.0, 0.005), (-200.0, 1.0), (-1e9, 1.0), (-math.inf, 1.0), (0.0, 0.0), (-0.0, 0.0), (5.0, 0.0), (math.inf, 0.0)],
)
def test_depth_is_linear_and_clipped(rho: float, depth: float) -> None:
    found = violation_depth(rho, 200, 400)
    assert found == pytest.approx(depth)
    assert math.copysign(1.0, found) == 1.0


def test_an_anchor_below_the_threshold() -> None:
    assert violation_depth(-0.05, 0.0, -0.25) == pytest.approx(0.2)


def test_binary() -> None:
    assert violation_depth(-0.5, 0.5, math.nan, binary=True) == 1.0
    assert violation_depth(0.5, 0.5, math.nan, binary=True) == 0.0


def test_unknown_stays_unknown() -> None:
    assert math.isnan(violation_depth(math.nan, 200, 400))
    assert math.isnan(violation_depth(math.nan, 0, 0, binary=True))


@pytest.mark.parametrize(("threshold", "severe"), [(1.0, 1.0), (1.0, math.nan), (math.inf, 2.0)])
def test_anchors_that_give_no_depth(threshold: float, severe: float) -> None:
    with pytest.raises(ValueError, match="severity anchor"):
        violation_depth(-1.0, threshold, severe)
    with pytest.raises(ValueError, match="severity anchor"):
        violation_depths([-1.0], threshold, severe)


@given(st.lists(st.floats(allow_infinity=True, allow_nan=True)), st.booleans())
def test_arrays_equal_scalars(values: list[float], binary: bool) -> None:
    found = violation_depths(values, 15, 30, binary)
    assert np.array_equal(found, [violation_depth(v, 15, 30, binary) for v in values], equal_nan=True)
