"""Which kind of configuration a YAML file is, what reads it, and the keys of a clause: for `osma check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from osma_monitor.cli.findings import Finding
from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import RobotModel
from osma_monitor.core.safety.library import AXES, Tier
from osma_monitor.io import configuration
from osma_monitor.io.bag.mapping import Mapping, load_mapping
from osma_monitor.io.datasets.fieldmap import FieldMap, load_field_map
from osma_monitor.io.faults import faults
from osma_monitor.io.obstacles import load_obstacles
from osma_monitor.io.robots import load_robot
from osma_monitor.io.yaml_files import line_of
from osma_monitor.resources import config_path

Load = Callable[[], object]
_KNOWN = (
    "a clause library (key clauses), rules (templates and rules), a suite (suite), a robot file (name, inputs), "
    "a mapping (topics, robot, episodes), a map of obstacles (obstacles) or a field map (columns)"
)


def top_keys(content: str) -> set[str]:
    """Keys at the top of a YAML text, also of one that is broken further down."""
    return {line.split(":", 1)[0] for line in content.splitlines() if ":" in line}


def is_registry(content: str) -> bool:
    """Whether the text holds applicability rules."""
    return {"templates", "rules"} <= top_keys(content)


def loader(path: Path, content: str) -> Load | None:
    """What reads a configuration file; None for one of clauses, and for one that is no YAML, which says so itself.

    Raises UserError for a file that is none of what is known.
    """
    keys = top_keys(content)
    if "clauses" in keys:
        return None
    if is_registry(content):
        return lambda: configuration.registry(path)
    if "suite" in keys:
        shipped = {p.resolve() for p in config_path("safety", "suites").glob("*.yaml")}
        return lambda: configuration.registry(suites=() if path.resolve() in shipped else (path,))
    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None if not keys else _by_keys(path, dict.fromkeys(keys))
    return _by_keys(path, data if isinstance(data, dict) else {})


def _by_keys(path: Path, data: dict[Any, Any]) -> Load | None:
    """By which kind's keys most of the file's are; in doubt a mapping."""
    if isinstance(data.get("obstacles"), list):
        return lambda: load_obstacles(path)
    kinds: list[tuple[int, Load]] = [
        (_shared(Mapping, data), lambda: load_mapping(path)),
        (_shared(RobotModel, data), lambda: load_robot(path)),
        (_shared(FieldMap, data) + ("columns" in data), lambda: load_field_map(path)),
    ]
    count, load = max(kinds, key=lambda kind: kind[0])
    if not count:
        raise UserError(f"{path}: nothing that osma check knows; expected {_KNOWN}")
    return load


def _shared(kind: Any, data: dict[Any, Any]) -> int:
    return sum(f.name in data for f in fields(kind))


@dataclass(frozen=True)
class _ClauseKeys:
    """The keys of a clause as they stand in a library."""

    family: str
    axis: Literal[AXES]  # type: ignore[valid-type]
    tier: Tier
    signal: str
    formula: Any
    threshold: Any  #: its number, and that of severe, are held against the formula elsewhere
    unit: str
    requirement: str
    formula_quantitative: Any = ""
    severe: Any = None
    binary: bool = False
    description: str = ""


def clause_keys(name: str, clauses: yaml.Node) -> Iterator[Finding]:
    """Unknown, missing and odd keys of every clause in a library."""
    if not isinstance(clauses, yaml.MappingNode):
        return
    for key, node in clauses.value:
        loading = yaml.SafeLoader("")
        try:
            data = loading.construct_document(node)
        except (yaml.YAMLError, ValueError):
            continue  # said by the library's own reader
        finally:
            loading.dispose()
        for place, words in faults(_ClauseKeys, data):
            where = f"{key.value}: " + "".join(f"{step}: " for step in place)
            yield Finding(name, line_of(node, place), "error", where + words)
