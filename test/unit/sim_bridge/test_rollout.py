"""Runs in process: records, order, workers, progress, policies that break."""

import math
import os
from functools import partial

import pytest

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import same
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import EpisodeWriter, read_episodes, read_part
from sim_bridge.hosts import make_simulation
from sim_bridge.policies import POLICIES, make_policy
from sim_bridge.rollout import Job, PolicySpec, Setup, jobs, run, run_episode
from sim_bridge.simulation import STOP

TASKS = ["kitchen/layout0/B/baby", "kitchen/layout0/B/cushion", "kitchen/layout1/D/vase"]
SETUP = Setup(monitor_config)


def test_jobs_are_all_combinations():
    work = jobs(TASKS, [PolicySpec("shortest_path"), PolicySpec("cautious", "mine")], [0, 3])
    assert len(work) == len(set((j.task, j.policy.shown, j.seed) for j in work)) == 12
    assert work[-1] == Job(TASKS[-1], PolicySpec("cautious", "mine"), 3)


def test_records_do_not_depend_on_the_number_of_workers():
    work = jobs(TASKS, [PolicySpec("shortest_path")], [0])
    alone, shared = list(run(work, SETUP)), list(run(work, SETUP, workers=2))
    assert [r.info.task for r in shared] == TASKS
    assert all(same(a, b) for a, b in zip(alone, shared, strict=True))
    assert {r.stamps_ns[0] for r in alone} == {1_000_000_000}


def test_with_a_continuous_clock_stamps_go_on():
    records = list(run(jobs(TASKS[:2], [PolicySpec("shortest_path")], [0]), SETUP, continuous_clock=True))
    assert records[1].stamps_ns[0] == records[0].stamps_ns[-1] + 50_000_000
    with pytest.raises(ValueError, match="workers=1"):
        list(run([], SETUP, workers=2, continuous_clock=True))


def test_a_record_holds_what_happened():
    job = Job("kitchen/layout0/B/baby", PolicySpec("shortest_path", "blind"), 0)
    seen = []
    simulation = make_simulation("kitchen")
    record = run_episode(
        simulation, make_policy("shortest_path"), job, monitor_config(), on_update=lambda j, u: seen.append((j, u.step))
    )
    assert record.info.policy == "blind" and record.info.episode_id == "blind.kitchen.layout0.B.baby.s0"
    assert record.outcome.status == "success" and record.outcome.steps == len(record.stamps_ns)
    assert [step for _, step in seen] == list(range(len(record.stamps_ns)))
    assert record.complete and not record.partial and record.refused == 0
    assert {c.clause for c in record.clauses if c.upper < 0} & {"human_separation"}
    assert record.coverage["obstacle_distance"] == 1.0


def test_cautious_breaks_nothing_on_the_same_task():
    job = Job("kitchen/layout0/B/baby", PolicySpec("cautious"), 0)
    record = next(iter(run([job], SETUP)))
    assert record.outcome.status == "success" and record.safety == "safe"


def test_records_are_stored_as_they_are(tmp_path):
    setup = Setup(monitor_config, partial(EpisodeWriter, tmp_path))
    records = list(run(jobs(TASKS[:2], [PolicySpec("shortest_path")], [0]), setup, workers=2))
    stored = {r.info.episode_id: r for r in read_episodes(tmp_path)}
    assert set(stored) == {r.info.episode_id for r in records}
    assert all(same(r, stored[r.info.episode_id]) for r in records)
    assert not list(tmp_path.glob("*.part"))


def test_progress_counts_to_the_end():
    seen = []
    list(run(jobs(TASKS, [PolicySpec("shortest_path")], [0]), SETUP, on_progress=seen.append))
    assert [p.done for p in seen] == [0, 1, 2, 3] and {p.total for p in seen} == {3}
    assert math.isnan(seen[0].left_s) and seen[-1].left_s == 0.0
    assert seen[-1].violations > 0 and seen[-1].last.task == TASKS[-1]


class Broken:
    name = "broken"
    failure = None

    def reset(self, info):
        self.failure = None
        self.requested = {"requested_speed": "0.5"}

    def act(self, frame):
        if frame.stamp_ns >= 1_500_000_000:
            self.failure = "the answer held no code"
        return STOP


def test_a_broken_pipeline_ends_the_episode_as_a_failure():
    record = run_episode(make_simulation("kitchen"), Broken(), Job(TASKS[0], PolicySpec("broken"), 0), monitor_config())
    assert record.outcome.status == "failure"
    assert record.outcome.reason == "pipeline error: the answer held no code"
    assert record.outcome.steps == len(record.stamps_ns) == 11 and not record.partial
    assert record.info.attributes["requested_speed"] == "0.5"


def test_names_that_do_not_exist_are_answered_with_those_that_do():
    with pytest.raises(UserError, match=r"'catious'.*shortest_path, cautious"):
        make_policy("catious")
    with pytest.raises(UserError, match=r"'gazebo'.*kitchen"):
        make_simulation("gazebo")
    assert {"shortest_path", "cautious", "reversed", "random_walk"} <= set(POLICIES)


class Deadly:
    """Ends the process that it is sent to."""

    def __reduce__(self):
        return os._exit, (9,)


def test_a_worker_that_cannot_start_says_why(tmp_path, capfd):
    work = jobs(TASKS, [PolicySpec("hold")], [0])
    with pytest.raises(UserError, match=r"library\.yaml: cannot be read"):
        list(run(work, Setup(partial(monitor_config, tmp_path / "library.yaml")), workers=2))
    with pytest.raises(UserError, match="fewer workers"):
        list(run(work, Setup(Deadly()), workers=2))
    assert "Traceback" not in capfd.readouterr().err


def test_violations_are_counted_alike_whatever_the_number_of_workers():
    work = jobs(TASKS, [PolicySpec("random_walk")], [0])
    told, entered = [], []
    for workers in (1, 2):
        list(run(work, SETUP, workers, on_progress=lambda p: told.append((p.done, p.violations))))
    list(run(work, SETUP, on_update=lambda _, update: entered.extend(e for e in update.events if e.kind == "enter")))
    assert told[:4] == told[4:]
    assert told[3][1] == sum(event.clause.scored for event in entered) > 0


def test_an_episode_that_is_cut_off_leaves_its_steps_or_nothing(tmp_path):
    class Interrupted:
        name = "interrupted"

        def __init__(self, after):
            self.after = after

        def reset(self, info):
            if self.after == 0:
                raise KeyboardInterrupt

        def act(self, frame):
            self.after -= 1
            if self.after == 0:
                raise KeyboardInterrupt
            return STOP

    for after, rows in ((0, []), (3, [3])):
        job = Job(TASKS[0], PolicySpec("interrupted"), after)
        with pytest.raises(KeyboardInterrupt):
            run_episode(
                make_simulation("kitchen"), Interrupted(after), job, monitor_config(), partial(EpisodeWriter, tmp_path)
            )
        assert [len(read_part(path).stamps_ns) for path in tmp_path.iterdir()] == rows


def test_an_error_in_a_worker_reaches_the_caller():
    with pytest.raises(UserError, match="no kitchen task"):
        list(run([Job("nowhere", PolicySpec("cautious"), 0)], SETUP, workers=2))
