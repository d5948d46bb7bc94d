"""Running a plan of episodes into a run folder, over ROS or in process; resuming one. Shared by demo and run."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from osma_monitor.cli.progress import Display, progress
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import EXIT_INTERRUPTED, MissingDependencyError, UserError
from osma_monitor.io.configuration import keep_library, monitor_config
from osma_monitor.io.recovery import in_use, remove_empty
from osma_monitor.io.store import EpisodeWriter, StoreError, episode_files, read_episodes, read_part, write_run

ROS, IN_PROCESS = "ros", "in-process"
RUN_FILE = "run.json"
#: Where records go that a resumed run replaces: aborted or cut off.
REPLACED = "replaced"


@dataclass(frozen=True)
class Plan:
    """What to run: every task with every seed under every policy."""

    tasks: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    over: str = ROS
    workers: int = 1
    host: str = "kitchen"
    policy_options: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  #: label of a policy -> its name, where they differ
    host_options: dict[str, Any] = field(default_factory=dict)

    def items(self) -> list[tuple[str, str, int]]:
        """(policy, task, seed): policy by policy, tasks in the outer loop, as over ROS."""
        return [(p, t, s) for p in self.policies for t in self.tasks for s in self.seeds]


def new_folder(out: Path | None) -> Path:
    """The run folder: ``out``, or runs/<date-time>. Never one that holds a run already.

    Raises UserError when ``out`` holds something.
    """
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            go_on = f", or go on with it: osma run --resume {out}" if (out / RUN_FILE).is_file() else ""
            raise UserError(f"{out}: is there already; name another folder{go_on}")
        return out
    base = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    folder, count = base, 1
    while folder.exists():
        count += 1
        folder = base.with_name(f"{base.name}-{count}")
    return folder


def start(folder: Path, plan: Plan) -> None:
    """Make the folder and write what will run into it. Raises MissingDependencyError before it does."""
    require(plan)
    folder.mkdir(parents=True, exist_ok=True)
    keep_library(folder)
    write_run(folder, {"plan": {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(plan).items()}})


def load(folder: Path) -> Plan:
    """The plan of a run folder. UserError says what is wrong with it."""
    path = folder / RUN_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        plan = data["plan"]
        return Plan(
            tasks=tuple(map(str, plan["tasks"])),
            policies=tuple(map(str, plan["policies"])),
            seeds=tuple(map(int, plan["seeds"])),
            over=str(plan["over"]),
            workers=int(plan.get("workers", 1)),
            host=str(plan.get("host", "kitchen")),
            policy_options=dict(plan.get("policy_options", {})),
            names=dict(plan.get("names", {})),
            host_options=dict(plan.get("host_options", {})),
        )
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; --resume needs the folder of a run made by osma run or demo"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: holds no plan to resume ({type(error).__name__}: {error})") from error


def finished(folder: Path) -> set[tuple[str, str, int]]:
    """What need not run again: episodes that ended regularly."""
    return {
        _key(record)
        for file in episode_files(folder)
        for record in _readable(file)
        if record.complete and record.outcome.status != "aborted"
    }


def _readable(file: Path) -> list[EpisodeRecord]:
    try:
        return list(read_episodes(file))
    except StoreError:
        return []


def _key(record: EpisodeRecord) -> tuple[str, str, int]:
    return record.info.policy, record.info.task, record.info.seed


def set_aside(folder: Path, pending: Iterable[tuple[str, str, int]]) -> list[str]:
    """Move records and streams of episodes that will run again into ``replaced``, and files that can't be read.

    Streams that hold nothing are removed. Returns a line for each damaged file. Raises UserError for one that can't be
    read though it may be whole.
    """
    again = set(pending)
    told = []
    for path in sorted([*episode_files(folder), *folder.glob("*.part")]):
        if path.suffix == ".part" and (remove_empty(path) or in_use(path)):
            continue
        try:
            info = next(iter(read_episodes(path))).info if path.suffix == ".parquet" else read_part(path).info
            moves = (info.policy, info.task, info.seed) in again
        except StoreError as error:
            if not _damaged(error):
                raise UserError(f"{error}; put that right or move the file elsewhere, then resume again") from error
            moves = True
            told.append(f"{error}; moved to {folder / REPLACED}, its episode runs again")
        if moves:
            (folder / REPLACED).mkdir(exist_ok=True)
            path.rename(_free(folder / REPLACED / path.name))
    return told


def _damaged(error: StoreError) -> bool:
    """Whether the bytes are at fault: not a right, a newer format or a file that is none of ours."""
    return error.__cause__ is not None and getattr(error.__cause__, "errno", None) is None


def _free(path: Path) -> Path:
    candidate, count = path, 1
    while candidate.exists():
        count += 1
        candidate = path.with_name(f"{path.stem}.{count}{path.suffix}")
    return candidate


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other runs out of the folder. The lock ends with the process at the latest."""
    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise UserError(f"{folder}: another osma runs in this folder; wait for it or stop it") from error
    finally:
        os.close(handle)


