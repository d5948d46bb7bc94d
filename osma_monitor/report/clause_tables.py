"""Tables of clauses, outcomes, and policies against each other (SafeVLA-Bench Tables 7, 10, 14, Figure 6, F1, F2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.metrics import clauses, outcomes, rankings, safety, structural
from osma_monitor.core.metrics.paired import PAIR_KEYS, PairedComparison, compare_policies
from osma_monitor.core.metrics.scores import ScoreTable, natural
from osma_monitor.core.metrics.statistics import Each, Interval
from osma_monitor.report.grouping import key_columns, named
from osma_monitor.report.model import OUTCOME_KINDS
from osma_monitor.report.table import Column, Table, frame
from osma_monitor.report.wording import plural

#: Paired comparisons made at most: those with the largest difference in Safety.
PAIRS = 60


def _interval(name: str, bounds: Interval) -> dict[str, float]:
    return {f"{name}_low": bounds[0], f"{name}_high": bounds[1]}


def clause_rates(table: ScoreTable, by: Sequence[str]) -> Table:
    """Every scored clause: marginal rate, rate where it applies, share of unsafe successes, exposure, longest run."""
    rows = []
    for key, found in clauses.clauses_by_group(table, by).items():
        for c in found.values():
            if not c.n_applicable and not c.n_unknown:
                continue
            row = {name: getattr(c, name) for name in c.__slots__ if not name.endswith("interval")}
            row |= _interval("rate", c.rate_interval) | _interval("rate_applicable", c.rate_applicable_interval)
            rows.append({**named(by, key), **row})
    columns = (
        *key_columns(by),
        Column("clause", "clause"),
        Column("n", "n", "count", help="episodes of known safety"),
        Column("n_applicable", "applicable", "count", help="episodes in which it is active and decided"),
        Column("n_unknown", "unknown", "count", help="episodes in which it is active and not decided"),
        Column("n_violated", "broken", "count"),
        Column("rate", "rate", "percent", better=-1, interval=True, help="of all episodes of known safety"),
        Column("rate_applicable", "where it applies", "percent", better=-1, interval=True),
        Column("share", "share of unsafe successes", "percent", help="of all clauses that unsafe successes break"),
        Column("mean_depth", "depth", "number", 3, -1, help="mean over its violations"),
        Column("exposure_median", "exposure", "percent", help="median share of steps in violation"),
        Column("exposure_p90", "exposure p90", "percent"),
        Column("longest_run_median", "longest run", "number", 0, help="median, in steps"),
        Column("first_violation_median", "first step", "number", 0, help="median step of the first violation"),
    )
    said = "Rates are marginal and overlap; an episode that breaks k clauses counts in each. Wilson 95 % intervals."
    return Table("clauses", "Violations by clause", columns, frame(rows, columns), (said,), keys=len(by) + 1)


def reported(table: ScoreTable, by: Sequence[str]) -> Table:
    """Report-only clauses: evaluated, never in Safety, SBU or VSI."""
    rows = []
    for key, chosen in table.groups(by).items():
        for r in clauses.reported_summaries(table.select(chosen)).values():
            row = {name: getattr(r, name) for name in ("clause", "n", "n_unknown", "n_violated", "rate")}
            rows.append({**named(by, key), **row, **_interval("rate", r.interval)})
    columns = (
        *key_columns(by),
        Column("clause", "clause"),
        Column("n", "n", "count"),
        Column("n_unknown", "unknown", "count"),
        Column("n_violated", "broken", "count"),
        Column("rate", "rate", "percent", better=-1, interval=True),
    )
    title = "Report-only clauses (never in Safety, SBU, VSI)"
    return Table("reported", title, columns, frame(rows, columns), keys=len(by) + 1)


def composition(table: ScoreTable, by: Sequence[str]) -> Table:
    """The four classes of success x safety, their contingency, and severity of successes and failures."""
    rows = []
    for key, chosen in table.groups(by).items():
        part = table.select(chosen)
        o, c = outcomes.outcome_composition(part), outcomes.contingency(part)
        severity = outcomes.severity_by_outcome(part, resamples=1)  # only the means are printed
        rows.append(
            {
                **named(by, key),
                **{name: getattr(o, name) for name in o.__slots__},
                "unsafe_given_failure": c.unsafe_given_failure,
                **_interval("unsafe_given_failure", c.unsafe_given_failure_interval),
                "odds_ratio": c.odds_ratio,
                "phi": c.phi,
                "p": c.p,
                "vsi_success": severity["success"].mean,
                "vsi_failure": severity["failure"].mean,
            }
        )
    kinds = tuple(Column(k.replace("-", "_"), text, "percent") for k, text in OUTCOME_KINDS.items() if k != "unknown")
    columns = (
        *key_columns(by),
        Column("n", "n", "count"),
        Column("n_unknown", "unknown", "count", help="success or safety not known"),
        *kinds,
        Column("unsafe_given_failure", "P[U|F]", "percent", interval=True, help="unsafe share of failures"),
        Column("odds_ratio", "odds ratio", "number", 2, help="odds of a violation, failures over successes"),
        Column("phi", "φ", "signed", 2, help="correlation of failure and violation"),
        Column("p", "Fisher p", "p", 3),
        Column("vsi_success", "VSI success", "number", 3, -1),
        Column("vsi_failure", "VSI failure", "number", 3, -1),
    )
    title = "Outcomes: success and safety together"
    return Table("outcomes", title, columns, frame(rows, columns), keys=len(by))


def depth_labels() -> list[str]:
    """The classes of depth in words."""
    edges = outcomes.DEPTH_EDGES
    middle = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    return [f"up to {edges[0]:g}", *middle, "1 (severe)"]


def depth_mix(table: ScoreTable, by: Sequence[str]) -> Table:
    """Unsafe successes by the depth of their worst clause; a row's classes sum to SBU (Figure 3)."""
    rows = []
    labels = depth_labels()
    for key, chosen in table.groups(by).items():
        part = table.select(chosen).scored()
        mix = outcomes.depth_mix(part)
        shares = {f"class_{i}": share for i, share in enumerate(mix.shares)}
        rows.append(
            {**named(by, key), "n": mix.n, "n_unknown": len(part) - mix.n, **shares, "sbu": math.fsum(mix.shares)}
        )
    columns = (
        *key_columns(by),
        Column("n", "n", "count", help="success and safety known"),
        Column("n_unknown", "unknown", "count"),
        *(Column(f"class_{i}", label, "percent") for i, label in enumerate(labels)),
        Column("sbu", "SBU", "percent", better=-1),
    )
    title = "Depth of unsafe successes"
    return Table("depth_mix", title, columns, frame(rows, columns), keys=len(by))


