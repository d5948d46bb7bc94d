"""The engine: one chain, equal results stepwise and re-scored, and honest about what it does not know."""

import dataclasses

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.monitor import SATISFIED, VIOLATED, EpisodeMonitor, rescore
from osma_monitor.core.prediction import TrendPredictor
from osma_monitor.core.signals.raw import (
    ENVIRONMENT,
    NO_CONTACTS,
    Base,
    Contacts,
    EndEffector,
    Joints,
    Objects,
    RawFrame,
    same,
    vector,
)
from osma_monitor.io.configuration import monitor_config

STEP = 50_000_000
CONFIG = monitor_config()
INFO = EpisodeInfo(
    "e", task="kitchen/layout0/A/baby", suite="kitchen", sources=("base", "joints", "ee", "contacts", "objects")
)


def frame(k: int, force: float = 0.0, distance: float = 2.0, effort: float = 5.0, **parts) -> RawFrame:
    """A base that drives 0.5 m/s along x past a baby."""
    contacts = NO_CONTACTS
    if force:
        contacts = Contacts(("base",), ("baby",), ("base",), ("human",), np.array([[0.0, 0.0, force]]))
    objects = Objects(
        ("baby",),
        ("baby",),
        ("human",),
        np.array([[2.5, 0.6, 0.0]]),
        np.array([[0.0, 0.0, 0.0, 1.0]]),
        np.array([distance]),
        np.array([force > 0.05], np.int8),
    )
    given = {
        "base": Base(vector([k * 0.025, 0, 0]), vector([0, 0, 0, 1]), vector([0.5, 0, 0]), vector([0, 0, 0])),
        "joints": Joints(("j1",), vector([0]), vector([0]), vector([effort])),
        "ee": EndEffector(vector([k * 0.025, 0, 1]), vector([0, 0, 0, 1])),
        "contacts": contacts,
        "objects": objects,
    }
    return RawFrame((k + 20) * STEP, **{**given, **parts})


def run(frames, info=INFO, config=CONFIG, outcome=None, **options):
    monitor = EpisodeMonitor(info, config, **options)
    updates = [monitor.update(f) for f in frames]
    return updates, monitor.close(outcome or Outcome("success", steps=len(frames)))


def clause(record, name):
    return next(c for c in record.clauses if c.clause == name)


def test_events_are_given_before_the_rest_of_the_update_is_worked_out(monkeypatch):
    order = []
    predict = TrendPredictor.update
    monkeypatch.setattr(TrendPredictor, "update", lambda *a: order.append("forecast") or predict(*a))
    monitor = EpisodeMonitor(INFO, CONFIG)
    for k in range(40):
        order.clear()
        update = monitor.update(frame(k, force=300.0 if k in (30, 31) else 0.0), order.append)
        assert order == [*update.events, "forecast"]
        assert bool(update.events) == (k in (30, 32))


def test_an_update_keeps_what_it_said_when_later_frames_say_more():
    monitor = EpisodeMonitor(INFO, CONFIG)
    updates = [monitor.update(frame(k, force=300.0 if k == 30 else 0.0)) for k in range(60)]
    at = [c.id for c in monitor.clauses].index("max_contact_force_under_200N")
    before, after = updates[29].clauses, updates[31].clauses
    assert (before.first_violation_ns[at], after.first_violation_ns[at]) == (-1, updates[30].stamp_ns)
    assert (before.status_episode[at], after.status_episode[at]) == (SATISFIED, VIOLATED)
    assert (before.rho_episode[at], after.rho_episode[at]) == (200.0, -100.0)
    assert after.status[at] == SATISFIED


def test_a_violation_is_said_at_its_step_and_stays_in_the_record():
    updates, record = run([frame(k, force=300.0 if k in (30, 31) else 0.0) for k in range(60)])
    events = [(e.kind, e.step) for u in updates for e in u.events if e.clause.id == "max_contact_force_under_200N"]
    assert events == [("enter", 30), ("exit", 32)]
    assert updates[30].state == "violated" and "max_contact_force_under_200N" in updates[30].reasons
    assert updates[40].state == "ok"
    result = clause(record, "max_contact_force_under_200N")
    assert (result.rho, result.depth, result.first_violation_step, result.longest_run) == (-100.0, 0.5, 30, 2)
    assert record.safety == "unsafe"
    assert record.depth == 1.0, "65 N on a living thing is the deeper violation"


def test_an_exit_says_duration_and_peak():
    updates, _ = run([frame(k, force={10: 250.0, 11: 350.0}.get(k, 0.0)) for k in range(20)])
    leave = next(e for u in updates for e in u.events if e.kind == "exit" and e.clause.family == "max_contact_force")
    assert leave.duration_ns == 2 * STEP
    assert leave.peak == -150.0
    assert leave.depth == 0.75
    assert leave.signals == {"contact_force_max": 0.0}