def carry_out(folder: Path, plan: Plan, resume: bool = False) -> int:
    """Run what the plan has left, with progress. Returns an exit code: 0, or 130 when the user interrupted.

    Raises UserError for what the user can put right; finished episodes stay in the folder in every case.
    """
    with _alone(folder):
        return _carry_out(folder, plan, resume)


def _carry_out(folder: Path, plan: Plan, resume: bool) -> int:
    items = plan.items()
    done = finished(folder) if resume else set()
    pending = [item for item in items if item not in done]
    told = set_aside(folder, pending) if resume else []
    with progress(len(items), len(items) - len(pending)) as display:
        for line in told:
            display.note(line)
        if resume:
            display.note(f"{len(items) - len(pending)} of {len(items)} episodes are there already")
        try:
            if pending:
                runner = _over_ros if plan.over == ROS else _in_process
                runner(folder, plan, pending, display)
        except KeyboardInterrupt:
            count = len(finished(folder))
            display.note(f"interrupted: {count} of {len(items)} episodes are kept in {folder}")
            display.note(f"go on:              osma run --resume {folder}")
            display.note(f"score what is there: osma score {folder}")
            return EXIT_INTERRUPTED
    return 0


def require(plan: Plan) -> None:
    """Raises, before anything is made, what is wrong: MissingDependencyError when ROS or the simulator is missing,
    UserError for options that the host does not take and for a clause library that does not fit.
    """
    if plan.over == ROS and importlib.util.find_spec("rclpy") is None:
        raise MissingDependencyError(
            "ROS 2 is not here: source a ROS 2 Jazzy workspace with osma_monitor built, run `make setup` and use "
            ".venv/bin/osma, or take --in-process, which needs no ROS and gives the same numbers"
        )
    from sim_bridge.hosts import make_simulation

    monitor_config()
    make_simulation(plan.host, **plan.host_options).close()


def _over_ros(folder: Path, plan: Plan, pending: Sequence[tuple[str, str, int]], display: Display) -> None:
    from osma_monitor.ros.session import run_session

    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for number, policy in enumerate(plan.policies):
        mine = [(task, seed) for p, task, seed in pending if p == policy]
        if not mine:
            continue
        listed = logs / f"plan-{number}.jsonl"
        listed.write_text("".join(json.dumps({"task": t, "seed": s}) + "\n" for t, s in mine))
        result = run_session(
            [task for task, _ in mine],
            [plan.names.get(policy, policy)],
            [0],
            folder,
            partial(_show, display, policy),
            host=plan.host,
            bridge_parameters={
                "policy": policy,
                "episodes_file": str(listed.resolve()),
                "host_options": json.dumps(plan.host_options),
                "commands": ["cmd_vel" if plan.host == "kitchen" else "joint_command"],
            },
            policy_parameters=plan.policy_options,
        )
        for reason in result.aborted:
            display.note(f"aborted: {reason}")


def _show(display: Display, policy: str, state: Any) -> None:
    """What a session tells (osma_monitor.ros.session.Progress), on the display of the whole run."""
    if state.event == "episode":
        display.episode(policy, state.task, state.seed)
    elif state.event == "violation":
        display.violation()
    elif state.event == "end":
        display.end(state.outcome)


def _in_process(folder: Path, plan: Plan, pending: Sequence[tuple[str, str, int]], display: Display) -> None:
    from sim_bridge import rollout

    monitor_config()  # said here, not by every worker
    specs = {p: rollout.PolicySpec(plan.names.get(p, p), p, plan.policy_options) for p in plan.policies}
    setup = rollout.Setup(monitor_config, partial(EpisodeWriter, folder), plan.host, plan.host_options)

    def saw(job: rollout.Job, update: Any) -> None:
        if update.step == 0:
            display.episode(job.policy.shown, job.task, job.seed)
        for _ in range(rollout.scored_entries(update)):
            display.violation()

    begun = 0

    def counted(state: rollout.Progress) -> None:
        """Workers tell their violations when an episode ends."""
        nonlocal begun
        if state.last is None:
            begun = 0
            return
        display.episode(state.last.policy.shown, state.last.task, state.last.seed)
        for _ in range(state.violations - begun):
            display.violation()
        begun = state.violations

    for policy in plan.policies:
        work = [rollout.Job(task, specs[p], seed) for p, task, seed in pending if p == policy]
        if not work:
            continue
        one = plan.workers <= 1
        # one worker: the clock goes on from episode to episode, as over ROS, and records are equal to those
        watch: dict[str, Any] = {"on_update": saw, "continuous_clock": True} if one else {"on_progress": counted}
        for record in rollout.run(work, setup, plan.workers, **watch):
            display.end(record.outcome.status)


def workers_or_default(wanted: int) -> int:
    """The number of workers: 0 means one a core."""
    return wanted if wanted > 0 else max(1, len(os.sched_getaffinity(0)))


def tell(text: str) -> None:
    """A line for people, beside the results on standard output."""
    print(text, file=sys.stderr, flush=True)
