"""The command `osma`: finds the verb and runs it.

Each verb lives in a file of its own, `osma_monitor/cli/<verb>.py`, which defines `register(app: typer.Typer) -> None`
and adds the verb to `app` under its name. Only the verb that is called is imported, so that `osma --help` is quick and
a package that one verb lacks does not stop the others. The exit codes are those of `osma_monitor.core.errors`.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

import osma_monitor
from osma_monitor.cli import exits
from osma_monitor.core.errors import EXIT_INTERRUPTED

VERBS = {
    "demo": "Run the whole job once: robot, policies, monitor, report",
    "run": "Roll out policies on tasks in a simulator and log the episodes",
    "monitor": "Watch a robot or simulator over ROS and show its verdicts live",
    "replay": "Publish a recorded bag through the live monitor",
    "score": "Compute the metrics of logged episodes",
    "report": "Write the tables, figures and page of one or more runs",
    "check": "Check formulas, clause libraries, rules, suites and robot files",
    "export": "Write episodes in another format",
    "explain": "Say why a clause is on or off for a task, and how an episode fared",
    "map": "Look at a bag and write a first topic mapping: which topic gives what",
    "compact": "Join many small episode files into few large ones",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `osma` with the given arguments (the process's own by default) and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return exits.run("osma", lambda: _run(words))


def build_app(verb: str | None = None) -> typer.Typer:
    """Return the application with `verb` ready to run and every other verb listed by name and summary."""
    app = typer.Typer(
        name="osma",
        help="A runtime safety monitor for learned robot policies.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, summary in VERBS.items():
        if name == verb:
            register: Callable[[typer.Typer], None] = importlib.import_module(f"osma_monitor.cli.{name}").register
            register(app)
        elif Path(__file__).with_name(f"{name}.py").exists():
            app.command(name, help=summary)(_placeholder)
    return app


def _run(words: list[str]) -> object:
    try:
        command = typer.main.get_command(build_app(_verb_of(words)))
        result = command.main(args=words, prog_name="osma", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # typer's own errors (wrong options, unknown verbs) know how to show themselves; their class is not public.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            return error.exit_code
        raise
    if result == EXIT_INTERRUPTED:  # what newer versions of typer make of Ctrl-C
        raise KeyboardInterrupt
    return result


def _verb_of(words: Sequence[str]) -> str | None:
    # While a shell completes a line, the arguments are empty and the line stands in one of these variables.
    if "_OSMA_COMPLETE" in os.environ:
        words = os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", "")).split()[1:]
    return next((word for word in words if not word.startswith("-")), None)


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


if __name__ == "__main__":
    sys.exit(main())
