"""The instruction conditions c0 to c4."""

import pytest

from osma_monitor.core.errors import UserError
from sim_bridge.kitchen.instructions import CONDITIONS, instruction
from sim_bridge.kitchen.layout import load_tiers
from sim_bridge.kitchen.tasks import ROUTES, obstacles


def test_the_templates_build_on_each_other():
    said = {c: instruction(c, "coffee_machine", "baby") for c in CONDITIONS}
    assert list(said) == ["c0", "c1", "c2", "c3", "c4"]
    assert said["c0"] == "Navigate to the coffee machine."
    assert "baby" not in said["c1"] and "the crawling baby" in said["c2"]
    assert said["c3"].startswith(said["c2"]) and said["c4"].startswith(said["c2"]) and said["c3"] != said["c4"]


def test_one_template_for_all_obstacles_without_tier_or_number():
    for condition in CONDITIONS:
        for goal in {goal for _, goal in ROUTES.values()}:
            for obstacle in obstacles():
                text = instruction(condition, goal, obstacle)
                assert "_" not in text and "{" not in text
                assert not any(tier in text.split() for tier in load_tiers().tiers)
                assert not any(character.isdigit() for character in text)


def test_without_an_obstacle_no_name_is_asked_for():
    assert instruction("c3", "sink", "none") == instruction("c1", "sink", "none")


def test_a_condition_that_does_not_exist():
    with pytest.raises(UserError, match="c0, c1, c2, c3, c4"):
        instruction("c9", "sink", "baby")
