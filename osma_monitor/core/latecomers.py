"""What a source begins to give after an episode's first frame, when its clauses are already chosen.

A clause that nobody judges must not pass for one that holds: a person who walks in after the first frame has no
separation clause in this episode. This names them, and :func:`not_judged` is what the record says of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from osma_monitor.core.episode import ClauseResult, EpisodeRecord
from osma_monitor.core.safety import Clause, Library
from osma_monitor.core.signals.raw import OBSTACLE_ROLES, PARTS, Floats, RawFrame
from osma_monitor.core.signals.schema import GATE_SIGNALS

#: Ids of the clauses that would apply if these needs were served too.
Applicable = Callable[[frozenset[str]], frozenset[str]]


def not_judged(clause: Clause, steps: int) -> ClauseResult:
    """The result of a clause that nobody judged in an episode of ``steps`` frames: it may have held or not."""
    return ClauseResult(
        clause=clause.id,
        family=clause.family,
        scored=clause.scored,
        rho=math.nan,
        lower=-math.inf,
        upper=math.inf,
        status="unknown",
        triggered=False,
        depth=0.0,
        first_violation_ns=None,
        first_violation_step=None,
        violated_steps=0,
        longest_run=0,
        unknown_samples=steps,
    )


def late_signals(record: EpisodeRecord, library: Library) -> frozenset[str]:
    """Signals that came after the first frame of a stored episode, as far as its values and its results tell.

    A clause of ``library`` that has a result although one of its signals is missing is one that latecomers left out;
    another library may not have it, but values that were stored for a missing signal tell too.
    """
    results = {result.clause for result in record.clauses}
    read = (clause.signals & record.missing.keys() for clause in library if clause.id in results)
    return appeared(record.missing, record.signals).union(*read)


def appeared(missing: Iterable[str], signals: Mapping[str, Floats]) -> frozenset[str]:
    """Those of the signals that the first frame lacked of which a later value is known all the same.

    A gate tells nothing: an open gripper transports nothing, whatever else is known.
    """
    known = {name: np.isfinite(signals[name]) for name in missing if name in signals and name not in GATE_SIGNALS}
    return frozenset(name for name, at in known.items() if at.any() and not at[0])


class Latecomers:
    """Watches for the needs (``objects.human``, ``joints.effort``, ``contacts``) that the first frame did not serve."""

    def __init__(self, missing: Mapping[str, str], applicable: Applicable) -> None:
        """``missing``: signal -> need that the first frame did not serve."""
        self._applicable = applicable
        self._needs = {need for need in missing.values() if need.partition(".")[0] in PARTS}
        self._roles: dict[str, str] = {}
        self._others: list[tuple[str, str, str]] = []
        self._split()
        self._seen_roles: tuple[str, ...] = ()
        self.found: dict[str, tuple[str, ...]] = {}  #: need -> clauses that are not judged for want of it at the start

    def _split(self) -> None:
        parts = [(need, *need.partition(".")[::2]) for need in sorted(self._needs)]
        self._roles = {quality: need for need, part, quality in parts if part == "objects" and quality}
        self._others = [item for item in parts if item[1] != "objects" or not item[2]]

    def look(self, frame: RawFrame) -> bool:
        """Take a frame; whether something new appeared. O(1) while nothing does."""
        fresh = set()
        objects = frame.objects
        if self._roles and objects is not None and objects.role != self._seen_roles:
            self._seen_roles = objects.role
            roles = set(objects.role)
            if roles & OBSTACLE_ROLES:
                roles.add("obstacle")
            fresh |= {self._roles[role] for role in roles & self._roles.keys()}
        for need, part, quality in self._others:
            value = getattr(frame, part)
            if value is not None and _has(value, quality):
                fresh.add(need)
        if not fresh:
            return False
        self._needs -= fresh
        self._split()
        for need in sorted(fresh):
            before = frozenset(self.found)
            self.found[need] = tuple(sorted(self._applicable(before | {need}) - self._applicable(before)))
        return True

    @property
    def clauses(self) -> tuple[str, ...]:
        """Ids of the clauses that nobody judges."""
        return tuple(sorted({clause for clauses in self.found.values() for clause in clauses}))

    def texts(self) -> tuple[str, ...]:
        """One sentence for each need that left clauses without judgement."""
        return tuple(
            f"{need} appeared after the episode began; not judged in this episode: {', '.join(clauses)}"
            for need, clauses in self.found.items()
            if clauses
        )


def _has(value: object, quality: str) -> bool:
    """Whether a part has a quality of the schema."""
    if quality == "effort":
        return not bool(np.isnan(value.effort).all())  # type: ignore[attr-defined]
    if quality == "velocity":
        return not bool(np.isnan(value.linear_velocity[:2]).any())  # type: ignore[attr-defined]
    return not quality
