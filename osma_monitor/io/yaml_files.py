"""YAML into dataclasses, with errors that name file, line, key and value."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from osma_monitor.io.errors import InputError

T = TypeVar("T")
#: A mapping file larger than this is none.
SIZE_LIMIT = 8 << 20


def load(path: Path | str, adapter: TypeAdapter[T], kind: str) -> T:
    """The ``kind`` (for messages) that the file holds.

    Raises InputError naming file, line, key and what was expected.
    """
    path = Path(path)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{path}: larger than {SIZE_LIMIT >> 20} MiB: no {kind}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read as a {kind}: {getattr(error, 'strerror', None) or error}") from error
    return parse(text, adapter, kind, str(path))


def parse(text: str, adapter: TypeAdapter[T], kind: str, file: str = "<text>") -> T:
    """The same from text."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{file}{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    try:
        return adapter.validate_python({} if data is None else data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(x) for x in first["loc"]) or kind
        given = (
            ""
            if first["type"] in ("missing", "unexpected_keyword_argument", "extra_forbidden")
            else (f", got {str(first['input'])[:60]!r}")
        )
        raise InputError(f"{file}:{line_of(tree, first['loc'])}: {where}: {first['msg']}{given}") from error


def line_of(node: Any, location: tuple[Any, ...]) -> int:
    """Line (from 1) of the deepest node on the way to ``location``."""
    line: int = node.start_mark.line + 1 if node is not None else 1
    for key in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                continue  # a part of the location that the file does not have: the name of a union's member
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
    return line
