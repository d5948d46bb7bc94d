"""YAML files into pydantic types, with errors that name file, line, key, value and what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from osma_monitor.core.errors import UserError

T = TypeVar("T")


def load(adapter: TypeAdapter[T], path: Path, hint: str) -> T:
    """What the file holds. ``hint`` says where its keys are explained. UserError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        return adapter.validate_python(yaml.safe_load(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        line, place = _place(tree, first["loc"])
        raise UserError(
            f"{path}:{line}: {place or 'top level'}: {first['msg']} (found {str(first['input'])[:80]!r}); {hint}"
        ) from error


def _place(node: Any, location: Sequence[Any]) -> tuple[int, str]:
    """Line (from 1) of the deepest node on the way to ``location``, and the keys that lead there.

    Steps that are no key of the file, such as the tag of a union, are left out; the last may be a key that is missing.
    """
    line = 1 if node is None else int(node.start_mark.line) + 1
    keys: list[str] = []
    for number, key in enumerate(location):
        following = _child(node, key)
        if following is not None:
            line, node = following
        if following is not None or number == len(location) - 1:
            keys.append(str(key))
    return line, ".".join(keys)


def _child(node: Any, key: Any) -> tuple[int, Any] | None:
    """Line and node of a key or position inside a node, None without one."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return int(name.start_mark.line) + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return int(node.value[key].start_mark.line) + 1, node.value[key]
    return None
