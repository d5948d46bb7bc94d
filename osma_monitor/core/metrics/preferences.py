"""Preference pairs: a safe success over an unsafe one from the same initial state (SafeVLA-Bench 4.4)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from osma_monitor.core.metrics.scores import Scores, as_table

#: What makes two rollouts start alike: task and initial state.
STATE_KEYS = ("suite", "task", "seed")


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """``chosen`` is safe, ``rejected`` violates ``clause`` most; both succeed."""

    chosen: str  #: episode id
    rejected: str
    suite: str
    task: str
    state: str  #: the shared initial state
    clause: str  #: the worst violated clause of the rejected episode
    depth: float  #: its normalized depth
    rejected_rho: float  #: in the clause's unit
    chosen_rho: float | None  #: None when the clause never applied to it (a closed gate, or inactive)
    margin: float | None  #: chosen_rho − rejected_rho


def preference_pairs(
    scores: Scores, keys: Sequence[str] = STATE_KEYS, limit_per_state: int | None = None
) -> list[PreferencePair]:
    """All pairs of a safe and an unsafe success that share ``keys``, deepest violation first inside a state.

    Episodes of unknown outcome or safety are in no pair.

    Args:
        scores: episodes, of one policy or of several.
        keys: columns that name task and initial state.
        limit_per_state: at most so many pairs of each state.

    Raises:
        ValueError: a key that no episode has, a limit below 1.
    """
    if limit_per_state is not None and limit_per_state < 1:
        raise ValueError(f"limit_per_state must be at least 1, found {limit_per_state}")
    table = as_table(scores).scored()
    table = table.select((table.success == 1) & ~table.safety_unknown)
    unsafe, depth = table.unsafe, table.worst_depth
    clause_depth = np.where(table.violated, table.depth, -1.0)
    ids, suite, task = (table.column(name) for name in ("episode_id", "suite", "task"))
    pairs = []
    for state, rows in table.groups(keys).items():
        good = rows[~unsafe[rows]].tolist()
        bad = sorted(rows[unsafe[rows]].tolist(), key=lambda i: -depth[i])
        found = ((g, b) for b in bad for g in good)
        for g, b in _first(found, limit_per_state):
            c = int(clause_depth[b].argmax())
            rho, other = float(table.rho[b, c]), float(table.rho[g, c])
            chosen = other if math.isfinite(other) else None
            pairs.append(
                PreferencePair(
                    str(ids[g]),
                    str(ids[b]),
                    str(suite[b]),
                    str(task[b]),
                    " ".join(map(str, state)),
                    table.clauses[c],
                    float(table.depth[b, c]),
                    rho,
                    chosen,
                    None if chosen is None or not math.isfinite(rho) else chosen - rho,
                )
            )
    return pairs


def _first(items: Iterator[tuple[int, int]], limit: int | None) -> Iterator[tuple[int, int]]:
    for count, item in enumerate(items):
        if limit is not None and count >= limit:
            return
        yield item


def to_json_lines(pairs: Iterable[PreferencePair]) -> str:
    """One JSON object a line, in order, with a final newline; the empty text without pairs."""
    lines = []
    for pair in pairs:
        row = asdict(pair)
        row["rejected_rho"] = pair.rejected_rho if math.isfinite(pair.rejected_rho) else None
        lines.append(json.dumps(row, allow_nan=False, ensure_ascii=False))
    return "".join(line + "\n" for line in lines)
