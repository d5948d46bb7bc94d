"""Which engine runs a library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from osma_monitor.core.errors import UserError
from osma_monitor.core.stl.online import Library
from osma_monitor.core.stl.rtamt_backend import RtamtLibrary
from osma_monitor.core.stl.syntax import Formula

BACKENDS: Final = ("native", "rtamt")


def make_library(
    formulas: Sequence[Formula | str] | Formula | str,
    gate_signals: Iterable[str] = (),
    signals: Iterable[str] | None = None,
    backend: str = "native",
    period_ns: int | None = None,
) -> Library | RtamtLibrary:
    """A library of clauses run by a backend.

    Args:
        formulas: the clauses, or one.
        gate_signals: names whose comparisons are Boolean.
        signals: names that samples may hold; a clause that reads another is refused.
        backend: ``'native'``, or ``'rtamt'`` for the official library where it can mean the same.
        period_ns: sampling period, which rtamt needs for windows; the native engine takes windows as time.

    Raises:
        UserError: an unknown backend, or a clause that the backend refuses (the message says why).
    """
    if backend == "native":
        return Library(formulas, gate_signals=gate_signals, signals=signals)
    if backend == "rtamt":
        return RtamtLibrary(formulas, gate_signals=gate_signals, signals=signals, period_ns=period_ns)
    raise UserError(f"unknown STL backend {backend!r}: choose one of {', '.join(BACKENDS)}")
