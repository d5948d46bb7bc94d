"""`osma run`: tasks x policies x seeds, over ROS or in process, into a run folder that can be resumed."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from osma_monitor.cli import rollouts
from osma_monitor.cli.demo import conclude
from osma_monitor.cli.helptext import help_of
from osma_monitor.core.errors import EXIT_OK, UserError
from osma_monitor.report.wording import plural


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run", help=help_of(run))(run)


def run(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="kitchen (all 625), task ids, patterns like 'kitchen/layout0/*/baby', or @FILE of ids."),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Policy, or LABEL=POLICY; may be given again.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = "0",
    out: Annotated[Path | None, typer.Option(help="Run folder; by default runs/<date-time>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder; skips finished episodes.")] = None,
    ros: Annotated[bool, typer.Option("--ros/--in-process", help="Over ROS topics, or without ROS.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="In process: how many at once; 0: one a core.")] = 0,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the policy; may be given again.")] = None,
    host: Annotated[str, typer.Option(help="Simulation, where the task ids do not begin with it.")] = "",
    host_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the simulation; may be given again.")
    ] = None,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Kitchen: another start pose for every seed (--host-option jitter=true).")
    ] = False,
) -> int:
    """Roll out policies on tasks in a simulator and log the episodes.

    Every episode is judged while it runs and stored when it ends, so an interrupted run loses one episode at most. The
    last line printed is the path of the page.
    """
    if resume is not None:
        if tasks or policy or host_option or jitter or out is not None:
            raise UserError("--resume takes tasks, policies, options and folder from the run; give it alone")
        plan, folder = rollouts.load(resume), resume
    else:
        host = host or host_of(tasks or [])
        wanted = expand(tasks or [], host)
        labels = policies(policy or [])
        given = options(option or [])
        check_options(labels.values(), given)
        for_host = ({"jitter": True} if jitter else {}) | options(host_option or [], "--host-option")
        plan = rollouts.Plan(
            wanted,
            tuple(labels),
            seed_list(seeds),
            rollouts.ROS if ros else rollouts.IN_PROCESS,
            1 if ros else rollouts.workers_or_default(workers),
            host,
            given,
            {label: name for label, name in labels.items() if label != name},
            for_host,
        )
        folder = rollouts.new_folder(out)
        rollouts.start(folder, plan)
        rollouts.tell(f"{plural(len(plan.items()), 'episode')} into {folder}")
        if alike := repeated(plan):
            rollouts.tell(
                f"warning: the kitchen starts every seed alike: the {len(plan.seeds)} seeds of a task are one and the "
                f"same drive under {', '.join(alike)}, so that n is too large and intervals are too narrow; add "
                "--jitter for another start pose a seed"
            )
    code = rollouts.carry_out(folder, plan, resume is not None)
    return code if code != EXIT_OK else conclude(folder, f"Run {folder.resolve().name}")


def repeated(plan: rollouts.Plan) -> list[str]:
    """Labels of policies whose episodes do not depend on the seed though several are asked for."""
    from sim_bridge.policies import POLICIES

    if plan.host != "kitchen" or plan.host_options.get("jitter") or len(plan.seeds) < 2:
        return []
    return [label for label in plan.policies if not getattr(POLICIES[plan.names.get(label, label)], "seeded", False)]


def expand(words: Sequence[str], host: str) -> tuple[str, ...]:
    """Task ids from names, patterns and files, in the order given, each once.

    Raises UserError for a word that names no task, with what comes near.
    """
    if not words:
        raise UserError("name the tasks to run: kitchen, a task id, or a pattern like 'kitchen/layout0/*/baby'")
    found: dict[str, None] = {}
    for word in words:
        if word.startswith("@"):
            found.update(dict.fromkeys(expand(_lines(Path(word[1:])), host)))
        elif host == "kitchen":
            found.update(dict.fromkeys(_kitchen(word)))
        elif word == host or any(c in word for c in "*?["):
            found.update(dict.fromkeys(_matching("*" if word == host else word, _tasks_of(host))))
        elif word in (known := _tasks_of(host)):
            found[word] = None
        else:
            near = difflib.get_close_matches(word, known, 3)
            raise UserError(
                f"{word!r} is no task of {host}; "
                + (f"did you mean {' or '.join(near)}?" if near else f"it has {known[0]}")
            )
    return tuple(found)


def host_of(words: Sequence[str]) -> str:
    """The host that the first task's id begins with; the kitchen when it begins with none."""
    from sim_bridge.hosts import HOSTS

    first = next(iter(words), "")
    return next((host for host in HOSTS if first.startswith(host)), "kitchen")


@functools.cache
def _tasks_of(host: str) -> Sequence[str]:
    from sim_bridge.hosts import make_simulation

    simulation = make_simulation(host)
    try:
        listed: Sequence[str] = simulation.tasks()  # type: ignore[attr-defined]
        return listed
    finally:
        simulation.close()


def _matching(pattern: str, known: Sequence[str]) -> Sequence[str]:
    found = fnmatch.filter(known, pattern)
    if not found:
        raise UserError(f"{pattern!r} matches no task; ids look like {known[0]}")
    return found


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected a file with one task id a line") from error
    words = [line.strip() for line in text.splitlines()]
    return [word for word in words if word and not word.startswith("#")]


def _kitchen(word: str) -> Sequence[str]:
    from sim_bridge.hosts import HOSTS
    from sim_bridge.kitchen.tasks import SUITE, parse_task, tasks

    suite = word.partition("/")[0]
    near = difflib.get_close_matches(suite, HOSTS, 1)
    if suite != SUITE and near and not any(c in suite for c in "*?["):
        raise UserError(f"{word!r}: the suite {suite} does not exist; did you mean {near[0]}?")
    if word == SUITE:
        return tasks()
    if any(c in word for c in "*?["):
        return _matching(word, tasks())
    return [parse_task(word).id]


def policies(words: Sequence[str]) -> dict[str, str]:
    """Label -> policy from words such as ``cautious`` and ``mine=voxposer``; UserError for one that does not exist."""
    from sim_bridge.policies import POLICIES, nearest

    known = ", ".join(POLICIES)
    chosen: dict[str, str] = {}
    for part in (part.strip() for word in words for part in word.split(",") if part.strip()):
        label, _, name = part.rpartition("=")
        if name not in POLICIES:
            raise UserError(f"--policy {part}: {name} does not exist; {nearest(name)}")
        chosen[label or name] = name
    if not chosen:
        raise UserError(f"name a policy with --policy: {known}")
    return chosen


def check_options(names: Iterable[str], given: Mapping[str, Any]) -> None:
    """Build each policy once. Raises UserError, with the option, its value and what is expected, where that fails."""
    from sim_bridge.policies import make_policy

    for name in dict.fromkeys(names):
        try:
            make_policy(name, **given)
        except UserError as error:
            if f"the policy {name}" not in str(error):
                error.args = (f"--policy {name}: {error}",)
            raise


def seed_list(text: str) -> tuple[int, ...]:
    """Seeds from text such as ``0,3,16``."""
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"--seeds {text}: expected whole numbers with commas, such as 0,3,16") from None


def options(words: Sequence[str], flag: str = "--option") -> dict[str, Any]:
    """KEY=VALUE options; values read as YAML scalars (numbers, true, text)."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"{flag} {word}: expected KEY=VALUE")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            found[key] = value
    return found
