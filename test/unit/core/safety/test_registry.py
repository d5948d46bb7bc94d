"""Applicability by templates and tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import EpisodeMonitor, MonitorConfig
from osma_monitor.core.safety import Library, Registry, active_clauses, load_library, load_registry
from osma_monitor.core.signals.deriver import unavailable
from osma_monitor.core.signals.raw import Joints, RawFrame
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.resources import config_path

TEXT = config_path("safety", "registry.yaml").read_text()
SUITES = {path.name: path.read_text() for path in config_path("safety", "suites").glob("*.yaml")}


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library(config_path("safety", "library.yaml").read_text())


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry(TEXT, SUITES)


def families(found: tuple[Any, dict[str, str]], scored: bool = True) -> set[str]:
    return {clause.family for clause in found[0] if clause.scored == scored}


ALL = {
    "arm_furniture_force",
    "max_contact_force",
    "non_target_max_disp",
    "target_furniture_force",
    "held_object_tilt_world",
    "stable_grasp_maintained",
    "joint_torque",
    "self_collision_free",
}
HELD = {"target_furniture_force", "held_object_tilt_world", "stable_grasp_maintained"}


@pytest.mark.parametrize(
    ("templates", "tags", "off"),
    [
        (["pnp_basic"], [], set()),
        (["pnp_basic"], ["non_spillable"], {"held_object_tilt_world"}),
        (["pnp_into_container"], [], set()),
        (["wine_rack_insert"], [], {"held_object_tilt_world"}),
        (["push_no_lift"], [], HELD),
        (["articulated_manipulation"], [], HELD | {"arm_furniture_force", "non_target_max_disp"}),
        (["knob_twist"], [], HELD | {"non_target_max_disp"}),
        (["navigate"], [], HELD | {"non_target_max_disp"}),
        # a composite keeps the held-object clauses of its held part and loses what either part switches off
        (["articulated_manipulation", "pnp_into_container"], [], {"arm_furniture_force", "non_target_max_disp"}),
        (["knob_twist", "pnp_basic"], [], {"non_target_max_disp"}),
        ([], [], HELD),
    ],
)
def test_templates(library: Library, registry: Registry, templates: list[str], tags: list[str], off: set[str]) -> None:
    assert families(active_clauses(library, registry, templates, tags)) == ALL - off


def test_every_clause_is_active_or_has_a_reason(library: Library, registry: Registry) -> None:
    for suite in registry.suites.values():
        for task in suite.tasks.values():
            missing = unavailable(suite.capabilities)
            active, inactive = active_clauses(library, registry, task.templates, task.tags, missing, suite=suite.name)
            assert [c.id for c in library if c.id in {a.id for a in active} | set(inactive)] == [c.id for c in library]
            assert not {a.id for a in active} & set(inactive)
            assert all(inactive.values())


def test_a_task_is_found_in_its_suite(library: Library, registry: Registry) -> None:
    by_name = active_clauses(library, registry, suite="libero_goal", task="9")
    by_hand = active_clauses(library, registry, ["wine_rack_insert"], [], suite="libero_goal")
    assert by_name == by_hand
    assert active_clauses(library, registry, suite="libero_goal", task="put the wine bottle on the rack") == by_name
    with pytest.raises(UserError, match="has no task '10'"):
        registry.suites["libero_goal"].task("10")


def test_a_task_that_its_suite_does_not_list_is_judged_by_what_needs_no_tag(
    library: Library, registry: Registry
) -> None:
    active, inactive = active_clauses(library, registry, suite="libero_goal", task="10")
    assert families((active, inactive)) == families(active_clauses(library, registry, suite="libero_goal"))
    assert {"max_contact_force", "non_target_max_disp", "joint_torque"} <= families((active, inactive))
    reason = inactive["held_object_tilt_world_15deg"]
    assert reason == "needs the tag held_target; nothing says what '10' of suite libero_goal is made of"
    # what the suite says of its host still holds, and a task with templates needs no entry
    assert inactive["arm_furniture_force_under_200N"] == "switched off by the tag no_furniture_channels"
    _, given = active_clauses(library, registry, ["navigate"], suite="libero_goal", task="10")
    assert given["held_object_tilt_world_15deg"] == "needs the tag held_target"


def test_a_monitor_beside_hardware_judges_a_task_that_nobody_listed(library: Library, registry: Registry) -> None:
    monitor = EpisodeMonitor(EpisodeInfo("e", task="new", suite="so101"), MonitorConfig(library, registry))
    joints = Joints(("j1",), np.zeros(1), np.zeros(1), np.array([100.0]))
    update = monitor.update(RawFrame(1, joints=joints))
    assert update is not None and update.state == "violated"
    record = monitor.close(Outcome("success"))
    assert record.safety == "unsafe"
    assert "nothing says what 'new' of suite so101 is made of" in record.inactive["stable_grasp_maintained_2cm"]


def test_suite_tags_hold_for_its_tasks(library: Library, registry: Registry) -> None:
    active, inactive = active_clauses(library, registry, ["pnp_basic"], [], suite="libero_10")
    assert "arm_furniture_force" not in {c.family for c in active}
    assert inactive["arm_furniture_force_under_200N"] == "switched off by the tag no_furniture_channels"
    # a suite that nobody described adds nothing
    assert "arm_furniture_force" in {
        c.family for c in active_clauses(library, registry, ["pnp_basic"], suite="mine")[0]
    }


def test_missing_signals_are_reasons(library: Library, registry: Registry) -> None:
    active, inactive = active_clauses(library, registry, ["pnp_basic"], [], {"max_joint_torque": "joints.effort"})
    assert inactive["joint_torque_under_87Nm"] == "signal max_joint_torque is not available: joints.effort"
    assert "joint_torque" not in {c.family for c in active}


def test_a_tag_is_the_reason_even_when_a_signal_is_missing_too(library: Library, registry: Registry) -> None:
    _, inactive = active_clauses(library, registry, ["navigate"], [], dict.fromkeys(SCHEMA, "nothing"))
    assert inactive["held_object_tilt_world_15deg"] == "needs the tag held_target"
    assert inactive["non_target_max_disp_5mm"] == "switched off by the tag base_goal_motion"


def test_so101_scores_the_two_families_of_the_pilot(library: Library, registry: Registry) -> None:
    suite = registry.suites["so101"]
    found = active_clauses(
        library, registry, suite="so101", task="butter", unavailable_signals=unavailable(suite.capabilities)
    )
    assert families(found) == {"non_target_max_disp", "stable_grasp_maintained"}


def test_extensions_are_off_until_they_are_named(library: Library, registry: Registry) -> None:
    active, inactive = active_clauses(library, registry, ["navigate"])
    assert not [c for c in active if c.tier == "extension"]
    assert "not switched on" in inactive["human_separation"]
    active, _ = active_clauses(library, registry, ["navigate"], extensions=["human_separation"])
    assert [c.id for c in active if c.tier == "extension"] == ["human_separation"]
    assert next(c for c in active if c.id == "human_separation").scored
    with pytest.raises(UserError, match="did you mean human_separation"):
        active_clauses(library, registry, extensions=["human_seperation"])


def test_the_kitchen_scores_what_it_does_to_people(library: Library, registry: Registry) -> None:
    suite = registry.suites["kitchen"]
    missing = unavailable(suite.capabilities)
    found = active_clauses(library, registry, suite="kitchen", task="G0/A/baby", unavailable_signals=missing)
    assert {"human_contact_force", "human_separation", "max_contact_force"} <= families(found)
    assert {"obstacle_contact_free", "base_speed_near_human"} <= families(found, scored=False)
    without = active_clauses(
        library, registry, ["navigate"], [], missing | {"separation_margin": "objects.human"}, suite="kitchen"
    )
    assert "human_separation" not in families(without)
    # what a suite reports only, a configuration can still score
    more = active_clauses(library, registry, ["navigate"], suite="kitchen", extensions=["obstacle_contact_free"])
    assert "obstacle_contact_free" in families(more)


@pytest.mark.parametrize(
    ("templates", "tags", "message"),
    [
        (["pick"], [], "unknown template 'pick'"),
        (["navigat"], [], "did you mean navigate"),
        ([], ["spillable"], "did you mean non_spillable"),
        ([], ["xyz"], "no rule knows the tag 'xyz'"),
    ],
)
def test_unknown_names(
    library: Library, registry: Registry, templates: list[str], tags: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        active_clauses(library, registry, templates, tags)


def test_a_family_without_a_rule(library: Library) -> None:
    document = yaml.safe_load(TEXT)
    del document["rules"]["joint_torque"]
    with pytest.raises(UserError, match="family joint_torque of clause joint_torque_under_87Nm has no rule"):
        active_clauses(library, load_registry(document))


SMALL: dict[str, Any] = {
    "tags": {"a": "one", "b": "two"},
    "templates": {"t": {"tags": ["a"]}},
    "rules": {"f": {"requires": ["a"], "invalidated_by": ["b"]}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"templates": {"t": {"tags": ["c"]}}}, "registry.yaml:7: templates.t.tags: no rule knows the tag 'c'"),
        ({"tags": {"a": "one", "b": "two", "unused": "x"}}, "registry.yaml:4: tags.unused: no rule uses this tag"),
        ({"rules": {"f": {"requires": ["a", "b"], "invalidated_by": ["b"]}}}, "requires and forbids the tag b"),
        ({"rules": {"f": {"requires": ["a", "a"], "invalidated_by": ["b"]}}}, "appears twice"),
        ({"rules": {"f": {"require": ["a"]}}}, "did you mean requires"),
        ({"tags": {"a": ""}}, "expected a text"),
        ({"templates": 3}, "expected a mapping, found 3"),
        ({"version": 2}, "version: this program reads version 1, found 2"),
    ],
)
def test_a_wrong_registry(changes: dict[str, Any], message: str) -> None:
    text = yaml.safe_dump(SMALL | changes, sort_keys=False)
    with pytest.raises(UserError) as error:
        load_registry(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suite: s\ntasks:\n  x: {templates: [u]}", "s.yaml:3: tasks.x.templates: unknown template 'u'"),
        (
            "suite: s\ntasks:\n  x:\n    templates: [t]\n    tags: [c]",
            "s.yaml:5: tasks.x.tags: no rule knows the tag 'c'",
        ),
        ("suite: s\ntasks: {x: {templates: []}}", "needs at least one template"),
        ("suite: s", "a suite needs tasks"),
        ("tasks: {}", "missing suite"),
        ("suite: s\ntemplates: [t]\nfoo: 1", "unknown key"),
        (
            "suite: s\ntemplates: [t]\ncapabilities: [objects.bystnder]",
            "s.yaml:3: capabilities: no signal needs the capability 'objects.bystnder'; did you mean objects.bystander",
        ),
        ("suite: s\ntemplates: [t]\n\nextensions: [g]", "s.yaml:4: extensions: no rule for the family 'g'"),
        ("suite: s\ntemplates: [t]\nreport: [f, f]", "the family 'f' appears twice"),
        ("suite: s\nversion: 3\ntemplates: [t]", "s.yaml:2: version: this program reads version 1, found 3"),
    ],
)
def test_a_wrong_suite(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load_registry(SMALL, {"s.yaml": text})
    assert message in str(error.value)


def test_a_suite_in_two_files() -> None:
    text = "suite: s\ntemplates: [t]"
    with pytest.raises(UserError, match=r"b\.yaml:1: suite: suite s is already defined"):
        load_registry(SMALL, {"a.yaml": text, "b.yaml": text})


def test_a_new_task_needs_a_template_and_tags_alone(library: Library) -> None:
    suites = SUITES | {"mine.yaml": "suite: mine\ntasks: {pour: {templates: [pnp_basic], tags: [non_spillable]}}"}
    found = active_clauses(library, load_registry(TEXT, suites), suite="mine", task="pour")
    assert families(found) == ALL - {"held_object_tilt_world"}


def test_hash(registry: Registry) -> None:
    assert load_registry("# a remark\n" + TEXT, SUITES).hash == registry.hash
    assert (
        load_registry(TEXT.replace("[held_target, task_defining_tilt]", "[held_target]"), SUITES).hash != registry.hash
    )


@given(
    st.sets(st.sampled_from(sorted(yaml.safe_load(TEXT)["tags"]))),
    st.sampled_from(sorted(yaml.safe_load(TEXT)["tags"])),
)
def test_rules_are_required_present_and_invalidating_absent(tags: set[str], extra: str) -> None:
    registry = load_registry(TEXT)
    for rule in registry.rules.values():
        expected = set(rule.requires) <= tags and not set(rule.invalidated_by) & tags
        assert (rule.obstacle(frozenset(tags)) == "") == expected
        if extra in rule.invalidated_by:
            assert rule.obstacle(frozenset(tags | {extra}))


def test_what_a_person_types_is_known_or_said(registry: Registry) -> None:
    assert registry.check_typed((), ()) == ""
    assert registry.check_typed((), (), "so101", "butter") == ""
    assert registry.check_typed((), (), "kitchen", "any task of a suite that lists none") == ""
    assert registry.check_typed((), (), "", "a label") == ""
    for templates, tags, suite, task, words in (
        (["navigat"], [], "", "", "did you mean navigate"),
        ([], ["spillable"], "", "", "did you mean non_spillable"),
        ([], [], "so11", "", "no suite 'so11'; did you mean so101"),
        ([], [], "so101", "buter", "no task 'buter'; did you mean butter"),
    ):
        with pytest.raises(UserError, match=words):
            registry.check_typed(templates, tags, suite, task)
    odd = registry.check_typed(["pnp_basic"], [], "so11", "buter")
    assert "only a name here; did you mean so101" in odd
    assert "does not list the task 'buter'" in registry.check_typed(["pnp_basic"], [], "so101", "buter")


def test_the_hash_tells_suites_apart_whose_names_lead_to_other_tags() -> None:
    """An episode names its task by id or by name, so that the names decide too."""

    def hashed(first: str, second: str) -> str:
        return load_registry(
            SMALL,
            {"s": {"suite": "s", "tasks": {"0": {"name": first, "templates": ["t"]}, "1": named(second)}}},
        ).hash

    def named(name: str) -> dict[str, Any]:
        return {"name": name, "templates": ["t"], "tags": ["b"]}

    assert hashed("open", "close") == hashed("open", "close") != hashed("close", "open")
