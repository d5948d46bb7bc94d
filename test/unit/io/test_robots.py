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
        ("name: a\nrates: 3\n", r"f:2: rates: no such key; did you mean rate\?"),
        ("name: a\nrate: fast\n", r"f:2: rate: .*number.*got 'fast'"),
        ("name: a\ninputs:\n  - {part: nose, topic: t}\n", r"f:3: inputs\.0\.part: .*'base'.*got 'nose'"),
        ("name: a\ninputs:\n  - {part: base, topic: t}\nprimary: u\n", r"f:4: primary: 'u' is none of"),
        (
            "name: a\ninputs:\n  - {part: base, topic: t}\n  - {part: ee, topic: t}\n",
            r"f:4: inputs\.1\.topic: topic 't' is named twice",
        ),
        ("name: a\njoints: [{name: j}]\ngripper: {joint: k}\n", r"f:3: gripper\.joint: 'k' is none of"),
        ("description: no name\n", r"f:1: robot file: the key 'name' is missing"),
        ("name: a\nrate: -3\n", r"f:2: rate: expected Hz above 0, got -3"),
        ("name: a\nrate: .nan\n", r"f:2: rate: expected a number, got nan"),
        ("name: a\nname: b\n", r"f:2: name: the key stands twice"),
        ("name: a\njoints:\n  - {name: j}\n  - {name: j}\n", r"f:4: joints\.1\.name: joint 'j' is named twice"),
        ("name: a\njoints:\n  - {name: j}\n  - {name: k, source: j}\n", r"f:4: joints\.1: 'j' is the source of two"),
        ("name: a\njoints:\n  - {name: j, span: [1, 2, 3]}\n", r"f:3: joints\.0\.span: expected a list of 2 numbers"),
        ("name: a\njoints:\n  - {nam: j}\n", r"f:3: joints\.0\.nam: no such key; did you mean name\? \(and 1 more"),
        (
            "name: a\ninputs:\n  - {part: ee, topic: t, age_limit: -1}\n",
            r"f:3: inputs\.0\.age_limit: .* above 0, got -1",
        ),
        (
            "name: a\ninputs:\n  - {part: ee, topic: ee pose}\n",
            r"f:3: inputs\.0\.topic: 'ee pose' is no ROS topic name",
        ),
        ("name: a\ninputs:\n  - {part: ee, topic: t/}\n", r"'t/' is no ROS topic name"),
        ("name: a\ncommand_topics: [1a]\n", r"f:2: command_topics\.0: '1a' is no ROS topic name"),
        ("name: a\ntransforms:\n  - {parent: a, child: b}\n  - {parent: c, child: b}\n", r"f:4: .*'b' has two parents"),
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
    with pytest.raises(UserError, match="can't be read as a robot file"):
        load_robot(tmp_path / "none.yaml")


def test_shapes_that_are_not_the_bases_are_named():
    shapes = "  - {primitive: sphere, size: [0.1]}\n  - {primitive: sphere, size: [0.2], frame: Base}\n"
    robot = parse_robot(f"name: a\nfootprint:\n{shapes}")
    assert robot.notes == ("shapes of frame 'Base' are left out of the footprint: only those of the base count",)
    assert not parse_robot("name: a\nfootprint: [{primitive: sphere, size: [0.1], frame: base_link}]\n").notes
