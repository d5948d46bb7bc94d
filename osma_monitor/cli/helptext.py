"""Help texts from docstrings: the terminal wraps paragraphs, not the source."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def help_of(function: Callable[..., object]) -> str:
    """The docstring of a verb with every paragraph on one line."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
