"""Camera pictures of a bag nearest to each violation, kept beside the episodes when asked for.

One pass over the camera topics after scoring. Compressed images are stored as they were recorded, raw ones as PNG.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.io.bag.base import Topic
from osma_monitor.io.bag.messages import stamp_of
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.errors import InputError, StoreError
from osma_monitor.io.store import file_stem

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
#: A picture further than this from the violation does not show it.
FURTHEST_NS = 1_000_000_000


@dataclass
class _Wanted:
    episode_id: str
    clause: str
    stamp_ns: int
    topic: str
    best_ns: int = FURTHEST_NS + 1
    message: Any = None


def keep_pictures(
    bag: Path | str, records: Iterable[EpisodeRecord], folder: Path | str, topics: Sequence[str] = ()
) -> list[Path]:
    """Stores, for the first violation of each clause and each camera, the picture nearest to it. Returns the files.

    ``topics``: the cameras; all image topics when empty. Raises InputError when the bag has no such topic,
    StoreError when the folder can't be written.
    """
    folder = Path(folder)
    with Recording(bag) as recording:
        cameras = _cameras(recording.topics, topics, str(bag))
        wanted = [
            _Wanted(record.info.episode_id, clause.clause, clause.first_violation_ns, camera)
            for record in records
            for clause in record.clauses
            if clause.first_violation_ns is not None
            for camera in cameras
        ]
        if not wanted:
            return []
        by_camera = {
            camera: sorted((w for w in wanted if w.topic == camera), key=lambda w: w.stamp_ns) for camera in cameras
        }
        for topic, received, message in recording.messages(cameras):
            stamp = stamp_of(message) or received
            for w in by_camera[topic]:
                distance = abs(w.stamp_ns - stamp)
                if distance < w.best_ns:
                    w.best_ns, w.message = distance, message
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder, w) for w in wanted if w.message is not None]
    except OSError as error:
        raise StoreError(error.errno, f"{folder}: {error.strerror}; no pictures are kept") from error


def _cameras(topics: dict[str, Topic], chosen: Sequence[str], where: str) -> list[str]:
    images = [t.name for t in topics.values() if t.type in (IMAGE, COMPRESSED)]
    absent = [name for name in chosen if name not in images]
    if absent or not images:
        named = repr(absent[0]) if absent else "any camera"
        raise InputError(f"{where}: no pictures of {named}; its image topics: {', '.join(images) or 'none'}")
    return list(chosen) or images


def _write(folder: Path, w: _Wanted) -> Path:
    data, suffix = _encoded(w.message)
    name = f"{file_stem(w.episode_id)}.{file_stem(w.clause)}.{file_stem(w.topic)}{suffix}"
    path = folder / name
    path.write_bytes(data)
    return path


def _encoded(message: Any) -> tuple[bytes, str]:
    if message.__msgtype__ == COMPRESSED:
        kind = str(message.format).lower()
        return bytes(message.data), ".png" if "png" in kind else ".jpg"
    return png(_pixels(message)), ".png"


_CHANNELS = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1, "8UC1": 1, "8UC3": 3}


def _pixels(message: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(height, width, channels) of a raw image; depth and other encodings are scaled to grey."""
    height, width, step = int(message.height), int(message.width), int(message.step)
    data = np.frombuffer(bytes(message.data), np.uint8)
    channels = _CHANNELS.get(str(message.encoding))
    if channels is None:
        deep = np.float32 if "32F" in str(message.encoding) else np.uint16
        rows = data.reshape(height, step)[:, : width * np.dtype(deep).itemsize]
        values = np.ascontiguousarray(rows).view(deep).astype(np.float64)
        top = np.nanmax(np.where(np.isfinite(values), values, np.nan)) if values.size else 1.0
        grey = np.nan_to_num(values / (top or 1.0) * 255.0, posinf=255.0)
        return grey.astype(np.uint8)[:, :, None]
    image = data.reshape(height, step)[:, : width * channels].reshape(height, width, channels)
    return image[:, :, [2, 1, 0, *range(3, channels)]] if str(message.encoding).startswith("bgr") else image


def png(image: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """A PNG (ISO/IEC 15948) of a (height, width, 1, 3 or 4) image of 8 bits."""
    height, width, channels = image.shape
    colour = {1: 0, 3: 2, 4: 6}[channels]
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
