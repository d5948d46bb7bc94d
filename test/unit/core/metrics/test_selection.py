"""Target selection (BEHAVIOR-Spatial Table S4)."""

import math

import pytest

from osma_monitor.core.metrics import selection
from osma_monitor.core.metrics.selection import Selection
from osma_monitor.core.metrics.statistics import wilson_interval

NAN = math.nan
CLOSEST = {"apple": 0.10, "pear": 0.20, "plum": 0.30}
SHELF = {"bottom": (0.0, 0.3), "middle": (0.35, 0.65), "top": (0.7, 1.0)}


def outcome(s):
    return s.verdict, s.strict, s.soft, s.wrong


CORRECT = ("correct", True, True, False)
WRONG = ("wrong", False, False, True)
CREDIT = ("none", False, True, False)
NONE = ("none", False, False, False)


@pytest.mark.parametrize(
    ("target", "touched", "want"),
    [
        ("apple", ["apple"], CORRECT),
        ("apple", ["table", "apple", "pear"], CORRECT),
        ("apple", ["pear", "apple"], WRONG),
        ("apple", ["table"], CREDIT),
        ("apple", [], CREDIT),
        ("pear", [], NONE),
        ("pear", ["apple"], WRONG),
    ],
)
def test_reach_by_contact(target, touched, want):
    assert outcome(selection.reach(target, touched, CLOSEST)) == want


@pytest.mark.parametrize("distance", [0.20, NAN, math.inf])
def test_soft_credit_needs_a_strictly_smaller_known_distance(distance):
    assert not selection.reach("apple", [], {"apple": distance, "pear": 0.20}).soft
    assert not selection.reach("apple", [], {"apple": 0.1, "pear": NAN}).soft


@pytest.mark.parametrize(
    ("base", "want"),
    [
        ({"apple": 0.70, "pear": 0.71, "plum": 2.0}, CORRECT),
        ({"apple": 0.701, "pear": 0.9, "plum": 2.0}, CREDIT),
        ({"apple": 0.60, "pear": 0.50, "plum": 2.0}, WRONG),
        ({"apple": 0.60, "pear": 0.60, "plum": 2.0}, CREDIT),
        ({"apple": 0.60, "pear": NAN, "plum": 2.0}, CREDIT),
    ],
)
def test_reach_by_base_proximity_takes_the_nearest_candidate(base, want):
    assert outcome(selection.reach("apple", [], CLOSEST, base)) == want


def test_a_touch_comes_before_base_proximity():
    near = {"apple": 0.1, "pear": 0.5, "plum": 2.0}
    assert selection.reach("apple", ["pear"], CLOSEST, near).wrong


def test_reach_refuses_a_target_without_alternative():
    with pytest.raises(ValueError, match="not among the candidates apple, pear, plum"):
        selection.reach("kiwi", [], CLOSEST)
    with pytest.raises(ValueError, match="no alternative"):
        selection.reach("apple", [], {"apple": 0.1})


@pytest.mark.parametrize(
    ("yaw", "position", "want"),
    [(0.0, (0, -1), 1.0), (0.0, (0, 1), -1.0), (math.pi / 2, (1, 0), 1.0), (math.pi, (0, 1), 1.0), (0.0, (5, 0), 0.0)],
)
def test_right_of_the_robot(yaw, position, want):
    assert selection.right_of(position, (0, 0), yaw) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("side", "rightward", "distance", "released", "on_surface", "want"),
    [
        ("right", 0.2, 0.2, True, True, CORRECT),
        ("right", 0.17, 0.17, True, True, CORRECT),
        ("left", -0.2, 0.3, True, True, CORRECT),
        ("left", 0.2, 0.3, True, True, WRONG),
        ("right", 0.16, 0.16, True, True, ("on_ref", False, False, False)),
        ("right", 0.0, 0.5, True, True, ("on_ref", False, False, False)),
        ("right", 0.5, 0.5, True, False, ("off_surface", False, False, False)),
        ("right", 0.01, 0.01, False, True, CREDIT),
        ("right", -0.5, 0.5, False, True, NONE),
        ("right", NAN, 0.5, True, True, NONE),
        ("right", NAN, 0.5, False, True, NONE),
        ("right", 0.5, NAN, True, True, NONE),
    ],
)
def test_directional_placement(side, rightward, distance, released, on_surface, want):
    assert outcome(selection.place_beside(side, rightward, distance, released, on_surface)) == want


