"""tasks x policies x seeds in process: the same engine and records as over ROS, on as many cores as wanted.

The files that records go to and the monitor's configuration are handed in as callables, so that this module knows
neither formats nor folders: ``functools.partial(EpisodeWriter, folder)`` and ``monitor_config`` of osma_monitor.io fit.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from numpy.typing import ArrayLike

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import EpisodeMonitor, MonitorConfig, Update
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.hosts import make_simulation
from sim_bridge.policies import Policy, make_policy
from sim_bridge.simulation import Simulation, episode_info, findings_of


class Writer(Protocol):
    """What logs a running episode and stores its record (osma_monitor.io.store.EpisodeWriter).

    Leaving its context without ``finish`` keeps what was logged of an episode that was cut off.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def append(self, stamp_ns: int, values: ArrayLike, obstacle: str = "") -> None:
        """Log one step."""
        ...

    def finish(self, record: EpisodeRecord) -> object:
        """Store the record."""
        ...


#: Makes the monitor's configuration; called once a simulation with ``source=`` its provenance.
MakeConfig = Callable[..., MonitorConfig]
MakeWriter = Callable[[EpisodeInfo], Writer]


@dataclass(frozen=True)
class PolicySpec:
    """A policy to run: ``label`` names it in records, ``name`` and ``options`` make it (make_policy)."""

    name: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    instruction: str | None = None  #: None: the simulation's own

    @property
    def shown(self) -> str:
        """Its name in tables and records."""
        return self.label or self.name


@dataclass(frozen=True)
class Job:
    """One episode to run."""

    task: str
    policy: PolicySpec
    seed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``left_s`` is NaN before the first episode's end; ``violations``: entries of scored clauses."""

    done: int
    total: int
    last: Job | None
    violations: int
    elapsed_s: float
    left_s: float


def jobs(tasks: Iterable[str], policies: Iterable[PolicySpec], seeds: Iterable[int]) -> list[Job]:
    """All combinations: policy by policy, seed by seed, task by task."""
    return [Job(task, policy, seed) for policy, seed, task in itertools.product(policies, seeds, list(tasks))]


def drive(simulation: Simulation, policy: Policy, task: str, seed: int) -> tuple[list[RawFrame], Outcome]:
    """One episode without monitor: its frames and how it ended."""
    frames = [simulation.reset(task, seed)]
    policy.reset(episode_info(simulation.info(), policy.name))
    while (outcome := simulation.outcome()) is None:
        frames.append(simulation.step(policy.act(frames[-1])))
    return frames, outcome


def run_episode(
    simulation: Simulation,
    policy: Policy,
    job: Job,
    config: MonitorConfig,
    make_writer: MakeWriter | None = None,
    on_update: Callable[[Job, Update], None] | None = None,
) -> EpisodeRecord:
    """One monitored episode. ``on_update`` sees every frame's verdicts while the robot moves.

    A policy may have ``failure`` (its pipeline broke: the episode ends as a failure) and ``requested`` (the control
    values that it asked for, kept as attributes of the record).
    """
    frame = simulation.reset(job.task, job.seed)
    info = episode_info(simulation.info(), job.policy.shown, job.policy.instruction)
    with contextlib.nullcontext() if make_writer is None else make_writer(info) as writer:
        return _drive_monitored(simulation, policy, job, config, info, frame, writer, on_update)


def _drive_monitored(
    simulation: Simulation,
    policy: Policy,
    job: Job,
    config: MonitorConfig,
    info: EpisodeInfo,
    frame: RawFrame,
    writer: Writer | None,
    on_update: Callable[[Job, Update], None] | None,
) -> EpisodeRecord:
    monitor = EpisodeMonitor(info, config, frame.stamp_ns)
    policy.reset(info)
    steps = 0
    while True:
        steps += 1
        update = monitor.update(frame)
        if update is not None:
            if writer is not None:
                writer.append(update.stamp_ns, update.signals.values, update.signals.obstacle)
            if on_update is not None:
                on_update(job, update)
        outcome = simulation.outcome()
        if outcome is not None:
            break
        action = policy.act(frame)
        failure = getattr(policy, "failure", None)
        if failure:
            outcome = Outcome("failure", f"pipeline error: {failure}")
            break
        frame = simulation.step(action)
    record = monitor.close(Outcome(outcome.status, outcome.reason, steps))
    requested: Mapping[str, str] | None = getattr(policy, "requested", None)
    record = replace(record, info=info.with_attributes({**findings_of(simulation), **(requested or {})}))
    if writer is not None:
        writer.finish(record)
    return record


