"""`osma check`: findings with file and line, exit codes."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from osma_monitor.cli.check import check_file, register
from osma_monitor.core.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def lines(path, level=None):
    return [(f.line, f.message) for f in check_file(path)[0] if level is None or f.level == level]


@pytest.fixture
def clauses(tmp_path):
    def write(text, name="clauses.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_shipped_library_has_no_findings():
    findings, count = check_file(ROOT / "config" / "safety" / "library.yaml")
    assert count > 10 and findings == []


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("always(contact_force_max < )", "stands where a signal, number or formula is expected"),
        ("always(contact_forc_max < 200)", "did you mean 'contact_force_max'"),
        ("always(zzzzzz < 200)", "unknown signal 'zzzzzz'"),
        ("always(contact_force_max < 2 + eef_speed)", "'<' joins N and m/s"),
        ("always(contact_force_max + eef_speed < 2)", "'+' joins N and m/s"),
        ("always(contact_force_max >= 0)", "always holds"),
        ("always(contact_force_max < -1)", "can never hold"),
        ("always(contact_force_max < 0)", "can never hold"),
        ("always(target_obj_tilt_world_deg < 200)", "always holds: target_obj_tilt_world_deg lies in [0, 180]"),
        ("always(transport -> self_collision > 2)", "can never hold: self_collision lies in [0, 1]"),
        ("always(abs(eef_speed) > -1)", "always holds"),
        ("always(eef_speed < eef_speed)", "compares a term with itself"),
        ("always(1 < 2)", "it reads no signal"),
        ("always(abs(eef_speed - (prev(eef_speed))) < 0.1)", "fails at the first sample"),
        ("always(base_x - (next(base_x)) > -1)", "fails at the last sample"),
        ("contact_force_max < 200", "only the last sample is judged"),
        ("always(a -> b -> c)", "ambiguous"),
        ("always(abs(base_x) > -1)", "always holds"),
        ("always(sqrt(base_x) >= 0)", "always holds"),
        ("always(pow(eef_speed, 2) < -1)", "can never hold"),
        ("always(pow(base_x, 2) >= 0)", "always holds"),
        ("always(max(base_x, 5) > 3)", "always holds"),
        ("always(min(base_x, 1) < 2)", "always holds"),
        ("always(eef_speed / eef_acc > -1)", "eef_speed lies in [0, inf]"),
        ("always(perception_age > -1)", "always holds"),
        ("always(obstacle_contact < 1)", "is never violated"),
        ("always(eef_speed > 0)", "is never violated"),
        ("always(eef_speed)", "as a formula is its own margin and always holds"),
        ("always(not obstacle_contact and 1)", "'1' as a formula"),
        ("always(-1 - eef_speed)", "can never hold"),
        ("once[0,1](transport) -> eef_speed < 1", "'eef_speed < 1' is judged at the last sample only"),
        ("rise(eef_speed > 1)", "judged at the last sample only"),
        ("always(EEF_SPEED < 1)", "did you mean 'eef_speed'"),
        ("always(tilt < 15)", "did you mean 'target_obj_tilt_world_deg'"),
    ],
)
def test_what_is_found_in_a_formula(clauses, formula, message):
    path = clauses(f"clauses:\n  - id: one\n    unit: \n    formula: {formula}\n")
    found = lines(path)
    assert found and found[0][0] == 4 and message in found[0][1] and found[0][1].startswith("one: ")
    text = clauses(f"# clauses\n\n{formula}\n", "clauses.txt")
    assert lines(text)[0][0] == 3 and message in lines(text)[0][1]


@pytest.mark.parametrize(
    "formula",
    [
        "always(contact_force_max < 200)",
        "always(transport -> target_obj_tilt_world_deg < 15)",
        "always(contact_force_max / 2 < 200)",
        "always(eef_speed - (prev(eef_speed)) < 0.1)",
        "always((abs(base_x - (prev(base_x))) > 0.1) -> eef_speed < 1)",
        "always(base_yaw_rate > -1)",
        "always[0,5](obj_above_table > -0.02)",
    ],
)
def test_sound_formulas_have_no_findings(clauses, formula):
    assert lines(clauses(f"clauses:\n  one:\n    formula: {formula}\n")) == []


def test_units_are_held_against_the_schema(clauses):
    text = """
clauses:
  one:
    unit: m
    signal: contact_force_max
    formula: always(contact_force_max < {threshold})
    threshold: 200
  two:
    unit: N
    formula: always(contact_force_max < 200)
  three:
    signal: contact_force
    formula: always(contact_force_max < 200)
"""
    found = lines(clauses(text))
    assert found[0][0] == 6 and "given as m, but contact_force_max is in N" in found[0][1]
    assert found[1][0] == 10 and "the same formula as one" in found[1][1]
    assert any(line == 13 and "unknown signal 'contact_force'" in message for line, message in found)


def test_lines_of_block_texts_and_both_texts(clauses):
    text = """
