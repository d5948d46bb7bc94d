"""Errors that a person can act on, and the exit codes that scripts can.

| code | meaning |
|------|---------|
| 0 | done, nothing found |
| 1 | done, with findings: a violation where none was allowed, a check that failed |
| 2 | the input or the command line was wrong |
| 3 | the environment lacks something: a tool, an optional package, ROS |
| 130 | interrupted (Ctrl-C) |
"""

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """Something that the user can put right; the command line shows its message in place of a traceback.

    The message names the file, line and value, what was expected, and the next step.
    """

    exit_code = EXIT_BAD_INPUT


class MissingDependencyError(UserError):
    """Something is missing from the environment; the message says how to get it."""

    exit_code = EXIT_ENVIRONMENT
