"""YAML text as plain values that remember their lines, so that errors name the file and the line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import yaml

from osma_monitor.core.errors import UserError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NODES = 200_000  # an alias can multiply a small text into a huge one
_MAX_DEPTH = 40
VERSION = 1  #: of libraries, registries and suites
_MOST_SHOWN = 40  # known words that an error lists


class Entry:
    """A value inside a document: what it is, where it stands, and checks whose errors say both.

    Args:
        value: the plain value (mappings and lists hold entries).
        source: name of the file for messages.
        path: keys that lead to the value.
        line: line in the file from 1; None when the document came as a mapping.
    """

    __slots__ = ("line", "path", "source", "value")

    def __init__(self, value: Any, source: str, path: str = "", line: int | None = None) -> None:
        self.value, self.source, self.path, self.line = value, source, path, line

    def fail(self, problem: str) -> NoReturn:
        """Raise a `UserError` with the place and ``problem``."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        raise UserError(f"{place}: {self.path + ': ' if self.path else ''}{problem}")

    # ---- structure

    def mapping(self, allowed: Iterable[str] | None = None, required: Iterable[str] = ()) -> dict[str, Entry]:
        """Entries by key; unknown and missing keys are errors."""
        if not isinstance(self.value, dict):
            self.fail(f"expected a mapping, found {_kind(self.value)}")
        entries: dict[str, Entry] = self.value
        if allowed is not None:
            known = sorted(set(allowed) | set(required))
            for key, entry in entries.items():
                if key not in known:
                    entry.fail(f"unknown key{suggestion(key, known)}")
        missing = [key for key in required if key not in entries]
        if missing:
            self.fail(f"missing {', '.join(missing)}")
        return entries

    def items(self) -> list[Entry]:
        """Entries of a list."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, found {_kind(self.value)}")
        return list(self.value)

    # ---- scalars

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"expected a text, found {_kind(self.value)}")
        return self.value

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, found {_kind(self.value)}")
        return self.value

    def number(self, check: Callable[[float], bool] = math.isfinite, expected: str = "a finite number") -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not check(float(value)):
            self.fail(f"expected {expected}, found {value if isinstance(value, (int, float)) else _kind(value)}")
        return float(value)

    def positive(self) -> float:
        return self.number(lambda x: math.isfinite(x) and x > 0, "a number above 0")

    def not_negative(self) -> float:
        return self.number(lambda x: math.isfinite(x) and x >= 0, "a number of at least 0")

    def vector(self, length: int) -> tuple[float, ...]:
        values = tuple(item.number() for item in self.items())
        if len(values) != length:
            self.fail(f"expected {length} numbers, found {len(values)}")
        return values

    def choice(self, options: Iterable[str]) -> str:
        options = list(options)
        value = self.text()
        if value not in options:
            self.fail(f"{value!r} is none of {', '.join(options)}{suggestion(value, options)}")
        return value


def read(document: str | Mapping[str, Any], source: str) -> Entry:
    """A document as an `Entry`, from YAML text or from plain mappings, lists and scalars.

    Raises:
        UserError: the text is no YAML, a key is repeated or no text, or aliases make it too large.
    """
    if not isinstance(document, str):
        return _plain(document, source, "", 0)
    try:
        loader = _LOADER(document)
        try:
            node = loader.get_single_node()
            if node is None:
                raise UserError(f"{source}: the file is empty")
            return _convert(node, loader, source, "", iter(range(_MAX_NODES)), 0)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = source if mark is None else f"{source}:{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{place}: not readable as YAML: {problem}") from None


def _convert(node: yaml.Node, loader: Any, source: str, path: str, budget: Iterator[int], depth: int) -> Entry:
    entry = Entry(None, source, path, node.start_mark.line + 1)
    if next(budget, None) is None or depth > _MAX_DEPTH:
        entry.fail("too large or nested too deeply")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
        entry.fail(f"not readable as YAML: the tag {node.tag} is not allowed")
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            place = Entry(None, source, path, key_node.start_mark.line + 1)
            if isinstance(key, int) and not isinstance(key, bool):
                key = str(key)
            if not isinstance(key, str):
                place.fail(f"the key {key!r} is no text; put it in quotes")
            if key in values:
                place.fail(f"the key {key!r} appears twice")
            values[key] = _convert(value_node, loader, source, f"{path}.{key}" if path else key, budget, depth + 1)
            values[key].line = key_node.start_mark.line + 1
        entry.value = values
    elif isinstance(node, yaml.SequenceNode):
        entry.value = [_convert(item, loader, source, path, budget, depth + 1) for item in node.value]
    else:
        entry.value = loader.construct_object(node, deep=True)
    return entry


def _plain(value: Any, source: str, path: str, depth: int) -> Entry:
    entry = Entry(value, source, path)
    if depth > _MAX_DEPTH:
        entry.fail("nested too deeply")
    if isinstance(value, Mapping):
        entry.value = {
            str(k): _plain(v, source, f"{path}.{k}" if path else str(k), depth + 1) for k, v in value.items()
        }
    elif isinstance(value, (list, tuple)):
        entry.value = [_plain(item, source, path, depth + 1) for item in value]
    return entry


def check_version(entries: Mapping[str, Entry]) -> None:
    """Fail where a document says another version of its format than the one that there is."""
    if "version" in entries and entries["version"].value != VERSION:
        entries["version"].fail(f"this program reads version {VERSION}, found {entries['version'].value!r}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?``, or the list of known words, or nothing."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(known)}" if 0 < len(known) <= _MOST_SHOWN else ""


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, Mapping)):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return repr(value)