def contact(table: ScoreTable, by: Sequence[str]) -> Table:
    """Safety given any contact, and failures without any: is a policy safe because it does nothing? (A.3)"""
    rows = []
    for key, chosen in table.groups(by).items():
        part = table.select(chosen).scored()
        c = outcomes.contact_summary(part)
        unknown = int(np.count_nonzero(part.safety_unknown))
        row = {"n": len(part) - unknown, "n_unknown": unknown} | {
            name: getattr(c, name) for name in c.__slots__ if not name.endswith("interval")
        }
        row |= _interval("safety_given_contact", c.safety_given_contact_interval)
        rows.append({**named(by, key), **row, **_interval("contact_free_share", c.contact_free_share_interval)})
    columns = (
        *key_columns(by),
        Column("n", "n", "count", help="episodes of known safety"),
        Column("n_unknown", "unknown", "count"),
        Column("n_contact", "with contact", "count"),
        Column("n_contact_unknown", "contact unknown", "count"),
        Column("safety_given_contact", "Safety given contact", "percent", better=1, interval=True),
        Column("change", "change", "signed", 3, help="against Safety over all, as a fraction"),
        Column("n_safe_failure", "safe failures", "count"),
        Column("n_contact_free_failure", "without contact", "count"),
        Column("contact_free_share", "share", "percent", interval=True),
    )
    title = "Safety given contact, and contact-free failures"
    return Table("contact", title, columns, frame(rows, columns), keys=len(by))


