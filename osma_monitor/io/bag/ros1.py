"""ROS 1 bags (format 2.0), read chunk after chunk: bounded memory, and no index needed."""

from __future__ import annotations

import bz2
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import lz4.frame  # type: ignore[import-untyped]
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.typesys.msg import normalize_msgtype

from osma_monitor.io.bag.base import RECORD_LIMIT, Raw, Topic, check_expansion, cut_off, expand_prefix
from osma_monitor.io.bag.types import NO_DEFINITION

MAGIC = b"#ROSBAG V2.0\n"


class Ros1File:
    """A ROS 1 bag (format 2.0) read chunk after chunk: bounded memory, and no index needed (``.bag.active``, cut
    off)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[str] = []
        self.topics: dict[str, Topic] = {}
        self.span: tuple[int, int] | None = None
        self.all_topics = False
        self._connections: dict[int, Topic] = {}
        with open(path, "rb") as source:
            source.read(len(MAGIC))
            index = 0
            try:
                header, _ = _ros1_record(source, path)
                index = struct.unpack("<Q", header["index_pos"])[0]
            except (EOFError, KeyError, struct.error):
                pass
            self._start = source.tell()
            self._end = index or path.stat().st_size
            self._indexed = bool(index) and self._read_index(source, index)
            if not self._indexed:
                self._scan_head(source)

    def _read_index(self, source: BinaryIO, index: int) -> bool:
        source.seek(index)
        start, end = 1 << 63, 0
        counts: dict[int, int] = {}
        try:
            while True:
                try:
                    header, data = _ros1_record(source, self.path)
                except EOFError:
                    break
                if header["op"] == b"\x07":
                    self._connection(header, data)
                elif header["op"] == b"\x06":
                    start = min(start, _ros1_time(header["start_time"]))
                    end = max(end, _ros1_time(header["end_time"]))
                    for i in range(0, len(data) - 7, 8):
                        number, count = struct.unpack_from("<II", data, i)
                        counts[number] = counts.get(number, 0) + count
        except (KeyError, struct.error, ValueError):
            return False
        totals: dict[str, int] = {}
        for number, topic in self._connections.items():
            totals[topic.name] = totals.get(topic.name, 0) + counts.get(number, 0)
        self.topics = {
            t.name: Topic(t.name, t.type, totals[t.name], t.definition, "ros1") for t in self._connections.values()
        }
        self.span = (start, end) if counts else None
        self.all_topics = True
        return bool(self._connections)

    def _scan_head(self, source: BinaryIO) -> None:
        """Topics of the first chunks, where there is no index."""
        for number, _ in enumerate(self._messages(source, None, [])):
            if number > 5000:
                return
        self.all_topics = True

    def _connection(self, header: dict[str, bytes], data: bytes) -> None:
        number = struct.unpack("<I", header["conn"])[0]
        if number in self._connections:
            return
        facts = _ros1_fields(data)
        text = facts.get("message_definition", b"").decode("utf-8", "replace")
        definition = MessageDefinition(MessageDefinitionFormat.MSG, text) if text.strip() else NO_DEFINITION
        kind = normalize_msgtype(facts["type"].decode("utf-8", "replace"))
        topic = Topic(header["topic"].decode("utf-8", "replace"), kind, -1, definition, "ros1")
        self._connections[number] = topic
        self.topics.setdefault(topic.name, topic)

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]:
        """Messages, ordered by receipt inside each chunk."""
        with open(self.path, "rb") as source:
            yield from self._messages(source, names, self.losses)

    def _messages(self, source: BinaryIO, names: Collection[str] | None, losses: list[str]) -> Iterator[Raw]:
        source.seek(self._start)
        given, broken, first, last = 0, 0, 0, 0
        while (where := source.tell()) < self._end:
            cut = False
            try:
                header, data = _ros1_record(source, self.path)
                items = self._items(header, data)
            except (EOFError, KeyError, struct.error, ValueError):
                cut = True
                items = self._start_of_chunk(source, where)
            except Exception:  # broken bytes raise whatever they lead to
                broken += 1
                continue
            for inner, body in items:
                topic = self._connections.get(struct.unpack("<I", inner["conn"])[0])
                stamp = _ros1_time(inner["time"])
                first, last, given = first or stamp, max(last, stamp), given + 1
                if topic is not None and (names is None or topic.name in names):
                    yield topic, stamp, body
            if cut:
                losses.append(
                    f"{self.path.name}: cut off: {given} messages ({(last - first) / 1e9:.2f} s) read, "
                    + cut_off(self._end - where, self._end, len(items))
                )
                break
        if broken:
            losses.append(f"{self.path.name}: {broken} chunks are broken; {given} messages read")

    def _items(self, header: dict[str, bytes], data: bytes) -> list[tuple[dict[str, bytes], bytes]]:
        """The messages of a top-level record."""
        if header["op"] == b"\x07":
            self._connection(header, data)
        elif header["op"] == b"\x05":
            return self._expand(header, data)
        return [(header, data)] if header["op"] == b"\x02" else []

    def _start_of_chunk(self, source: BinaryIO, where: int) -> list[tuple[dict[str, bytes], bytes]]:
        """The whole messages at the start of a chunk that is cut off."""
        source.seek(where)
        rest = source.read(RECORD_LIMIT)
        try:
            (size,) = struct.unpack_from("<I", rest)
            header = _ros1_fields(rest[4 : 4 + size])
            if header["op"] != b"\x05":
                return []
            return self._records(expand_prefix(header["compression"].decode("ascii", "replace"), rest[8 + size :]))
        except (KeyError, struct.error, ValueError):
            return []

    def _expand(self, header: dict[str, bytes], data: bytes) -> list[tuple[dict[str, bytes], bytes]]:
        size = struct.unpack("<I", header["size"])[0]
        check_expansion(self.path, len(data), size)
        kind = header["compression"]
        body = {b"none": lambda d: d, b"bz2": bz2.decompress, b"lz4": lz4.frame.decompress}[kind](data)
        return self._records(body)

    def _records(self, body: bytes) -> list[tuple[dict[str, bytes], bytes]]:
        """The messages of a chunk's content, ordered by receipt, up to the first that is not whole."""
        stream = _Bytes(body)
        items = []
        while stream.left():
            try:
                inner, content = _ros1_record(stream, self.path)
            except EOFError:
                break
            if inner["op"] == b"\x07":
                self._connection(inner, content)
            elif inner["op"] == b"\x02":
                items.append((inner, content))
        items.sort(key=lambda item: _ros1_time(item[0]["time"]))
        return items


class _Bytes:
    """``read`` over bytes, without copying all of them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def left(self) -> int:
        return len(self._data) - self._at

    def read(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]


def _ros1_record(source: Any, path: Path) -> tuple[dict[str, bytes], bytes]:
    """The next record. EOFError when it is not all there."""

    def block() -> bytes:
        size = source.read(4)
        if len(size) < 4:
            raise EOFError
        (count,) = struct.unpack("<I", size)
        if count > RECORD_LIMIT:
            raise ValueError(f"{path}: a record claims {count} bytes")
        data: bytes = source.read(count)
        if len(data) < count:
            raise EOFError
        return data

    return _ros1_fields(block()), block()


def _ros1_fields(data: bytes) -> dict[str, bytes]:
    fields, at = {}, 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        key, found, value = data[at + 4 : at + 4 + size].partition(b"=")
        if not found:
            raise ValueError("a header field without '='")
        fields[key.decode("ascii", "replace")] = value
        at += 4 + size
    return fields


def _ros1_time(data: bytes) -> int:
    seconds, nanoseconds = struct.unpack("<II", data)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