clauses:
  - id: one
    formula: |
      always(
        contact_forc_max < 2
        and eef_speed > >)
    formula_quantitative: always(eef_sped < 2)
  - id: two
  - id: three
    formula: [1, 2]
"""
    found = lines(clauses(text))
    assert [line for line, _ in found] == [7, 8, 9, 11]
    assert "no formula" in found[2][1] and "no text" in found[3][1]


def test_memory_is_a_note_and_no_finding(clauses):
    path = clauses("clauses:\n  one:\n    formula: always(transport -> eventually(obj_above_table > 0.1))\n")
    assert lines(path, "note")[0][0] == 3 and "whole trace" in lines(path, "note")[0][1]
    assert not lines(path, "error") and not lines(path, "warning")
    bounded = clauses("clauses:\n  one:\n    formula: always(transport -> eventually[0,2](obj_above_table > 0.1))\n")
    assert lines(bounded) == []


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("always(transport -> eventually[0,2](always[0,1](obj_above_table > 0.5)))", ["nested so deep"]),
        ("(eventually[0,2](obj_above_table > 0.5)) until (obj_above_table > 0.3)", ["nested so deep"]),
        ("(eventually(obj_above_table > 0.5)) until (obj_above_table > 0.3)", ["whole trace", "nested so deep"]),
        ("always(transport -> next(obj_above_table > 0.5))", []),
        ("historically(eventually[0,2](obj_above_table > 0.5))", []),
    ],
)
def test_what_nested_operators_cost_is_a_note(clauses, formula, words):
    path = clauses(f"clauses:\n  one:\n    formula: {formula}\n")
    notes = [message for _, message in lines(path, "note")]
    assert len(notes) == len(words) and all(word in note for word, note in zip(words, notes, strict=True))
    assert not lines(path, "error") and not lines(path, "warning")


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"clauses: [", "a.yaml", r"a\.yaml:\d+: no valid YAML"),
        (b"other: 3\n", "a.yaml", "nothing that osma check knows"),
        (b"- 1\n", "a.yaml", "nothing that osma check knows"),
        (b"", "a.yml", "nothing that osma check knows"),
        (b"[" * 100_000, "a.yaml", "no valid YAML"),
        (b"\xff\xfe\x00", "a.txt", "cannot be read"),
        (b"a: !!python/object/apply:os.system ['true']\n", "a.yaml", "nothing that osma check knows"),
    ],
)
def test_unreadable_files_are_one_line(tmp_path, content, name, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        check_file(path)
    with pytest.raises(UserError, match="no such file"):
        check_file(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "file",
    [
        "safety/registry.yaml",
        "safety/suites/kitchen.yaml",
        "robots/franka.yaml",
        "robots/kitchen.yaml",
        "safety/library.yaml",
    ],
)
def test_configuration_files_are_read_as_the_monitor_reads_them(clauses, file):
    shipped = ROOT / "config" / file
    assert check_file(shipped)[0] == []
    broken = clauses(
        shipped.read_text(encoding="utf-8").replace("description:", "descripshun:").replace("title:", "tidle:")
    )
    findings, _ = check_file(broken)
    assert (
        findings and findings[0].level == "error" and str(findings[0]).startswith(f"{broken}:{findings[0].line}: error")
    )


def test_a_family_without_a_rule_is_found_from_either_of_two_files_side_by_side(clauses):
    shipped = ROOT / "config" / "safety"
    text = (shipped / "library.yaml").read_text(encoding="utf-8")
    library = clauses(text.replace("family: base_speed_limit", "family: my_speed"), "library.yaml")
    alone, _ = check_file(library)
    assert alone == []
    rules = clauses((shipped / "registry.yaml").read_text(encoding="utf-8"), "registry.yaml")
    for file in (library, rules):
        [finding] = check_file(file)[0]
        assert (
            finding.file == str(library) and "base_speed_limit:" in library.read_text().splitlines()[finding.line - 1]
        )
        assert f"family my_speed of clause base_speed_limit has no rule in {rules}; add one" in finding.message


LIBRARY = """version: 1
clauses:
  calm:
    family: max_contact_force
    axis: scene_interaction
    tier: main
    signal: contact_force_max
    formula: always (contact_force_max < {threshold})
    threshold: 0.8
    severe: 1.6
    unit: N
    requirement: mine
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "severe: 1.6",
            "severe: 0.5",
            10,
            "severe: 0.5 lies where nothing is violated; 'contact_force_max < 0.8' breaks above",
        ),
        ("threshold: 0.8", "threshold: fast", 9, "calm: threshold: expected a number, got 'fast'"),
        ("threshold: 0.8", "threshold: .nan", 9, "calm: threshold: expected a number, got '.nan'"),
        ("threshold: 0.8", "threshold: yes", 9, "calm: threshold: expected a number, got 'yes'"),
        ("{threshold}", "{treshold}", 8, "calm: {treshold} is no placeholder; did you mean {threshold}?"),
        ("tier: main", "tier: mian", 6, "calm: tier: expected 'main' or"),
        ("axis: scene_interaction", "axis: scene_interactoin", 5, "did you mean scene_interaction?"),
        ("    unit: N", "    unti: N", 11, "calm: unti: no such key; did you mean unit?"),
        ("    requirement: mine\n", "", 4, "calm: the key 'requirement' is missing"),
    ],
)
def test_every_key_of_a_clause_is_held_against_what_it_may_be(clauses, old, new, line, message):
    assert check_file(clauses(LIBRARY))[0] == []
    assert old in LIBRARY
    found = lines(clauses(LIBRARY.replace(old, new)), "error")
    assert any(at == line and message in words for at, words in found), found


