"""What does not fit a dataclass in the plain data of a YAML file, in words for people, each with its place.

Unknown and repeated keys, missing keys and values of another type are found by walking data and type together, so
that a person reads all of them at once and in the words of the file, not those of a validator.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

Place = tuple[Any, ...]  #: keys and positions on the way from the top
_WORDS = {str: "text", float: "a number", int: "a whole number", bool: "true or false", NoneType: "nothing"}
_MOST_SHOWN = 16


def faults(kind: Any, data: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Everything in ``data`` that a ``kind`` (a type) does not take, with its place."""
    if is_dataclass(kind):
        yield from _of_mapping(kind, data, place)
    elif get_origin(kind) in (Union, UnionType):
        fitting = [k for k in get_args(kind) if _shape(k) is _shape_of(data)]
        if len(fitting) == 1:
            yield from faults(fitting[0], data, place)
        elif not any(not list(faults(k, data, place)) for k in fitting):
            yield place, f"expected {words(kind)}, got {_shown(data)}"
    elif get_origin(kind) is tuple:
        yield from _of_sequence(kind, data, place)
    elif get_origin(kind) is dict:
        if not isinstance(data, Mapping):
            yield place, f"expected {words(kind)}, got {_shown(data)}"
            return
        for key, value in data.items():
            yield from faults(get_args(kind)[1], value, (*place, key))
    elif get_origin(kind) is Literal:
        if data not in get_args(kind):
            yield place, f"expected {words(kind)}, got {_shown(data)}{_near(data, map(str, get_args(kind)))}"
    elif not _fits(kind, data):
        yield place, f"expected {words(kind)}, got {_shown(data)}"


def repeated(node: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Keys that stand twice in one mapping of a YAML tree; the later would silently win."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield (*place, key.value), "the key stands twice"
            seen.add(key.value)
            yield from repeated(value, (*place, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from repeated(item, (*place, number))


def words(kind: Any) -> str:
    """A type in words: ``a number``, ``a list of 2 numbers or a list of 3 numbers``, ``box or sphere``."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(dict.fromkeys(words(k) for k in get_args(kind) if k is not NoneType))
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[-1] is ...:
            return "a list" + (f" of {_many(inner[0])}" if inner[0] in _WORDS else "")
        return f"a list of {len(inner)} {_many(inner[0])}"
    if is_dataclass(kind):
        names = [f.name for f in fields(kind)]
        return f"a mapping ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})"
    return "a mapping" if get_origin(kind) is dict else _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _many(kind: Any) -> str:
    return {float: "numbers", int: "whole numbers", str: "texts", bool: "flags"}.get(kind, "entries")


def _of_mapping(kind: Any, data: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if not isinstance(data, Mapping):
        yield place, f"expected {words(kind)}, got {_shown(data)}"
        return
    known = {f.name: f for f in fields(kind)}
    hints = _hints(kind)
    for key, value in data.items():
        if key not in known:
            yield (*place, key), f"no such key{_near(key, known) or f'; known are {_some(known)}'}"
        else:
            yield from faults(hints[key], value, (*place, key))
    for name, entry in known.items():
        if name not in data and entry.default is MISSING and entry.default_factory is MISSING:
            yield place, f"the key {name!r} is missing; expected {words(hints[name])}"


def _of_sequence(kind: Any, data: Any, place: Place) -> Iterator[tuple[Place, str]]:
    inner = get_args(kind)
    if not isinstance(data, Sequence) or isinstance(data, str):
        yield place, f"expected {words(kind)}, got {_shown(data)}"
        return
    if inner[-1] is not ... and len(data) != len(inner):
        yield place, f"expected {words(kind)}, got {_shown(data)}"
        return
    for number, value in enumerate(data):
        yield from faults(inner[0] if inner[-1] is ... else inner[number], value, (*place, number))


def _fits(kind: Any, data: Any) -> bool:
    if isinstance(data, float) and not math.isfinite(data):
        return False
    try:
        _adapter(kind).validate_python(data)
    except (ValidationError, OverflowError):
        return False
    return True


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _shape(kind: Any) -> str:
    if is_dataclass(kind) or get_origin(kind) is dict:
        return "mapping"
    if kind is NoneType:
        return "nothing"
    return "list" if get_origin(kind) is tuple else "value"


def _shape_of(data: Any) -> str:
    if isinstance(data, Mapping):
        return "mapping"
    if data is None:
        return "nothing"
    return "list" if isinstance(data, Sequence) and not isinstance(data, str) else "value"


def _shown(data: Any) -> str:
    text = "nothing" if data is None else repr(data)
    return text if len(text) <= 60 else text[:57] + "..."


def _near(word: Any, known: Any) -> str:
    close = difflib.get_close_matches(str(word), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def _some(known: Mapping[str, Any]) -> str:
    names = list(known)
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
