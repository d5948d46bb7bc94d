"""Text from messages, files and people, made harmless for logs and terminals."""

from __future__ import annotations


def printable(text: object, limit: int | None = None) -> str:
    """One line without characters that steer a terminal; past ``limit`` characters it is cut, and shows it."""
    whole = str(text)
    cut = whole if limit is None else whole[:limit]
    clean = "".join(c if c.isprintable() else "?" for c in cut)
    return clean if len(cut) == len(whole) else clean + "…"
