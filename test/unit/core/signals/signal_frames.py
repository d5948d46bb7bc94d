"""Frames by hand, for the tests of the signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from osma_monitor.core.signals.deriver import derive_batch
from osma_monitor.core.signals.raw import NO_CONTACTS, Base, Contacts, EndEffector, Joints, Objects, RawFrame, vector

STEP = 50_000_000
IDENTITY = (0.0, 0.0, 0.0, 1.0)
NAN = math.nan


def about(axis: str, degrees: float) -> tuple[float, float, float, float]:
    half = math.radians(degrees) / 2
    values = [0.0, 0.0, 0.0, math.cos(half)]
    values["xyz".index(axis)] = math.sin(half)
    return values[0], values[1], values[2], values[3]


def contacts(*rows: tuple[str, str, str, str, Sequence[float]]) -> Contacts:
    """Rows of body a, role a, body b, role b, force."""
    if not rows:
        return NO_CONTACTS
    a, ra, b, rb, force = zip(*rows, strict=True)
    return Contacts(a, b, ra, rb, np.array(force, np.float64))


def objects(*rows: dict[str, Any]) -> Objects:
    return Objects(
        tuple(r["id"] for r in rows),
        tuple(r.get("category", "") for r in rows),
        tuple(r["role"] for r in rows),
        np.array([r.get("position", (0, 0, 0)) for r in rows], np.float64).reshape(len(rows), 3),
        np.array([r.get("orientation", IDENTITY) for r in rows], np.float64).reshape(len(rows), 4),
        np.array([r.get("distance", NAN) for r in rows], np.float64),
        np.array([r.get("in_contact", -1) for r in rows], np.int8),
    )


def base(x: float = 0, y: float = 0, yaw: float = 0, v: Sequence[float] = (0, 0, 0), turn: float = 0) -> Base:
    return Base(vector([x, y, 0]), vector(about("z", yaw)), vector(v), vector([0, 0, turn]))


def derived(frames: Sequence[RawFrame], name: str, **options: Any) -> list[float]:
    return list(derive_batch(frames, **options)[1][name])


def series(*parts: dict[str, Any]) -> list[RawFrame]:
    return [RawFrame((i + 1) * STEP, **part) for i, part in enumerate(parts)]


def joints(**effort: float) -> dict[str, Any]:
    n = len(effort)
    return {"joints": Joints(tuple(effort), np.zeros(n), np.zeros(n), np.array(list(effort.values()), np.float64))}


def ee(x: float, y: float = 0, z: float = 0) -> dict[str, Any]:
    return {"ee": EndEffector(vector([x, y, z]), vector(IDENTITY))}