def test_rescoring_stored_signals_gives_the_same_record():
    _, record = run([frame(k, force=300.0 if k == 7 else 0.0) for k in range(30)])
    again = rescore(
        record.info, record.outcome, record.stamps_ns, record.signals, record.obstacle, CONFIG, record.missing
    )
    assert same(record, again)


def test_unknown_is_not_safe_and_does_not_latch():
    nan = float("nan")
    updates, record = run([frame(k, effort=nan if k == 5 else 5.0) for k in range(10)])
    assert updates[5].state == "unknown"
    assert updates[6].state == "ok"
    torque = clause(record, "joint_torque_under_87Nm")
    assert torque.status == "unknown" and torque.unknown_samples == 1
    assert record.safety == "unknown"


def test_a_declared_part_that_is_missing_is_unknown_an_undeclared_one_switches_clauses_off():
    updates, record = run([frame(k, contacts=None if k == 3 else NO_CONTACTS) for k in range(6)])
    assert updates[3].state == "unknown"
    undeclared = dataclasses.replace(INFO, sources=())
    _, record = run([frame(k, contacts=None) for k in range(6)], undeclared)
    assert record.inactive["max_contact_force_under_200N"].endswith("contacts")
    assert all(c.family != "max_contact_force" for c in record.clauses)


def test_nothing_checked_is_not_safe():
    bare = dataclasses.replace(INFO, sources=())
    updates, record = run([RawFrame((k + 1) * STEP, gripper=False) for k in range(3)], bare)
    assert updates[0].state == "unknown" and updates[0].reasons == ("no scored clause is active",)
    assert record.safety == "unknown"
    assert record.depth == 0


@pytest.mark.parametrize("stamp", [0, 20 * STEP, 25 * STEP - 1])
def test_repeated_backward_and_zero_stamps_change_nothing(stamp):
    frames = [frame(k) for k in range(6)]
    clean = run(frames)[1]
    monitor = EpisodeMonitor(INFO, CONFIG)
    for f in frames:
        monitor.update(f)
    assert monitor.update(dataclasses.replace(frame(99, force=999.0), stamp_ns=stamp)) is None
    record = monitor.close(Outcome("success", steps=6))
    assert record.refused == 1
    assert same(dataclasses.replace(record, refused=0), clean)


def test_partial_when_late_or_frames_are_missing():
    frames = [frame(k) for k in range(6)]
    assert not run(frames, start_ns=frames[0].stamp_ns)[1].partial
    assert run(frames[1:], start_ns=frames[0].stamp_ns)[1].partial
    assert run(frames[:-1], outcome=Outcome("success", steps=6))[1].partial
    assert not run(frames, outcome=Outcome("unknown"))[1].partial


def test_an_episode_without_frames():
    record = EpisodeMonitor(INFO, CONFIG).close(Outcome("aborted", "nothing came"))
    assert len(record.stamps_ns) == 0
    assert record.safety == "unknown"


def test_a_forecast_warns_before_the_violation():
    # the distance shrinks by 2 cm a step: the protective distance is met after about 60 steps
    updates, record = run([frame(k, distance=2.0 - 0.02 * k) for k in range(98)])
    states = [u.state for u in updates]
    assert "warn" in states and states.index("warn") < states.index("violated")
    first = states.index("violated")
    assert states[first - 1] == "warn"
    assert record.safety == "unsafe"


def test_the_last_instant_of_a_violation_may_be_unknown():
    def f(k):
        return frame(k, force=300.0 if k == 3 else 0.0, contacts=None) if k == 4 else frame(k, 300.0 if k == 3 else 0.0)

    updates, _ = run([f(k) for k in range(8)])
    events = [(e.kind, e.step) for u in updates for e in u.events if e.clause.family == "max_contact_force"]
    assert events == [("enter", 3), ("exit", 5)], "an unknown instant ends no violation"


def test_provenance_and_coverage():
    _, record = run([frame(k) for k in range(4)])
    assert record.provenance.library_hash == CONFIG.library.hash
    assert record.coverage["base_x"] == 1.0
    assert record.coverage["obj_above_table"] == 0.0
    assert record.missing["transport"]
    assert record.motion.d_min == 2.0


def test_a_force_sensor_is_never_a_static_contact():
    def push(force: float) -> Contacts:
        return Contacts(("tool",), (ENVIRONMENT,), ("arm",), ("furniture",), np.array([[force, 0.0, 0.0]]))

    _, record = run([frame(k, contacts=push(300.0 if k == 4 else 0.5)) for k in range(8)])
    assert clause(record, "arm_furniture_force_under_200N").rho == -100.0


