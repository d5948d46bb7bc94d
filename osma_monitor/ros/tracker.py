"""The episodes of a monitor's life: steps of a segmenter in, updates and stored records out. No ROS in here.

Disk errors never stop the monitoring: they are kept for the diagnostics, and the record is stored again at the end.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord
from osma_monitor.core.monitor import ClauseEvent, EpisodeMonitor, MonitorConfig, OnEvent, SignalMonitor, Update
from osma_monitor.core.segmenter import Begin, End
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.configuration import keep_library
from osma_monitor.io.errors import StoreError
from osma_monitor.io.recovery import Recovery, recover
from osma_monitor.io.store import SEGMENT_BYTES, EpisodeWriter, prune, write_record

RETRY_PERIOD = 5.0  #: s between attempts to begin the log of a running episode
MOST_NOTES = 100  #: of one episode: a fault whose text differs in every frame must not fill memory and record


@dataclass(frozen=True)
class LogConfig:
    """How the log is kept within bounds."""

    segment_bytes: int = SEGMENT_BYTES  #: a running episode's stream goes on in a new file from here on
    limit_bytes: int = 0  #: of the folder: the oldest episodes go when it is passed; 0: nothing is ever removed


@dataclass(frozen=True)
class Finished:
    """An episode that ended, and where its record is."""

    record: EpisodeRecord
    last_ns: int
    path: Path | None
    error: str = ""
    exits: tuple[ClauseEvent, ...] = ()  #: of violations that lasted until the end


class EpisodeTracker:
    """Runs one EpisodeMonitor after the other and logs their episodes into ``folder`` (None: no log)."""

    def __init__(
        self,
        config: MonitorConfig,
        folder: Path | None,
        session: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda message: None,
        library: Path | str | None = None,
        log: LogConfig | None = None,
    ) -> None:
        """``library`` is the file that the clauses come from (None: the one that ships); the folder keeps a copy."""
        self._log_config = log or LogConfig()
        self.config, self.folder = config, folder
        self.monitor: EpisodeMonitor | None = None
        self.counts: Counter[str] = Counter()  #: episodes by what became of them
        self.disk_error = ""  #: the latest error of the log, empty again after a success
        self._session = {"host": socket.gethostname(), **(session or {})}
        self._report = report
        self._library, self._library_kept = library, False
        self._writer: EpisodeWriter | None = None
        self._episode_error = ""
        self._retry_wall = 0.0  #: when the log is tried again after it could not be begun
        self._started = ""
        self._notes: list[str] = []
        self._recovered: set[str] = set()

    @property
    def info(self) -> EpisodeInfo | None:
        """The running episode."""
        return self.monitor.info if self.monitor else None

    def recover(self) -> list[Recovery]:
        """Store what a dead monitor left in the folder; call once at start."""
        if self.folder is None or not self.folder.is_dir():
            return []
        try:
            recoveries = recover(self.folder, self.config)
        except OSError as error:
            self._disk(f"{self.folder}: {error.strerror or error}")
            return []
        for item in recoveries:
            self.counts["recovered" if item.stored else "not recovered"] += 1
            if item.record is not None:
                self._recovered.add(item.record.info.episode_id)
            self._report(item.message)
        return recoveries

    def probe(self) -> None:
        """Find out at start, not at the end of the first episode, whether the folder can be written."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(b"0" * 4096)
        except OSError as error:
            self._disk(f"{self.folder}: {error.strerror or error}; episodes are not logged until it can be written")

    def free_bytes(self) -> int | None:
        """What the log's disk has left; None where that is not known."""
        try:
            return None if self.folder is None else shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def warm_up(self) -> None:
        """Do once what is slow the first time, before frames come: compile formulas, import what the log needs.

        Raises UserError when the formulas cannot be evaluated (a back end that is not installed).
        """
        SignalMonitor(EpisodeInfo(""), self.config, {})
        if self.folder is None:
            return
        stamps, column = pa.array(np.zeros(1, np.int64)), pa.array(np.zeros(1))
        batch = pa.RecordBatch.from_arrays([stamps, column, pa.array([""])], names=["stamp", "value", "text"])
        batch.serialize().to_pybytes()

    def begin(self, begin: Begin, source: Mapping[str, str] | None = None, start_known: bool = True) -> None:
        """An episode begins; ``source`` says where its frames come from.

        ``start_known``: the stamp is that of its first frame, so that a later first frame makes the record partial.
        """
        config = replace(self.config, source=dict(source)) if source else self.config
        self.monitor = EpisodeMonitor(begin.info, config, begin.stamp_ns if start_known else None)
        self._started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._episode_error = ""
        self._notes = []
        if begin.info.episode_id in self._recovered:
            self._notes.append("the monitor was restarted while this episode ran; what came before is another record")

    def frame(self, frame: RawFrame, on_event: OnEvent | None = None) -> Update | None:
        """Judge one frame; None when its stamp does not go forward or no episode runs.

        ``on_event`` is given each event of it as soon as it is known, before the rest of the update is worked out.
        """
        return None if self.monitor is None else self.monitor.update(frame, on_event)

    def log(self, update: Update) -> None:
        """Log what was judged. Apart from :meth:`frame`, so that verdicts leave before the disk is touched."""
        if self.monitor is None or self.folder is None:
            return
        try:
            if self._writer is None:
                if self._episode_error and time.monotonic() < self._retry_wall:
                    return
                self._retry_wall = time.monotonic() + RETRY_PERIOD
                self._writer = EpisodeWriter(
                    self.folder,
                    self.monitor.info,
                    {
                        "missing": json.dumps(dict(self.monitor.missing)),
                        "library_hash": self.config.library.hash,
                        "gate_semantics": self.config.gate_semantics,
                    },
                    segment_bytes=self._log_config.segment_bytes,
                )
            self._writer.append(update.stamp_ns, update.signals.values, update.signals.obstacle)
            if self.disk_error and self._writer.writing:
                self._report("episodes are logged again")
                self._episode_error = self.disk_error = ""
        except StoreError as error:
            self._episode_error = _text(error)
            self._disk(self._episode_error)

    def _disk(self, message: str) -> None:
        if message != self.disk_error:
            self._report(message)
        self.disk_error = message

    def note(self, text: str) -> None:
        """Something that the record of the running episode shall say."""
        if text not in self._notes and len(self._notes) < MOST_NOTES:
            self._notes.append(text)

    def end(self, end: End) -> Finished | None:
        """The episode ends. None when no frame of it was seen: then there is nothing to tell."""
        monitor, writer = self.monitor, self._writer
        self.monitor = self._writer = None
        if monitor is None or monitor.step == 0:
            self.counts["without frames"] += monitor is not None
            return None
        exits = monitor.exits()
        record = monitor.close(
            end.outcome,
            {**self._session, "started": self._started, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")},
            complete=end.complete,
            notes=(*self._notes, *(lost := end.lost(monitor.step))),
        )
        info = record.info.with_attributes(end.attributes)
        record = replace(record, info=info, partial=record.partial or bool(lost))
        self.counts["aborted" if end.outcome.status == "aborted" else "finished"] += 1
        if self.folder is None:
            return Finished(record, monitor.last_ns, None, exits=exits)
        try:
            path = writer.finish(record) if writer is not None else write_record(self.folder, record)
        except StoreError as error:
            self.counts["not stored"] += 1
            self._disk(_text(error))
            return Finished(record, monitor.last_ns, None, self.disk_error, exits)
        self.disk_error = ""
        self.counts["stored"] += 1
        self._keep_library(path.parent)
        self._prune(path.parent)
        return Finished(record, monitor.last_ns, path, exits=exits)

    def _prune(self, folder: Path) -> None:
        if not self._log_config.limit_bytes:
            return
        try:
            removed = prune(folder, self._log_config.limit_bytes)
        except StoreError as error:
            self._disk(_text(error))
            return
        if removed:
            self.counts["removed"] += len(removed)
            self._report(f"{folder}: over its limit; {len(removed)} oldest episodes removed, last {removed[-1].name}")

    def _keep_library(self, folder: Path) -> None:
        if self._library_kept:
            return
        self._library_kept = True
        try:
            keep_library(folder, self._library)
        except OSError as error:
            self._report(f"{folder}: the clause library could not be copied there: {error.strerror or error}")


def _text(error: StoreError) -> str:
    return str(error.strerror or error)
