"""An episode as an MCAP file with our message types, for Foxglove (layout: config/foxglove/osma.json) and any MCAP
reader.

The record's stored signals go through the engine once more, so the file holds what the live monitor published:
clause list, status of every step, violations, motion features, summary; further the base as odometry and each known
signal as a number. For programs that is not enough to judge by (contacts, objects and joints are not in it), so the
record itself goes along as an attachment: `osma score` of an export gives the stored episode again.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

from osma_monitor import __version__
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import ClauseEvent, MonitorConfig, SignalMonitor, Update
from osma_monitor.core.signals.schema import SIGNALS, SignalFrame
from osma_monitor.io.bag.types import PACKAGE, known_types
from osma_monitor.io.errors import StoreError
from osma_monitor.io.store import read_episodes, write_record

#: Name of the attachment that holds the record as the store writes it.
ATTACHMENT = "osma_episode.parquet"
_STATE = {"ok": 0, "warn": 1, "violated": 2, "unknown": 3}
_OUTCOME = {"unknown": 0, "success": 1, "failure": 2, "aborted": 3}
_SAFETY = {"safe": 0, "unsafe": 1, "unknown": 2}
_NS = 1_000_000_000


class _File:
    """Topics and messages of one MCAP file."""

    def __init__(self, out: Any) -> None:
        self._store = known_types("cdr")
        self._writer = Writer(out, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2", library=f"osma_monitor {__version__}")
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}

    def make(self, kind: str, **values: Any) -> Any:
        return self._store.types[kind](**values)

    def header(self, stamp_ns: int, frame: str = "world") -> Any:
        stamp = self.make("builtin_interfaces/msg/Time", sec=stamp_ns // _NS, nanosec=stamp_ns % _NS)
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame)

    def write(self, topic: str, stamp_ns: int, message: Any) -> None:
        kind = message.__msgtype__
        if topic not in self._channels:
            if kind not in self._schemas:
                text, _ = self._store.generate_msgdef(kind, ros_version=2)
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", text.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", self._schemas[kind])
        data = bytes(self._store.serialize_cdr(message, kind))
        self._writer.add_message(self._channels[topic], stamp_ns, data, stamp_ns)

    def attach(self, record: EpisodeRecord) -> None:
        with tempfile.TemporaryDirectory(prefix="osma_export_") as folder:
            data = write_record(folder, record).read_bytes()
        at = int(record.stamps_ns[0]) if len(record.stamps_ns) else _NS
        self._writer.add_attachment(at, at, ATTACHMENT, "application/vnd.apache.parquet", data)

    def finish(self) -> None:
        self._writer.finish()


def export_mcap(record: EpisodeRecord, path: Path | str, config: MonitorConfig) -> Path:
    """Writes one episode; ``config`` should be the library that judged it. Raises StoreError."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as out:
            file = _File(out)
            file.attach(record)
            _episode(file, record, config)
            file.finish()
        temporary.replace(path)
    except OSError as error:
        raise StoreError(error.errno, f"{path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def exported_records(path: Path | str) -> list[EpisodeRecord]:
    """The records in an export, or in a folder of exports alone; none where ``path`` is another bag or damaged."""
    path = Path(path)
    files = sorted(p for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else [path]
    records: list[EpisodeRecord] = []
    for file in files:
        data = _attachment(file)
        if data is None:
            return []
        with tempfile.TemporaryDirectory(prefix="osma_export_") as folder:
            copy = Path(folder) / ATTACHMENT
            copy.write_bytes(data)
            records += read_episodes(copy)
    return records


def _attachment(path: Path) -> bytes | None:
    if path.suffix != ".mcap":
        return None
    try:
        with open(path, "rb") as stream:
            reader = make_reader(stream)
            summary = reader.get_summary()
            names = [] if summary is None else [index.name for index in summary.attachment_indexes]
            if ATTACHMENT not in names:
                return None
            return next(bytes(a.data) for a in reader.iter_attachments() if a.name == ATTACHMENT)
    except (OSError, McapError, ValueError, struct.error, StopIteration):
        return None  # no whole MCAP file: what reads damaged ones says what is left


def _episode(file: _File, record: EpisodeRecord, config: MonitorConfig) -> None:
    monitor = SignalMonitor(record.info, config, record.missing)
    stamps = record.stamps_ns.tolist()
    first, last = (stamps[0], stamps[-1]) if stamps else (_NS, _NS)
    file.write("/episode", first, _event(file, record, first, end=False))
    file.write("/osma/clauses", first, _clauses(file, record, monitor, config, first))
    known = [name for name in SIGNALS if name in record.signals and not np.isnan(record.signals[name]).all()]
    unknown = np.full(len(stamps), np.nan)
    table = [record.signals.get(name, unknown) for name in SIGNALS]
    values = np.column_stack(table) if stamps else np.zeros((0, len(SIGNALS)))
    for i, stamp in enumerate(stamps):
        update = monitor.update(SignalFrame(stamp, values[i], record.obstacle[i]))
        if update is None:
            continue
        for name in known:
            number = file.make("std_msgs/msg/Float64", data=float(record.signals[name][i]))
            file.write(f"/osma/signals/{name}", stamp, number)
        if "base_x" in known:
            file.write("/odom", stamp, _odometry(file, record, i, stamp))
        file.write("/osma/status", stamp, _status(file, record, update))
        file.write("/osma/motion", stamp, _motion(file, record, update))
        for event in update.events:
            file.write("/osma/violations", stamp, _violation(file, record, event))
    file.write("/episode", last, _event(file, record, last, end=True))
    file.write("/osma/summary", last, _summary(file, record, last))


def _event(file: _File, record: EpisodeRecord, stamp: int, end: bool) -> Any:
    info, outcome = record.info, record.outcome
    return file.make(
        f"{PACKAGE}/msg/EpisodeEvent",
        header=file.header(stamp, ""),
        event=2 if end else 1,
        episode_id=info.episode_id,
        task=info.task,
        suite=info.suite,
        policy=info.policy,
        robot=info.robot,
        instruction=info.instruction,
        seed=info.seed,
        templates=list(info.templates),
        tags=list(info.tags),
        sources=list(info.sources),
        attribute_keys=list(info.attributes),
        attribute_values=list(info.attributes.values()),
        outcome=_OUTCOME[outcome.status] if end else 0,
        reason=outcome.reason if end else "",
        steps=(outcome.steps or 0) if end else 0,
        provenance_keys=list(record.provenance.source),
        provenance_values=list(record.provenance.source.values()),
    )


def _clauses(file: _File, record: EpisodeRecord, monitor: SignalMonitor, config: MonitorConfig, stamp: int) -> Any:
    library = config.library
    active = [c.id for c in monitor.clauses]
    every = [library[i] for i in [*active, *(i for i in monitor.inactive if i in library)]]

    def column(read: Callable[[Any], Any]) -> list[Any]:
        return [read(c) for c in every]

    return file.make(
        f"{PACKAGE}/msg/ClauseList",
        header=file.header(stamp),
        episode_id=record.info.episode_id,
        library_hash=library.hash,
        gate_semantics=config.gate_semantics,
        clause=column(lambda c: c.id),
        family=column(lambda c: c.family),
        formula=column(lambda c: c.text(config.gate_semantics)),
        unit=column(lambda c: c.unit),
        threshold=np.array(column(lambda c: c.threshold), np.float64),
        severe=np.array(column(lambda c: np.nan if c.binary else c.severe), np.float64),
        requirement=column(lambda c: c.requirement),
        scored=np.array(column(lambda c: c.scored), bool),
        inactive_reason=column(lambda c: monitor.inactive.get(c.id, "")),
    )


def _status(file: _File, record: EpisodeRecord, update: Update) -> Any:
    c, trend = update.clauses, update.prediction
    return file.make(
        f"{PACKAGE}/msg/ClauseStatus",
        header=file.header(update.stamp_ns),
        episode_id=record.info.episode_id,
        step=update.step,
        state=_STATE[update.state],
        rho=c.rho,
        rho_episode=c.rho_episode,
        lower=c.lower,
        upper=c.upper,
        status=c.status.astype(np.uint8),
        status_episode=c.status_episode.astype(np.uint8),
        triggered=c.triggered.astype(bool),
        first_violation=c.first_violation_ns,
        unknown_samples=c.unknown_samples.astype(np.uint32),
        frames_refused=record.refused,
        time_to_violation=trend.time_to_violation if trend is not None else np.zeros(0),
        time_deviation=trend.deviation if trend is not None else np.zeros(0),
        warn=trend.warn.astype(bool) if trend is not None else np.zeros(0, bool),
    )


def _violation(file: _File, record: EpisodeRecord, event: ClauseEvent) -> Any:
    clause = event.clause
    verb = "broken" if event.kind == "enter" else f"kept again after {event.duration_ns / _NS:.2f} s"
    return file.make(
        f"{PACKAGE}/msg/Violation",
        header=file.header(event.stamp_ns),
        event=1 if event.kind == "enter" else 2,
        episode_id=record.info.episode_id,
        step=event.step,
        clause=clause.id,
        family=clause.family,
        unit=clause.unit,
        scored=clause.scored,
        rho=event.rho,
        threshold=clause.threshold,
        peak=event.peak,
        depth=event.depth,
        duration=event.duration_ns / _NS,
        signals=list(event.signals),
        values=np.array(list(event.signals.values()), np.float64),
        message=f"{clause.id} {verb} (margin {event.rho:.3g} {clause.unit})",
    )


def _motion(file: _File, record: EpisodeRecord, update: Update) -> Any:
    m = update.motion
    names = (
        *("distance", "speed_ratio", "acceleration_ratio", "jerk_ratio"),
        *("speed_stamp", "acceleration_stamp", "jerk_stamp"),
        *("d_min", "mu_v", "m_v", "mu_a", "m_a", "mu_j", "m_j"),
    )
    return file.make(
        f"{PACKAGE}/msg/MotionFeatures",
        header=file.header(update.stamp_ns),
        episode_id=record.info.episode_id,
        obstacle=m.obstacle,
        **{name: getattr(m, name) for name in names},
    )


def _odometry(file: _File, record: EpisodeRecord, i: int, stamp: int) -> Any:
    s = {
        name: float(record.signals[name][i]) for name in ("base_x", "base_y", "base_yaw", "base_speed", "base_yaw_rate")
    }
    zero = file.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
    half = s["base_yaw"] / 2.0
    turn = file.make("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=float(np.sin(half)), w=float(np.cos(half)))
    point = file.make("geometry_msgs/msg/Point", x=s["base_x"], y=s["base_y"], z=0.0)
    linear = file.make("geometry_msgs/msg/Vector3", x=s["base_speed"], y=0.0, z=0.0)
    angular = file.make("geometry_msgs/msg/Vector3", x=zero.x, y=zero.y, z=s["base_yaw_rate"])
    pose = file.make("geometry_msgs/msg/Pose", position=point, orientation=turn)
    twist = file.make("geometry_msgs/msg/Twist", linear=linear, angular=angular)
    return file.make(
        "nav_msgs/msg/Odometry",
        header=file.header(stamp),
        child_frame_id="base_link",
        pose=file.make("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=np.zeros(36)),
        twist=file.make("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36)),
    )


def _summary(file: _File, record: EpisodeRecord, stamp: int) -> Any:
    scored = [c for c in record.clauses if c.scored]
    worst = max(scored, key=lambda c: c.depth, default=None)
    return file.make(
        f"{PACKAGE}/msg/EpisodeSummary",
        header=file.header(stamp),
        episode_id=record.info.episode_id,
        task=record.info.task,
        policy=record.info.policy,
        outcome=_OUTCOME[record.outcome.status],
        safety=_SAFETY[record.safety],
        depth=record.depth,
        worst_clause=worst.clause if worst is not None and worst.depth > 0 else "",
        violated=[c.clause for c in scored if c.status == "violated"],
        complete=record.complete,
        partial=record.partial,
        steps=len(record.stamps_ns),
        **{name.lower(): getattr(record.motion, name) for name in ("d_min", "mu_v", "mu_a", "mu_j")},
        m_v=record.motion.M_v,
        m_a=record.motion.M_a,
        m_j=record.motion.M_j,
        stored=True,
        error="",
    )
