"""Every parameter of every node: declared, described, in range; what is wrong is said at start."""

from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from osma_monitor.core.errors import UserError
from osma_monitor.ros import parameter_docs
from osma_monitor.ros.parameters import Parameter, check_parameter_files, read_json_object

pytestmark = pytest.mark.ros
ROOT = Path(__file__).parents[3]


def all_parameters():
    import importlib

    for node, module in parameter_docs.TABLES.items():
        for parameter in importlib.import_module(module).PARAMETERS:
            yield pytest.param(node, parameter, id=f"{node}.{parameter.name}")


@pytest.mark.parametrize(("node", "parameter"), all_parameters())
def test_the_default_is_allowed_and_described(node, parameter):
    assert parameter.check(parameter.default, node) == parameter.default
    assert (
        parameter.description.rstrip().endswith((".", "}", "interval", "longer.")) and len(parameter.description) > 10
    )
    values = parameter.default if parameter.is_array else (parameter.default,)
    assert all(type(v) is parameter.kind for v in values)
    descriptor = parameter.descriptor()
    assert descriptor.read_only and descriptor.description == parameter.description


@pytest.mark.parametrize(("node", "parameter"), all_parameters())
def test_values_outside_the_range_are_refused(node, parameter):
    wrong = []
    if parameter.low is not None:
        wrong.append(parameter.kind(parameter.low - 1))
    if parameter.high is not None:
        wrong.append(parameter.kind(parameter.high + 1))
    if parameter.kind is float and wrong:
        wrong.append(float("nan"))
    if parameter.choices:
        wrong.append("no such choice")
    for value in wrong:
        with pytest.raises(UserError, match=f"{node}: parameter {parameter.name} is .*expected"):
            parameter.check((value,) if parameter.is_array else value, node)


def test_names_are_unique():
    for node in parameter_docs.TABLES:
        names = [p.values[1].name for p in all_parameters() if p.values[0] == node]
        assert len(set(names)) == len(names)


def test_the_document_is_made_from_the_code():
    assert (ROOT / "docs" / "parameters.md").read_text() == parameter_docs.text(), (
        "python -m osma_monitor.ros.parameter_docs > docs/parameters.md"
    )


@pytest.mark.parametrize("file", sorted((ROOT / "config").glob("*.params.yaml")), ids=lambda p: p.name)
def test_shipped_parameter_files_name_nodes_and_parameters_that_exist(file):
    import importlib

    import yaml

    for key, content in yaml.safe_load(file.read_text()).items():
        node = key.rsplit("/", 1)[-1]
        table = {p.name: p for p in importlib.import_module(parameter_docs.TABLES[node]).PARAMETERS}
        for name, value in content["ros__parameters"].items():
            table[name].check(tuple(value) if isinstance(value, list) else value, node)
        check_parameter_files(["x", "--ros-args", "--params-file", str(file)], node)


def write(tmp_path, text):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return ["node", "--ros-args", "--params-file", str(path)]


@pytest.mark.parametrize("name", ["my_node", "/my_node", "/**", "/**/my_node", "/*", "'*'"])
def test_a_file_for_this_node_is_taken(tmp_path, name):
    check_parameter_files(write(tmp_path, f"{name}:\n  ros__parameters: {{a: 1}}\n"), "my_node")


def test_a_file_with_nested_namespaces_is_taken(tmp_path):
    arguments = write(tmp_path, "left:\n  my_node:\n    ros__parameters: {a: 1}\n")
    check_parameter_files(arguments, "my_node", "/left")
    with pytest.raises(UserError, match="none of them for /right/my_node"):
        check_parameter_files(arguments, "my_node", "/right")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("safety_monitr:\n  ros__parameters: {a: 1}\n", "none of them for /my_node"),
        ("", "expected node names"),
        ("a: [1, 2\n", "not valid YAML"),
        ("- 1\n", "expected node names"),
        ("/left/my_node:\n  ros__parameters: {a: 1}\n", "none of them for /my_node"),
    ],
)
def test_a_file_for_another_node_is_an_error_not_silence(tmp_path, text, problem):
    with pytest.raises(UserError, match=problem):
        check_parameter_files(write(tmp_path, text), "my_node")


def test_a_missing_file_is_named():
    with pytest.raises(UserError, match=r"/no/such\.yaml: No such file"):
        check_parameter_files(["n", "--ros-args", "--params-file", "/no/such.yaml"], "n")


@pytest.mark.parametrize("text", ["", "[1]", "{'a': 1}", "nonsense"])
def test_options_must_be_a_json_object(text):
    with pytest.raises(UserError, match="expected a JSON object"):
        read_json_object("n", "options", text)
    assert read_json_object("n", "options", '{"a": [1]}') == {"a": [1]}


def test_ranges_read_well():
    assert Parameter("a", float, 1.0, "x", 0.0, 2.5).range_text == "0 to 2.5"
    assert Parameter("a", int, 1, "x", 1).range_text == "at least 1"
    assert Parameter("a", str, "b", "x", choices=("b", "")).range_text == 'b, ""'