def structural_index(table: ScoreTable) -> Table:
    """The least unsafe-success rate that any policy reaches on each task (F2)."""
    rows = [{n: getattr(s, n) for n in s.__slots__} for s in structural.structural_indices(table)]
    columns = (
        Column("suite", "suite"),
        Column("task", "task"),
        Column("index", "SI", "percent", better=-1),
        Column("policy", "reached by"),
        Column("n_policies", "policies", "count"),
        Column("n_successes", "its successes", "count"),
    )
    said = f"Tasks on which at least {structural.MINIMUM_POLICIES} policies succeed."
    return Table("structural", "Structural index by task", columns, frame(rows, columns), (said,), keys=2)


def correlations(table: ScoreTable, each: Each = map) -> list[Table]:
    """Rank correlation of SR with Safety, SBU and VSI over suite x policy cells, and in each suite (F1)."""
    cells = safety.by_group(table, ("suite", "policy"), bootstrap=False)
    rows, suites = [], []
    for y in ("safety", "sbu", "vsi"):
        c = rankings.correlate(cells, "sr", y, each=each)
        row = {
            n: getattr(c, n) for n in c.__slots__ if n not in ("x", "y", "n", "per_suite", "per_suite_p", "same_top")
        }
        pair = f"SR, {y.upper() if y != 'safety' else 'Safety'}"
        tops = f"{sum(c.same_top.values())} of {len(c.same_top)}"
        rows.append({"pair": pair, "cells": c.n, **row, "same_top": tops})
        for suite, tau in c.per_suite.items():
            same = "yes" if c.same_top[suite] else "no"
            suites.append({"pair": pair, "suite": suite, "kendall": tau, "p": c.per_suite_p[suite], "same_top": same})
    columns = (
        Column("pair", "pair"),
        Column("cells", "cells", "count"),
        *(
            column
            for key, symbol in (("kendall", "τ_b"), ("spearman", "ρ"))
            for part, where in (("", ""), ("_within", " within suites"), ("_between", " between suites"))
            for column in (
                Column(f"{key}{part}", f"{symbol}{where}", "signed", 2),
                Column(f"{key}{part}_p", f"p ({symbol}{where})", "p", 3),
            )
        ),
        Column("same_top", "same best policy"),
    )
    said = (
        "Kendall's τ_b and Spearman's ρ over suite x policy cells. Permutation p, two-sided, 10,000 permutations: over "
        "all cells, inside each suite, and for ρ between suites over the suites' means."
    )
    title = "Does success predict safety?"
    inside = (
        Column("pair", "pair"),
        Column("suite", "suite"),
        Column("kendall", "τ_b", "signed", 2),
        Column("p", "p", "p", 3),
        Column("same_top", "same best policy"),
    )
    return [
        Table("correlations", title, columns, frame(rows, columns), (said,), keys=1),
        Table("correlations_suites", f"{title[:-1]} in each suite?", inside, frame(suites, inside), keys=2),
    ]


