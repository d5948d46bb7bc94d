"""`osma monitor`: the view says what the messages say, with names made harmless; the verb starts and ends the node."""

from __future__ import annotations

import io
import math
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from osma_monitor.cli.live_view import LiveView, margin_bar, number, printable
from osma_monitor.cli.main import main


def clauses(**changes: object) -> SimpleNamespace:
    fields = {
        "header": SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0)),
        "episode_id": "e1",
        "clause": ["force", "tilt", "speed"],
        "inactive_reason": ["", "", "needs the tag held_target"],
        "threshold": [200.0, 15.0, 1.0],
        "unit": ["N", "deg", "m/s"],
        "scored": [True, False, True],
    }
    return SimpleNamespace(**{**fields, **changes})


def status(**changes: object) -> SimpleNamespace:
    fields = {
        "rho": [-50.0, math.nan],
        "rho_episode": [-120.0, math.inf],
        "status": [1, 2],
        "status_episode": [1, 0],
        "first_violation": [2_500_000_000, -1],
    }
    return SimpleNamespace(**{**fields, **changes})


def state(value: int, reasons: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(state=value, latched=2, reasons=reasons, latched_reasons=reasons)


def shown(view: LiveView) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(view.render())
    return console.export_text()


def test_the_view_shows_state_clauses_and_episodes() -> None:
    view = LiveView()
    assert "no episode runs" in shown(view)
    assert view.on_state(state(2, ("force",))) == ["state VIOLATED: force"]
    assert view.on_state(state(2, ("force",))) == []
    assert view.on_clauses(clauses()) == ["episode e1: 2 clauses active, 1 switched off"]
    view.on_status(status())
    text = shown(view)
    row = next(line for line in text.splitlines() if line.startswith("force"))
    assert "−50 N" in row and "−120 N" in row and "violated" in row and "1.50 s" in row
    assert "tilt (report only)" in text and "speed" not in text
    summary = SimpleNamespace(
        episode_id="e1",
        safety=1,
        outcome=1,
        violated=["force"],
        depth=0.6,
        complete=False,
        stored=False,
        error="disk full",
    )
    lines = view.on_summary(summary)
    assert lines == ["episode e1: success, unsafe, broke force (depth 0.60), incomplete, NOT STORED: disk full"]
    assert view.on_summary(summary) == [] and view.unsafe_episodes == 1
    assert "e1: success, unsafe" in shown(view)


def test_violations_are_counted_once_and_only_scored_ones() -> None:
    view = LiveView()
    for event, scored in ((1, True), (2, True), (1, False)):
        view.on_violation(SimpleNamespace(event=event, scored=scored, message="force violated"))
    assert view.violations == 1


def test_names_from_messages_cannot_steer_the_terminal() -> None:
    view = LiveView()
    evil = "\x1b[2J[bold red]\x07\n" + "x" * 500
    view.on_clauses(clauses(clause=[evil, evil, evil], episode_id=evil, unit=[evil] * 3))
    view.on_status(status())
    view.on_state(state(1, (evil,)))
    text = shown(view)
    assert "\x1b" not in text and "\x07" not in text and "[bold red]" in text
    assert len(printable(evil)) == 120 and printable(evil).endswith("…")


def test_numbers_and_bars() -> None:
    assert (number(math.nan), number(math.inf), number(-0.5, "m"), number(3.0, "1")) == ("–", "∞", "−0.5 m", "3")
    assert (
        margin_bar(200.0, 200.0) == "█" * 20
        and margin_bar(-5.0, 200.0) == "·" * 20
        and "?" in margin_bar(math.nan, 1.0)
    )


def test_a_parameter_file_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--params", "none.yaml"]) == 2
    assert "none.yaml: no such parameter file" in capsys.readouterr().err


@pytest.mark.ros
def test_the_verb_shows_the_node_and_ends_on_interrupt(tmp_path: Path, ros_domain: int) -> None:
    command = [sys.executable, "-u", "-m", "osma_monitor.cli.main", "monitor", "--log", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith(f"waiting for a robot or simulator in ROS domain {ros_domain}")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0, child.stderr.read()


@pytest.mark.ros
def test_what_is_wrong_with_the_node_is_one_line(tmp_path: Path, ros_domain: int) -> None:
    command = [sys.executable, "-m", "osma_monitor.cli.main", "monitor", "--robot", "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "no robot file 'nosuch'" in done.stderr
