"""Make the development environment: .venv, the locked packages, the ROS messages and the `osma` commands.

Run by `make setup` with the Python that the environment is to have. Uses the standard library alone. Each step leaves
a stamp when it is done, so a second run does nothing and a run after an interruption redoes what was cut off.
It must load in an older Python too, to be able to say that it is too old.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
MESSAGE_PREFIX = BUILD / "ros_prefix"
MISSING_TOOL = 3
SUPPORTED = ((3, 11), (3, 12))


class SetupError(Exception):
    """What is missing and how to get it, in one line."""


def main() -> int:
    """Run the set-up and return the process's exit code."""
    parser = argparse.ArgumentParser(description="Make the development environment.")
    parser.add_argument("--exact", action="store_true", help="replace an environment of another Python version")
    arguments = parser.parse_args()
    try:
        check_tools()
        BUILD.mkdir(exist_ok=True)
        with (BUILD / "setup.lock").open("w") as lock:
            wait_for(lock)
            make_venv(arguments.exact)
            install_packages()
            build_messages()
            install_project()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return MISSING_TOOL
    except KeyboardInterrupt:
        print("setup: interrupted; `make setup` continues where it stopped", file=sys.stderr)
        return 130
    return 0


def check_tools() -> None:
    """Raise SetupError when this Python cannot be used or a tool of the build is missing."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if sys.version_info[:2] not in SUPPORTED:
        raise SetupError(
            f"there are no ROS wheels for Python {version}; get 3.11 or 3.12 (apt-get install python3.12 "
            "python3.12-venv python3.12-dev) and run: make setup PYTHON=python3.12"
        )
    missing = []
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        missing.append(f"python{version}-venv")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(f"python{version}-dev")
    if not shutil.which("cmake"):
        missing.append("cmake")
    if not shutil.which(os.environ.get("CXX", "c++")):
        missing.append("g++")
    if not shutil.which("make"):
        missing.append("make")
    if missing:
        packages = " ".join(missing)
        raise SetupError(f"missing: {', '.join(missing)}; get what is missing with: apt-get install {packages}")


def wait_for(lock: IO[str]) -> None:
    """Take the lock that keeps two set-ups of one tree apart."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("setup: another set-up of this tree is running, waiting for it", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def make_venv(exact: bool) -> None:
    """Create .venv, or empty it when it is unfinished, broken, moved or of a Python that is not wanted."""
    stamp = VENV / ".created"
    finished = read(stamp) == str(VENV) and not (VENV / ".installing").exists()
    if finished and installed_version() in ((sys.version_info[:2],) if exact else SUPPORTED):
        return
    step(f"making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}")
    run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    stamp.write_text(str(VENV))


