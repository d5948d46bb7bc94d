"""Robot files and their errors."""

import pytest

from osma_monitor.core.errors import UserError
from osma_monitor.io.robots import load_robot, parse_robot, robot_names


@pytest.mark.parametrize("name", robot_names())
def test_every_file_that_ships_is_valid(name):
    robot = load_robot(name)
    assert robot.name == name
    assert robot.assembly().inputs
    assert robot.buffer() is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nrates: 3\n", r"f:2: rates: Unexpected"),
        ("name: a\nrate: fast\n", r"f:2: rate: .*number.*got 'fast'"),
        ("name: a\ninputs:\n  - {part: nose, topic: t}\n", r"f:3: inputs\.0\.part: .*'base'.*got 'nose'"),
        ("name: a\ninputs:\n  - {part: base, topic: t}\nprimary: u\n", r"f:4: primary: 'u' is none of"),
        (
            "name: a\ninputs:\n  - {part: base, topic: t}\n  - {part: ee, topic: t}\n",
            r"f:2: inputs: topic 't' is named twice",
        ),
        ("name: a\njoints: [{name: j}]\ngripper: {joint: k}\n", r"f:3: gripper\.joint: 'k' is none of"),
        ("description: no name\n", r"f:1: name: Field required"),
        ("name: [\n", r"f:2: not valid YAML"),
        ("- a\n", r"f:1: expected a mapping"),
    ],
)
def test_errors_name_file_line_and_value(text, message):
    with pytest.raises(UserError, match=message):
        parse_robot(text, "f")


def test_unknown_robot_and_unreadable_file(tmp_path):
    with pytest.raises(UserError, match=r"known robots: .*so101"):
        load_robot("so102")
    with pytest.raises(UserError, match="cannot be read"):
        load_robot(tmp_path / "none.yaml")
