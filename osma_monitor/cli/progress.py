"""Progress of long work: a live bar on a terminal, plain lines elsewhere. All of it goes to standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from osma_monitor.report.table import printable

#: Seconds between plain lines when every episode would print one.
QUIET_S = 2.0


class Display(Protocol):
    """What a run tells while it goes on."""

    def episode(self, policy: str, task: str, seed: int) -> None:
        """An episode begins."""

    def violation(self) -> None:
        """A clause broke."""

    def end(self, outcome: str) -> None:
        """The episode ended."""

    def note(self, text: str) -> None:
        """A line that stays."""


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task
        self._violations = 0

    def episode(self, policy: str, task: str, seed: int) -> None:
        self._progress.update(self._task, what=printable(f"{policy}: {task} seed {seed}"))

    def violation(self) -> None:
        self._violations += 1
        self._progress.update(self._task, broken=_count(self._violations))

    def end(self, outcome: str) -> None:
        self._progress.advance(self._task)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


class _Lines:
    def __init__(self, total: int, stream: TextIO, done: int = 0) -> None:
        self._total, self._stream, self._done = total, stream, done
        self._violations = self._before = 0
        self._label = ""
        self._started, self._first = time.monotonic(), done
        self._told = -QUIET_S

    def episode(self, policy: str, task: str, seed: int) -> None:
        self._label, self._before = f"{policy} {task} seed {seed}", self._violations

    def violation(self) -> None:
        self._violations += 1

    def end(self, outcome: str) -> None:
        self._done += 1
        now = time.monotonic() - self._started
        if now - self._told < QUIET_S and self._done < self._total and self._total > 40:
            return
        self._told = now
        fresh = self._violations - self._before
        left = now / max(self._done - self._first, 1) * (self._total - self._done)
        text = f"[{self._done}/{self._total}] {self._label}: {outcome}"
        text += f", {_count(fresh)}" if fresh else ""
        self.note(f"{text} ({_count(self._violations)} so far, about {left:.0f} s left)")

    def note(self, text: str) -> None:
        print(printable(text), file=self._stream, flush=True)


def _count(violations: int) -> str:
    return "1 violation" if violations == 1 else f"{violations} violations"


@contextmanager
def progress(total: int, done: int = 0, stream: TextIO | None = None) -> Iterator[Display]:
    """A display for ``total`` episodes of which ``done`` were finished before."""
    out = sys.stderr if stream is None else stream
    console = Console(file=out)
    if not console.is_terminal:
        yield _Lines(total, out, done)
        return
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}", markup=False),
        TextColumn("{task.fields[broken]}", style="red", markup=False),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=total, completed=done, what="starting", broken=""))
