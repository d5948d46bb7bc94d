"""Stored episodes judged again, from their stored signals: another library, other thresholds, no simulator.

Some signals depend on parameters of the library that was in force when they were derived (separation, keep-out boxes,
limits of body regions). Under other parameters the separation margin follows from stored signals; the rest are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.latecomers import late_signals
from osma_monitor.core.monitor import MonitorConfig, clauses_of_late
from osma_monitor.core.safety import Library
from osma_monitor.core.signals.parameters import SignalParameters
from osma_monitor.core.signals.raw import Floats
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io.judge import BatchJudge, SignalEpisode

#: Parameter -> the signals that were derived with it.
_DERIVED_WITH = {
    "separation": ("separation_margin",),
    "region_limits": ("human_force_ratio", "human_pressure_ratio"),
    "region_of_body": ("human_force_ratio", "human_pressure_ratio"),
    "contact_area": ("human_pressure_ratio",),
    "keep_out": ("ee_keep_out_margin", "base_keep_out_margin"),
    "base_radius": ("base_keep_out_margin",),
    "obstacle_contact_force": ("obstacle_contact",),
    "not_arm_joints": ("max_joint_torque",),
}


def rejudge(
    records: Iterable[EpisodeRecord],
    config: MonitorConfig,
    problems: list[str] | None = None,
    libraries: Iterable[Library] = (),
    remarks: list[str] | None = None,
) -> Iterator[EpisodeRecord]:
    """The records as ``config`` judges them, in their order. Where nothing changed they are equal to the stored ones.

    A signal that was not stored is unknown, and so is one that was derived with parameters that ``config`` changes and
    that does not follow from other stored signals. ``libraries`` are those that may have judged: they say which
    parameters were in force; of an episode that none of them judged, the signals are taken as they are.

    An episode without a step (labels of a rollout judged from video) holds nothing to judge and stays as it is.
    ``problems`` says what could not be judged, ``remarks`` what is doubtful.
    """
    batch = BatchJudge(config, problems)
    offered = {clause.family for clause in config.library if clause.tier == "extension"}
    parameters = {library.hash: library.parameters for library in (config.library, *libraries)}
    said: set[str] = set()
    for record in records:
        if not len(record.stamps_ns):
            yield from batch.flush()
            if problems is not None:
                problems.append(f"episode {record.info.episode_id!r} is not judged again: no step of it is stored")
            yield record
            continue
        # an extension that counted goes on to count, by whatever it was switched on
        counted = offered & {clause.family for clause in record.clauses if clause.scored} | {*config.extensions}
        if counted != {*batch.config.extensions}:
            yield from batch.flush()
            batch = BatchJudge(replace(config, extensions=tuple(sorted(counted))), problems)
        judged = record.provenance.library_hash
        signals, lost = _derived_anew(record, parameters.get(judged), config.library.parameters)
        if lost:
            what = ", ".join(lost)
            note = (
                f"{what}: stored with other parameters than this library's, so unknown now ({record.info.episode_id!r})"
            )
            _say(note, what, said, problems)
        elif judged and judged not in parameters:
            note = f"the library {judged[:16]} that judged before is not at hand: its signal parameters stay in force"
            _say(note, judged, said, remarks)
        unjudged = clauses_of_late(record.info, batch.config, record.missing, late_signals(record, config.library))
        yield from batch.add(_signals(record, signals, unjudged))
    yield from batch.flush()


def _say(line: str, about: str, said: set[str], lines: list[str] | None) -> None:
    """Once for each thing that it is about."""
    if lines is not None and about not in said:
        lines.append(line)
    said.add(about)


def _derived_anew(
    record: EpisodeRecord, old: SignalParameters | None, new: SignalParameters
) -> tuple[dict[str, Floats], list[str]]:
    """The stored signals under other parameters, and the names of those that can't be had."""
    signals = dict(record.signals)
    if old is None or old == new:
        return signals, []
    changed = [name for name in _DERIVED_WITH if getattr(old, name) != getattr(new, name)]
    lost = []
    for signal in dict.fromkeys(signal for name in changed for signal in _DERIVED_WITH[name]):
        stored = signals.get(signal)
        if stored is None or np.isnan(stored).all():
            continue
        if signal == "separation_margin" and {"human_distance", "base_speed"} <= signals.keys():
            speeds = signals["base_speed"].tolist()
            needed = np.array([new.separation.distance(speed) for speed in speeds])
            signals[signal] = signals["human_distance"] - needed
        else:
            signals[signal] = np.full(len(stored), np.nan)
            lost.append(signal)
    return signals, lost


def _signals(record: EpisodeRecord, signals: dict[str, Floats], unjudged: tuple[str, ...]) -> SignalEpisode:
    unknown = np.full(len(record.stamps_ns), np.nan)
    made = record.provenance
    return SignalEpisode(
        record.info,
        # any stamp before the first: late as it was
        int(record.stamps_ns[0]) - 1 if record.partial else None,
        made.source,
        record.missing,
        record.stamps_ns.tolist(),
        list(np.column_stack([signals.get(name, unknown) for name in SIGNALS])),
        list(record.obstacle),
        record.refused,
        record.outcome,
        record.complete,
        record.notes,
        unjudged=unjudged,
        session=made.session,
    )
