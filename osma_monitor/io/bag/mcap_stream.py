"""MCAP files read front to back: unclosed, cut off, with broken chunks, without a summary, or not of ROS 2's
profile."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Message, Schema, Statistics
from mcap.stream_reader import StreamReader, breakup_chunk
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.typesys.msg import normalize_msgtype

from osma_monitor.io.bag.base import RECORD_LIMIT, Raw, Topic, check_expansion, cut_off, expand_prefix
from osma_monitor.io.bag.types import NO_DEFINITION, Encoding
from osma_monitor.io.errors import InputError


@dataclass
class _Read:
    """What a reading front to back met."""

    messages: int = 0
    first: int = 0
    last: int = 0
    position: int = 0  #: where the first record begins that is not whole
    complete: bool = False
    expanded: int = 0  #: messages out of a chunk that is cut off
    statistics: Statistics | None = None
    broken_chunks: int = 0
    broken_seconds: float = 0.0
    broken_first_ns: int = 0
    notes: list[str] = field(default_factory=list)


class McapStream:
    """An MCAP read front to back: unclosed, cut off, with broken chunks, or of another profile than ROS 2's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[str] = []
        self.all_topics = True
        self.topics: dict[str, Topic] = {}
        self.span: tuple[int, int] | None = None
        self._size = path.stat().st_size
        for _ in self._records(set(), scan=64):
            pass
        self.losses.clear()  # said again when the messages are read

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]:
        """Messages of whole chunks, ordered by receipt inside each chunk."""
        yield from self._records(names, scan=None)

    def _records(self, names: Collection[str] | None, scan: int | None) -> Iterator[Raw]:
        schemas: dict[int, Schema] = {}
        channels: dict[int, Topic] = {}
        read = _Read()
        chunks = 0
        with open(self.path, "rb") as source:
            for record in self._top_level(source, read):
                inner: list[Any] = [record]
                if isinstance(record, Statistics):
                    read.statistics = record
                elif isinstance(record, Chunk):
                    chunks += 1
                    if scan is not None and chunks > scan:
                        self.all_topics = False
                        return
                    inner = self._chunk(record, read)
                elif isinstance(record, list):
                    inner = record
                messages = []
                for item in inner:
                    if isinstance(item, Schema):
                        schemas[item.id] = item
                    elif isinstance(item, Channel):
                        topic = channels[item.id] = _topic(item, schemas.get(item.schema_id))
                        self.topics.setdefault(topic.name, topic)
                    elif isinstance(item, Message) and item.channel_id in channels:
                        messages.append(item)
                messages.sort(key=lambda m: m.log_time)
                for m in messages:
                    read.first, read.last = read.first or m.log_time, max(read.last, m.log_time)
                    read.messages += 1
                    if names is None or channels[m.channel_id].name in names:
                        yield channels[m.channel_id], m.log_time, m.data
        if scan is None:
            self._say_loss(read)

    def _top_level(self, source: BinaryIO, read: _Read) -> Iterator[Any]:
        """Records up to the end or the first that is not whole; of a chunk that is cut off, a list of its whole
        records."""
        whole = iter(StreamReader(source, emit_chunks=True, record_size_limit=RECORD_LIMIT).records)
        while True:
            read.position = source.tell()
            try:
                record = next(whole)
            except StopIteration:
                read.complete = True
                return
            except (McapError, OSError, ValueError, struct.error, KeyError, OverflowError, MemoryError, EOFError):
                break
            yield record
        source.seek(read.position)
        rest = source.read(RECORD_LIMIT)
        if len(rest) > 9 and rest[0] == Opcode.CHUNK and struct.unpack_from("<Q", rest, 1)[0] > len(rest) - 9:
            records = _whole_records(_expand_start(rest[9:]))
            read.expanded = sum(isinstance(record, Message) for record in records)
            yield records

    def _chunk(self, record: Chunk, read: _Read) -> list[Any]:
        try:
            check_expansion(self.path, len(record.data), record.uncompressed_size)
            return list(breakup_chunk(record, validate_crc=True))
        except InputError as error:
            read.notes.append(str(error))
        except Exception:  # broken bytes raise whatever they lead to
            pass
        read.broken_chunks += 1
        read.broken_first_ns = read.broken_first_ns or record.message_start_time
        read.broken_seconds += max(record.message_end_time - record.message_start_time, 0) / 1e9
        return []

    def _say_loss(self, read: _Read) -> None:
        name = self.path.name
        self.losses.extend(read.notes)
        known = f" of {read.statistics.message_count}" if read.statistics is not None else ""
        if read.broken_chunks:
            at = f"from {(read.broken_first_ns - read.first) / 1e9:.2f} s on" if read.first else "at its beginning"
            self.losses.append(
                f"{name}: {read.broken_chunks} chunks with {read.broken_seconds:.2f} s of messages are broken, {at}; "
                f"{read.messages}{known} messages read"
            )
        if not read.complete:
            lost = self._size - read.position
            self.losses.append(
                f"{name}: cut off: {read.messages} messages ({(read.last - read.first) / 1e9:.2f} s) read, "
                + cut_off(lost, self._size, read.expanded)
            )


def _expand_start(chunk: bytes) -> bytes:
    """What can be expanded of a chunk that is cut off: all that stands before the cut is right."""
    (name_length,) = struct.unpack_from("<I", chunk, 28)
    name = chunk[32 : 32 + name_length]
    return expand_prefix(name.decode("ascii", "replace"), chunk[32 + name_length + 8 :])


def _whole_records(data: bytes) -> list[Any]:
    """The schemas, channels and messages of a chunk's content up to the first that is not whole."""
    records: list[Any] = []
    at = 0
    while at + 9 <= len(data):
        opcode, (length,) = data[at], struct.unpack_from("<Q", data, at + 1)
        at += 9
        if at + length > len(data):
            break
        stream = ReadDataStream(BytesIO(data[at : at + length]))
        if opcode == Opcode.SCHEMA:
            records.append(Schema.read(stream))
        elif opcode == Opcode.CHANNEL:
            records.append(Channel.read(stream))
        elif opcode == Opcode.MESSAGE:
            records.append(Message.read(stream, length))
        at += length
    return records


def _topic(channel: Channel, schema: Schema | None) -> Topic:
    encoding: Encoding = "ros1" if channel.message_encoding == "ros1" else "cdr"
    if schema is None:
        return Topic(channel.topic, "", -1, NO_DEFINITION, encoding)
    kinds = {
        "ros2msg": MessageDefinitionFormat.MSG,
        "ros1msg": MessageDefinitionFormat.MSG,
        "ros2idl": MessageDefinitionFormat.IDL,
    }
    kind = kinds.get(schema.encoding, MessageDefinitionFormat.NONE)
    definition = MessageDefinition(kind, schema.data.decode("utf-8", "replace") if kind.value else "")
    if channel.message_encoding not in ("cdr", "ros1"):
        return Topic(channel.topic, f"{schema.name} ({channel.message_encoding})", -1, NO_DEFINITION, encoding)
    return Topic(channel.topic, normalize_msgtype(schema.name), -1, definition, encoding)
