"""One navigation rollout as the metrics see it, and how it follows from an episode record (OSMA-Bench C.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeRecord

STANDSTILL = 0.01  #: m: a base that never got this far from its start never moved
BRIDGE_NS = 1_000_000_000  #: across a longer gap in the position the path is not known


class ReferencePath(NamedTuple):
    """The unobstructed path of a cell: A* length in m (NPL) and driven time in s (NPT)."""

    length_m: float
    time_s: float


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task that a run was to carry out, and where it is placed; places are empty where nobody knows them."""

    policy: str
    task: str
    seed: int = 0
    cell: str = ""
    layout: str = ""
    route: str = ""
    tier: str = ""
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class NavigationEpisode:
    """One task rollout as the navigation metrics see it. None and NaN: not known."""

    task: str
    cell: str = ""
    success: bool | None = None
    contact_steps: int | None = None  #: control steps in contact with the obstacle, C_n
    first_contact_speed: float = math.nan  #: m/s at the first step in contact
    path_length: float = math.nan  #: m
    duration: float = math.nan  #: s
    moved: bool = True
    policy: str = ""
    seed: int = 0
    layout: str = ""
    route: str = ""
    tier: str = ""
    obstacle: str = ""
    condition: str = ""  #: of the instruction
    reference: ReferencePath | None = None
    aborted: bool = False  #: ended by the machinery: listed, never scored

    def __post_init__(self) -> None:
        """Take what a table row holds: NumPy scalars, and NaN for what is not known."""
        if self.success is not None:
            object.__setattr__(self, "success", None if self.success != self.success else bool(self.success))
        if self.contact_steps is not None:
            steps = None if self.contact_steps != self.contact_steps else int(self.contact_steps)
            object.__setattr__(self, "contact_steps", steps)

    @property
    def collision_free(self) -> bool | None:
        """Success without contact (S^cf of Eq. 3); None when a success's contact is not known."""
        if self.success is not True:
            return self.success
        return None if self.contact_steps is None else self.contact_steps == 0


def episode_of(source: NavigationEpisode | EpisodeRecord) -> NavigationEpisode:
    """The navigation view of a record: contact, path and time from its stored steps, cell and tier from its attributes.

    A record that did not end regularly has an unknown outcome; one whose contact flag is unknown in some frame and
    never set has unknown contact.
    """
    if isinstance(source, NavigationEpisode):
        return source
    info, attributes = source.info, source.info.attributes
    x, y = signal_of(source, "base_x"), signal_of(source, "base_y")
    contact = signal_of(source, "obstacle_contact")
    reference = ReferencePath(number_of(attributes, "reference_length_m"), number_of(attributes, "reference_time_s"))
    steps, speed = contact_of(source.stamps_ns, x, y, contact)
    whole = not source.partial
    return NavigationEpisode(
        task=info.task,
        cell=attributes.get("cell", ""),
        success=source.outcome.success if source.complete else None,
        contact_steps=steps if steps or whole else None,
        first_contact_speed=speed,
        path_length=path_length(source.stamps_ns, x, y) if whole else math.nan,
        duration=_duration(source.stamps_ns) if whole else math.nan,
        moved=has_moved(x, y),
        policy=info.policy,
        seed=info.seed,
        layout=attributes.get("layout", ""),
        route=attributes.get("route", ""),
        tier=attributes.get("tier", ""),
        obstacle=attributes.get("obstacle", ""),
        condition=attributes.get("condition", ""),
        reference=None if all(map(math.isnan, reference)) else reference,
        aborted=source.outcome.status == "aborted",
    )


def _duration(stamps_ns: NDArray[np.int64]) -> float:
    return float(stamps_ns[-1] - stamps_ns[0]) * 1e-9 if len(stamps_ns) else math.nan


def path_length(stamps_ns: NDArray[np.int64], x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Executed path length in m (Eq. 4). NaN without a known position or across a gap of over one second."""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any() or (np.diff(stamps_ns[known]) > BRIDGE_NS).any():
        return math.nan
    dx, dy = np.diff(x[known]), np.diff(y[known])
    return math.fsum(np.sqrt(dx * dx + dy * dy).tolist())


def has_moved(x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Whether the base was ever over 1 cm away from its first known position; True when its position is never known."""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return True
    dx, dy = x[known] - x[known][0], y[known] - y[known][0]
    return bool((dx * dx + dy * dy).max() > STANDSTILL**2)


def contact_of(
    stamps_ns: NDArray[np.int64], x: NDArray[np.float64], y: NDArray[np.float64], contact: NDArray[np.float64]
) -> tuple[int | None, float]:
    """Steps in contact (None: not known) and the speed in m/s at the first of them.

    The speed is the forward difference of the paper; NaN when the episode ends at that step or a position is unknown.
    """
    touching = np.flatnonzero(contact > 0.5)
    if not len(touching):
        return (0 if len(contact) and not np.isnan(contact).any() else None), math.nan
    t = int(touching[0])
    if t + 1 >= len(stamps_ns):
        return len(touching), math.nan
    dx, dy = float(x[t + 1] - x[t]), float(y[t + 1] - y[t])
    return len(touching), math.sqrt(dx * dx + dy * dy) / (float(stamps_ns[t + 1] - stamps_ns[t]) * 1e-9)


def signal_of(record: EpisodeRecord, name: str) -> NDArray[np.float64]:
    """(T,) a stored signal; NaN where the record has none."""
    column = record.signals.get(name)
    return np.full(len(record.stamps_ns), math.nan) if column is None else np.asarray(column, dtype=np.float64)


def number_of(attributes: Mapping[str, str], name: str) -> float:
    """An attribute that holds a number; NaN when it is absent. Raises ValueError naming the attribute and its text."""
    text = attributes.get(name)
    if not text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the episode attribute {name} is {text!r}; expected a number") from None
