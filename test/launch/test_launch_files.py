"""Launch files without launch: what they name exists, and what they start runs when started by hand."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "launch").glob("*.launch.py"))


def test_the_three_are_there():
    assert [f.name for f in FILES] == ["arm.launch.py", "replay.launch.py", "sim.launch.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_executables_parameter_files_and_modules_exist(file):
    text = file.read_text()
    tree = ast.parse(text)
    executables = set(re.findall(r'executable="(\w+)"', text)) | set(re.findall(r'\bnode\("(\w+)"', text))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert executables and executables <= set(scripts)
    for name in re.findall(r'config_path\("([^"]+)"\)', text):
        assert (ROOT / "config" / name).is_file()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("osma_monitor", "sim_bridge")):
            __import__(node.module, fromlist=["x"])
    assert any(isinstance(n, ast.FunctionDef) and n.name == "generate_launch_description" for n in tree.body)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_the_documentation_says_how_to_start_it(file):
    assert f"ros2 launch osma_monitor {file.name}" in ast.get_docstring(ast.parse(file.read_text()))


@pytest.mark.ros
def test_the_job_of_sim_launch_by_hand(ros_domain, tmp_path):
    """The same nodes with the same parameter file and namespace, the same end: exit code 0 and a stored episode."""
    pytest.importorskip("mujoco")
    from osma_monitor.cli import nodes
    from osma_monitor.io.store import read_episodes

    def start(executable, **parameters):
        found = shutil.which(executable, path=str(Path(sys.executable).parent))
        command = [found] if found else [sys.executable, "-m", nodes.MODULES[executable]]
        arguments = ["--ros-args", "-r", "__ns:=/policy_cautious", "-r", "/clock:=clock"]
        arguments += ["--params-file", str(ROOT / "config" / "sim.params.yaml")]
        for name, value in parameters.items():
            arguments += ["-p", f"{name}:={value}"]
        return subprocess.Popen([*command, *arguments])

    monitor = start("safety_monitor", episode_log=tmp_path / "run")
    policy = start("policy", policy="cautious")
    bridge = start("mujoco_bridge", policy="cautious", tasks="[kitchen/layout0/A/vase]")
    try:
        assert bridge.wait(60) == 0
        for process in (policy, monitor):
            process.terminate()
            assert process.wait(20) == 0
    finally:
        for process in (monitor, policy, bridge):
            if process.poll() is None:
                process.kill()
    [record] = read_episodes(tmp_path / "run")
    assert record.info.task == "kitchen/layout0/A/vase" and not record.partial
