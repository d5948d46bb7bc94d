"""Steps of episodes to records: the engine over what was recorded, one episode at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.monitor import EpisodeMonitor, MonitorConfig
from osma_monitor.core.segmenter import Begin, End, Step
from osma_monitor.core.signals.raw import RawFrame


def judge(
    steps: Iterable[Step],
    config: MonitorConfig,
    session: Mapping[str, str],
    source: Callable[[], Mapping[str, str]] = dict,
    notes: Callable[[], Iterable[str]] = tuple,
) -> Iterator[EpisodeRecord]:
    """The record of every episode with at least one frame, as the live monitor makes it.

    ``source`` (where the frames come from) is asked when an episode begins, ``notes`` when it ends.
    """
    monitor: EpisodeMonitor | None = None
    for step in steps:
        if isinstance(step, RawFrame):
            if monitor is not None:
                monitor.update(step)
        elif isinstance(step, Begin):
            origin = source()
            monitor = EpisodeMonitor(
                step.info, replace(config, source=dict(origin)) if origin else config, step.stamp_ns
            )
        elif isinstance(step, End):
            if monitor is not None and monitor.step:
                yield monitor.close(step.outcome, session, complete=step.complete, notes=notes())
            monitor = None


def judge_frames(
    begin: Begin, frames: Iterable[RawFrame], outcome: Outcome, config: MonitorConfig, session: Mapping[str, str]
) -> EpisodeRecord | None:
    """The record of one episode whose frames are at hand; None without frames."""

    def steps() -> Iterator[Step]:
        yield begin
        yield from frames
        yield End(0, outcome, begin.info.episode_id)

    return next(judge(steps(), config, session), None)
