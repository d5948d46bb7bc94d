"""YAML into dataclasses, with errors that name file, line, key and value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from osma_monitor.io.errors import InputError
from osma_monitor.io.faults import Place, faults, repeated

T = TypeVar("T")
#: What a value must obey beyond its types: place and words of every breach.
Rules = Callable[[T], Iterable[tuple[Place, str]]]
#: A mapping file larger than this is none.
SIZE_LIMIT = 8 << 20


class FaultsError(InputError):
    """All that is wrong with one ``file``, as (line, words); its text is the first, and how many more there are."""

    def __init__(self, file: str, found: list[tuple[int, str]]) -> None:
        self.file, self.found = file, found
        line, text = found[0]
        rest = len(found) - 1
        more = f" (and {rest} more: osma check {file})" if rest and file != "<text>" else ""
        super().__init__(f"{file}:{line}: {text}{more}")


def load(path: Path | str, kind: type[T], what: str, rules: Rules[T] | None = None) -> T:
    """A ``kind`` out of the file. ``what`` it is, for messages.

    Raises InputError naming file, line, key and what was expected.
    """
    return parse(read(path, what), kind, what, str(path), rules)


def read(path: Path | str, what: str) -> str:
    """The file's text. Raises InputError where it can't be read or is too large."""
    path = Path(path)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{path}: larger than {SIZE_LIMIT >> 20} MiB: no {what}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read as a {what}: {getattr(error, 'strerror', None) or error}") from error


def parse(text: str, kind: type[T], what: str, file: str = "<text>", rules: Rules[T] | None = None) -> T:
    """The same from text."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{file}{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise InputError(f"{file}:1: expected a mapping with the keys of a {what}")
    found = [*repeated(tree), *faults(kind, data)]
    if not found:
        try:
            value: T = TypeAdapter(kind).validate_python(data)
        except ValidationError as error:  # nothing that the walk above knows
            found = [(e["loc"], e["msg"]) for e in error.errors()]
        else:
            found = list(rules(value)) if rules is not None else []
            if not found:
                return value
    lines = [(line_of(tree, place), _where(place, what) + words) for place, words in found]
    raise FaultsError(file, sorted(lines, key=lambda entry: entry[0]))


def _where(place: Place, what: str) -> str:
    return (".".join(str(step) for step in place) or what) + ": "


def line_of(node: Any, location: tuple[Any, ...]) -> int:
    """Line (from 1) of the deepest node on the way to ``location``."""
    line: int = node.start_mark.line + 1 if node is not None else 1
    for key in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in reversed(node.value) if k.value == str(key)), None)
            if found is None:
                continue  # a part of the location that the file does not have: a key that is missing
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
    return line
