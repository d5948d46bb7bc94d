"""Outcomes that a human corrected, beside the originals: who, when and why. The episode's own file is never changed.

``corrections.jsonl`` in the folder of the episodes: one JSON object a line, only ever appended; the last line of an
episode counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from osma_monitor.core.episode import EpisodeRecord, Outcome, OutcomeStatus
from osma_monitor.io import codec
from osma_monitor.io.errors import StoreError

FILE = "corrections.jsonl"


@dataclass(frozen=True, slots=True)
class Correction:
    """One corrected outcome. ``file`` is the stem of the episode's file: ids may repeat between runs."""

    file: str
    episode_id: str
    original: OutcomeStatus
    status: OutcomeStatus
    who: str
    when: str  #: ISO 8601, UTC
    why: str


def correct_outcome(
    file: Path | str, record: EpisodeRecord, status: OutcomeStatus, who: str, why: str, when: datetime | None = None
) -> Correction:
    """Stores a correction of ``record``, whose file is ``file``.

    Raises StoreError, and ValueError without ``who`` or ``why``.
    """
    if not who.strip() or not why.strip():
        raise ValueError("a correction says who made it and why")
    if status not in ("success", "failure", "aborted", "unknown"):
        raise ValueError(f"{status!r} is no outcome; expected success, failure, aborted or unknown")
    file = Path(file)
    stamp = (when or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
    correction = Correction(file.stem, record.info.episode_id, record.outcome.status, status, who, stamp, why)
    append(file.parent, [correction])
    return correction


def append(folder: Path, new: Iterable[Correction]) -> None:
    """Adds lines to the folder's file."""
    path = folder / FILE
    try:
        with open(path, "a", encoding="utf-8") as out:
            out.writelines(json.dumps(asdict(c)) + "\n" for c in new)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise StoreError(error.errno, f"{path}: {error.strerror}; the correction is not stored") from error


def read(folder: Path) -> dict[str, Correction]:
    """File stem -> its last correction. Raises StoreError naming the line that can't be read."""
    path = folder / FILE
    try:
        status = path.stat()
    except OSError:
        return {}
    return _parsed(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _parsed(path: Path, _modified: int, _size: int) -> dict[str, Correction]:
    result = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            correction = codec.loads(Correction, line)
        except ValueError as error:
            raise StoreError(f"{path}:{number}: no correction: {error}") from error
        result[correction.file] = correction
    return result


def apply(record: EpisodeRecord, file: Path) -> EpisodeRecord:
    """``record`` with the outcome that a human gave it, if one did, and a note that says so."""
    return corrected(record, read(file.parent).get(file.stem))


def corrected(record: EpisodeRecord, correction: Correction | None) -> EpisodeRecord:
    """``record`` after ``correction``."""
    if correction is None:
        return record
    note = f"outcome corrected from {record.outcome.status} by {correction.who} at {correction.when}: {correction.why}"
    outcome = Outcome(correction.status, record.outcome.reason, record.outcome.steps)
    return replace(record, outcome=outcome, notes=(*record.notes, note))
