"""Whatever a person hands over, as EpisodeRecords: told by what it is, scored by the one engine, said what was wrong.

| what                                              | by                                   |
|---------------------------------------------------|--------------------------------------|
| our runs: a folder, .parquet, .part, compacted set | io/store.py, io/dataset.py           |
| bags: rosbag2 folder, .mcap, .db3, .bag            | io/bag, with a mapping file          |
| exports of ours (.mcap)                           | the record in it, io/export_mcap.py  |
| LeRobot data set                                   | io/datasets/lerobot.py, a field map  |
| HDF5 (robomimic, LIBERO), npz                      | io/datasets, a field map             |
| labels of rollouts judged from video, .csv         | io/datasets/labels.py                |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.segmenter import Begin
from osma_monitor.io import dataset, recovery, store
from osma_monitor.io.bag.mapping import Mapping, load_mapping, with_extensions
from osma_monitor.io.bag.recording import is_recording
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.datasets import hdf5, labels, lerobot, npz
from osma_monitor.io.datasets.fieldmap import EpisodeColumns, FieldMap, load_field_map
from osma_monitor.io.errors import InputError, StoreError
from osma_monitor.io.export_mcap import exported_records
from osma_monitor.io.judge import BatchJudge, SignalEpisode, collect_frames

Kind = Literal["dataset", "run", "episode", "part", "bag", "lerobot", "hdf5", "npz", "labels"]
OnProgress = Callable[[float, str], None]  #: fraction (NaN: not known), what is being read


@dataclass
class Findings:
    """What was met on the way. Any problem means exit code 2; remarks are odd but harmless. One line each."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    spans: list[tuple[int, int, Path]] = field(default_factory=list)  #: receipt times of each bag, ns


def kind_of(path: Path | str) -> Kind:
    """What ``path`` is, by its content. Raises InputError when it is nothing that can be scored."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        return _kind_of_folder(path)
    try:
        with open(path, "rb") as source:
            magic = source.read(16)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not magic and path.suffix != ".part":
        raise InputError(f"{path}: the file is empty (0 bytes)")
    if path.suffix == ".part":
        return "part"
    if magic.startswith(b"PAR1"):
        return "episode"
    if magic.startswith(hdf5.MAGIC):
        return "hdf5"
    if magic.startswith(b"PK\x03\x04"):
        return "npz"
    if path.suffix.lower() == ".csv":
        return "labels"
    if is_recording(path) or magic.startswith((b"\x89MCAP0", b"SQLite format 3", b"#ROSBAG V")):
        return "bag"
    raise InputError(
        f"{path}: not recognised (it begins with {magic[:8]!r}); "
        "expected an episode, bag, LeRobot data set, HDF5, npz or CSV"
    )


def _kind_of_folder(path: Path) -> Kind:
    if dataset.is_dataset(path):
        return "dataset"
    if lerobot.is_lerobot(path):
        return "lerobot"
    if (path / "metadata.yaml").is_file():
        return "bag"
    if (path / store.RUN_FILE).is_file() or any(path.glob("*.parquet")) or any(path.glob("*.part")):
        return "run"
    if is_recording(path):
        return "bag"
    inside = sorted(p.name for p in path.iterdir())[:5]
    raise InputError(f"{path}: neither run, bag nor data set; the folder holds {', '.join(inside) or 'nothing'}")


def expand(path: Path | str) -> list[Path]:
    """``path``, or the sources in it where it is a plain folder of several (bags, runs)."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    try:
        if _kind_of_folder(path) != "bag" or (path / "metadata.yaml").is_file():
            return [path]
        files = [p for p in sorted(path.iterdir()) if p.is_file() and is_recording(p)]
        # the parts of a split recording share a name; recordings of their own do not
        names = {p.name.split(".")[0].rstrip("0123456789").rstrip("_") for p in files}
        return [path] if len(names) == 1 else files
    except InputError:
        children = []
        for child in sorted(path.iterdir()):
            try:
                kind_of(child)
            except InputError:
                continue
            children.append(child)
        return children or [path]


def distinct(paths: Iterable[Path | str], findings: Findings) -> list[Path]:
    """Every source once; a path that names one again, or a part of one, becomes a remark."""
    given = [Path(path) for path in paths]
    places = [path.resolve() for path in given]
    kept: list[Path] = []
    for n, (path, place) in enumerate(zip(given, places, strict=True)):
        whole = [given[m] for m, other in enumerate(places) if other in place.parents or (other == place and m < n)]
        if whole:
            where = "is given twice" if path.resolve() == whole[0].resolve() else f"is a part of {whole[0]}"
            findings.remarks.append(f"{path} {where}; its episodes count once")
        else:
            kept.append(path)
    return kept


