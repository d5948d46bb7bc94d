"""Options of policies and hosts as they come from text files and command lines: names and types, by the signature."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ValidationError

from osma_monitor.core.errors import UserError

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "null",
    Path: "a path",
}

_LARGEST = 2**53  #: whole numbers up to here are exact


class _Unfit(Exception):
    """A value of another type; says what was expected."""


def checked(owner: str, maker: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for ``maker`` from ``given``, converted where a mapping of plain values stands for a group.

    A maker that takes further keywords (``**options``) gets the unknown ones as they are: what it hands them on to
    checks them. A group of numbers (the kitchen's ``jitter``) is a mapping, true for its defaults, or false or null.

    Args:
        owner: who takes the options, for messages: ``the policy pivot``.

    Raises:
        UserError: an option that is not taken, one that is needed and missing, a value of another type.
    """
    parameters = inspect.signature(maker, eval_str=True).parameters
    hints = {name: Any if p.annotation is p.empty else p.annotation for name, p in parameters.items()}
    named = {p.name: p for p in parameters.values() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    shown = taken(maker)
    found = {}
    for name, value in given.items():
        if name in named:
            found[name] = _value(f"option {name} of {owner}", value, hints[name])
        elif any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            found[name] = value
        else:
            raise unknown(owner, name, shown)
    missing = [name for name, p in named.items() if p.default is p.empty and name not in given]
    if missing:
        many = "s" if len(missing) > 1 else ""
        raise UserError(f"{owner} needs the option{many} {' and '.join(missing)}; it takes {', '.join(shown)}")
    return found


def taken(maker: Callable[..., Any]) -> list[str]:
    """Names of the options of ``maker`` that text can give."""
    parameters = inspect.signature(maker, eval_str=True).parameters.values()
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in named if _writable(Any if p.annotation is p.empty else p.annotation)]


def unknown(owner: str, name: str, takes: Sequence[str]) -> UserError:
    """The error for an option that is not among those that ``owner`` takes, with what comes near."""
    near = difflib.get_close_matches(str(name), takes, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return UserError(f"{owner} has no option {name!r}; {hint}it takes {', '.join(takes) or 'none'}")


def at_least(owner: str, name: str, value: float, least: float) -> None:
    """Raises UserError for a number below ``least``, and for one that is not finite."""
    if not least <= value < math.inf:
        raise UserError(f"option {name} of {owner} is {value!r}; expected a number of at least {least:g}")


def new_file(name: str, path: Path | str) -> Path:
    """The path of a file to write. Raises UserError for a folder."""
    if Path(path).is_dir():
        raise UserError(f"option {name} is {str(path)!r}, a folder; expected the path of a file to write")
    return Path(path)


def _value(what: str, value: Any, kind: Any) -> Any:
    if isinstance(value, np.generic):  # a program's own sweep, such as over np.linspace
        value = value.item()
    expected, kinds = [], _kinds(kind)
    for one in kinds:
        try:
            return _as(what, value, one, NoneType in kinds)
        except _Unfit as error:
            expected.append(str(error))
    words = " or ".join(
        word for word in dict.fromkeys(expected) if word and (word != "text" or "a path" not in expected)
    )
    quote = f" (in quotes: '\"{value}\"')" if "text" in expected and isinstance(value, (bool, int, float)) else ""
    raise UserError(f"{what} is {value!r}; expected {words or 'an object, which no text can give'}{quote}")


def _as(what: str, value: Any, kind: Any, switch: bool) -> Any:
    """The value as ``kind``; _Unfit with the words for the kind, empty where text can't give it.

    ``switch``: a group may be left out, so that true and false stand for its defaults and for none.
    """
    origin = get_origin(kind) or kind
    if kind is Any:
        return value
    if origin is Literal:
        if value not in get_args(kind):
            raise _Unfit(f"one of {', '.join(map(str, get_args(kind)))}")
        return value
    if isinstance(origin, type) and (is_dataclass(origin) or issubclass(origin, BaseModel)):
        return value if isinstance(value, origin) else _group(what, value, origin, switch)
    if origin in (Mapping, dict) or origin in (Sequence, list):
        return _container(what, value, kind, origin)
    if origin in (float, int) and type(value) in (int, origin):
        if not abs(value) <= _LARGEST:
            raise _Unfit("a finite number")
        return value
    if origin in _WORDS:
        if type(value) is not origin and not (origin is Path and isinstance(value, (str, Path))):
            raise _Unfit(_WORDS[origin])
        return value
    fits = callable(value) if origin is Callable else isinstance(value, () if _is_protocol(origin) else origin)
    if not fits and (not _is_protocol(origin) or type(value).__module__ in ("builtins", "datetime")):
        raise _Unfit("")  # a protocol takes any object of a program, never what YAML makes
    return value


def _container(what: str, value: Any, kind: Any, origin: Any) -> Any:
    inner = get_args(kind)
    if origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            raise _Unfit("a mapping such as {name: value}")
        of = inner[1] if len(inner) == 2 else Any
        return {str(name): _value(f"{what}: {name}", each, of) for name, each in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _Unfit("a list such as [a, b]")
    return [_value(f"{what}: entry {i}", each, inner[0] if inner else Any) for i, each in enumerate(value, 1)]


def _group(what: str, value: Any, group: Any, switch: bool) -> Any:
    """A dataclass or model of numbers from a mapping; where ``switch`` says so also from true and false."""
    model = issubclass(group, BaseModel)
    names = list(group.model_fields) if model else [f.name for f in fields(group)]
    switch = switch and not model and all(f.default is not MISSING for f in fields(group))
    if value is False and switch:
        return None
    if value is True and switch:
        value = {}
    if not isinstance(value, Mapping):
        raise _Unfit(f"{'true, false or ' if switch else ''}a mapping of numbers ({', '.join(names)})")
    for name, number in value.items():
        if name not in names:
            raise UserError(f"{what}: {name!r} is none of {', '.join(names)}")
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
            raise UserError(f"{what}: {name} is {number!r}; expected a number of at least 0")
    try:
        return group(**{name: float(number) for name, number in value.items()})
    except (TypeError, ValidationError) as error:
        missing = ", ".join(name for name in names if name not in value)
        raise UserError(f"{what}: {missing} missing; expected {', '.join(names)}") from error


def _kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _writable(kind: Any) -> bool:
    """Whether text can give a value of the kind."""
    return any(
        one is Any
        or (get_origin(one) or one) in (Literal, Mapping, dict, Sequence, list, bool, int, float, str, Path)
        or (isinstance(one, type) and (is_dataclass(one) or issubclass(one, BaseModel)))
        for one in _kinds(kind)
    )
