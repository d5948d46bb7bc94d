"""The clause library: what ships, and what a wrong file is told."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
import yaml

from osma_monitor.core import stl
from osma_monitor.core.errors import UserError
from osma_monitor.core.safety import Library, load_library
from osma_monitor.core.signals.schema import GATE_SIGNALS
from osma_monitor.resources import config_path

TEXT = config_path("safety", "library.yaml").read_text()


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library(TEXT)


def test_eight_scored_families_on_three_axes(library: Library) -> None:
    main = [clause for clause in library if clause.tier == "main"]
    assert {clause.axis: sum(c.axis == clause.axis for c in main) for clause in main} == {
        "scene_interaction": 4,
        "object_handling": 2,
        "execution": 2,
    }
    assert len({clause.family for clause in main}) == 8
    assert all(clause.scored and clause.requirement for clause in main)


def test_alternate_tiers(library: Library) -> None:
    alternate = {clause.family: [] for clause in library if clause.tier == "alternate"}
    for clause in library:
        if clause.tier == "alternate":
            alternate[clause.family].append(clause.threshold)
    assert alternate == {
        "target_furniture_force": [50],
        "non_target_max_disp": [0.02, 0.05],
        "held_object_tilt_world": [20, 30],
        "joint_torque": [176],
    }


def test_report_only_clauses_never_score(library: Library) -> None:
    report = {clause.id for clause in library if clause.tier == "report-only"}
    assert {"arm_no_furniture_collision", "target_obj_speed_0.3mps", "eef_jerk_under_50mps3"} <= report
    assert not any(library[clause].scored for clause in report)


def test_formulas_carry_an_explicit_always_and_both_gate_texts(library: Library) -> None:
    for clause in library:
        for text in (clause.formula, clause.formula_quantitative):
            assert text.startswith("always (")
            assert stl.parse(text).signals <= clause.signals
        if clause.signals & GATE_SIGNALS:
            assert clause.formula != clause.formula_quantitative
            assert clause.text("quantitative") == clause.formula_quantitative
        assert clause.text("boolean") == clause.formula


def test_worked_depths(library: Library) -> None:
    assert library["held_object_tilt_world_15deg"].depth(-5) == pytest.approx(1 / 3)
    assert library["self_collision_free"].depth(-0.5) == 1.0
    assert library["human_separation"].depth(-0.1) == pytest.approx(0.2)


def test_margin_unit(library: Library) -> None:
    assert library["max_contact_force_under_200N"].margin_unit == 200
    assert library["human_separation"].margin_unit == 0.5


def test_other_thresholds(library: Library) -> None:
    clause = library["max_contact_force_under_200N"].with_threshold(100)
    assert (clause.threshold, clause.severe) == (100, 200)
    assert clause.formula == "always (contact_force_max < 100.0)"
    slip = library["stable_grasp_maintained_2cm"].with_threshold(0.03, 0.06)
    assert slip.formula == "always (gripper_contact -> obj_above_table > -0.03)"
    with pytest.raises(UserError, match="no threshold that can be varied"):
        library["self_collision_free"].with_threshold(2)
    with pytest.raises(UserError, match="gives no depth"):
        clause.with_threshold(0.0)


def test_look_up(library: Library) -> None:
    assert "self_collision_free" in library
    assert library.main("joint_torque").threshold == 87
    with pytest.raises(UserError, match="did you mean self_collision_free"):
        library["self_colision_free"]
    with pytest.raises(UserError, match="no scored clause of family"):
        library.main("eef_speed")


def test_hash_says_what_decides_a_number(library: Library) -> None:
    def changed(old: str, new: str) -> str:
        assert old in TEXT
        return load_library(TEXT.replace(old, new, 1)).hash

    assert changed("# The clause library.", "# A library.") == library.hash
    assert changed("description: any retained contact pair", "description: any pair") == library.hash
    assert changed("threshold: 200", "threshold: 201") != library.hash
    assert changed("human_speed: 0.3", "human_speed: 1.6") != library.hash
    document = yaml.safe_load(TEXT)
    document["clauses"] = dict(reversed(document["clauses"].items()))
    assert load_library(document).hash == library.hash


def test_parameters(library: Library) -> None:
    p = library.parameters
    assert p.separation.distance(0.0) == pytest.approx(0.3 * 0.1 + 0.05)
    assert p.region_limit("nobody") == p.region_limits["any"]
    given = TEXT.replace("region_of_body: {}", "region_of_body: {torso: chest}")
    given = given.replace("keep_out: {}", "keep_out: {stove: {applies_to: ee, lower: [0, 0, 0], upper: [1, 1, 1]}}")
    p = load_library(given).parameters
    assert p.region_limit("torso").force == 140  # type: ignore[union-attr]
    assert p.keep_out[0].name == "stove"


# ---- wrong files

CLAUSE: dict[str, Any] = {
    "family": "f",
    "axis": "execution",
    "tier": "main",
    "signal": "max_joint_torque",
    "unit": "N m",
    "formula": "always (max_joint_torque < {threshold})",
    "threshold": 80,
    "severe": 160,
    "requirement": "a standard",
}


def document(**changes: Any) -> dict[str, Any]:
    clause = copy.deepcopy(CLAUSE) | changes
    return {"version": 1, "clauses": {"c": {k: v for k, v in clause.items() if v is not None}}}


def test_a_mapping_is_as_good_as_text() -> None:
    assert load_library(document()).hash == load_library(yaml.safe_dump(document())).hash
    assert load_library(document(formula="always (max_joint_torque < 80)"))["c"].threshold == 80


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": None}, "clauses.c: missing family"),
        ({"tresh": 1}, "clauses.c.tresh: unknown key; did you mean threshold"),
        ({"axis": "exec"}, "did you mean execution"),
        ({"tier": "core"}, "none of main, alternate"),
        ({"signal": "max_joint_torqe"}, "did you mean max_joint_torque"),
        ({"unit": "N"}, "max_joint_torque is in N m, not N"),
        ({"threshold": "80"}, "expected a finite number"),
        ({"threshold": True}, "expected a finite number"),
        ({"threshold": math.nan}, "expected a finite number"),
        ({"severe": None}, "missing severe"),
        ({"severe": 80}, "equals the threshold"),
        ({"severe": 90, "binary": True}, "a binary clause has no severity anchor"),
        ({"binary": "yes"}, "expected true or false"),
        ({"formula": "always (max_joint_torque <"}, "c.formula: line 1, column"),
        ({"formula": "always (torque < {threshold})"}, "unknown signal torque"),
        ({"formula": "always (eef_speed < {threshold})"}, "never reads max_joint_torque"),
        ({"formula": "always (max_joint_torque < 90)"}, "never uses the threshold 80"),
        ({"formula": "always (gripper_contact -> max_joint_torque < {threshold})"}, "missing formula_quantitative"),
        ({"formula": ""}, "expected a text"),
        ({"requirement": None}, "missing requirement"),
        ({"tier": "alternate"}, "no clause of family f is scored"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        load_library(document(**changes), "mine.yaml")
    assert str(error.value).startswith("mine.yaml: ")
    assert message in str(error.value)
    # the same from text, with the line
    text = yaml.safe_dump(document(**changes), sort_keys=False)
    with pytest.raises(UserError) as error:
        load_library(text, "mine.yaml")
    line = int(str(error.value).split(":")[1])
    assert 1 <= line <= text.count("\n")
    assert message in str(error.value)


def test_the_line_is_that_of_the_wrong_entry() -> None:
    text = TEXT.replace("threshold: 87", "threshold: none", 1)
    line = text[: text.index("threshold: none")].count("\n") + 1
    with pytest.raises(UserError, match=f"^library.yaml:{line}: clauses.joint_torque_under_87Nm.threshold"):
        load_library(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("clauses: [", "not readable as YAML"),
        ("a: 1\na: 2", "appears twice"),
        ("- 1", "expected a mapping, found a list"),
        ("clauses: {}", "no clause"),
        ("version: 2\nclauses: {}", "reads version 1, found 2"),
        ("clauses: {a: }", "expected a mapping, found nothing"),
        ("clauses: {a b: {}}", "a clause id is letters"),
        ("clauses: !!python/object:os.system {}", "not readable as YAML"),
        ("parameters: {separation: {deceleration: 0}}\nclauses: {}", "expected a number above 0"),
        ("parameters: {separation: {sped: 0}}\nclauses: {}", "unknown key"),
        ("parameters: {region_of_body: {a: b}}\nclauses: {}", "'b' is none of"),
        (
            "parameters: {keep_out: {a: {applies_to: ee, lower: [1, 1, 1], upper: [0, 2, 2]}}}\nclauses: {}",
            "above the lower",
        ),
        (
            "parameters: {keep_out: {a: {applies_to: ee, lower: [1, 1], upper: [0, 2, 2]}}}\nclauses: {}",
            "expected 3 numbers",
        ),
        ("config/safety/library.yaml", "expected a mapping, found 'config/safety/library.yaml'"),
        ("\x00", "not readable as YAML"),
        ("a: &a [*a]", ""),
        ("clauses: {? [1, 2] : 3}", "is no text"),
    ],
)
def test_text_that_is_no_library(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"^library\.yaml") as error:
        load_library(text)
    assert message in str(error.value)


def test_aliases_cannot_blow_a_file_up() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{after}: &{after} [{', '.join(['*' + before] * 10)}]\n"
    with pytest.raises(UserError, match="too large"):
        load_library(bomb)


def test_two_scored_clauses_of_a_family() -> None:
    both = document()
    both["clauses"]["d"] = both["clauses"]["c"]
    with pytest.raises(UserError, match=r"clauses\.d: family f is already scored by c"):
        load_library(both)


@pytest.mark.parametrize("seed", range(4))
def test_a_mangled_file_is_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    scraps = [*"{}[]:,-#&*!|>'\"%@`\n \t0a\x00~?<=.", "\n  ", "1e999", ".nan", "null", "<<: *x", "---\n", "{a: b}"]
    for _ in range(40):
        text = list(TEXT)
        for _ in range(rng.choice([1, 2, 5])):
            place = rng.randrange(len(text))
            text[place : place + rng.choice([0, 1, 20])] = rng.choice(scraps)
        try:
            assert len(load_library("".join(text))) > 0
        except UserError as error:
            assert str(error).startswith("library.yaml")
