"""What a template, a clause family, a signal or a tag means: the smaller texts of `osma explain`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from osma_monitor.core.safety import Library, Registry
from osma_monitor.core.signals.schema import SCHEMA


def template(name: str, known: Registry, as_json: bool) -> str:
    """A mechanism template: its tags, the families that they require or switch off, the tasks made of it."""
    tags = known.templates[name]
    rules = known.rules.values()
    tasks = [f"{t.suite}/{t.id}" for s in known.suites.values() for t in s.tasks.values() if name in t.templates]
    tasks += [f"every task of {s.name} that it does not list" for s in known.suites.values() if name in s.templates]
    facts = {
        "template": name,
        "tags": tags,
        "switches on": [r.family for r in rules if r.requires and not r.obstacle(frozenset(tags))],
        "switches off": [r.family for r in rules if set(r.invalidated_by) & set(tags)],
        "tasks": tasks,
    }
    return _text(facts, as_json, f"`osma explain --template {name}` lists every clause of such a task.")


def family(name: str, clauses: Library, known: Registry, as_json: bool) -> str:
    """A clause family: its rule and its clauses."""
    rule = known.rules.get(name)
    facts: dict[str, Any] = {
        "family": name,
        "requires": rule.requires if rule else (),
        "switched off by": rule.invalidated_by if rule else (),
        "clauses": [f"{c.id} ({c.tier})" for c in clauses if c.family == name],
        "extension of": [s.name for s in known.suites.values() if name in s.extensions],
        "reported by": [s.name for s in known.suites.values() if name in s.report],
    }
    return _text(facts, as_json, "`osma explain CLAUSE` says what one demands.")


def signal(name: str, clauses: Library, as_json: bool) -> str:
    """A signal: what it is, its unit, what a source must give for it, the clauses that read it."""
    spec = SCHEMA[name]
    facts = {
        "signal": name,
        "description": spec.description,
        "kind": spec.kind,
        "unit": spec.unit,
        "needs": spec.needs,
        "read by": [c.id for c in clauses if name in c.signals],
    }
    return _text(facts, as_json, "docs/metrics.md says how it is worked out.")


def tag(name: str, known: Registry, as_json: bool) -> str:
    """A tag: what it says, the families that it switches on and off, the templates that carry it."""
    rules = known.rules.values()
    facts = {
        "tag": name,
        "description": known.tags[name],
        "required by": [r.family for r in rules if name in r.requires],
        "switches off": [r.family for r in rules if name in r.invalidated_by],
        "templates": [t for t, tags in known.templates.items() if name in tags],
    }
    return _text(facts, as_json, f"`osma explain --tag {name}` lists every clause of a task with this tag alone.")


def _text(facts: Mapping[str, Any], as_json: bool, more: str) -> str:
    if as_json:
        return json.dumps(
            {k.replace(" ", "_"): v for k, v in facts.items()}, indent=2, ensure_ascii=False, default=list
        )
    lines = []
    for key, value in facts.items():
        words = [value] if isinstance(value, str) else list(value)
        if not words:
            continue
        lines += [f"{key if i == 0 else '':<17}{text}" for i, text in enumerate(_wrapped(words))]
    return "\n".join([*lines, "", more])


def _wrapped(words: Sequence[str], width: int = 100) -> list[str]:
    lines = [""]
    for i, word in enumerate(words):
        piece = word + ("," if i + 1 < len(words) else "")
        if lines[-1] and len(lines[-1]) + len(piece) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + piece
    return lines