@pytest.mark.parametrize(
    ("formula", "threshold", "severe", "right"),
    [
        ("always (contact_force_max < {threshold})", 0.8, 1.6, True),
        ("always (not (contact_force_max >= {threshold}))", 0.8, 0.5, False),
        ("always (not (contact_force_max >= {threshold}))", 0.8, 1.6, True),
        ("always ({threshold} > contact_force_max)", 0.8, 0.5, False),
        ("always ({threshold} > contact_force_max)", 0.8, 1.6, True),
        ("always (contact_force_max > {threshold})", 0.8, 1.6, False),
        ("always (contact_force_max > {threshold})", 0.8, 0.5, True),
        ("always (contact_force_max > {threshold})", -0.8, -0.5, False),
        ("always (contact_force_max > {threshold})", -0.8, -0.9, True),
    ],
)
def test_the_anchor_lies_where_the_clause_is_violated(clauses, formula, threshold, severe, right):
    text = LIBRARY.replace("always (contact_force_max < {threshold})", formula)
    text = text.replace("threshold: 0.8", f"threshold: {threshold}").replace("severe: 1.6", f"severe: {severe}")
    found = [(line, words) for line, words in lines(clauses(text), "error") if "nothing is violated" in words]
    assert (found == []) is right and all(line == 10 for line, _ in found)


def test_one_fault_hides_no_other(clauses):
    second = LIBRARY.split("clauses:\n")[1].replace("calm", "quiet").replace("tier: main", "tier: mian")
    text = LIBRARY.replace("contact_force_max <", "contact_forc_max <") + second.replace("axis", "aksis")
    words = [w for _, w in lines(clauses(text), "error")]
    assert any("unknown signal 'contact_forc_max'" in w for w in words)
    assert any(w.startswith("quiet: tier: ") for w in words) and any("aksis: no such key" in w for w in words)


def test_a_place_is_named_once_and_rightly(clauses):
    suite = clauses("suite: mine\ntasks:\n  pour: {templates: [pnp_basik]}\n", "mine.yaml")
    [finding] = check_file(suite)[0]
    assert finding.line == 3 and str(finding).count("mine.yaml") == 1 and "did you mean pnp_basic?" in finding.message


@pytest.mark.parametrize("name", ["arm", "hdf5", "lerobot", "mobile_robot", "obstacles"])
def test_the_shipped_mappings_are_known(name):
    assert check_file(ROOT / "config" / "mapping" / f"{name}.yaml") == ([], 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics: {joints: /j}\nepisodes: {by: times}\nrate: -1\n", [(2, "by times needs"), (3, "at least 0")]),
        ("obstacles:\n  - {id: a}\n", [(2, "'shape' is missing"), (2, "'position' is missing")]),
        ("columns: {grippr: {column: a}}\n", [(1, "did you mean gripper?")]),
        ("name: a\njoints: [{name: j}, {name: j}]\n", [(2, "joint 'j' is named twice")]),
        ("name: a\ninputs:\n  - {part: ee, topic: ee pose, age_limit: -1}\n", [(3, "no ROS topic"), (3, "above 0")]),
    ],
)
def test_mappings_obstacles_field_maps_and_robots_list_all_their_faults(clauses, text, expected):
    found = lines(clauses(text, "mine.yaml"))
    assert len(found) == len(expected)
    assert all(at == line and words in said for (at, said), (line, words) in zip(found, expected, strict=True)), found


def test_a_fault_of_a_file_that_is_named_is_that_files(clauses):
    obstacles = clauses("obstacles:\n  - {id: a}\n", "o.yaml")
    found = check_file(clauses("obstacles: o.yaml\ninfo: {task: t}\n", "m.yaml"))[0]
    assert {f.file for f in found} == {str(obstacles)} and {f.line for f in found} == {2}


