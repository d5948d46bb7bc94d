"""What the monitor reports once a second: its inputs, what was refused or not known since, its log and its verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from osma_monitor.core.monitor import UNKNOWN, Update
from osma_monitor.core.safety import Clause
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.ros import diagnostics
from osma_monitor.ros.inputs import FrameReceiver
from osma_monitor.ros.outputs import StateLatch
from osma_monitor.ros.robot_inputs import RobotInputs
from osma_monitor.ros.tracker import EpisodeTracker


class Reporter:
    """Remembers what the last report said, so that only what is fresh is a warning."""

    def __init__(self, stale_after: float) -> None:
        self._stale_after = stale_after
        self._unknown: Counter[str] = Counter()  #: frames by what was not known in them
        self._unknown_before: Counter[str] = Counter()
        self._counts_before: Counter[str] = Counter()
        self._missed_before: dict[str, int] = {}

    def begin(self) -> None:
        """A new receiver counts anew."""
        self._counts_before, self._missed_before = Counter(), {}

    def see(self, update: Update, clauses: Sequence[Clause], frame: RawFrame) -> None:
        """Take a frame whose state is unknown."""
        self._unknown.update(causes(update, clauses, frame))

    def concerns(
        self,
        receiver: FrameReceiver,
        tracker: EpisodeTracker,
        latch: StateLatch,
        fault: str,
        robot_inputs: RobotInputs | None,
    ) -> list[diagnostics.Concern]:
        """The statuses of one report. ``fault`` says why nothing can be judged, where that is so."""
        reports = receiver.reports(receiver.check_publishers())
        counts = receiver.all_counts()
        inputs = diagnostics.inputs(reports, self._stale_after, self._missed_before)
        if robot_inputs is not None:
            inputs.values.update(robot_inputs.notes())
        folder = str(tracker.folder or "")
        concerns = [
            inputs,
            diagnostics.frames(counts, self._counts_before, receiver.frames, receiver.rate()),
            diagnostics.episode_log(folder, tracker.disk_error, tracker.counts, tracker.free_bytes()),
            diagnostics.verdict(latch, fault, tracker.info, tracker.monitor, self._unknown, self._unknown_before),
        ]
        self._counts_before, self._unknown_before = Counter(counts), Counter(self._unknown)
        self._missed_before = {r.topic: r.missed for r in reports}
        return concerns


def causes(update: Update, clauses: Sequence[Clause], frame: RawFrame) -> frozenset[str]:
    """What is not known in a frame with unknown clauses: raw parts that are absent, or signals that parts lack."""
    names = {name for i in np.flatnonzero(update.clauses.status == UNKNOWN).tolist() for name in clauses[i].signals}
    found = set()
    for name in names:
        if math.isfinite(update.signals[name]):
            continue
        parts = {need.partition(".")[0] for need in SCHEMA[name].needs} - {"parameters"}
        absent = {part for part in parts if getattr(frame, part) is None}
        found |= {f"{part} absent" for part in absent} or {f"{name} not known from {' and '.join(sorted(parts))}"}
    return frozenset(found)
