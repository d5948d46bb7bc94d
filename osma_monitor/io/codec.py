"""Dataclasses of the core to strict JSON and back, exactly.

Finite floats are written with ``repr`` (shortest text that reads back to the same float64); ``nan``, ``inf`` and
``-inf`` as these words in quotes, since strict JSON has no such numbers. Reading asks the type hints of the
dataclass, so a text never becomes a number by its looks. Fields that a file does not have take their default and
fields that this version does not know are left out: records of older and newer minor versions stay readable.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")


def to_jsonable(value: Any) -> Any:
    """``value`` (dataclass, mapping, sequence, scalar) as a tree of dicts, lists, text, numbers and None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if value is None or isinstance(value, (str, int)):
        return value
    if is_dataclass(value):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, np.ndarray)):
        return [to_jsonable(v) for v in value]
    raise TypeError(f"cannot be stored: {type(value).__name__}")


def dumps(value: Any) -> str:
    """``value`` as one line of strict JSON."""
    return json.dumps(to_jsonable(value), allow_nan=False, separators=(",", ":"))


@cache
def _hints(cls: type) -> dict[str, tuple[Any, bool]]:
    """Field name -> (type, has a default) of a dataclass."""
    hints = get_type_hints(cls)
    return {
        f.name: (hints[f.name], f.default is not MISSING or f.default_factory is not MISSING)
        for f in fields(cls)
        if f.init
    }


def from_jsonable(kind: Any, data: Any) -> Any:
    """The value of type ``kind`` that :func:`to_jsonable` made ``data`` from.

    Raises ValueError when it does not fit.
    """
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        options = get_args(kind)
        if data is None and type(None) in options:
            return None
        inner = [o for o in options if o is not type(None)]
        if len(inner) == 1:
            return from_jsonable(inner[0], data)
    elif origin is Literal:
        if data in get_args(kind):
            return data
    elif kind is float:
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return float(data)
        if data in ("nan", "inf", "-inf"):
            return float(data)
    elif kind in (int, bool, str):
        if type(data) is kind:
            return data
    elif origin is tuple and isinstance(data, list):
        item = get_args(kind)[0]
        return tuple(from_jsonable(item, v) for v in data)
    elif origin is not None and issubclass(origin, Mapping) and isinstance(data, dict):
        item = get_args(kind)[1]
        return {k: from_jsonable(item, v) for k, v in data.items()}
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(data, dict):
        return kind(**fields_from_jsonable(kind, data))
    raise ValueError(f"{_shown(data)} is no {getattr(kind, '__name__', kind)}")


def fields_from_jsonable(cls: type, data: Mapping[str, Any], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Arguments of the dataclass ``cls`` out of a JSON tree, but those named in ``leave_out``. Raises ValueError."""
    values = {}
    for name, (kind, has_default) in _hints(cls).items():
        if name in leave_out:
            continue
        if name in data:
            try:
                values[name] = from_jsonable(kind, data[name])
            except ValueError as error:
                raise ValueError(f"{cls.__name__}.{name}: {error}") from None
        elif not has_default:
            raise ValueError(f"{cls.__name__}.{name} is missing")
    return values


def loads(kind: type[T], text: str | bytes) -> T:
    """The dataclass ``kind`` that :func:`dumps` made ``text`` from. Raises ValueError when it does not fit."""
    result: T = from_jsonable(kind, json.loads(text))
    return result


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
