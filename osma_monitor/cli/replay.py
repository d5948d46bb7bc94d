"""`osma replay`: publishes a bag through the live node, and checks its records against direct scoring."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Mapping as Map
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
import yaml

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, UserError
from osma_monitor.core.signals.raw import same
from osma_monitor.core.text import printable
from osma_monitor.io.bag.frames import BagFrames
from osma_monitor.io.bag.mapping import Mapping, load_mapping, plan, with_extensions
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.bag.source import INPUTS, bag_name, score_bag
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes

if TYPE_CHECKING:
    from osma_monitor.io.bag.replayer import Replayer


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("replay")(replay)


def replay(
    bag: Annotated[Path, typer.Argument(help="A rosbag2 folder, .mcap, .db3 or ROS 1 .bag.")],
    mapping: Annotated[Path | None, typer.Option("--map", help="Mapping file (osma map BAG).")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder for the monitor's episode log.")] = None,
    rate: Annotated[float, typer.Option(help="Recorded seconds a second at most; 0: lock-step.")] = 0.0,
    join: Annotated[bool, typer.Option("--join", help="Use the safety_monitor that runs in this ROS domain.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare the records with those of `osma score`.")] = False,
) -> int:
    """Publish a bag through the live node, in lock-step or at a rate.

    Starts a safety_monitor of its own, unless --join. A monitor that does not keep up slows the rate: no frame is
    lost. Exit code 1 when --check finds a record that differs; it names episode and field.
    """
    if join and (out is not None or check):
        raise UserError("--join leaves the log to the running monitor: leave out --out and --check")
    given = load_mapping(mapping) if mapping is not None else Mapping()
    folder = out or Path("runs") / f"replay-{bag_name(bag)}-{time.strftime('%Y%m%d-%H%M%S')}"
    with ExitStack() as stack:
        recording = stack.enter_context(Recording(bag))
        found = plan(recording.topics, given, str(bag), all_topics=recording.all_topics)
        if not join:
            stack.enter_context(_monitor(folder, given.extensions))
        frames = BagFrames(recording, found, bag_name(bag), _told)
        code = _run(frames, recording, bag_name(bag), rate)
        losses = [*recording.losses, *frames.facts.lines(harmless=False)]
    print(f"inputs: {INPUTS[frames.facts.mode]}")
    for line in losses:
        print(f"osma: {bag}: {line}", file=sys.stderr)
    if join:
        return code or (EXIT_BAD_INPUT if losses else EXIT_OK)
    print(f"episodes: {folder}")
    if check and not _equal(bag, given, folder):
        return EXIT_FINDINGS
    return code or (EXIT_BAD_INPUT if losses else EXIT_OK)


def _told(fraction: float, seconds: float) -> None:
    share = "" if fraction != fraction else f" ({100 * fraction:.0f} %)"
    print(
        f"\r{seconds:.0f} s of the recording{share}", end="\n" if fraction == 1.0 else "", file=sys.stderr, flush=True
    )


def _run(frames: BagFrames, recording: Recording, name: str, rate: float) -> int:
    from osma_monitor.io.bag.replayer import NAME, Replayer
    from osma_monitor.ros.runtime import run_application

    rule_based = frames.plan.events is None and frames.facts.mode != "frame"
    source = {"bag": name} if rule_based else {}
    made: list[Replayer] = []

    def provenance() -> dict[str, str]:
        return frames.facts.source or source

    def make(arguments: list[str]) -> Replayer:
        made.append(Replayer(frames.steps(), provenance, rate, _say, losses=lambda: recording.losses))
        return made[0]

    code: int = run_application(NAME, make, [])
    if made and made[0].missing_answers:
        print(f"osma: the monitor sent no summary of {made[0].missing_answers} episodes", file=sys.stderr)
        return code or EXIT_BAD_INPUT
    return code


def _say(episode: str, summary: Any) -> None:
    verdict = ("safe", "unsafe", "unknown")[summary.safety] if summary is not None else "no answer"
    print(f"{printable(episode)}: {verdict}")


@contextmanager
def _monitor(folder: Path, extensions: tuple[str, ...]) -> Iterator[None]:
    """A safety_monitor in a ROS domain of its own, which this process joins."""
    from osma_monitor.ros.domain import domain_environment, reserve_domain

    with reserve_domain() as domain, tempfile.TemporaryDirectory(prefix="osma_replay_") as scratch:
        os.environ.update(domain_environment(domain))
        parameters = Path(scratch) / "monitor.yaml"
        values: dict[str, Any] = {"episode_log": str(folder.resolve())}
        if extensions:
            values["extensions"] = list(extensions)
        parameters.write_text(yaml.safe_dump({"safety_monitor": {"ros__parameters": values}}))
        command = [
            sys.executable,
            "-m",
            "osma_monitor.ros.safety_monitor",
            "--ros-args",
            "--params-file",
            str(parameters),
        ]
        log = Path(scratch) / "monitor.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            yield
        finally:
            died = process.poll()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if died not in (None, 0):
                print(f"osma: safety_monitor ended with code {died}: {_last_line(log)}", file=sys.stderr)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _plain(record: EpisodeRecord) -> EpisodeRecord:
    """A record without what may differ between equal runs."""
    return replace(record, provenance=replace(record.provenance, session={}))


def _equal(bag: Path, mapping: Mapping, folder: Path) -> bool:
    """Whether the node's records are those of direct scoring, to the last bit; says where they differ first."""
    stored = {r.info.episode_id: _plain(r) for r in read_episodes(folder)}
    count = equal = 0
    for record in score_bag(bag, with_extensions(monitor_config(), mapping), mapping):
        count += 1
        name, other = record.info.episode_id, stored.pop(record.info.episode_id, None)
        found = "the node stored no record of it" if other is None else difference(other, _plain(record))
        equal += not found
        if found:
            print(f"osma: {printable(name)}: not as `osma score` has it: {printable(found)}", file=sys.stderr)
    for name in stored:
        print(f"osma: {printable(name)}: the node stored it, `osma score` has no such episode", file=sys.stderr)
    print(f"{equal} of {count} records equal those of `osma score`, to the last bit")
    return equal == count and not stored


def difference(node: Any, scored: Any) -> str:
    """The first field in which the node's record differs from the scored one, with both values; empty when equal."""
    found = _first_difference(node, scored, "")
    if found is None:
        return ""
    where, a, b = found
    return f"{where} is {_short(a)}, expected {_short(b)}"


def _first_difference(a: Any, b: Any, where: str) -> tuple[str, Any, Any] | None:
    if same(a, b):
        return None
    parts: list[tuple[str, Any, Any]] = []
    if type(a) is type(b) and is_dataclass(a):
        parts = [(f"{where}.{f.name}".lstrip("."), getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    elif isinstance(a, Map) and isinstance(b, Map) and a.keys() == b.keys():
        parts = [(f"{where}[{key}]", a[key], b[key]) for key in a]
    elif isinstance(a, (tuple, list, np.ndarray)) and isinstance(b, (tuple, list, np.ndarray)):
        if len(a) != len(b):
            return f"number of {where}", len(a), len(b)
        parts = [(f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    found = (_first_difference(x, y, name) for name, x, y in parts)
    return next((item for item in found if item is not None), (where, a, b))


def _short(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 80 else text[:79] + "…"
