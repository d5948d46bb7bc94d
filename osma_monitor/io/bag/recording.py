"""A recording as people hand it over: a rosbag2 folder, or one file of any kind, whole or damaged.

``metadata.yaml`` says which files belong together; without it the folder's files are read as they are. Compressed
files are expanded beside the system's temporary files, compressed messages as they come.
"""

from __future__ import annotations

import heapq
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import yaml
import zstandard

from osma_monitor.io.bag.base import RECORD_LIMIT, BagFile, Raw, Topic, expand_file, short
from osma_monitor.io.bag.cdr import fast_decoder
from osma_monitor.io.bag.files import open_file
from osma_monitor.io.bag.messages import Malformed
from osma_monitor.io.bag.types import Decode, as_known, decoder
from osma_monitor.io.errors import InputError

_SUFFIXES = (".mcap", ".db3", ".bag", ".bag.active", ".mcap.zst", ".db3.zst", ".mcap.zstd", ".db3.zstd")
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Compressed files may expand to this much.
EXPANDED_LIMIT = 256 << 30


def is_recording(path: Path) -> bool:
    """Whether ``path`` looks like a bag: by name for files, by its files for a folder. Says nothing about damage."""
    if path.is_dir():
        return (path / "metadata.yaml").is_file() or bool(_bag_files(path))
    return path.name.endswith(_SUFFIXES)


