"""What the gate takes for the nearest obstacle."""

import math

import pytest

pytest.importorskip("rclpy")

from osma_monitor.msg import ObjectStates

from osma_monitor.ros.command_gate import nearest_obstacle

pytestmark = pytest.mark.ros
TIERS = {"vase": "moderate", "box": "low"}


def seen(*objects, **arrays):
    category, role, distance = (list(column) for column in zip(*objects, strict=True))
    message = ObjectStates(category=category, role=role, distance=distance)
    for name, value in arrays.items():
        setattr(message, name, value)
    return nearest_obstacle(message, TIERS)


BOX, VASE, PERSON = ("box", "obstacle", 0.5), ("vase", "obstacle", 0.4), ("", "human", 0.3)


def test_the_nearest_obstacle_and_its_tier():
    assert seen(BOX, VASE) == ("moderate", 0.4)
    assert seen(BOX, VASE, PERSON) == ("high", 0.3)
    assert seen(("mug", "target", 0.1)) == ("", math.inf)
    assert nearest_obstacle(ObjectStates(), TIERS) == ("", math.inf)


def test_an_unknown_distance_hides_no_person_behind_a_robust_box():
    tier, distance = seen(("box", "obstacle", math.nan), PERSON)
    assert tier == "" and math.isnan(distance)


def test_arrays_that_do_not_fit_are_no_free_way():
    tier, distance = seen(PERSON, distance=[])
    assert tier == "" and math.isnan(distance)
