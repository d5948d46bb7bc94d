"""A bag to records: opens it, fits the mapping, runs the engine, says what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.io.bag.frames import BagFrames, OnProgress
from osma_monitor.io.bag.mapping import Mapping, plan
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.judge import judge

#: How the inputs of a record were joined, for the report.
INPUTS = {
    "frame": "recorded frames (equal to the live run)",
    "exact": "inputs joined by exact stamps (equal to the live run if nothing was lost)",
    "hold": "the latest inputs held at each primary message (a live run may differ)",
}


def bag_name(path: Path) -> str:
    """The name of a recording without suffixes."""
    name = path.resolve().name if path.name in ("", ".", "..") else path.name
    for suffix in (".zst", ".zstd", ".active", ".mcap", ".db3", ".bag"):
        name = name.removesuffix(suffix)
    return name


def score_bag(
    path: Path | str,
    config: MonitorConfig,
    mapping: Mapping | None = None,
    *,
    problems: list[str] | None = None,
    remarks: list[str] | None = None,
    spans: list[tuple[int, int, Path]] | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[EpisodeRecord]:
    """The records of a bag's episodes, one at a time; memory is bounded by an episode's signals, never by the bag.

    ``problems`` collects one line for each loss, doubt or refusal (any of them means exit code 2), ``remarks`` what is
    odd but usual. Raises
    InputError when the path is no bag, or nothing in it can be scored.
    """
    path = Path(path)
    said = problems if problems is not None else []
    mapping = mapping or Mapping()
    with Recording(path) as recording:
        found = plan(recording.topics, mapping, str(path), all_topics=recording.all_topics)
        said += [f"{path}: {doubt}; name one in a mapping (osma map {path})" for doubt in found.unsure]
        frames = BagFrames(recording, found, bag_name(path), on_progress)
        facts = frames.facts
        session = {"bag": bag_name(path), "inputs": facts.mode}
        rule_based = {"bag": bag_name(path)} if found.events is None and facts.mode != "frame" else {}
        unjudged: list[str] = []
        waiting: EpisodeRecord | None = None
        number = 0
        for record in judge(frames.steps(), config, session, lambda: facts.source or rule_based, unjudged):
            number += 1
            if waiting is not None:
                yield waiting
            waiting = record  # the last one learns whether the recording was cut off
        losses = [*recording.losses]
        if spans is not None and facts.received is not None:
            spans.append((*facts.received, path))
        if waiting is not None:
            if losses:
                waiting = replace(waiting, complete=False, notes=(*waiting.notes, *losses))
            yield waiting
        said += [line if line.startswith(str(path)) else f"{path}: {line}" for line in losses]
        said += [f"{path}: {line}" for line in (*unjudged, *facts.lines(harmless=False))]
        if remarks is not None:
            remarks += [f"{path}: {line}" for line in [*recording.notes, *facts.lines(harmless=True)]]
        if number == 0 and not unjudged:
            said.append(f"{path}: no episode in it: {_why_none(facts.frames, found.events is not None)}")


def _why_none(frames: int, events: bool) -> str:
    if not frames:
        return "no frame could be made of its messages"
    return (
        f"its {frames} frames lie outside of the episodes that it names" if events else f"of its {frames} frames none"
    )
