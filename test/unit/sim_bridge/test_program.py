"""Programs are read, never run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_bridge.policies.program import ControlValues, Program, ProgramError, parse_program

TEXT = """Here you are:
```python
go_to("coffee machine")
keep_away("crawling baby", 45)
slow_near("crawling baby", speed=0.3, radius_cm=30)  # careful
slow_near("stool", 0.8)
face("coffee machine")
```
Good luck."""


def test_calls_become_values():
    program = parse_program(TEXT)
    assert (program.goal, program.face) == ("coffee machine", "coffee machine")
    assert program.values == {
        "crawling baby": ControlValues(0.45, 0.3, 0.30),
        "stool": ControlValues(None, 0.8, None),
    }


def test_what_is_not_a_number_is_not_set():
    program = parse_program('go_to("sink")\nkeep_away("cat", "far")\nslow_near("cat", True, 1e999)')
    assert program.values["cat"] == ControlValues(None, None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        ("```python\n```", "empty answer"),
        ("I would drive carefully.", "does not parse"),
        ("keep_away('cat', 3)", "no target"),
        ("go_to('')", "no target"),
        ("go_to()", "needs a name"),
        ("go_to(3)", "needs a name in quotes"),
        ("import os", "line 1 is none of the calls"),
        ("x = go_to('sink')", "none of the calls"),
        ("go_to('sink')\n__import__('os').system('true')", "line 2 is none of the calls"),
        ("go_to(open('/etc/passwd').read())", "needs constants"),
        ("go_to('sink')\nkeep_away('cat', clearance_cm=9**9**9)", "needs constants"),
        ("go_to('sink')" + " " * 30_000 + "#", "characters"),
        ("(" * 300 + ")" * 300, "generated code"),
    ],
)
def test_what_is_no_program_is_said_and_nothing_is_run(text, reason):
    with pytest.raises(ProgramError, match=reason):
        parse_program(text)


finite = st.one_of(st.none(), st.integers(0, 200).map(lambda n: n / 100))


pairs = st.dictionaries(st.sampled_from("xyz"), st.tuples(finite, finite))


@given(st.text("abc def", min_size=1).filter(str.strip), pairs)
def test_text_reads_back(goal, values):
    goal = goal.strip()
    wanted = {name: ControlValues(c, s, None if s is None else 0.5) for name, (c, s) in values.items()}
    program = Program(goal, goal, wanted)
    again = parse_program(program.text())
    kept = {name: v for name, v in program.values.items() if v != ControlValues()}
    assert (again.goal, again.face) == (goal, goal)
    assert set(again.values) == set(kept)
    for name, v in kept.items():
        for field in ("clearance_m", "speed", "region_m"):
            a, b = getattr(again.values[name], field), getattr(v, field)
            assert a == b if b is None else a == pytest.approx(b, abs=1e-6)


def test_values_are_clipped_to_their_ranges():
    assert ControlValues(3.0, 5.0, 1.5).clipped() == ControlValues(0.8, 2.0, 0.8)
    assert ControlValues(-1.0, -0.1, 1.5).clipped(2.0) == ControlValues(0.0, 0.0, 1.5)
    assert ControlValues(float("nan"), float("inf"), None).clipped() == ControlValues()
