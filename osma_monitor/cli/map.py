"""`osma map`: looks at a bag and writes a first mapping file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from osma_monitor.cli.helptext import help_of
from osma_monitor.core.errors import EXIT_OK, UserError
from osma_monitor.core.text import printable
from osma_monitor.io.bag.source import bag_name
from osma_monitor.io.bag.suggest import Suggestion, suggest
from osma_monitor.io.configuration import monitor_config


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("map", help=help_of(map_bag))(map_bag)


def map_bag(
    bag: Annotated[Path, typer.Argument(help="A rosbag2 folder, .mcap, .db3 or ROS 1 .bag.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; - prints it alone.")] = None,
    robot: Annotated[str, typer.Option(help="A robot file by name or path.")] = "",
    template: Annotated[list[str] | None, typer.Option(help="Mechanism of the task; may be given again.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> int:
    """Look at a bag's topics and types and write a first mapping.

    Says which raw parts its topics give, which clauses that makes judgeable, and what is missing.
    """
    found = suggest(bag, monitor_config(), robot, tuple(template or ()))
    if str(out) == "-":
        sys.stdout.write(found.text)
        return EXIT_OK
    target = out or Path(f"{bag_name(bag)}.mapping.yaml")
    if target.exists() and not force:
        raise UserError(f"{target} exists already; use --force to overwrite it or --out for another name")
    try:
        target.write_text(found.text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}; use --out for another place") from error
    print("\n".join(describe(found)))
    print(f"\nwrote {target}; next: osma score {bag} --map {target}")
    return EXIT_OK


def describe(found: Suggestion) -> list[str]:
    """What was found, for people."""
    lines = ["Topics that are read:"]
    lines += [f"  {part:9} {printable(topic)}" for part, topic in found.given.items()] or ["  none"]
    if found.unused:
        lines.append("Topics that are left unused:")
        lines += [f"  {printable(topic)}  {printable(what)}" for topic, what in found.unused.items()]
    lines.append(f"Motion features: {'yes' if found.motion else 'no'}")
    lines.append(f"Clauses that can be judged: {len(found.active)}")
    lines += [f"  {clause}: {what}" for clause, what in found.active.items()]
    if found.inactive:
        lines.append(f"Clauses that this bag cannot feed: {len(found.inactive)}")
        lines += [f"  {clause}: {why}" for clause, why in found.inactive.items()]
    if found.hints:
        lines.append("What to look at:")
        lines += [f"  - {printable(hint)}" for hint in found.hints]
    return lines
