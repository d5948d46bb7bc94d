"""Node parameters: each declared once, with type, default, range and a sentence. Code, checks and docs/parameters.md
come from that.

An unknown parameter, a value out of range and a parameter file that is meant for another node are errors at start,
not silence.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from osma_monitor.core.errors import UserError

_TYPES: dict[type, RosParameter.Type] = {
    bool: RosParameter.Type.BOOL,
    int: RosParameter.Type.INTEGER,
    float: RosParameter.Type.DOUBLE,
    str: RosParameter.Type.STRING,
}
_ARRAYS: dict[type, RosParameter.Type] = {
    int: RosParameter.Type.INTEGER_ARRAY,
    float: RosParameter.Type.DOUBLE_ARRAY,
    str: RosParameter.Type.STRING_ARRAY,
}
#: Declared by rclpy itself or meant for it.
_BUILT_IN = ("use_sim_time", "start_type_description_service", "qos_overrides.*")


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``kind`` is bool, int, float or str; a tuple default makes an array of it."""

    name: str
    kind: type
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def is_array(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def type_name(self) -> str:
        """For people: ``float``, ``str[]``, ..."""
        return self.kind.__name__ + ("[]" if self.is_array else "")

    @property
    def range_text(self) -> str:
        """For people: the allowed values, empty when any."""
        if self.choices:
            return ", ".join(repr(c)[1:-1] or '""' for c in self.choices)
        if self.low is None and self.high is None:
            return ""
        low = "" if self.low is None else f"{self.low:g}"
        high = "" if self.high is None else f"{self.high:g}"
        return f"{low} to {high}" if low and high else (f"at least {low}" if low else f"at most {high}")

    def check(self, value: Any, node: str) -> Any:
        """The value in its Python type. Raises UserError when it is not allowed."""
        values = list(value) if self.is_array else [value]
        for v in values:
            if self.choices and v not in self.choices:
                raise UserError(
                    f"{node}: parameter {self.name} is {v!r}, expected one of {', '.join(map(repr, self.choices))}"
                )
            # a comparison with NaN is false, so NaN is refused too
            if (self.low is not None and not v >= self.low) or (self.high is not None and not v <= self.high):
                raise UserError(f"{node}: parameter {self.name} is {v!r}, expected {self.range_text}")
        return tuple(values) if self.is_array else value

    def descriptor(self) -> ParameterDescriptor:
        """What `ros2 param describe` shows."""
        kinds = _ARRAYS if self.is_array else _TYPES
        out = ParameterDescriptor(
            name=self.name,
            type=kinds[self.kind].value,
            description=self.description,
            additional_constraints=self.range_text,
            read_only=True,
        )
        if not self.is_array and (self.low is not None or self.high is not None):
            if self.kind is int:
                low = -(2**63) if self.low is None else int(self.low)
                high = 2**63 - 1 if self.high is None else int(self.high)
                out.integer_range = [IntegerRange(from_value=low, to_value=high, step=0)]
            elif self.kind is float:
                low_f = float("-inf") if self.low is None else float(self.low)
                high_f = float("inf") if self.high is None else float(self.high)
                out.floating_point_range = [FloatingPointRange(from_value=low_f, to_value=high_f, step=0.0)]
        return out


class Values(dict[str, Any]):
    """The values of a node's parameters, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def declare(node: Node, table: Sequence[Parameter]) -> Values:
    """Declares the table on the node and returns the checked values.

    Raises UserError on a value of the wrong type or out of range, and on a parameter that the node does not have.
    """
    name = node.get_name()
    overrides: Mapping[str, RosParameter] = node._parameter_overrides  # rclpy offers no public access
    _refuse_unknown(name, overrides, table)
    values = Values()
    for parameter in table:
        default = list(parameter.default) if parameter.is_array else parameter.default
        override = overrides.get(parameter.name)
        # a whole number is a fine value for a float, and [] has no type of its own
        if override is not None and parameter.kind is float and override.type_ == RosParameter.Type.INTEGER:
            override = RosParameter(parameter.name, RosParameter.Type.DOUBLE, float(override.value))
        elif override is not None and parameter.is_array and not override.value:
            override = RosParameter(parameter.name, _ARRAYS[parameter.kind], [])
        try:
            if override is not None and override.type_.value != parameter.descriptor().type:
                raise UserError(
                    f"{name}: parameter {parameter.name} is {override.value!r} ({override.type_.name.lower()}), "
                    f"expected {parameter.type_name}"
                )
            chosen = default if override is None else override.value
            values[parameter.name] = parameter.check(chosen, name)
            node.declare_parameter(parameter.name, chosen, parameter.descriptor(), ignore_override=True)
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            raise UserError(f"{name}: parameter {parameter.name}: {error}") from error
    return values


def read_json_object(node: str, name: str, text: str) -> dict[str, Any]:
    """Options that a parameter carries as JSON. Raises UserError when it is no JSON object."""
    try:
        options = json.loads(text)
    except ValueError as error:
        raise UserError(f"{node}: parameter {name} is {text[:80]!r}: {error}; expected a JSON object") from error
    if not isinstance(options, dict):
        raise UserError(f"{node}: parameter {name} is {text[:80]!r}, expected a JSON object")
    return options


def _refuse_unknown(node: str, names: Iterable[str], table: Sequence[Parameter]) -> None:
    known = [p.name for p in table]
    for name in names:
        if name in known or any(fnmatch.fnmatchcase(name, pattern) for pattern in _BUILT_IN):
            continue
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        raise UserError(f"{node}: there is no parameter {name}; {hint}")


def check_parameter_files(arguments: Sequence[str], node: str, namespace: str = "/") -> None:
    """Refuses a ``--params-file`` that sets nothing for this node: rcl itself ignores such a file without a word.

    ``arguments`` is the command line. Raises UserError, naming the file and the node names that it holds.
    """
    for path in _parameter_files(arguments):
        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from error
        except yaml.YAMLError as error:
            raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
        if not isinstance(content, Mapping) or not content:
            raise UserError(f"{path}: expected node names with ros__parameters below them")
        names = list(_node_names(content))
        full = f"{namespace.rstrip('/')}/{node}"
        if not any(_matches(name, full) for name in names):
            raise UserError(
                f"{path}: sets parameters of {', '.join(names) or 'no node'}, none of them for {full}; "
                f"use {full}, {node} or /** as the name"
            )


def _parameter_files(arguments: Sequence[str]) -> list[str]:
    files, inside = [], False
    for i, argument in enumerate(arguments):
        if argument == "--ros-args":
            inside = True
        elif argument == "--":
            inside = False
        elif inside and argument == "--params-file" and i + 1 < len(arguments):
            files.append(arguments[i + 1])
        elif inside and argument.startswith("--params-file="):
            files.append(argument.split("=", 1)[1])
    return files


def _node_names(content: Mapping[Any, Any], prefix: str = "") -> Iterable[str]:
    for key, value in content.items():
        if not isinstance(value, Mapping):
            continue
        name = f"{prefix}/{str(key).strip('/')}" if prefix or str(key).startswith("/") else str(key)
        if "ros__parameters" in value:
            yield name
        else:
            yield from _node_names(value, name if name.startswith("/") else f"/{name}")


def _matches(pattern: str, full_name: str) -> bool:
    """ROS wildcards: ``*`` is one token, ``**`` any number of them."""
    want = pattern.strip("/").split("/")
    have = full_name.strip("/").split("/")

    def match(w: list[str], h: list[str]) -> bool:
        if not w:
            return not h
        if w[0] == "**":
            return any(match(w[1:], h[i:]) for i in range(len(h) + 1))
        return bool(h) and (w[0] in ("*", h[0])) and match(w[1:], h[1:])

    return match(want, have) or (not pattern.startswith("/") and pattern == have[-1])


def markdown(tables: Mapping[str, Sequence[Parameter]]) -> str:
    """docs/parameters.md."""
    lines = [
        "# Node parameters",
        "",
        "Made from the declarations in the code (`python -m osma_monitor.ros.parameter_docs`); a test keeps both",
        "equal. All are read when the node is configured. An unknown parameter, a value of another type or out of",
        "range, and a parameter file without an entry for the node end the node at start with exit code 2 and one",
        "line that says what was expected.",
    ]
    for node, table in tables.items():
        lines += ["", f"## {node}", "", "| parameter | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        for p in table:
            default = list(p.default) if p.is_array else p.default
            text = "true" if default is True else "false" if default is False else repr(default).replace("'", '"')
            lines.append(f"| `{p.name}` | {p.type_name} | `{text}` | {p.range_text} | {p.description} |")
    return "\n".join(lines) + "\n"
