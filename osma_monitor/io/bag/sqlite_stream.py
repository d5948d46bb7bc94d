"""Damaged rosbag2 SQLite files: every row that can still be read."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat

from osma_monitor.io.bag.base import Raw, Topic
from osma_monitor.io.bag.types import NO_DEFINITION


class SqliteStream:
    """A damaged rosbag2 SQLite file: every row that can still be read, in the order in which they were written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[str] = []
        self.all_topics = True
        self.span: tuple[int, int] | None = None
        self._readable = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._read_topics()
        except sqlite3.DatabaseError:
            self._readable = self._shortened()
            self._read_topics()

    def _read_topics(self) -> None:
        connection = self._connect()
        try:
            rows = connection.execute("SELECT id, name, type FROM topics").fetchall()
            definitions = self._definitions(connection)
        finally:
            connection.close()
        self._ids = {i: Topic(name, kind, -1, definitions.get(kind, NO_DEFINITION), "cdr") for i, name, kind in rows}
        self.topics = {t.name: t for t in self._ids.values()}

    def _shortened(self) -> Path:
        """A copy whose header claims no more pages than the file has: SQLite refuses a file that was cut off."""
        self._copy = tempfile.TemporaryDirectory(prefix="osma_bag_")
        copy = Path(self._copy.name) / "bag.db3"
        shutil.copyfile(self.path, copy)
        with open(copy, "r+b") as file:
            head = file.read(100)
            page = struct.unpack_from(">H", head, 16)[0] if len(head) == 100 else 0
            page = 65536 if page == 1 else page or 4096
            pages = copy.stat().st_size // page
            file.truncate(pages * page)
            file.seek(28)
            file.write(struct.pack(">I", pages))
        return copy

    def close(self) -> None:
        """Removes the copy, if one was needed."""
        if self._copy is not None:
            self._copy.cleanup()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._readable.resolve().as_uri()}?mode=ro&immutable=1", uri=True)

    @staticmethod
    def _definitions(connection: sqlite3.Connection) -> dict[str, MessageDefinition]:
        kinds = {"ros2msg": MessageDefinitionFormat.MSG, "ros2idl": MessageDefinitionFormat.IDL}
        try:
            rows = connection.execute(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            )
            return {t: MessageDefinition(kinds[e], text) for t, e, text in rows if e in kinds}
        except sqlite3.Error:
            return {}

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]:
        """Rows by id; a page that can't be read is skipped by growing leaps."""
        ids = [i for i, t in self._ids.items() if names is None or t.name in names]
        marks = ",".join("?" * len(ids))
        at, leap, given, faults = -1, 1, 0, 0
        first = last = 0
        while ids:
            connection = self._connect()
            try:
                rows = connection.execute(
                    f"SELECT id, topic_id, timestamp, data FROM messages WHERE id > ? AND topic_id IN ({marks}) "
                    "ORDER BY id",
                    (at, *ids),
                )
                for row, topic, stamp, data in rows:
                    at, leap = row, 1
                    given, first, last = given + 1, first or stamp, max(last, stamp)
                    yield self._ids[topic], stamp, bytes(data)
                break
            except sqlite3.Error:
                faults += 1
                at, leap = at + leap, leap * 2
                if leap > 1 << 40:
                    break
            finally:
                connection.close()
        if faults:
            self.losses.append(
                f"{self.path.name}: damaged: {given} messages ({(last - first) / 1e9:.2f} s) read, "
                f"{self._missing(given)}"
            )

    def _missing(self, given: int) -> str:
        """How many are lost, where the index still says it."""
        connection = self._connect()
        try:
            (total,) = connection.execute("SELECT count(*) FROM messages").fetchone()
            return f"{max(total - given, 0)} of {total} lost (all topics)"
        except sqlite3.Error:
            return "how many are lost is not known"
        finally:
            connection.close()
