"""How `osma` starts and ends: verbs are imported one at a time, errors are one line and an exit code."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from osma_monitor.cli import exits, nodes
from osma_monitor.cli import main as osma
from osma_monitor.core.errors import MissingDependencyError, UserError

EXISTING = [verb for verb in osma.VERBS if Path(osma.__file__).with_name(f"{verb}.py").exists()]


def fake_verb(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    """Put `action` in the place of the verb `score`."""
    module = ModuleType("osma_monitor.cli.score")
    module.register = lambda app: app.command("score")(action)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "osma_monitor.cli.score", module)


def raising(error: BaseException) -> object:
    def action() -> None:
        raise error

    return action


def test_every_promised_verb_exists() -> None:
    assert set(EXISTING) >= {"demo", "run", "monitor", "replay", "score", "report", "check", "export"}


@pytest.mark.parametrize("verb", EXISTING)
def test_every_verb_shows_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert osma.main([verb, "--help"]) == 0
    assert "Usage: osma" in capsys.readouterr().out


def test_help_lists_the_verbs_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    code = f"""
import sys
from osma_monitor.cli.main import main
assert main(["--help"]) == 0
heavy = {{"numpy", "scipy", "pandas", "pyarrow", "matplotlib", "rclpy", "mujoco"}} & set(sys.modules)
verbs = [verb for verb in {EXISTING!r} if "osma_monitor.cli." + verb in sys.modules]
assert not heavy and not verbs, (heavy, verbs)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for verb in EXISTING:
        assert f" {verb} " in result.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert osma.main(["--version"]) == 0
    assert capsys.readouterr().out == f"osma {importlib.import_module('osma_monitor').__version__}\n"


def test_unknown_verb_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert osma.main(["nonsense"]) == 2
    assert "No such command 'nonsense'" in capsys.readouterr().err


def test_unknown_option_is_bad_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_verb(monkeypatch, lambda: None)
    assert osma.main(["score", "--no-such-option"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UserError("run.yaml line 3: tau is -1, expected > 0"), 2, "osma: run.yaml line 3: tau is -1, expected > 0\n"),
        (UserError("two\nlines"), 2, "osma: two lines\n"),
        (UserError("episode \x1b[2Jµ: unknown"), 2, "osma: episode ?[2Jµ: unknown\n"),
        (MissingDependencyError("no compiler"), 3, "osma: no compiler\n"),
        (KeyboardInterrupt(), 130, "osma: interrupted\n"),
        (typer.Abort(), 130, "osma: interrupted\n"),
        (typer.Exit(1), 1, ""),
        (ModuleNotFoundError("No module named 'duckdb'", name="duckdb"), 3, "pip install 'osma-monitor[report]'"),
        (ModuleNotFoundError("No module named 'rclpy'", name="rclpy"), 3, "source a ROS 2 Jazzy workspace"),
        (ModuleNotFoundError("No module named 'osma_monitor.msg'", name="osma_monitor.msg"), 3, "make setup"),
        (ImportError("libx.so: cannot open shared object file", name="_x"), 3, "source a ROS 2 Jazzy workspace"),
        (ModuleNotFoundError("No module named 'numpie'", name="numpie"), 3, "pip install numpie"),
        (FileNotFoundError(2, "No such file or directory", "runs/x"), 2, "osma: runs/x: No such file or directory\n"),
        (BrokenPipeError(), 0, ""),
        (ZeroDivisionError("division by zero"), 70, "internal error: ZeroDivisionError"),
        (ModuleNotFoundError("No module named 'osma_monitor.io.x'", name="osma_monitor.io.x"), 70, "internal error"),
    ],
)
def test_errors_become_one_line_and_a_code(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OSMA_DEBUG", raising=False)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    fake_verb(monkeypatch, raising(error))
    assert osma.main(["score"]) == code
    shown = capfd.readouterr().err
    assert text in shown
    assert shown.count("\n") == (1 if text else 0)
    assert "Traceback" not in shown


def test_a_verb_may_return_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_verb(monkeypatch, lambda: 1)
    assert osma.main(["score"]) == 1


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSMA_DEBUG", "1")
    fake_verb(monkeypatch, raising(ZeroDivisionError("division by zero")))
    with pytest.raises(ZeroDivisionError):
        osma.main(["score"])


def test_a_broken_verb_does_not_break_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "osma_monitor.cli.replay", None)
    fake_verb(monkeypatch, lambda: None)
    assert osma.main(["score"]) == 0
    assert osma.main(["replay"]) != 0
    assert capsys.readouterr().err.startswith("osma: ")


def test_output_into_a_closed_pipe_ends_quietly() -> None:
    code = """
import os, sys
from osma_monitor.cli import exits
def action():
    for _ in range(100_000):
        print("a line of a long table")
sys.exit(exits.run("osma", action))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() == 0
    assert errors == b""


def test_a_node_without_ros_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["safety_monitor"])
    monkeypatch.setitem(sys.modules, "rclpy", None)
    for module in [name for name in sys.modules if name.startswith("osma_monitor.ros.")]:
        monkeypatch.delitem(sys.modules, module)
    assert nodes.safety_monitor() == 3
    shown = capsys.readouterr().err
    assert shown.startswith("safety_monitor: ROS 2")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("name", sorted(nodes.MODULES))
def test_every_node_shows_its_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    assert getattr(nodes, name)() == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def test_messages_are_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.fail("osma", "[red]x[/red] \x1b", 2) == 2
    assert capsys.readouterr().err.startswith("osma: [red]x[/red]")
