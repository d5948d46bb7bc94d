"""What every kind of recorded file offers, and the limits that damage and decompression bombs run into."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from rosbags.interfaces import MessageDefinition

from osma_monitor.io.bag.types import NO_DEFINITION, Encoding
from osma_monitor.io.errors import InputError

#: A message, chunk or record that claims more than this is damage or an attack.
RECORD_LIMIT = 1 << 30
#: A chunk may expand to this much, and past ``FREE_EXPANSION`` bytes to no more than ``RATIO_LIMIT`` times its size.
RATIO_LIMIT, FREE_EXPANSION = 500, 64 << 20


@dataclass(frozen=True, slots=True)
class Topic:
    """A recorded topic. ``count`` is -1 where the file does not say."""

    name: str
    type: str
    count: int = -1
    definition: MessageDefinition = NO_DEFINITION
    encoding: Encoding = "cdr"


#: topic, receipt time in ns, bytes
Raw = tuple[Topic, int, bytes]


class BagFile(Protocol):
    """One file. ``span`` (ns of receipt, both ends included) is None where no index says it."""

    path: Path
    topics: dict[str, Topic]
    all_topics: bool  #: False: further topics may appear while reading
    span: tuple[int, int] | None
    losses: list[str]  #: what could not be read, one sentence each; grows while reading

    def raw(self, names: Collection[str] | None = None) -> Iterator[Raw]: ...


def check_expansion(path: Path, packed: int, unpacked: int) -> None:
    if unpacked > RECORD_LIMIT or (unpacked > FREE_EXPANSION and unpacked > RATIO_LIMIT * max(packed, 1)):
        raise InputError(
            f"{path}: {packed / 1e6:.3g} MB claim to expand to {unpacked / 1e6:.3g} MB; refused as a decompression bomb"
        )


def short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:120] if text else type(error).__name__


def expand_file(path: Path, target: Path, limit: int) -> str:
    """Expands a .zst file to ``target``; returns what was lost, or nothing. Raises InputError past ``limit`` bytes."""
    packed = path.stat().st_size
    written, loss = 0, ""
    expander = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    with open(path, "rb") as source, open(target, "wb") as out:
        while not loss and (piece := source.read(4096)):  # a block of zstd expands to 32,768 times its size at most
            while piece:
                if expander.eof:  # files of several frames
                    expander = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
                try:
                    block = expander.decompress(piece)
                except zstandard.ZstdError as error:
                    loss = f"{path.name}: broken compression after {written} bytes ({short(error)})"
                    break
                piece = expander.unused_data
                written += len(block)
                if written > limit or (written > FREE_EXPANSION and written > RATIO_LIMIT * packed):
                    raise InputError(
                        f"{path}: {packed / 1e6:.3g} MB expand to more than {written / 1e6:.3g} MB; "
                        "refused as a decompression bomb"
                    )
                out.write(block)
        if not loss and not expander.eof:
            loss = f"{path.name}: the compressed file is cut off; {written} bytes could be expanded"
    return loss


def expand_prefix(kind: str, data: bytes) -> bytes:
    """What can be expanded of compressed ``data`` whose end is missing; ``kind``: zstd, lz4, bz2, or none."""
    expand: Callable[[bytes], bytes]
    if kind == "zstd":
        expand = zstandard.ZstdDecompressor().decompressobj().decompress
    elif kind == "lz4":
        expand = lz4.frame.LZ4FrameDecompressor().decompress
    elif kind == "bz2":
        expand = bz2.BZ2Decompressor().decompress
    else:
        return data
    out = bytearray()
    try:
        for at in range(0, len(data), 4096):
            out += expand(data[at : at + 4096])
            if len(out) > RECORD_LIMIT:
                break
    except (zstandard.ZstdError, RuntimeError, OSError, EOFError):
        pass
    return bytes(out)


def cut_off(rest: int, size: int, expanded: int) -> str:
    """What became of the ``rest`` bytes behind the last whole record; ``expanded`` messages of them were still read."""
    share = f"{rest} bytes ({100 * rest / max(size, 1):.0f} % of the file)"
    if expanded:
        return f"{expanded} of them out of the last chunk, which is cut off after {share}"
    return f"nothing of the last {share}"
