"""What `osma check` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something to look at, and where. Errors and warnings count as findings for the exit code, notes do not."""

    file: str
    line: int
    level: Level
    message: str

    def __str__(self) -> str:
        # names out of YAML may hold what a terminal would obey
        lines = ("".join(c if c.isprintable() else " " for c in line) for line in self.message.split("\n"))
        first, *rest = lines
        return "\n".join([f"{self.file}:{self.line}: {self.level}: {first}", *(f"    {line}" for line in rest)])