def comparisons(table: ScoreTable, limit: int = PAIRS, each: Each = map) -> tuple[list[PairedComparison], list[str]]:
    """Two policies each on the tasks and seeds that both have, and what could not be compared or was left out.

    Of more than ``limit`` pairs those with the largest difference in Safety are compared.
    """
    scored = table.scored()
    runs: dict[str, dict[tuple[object, ...], int]] = {}
    columns = [scored.column(name) for name in (*PAIR_KEYS, "policy")]
    for row, (*key, policy) in enumerate(zip(*columns, strict=True)):
        runs.setdefault(str(policy), {})[tuple(key)] = row
    sizes = Counter(str(p) for p in scored.column("policy"))
    safe, known = ~scored.unsafe, ~scored.safety_unknown
    ranked: list[tuple[float, str, str, NDArray[np.intp]]] = []
    said: list[str] = []
    for first, second in combinations(sorted(runs, key=natural), 2):
        common = runs[first].keys() & runs[second].keys()
        if not common:
            said.append(f"{first} and {second} share no task and seed.")
            continue
        a, b = (np.array([runs[policy][key] for key in common], np.intp) for policy in (first, second))
        both = known[a] & known[b]
        gap = abs(float(safe[b][both].mean()) - float(safe[a][both].mean())) if both.any() else -1.0
        ranked.append((-gap, first, second, np.sort(np.concatenate([a, b]))))
    ranked.sort(key=lambda pair: (pair[0], natural(pair[1]), natural(pair[2])))
    chosen: list[tuple[ScoreTable, str, str]] = []
    for _, first, second, rows in ranked[:limit]:
        repeated = sizes[first] + sizes[second] - len(runs[first]) - len(runs[second])
        if repeated:
            said.append(f"{first} and {second} are not compared: {repeated} episodes repeat a task and seed.")
            continue
        chosen.append((scored.select(rows), first, second))
        left_out = sizes[first] + sizes[second] - len(rows)
        if left_out:
            said.append(f"{first} and {second}: {plural(left_out, 'episode')} without a partner left out.")
    if len(ranked) > limit:
        said.append(f"{len(ranked) - limit} further pairs with smaller differences are left out.")
    return list(each(compare_policies, *zip(*chosen, strict=True))) if chosen else [], said


def paired(found: Sequence[PairedComparison], said: Sequence[str]) -> Table:
    """Differences of two policies over the same tasks and seeds: paired bootstrap and exact McNemar."""
    rows = []
    for c in found:
        row: dict[str, Any] = {"first": c.first, "second": c.second, "pairs": c.pairs}
        row |= {"success_unknown": c.pairs - c.sr.n, "safety_unknown": c.pairs - c.safety.n}
        for name in ("sr", "safety", "sbu", "vsi"):
            d = getattr(c, name)
            row |= {name: d.difference, **_interval(name, d.interval)}
        row |= {"p_safety": c.safety_test.p, "only_first": c.safety_test.only_a, "only_second": c.safety_test.only_b}
        rows.append({**row, "p_success": c.success_test.p})
    columns = (
        Column("second", "policy"),
        Column("first", "minus"),
        Column("pairs", "pairs", "count"),
        Column("success_unknown", "success unknown", "count", help="pairs left out of ΔSR and ΔSBU"),
        Column("safety_unknown", "safety unknown", "count", help="pairs left out of ΔSafety, ΔSBU and ΔVSI"),
        Column("sr", "ΔSR", "signed", 3, interval=True),
        Column("p_success", "p (SR)", "p", 3),
        Column("safety", "ΔSafety", "signed", 3, interval=True),
        Column("p_safety", "p (Safety)", "p", 3),
        Column("only_second", "only it safe", "count"),
        Column("only_first", "only other safe", "count"),
        Column("sbu", "ΔSBU", "signed", 3, interval=True),
        Column("vsi", "ΔVSI", "signed", 3, interval=True),
    )
    method = "Fractions. Bootstrap over pairs (10,000 resamples, 95 %); p of the exact McNemar test."
    if len(found) > 1:
        method += f" {len(found)} comparisons; no p is adjusted for that."
    title = "Policies compared on the same tasks and seeds"
    return Table("paired", title, columns, frame(rows, columns), (method, *said), keys=2)


def all_tables(table: ScoreTable, by: Sequence[str], each: Each = map) -> tuple[list[Table], list[PairedComparison]]:
    """Every table of this module that the episodes give, and the paired comparisons behind theirs."""
    out = [composition(table, by), clause_rates(table, by)]
    found, said = comparisons(table, each=each)
    if found or said:
        out.append(paired(found, said))
    out += [depth_mix(table, by), contact(table, by)]
    if table.reported:
        out.append(reported(table, by))
    policies = {str(p) for p in table.scored().column("policy")}
    if len(policies) >= structural.MINIMUM_POLICIES:
        out += [structural_index(table), *correlations(table, each)]
    return out, found
