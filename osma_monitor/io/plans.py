"""What a run was to carry out: the plan in ``run.json``, and in the index of a data set that was made from runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from osma_monitor.core.metrics.navigation_episode import PlannedTask
from osma_monitor.io import dataset
from osma_monitor.io.store import RUN_FILE

_WORDS = ("tasks", "policies")


def planned(path: Path | str) -> tuple[PlannedTask, ...]:
    """Every task with every seed under every policy of the plans of a run folder or data set, each once.

    Empty where there is no plan, and for one that can't be read: scoring goes on without it and says so.
    """
    found = dict.fromkeys(
        PlannedTask(policy, task, seed)
        for plan in plans(path)
        for policy in plan["policies"]
        for task in plan["tasks"]
        for seed in plan["seeds"]
    )
    return tuple(found)


def plans(path: Path | str) -> list[dict[str, Any]]:
    """The plans as they were written: tasks, policies, seeds."""
    path = Path(path)
    try:
        if dataset.is_dataset(path):
            found: Iterable[Any] = json.loads((path / dataset.INDEX_FILE).read_text(encoding="utf-8")).get("plans", [])
        else:
            found = [json.loads((path / RUN_FILE).read_text(encoding="utf-8")).get("plan")]
        return [_checked(plan) for plan in found if plan is not None]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _checked(plan: Any) -> dict[str, Any]:
    return {name: [str(word) for word in plan[name]] for name in _WORDS} | {
        "seeds": [int(seed) for seed in plan["seeds"]]
    }
