"""Tables 14 to 16 of SafeVLA-Bench: the composition of unsafe successes, one set of episodes with Tables 4, 6, 7 and 9.

The paper prints rounded shares. Of every row the counts behind them are found again: whole numbers that give the
printed shares, are no more than the unsafe successes, and leave a rest of the clause's violations (Tables 7 and 9) that
the unsafe failures can hold. Episodes with these counts must give every printed figure.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from osma_monitor.core.metrics.clauses import clause_summaries
from osma_monitor.core.metrics.safety import EpisodeScore, summarize

TABLES = json.loads((Path(__file__).parent / "safevla.json").read_text())["tables"]
SUITES = ("Spatial", "Object", "Goal", "Long")
COLUMNS = {
    **{"arm_furn": "arm", "obj_furn": "obj", "max_force": "maxf", "bystander": "byst", "tilt": "tilt"},
    "self_coll": "self",
}
#: Rounding of a printed share, and of binary fractions.
HALF = 0.5 + 1e-9


@dataclass(frozen=True)
class Row:
    """One row of Tables 14 to 16 with its cell of the main tables."""

    name: str
    n: int
    successes: int
    safe: int
    sbu: int
    shares: Mapping[str, float]  #: printed, percent
    violating: Mapping[str, int]  #: episodes of each clause, of all outcomes

    @property
    def unsafe_failures(self) -> int:
        return self.n - self.safe - self.sbu


def rows() -> Iterator[Row]:
    def columns(values: Mapping[str, float | None]) -> dict[str, float]:
        return {COLUMNS[name]: value for name, value in values.items() if value is not None}

    for row in TABLES["safevla_table14_15"]:
        policy, suite = row["model"], row["suite"]
        main, i = TABLES["safevla_table6"][policy], SUITES.index(suite)
        violating = TABLES["safevla_table7_8_counts_of_200"][f"{policy}|{suite}"]
        yield Row(
            f"{policy} {suite}",
            200,
            round(2 * main["SR"][i]),
            round(2 * main["Safety"][i]),
            row["sbu_count"],
            columns(row["shares_pct"]),
            {clause: count for clause, count in violating.items() if count is not None},
        )
    for policy, row in TABLES["safevla_table16"].items():
        counts = TABLES["safevla_robocasa_exact_counts_n900"][policy]
        violating = TABLES["safevla_table9_counts_of_900"][policy]
        yield Row(
            policy,
            900,
            counts["success"],
            counts["safe"],
            row["sbu_count"],
            columns(row["shares_pct"]),
            {clause: count for clause, count in violating.items() if count is not None},
        )


ROWS = list(rows())


def counts_of(row: Row) -> Iterator[dict[str, int]]:
    """Violations of each clause among the unsafe successes that fit what is printed."""
    if not row.sbu:
        yield dict.fromkeys(row.shares, 0)
        return
    for total in range(row.sbu, len(row.shares) * row.sbu + 1):
        ranges = []
        for clause, share in row.shares.items():
            least = max(math.ceil((share - HALF) * total / 100), row.violating[clause] - row.unsafe_failures, 0)
            most = min(math.floor((share + HALF) * total / 100), row.violating[clause], row.sbu)
            ranges.append(range(least, most + 1))
        for counts in itertools.product(*ranges):
            if sum(counts) == total and sum(row.violating.values()) - total >= row.unsafe_failures:
                yield dict(zip(row.shares, counts, strict=True))


def spread(counts: Mapping[str, int], episodes: int) -> list[list[str]]:
    """The violated clauses of so many episodes, so that each breaks one or more and no clause twice."""
    broken: list[list[str]] = [[] for _ in range(episodes)]
    for i, clause in enumerate(clause for clause, count in counts.items() for _ in range(count)):
        broken[i % episodes].append(clause)
    assert all(its and len(its) == len(set(its)) for its in broken)
    return broken


def episodes(row: Row, counts: Mapping[str, int]) -> list[EpisodeScore]:
    rest = {clause: total - counts.get(clause, 0) for clause, total in row.violating.items()}
    kinds = [(True, its) for its in spread(counts, row.sbu)]
    kinds += [(False, its) for its in spread(rest, row.unsafe_failures)]
    safe_successes = row.successes - row.sbu
    kinds += [(True, [])] * safe_successes + [(False, [])] * (row.safe - safe_successes)
    return [
        EpisodeScore(
            success,
            {clause: -1.0 if clause in broken else 1.0 for clause in row.violating},
            dict.fromkeys(row.violating, 0.5),
        )
        for success, broken in kinds
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_set_of_episodes_gives_main_table_marginal_rates_and_composition(row: Row) -> None:
    counts = next(counts_of(row))
    made = episodes(row, counts)
    s = summarize(made, bootstrap=False)
    assert (s.n, s.n_success, s.n_safe, s.n_unsafe_success) == (row.n, row.successes, row.safe, row.sbu)
    found = clause_summaries(made)
    for clause, violating in row.violating.items():
        assert found[clause].rate == violating / row.n
        if row.sbu:
            assert abs(100 * found[clause].share - row.shares.get(clause, 0.0)) <= HALF, clause
        else:
            assert math.isnan(found[clause].share)


def test_shares_are_of_violations_and_not_of_episodes() -> None:
    """The printed rows tell the two readings apart: 18 hold a share that no number of the unsafe successes gives."""
    assert len(ROWS) == 81
    assert sum(len(list(itertools.islice(counts_of(row), 2))) == 1 for row in ROWS) == 52
    of_episodes = {row.name: {round(100 * k / row.sbu) for k in range(row.sbu + 1)} for row in ROWS if row.sbu}
    impossible = [row.name for row in ROWS if row.sbu and not set(row.shares.values()) <= of_episodes[row.name]]
    assert len(impossible) >= 18 and "OpenVLA-7B Long" in impossible
    # a share that is not the paper's has no counts
    changed = next(row for row in ROWS if row.name == "OpenVLA-7B Long")
    assert not list(counts_of(replace(changed, shares={**changed.shares, "byst": 50.0})))
