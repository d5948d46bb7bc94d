"""Frames that no sane source sends: live, collected and re-scored records agree, and nothing unknown is safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.latecomers import late_signals
from osma_monitor.core.monitor import EpisodeMonitor, rescore
from osma_monitor.core.signals.raw import (
    CONTACT_ROLES,
    OBJECT_ROLES,
    Base,
    Contacts,
    EndEffector,
    Joints,
    Objects,
    RawFrame,
    same,
)
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.judge import BatchJudge, EpisodeCollector
from osma_monitor.io.rejudge import rejudge

CONFIG = monitor_config()
PARTS = ("base", "joints", "ee", "gripper", "contacts", "objects")
ODD = (0.0, -0.0, 1e308, -1e308, 1e-320, np.nan, np.inf, -np.inf)


class Source:
    """Missing parts, repeated ids, changing roles, objects that come and go, quaternions of any length."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def numbers(self, *shape: int, scale: float = 1.0) -> NDArray[np.float64]:
        values = self.rng.normal(0, scale, shape)
        odd = self.rng.random(shape) < 0.15
        values[odd] = self.rng.choice(ODD, int(odd.sum()))
        return values

    def names(self, count: int, pool: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(name) for name in self.rng.choice(pool, count))

    def frame(self, stamp_ns: int) -> RawFrame:
        n, k = self.rng.integers(0, 5, 2)
        roles = OBJECT_ROLES if self.rng.random() < 0.9 else (*OBJECT_ROLES, "bystandr")
        contact_roles = CONTACT_ROLES if self.rng.random() < 0.9 else (*CONTACT_ROLES, "", "amr")
        parts: dict[str, Any] = {
            "base": Base(self.numbers(3), self.numbers(4), self.numbers(3), self.numbers(3)),
            "joints": Joints(
                self.names(n, ("j1", "j2", "finger")), np.zeros(n), np.zeros(n), self.numbers(n, scale=60)
            ),
            "ee": EndEffector(self.numbers(3), self.numbers(4)),
            "gripper": bool(self.rng.random() < 0.5),
            "contacts": Contacts(
                *(self.names(k, ("a", "b", "c", "d")) for _ in range(2)),
                *(self.names(k, contact_roles) for _ in range(2)),
                self.numbers(k, 3, scale=100),
            ),
            "objects": Objects(
                self.names(n, ("o1", "o2", "o3", "o4", "o5")),
                ("",) * n,
                self.names(n, roles),
                self.numbers(n, 3),
                self.numbers(n, 4),
                self.numbers(n),
                self.rng.integers(-1, 2, n).astype(np.int8),
            ),
        }
        return RawFrame(stamp_ns, **{name: part for name, part in parts.items() if self.rng.random() < 0.8})


@pytest.mark.parametrize("seed", range(40))
def test_equal_records_in_which_nothing_unknown_is_safe(seed: int) -> None:
    source = Source(seed)
    stamps = np.cumsum(source.rng.integers(1, 10**8, source.rng.integers(1, 12)))
    frames = [source.frame(int(stamp)) for stamp in stamps]
    templates = ("pnp_basic",) if seed % 2 else ()
    suite = ("kitchen", "libero_10", "")[seed % 3]
    info = EpisodeInfo("e", task="x", suite=suite, templates=templates, sources=PARTS if seed % 4 else ())
    outcome = Outcome("success", steps=len(frames))

    monitor = EpisodeMonitor(info, CONFIG, frames[0].stamp_ns)
    collector = EpisodeCollector(info, CONFIG, frames[0].stamp_ns, {})
    for frame in frames:
        monitor.update(frame)
        collector.add(frame)
    live = monitor.close(outcome)
    collector.episode.outcome = outcome
    judge = BatchJudge(CONFIG)
    (batch,) = judge.add(collector.episode) + judge.flush()
    late = late_signals(live, CONFIG.library)
    again = rescore(
        info, outcome, live.stamps_ns, live.signals, live.obstacle, CONFIG, live.missing, notes=live.notes, late=late
    )
    assert same(live, batch) and same(live, again)
    assert same(live, *rejudge([live], CONFIG))

    for result in live.clauses:
        if result.status != "satisfied":
            continue
        clause = CONFIG.library[result.clause]
        if clause.template_quantitative:
            gate = live.signals["transport" if "transport" in clause.signals else "gripper_contact"]
            assert np.isfinite(live.signals[clause.signal][gate != 0.0]).all(), result.clause
        elif "->" not in clause.formula:
            assert np.isfinite(live.signals[clause.signal]).all(), result.clause
