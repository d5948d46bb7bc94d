"""The part of the build that pyproject.toml cannot say: ROS messages, nodes, launch files and configuration.

Without ROS the result is a pure Python wheel with config/, launch/ and msg/ under share/osma_monitor. Where ament
is found (the prefixes of AMENT_PREFIX_PATH first, then this environment, a prefix through the ROS wheels) the wheel
also holds what CMakeLists.txt installs, so that it equals a colcon installation. OSMA_WITHOUT_ROS=1 leaves ROS out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PYTHON_FOLDER = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def ament_prefixes() -> list[Path]:
    """Return the prefixes to build the messages with, empty where there is no ROS."""
    if os.environ.get("OSMA_WITHOUT_ROS"):
        return []
    named = [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
    prefixes = [*named, Path(sys.prefix)]
    return prefixes if any((prefix / "share/rosidl_default_generators").is_dir() for prefix in prefixes) else []


def run_cmake(prefixes: list[Path], build: Path, stage: Path) -> None:
    """Build and install CMakeLists.txt into `stage`, its hand-written Python left out."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["AMENT_PREFIX_PATH"] = environment["CMAKE_PREFIX_PATH"] = os.pathsep.join(map(str, prefixes))
    # pip hides the installed packages behind a PYTHONPATH of its own; the generators need those of the prefixes.
    folders = [prefix / PYTHON_FOLDER for prefix in prefixes if prefix != Path(sys.prefix)]
    environment["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in folders if folder.is_dir())
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DCMAKE_INSTALL_PREFIX={stage}"]
    configure += [f"-DPython3_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DINSTALL_PYTHON=OFF", "-DBUILD_TESTING=OFF"]
    install = ["cmake", "--build", str(build), "--target", "install", "-j2"]
    for command in (configure, install):
        try:
            subprocess.run(command, check=True, env=environment)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(
                f"osma_monitor: the ROS messages could not be built ({error}). Get the tools with: apt-get install "
                "cmake g++ make; or install without ROS: OSMA_WITHOUT_ROS=1 pip install ."
            )


def data_files(folder: Path, destination: Path) -> dict[str, list[str]]:
    """Return the files of a folder as setuptools' data files, by the folder that they are installed in."""
    result: dict[str, list[str]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        target = destination / file.parent.relative_to(folder)
        result.setdefault(str(target), []).append(str(file.relative_to(ROOT)))
    return result


class BuildWithMessages(build_py):
    """Adds the generated messages to the package and everything else to the data files."""

    def run(self) -> None:
        """Build the packages; an editable installation is left to `make setup`, which has a prefix for messages."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        share = Path("share/osma_monitor")
        # bags are read without ROS by the message definitions, so these belong to every installation
        files = {k: v for name in ("config", "launch", "msg") for k, v in data_files(ROOT / name, share / name).items()}
        prefixes = ament_prefixes()
        if prefixes:
            stage = ROOT / "build" / "wheel_stage"
            shutil.rmtree(stage, ignore_errors=True)
            run_cmake(prefixes, ROOT / "build" / "wheel_cmake", stage)
            self.take_generated_python(stage / PYTHON_FOLDER)
            for name in (path.name for path in (stage / "lib/osma_monitor").iterdir()):
                # pip writes bin/<node> for the Python it installs into; what ROS looks for points there.
                script = f'#!/bin/sh\nexec "$(dirname "$0")/../../bin/{name}" "$@"\n'
                (stage / "lib/osma_monitor" / name).write_text(script)
            files = {
                name: value
                for top in ("include", "lib", "share")
                for name, value in data_files(stage / top, Path(top)).items()
            }
        self.distribution.data_files = sorted(files.items())

    def take_generated_python(self, site_packages: Path) -> None:
        """Move the generated modules beside the hand-written ones, whose `__init__.py` stays."""
        generated = site_packages / "osma_monitor"
        for file in (path for path in generated.rglob("*") if path.suffix in (".py", ".so")):
            target = Path(self.build_lib, "osma_monitor", file.relative_to(generated))
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
        shutil.rmtree(site_packages)


class MaybeBinary(Distribution):
    """A distribution whose wheel is for one platform where it holds messages."""

    def has_ext_modules(self) -> bool:
        """Say whether the wheel holds compiled code."""
        return bool(ament_prefixes())


setup(cmdclass={"build_py": BuildWithMessages}, distclass=MaybeBinary)