def _bag_files(folder: Path) -> list[Path]:
    found = [p for p in folder.iterdir() if p.is_file() and p.name.endswith(_SUFFIXES) and not p.name.startswith(".")]
    return sorted(found, key=lambda p: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", p.name)])


class Recording:
    """Topics and messages of a recording. A context manager: it may hold expanded copies.

    ``losses`` says what could not be read (it is whole only after reading), ``notes`` what was odd but cost nothing.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.losses: list[str] = []
        self.notes: list[str] = []
        self.undecodable: Counter[str] = Counter()  #: messages by topic that their type does not fit
        self._stack = ExitStack()
        self._metadata: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        if not self.path.exists():
            raise InputError(f"{self.path}: no such file or folder")
        try:
            self.files: list[BagFile] = self._open()
        except BaseException:
            self._stack.close()
            raise
        self.topics: dict[str, Topic] = {}
        for file in self.files:
            for name, topic in file.topics.items():
                old = self.topics.get(name)
                both = -1 if old and min(old.count, topic.count) < 0 else topic.count + (old.count if old else 0)
                self.topics[name] = replace(topic, count=both)
        self.all_topics = all(f.all_topics for f in self.files)
        spans = [f.span for f in self.files if f.span is not None]
        #: first and last receipt in ns; None when no index says it
        self.span = (
            (min(s[0] for s in spans), max(s[1] for s in spans)) if spans and len(spans) == len(self.files) else None
        )

    # -- opening -------------------------------------------------------------------------------------------------------

    def _open(self) -> list[BagFile]:
        paths = self._paths()
        files = []
        for path in paths:
            try:
                files.append(open_file(self._expanded(path)))
            except InputError as error:
                if len(paths) == 1:
                    raise
                self.losses.append(str(error))
        if not files:
            raise InputError(f"{self.path}: none of its {len(paths)} files can be read: {self.losses[0]}")
        return files

    def _paths(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = _bag_files(self.path)
        self._metadata = self._read_metadata()
        named = self._metadata.get("relative_file_paths")
        if isinstance(named, list) and named:
            paths = [self.path / Path(str(name)).name for name in named]
            for path in paths:
                if not path.is_file():
                    self.losses.append(f"{self.path}: its file {path.name} is missing")
            found = [p for p in paths if p.is_file()]
        if not found:
            inside = sorted(p.name for p in self.path.iterdir())[:5]
            holds = ", ".join(inside) if inside else "nothing"
            raise InputError(
                f"{self.path}: no bag: neither metadata.yaml nor .mcap, .db3 or .bag files; it holds {holds}"
            )
        return found

    def _read_metadata(self) -> dict[str, Any]:
        path = self.path / "metadata.yaml"
        if not path.is_file():
            self.notes.append(f"{self.path}: metadata.yaml is missing; its files are read as they are")
            return {}
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
            return data if isinstance(data, dict) else {}
        except (OSError, yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
            self.notes.append(f"{path}: not readable ({type(error).__name__}); the folder's files are read as they are")
            return {}

    def _expanded(self, path: Path) -> Path:
        if not path.name.endswith((".zst", ".zstd")):
            return path
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="osma_bag_")))
        free = shutil.disk_usage(folder).free - (1 << 30)
        target = folder / path.stem
        try:
            loss = expand_file(path, target, min(EXPANDED_LIMIT, max(free, 0)))
        except OSError as error:
            raise InputError(f"{path}: can't be expanded in {folder.parent}: {error.strerror}; set TMPDIR") from error
        if loss:
            self.losses.append(loss)
        return target

    def close(self) -> None:
        """Lets go of files and expanded copies."""
        for file in self.files:
            close = getattr(file, "close", None)
            if close is not None:
                close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def message_count(self) -> int:
        """Messages of all topics; -1 where no index says it."""
        counts = [t.count for t in self.topics.values()]
        return -1 if min(counts, default=0) < 0 else sum(counts)

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]:
        """Topic, receipt time and bytes of the messages of ``names`` (all if None) in order of receipt."""
        streams = [file.raw(names) for file in self.files]
        # split files follow each other; files that overlap in time are merged
        merged = heapq.merge(*streams, key=itemgetter(1)) if self._overlap() else (m for s in streams for m in s)
        given = 0
        for topic, stamp, data in merged:
            given += 1
            if data[:1] == _ZSTD_MAGIC[:1] and data[:4] == _ZSTD_MAGIC:
                try:
                    data = zstandard.ZstdDecompressor().decompress(data, max_output_size=RECORD_LIMIT)
                except zstandard.ZstdError as error:
                    self._undecodable(topic.name, error)
                    continue
            yield topic, stamp, data
        for file in self.files:
            self.losses += [loss for loss in file.losses if loss not in self.losses]
        self._compare_with_metadata(names, given)

    def messages(
        self, names: Collection[str] | None = None, short: Collection[str] = ()
    ) -> Iterator[tuple[str, int, Any]]:
        """Topic name, receipt time and decoded message. What can't be decoded is counted and left out.

        Messages of the topics in ``short`` come as :class:`~osma_monitor.io.bag.cdr.Decoded` where there is a short
        way.
        """
        decoders: dict[int, Decode | None] = {}  # by identity: hashing a topic hashes its definition
        for topic, stamp, data in self.raw(names):
            try:
                decode = decoders[id(topic)]
            except KeyError:
                decode = decoder(topic.type, topic.definition, topic.encoding)
                if decode is not None and topic.name in short and topic.encoding == "cdr":
                    decode = (as_known(topic.type, topic.definition) and fast_decoder(topic.type, decode)) or decode
                decoders[id(topic)] = decode
            if decode is None:
                self.undecodable[topic.name] += 1
                self._failed.setdefault(topic.name, f"nothing says how {topic.type or 'its type'} is laid out")
                continue
            try:
                message = decode(data)
            except Malformed as error:
                message = error  # decoded, but its fields contradict each other: for the reader to count
            except Exception as error:  # broken bytes raise whatever they lead to
                self._undecodable(topic.name, error)
                continue
            yield topic.name, stamp, message
        for name, count in self.undecodable.items():
            self.losses.append(f"{self.path.name}: {count} messages of {name} can't be decoded: {self._failed[name]}")

    def _undecodable(self, name: str, error: Exception) -> None:
        self.undecodable[name] += 1
        self._failed.setdefault(name, short(error))

    def _overlap(self) -> bool:
        spans = sorted(f.span for f in self.files if f.span is not None)
        return len(spans) == len(self.files) and any(b[0] < a[1] for a, b in pairwise(spans))

    def _compare_with_metadata(self, names: Collection[str] | None, given: int) -> None:
        """What a recording that was closed says about itself, against what could be read."""
        try:
            expected = sum(
                int(t["message_count"])
                for t in self._metadata["topics_with_message_count"]
                if names is None or t["topic_metadata"]["name"] in names
            )
        except (KeyError, TypeError, ValueError):
            return
        if self.losses and given < expected:
            self.losses.append(f"{self.path.name}: {expected - given} of {expected} messages of these topics are lost")
