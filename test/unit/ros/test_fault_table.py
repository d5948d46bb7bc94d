"""The table of faults in docs/hardware.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "hardware.md").read_text()
ROWS = re.findall(r"^\|.*\| `(test_\w+)`: (\w+) \|$", TEXT, re.M)


def test_every_fault_has_a_test_that_exists() -> None:
    assert len(ROWS) > 30 and len(set(ROWS)) == len(ROWS)
    for file, name in ROWS:
        assert f"\ndef test_{name}(" in (ROOT / "test" / "system" / f"{file}.py").read_text(), f"{file}: {name}"


def test_every_row_of_the_table_names_its_test() -> None:
    table = TEXT.partition("| fault | what happens |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(ROWS)
