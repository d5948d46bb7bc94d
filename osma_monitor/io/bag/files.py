"""One recorded file: an MCAP, a rosbag2 SQLite or a ROS 1 bag, told by what is in it.

A whole file is read through its index, a damaged one front to back for whatever is readable.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from mcap.data_stream import ReadDataStream
from mcap.records import Chunk, Message
from mcap.stream_reader import breakup_chunk
from rosbags.rosbag2 import Reader

from osma_monitor.io.bag.base import BagFile, Raw, Topic, check_expansion, short
from osma_monitor.io.bag.mcap_stream import McapStream
from osma_monitor.io.bag.ros1 import MAGIC as ROS1_MAGIC
from osma_monitor.io.bag.ros1 import Ros1File
from osma_monitor.io.bag.sqlite_stream import SqliteStream
from osma_monitor.io.errors import InputError

MCAP_MAGIC = b"\x89MCAP0\r\n"
SQLITE_MAGIC = b"SQLite format 3\x00"
_MCAP_FOOTER = 0x02


def open_file(path: Path) -> BagFile:
    """Opens one file by what is in it, not by its name. Raises InputError when it is no bag."""
    try:
        with open(path, "rb") as source:
            magic = source.read(16)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not magic:
        raise InputError(f"{path}: the file is empty (0 bytes); was the recording ever closed?")
    if magic.startswith(MCAP_MAGIC):
        return _open_mcap(path)
    if magic.startswith(SQLITE_MAGIC):
        return _open_sqlite(path)
    if magic.startswith(ROS1_MAGIC):
        return Ros1File(path)
    raise InputError(
        f"{path}: no bag: it begins with {magic[:8]!r}, expected MCAP, a rosbag2 SQLite file or a ROS 1 bag"
    )


class IndexedFile:
    """A whole MCAP or SQLite file, read through rosbags."""

    def __init__(self, path: Path, suffix: str) -> None:
        self.path = path
        self.losses: list[str] = []
        self.all_topics = True
        self._reader: Any = Reader.STORAGE_PLUGINS[suffix](path)
        self._reader.open()
        counts: dict[str, Topic] = {}
        for c in self._reader.connections:
            before = counts.get(c.topic)
            count = c.msgcount + (before.count if before else 0)
            counts[c.topic] = Topic(c.topic, c.msgtype, count, c.msgdef, "cdr")
        self.topics = counts
        m = self._reader.metadata
        self.span: tuple[int, int] | None = (m.start_time, m.end_time - 1) if m.message_count else None
        # several connections of one topic may differ in type: each message keeps its own
        self._by_id = {c.id: Topic(c.topic, c.msgtype, c.msgcount, c.msgdef, "cdr") for c in self._reader.connections}

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]:
        """Messages in order of receipt. A fault in the middle ends the index and goes on with what can be recovered."""
        wanted = [c for c in self._reader.connections if names is None or c.topic in names]
        if not wanted:
            return
        last, given = None, 0
        try:
            for connection, stamp, data in self._reader.messages(wanted):
                last = stamp
                given += 1
                yield self._by_id[connection.id], stamp, bytes(data)
        except GeneratorExit:
            raise
        except Exception as error:  # damaged chunks raise whatever their bytes lead to
            yield from self._rest(names, last, given, error)

    def _rest(self, names: Collection[str] | None, last: int | None, given: int, error: Exception) -> Iterator[Raw]:
        """After a fault: everything later than what was given that can still be read."""
        found = 0
        for topic, stamp, data in self._salvage(names):
            if last is not None and stamp <= last:
                continue
            found += 1
            yield topic, stamp, data
        expected = sum(t.count for n, t in self.topics.items() if names is None or n in names)
        lost = max(expected - given - found, 0)
        at = "" if last is None or self.span is None else f" from {(last - self.span[0]) / 1e9:.2f} s on"
        self.losses.append(f"{self.path.name}: {lost} of {expected} messages unreadable{at} ({short(error)})")

    def _salvage(self, names: Collection[str] | None) -> Iterator[Raw]:
        yield from SqliteStream(self.path).raw(names)

    def close(self) -> None:
        self._reader.close()


class IndexedMcap(IndexedFile):
    """MCAP through its summary, whose index also finds the chunks behind a broken one."""

    def _salvage(self, names: Collection[str] | None) -> Iterator[Raw]:
        with open(self.path, "rb") as source:
            for chunk in sorted(self._reader.chunks, key=lambda c: (c.message_start_time, c.chunk_start_offset)):
                try:
                    source.seek(chunk.chunk_start_offset + 9)  # opcode and length
                    body = source.read(chunk.chunk_length - 9)
                    records = breakup_chunk(Chunk.read(ReadDataStream(BytesIO(body))), validate_crc=True)
                except Exception:  # broken bytes raise whatever they lead to
                    continue
                messages = [r for r in records if isinstance(r, Message) and r.channel_id in self._by_id]
                for m in sorted(messages, key=lambda m: m.log_time):
                    topic = self._by_id[m.channel_id]
                    if names is None or topic.name in names:
                        yield topic, m.log_time, m.data


def _open_mcap(path: Path) -> BagFile:
    size = path.stat().st_size
    with open(path, "rb") as source:
        source.seek(max(size - 37, 0))
        tail = source.read(37)
    closed = len(tail) == 37 and tail.endswith(MCAP_MAGIC) and tail[0] == _MCAP_FOOTER
    # without a summary the index would be made by reading the whole file first: read it front to back instead
    if closed and struct.unpack("<Q", tail[9:17])[0]:
        try:
            return _checked_chunks(IndexedMcap(path, ".mcap"))
        except InputError:
            raise
        except Exception:  # not the ROS 2 profile, or a damaged summary
            pass
    return McapStream(path)


def _checked_chunks(file: IndexedMcap) -> IndexedMcap:
    for chunk in file._reader.chunks:
        check_expansion(file.path, chunk.compressed_size, chunk.uncompressed_size)
    return file


def _open_sqlite(path: Path) -> BagFile:
    try:
        return IndexedFile(path, ".db3")
    except Exception as error:  # damaged files raise whatever their bytes lead to
        try:
            return SqliteStream(path)
        except sqlite3.Error:
            raise InputError(f"{path}: a SQLite file, but no readable rosbag2 recording ({short(error)})") from error
