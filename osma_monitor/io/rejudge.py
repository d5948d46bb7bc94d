"""Stored episodes judged again, from their stored signals: another library, other thresholds, no simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.signals.schema import SIGNALS
from osma_monitor.io.judge import BatchJudge, SignalEpisode


def rejudge(
    records: Iterable[EpisodeRecord], config: MonitorConfig, problems: list[str] | None = None
) -> Iterator[EpisodeRecord]:
    """The records as ``config`` judges them, in their order. Where nothing changed they are equal to the stored ones.

    A signal that was not stored is unknown. An episode without a step (labels of a rollout judged from video) holds
    nothing to judge and stays as it is; ``problems`` says so, and names what else could not be judged.
    """
    batch = BatchJudge(config, problems)
    offered = {clause.family for clause in config.library if clause.tier == "extension"}
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
        yield from batch.add(_signals(record))
    yield from batch.flush()


def _signals(record: EpisodeRecord) -> SignalEpisode:
    unknown = np.full(len(record.stamps_ns), np.nan)
    made = record.provenance
    return SignalEpisode(
        record.info,
        # any stamp before the first: late as it was
        int(record.stamps_ns[0]) - 1 if record.partial else None,
        made.source,
        record.missing,
        record.stamps_ns.tolist(),
        list(np.column_stack([record.signals.get(name, unknown) for name in SIGNALS])),
        list(record.obstacle),
        record.refused,
        record.outcome,
        record.complete,
        record.notes,
        session=made.session,
    )