def test_directional_placement_knows_two_sides():
    with pytest.raises(ValueError, match="left and right"):
        selection.place_beside("front", 0.5, 0.5, True)


@pytest.mark.parametrize(
    ("heights", "inside", "released", "want"),
    [
        ([0.0, 0.5], [0, 1], True, CORRECT),
        ([0.0, 0.8], [0, 1], True, WRONG),
        ([0.0, 0.66], [0, 1], True, CORRECT),  # between two bands, nearer to the middle one
        ([0.0, 0.69], [0, 1], True, WRONG),
        ([0.0, 0.5], [0, 0], True, NONE),  # outside the container
        ([0.0, 0.5], [0, 1], False, CREDIT),  # still held inside
        ([0.0, 0.5, 0.9], [0, 1, 1], False, NONE),  # passed through the band
        ([0.0, 0.5, 0.9], [0, 1, 0], False, CREDIT),  # the higher point was outside the footprint
        ([0.0, 0.70], [0, 1], False, CREDIT),  # 5 cm above the band
        ([0.0, 0.30], [0, 1], False, CREDIT),  # 5 cm below it
        ([0.0, 0.71], [0, 1], False, NONE),
        ([0.0, 0.29], [0, 1], False, NONE),
        ([0.5, NAN], [1, 1], True, CREDIT),  # unknown rest
        ([NAN, NAN], [1, 1], False, NONE),
        ([], [], True, NONE),
    ],
)
def test_container_placement(heights, inside, released, want):
    assert outcome(selection.place_inside("middle", SHELF, heights, inside, released)) == want


def test_an_object_outside_all_bands_is_no_commitment():
    assert selection.place_inside("middle", SHELF, [1.2], [True], True).verdict == "none"


def test_an_object_on_the_floor_earns_nothing():
    s = selection.place_inside("middle", SHELF, [0.5, 0.0], [1, 0], True, on_floor=True)
    assert outcome(s) == ("off_surface", False, False, False)


def test_container_placement_refuses_nonsense():
    with pytest.raises(ValueError, match="not among bottom, middle, top"):
        selection.place_inside("attic", SHELF, [0.5], [1], True)
    with pytest.raises(ValueError, match="1 heights and 2"):
        selection.place_inside("top", SHELF, [0.5], [1, 1], True)
    with pytest.raises(ValueError, match=r"height band 1\.0 to 0\.5"):
        selection.place_inside("a", {"a": (1.0, 0.5)}, [0.5], [1], True)


def test_navigation_is_binary():
    assert outcome(selection.reach_place(True)) == CORRECT and outcome(selection.reach_place(False)) == NONE


def test_summary_pools_episodes_and_keeps_the_task_means_apart():
    episodes = [("a", Selection("correct"))] * 3 + [("b", Selection("wrong")), ("c", Selection("none", True))]
    s = selection.summarize(episodes)
    assert (s.n, s.strict, s.soft, s.wrong, s.undecided) == pytest.approx((5, 0.6, 0.8, 0.2, 0.2))
    assert s.macro == pytest.approx({"strict": 1 / 3, "soft": 2 / 3, "wrong": 1 / 3})
    assert s.by_task["a"] == (3, 1.0, 1.0, 0.0)
    assert s.intervals["soft"] == wilson_interval(4, 5)


def test_no_episodes_give_nan():
    s = selection.summarize([])
    assert s.n == 0 and all(math.isnan(v) for v in (s.strict, s.soft, s.wrong, s.undecided, *s.macro.values()))


def test_credit_does_not_turn_a_failed_release_into_soft_success():
    assert not Selection("on_ref", credit=True).soft and not Selection("wrong", credit=True).soft


def test_ratios():
    assert selection.pooled_rate([(1, 2), (3, 8)]) == 0.4 and math.isnan(selection.pooled_rate([]))
    assert selection.recovery_ratio(0.5, 0.4, 0.6) == pytest.approx(0.5)
    assert math.isnan(selection.recovery_ratio(0.5, 0.4, 0.4))
