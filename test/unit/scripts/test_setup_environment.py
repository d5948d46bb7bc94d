"""What `make setup` does the first time, the second time, after an interruption and where a tool is missing."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]


def load(name: str) -> ModuleType:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Give the script a tree of its own and stand in for the commands that it runs."""
    script = load("setup_environment")
    for name in ("msg", "scripts", "requirements", "config", "launch"):
        (tmp_path / name).mkdir()
    (tmp_path / "msg/A.msg").write_text("int32 a\n")
    for name in ("CMakeLists.txt", "package.xml", "setup.py", "scripts/executable.in", "scripts/environment_hook.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nosma = "a:b"\n')
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / f"requirements/lock-{version}.txt").write_text("numpy==1\n")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(script, "BUILD", tmp_path / "build")
    monkeypatch.setattr(script, "MESSAGE_PREFIX", tmp_path / "build/ros_prefix")
    monkeypatch.setattr(script, "check_tools", lambda: None)
    monkeypatch.setattr(sys, "argv", ["setup_environment.py"])
    done: list[str] = []
    failing: set[str] = set()

    def run(command: list[str], log: Path | None = None, env: dict[str, str] | None = None) -> None:
        step = (
            "venv"
            if "venv" in command
            else "project"
            if "-e" in command
            else "packages"
            if "-r" in command
            else "cmake"
        )
        if step in failing:
            raise KeyboardInterrupt
        done.append(step)
        if step == "venv":
            shutil.rmtree(tmp_path / ".venv", ignore_errors=True)
            (tmp_path / ".venv/bin").mkdir(parents=True)
            (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
            (tmp_path / f".venv/lib/python{version}/site-packages").mkdir(parents=True)
            (tmp_path / ".venv/pyvenv.cfg").write_text(f"home = x\nversion = {version}.1\n")
        if "install" in command and step == "cmake":
            (tmp_path / "build/ros_prefix.new/share/osma_monitor").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(script, "run", run)
    return SimpleNamespace(script=script, root=tmp_path, done=done, failing=failing, version=version)


FIRST_RUN = ["venv", "packages", "cmake", "cmake", "project"]


def test_second_run_does_nothing(tree: SimpleNamespace) -> None:
    assert tree.script.main() == 0
    assert tree.done == FIRST_RUN
    tree.done.clear()
    assert tree.script.main() == 0
    assert tree.done == []


@pytest.mark.parametrize("step", ["venv", "packages", "cmake", "project"])
def test_a_run_that_was_cut_off_is_completed(
    tree: SimpleNamespace, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.failing.add(step)
    assert tree.script.main() == 130
    assert "interrupted" in capsys.readouterr().err
    tree.failing.clear()
    assert tree.script.main() == 0
    # pip that was cut off may leave packages half installed: then everything is made anew.
    assert (
        tree.done
        == {
            "venv": FIRST_RUN,
            "packages": ["venv", *FIRST_RUN],
            "cmake": FIRST_RUN,
            "project": FIRST_RUN,
        }[step]
    )


@pytest.mark.parametrize(
    ("changed", "redone"),
    [
        ("msg/A.msg", ["cmake", "cmake"]),
        ("msg/B.msg", ["cmake", "cmake"]),
        ("CMakeLists.txt", ["cmake", "cmake"]),
        ("lock: rich==1", ["packages"]),
        ("lock: empy==3.4", ["packages", "cmake", "cmake"]),
        ("scripts/environment_hook.py", ["project"]),
        ("launch/a.launch.py", []),
    ],
)
def test_a_change_redoes_what_depends_on_it(tree: SimpleNamespace, changed: str, redone: list[str]) -> None:
    assert tree.script.main() == 0
    tree.done.clear()
    name, _, text = changed.partition(": ")
    if name == "lock":
        name, text = f"requirements/lock-{tree.version}.txt", f"numpy==1\n{text}"
    (tree.root / name).write_text(f"{text}\n")
    assert tree.script.main() == 0
    assert tree.done == redone


def test_a_message_package_that_ros_lacks_is_built_and_one_that_it_has_is_not(tree: SimpleNamespace) -> None:
    (tree.root / "interfaces/tf2_msgs").mkdir(parents=True)
    (tree.root / "interfaces/tf2_msgs/package.xml").write_text("<package/>")
    assert tree.script.main() == 0
    assert tree.done == [*FIRST_RUN[:2], "cmake", "cmake", "cmake", "cmake", "project"]
    tree.done.clear()
    (tree.root / ".venv/share/tf2_msgs").mkdir(parents=True)
    (tree.root / ".venv/share/tf2_msgs/package.xml").write_text("<package/>")
    assert tree.script.main() == 0
    assert tree.done == ["cmake", "cmake"]  # ours alone: the real one must not be hidden
    tree.done.clear()
    assert tree.script.main() == 0
    assert tree.done == []


def test_broken_or_moved_environment_is_made_anew(tree: SimpleNamespace) -> None:
    assert tree.script.main() == 0
    for spoil in (
        lambda: (tree.root / ".venv/bin/python").unlink(),
        lambda: (tree.root / ".venv/.created").write_text("/elsewhere/.venv"),
    ):
        tree.done.clear()
        spoil()
        assert tree.script.main() == 0
        assert tree.done == ["venv", "packages", "project"]


def test_configuration_of_the_prefix_is_the_source_tree(tree: SimpleNamespace) -> None:
    assert tree.script.main() == 0
    for name in ("config", "launch"):
        link = tree.root / "build/ros_prefix/share/osma_monitor" / name
        assert link.resolve() == tree.root / name


@pytest.mark.parametrize(("tool", "package"), [("cmake", "cmake"), ("c++", "g++"), ("make", "make")])
def test_missing_tool_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tool: str, package: str
) -> None:
    script = load("setup_environment")
    monkeypatch.setattr(sys, "argv", ["setup_environment.py"])
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(script.shutil, "which", lambda name: None if name == tool else f"/usr/bin/{name}")
    monkeypatch.setattr(script, "SUPPORTED", (sys.version_info[:2],))
    monkeypatch.setattr(script.sysconfig, "get_path", lambda _: str(ROOT))
    monkeypatch.setattr(script.Path, "exists", lambda _: True)
    assert script.main() == 3
    shown = capsys.readouterr().err
    assert re.fullmatch(rf"setup: .*{re.escape(package)}.*apt-get install {re.escape(package)}\n", shown)


def test_python_without_wheels_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = load("setup_environment")
    monkeypatch.setattr(sys, "argv", ["setup_environment.py"])
    monkeypatch.setattr(script, "SUPPORTED", ((3, 9),))
    assert script.main() == 3
    shown = capsys.readouterr().err
    assert shown.startswith(f"setup: there are no ROS wheels for Python {sys.version_info[0]}.{sys.version_info[1]};")
    assert shown.count("\n") == 1


def test_failed_command_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load("setup_environment")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    log = tmp_path / "build.log"
    with pytest.raises(script.SetupError, match=r"sh failed after .*build\.log"):
        script.run(["sh", "-c", "echo the cause >&2; exit 4"], log=log)
    assert "the cause" in capsys.readouterr().err


def test_search_paths_begin_with_ours_and_keep_the_rest() -> None:
    hook = load("environment_hook")
    assert hook.front(["a", "b"], "c::b:d") == os.pathsep.join("abcd")
    assert hook.front(["a"], "") == "a"


@pytest.mark.ros
@pytest.mark.parametrize("inherited", ["", "/of/another/environment"])
def test_environment_is_complete_whatever_is_inherited(inherited: str, tmp_path: Path) -> None:
    # The guard variable of the wheels' own hook comes from a parent process of another environment.
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1"}
    environment |= {"LD_LIBRARY_PATH": inherited, "AMENT_PREFIX_PATH": inherited}
    code = (
        "import rclpy, osma_monitor.msg as m; from rclpy.type_support import check_for_type_support as c; c(m.RawFrame)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)


def test_packages_that_stand_in_for_ros_are_hidden_from_colcon() -> None:
    """Where ROS 2 is installed its own packages count; ours must never lie over them."""
    stand_ins = [path.parent for path in (ROOT / "interfaces").glob("*/package.xml")]
    assert [path.name for path in stand_ins] == ["tf2_msgs"]
    assert all((path / "COLCON_IGNORE").exists() for path in stand_ins)


def test_a_version_managers_stub_is_said_in_the_set_ups_own_words(tmp_path: Path) -> None:
    stub = tmp_path / "python3.13"
    stub.write_text("#!/bin/sh\nexit 127\n")
    stub.chmod(0o755)
    for python in (str(stub), "no_such_python"):
        command = ["make", "--no-print-directory", "setup", f"PYTHON={python}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"setup: {python} does not start" in done.stderr and "make setup PYTHON=python3.12" in done.stderr
        assert "Error 3" in done.stderr and not done.stdout
