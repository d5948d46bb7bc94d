"""`osma monitor`: the view says what the messages say, with names made harmless; the verb starts and ends the node."""

from __future__ import annotations

import contextlib
import io
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import IO

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


def summary(**changes: object) -> SimpleNamespace:
    fields = {
        "episode_id": "e1",
        "safety": 0,
        "outcome": 1,
        "violated": [],
        "depth": 0.0,
        "complete": True,
        "stored": True,
        "error": "",
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
    done = summary(safety=1, violated=["force"], depth=0.6, complete=False, stored=False, error="disk full")
    assert view.runs
    lines = view.on_summary(done)
    assert not view.runs
    assert lines == ["episode e1: success, unsafe, broke force (depth 0.60), incomplete, NOT STORED: disk full"]
    assert view.on_summary(done) == [] and view.unsafe_episodes == 1
    assert "e1: success, unsafe" in shown(view)


def violation(event: int, scored: bool, clause: str = "force") -> SimpleNamespace:
    return SimpleNamespace(event=event, scored=scored, clause=clause, message=f"{clause} violated")


def test_violations_are_counted_once_and_only_scored_ones() -> None:
    view = LiveView()
    for event, scored in ((1, True), (2, True), (1, False)):
        view.on_violation(violation(event, scored))
    assert view.violations == 1


def test_report_only_clauses_are_said_once_and_then_counted() -> None:
    view = LiveView()
    assert view.on_violation(violation(1, True)) == ["force violated"]
    (line,) = view.on_violation(violation(1, False, "jerk"))
    assert "report only" in line
    later = [view.on_violation(violation(event, False, "jerk")) for event in (2, 1, 2, 1, 2)]
    assert later == [[]] * 5
    done = summary()
    assert view.on_summary(done)[1] == "report only in this episode: jerk violated 3 times"
    assert len(view.on_summary(summary(episode_id="e2"))) == 1


def diagnostics(node: str = "safety_monitor", **concerns: dict[str, str]) -> SimpleNamespace:
    status = [
        SimpleNamespace(
            name=f"{node}: {name.replace('_', ' ')}",
            hardware_id=node,
            values=[SimpleNamespace(key=key, value=value) for key, value in values.items()],
        )
        for name, values in concerns.items()
    ]
    return SimpleNamespace(status=status)


NOBODY = {
    "joint_states (joints)": "0 publishers, 0 messages, last never",
    "objects (objects)": "1 publishers, 0 messages, last never",
}


def test_what_is_waited_for_is_named_after_some_seconds() -> None:
    view = LiveView()
    said = [
        line
        for _ in range(6)
        for line in view.on_diagnostics(diagnostics(inputs=NOBODY, frames={"frames": "0"}), "safety_monitor")
    ]
    assert said == ["waiting: nobody publishes joint_states; no message yet on objects"]
    assert said[0] in shown(view)
    (line,) = view.on_diagnostics(diagnostics(inputs=NOBODY, frames={"frames": "7"}), "safety_monitor")
    assert "no episode has begun" in line
    view.on_clauses(clauses())
    assert view.on_diagnostics(diagnostics(inputs=NOBODY), "safety_monitor") == []
    assert LiveView().on_diagnostics(diagnostics(inputs=NOBODY), "other/safety_monitor") == []


def test_what_is_not_known_is_named_with_its_topic() -> None:
    view = LiveView()
    view.on_clauses(clauses())
    view.on_state(state(0))
    view.on_state(state(3, ("non_target_max_disp_5mm",)))
    told = [
        view.on_diagnostics(diagnostics(inputs=NOBODY, verdict={"joints absent": f"{n} frames"}), "safety_monitor")
        for n in (20, 40, 40)
    ]
    cause = "not known: joints absent (topic joint_states: no publisher)"
    assert told == [[f"{cause}; so UNKNOWN: non_target_max_disp_5mm"], [], []]
    assert cause in shown(view)
    view.on_state(state(0))
    assert cause not in shown(view)


def test_the_folder_of_the_episodes_is_named() -> None:
    view = LiveView()
    message = diagnostics(inputs={}, episode_log={"folder": "/runs/arm"})
    assert view.on_diagnostics(message, "safety_monitor") == ["episodes: /runs/arm"]
    assert view.on_diagnostics(message, "safety_monitor") == [] and "episodes: /runs/arm" in shown(view)
    view.on_diagnostics(diagnostics(inputs={}, episode_log={"folder": "none"}), "safety_monitor")
    assert view.where() == "episodes: not logged"


def test_warnings_of_the_node_are_shown_and_violations_not_twice() -> None:
    view = LiveView()
    assert view.on_log("WARN", "a disk\x1b is full") == ["warn: a disk? is full"]
    assert view.on_log("WARN", "force violated: it is 9 N") == []
    assert view.on_log("WARN", "force satisfied again after 1 s") == []
    assert "a disk? is full" in shown(view)


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_shows_the_node_and_ends_with_it_when_told(tmp_path: Path, ros_domain: int, number: int) -> None:
    command = [sys.executable, "-u", "-m", "osma_monitor.cli.main", "monitor", "--log", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith(f"waiting for a robot or simulator in ROS domain {ros_domain}")
        child.send_signal(number)
        assert child.wait(60) == 0, child.stderr.read()


DRIVER = """
import sys, time, rclpy
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import JointState
from osma_monitor.ros.conversions import header
rclpy.init()
node = rclpy.create_node("driver")
joints, pose = (node.create_publisher(k, t, 10) for k, t in ((JointState, "joint_states"), (PoseStamped, "ee_pose")))
names = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
while sys.stdin.read(1):  # a byte a frame
    now = time.time_ns()
    joints.publish(JointState(header=header(now), name=names, position=[0.0] * 6, velocity=[0.0] * 6))
    placed = PoseStamped(header=header(now, "base_link"))
    placed.pose.orientation.w = 1.0
    pose.publish(placed)
"""


@pytest.mark.ros
def test_who_watches_an_arm_learns_what_is_missing_and_how_the_last_episode_ended(
    tmp_path: Path, ros_domain: int
) -> None:
    command = [sys.executable, "-u", "-m", "osma_monitor.cli.main", "monitor", "--robot", "so101"]
    command += ["--log", str(tmp_path / "log"), "--template", "pnp_basic"]
    with (
        subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, text=True) as driver,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child,
    ):
        assert driver.stdin is not None and child.stdout is not None and child.stderr is not None
        over = threading.Event()
        feeder = threading.Thread(target=feed, args=(driver.stdin, over))
        feeder.start()
        lines = []
        for line in child.stdout:
            lines.append(line.strip())
            if line.startswith("not known"):
                child.send_signal(signal.SIGINT)
                break
        lines += [line.strip() for line in child.stdout]
        code = child.wait(60)
        over.set()
        feeder.join()
        driver.stdin.close()
    assert code == 0
    where = f"episodes: {tmp_path / 'log'}"
    assert lines.count(where) == 2 and lines[-1] == where, lines
    assert any(line.startswith("warn: switched off for want of inputs") for line in lines), lines
    missing = next(line for line in lines if line.startswith("not known"))
    assert "topic objects: no publisher" in missing
    (end,) = [line for line in lines if line.endswith("incomplete")]
    assert end.startswith("episode episode-") and list((tmp_path / "log").glob("*.parquet"))


def feed(stream: IO[str], over: threading.Event) -> None:
    """Lets the driver go on until it is over."""
    with contextlib.suppress(BrokenPipeError):
        while not over.wait(0.03):
            stream.write("x")
            stream.flush()


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f"
    file.touch()
    assert main(["monitor", "--robot", "so101", "--log", str(file)]) == 2
    assert "that is a file" in capsys.readouterr().err
    assert main(["monitor", "--robot", "so101", "--log", str(file / "below")]) == 2
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.ros
@pytest.mark.parametrize(
    ("options", "words"),
    [(["--robot", "nosuch"], "no robot file 'nosuch'"), (["--template", "navigat"], "did you mean navigate")],
)
def test_what_is_wrong_with_the_node_is_one_line(
    tmp_path: Path, ros_domain: int, options: list[str], words: str
) -> None:
    command = [sys.executable, "-m", "osma_monitor.cli.main", "monitor", "--log", "", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr
    assert words not in done.stdout, "said once"
