"""XML files as a small tree with line numbers, from senders that are not trusted: no document type, so no entities that
expand or reach other files, and limits on size, depth and number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from osma_monitor.core.errors import UserError

MAX_BYTES = 32 * 1024 * 1024
_MAX_DEPTH = 200
_MAX_ELEMENTS = 200_000


@dataclass
class Element:
    """One element. ``file`` and ``line`` say where it begins."""

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[Element]:
        """Children of that name."""
        return (child for child in self.children if child.tag == tag)

    def one(self, tag: str) -> Element | None:
        """The first child of that name."""
        return next(self.all(tag), None)

    def error(self, what: str) -> UserError:
        """An error that names file and line."""
        return UserError(f"{self.file}:{self.line}: <{self.tag}>: {what}")

    def needed(self, name: str) -> str:
        """An attribute that must be there."""
        if name not in self.attributes:
            raise self.error(f"attribute {name} is missing")
        return self.attributes[name]

    def numbers(self, name: str, count: int | tuple[int, ...], default: tuple[float, ...] | None = None) -> list[float]:
        """An attribute of ``count`` (or one of the counts) finite numbers. Raises UserError."""
        if name not in self.attributes and default is not None:
            return list(default)
        text = self.needed(name)
        counts = (count,) if isinstance(count, int) else count
        try:
            values = [float(part) for part in text.split()]
        except ValueError:
            values = [math.nan]
        if len(values) not in counts or not all(map(math.isfinite, values)):
            wanted = " or ".join(map(str, counts))
            raise self.error(f"{name} is {text[:80]!r}, expected {wanted} finite number{'' if wanted == '1' else 's'}")
        return values


def read_xml(path: Path) -> Element:
    """The root element. Raises UserError naming file and line."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{path}: {size} bytes, more than the {MAX_BYTES} that are read")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    parser = expat.ParserCreate()
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def refuse(what: str) -> UserError:
        return UserError(f"{path}:{parser.CurrentLineNumber}: {what}")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ELEMENTS or len(stack) >= _MAX_DEPTH:
            raise refuse(f"more than {_MAX_ELEMENTS} elements or {_MAX_DEPTH} levels")
        element = Element(tag, attributes, str(path), parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def doctype(*_: object) -> None:
        raise refuse("has a document type declaration; such files are refused, since entities can expand without limit")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: stack.pop()
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UserError(f"{path}:{error.lineno}: not valid XML: {expat.ErrorString(error.code)}") from error
    except (ValueError, LookupError) as error:  # an encoding that nobody knows
        raise UserError(f"{path}: not valid XML: {error}") from error
    return roots[0]
