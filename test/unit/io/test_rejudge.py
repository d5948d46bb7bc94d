"""Stored episodes judged again: equal where nothing changed, by the new limits where something did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.latecomers import appeared
from osma_monitor.core.monitor import EpisodeMonitor, MonitorConfig
from osma_monitor.core.signals.parameters import KeepOutBox, Separation
from osma_monitor.core.signals.raw import Base, Contacts, EndEffector, Objects, RawFrame, same, vector
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.rejudge import rejudge
from osma_monitor.io.sources import Findings, distinct

STILL = vector([0.0, 0.0, 0.0])
UPRIGHT = vector([0.0, 0.0, 0.0, 1.0])


def frames(force: float, steps: int = 30) -> list[RawFrame]:
    rng = np.random.default_rng(int(force))
    return [
        RawFrame(
            1_000_000_000 + 50_000_000 * step,
            base=Base(vector([0.05 * step, 0.0, 0.1]), UPRIGHT, vector([1.0, 0.0, 0.0]), STILL),
            contacts=Contacts(("base_shell",), ("vase_1",), ("base",), ("obstacle",), np.array([[force, 0.0, 0.0]])),
            objects=Objects(
                ("vase_1",),
                ("vase",),
                ("obstacle",),
                rng.random((1, 3)),
                UPRIGHT[None],
                rng.random(1),
                np.ones(1, np.int8),
            ),
        )
        for step in range(steps)
    ]


def judged(force: float, config: MonitorConfig, start_ns: int | None = None) -> EpisodeRecord:
    info = EpisodeInfo(f"push-{force:g}", task="push", templates=("navigate",), sources=("base", "contacts", "objects"))
    monitor = EpisodeMonitor(info, config, start_ns)
    for frame in frames(force):
        monitor.update(frame)
    return monitor.close(Outcome("success", "goal"), {"transport": "none"}, notes=("a note",))


def differing(a: EpisodeRecord, b: EpisodeRecord) -> list[str]:
    return [name for name in a.__dataclass_fields__ if not same(getattr(a, name), getattr(b, name))]


@pytest.mark.parametrize("start_ns", [None, 1_000_000_000, 900_000_000])
@pytest.mark.parametrize("gates", ["boolean", "quantitative"])
def test_the_same_library_gives_equal_records(gates: str, start_ns: int | None) -> None:
    config = monitor_config(gate_semantics=gates, extensions=("base_speed_limit",))  # type: ignore[arg-type]
    stored = [judged(force, config, start_ns) for force in (10.0, 150.0, 300.0)]
    assert [r.safety for r in stored] == ["safe", "safe", "unsafe"]
    # the extension was switched on for the run and is not named again
    again = list(rejudge(stored, replace(config, extensions=())))
    assert [differing(a, b) for a, b in zip(again, stored, strict=True)] == [[], [], []]


def test_another_limit_changes_the_verdict_and_is_named() -> None:
    config = monitor_config()
    stored = [judged(150.0, config)]
    clauses = {
        c.id: replace(c, threshold=100.0, severe=200.0) if c.family == "max_contact_force" else c
        for c in config.library
    }
    changed = replace(config, library=replace(config.library, clauses=tuple(clauses.values())))
    [record] = rejudge(stored, changed)
    assert (stored[0].safety, record.safety) == ("safe", "unsafe")
    broken = next(c for c in record.clauses if c.status == "violated" and c.scored)
    assert broken.depth == pytest.approx(0.5) and broken.first_violation_step == 0


def near_a_human(config: MonitorConfig) -> EpisodeRecord:
    """Drives at 0.5 m/s, 0.6 m off a person, with the gripper 0.5 m outside a box."""
    info = EpisodeInfo("near", task="pass", sources=("base", "objects", "ee"))
    monitor = EpisodeMonitor(info, config)
    for step in range(20):
        human = Objects(
            ("ann",), ("person",), ("human",), np.zeros((1, 3)), UPRIGHT[None], np.array([0.6]), np.zeros(1, np.int8)
        )
        at = vector([0.025 * step, 0.0, 0.1])
        base = Base(at, UPRIGHT, vector([0.5, 0.0, 0.0]), STILL)
        ee = EndEffector(vector([2.5, 0.0, 0.5]), UPRIGHT)
        monitor.update(RawFrame(1_000_000_000 + 50_000_000 * step, base=base, objects=human, ee=ee))
    return monitor.close(Outcome("success"))


def test_other_parameters_are_derived_anew_or_unknown_and_that_is_said() -> None:
    def having(**changes: object) -> MonitorConfig:
        config = monitor_config(extensions=("human_separation", "ee_keep_out"))
        box = KeepOutBox("shelf", "ee", (3.0, -1.0, 0.0), (4.0, 1.0, 1.0))
        parameters = replace(config.library.parameters, keep_out=(box,), **changes)
        return replace(config, library=replace(config.library, parameters=parameters))

    old = having()
    wary = having(separation=Separation(human_speed=1.6))
    moved = having(base_radius=0.1)
    moved = replace(
        moved,
        library=replace(
            moved.library,
            parameters=replace(
                moved.library.parameters, keep_out=(KeepOutBox("shelf", "ee", (2.0, -1.0, 0.0), (3.0, 1.0, 1.0)),)
            ),
        ),
    )
    stored = near_a_human(old)
    for config, safety in ((old, "safe"), (wary, "unsafe")):
        problems: list[str] = []
        [again] = rejudge([stored], config, problems, [old.library])
        assert differing(again, near_a_human(config)) == [] and again.safety == safety and not problems
    assert near_a_human(moved).safety == "unsafe"
    [again] = rejudge([stored], moved, problems, [old.library])
    assert again.safety == "unknown" and np.isnan(again.signals["ee_keep_out_margin"]).all()
    assert len(problems) == 1 and problems[0].startswith("ee_keep_out_margin: stored with other parameters")
    remarks: list[str] = []
    list(rejudge([stored, stored], moved, problems, [], remarks))
    assert len(problems) == 1 and len(remarks) == 1 and old.library.hash[:16] in remarks[0]


def test_an_episode_without_steps_stays_and_is_named() -> None:
    config = monitor_config()
    label = replace(judged(10.0, config), stamps_ns=np.zeros(0, np.int64), signals={}, obstacle=())
    problems: list[str] = []
    found = list(rejudge([judged(10.0, config), label, judged(300.0, config)], config, problems))
    assert found[1] is label and [r.info.episode_id for r in found] == ["push-10", "push-10", "push-300"]
    assert problems == ["episode 'push-10' is not judged again: no step of it is stored"]


def test_a_source_counts_once(tmp_path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    inside = run / "a.parquet"
    inside.touch()
    other = tmp_path / "run2"
    found = Findings()
    assert distinct([run, tmp_path / "x" / ".." / "run", inside, other], found) == [run, other]
    assert found.remarks == [
        f"{tmp_path / 'x' / '..' / 'run'} is given twice; its episodes count once",
        f"{inside} is a part of {run}; its episodes count once",
    ]


def test_what_came_late_stays_unknown_under_a_library_with_other_names() -> None:
    config = monitor_config()
    info = EpisodeInfo("late", task="push", templates=("navigate",))
    monitor = EpisodeMonitor(info, config)
    for number, frame in enumerate(frames(10.0)):
        monitor.update(frame if number else replace(frame, contacts=None))
    stored = monitor.close(Outcome("success"))
    assert stored.safety == "unknown"
    renamed = tuple(replace(c, id=f"{c.id}_of_ours") for c in config.library)
    [record] = rejudge([stored], replace(config, library=replace(config.library, clauses=renamed)))
    assert record.safety == "unknown"
    assert all(c.clause.endswith("_of_ours") for c in record.clauses)


def test_an_open_gripper_is_no_target_that_came_late() -> None:
    missing = {"transport": "objects.target", "human_distance": "objects.human", "ee_speed": "ee"}
    signals = {"transport": np.array([np.nan, 0.0]), "human_distance": np.array([np.nan, 2.0]), "ee_speed": np.zeros(2)}
    assert appeared(missing, signals) == {"human_distance"}