def open_source(
    path: Path | str,
    config: MonitorConfig,
    mapping: Path | str | Mapping | FieldMap | None = None,
    *,
    findings: Findings | None = None,
    on_progress: OnProgress | None = None,
    select: tuple[int, int] | None = None,
) -> Iterator[EpisodeRecord]:
    """The records of one source, one at a time. Stored episodes come as they were stored, everything else is judged
    now.

    ``mapping``: a mapping file (bags) or field map (data sets), read or as its path. Raises UserError when nothing
    of the source can be used; what is lost or doubtful in parts goes to ``findings``. ``select``: only these files
    of a run, episodes of a LeRobot data set or parts of a compacted one, first to last excluded (see
    io/partitions.py).
    """
    path = Path(path)
    findings = findings if findings is not None else Findings()

    def progress(fraction: float, what: str = "") -> None:
        if on_progress is not None:
            on_progress(fraction, f"{path.name} {what}".strip())

    kind = kind_of(path)
    if kind == "bag":
        if mapping is None and (exported := exported_records(path)):
            yield from exported
            return
        given = load_mapping(mapping) if isinstance(mapping, (str, Path)) else mapping
        if isinstance(given, FieldMap):
            raise InputError(f"{path}: a bag needs a mapping of topics, not a field map (osma map {path})")
        yield from score_bag(
            path,
            with_extensions(config, given) if given is not None else config,
            given,
            problems=findings.problems,
            remarks=findings.remarks,
            spans=findings.spans,
            on_progress=lambda fraction, seconds: progress(fraction, f"{seconds:.0f} s"),
        )
        return
    if kind in ("dataset", "run", "episode", "part"):
        yield from _stored(path, kind, config, findings, progress, select)
        return
    if kind == "labels":
        yield from labels.read_labels(path, config)
        return
    fields = load_field_map(mapping) if isinstance(mapping, (str, Path)) else mapping or FieldMap()
    if isinstance(fields, Mapping):
        raise InputError(f"{path}: a data set needs a field map of columns, not a mapping of topics")
    if kind == "lerobot":
        yield from _lerobot(path, fields, config, findings, progress, select)
        return
    read = hdf5.episodes if kind == "hdf5" else npz.episodes
    batch = BatchJudge(config, findings.problems)
    for number, episode in enumerate(read(path, fields), 1):
        progress(float("nan"), f"episode {number}")
        if isinstance(episode, InputError):
            findings.problems.append(str(episode))
        else:
            signals = _collected(episode.info, episode.outcome, episode.columns, episode.stamps_ns, config, path, kind)
            yield from batch.add(signals) if signals.stamps else ()
    yield from batch.flush()


def _stored(
    path: Path,
    kind: Kind,
    config: MonitorConfig,
    findings: Findings,
    progress: Callable[..., None],
    select: tuple[int, int] | None,
) -> Iterator[EpisodeRecord]:
    if kind == "dataset":
        yield from dataset.read_records(path, parts=select)
        return
    parts = [path] if kind == "part" else sorted(path.glob("*.part")) if kind == "run" else []
    files = [] if kind == "part" else store.episode_files(path)
    if select is not None:
        files, parts = files[slice(*select)], parts if select[0] == 0 else []
    for number, file in enumerate(files):
        progress(number / max(len(files), 1), f"{number}/{len(files)}")
        try:
            yield from store.read_episodes(file)
        except StoreError as error:
            findings.problems.append(str(error))
    rescore = recovery.rescorer(config)
    for part in parts:
        if part.with_suffix(".parquet").exists() or (kind == "run" and recovery.is_empty(part)):
            continue
        try:
            stream = recovery.read_part(part)
        except StoreError as error:
            findings.problems.append(str(error))
            continue
        state = "still runs" if recovery.in_use(part) else "did not end"
        findings.remarks.append(
            f"{part}: this episode {state}; judged as far as it goes ({len(stream.stamps_ns)} steps)"
        )
        yield rescore(stream)


def _lerobot(
    path: Path,
    fields: FieldMap,
    config: MonitorConfig,
    findings: Findings,
    progress: Callable[..., None],
    select: tuple[int, int] | None,
) -> Iterator[EpisodeRecord]:
    data = lerobot.LeRobotDataset(path)
    fields = data.defaults(fields)
    batch = BatchJudge(config, findings.problems)
    entries = data.entries if select is None else data.entries[slice(*select)]
    for number, entry in enumerate(entries):
        progress(number / max(len(entries), 1), f"episode {number}/{len(entries)}")
        try:
            columns, stamps, info, outcome = data.episode(entry, fields)
        except InputError as error:
            findings.problems.append(str(error))
            continue
        signals = _collected(info, outcome, columns, stamps, config, path, "lerobot")
        yield from batch.add(signals) if signals.stamps else ()
    yield from batch.flush()


def _collected(
    info: EpisodeInfo,
    outcome: Outcome,
    columns: EpisodeColumns,
    stamps: NDArray[np.int64],
    config: MonitorConfig,
    path: Path,
    kind: str,
) -> SignalEpisode:
    begin = Begin(int(stamps[0]) if columns.rows else 0, info)
    session = {"inputs": kind, "data": path.name}
    return collect_frames(begin, columns.frames(stamps), outcome, config, session)


def open_sources(
    paths: Iterable[Path | str],
    config: MonitorConfig,
    mapping: Path | str | Mapping | FieldMap | None = None,
    *,
    findings: Findings | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[EpisodeRecord]:
    """The records of several sources.

    One that can't be used becomes a line in ``findings``; the rest is still scored.
    """
    findings = findings if findings is not None else Findings()
    sources = [source for path in paths for source in expand(path)]
    for source in sources:
        try:
            yield from open_source(source, config, mapping, findings=findings, on_progress=on_progress)
        except UserError as error:
            findings.problems.append(str(error))
    findings.problems += [line for line in overlaps(findings.spans) if line not in findings.problems]


def overlaps(spans: Iterable[tuple[int, int, Path]]) -> list[str]:
    """Bags that were recorded at the same time: one recording given twice, or two robots; one line for each."""
    lines = []
    reach: tuple[int, Path] | None = None
    for start, end, source in sorted(spans, key=lambda s: (s[0], s[1], str(s[2]))):
        if reach is not None and start < reach[0]:
            seconds = (min(end, reach[0]) - start) / 1e9
            lines.append(
                f"{source}: overlaps {reach[1]} in time by {seconds:.1f} s; each is scored by itself, "
                "so episodes may count twice"
            )
        if reach is None or end > reach[0]:
            reach = (end, source)
    return lines
