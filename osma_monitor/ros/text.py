"""Text from messages, made harmless for logs and terminals."""

from __future__ import annotations


def printable(text: str, limit: int = 200) -> str:
    """One line without control characters, at most ``limit`` characters; what is cut or replaced shows."""
    cut = text[: limit + 1]
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)
    return clean if len(clean) <= limit else clean[:limit] + "…"