def test_a_file_that_is_not_known_stops_no_other(clauses):
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    odd = clauses("other: 3\n", "odd.yaml")
    bad = clauses("always(contact_force < )\n", "bad.txt")
    result = CliRunner().invoke(app, ["check", str(odd), str(bad)], standalone_mode=False)
    assert result.return_value == 2 and f"{bad}:1: error" in result.output
    assert "1 formula in 1 file: 1 finding" in result.output and f"osma: {odd}: nothing that osma" in result.output


def test_exit_codes_and_output(clauses):
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    good = clauses("always(contact_force_max < 200)\n", "good.txt")
    bad = clauses("always(contact_force_max < 200)\nalways(contact_force < )\n", "bad.txt")
    runner = CliRunner()
    result = runner.invoke(app, ["check", str(good)], standalone_mode=False)
    assert result.return_value == 0 and "1 formula in 1 file: no findings" in result.output
    result = runner.invoke(app, ["check", str(good), str(bad)], standalone_mode=False)
    assert result.return_value == 1
    assert f"{bad}:2: error: column 24" in result.output and "3 formulas in 2 files: 1 finding\n" in result.output


def test_findings_hold_nothing_that_a_terminal_obeys(clauses):
    path = clauses('clauses:\n  "a\\e[31mb":\n    formula: "always(zz < 1)"\n')
    (finding,) = check_file(path)[0]
    assert str(finding).isprintable() and "a [31mb: unknown signal 'zz'" in str(finding)


def test_a_folder_is_refused_with_the_next_step(tmp_path):
    with pytest.raises(UserError, match=r"a folder; name the files in it"):
        check_file(tmp_path)


@pytest.mark.parametrize(
    "formula",
    [
        "always(eef_speed > 0 -> eef_acc < 1)",  # at speed 0 the implication holds: not vacuous
        "always(obstacle_contact -> eef_speed < 1)",
        "always(gripper_contact < 1)",  # a gate's comparison is true or false
        "always(not gripper_contact)",
        "always(base_x / base_y > -1)",
        "always(exp(base_x) < 2)",
        "always(pow(base_x, 3) > -8)",
        "always(abs(base_x) > 0.5)",
        "always(separation_margin)",
        "always(2 * base_speed < base_x)",  # the number may have a unit: metres in two seconds
        "historically(eef_speed < 1) and once(transport)",
        "eventually[0,5](eef_speed < 1)",
    ],
)
def test_what_is_right_is_left_in_peace(clauses, formula):
    assert lines(clauses(formula, "plain.txt")) == []


def test_a_comparison_beside_an_always_is_noted(clauses):
    path = clauses("always eef_speed < 1 and eef_acc < 3", "plain.txt")
    assert lines(path, "note") == [
        (1, "'eef_acc < 3' is judged at the first sample only: no always, historically, … stands over it")
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("b: &b {unit: N}\nclauses:\n  a:\n    <<: *b\n    formula: G(eef_acc < 1)\n", 4, "merged keys (<<) are not"),
        ("clauses: 5\n", 1, "expected clauses by their ids"),
        ("clauses:\n", 1, "expected clauses by their ids"),
        ("clauses:\n  a: {formula: G(eef_acc < 2)}\n  a: {formula: G(eef_acc < 1)}\n", 3, "first is at line 2"),
        ("clauses:\n  a:\n    formula: always(base_x > {threshold})\n", 3, "stands for no key threshold"),
        (
            "clauses:\n  a:\n    formula: always(eef_speed < 3)\n    threshold: 2\n", 3,
            "never uses the threshold 2",
        ),
        ("clauses:\n  a:\n    formula: always(eef_speed < 3)\n    signal: eef_acc\n", 3, "never reads eef_acc"),
    ],
)  # fmt: skip
def test_clauses_that_do_not_fit_together(clauses, text, line, message):
    [(found, said)] = lines(clauses(text), "error")
    assert found == line and message in said


def test_lines_are_those_of_an_editor(clauses):
    text = "\ufeff# neither \x0c nor \u2028 ends a line\nalways(eef_speed < 1)\x0c\nalways(eef_sped < 1)\n"
    assert [line for line, _ in lines(clauses(text, "plain.txt"))] == [3]
    assert [line for line, _ in lines(clauses("\ufeffclauses:\n  a: {formula: always(eef_sped < 1)}\n"))] == [2]


def test_long_formulas_take_linear_time_and_say_things_once(clauses):
    assert len(lines(clauses("not " * 20_000 + "eef_speed < 1", "plain.txt"))) == 1
    nested = "always(" * 30 + "eef_speed < 1" + ")" * 30
    assert len({said for _, said in lines(clauses(nested, "plain.txt"))}) == len(lines(clauses(nested, "plain.txt")))
