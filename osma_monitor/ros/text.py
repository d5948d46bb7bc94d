"""Text from messages, made harmless for logs and terminals."""

from __future__ import annotations

from osma_monitor.core import text as core_text


def printable(text: str, limit: int = 200) -> str:
    """One line without control characters, at most ``limit`` characters; what is cut or replaced shows."""
    return core_text.printable(text, limit)