@dataclass(frozen=True)
class Setup:
    """What a worker needs to run jobs; everything in it can be sent to another process."""

    make_config: MakeConfig
    make_writer: MakeWriter | None = None
    host: str = "kitchen"
    host_options: Mapping[str, Any] = field(default_factory=dict)


class _Runner:
    """Runs jobs on one simulation; keeps each policy for the jobs that share it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.simulation = make_simulation(setup.host, **setup.host_options)
        self.config = setup.make_config(source=self.simulation.provenance())
        self._policies: list[tuple[PolicySpec, Policy]] = []

    def run(self, job: Job, on_update: Callable[[Job, Update], None] | None = None) -> tuple[EpisodeRecord, int]:
        """The record, and how often a scored clause began to be violated."""
        entries = 0

        def saw(job: Job, update: Update) -> None:
            nonlocal entries
            entries += scored_entries(update)
            if on_update is not None:
                on_update(job, update)

        policy = self._policy(job.policy)
        return run_episode(self.simulation, policy, job, self.config, self.setup.make_writer, saw), entries

    def _policy(self, spec: PolicySpec) -> Policy:
        for known, policy in self._policies:
            if known == spec:
                return policy
        policy = make_policy(spec.name, **spec.options)
        self._policies.append((spec, policy))
        return policy


def scored_entries(update: Update) -> int:
    """How many scored clauses begin to be violated in this step: what progress counts, in process and over ROS."""
    return sum(event.kind == "enter" and event.clause.scored for event in update.events)


_worker: _Runner | None = None
_unfit: Exception | None = None  #: why this worker could not start


def _start_worker(setup: Setup) -> None:
    global _worker, _unfit
    try:
        _worker = _Runner(setup)
    except Exception as error:  # raised here it would only break the pool; the first job hands it to the caller
        _unfit = error


def _work(job: Job) -> tuple[EpisodeRecord, int]:
    if _unfit is not None:
        raise _unfit
    assert _worker is not None
    _worker.simulation.restart_clock()
    return _worker.run(job)


def run(
    work: Sequence[Job],
    setup: Setup,
    workers: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
    on_update: Callable[[Job, Update], None] | None = None,
    continuous_clock: bool = False,
) -> Iterator[EpisodeRecord]:
    """Run all jobs and yield their records in the jobs' order, whatever the number of workers.

    Every episode starts at 1 s on the clock, so that records do not depend on how the work was shared; with
    ``continuous_clock`` (one worker only) the clock goes on from episode to episode, as in a run over ROS.
    ``on_update`` also needs one worker: it is called in this process. Raises what went wrong in a worker, and
    UserError when one was ended from outside.
    """
    if workers > 1 and (continuous_clock or on_update is not None):
        raise ValueError("continuous_clock and on_update need workers=1")
    meter = _Meter(len(work), on_progress)
    if workers <= 1:
        runner = _Runner(setup)
        try:
            for job in work:
                if not continuous_clock:
                    runner.simulation.restart_clock()
                record, entries = runner.run(job, on_update)
                meter.finished(job, entries)
                yield record
        finally:
            runner.simulation.close()
        return
    # spawn: MuJoCo's and ROS's threads and GL contexts do not survive a fork
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(setup,)
    )
    try:
        # a window of work ahead: enough to keep all workers busy, little enough to stop soon
        waiting: list[tuple[Job, Future[tuple[EpisodeRecord, int]]]] = []
        queue = iter(work)
        for job in itertools.islice(queue, 4 * workers):
            waiting.append((job, pool.submit(_work, job)))
        while waiting:
            job, future = waiting.pop(0)
            record, entries = future.result()
            following = next(queue, None)
            if following is not None:
                waiting.append((following, pool.submit(_work, following)))
            meter.finished(job, entries)
            yield record
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was ended from outside, most often because memory ran out; finished episodes are kept: "
            "go on with fewer workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Meter:
    """Counts finished episodes for the progress callback."""

    def __init__(self, total: int, callback: Callable[[Progress], None] | None) -> None:
        self._total, self._callback = total, callback
        self._started = time.monotonic()
        self._done = self._violations = 0
        if callback is not None:
            callback(Progress(0, total, None, 0, 0.0, float("nan")))

    def finished(self, job: Job, entries: int) -> None:
        self._done += 1
        self._violations += entries
        if self._callback is not None:
            elapsed = time.monotonic() - self._started
            left = elapsed / self._done * (self._total - self._done)
            self._callback(Progress(self._done, self._total, job, self._violations, elapsed, left))
