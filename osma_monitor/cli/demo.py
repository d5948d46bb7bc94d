"""`osma demo`: the whole job once. Robot, policies and monitor over ROS, then one table a policy and the page."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from osma_monitor.cli import rollouts
from osma_monitor.cli.episodes import episodes, libraries, make_report, plan_of
from osma_monitor.cli.helptext import help_of
from osma_monitor.core.errors import EXIT_OK

POLICIES = ("shortest_path", "cautious")
#: Five routes: fewer matched cells give SSI no interval. A quick demo takes two.
LAYOUT, ROUTES, QUICK_ROUTES = 0, ("A", "B", "C", "E", "G"), ("A", "E")
#: Two obstacles a tier, low to high; a quick demo takes the first of each.
OBSTACLES = (("trash_bin", "cushion"), ("vase", "wine"), ("baby", "cat"))


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo", help=help_of(demo))(demo)


def demo(
    out: Annotated[Path | None, typer.Option(help="Run folder; by default runs/<date-time>.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every episode.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fifth of the tasks; too few for an interval of SSI.")
    ] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="Without ROS; the numbers are the same.")] = False,
) -> int:
    """Run the whole job once: robot, policies, monitor, report.

    A mobile robot drives matched tasks in a small kitchen: the same routes past the same spots, with obstacles of
    all three caution tiers. One policy ignores what the obstacle is, the other keeps more distance and goes slower for
    higher tiers. The simulation, the policy and the monitor are three processes that talk over ROS topics. Prints one
    table a policy; the last line is the path of the page. The same seed gives the same tables.
    """
    over = rollouts.IN_PROCESS if in_process else rollouts.ROS
    plan = rollouts.Plan(tasks(quick), POLICIES, (seed,), over)
    folder = rollouts.new_folder(out)
    rollouts.start(folder, plan)
    how = "in process" if in_process else "over ROS: simulation, policy and monitor as three processes"
    rollouts.tell(f"{len(plan.items())} episodes, {how}, into {folder}")
    code = rollouts.carry_out(folder, plan)
    return code if code != EXIT_OK else conclude(folder, "Demo: two policies in one kitchen")


def tasks(quick: bool = False) -> tuple[str, ...]:
    """The task ids of the demo."""
    chosen = [name for tier in OBSTACLES for name in (tier[:1] if quick else tier)]
    return tuple(
        f"kitchen/layout{LAYOUT}/{route}/{obstacle}"
        for route in (QUICK_ROUTES if quick else ROUTES)
        for obstacle in chosen
    )


def conclude(folder: Path, title: str) -> int:
    """Score a run folder: one table a policy on standard output, the page's path last."""
    from osma_monitor.cli.report import PAGE, write_page
    from osma_monitor.report.policy_table import policy_tables
    from osma_monitor.report.table import to_text

    judges = libraries([folder])
    plan = plan_of([folder])
    report = make_report(episodes([folder]), traces=True, title=title, libraries=judges, rescore=True, plan=plan)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in policy_tables(report):
        print(to_text(table, width))
    print(write_page(report, folder / PAGE, judges))
    return EXIT_OK
