"""Tables of rollout selection from logs of decisions (OSMA-Bench G.1, Tables 22 and 24)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from osma_monitor.core.metrics.candidates import Decision, Quartiles, summarize_diversity, summarize_selection
from osma_monitor.report.table import Basis, Column, Table, based, frame

Logs = Mapping[str, Sequence[Decision]]  #: name of a log -> its decisions


def diversity(logs: Logs) -> Table:
    """How different the candidates of a decision are: quartiles over decisions, in m."""
    rows = []
    for name, decisions in logs.items():
        s = summarize_diversity(decisions)
        row: dict[str, object] = {"log": name, "decisions": s.n, "n_mixed": s.n_mixed}
        row |= {"opposite": s.opposite_near, "n_near": s.n_near}
        for key in ("mean_distance", "max_distance", "endpoint_spread", "mixed_mean_distance"):
            row |= _quartiles(key, getattr(s, key))
        rows.append(row)
    columns = (
        Column("log", "log"),
        Column("decisions", "decisions", "count"),
        Column("mean_distance", "mean distance m", "number", 3, interval=True),
        Column("max_distance", "max distance m", "number", 3, interval=True),
        Column("endpoint_spread", "endpoint spread m", "number", 3, interval=True),
        Column("n_mixed", "mixed", "count", help="some candidates touch the obstacle, some do not"),
        Column("mixed_mean_distance", "mean distance m, mixed", "number", 3, interval=True),
        Column("n_near", "near", "count", help="within 0.5 m of the obstacle"),
        Column("opposite", "both sides, near", "percent"),
    )
    notes = ("Medians with the 25th and 75th percentile over decisions.",)
    return Table("candidates", "Diversity of candidates", columns, frame(rows, columns), notes, keys=1)


def choices(logs: Logs) -> Table:
    """How the choices went: contact rates, collision-free choice against a uniform one, validity."""
    rows = []
    for name, decisions in logs.items():
        s = summarize_selection(decisions)
        touching = [sum(map(bool, d.contact)) / len(d.contact) for d in decisions]
        rows.append(
            {
                "log": name,
                "decisions": s.n,
                "n_valid": s.n_valid,
                "contact_rate": _mean([float(d.contact[d.executed]) for d in decisions]),
                "candidate_contact": _mean(touching),
                "same_outcome": s.same_outcome,
                "all_contact": s.all_contact,
                "n_mixed": s.n_mixed,
                "collision_free": s.collision_free,
                "uniform": s.uniform,
                "advantage": s.advantage,
                "advantage_low": s.advantage_interval[0],
                "advantage_high": s.advantage_interval[1],
                "n_tasks": s.n_tasks,
                "no_escape": f"{s.no_escape[0]} of {s.no_escape[1]}",
            }
        )
    columns = (
        Column("log", "log"),
        Column("decisions", "decisions", "count"),
        Column("n_valid", "valid", "count"),
        Column("contact_rate", "contact, executed", "percent", better=-1),
        Column("candidate_contact", "contact, candidates", "percent"),
        Column("same_outcome", "same outcome", "percent"),
        Column("all_contact", "all touch", "percent"),
        Column("n_mixed", "mixed", "count"),
        Column("collision_free", "free, executed", "percent", better=1),
        Column("uniform", "free, uniform", "percent"),
        Column("n_tasks", "tasks", "count"),
        Column("advantage", "advantage", "percent", better=1, interval=True),
        Column("no_escape", "no free candidate"),
    )
    notes = (
        "Contact is that of a candidate's lookahead. Free: collision-free choices among mixed decisions; the advantage "
        "is averaged in each task, then over tasks. The last column: drives with contact whose first contact decision "
        "held no free candidate.",
    )
    return Table("choices", "Choice among candidates", columns, frame(rows, columns), notes, keys=1)


def positions(logs: Logs) -> Table:
    """How often the verifier chose what stood at each presented position."""
    rows = []
    for name, decisions in logs.items():
        s = summarize_selection(decisions)
        for position, count in enumerate(s.position_counts, 1):
            share = count / s.n_valid if s.n_valid else math.nan
            rows.append({"log": name, "position": position, "chosen": count, "share": share})
    columns = (
        Column("log", "log"),
        Column("position", "position", "count"),
        Column("chosen", "chosen", "count"),
        Column("share", "of valid choices", "percent"),
    )
    return Table("choice_positions", "Choices by presented position", columns, frame(rows, columns), keys=2)


def all_tables(logs: Logs) -> list[Table]:
    """The three tables of these logs. No clause judges a decision."""
    every = [d for decisions in logs.values() for d in decisions]
    invalid = sum(d.chosen is None for d in every)
    nothing = ("not used",)
    basis = Basis(
        n=len(every),
        n_unknown=invalid,
        gate_semantics=nothing,
        library_hash=nothing,
        registry_hash=nothing,
        unit="decisions",
        unknown=f"{invalid} without a valid choice",
    )
    return based((t for t in (diversity(logs), choices(logs), positions(logs)) if not t.empty), basis)


def _quartiles(key: str, values: Quartiles) -> dict[str, float]:
    low, middle, high = values
    return {key: middle, f"{key}_low": low, f"{key}_high": high}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
