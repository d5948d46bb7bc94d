"""Plain counting of a synthetic study, slow and obvious: what the report's figures are held against."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean, median

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.motion.features import FEATURES
from osma_monitor.report.model import ClauseSummary, Comparison, FeatureSummary, Figure, PolicySummary, Report

RANK = {"low": 0, "moderate": 1, "high": 2}


def wilson(k: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    if n == 0:
        return math.nan, math.nan
    p = k / n
    mid, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (mid - half) / (1 + z * z / n), (mid + half) / (1 + z * z / n)


def rate(k: int, n: int) -> Figure:
    return Figure(k / n if n else math.nan, *wilson(k, n), n)


def outcome_kind(r: EpisodeRecord) -> str:
    if r.safety == "unknown" or r.outcome.success is None or not r.complete:
        return "unknown"
    return f"{r.safety}-{'success' if r.outcome.success else 'failure'}"


def tau(means: list[float], sign: int) -> float:
    pairs = [(0, 1), (0, 2), (1, 2)]
    moves = [sign * (means[b] - means[a]) for a, b in pairs]
    untied = sum(m != 0 for m in moves)
    return sum((m > 0) - (m < 0) for m in moves) / math.sqrt(3 * untied) if untied else math.nan


def feature_summary(policy: str, feature: str, records: list[EpisodeRecord]) -> FeatureSummary:
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for r in records:
        value = getattr(r.motion, feature)
        if not math.isnan(value):
            cells[r.info.attributes["cell"]][r.info.attributes["tier"]].append(value)
    full = [{t: mean(v) for t, v in tiers.items()} for tiers in cells.values() if len(tiers) == 3]
    taus = [tau([c[t] for t in RANK], FEATURES[feature]) for c in full]
    taus = [t for t in taus if not math.isnan(t)]
    tiers = {t: mean(c[t] for c in full) for t in RANK} if full else {}
    return FeatureSummary(policy, feature, tiers, mean(taus) if taus else math.nan, len(taus))


def policy_summary(policy: str, records: list[EpisodeRecord]) -> PolicySummary:
    mine = [r for r in records if r.info.policy == policy]
    scored = [r for r in mine if r.outcome.status != "aborted"]
    known = [r for r in scored if r.safety != "unknown"]
    ended = [r for r in scored if r.complete and r.outcome.success is not None]
    won = [r for r in ended if r.outcome.success]
    safe = [r for r in known if r.safety == "safe"]
    sbu = [r for r in known if r in ended and r.outcome.success and r.safety == "unsafe"]
    features = [feature_summary(policy, f, scored) for f in FEATURES]
    free = [r for r in won if not r.signals["obstacle_contact"].any()]
    ssi = mean(f.tau for f in features) if not any(math.isnan(f.tau) for f in features) else math.nan
    outcomes: dict[str, int] = defaultdict(int)
    for r in scored:
        outcomes[outcome_kind(r)] += 1
    unknown = len(scored) - len(known)
    return PolicySummary(
        policy=policy,
        n=len(scored),
        unknown=unknown,
        aborted=len(mine) - len(scored),
        incomplete=sum(not r.complete for r in scored),
        figures={
            "sr": rate(len(won), len(ended)),
            "safety": rate(len(safe), len(known)),
            "sbu": rate(len(sbu), len([r for r in known if r in ended])),
            "vsi": Figure(mean(r.depth for r in known) if known else math.nan, math.nan, math.nan, len(known)),
            "tsr": rate(len(won), len(ended)),
            "cfsr": rate(len(free), len(ended)),
            "cfsr_over_tsr": rate(len(free), len(won)),
            "ssi": Figure(ssi, math.nan, math.nan, len(scored)),
        },
        safety_worst=len(safe) / len(scored) if scored else math.nan,
        safety_best=(len(safe) + unknown) / len(scored) if scored else math.nan,
        outcomes=outcomes,  # type: ignore[arg-type]
    )


def clause_summaries(policy: str, records: list[EpisodeRecord]) -> list[ClauseSummary]:
    scored = [r for r in records if r.info.policy == policy and r.outcome.status != "aborted"]
    out = []
    for clause in sorted({c.clause for r in scored for c in r.clauses if c.scored}):
        found = [(r, c) for r in scored for c in r.clauses if c.clause == clause]
        bad = [(r, c) for r, c in found if c.status == "violated"]
        out.append(
            ClauseSummary(
                policy,
                clause,
                found[0][1].family,
                "",
                len(scored),
                len(found),
                len(bad),
                sum(c.status == "unknown" for _, c in found),
                tuple(c.depth for _, c in bad),
                median(c.violated_steps / len(r.stamps_ns) for r, c in bad) if bad else math.nan,
                median(c.longest_run for _, c in bad) if bad else math.nan,
            )
        )
    return out


def report(records: list[EpisodeRecord], comparison: Comparison | None = None) -> Report:
    policies = list(dict.fromkeys(r.info.policy for r in records))
    return Report(
        title="Safety report",
        policies=tuple(policy_summary(p, records) for p in policies),
        clauses=tuple(s for p in policies for s in clause_summaries(p, records)),
        features=tuple(
            feature_summary(p, f, [r for r in records if r.info.policy == p]) for p in policies for f in FEATURES
        ),
        comparison=comparison,
        comparison_note="",
        tables=(),
        records=records,
        gate_semantics=("boolean",),
        library_hashes=tuple(dict.fromkeys(r.provenance.library_hash for r in records)),
    )
