"""Simulations by name: the kitchen, and other benchmarks and robots behind the same protocol (one file each)."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from osma_monitor.core.errors import UserError
from sim_bridge.simulation import Simulation

HOSTS = ("kitchen", "so101", "libero", "robocasa")


def make_simulation(host: str, **options: Any) -> Simulation:
    """A simulation by the name of its host; ``options`` go to its constructor (see `checked_options`).

    Hosts are imported on demand: each may need packages that the others do not. UserError lists the names.
    """
    cls = _class_of(host)
    made: Simulation = cls(**checked_options(host, cls, options))
    return made


def _class_of(host: str) -> type[Any]:
    if host == "kitchen":
        from sim_bridge.kitchen.simulation import KitchenSimulation

        return KitchenSimulation
    if host == "so101":
        from sim_bridge.hosts.so101 import So101Simulation

        return So101Simulation
    if host == "libero":
        from sim_bridge.hosts.libero import LiberoSimulation

        return LiberoSimulation
    if host == "robocasa":
        from sim_bridge.hosts.robocasa import RobocasaSimulation

        return RobocasaSimulation
    near = difflib.get_close_matches(host, HOSTS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"host {host!r} does not exist; {hint}choose one of {', '.join(HOSTS)}")


def checked_options(host: str, cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a simulation's constructor from text files and command lines.

    An option that is a group of numbers (the kitchen's ``jitter``) is a mapping, true for its defaults, or null.

    Raises:
        UserError: an option that the host does not have, or a value of another type.
    """
    known = list(inspect.signature(cls).parameters)
    hints = get_type_hints(cls.__init__)
    found = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(f"the host {host} has no option {name!r}; it takes {', '.join(known) or 'none'}")
        found[name] = _checked(f"option {name} of the host {host}", value, hints[name])
    return found


def _checked(what: str, value: Any, kind: Any) -> Any:
    kinds = get_args(kind) or (kind,)
    group: Any = next((k for k in kinds if is_dataclass(k)), None)
    if group is not None and isinstance(value, (bool, Mapping)):
        if value is False:
            return None
        numbers = {} if value is True else dict(value)
        names = [f.name for f in fields(group)]
        for name, number in numbers.items():
            if name not in names:
                raise UserError(f"{what}: {name!r} is none of {', '.join(names)}")
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
                raise UserError(f"{what}: {name} is {number!r}; expected a number of at least 0")
        return group(**{name: float(number) for name, number in numbers.items()})
    if any(type(value) is k or (k is float and type(value) is int) for k in kinds):
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}
    expected = " or ".join(words.get(k, "true, false or a mapping of numbers") for k in kinds)
    raise UserError(f"{what} is {value!r}; expected {expected}")