def installed_version() -> tuple[int, ...]:
    """Return the version of the environment's Python, empty where it does not start."""
    probe = [python(), "-S", "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        output = subprocess.run(probe, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(map(int, output.split()))


def install_packages() -> None:
    """Install the lock file of the environment's Python version."""
    lock = lock_file()
    stamp = VENV / ".packages"
    wanted = digest([lock])
    if read(stamp) == wanted:
        return
    step(f"installing {lock.relative_to(ROOT)} (1 to 3 minutes the first time)")
    # A pip that was killed can leave packages half installed, which no later pip notices: see make_venv.
    interrupted = VENV / ".installing"
    interrupted.touch()
    run([python(), "-m", "pip", "install", "--no-input", "-r", str(lock)], log=BUILD / "packages.log")
    stamp.write_text(wanted)
    interrupted.unlink()


def build_messages() -> None:
    """Generate the ROS messages into a prefix of their own, whole or not at all."""
    sources = [ROOT / "CMakeLists.txt", ROOT / "package.xml", ROOT / "scripts/executable.in"]
    sources += sorted((ROOT / "msg").glob("*.msg")) + sorted((ROOT / "srv").glob("*.srv"))
    # what ROS itself has is never built, or it would hide the real package
    missing = [p.parent for p in sorted((ROOT / "interfaces").glob("*/package.xml")) if not in_wheels(p.parent.name)]
    sources += [file for package in missing for file in sorted(package.rglob("*")) if file.is_file()]
    import tomllib  # not in the Pythons that check_tools() turns away

    executables = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    generators = [pin for pin in lock_file().read_text().splitlines() if pin.startswith(("ros-", "empy", "numpy"))]
    wanted = f"{digest(sources)} {venv_version()} {executables} {generators}"
    stamp = MESSAGE_PREFIX / ".built"
    if read(stamp) == wanted:
        return
    step("building the ROS messages (about 20 s)")
    fresh, old = BUILD / "ros_prefix.new", BUILD / "ros_prefix.old"
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COLCON_PREFIX_PATH")},
        "AMENT_PREFIX_PATH": str(VENV),
        "CMAKE_PREFIX_PATH": str(VENV),
        "VIRTUAL_ENV": str(VENV),
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    for package in (ROOT, *missing):
        build_package(package, fresh, environment)
    # Edits of configuration and launch files need no rebuild: the prefix points at the source tree.
    for name in ("config", "launch"):
        folder = fresh / "share" / "osma_monitor" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.symlink_to(ROOT / name)
    (fresh / ".built").write_text(wanted)
    if MESSAGE_PREFIX.exists():
        MESSAGE_PREFIX.rename(old)
    fresh.rename(MESSAGE_PREFIX)
    shutil.rmtree(old, ignore_errors=True)


def build_package(source: Path, prefix: Path, environment: dict[str, str]) -> None:
    """Generate one package's messages and install them into the prefix."""
    work = BUILD / "ros_build"
    shutil.rmtree(work, ignore_errors=True)
    name = "ros" if source == ROOT else source.name
    configure = ["cmake", "-S", str(source), "-B", str(work), f"-DCMAKE_INSTALL_PREFIX={prefix}"]
    configure += [f"-DPython3_EXECUTABLE={python()}", "-DCMAKE_BUILD_TYPE=Release"]
    if source == ROOT:
        configure += [f"-DNODE_INTERPRETER={python()}", "-DINSTALL_PYTHON=OFF", "-DBUILD_TESTING=OFF"]
    run(configure, log=BUILD / f"{name}_configure.log", env=environment)
    install = ["cmake", "--build", str(work), "--target", "install", "-j2"]
    run(install, log=BUILD / f"{name}_build.log", env=environment)
    shutil.rmtree(work, ignore_errors=True)


def in_wheels(package: str) -> bool:
    """Say whether the environment's own ROS has a package."""
    return (VENV / "share" / package / "package.xml").is_file()


def install_project() -> None:
    """Put the source tree, the message prefix and the commands into the environment."""
    stamp = VENV / ".project"
    hook = ROOT / "scripts/environment_hook.py"
    wanted = digest([ROOT / "pyproject.toml", ROOT / "setup.py", hook, Path(__file__)]) + str(ROOT)
    if read(stamp) == wanted:
        return
    step("installing the commands")
    site_packages = VENV / "lib" / f"python{venv_version()}" / "site-packages"
    shutil.copyfile(hook, site_packages / "_osma_environment.py")
    # Named so that it sorts before ros_wheels_bootstrapper.pth: site reads .pth files in the order of their names.
    (site_packages / "_osma_environment.pth").write_text(
        f"import _osma_environment; _osma_environment.activate({str(ROOT)!r}, {str(MESSAGE_PREFIX)!r})\n"
    )
    run(
        [python(), "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
        log=BUILD / "install.log",
    )
    stamp.write_text(wanted)
    step("ready: .venv/bin/osma")


def python() -> str:
    """Return the environment's Python."""
    return str(VENV / "bin" / "python")


def lock_file() -> Path:
    """Return the lock file of the environment's Python."""
    return ROOT / "requirements" / f"lock-{venv_version()}.txt"


def venv_version() -> str:
    """Return the version of the environment's Python, such as 3.11."""
    for line in (VENV / "pyvenv.cfg").read_text().splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return ".".join(value.strip().split(".")[:2])
    raise SetupError(f"{VENV / 'pyvenv.cfg'} names no version: make distclean, then make setup")


def digest(files: Iterable[Path]) -> str:
    """Return a hash over the names and contents of files."""
    result = hashlib.sha256()
    for file in files:
        result.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return result.hexdigest()


def read(stamp: Path) -> str:
    """Return a stamp's text, empty where there is none."""
    return stamp.read_text() if stamp.exists() else ""


def step(text: str) -> None:
    """Print what begins now."""
    print(f"setup: {text}", flush=True)


def run(command: list[str], log: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command; with a log its output goes there and the last lines are shown when it fails."""
    started = time.monotonic()
    if log is None:
        code = subprocess.run(command, cwd=ROOT, env=env).returncode
    else:
        with log.open("w") as output:
            code = subprocess.run(command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT).returncode
    if code:
        if log is not None:
            print("\n".join(log.read_text(errors="replace").splitlines()[-25:]), file=sys.stderr)
        where = f"; the whole output is in {log.relative_to(ROOT)}" if log else ""
        raise SetupError(f"{Path(command[0]).name} failed after {time.monotonic() - started:.0f} s{where}")


if __name__ == "__main__":
    sys.exit(main())