def test_the_backend_rtamt_gives_the_same_values_and_refuses_with_a_reason():
    pytest.importorskip("rtamt")
    frames = [frame(k, force=300.0 if k == 4 else 0.0) for k in range(8)]
    native = run(frames)[1]
    official = run(frames, config=dataclasses.replace(CONFIG, backend="rtamt"))[1]
    assert official.provenance.backend == "rtamt"
    for mine, theirs in zip(native.clauses, official.clauses, strict=True):
        assert (mine.clause, mine.rho, mine.status) == (theirs.clause, theirs.rho, theirs.status)
    grip = EpisodeInfo("e", templates=("pnp_basic",), sources=("gripper", "objects", "contacts", "joints", "ee"))
    frames = [frame(k, objects=None) for k in range(4)]  # declared and missing: unknown, not switched off
    record = run(frames, info=grip, config=dataclasses.replace(CONFIG, backend="rtamt"))[1]
    assert "refused by the backend rtamt" in record.inactive["held_object_tilt_world_15deg"]
    assert clause(run(frames, info=grip)[1], "held_object_tilt_world_15deg")


def test_an_episode_that_ends_violated_says_its_exits():
    monitor = EpisodeMonitor(INFO, CONFIG)
    assert monitor.exits() == ()
    for k in range(8):
        monitor.update(frame(k, force=300.0 if k >= 5 else 0.0))
    (leave,) = [e for e in monitor.exits() if e.clause.family == "max_contact_force"]
    assert (leave.kind, leave.step, leave.rho, leave.peak, leave.duration_ns) == ("exit", 7, -100.0, -100.0, 2 * STEP)


NOBODY = Objects((), (), (), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int8))


def test_who_comes_after_the_first_frame_leaves_no_silent_safety():
    """The separation clause is chosen at the first frame; a person who comes later must not pass for checked."""
    frames = [frame(k, objects=NOBODY if k < 10 else None) for k in range(20)]
    frames = [f if k < 10 else frame(k) for k, f in enumerate(frames)]
    monitor = EpisodeMonitor(INFO, CONFIG)
    states = [monitor.update(f).state for f in frames]
    whole = EpisodeMonitor(INFO, CONFIG)
    whole.update(frame(0))
    lost = {c.id for c in whole.clauses if c.scored} - {c.id for c in monitor.clauses}
    assert lost and states[:10] == ["ok"] * 10 and states[10:] == ["unknown"] * 10
    text = " ".join(monitor.not_judged)
    assert "objects.human appeared after the episode began; not judged in this episode: " in text
    assert all(clause in text for clause in lost)
    update = monitor.update(frame(20, force=300.0))
    assert update.state == "violated", "what is judged still counts"
    record = monitor.close(Outcome("success", steps=21))
    assert record.notes == tuple(monitor.not_judged) and "not judged" in record.notes[0]
    results = {c.clause: c for c in record.clauses}
    assert all(results[c].status == "unknown" and results[c].unknown_samples == 21 for c in lost)
    assert not lost & record.inactive.keys() and record.safety == "unsafe"
    quiet = EpisodeMonitor(INFO, CONFIG)
    for f in frames:
        quiet.update(f)
    assert quiet.close(Outcome("success", steps=20)).safety == "unknown"


def test_an_effort_that_comes_late_names_its_clause():
    info = dataclasses.replace(INFO, sources=(), suite="so101", task="", templates=("pnp_basic",))
    still = Joints(("j1",), vector([0]), vector([0]), vector([np.nan]))
    late = [
        frame(k, joints=still if k < 5 else Joints(("j1",), vector([0]), vector([0]), vector([1.0]))) for k in range(9)
    ]
    monitor = EpisodeMonitor(info, CONFIG)
    for f in late:
        monitor.update(f)
    has_torque = EpisodeMonitor(info, CONFIG)
    has_torque.update(frame(0))
    lost = sorted({c.id for c in has_torque.clauses if c.scored} - {c.id for c in monitor.clauses})
    assert lost
    assert monitor.not_judged == (
        f"joints.effort appeared after the episode began; not judged in this episode: {', '.join(lost)}",
    )


def test_a_source_that_gives_the_same_throughout_has_no_latecomer():
    monitor = EpisodeMonitor(INFO, CONFIG)
    for k in range(30):
        update = monitor.update(frame(k, distance=np.nan if k == 3 else 2.0, objects=None) if k == 4 else frame(k))
    assert not monitor.not_judged and update.state == "ok"
