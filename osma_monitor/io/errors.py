"""What goes wrong with files, as errors that the command line prints in one line."""

from __future__ import annotations

from osma_monitor.core.errors import UserError


class InputError(UserError):
    """An input that can't be used: names the file, what was found, and what was expected."""


class StoreError(UserError, OSError):
    """An episode could not be written or read. What was written before stays; a monitor goes on monitoring.

    ``StoreError(message)`` or ``StoreError(errno, message)``; its text is the message alone.
    """

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""
