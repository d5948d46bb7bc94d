"""Lock-step: an observation is out until every participant has answered it. Pure code: feed answers and a clock.

The stamp of the observation is the key. An answer with that stamp counts once, a second one is a duplicate, one with
another stamp is foreign: both are counted and change nothing. After ``resend_after`` seconds without a missing
answer the observation is to be sent again, after ``silence_limit`` seconds the missing participants are silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["accepted", "duplicate", "foreign", "unknown_participant"]
Due = Literal["wait", "resend", "silent"]


@dataclass
class LockStep:
    """One observation at a time. Times are seconds of any monotonic clock."""

    participants: tuple[str, ...]
    resend_after: float = 1.0
    silence_limit: float = 10.0
    counts: Counter[tuple[str, Answer]] = field(default_factory=Counter)  #: answers by participant and kind
    resent: int = 0
    _stamp_ns: int = 0
    _missing: set[str] = field(default_factory=set)
    _began: float = 0.0
    _sent: float = 0.0

    def __post_init__(self) -> None:
        if len(set(self.participants)) != len(self.participants):
            raise ValueError(f"a lock-step participant is named twice: {', '.join(self.participants)}")
        if not 0 < self.resend_after <= self.silence_limit:
            raise ValueError(
                f"resend_after must lie in (0, silence_limit], got {self.resend_after:g} s and {self.silence_limit:g} s"
            )

    def observe(self, stamp_ns: int, now: float, excuse: Iterable[str] = ()) -> None:
        """An observation goes out. ``excuse`` names participants that need not answer it (the policy after the last
        step).
        """
        self._stamp_ns = stamp_ns
        self._missing = set(self.participants) - set(excuse)
        self._began = self._sent = now

    def answer(self, participant: str, stamp_ns: int) -> Answer:
        """An answer came in."""
        kind: Answer
        if participant not in self.participants:
            kind = "unknown_participant"
        elif stamp_ns != self._stamp_ns:
            kind = "foreign"
        elif participant not in self._missing:
            kind = "duplicate"
        else:
            self._missing.discard(participant)
            kind = "accepted"
        self.counts[participant, kind] += 1
        return kind

    @property
    def missing(self) -> tuple[str, ...]:
        """Participants that still owe an answer, in their declared order."""
        return tuple(p for p in self.participants if p in self._missing)

    @property
    def complete(self) -> bool:
        """Whether the next step may be taken."""
        return not self._missing

    def poll(self, now: float) -> Due:
        """What to do now. ``resend`` is said once per ``resend_after``."""
        if not self._missing:
            return "wait"
        if now - self._began >= self.silence_limit:
            return "silent"
        if now - self._sent >= self.resend_after:
            self._sent = now
            self.resent += 1
            return "resend"
        return "wait"

    def count(self, kind: Answer) -> int:
        """Answers of this kind from all participants."""
        return sum(n for (_, k), n in self.counts.items() if k == kind)
