"""Messages as bytes, without message objects: for what is published every frame.

Plain little-endian CDR (OMG DDSI-RTPS 2.5, 10.2.1.2): primitives are aligned to their size behind the encapsulation
header. ``Publisher.publish`` takes the bytes as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("<iII")
_COUNT = struct.Struct("<I")
_LITTLE_ENDIAN = b"\0\1\0\0"
_SECOND = 1_000_000_000
_PADDING = tuple(bytes(n) for n in range(8))


@lru_cache(maxsize=64)
def _doubles(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}d")


@lru_cache(maxsize=1024)
def _texts(texts: tuple[str, ...]) -> bytes:
    data = bytearray()
    for text in texts:
        encoded = text.encode() + b"\0"
        data += _PADDING[-len(data) % 4] + _COUNT.pack(len(encoded)) + encoded
    return bytes(data)


class CdrWriter:
    """Fields in the order of the message definition; :meth:`bytes` gives the message."""

    __slots__ = ("_data",)

    def __init__(self, stamp_ns: int, frame_id: str = "") -> None:
        """A message that begins with a header."""
        self._data = bytearray(_LITTLE_ENDIAN)
        self.header(stamp_ns, frame_id)

    def bytes(self) -> bytes:
        """The message."""
        return bytes(self._data)

    def _align(self, size: int) -> None:
        missing = (4 - len(self._data)) % size  # the encapsulation header does not count
        if missing:
            self._data += _PADDING[missing]

    def header(self, stamp_ns: int, frame_id: str = "") -> None:
        """std_msgs/Header."""
        self._align(4)
        text = frame_id.encode() + b"\0"
        self._data += _HEADER.pack(stamp_ns // _SECOND, stamp_ns % _SECOND, len(text)) + text

    def text(self, text: str) -> None:
        """A string."""
        self._align(4)
        encoded = text.encode() + b"\0"
        self._data += _COUNT.pack(len(encoded)) + encoded

    def texts(self, texts: Sequence[str]) -> None:
        """A sequence of strings."""
        self.count(len(texts))
        for text in texts:
            self.text(text)

    def bytes8(self, *values: int) -> None:
        """Fields of one byte each: uint8 and bool."""
        self._data += bytes(values)

    def count(self, number: int) -> None:
        """A uint32."""
        self._align(4)
        self._data += _COUNT.pack(number)

    def fixed_texts(self, *texts: str) -> None:
        """Strings that come again and again: their bytes are kept."""
        self._align(4)
        self._data += _texts(texts)

    def doubles(self, *values: float) -> None:
        """Fields of type float64, or an array of fixed size."""
        self._align(8)
        self._data += _doubles(len(values)).pack(*values)

    def sequence(self, values: NDArray[Any] | Iterable[float], kind: str = "<f8") -> None:
        """A sequence of numbers; ``kind`` is a NumPy type such as ``<f8``."""
        array = np.ascontiguousarray(values, dtype=kind)
        self.count(array.size)
        if array.size:
            self._align(array.itemsize)
            self._data += array.tobytes()
