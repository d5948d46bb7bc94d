"""The direction of imports: cli -> report, ros, io, sim_bridge -> core, and core knows only numbers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

importlinter = pytest.importorskip("importlinter.cli", reason="import-linter is a development tool")

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "osma_monitor" / "core").rglob("*.py"))


def test_contracts_of_pyproject_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    result = importlinter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert result == importlinter.EXIT_STATUS_SUCCESS, capsys.readouterr().out


@pytest.mark.parametrize("path", CORE, ids=[str(path.relative_to(ROOT)) for path in CORE])
def test_core_reads_no_file_no_clock_no_environment(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    imported |= {(n.module or "").partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not imported & {
        "time",
        "datetime",
        "os",
        "pathlib",
        "io",
        "socket",
        "subprocess",
        "random",
        "pickle",
    }
    # These run source that they made of node numbers, operators and floats, or of a number of clauses, never of text
    # from outside.
    allowed = {"exec"} if path.name in ("codegen.py", "packing.py") else set()
    assert called & {"open", "print", "eval", "exec", "input"} <= allowed


def test_core_and_the_command_load_without_ros_or_simulator() -> None:
    code = """
import importlib.abc, pkgutil, sys

class Absent(importlib.abc.MetaPathFinder):
    names = {"rclpy", "mujoco", "torch", "std_msgs", "nav_msgs", "fastapi", "duckdb", "polars", "dask", "h5py", "rtamt"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import osma_monitor.core, osma_monitor.cli.main, osma_monitor.io
for package in (osma_monitor.core, osma_monitor.io):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "osma_monitor.io.bag.replayer":  # publishes a bag on ROS topics; only `osma replay` loads it
            __import__(module.name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
