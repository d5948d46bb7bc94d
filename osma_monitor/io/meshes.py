"""Bounding boxes of mesh files, read without a mesh library: STL, binary or text, and OBJ."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from osma_monitor.core.signals.raw import Floats

MAX_BYTES = 256 * 1024 * 1024
_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


class MeshError(ValueError):
    """Why no bounding box is known, in one line."""


def bounding_box(path: Path) -> tuple[Floats, Floats]:
    """Lowest and highest corner (3,) of a mesh in the file's own units. Raises MeshError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise MeshError(f"larger than {MAX_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise MeshError(f"cannot be read ({error.strerror or error})") from error
    kind = path.suffix.lower()
    if kind == ".stl":
        points = _stl(data)
    elif kind == ".obj":
        points = _lines(data, b"v")
    else:
        raise MeshError(f"{kind or 'a file without suffix'} is not read, only .stl and .obj")
    if len(points) == 0 or not np.isfinite(points).all():
        raise MeshError("holds no finite corners")
    return points.min(axis=0), points.max(axis=0)


def _stl(data: bytes) -> Floats:
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else -1
    if len(data) == 84 + count * _TRIANGLE.itemsize:
        triangles = np.frombuffer(data, _TRIANGLE, count, 84)
        return triangles["corners"].reshape(-1, 3).astype(np.float64)
    if data.lstrip()[:5] == b"solid" and len(corners := _lines(data, b"vertex")):
        return corners
    raise MeshError("neither a binary STL of the length that it says nor a text STL")


def _lines(data: bytes, keyword: bytes) -> Floats:
    try:
        rows = [fields[1:4] for line in data.splitlines() if (fields := line.split()) and fields[0] == keyword]
        return np.array(rows, np.float64).reshape(-1, 3)
    except ValueError as error:
        raise MeshError(f"a {keyword.decode()} line without three numbers") from error
