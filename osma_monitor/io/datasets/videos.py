"""Video frames of a LeRobot data set nearest to each violation, kept beside the episodes when asked for.

v2 has one video an episode and camera; v3 many episodes in one, with the second at which each begins in the episode's
meta entry (``videos/<camera>/from_timestamp``). Needs the extra ``video``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.io.bag.pictures import FURTHEST_NS, png
from osma_monitor.io.datasets.lerobot import EpisodeEntry, LeRobotDataset
from osma_monitor.io.errors import InputError, StoreError
from osma_monitor.io.store import file_stem

_VIDEO_V2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
_VIDEO_V3 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


def keep_video_frames(
    path: Path | str, records: Iterable[EpisodeRecord], folder: Path | str, problems: list[str]
) -> list[Path]:
    """Stores, for the first violation of each clause and each camera, the video frame nearest to it, as PNG. Returns
    the files.

    A video that can't be read is a line in ``problems``. Raises ImportError where the package ``av`` is absent,
    InputError when the data set has no videos, StoreError when the folder can't be written.
    """
    data, folder = LeRobotDataset(path), Path(folder)
    cameras = [name for name, feature in data.features.items() if feature.get("dtype") == "video"]
    if not cameras:
        raise InputError(f"{path}: no pictures of any camera; it has no column of dtype video")
    entries = {entry.index: entry for entry in data.entries}
    files = []
    for record in records:
        wanted = [(c.clause, c.first_violation_step) for c in record.clauses if c.first_violation_step is not None]
        entry = entries[int(record.info.attributes["episode_index"])]
        for camera in cameras if wanted else ():
            try:
                video, start = _place(data, entry, camera)
                frames = frames_at(video, [start + step / data.fps for _, step in wanted])
            except InputError as error:
                problems.append(str(error))
                continue
            for (clause, _), frame in zip(wanted, frames, strict=True):
                if frame is not None:
                    name = ".".join(map(file_stem, (record.info.episode_id, clause, camera)))
                    files.append(_write(folder / f"{name}.png", frame))
    return files


def _place(data: LeRobotDataset, entry: EpisodeEntry, camera: str) -> tuple[Path, float]:
    """The video file of an episode's camera, and the second in it at which the episode begins."""
    template = str(data.info.get("video_path") or (_VIDEO_V3 if data.v3 else _VIDEO_V2))
    size = int(data.info.get("chunks_size") or 1000)
    try:
        if not data.v3:
            place = template.format(episode_chunk=entry.index // size, video_key=camera, episode_index=entry.index)
            return data.inside(place, "video_path"), 0.0
        chunk, file = (int(entry.meta[f"videos/{camera}/{key}"]) for key in ("chunk_index", "file_index"))
        place = template.format(video_key=camera, chunk_index=chunk, file_index=file)
        return data.inside(place, "video_path"), float(entry.meta[f"videos/{camera}/from_timestamp"])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise InputError(
            f"{data.path}: the video of {camera!r}, episode {entry.index}, is not told ({error!r})"
        ) from error


def frames_at(video: Path, seconds: Sequence[float]) -> list[NDArray[np.uint8] | None]:
    """The frames (height, width, 3) nearest to each of ``seconds``; None where none is within a second.

    Raises InputError when the file is missing or no video.
    """
    import av

    try:
        with av.open(str(video)) as container:
            stream = next(iter(container.streams.video), None)
            if stream is None:
                raise InputError(f"{video}: no video in it")
            return [_nearest(container, stream, second) for second in seconds]
    except (av.FFmpegError, OSError) as error:
        raise InputError(f"{video}: not readable as a video ({error.strerror or error})") from error


def _nearest(container: Any, stream: Any, second: float) -> NDArray[np.uint8] | None:
    first = float((stream.start_time or 0) * stream.time_base)
    # backwards to the key frame before it, then on until the time is reached
    container.seek(round((first + second) / stream.time_base), stream=stream, backward=True)
    best, distance = None, FURTHEST_NS / 1e9
    for frame in container.decode(stream):
        if frame.time is None:
            continue
        away = abs(frame.time - first - second)
        if away <= distance:
            best, distance = frame, away
        if frame.time - first >= second:
            break
    return None if best is None else np.asarray(best.to_ndarray(format="rgb24"))


def _write(path: Path, frame: NDArray[np.uint8]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(frame))
    except OSError as error:
        raise StoreError(error.errno, f"{path}: {error.strerror}; no pictures are kept") from error
    return path
