"""The sentences with which a report opens: which policy is safer, by how much, and how sure that is."""

from __future__ import annotations

import math

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.report.model import Comparison, Figure, PolicySummary, Report
from osma_monitor.report.table import format_value

#: A two-sided p under this is called clear.
CLEAR_P = 0.05


def percent(value: float, digits: int = 0) -> str:
    """A fraction as people say it: 92 %."""
    return f"{format_value(value, 'percent', digits)} %"


def points(value: float, digits: int = 0) -> str:
    """A difference of fractions in percentage points with its sign."""
    return f"{format_value(100.0 * value, 'signed', digits)}"


def _range(figure: Figure) -> str:
    if math.isnan(figure.low) or math.isnan(figure.high):
        return ""
    return f"95 % interval {percent(figure.low)} to {percent(figure.high)}"


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def headline(report: Report) -> str:
    """One sentence: the answer."""
    known = [p for p in report.policies if p.figures["safety"].known]
    if not report.policies:
        return "There is no scored episode yet"
    if not known:
        episodes = "this episode" if len(report.records) == 1 else "these episodes"
        what = "The safety of {} is not known" if report.clauses else "No safety clause was active in {}"
        return what.format(episodes)
    if len(known) == 1:
        p = known[0]
        return f"{policy_label(p)} kept every clause in {percent(p.figures['safety'].value)} of its episodes"
    ordered = sorted(known, key=lambda p: -p.figures["safety"].value)
    first, second, c = ordered[0], ordered[1], report.comparison
    top, next_ = first.figures["safety"].value, second.figures["safety"].value
    one, other = policy_label(first), policy_label(second)
    if len(known) == 2:
        if top == next_:
            return f"{one} and {other} are equally safe: {percent(top)} of episodes each"
        if c is not None and c.p_value < CLEAR_P:
            return f"{one} is safer than {other}: {percent(top)} of episodes against {percent(next_)}"
        return f"{one} kept every clause in {percent(top)} of episodes, {other} in {percent(next_)}"
    if top == next_:
        ties = [policy_label(p) for p in ordered if p.figures["safety"].value == top]
        return f"{', '.join(ties[:-1])} and {ties[-1]} share the highest safety: {percent(top)} of episodes"
    return f"{one} is the safest of {len(known)} policies: {percent(top)} of episodes kept every clause"


def support(report: Report) -> list[str]:
    """What backs the headline: the paired difference, unsafe successes, adaptation."""
    lines = []
    c = report.comparison
    if c is not None:
        lines.append(difference(c))
    elif report.comparison_note:
        lines.append(report.comparison_note)
    elif len(report.policies) == 1 and report.policies[0].figures["safety"].known:
        safety = report.policies[0].figures["safety"]
        lines.append(f"{_range(safety)}, n = {safety.n}.")
    hidden = [p for p in report.policies if p.figures["sbu"].known and p.figures["sbu"].value > 0]
    if hidden:
        parts = [f"{percent(p.figures['sbu'].value)} of {policy_label(p)}’s episodes" for p in hidden[:4]]
        lines.append(f"Success alone would hide this: {' and '.join(parts)} reached the goal unsafely.")
    with_ssi = [p for p in report.policies if "ssi" in p.figures and p.figures["ssi"].known]
    if with_ssi:
        parts = [f"{policy_label(p)} {format_value(p.figures['ssi'].value, 'signed', 2)}" for p in with_ssi[:6]]
        lines.append(f"Adaptation to what the obstacle is (SSI, from −1 to +1): {', '.join(parts)}.")
    return [line for line in lines if line.strip(" ,.")]


def difference(c: Comparison) -> str:
    """The paired difference in one sentence."""
    more = "more" if c.difference >= 0 else "less"
    sure = f"95 % interval {points(c.low)} to {points(c.high)}; exact McNemar p {p_text(c.p_value)}"
    gap = f"{abs(100 * c.difference):.0f} percentage points {more} often than {c.second}"
    text = f"Over the same {plural(c.pairs, 'drive')}, {c.first} kept every clause {gap} ({sure})."
    return text if c.p_value < CLEAR_P else f"{text} That few episodes can’t rule out chance."


def p_text(p: float) -> str:
    """A p-value: never a bare 0."""
    return "not defined" if math.isnan(p) else ("< 0.001" if p < 0.001 else f"= {p:.3f}")


def warnings(report: Report) -> list[str]:
    """What a reader must know before believing the figures."""
    lines = []
    for p in report.policies:
        name = policy_label(p)
        if p.unknown:
            span = f"between {percent(p.safety_worst, 1)} and {percent(p.safety_best, 1)}"
            what = f"the safety of {plural(p.unknown, 'episode')} of {p.n} is unknown"
            lines.append(f"{name}: {what}; left out. Counting them, Safety lies {span}.")
        if p.incomplete:
            lines.append(f"{name}: {plural(p.incomplete, 'episode')} did not end regularly and say nothing of success.")
        if p.aborted:
            lines.append(f"{name}: {plural(p.aborted, 'episode')} aborted, listed but not scored.")
    if _different_tasks(report):
        lines.append(
            "The policies did not all run the same tasks and seeds. The paired table compares what they share."
        )
    if len(report.library_hashes) > 1:
        hashes = ", ".join(h[:12] for h in report.library_hashes)
        lines.append(f"These episodes were judged by different clause libraries ({hashes}).")
    if len(report.gate_semantics) > 1:
        lines.append("These episodes mix boolean and quantitative gates; depths of gated clauses can't be compared.")
    return lines


def _different_tasks(report: Report) -> bool:
    ran: dict[str, set[tuple[str, str, int]]] = {}
    for record in report.records:
        ran.setdefault(record.info.policy, set()).add((record.info.suite, record.info.task, record.info.seed))
    return len({frozenset(keys) for keys in ran.values()}) > 1


def gate_note(semantics: tuple[str, ...]) -> str:
    """Which gate semantics was in force, in words."""
    if semantics == ("quantitative",):
        return "Gates are quantitative: a gate's margin caps the depth, as in published tables."
    return "Gates are Boolean: the depth of a gated violation is the depth of the gated quantity."


def story(record: EpisodeRecord) -> str:
    """One sentence about an episode, for the head of its trace."""
    o = record.outcome
    end = {"success": "Succeeded", "failure": "Failed", "aborted": "Aborted", "unknown": "Ended, outcome unknown"}[
        o.status
    ]
    end += f" ({o.reason})" if o.reason else ""
    span = (int(record.stamps_ns[-1]) - int(record.stamps_ns[0])) / 1e9 if len(record.stamps_ns) else 0.0
    broken = sorted((c for c in record.clauses if c.scored and c.status == "violated"), key=lambda c: -c.depth)
    text = f"{end} after {span:.1f} s."
    if broken:
        worst, start = broken[0], int(record.stamps_ns[0]) if len(record.stamps_ns) else 0
        when = (
            "" if worst.first_violation_ns is None else f", first at {(worst.first_violation_ns - start) / 1e9:.2f} s"
        )
        text += f" Broke {worst.clause} to depth {worst.depth:.2f}{when}, for {plural(worst.violated_steps, 'step')}."
        if len(broken) > 1:
            text += f" Also: {', '.join(c.clause for c in broken[1:])}."
    elif not any(c.scored for c in record.clauses):
        text += " No scored clause was active."
    elif record.safety == "unknown":
        open_ = [c.clause for c in record.clauses if c.scored and c.lower < 0]
        text += f" Not known: {', '.join(open_)}, since an input was missing or invalid."
    else:
        text += " Every active clause held."
    return text


def policy_label(summary: PolicySummary) -> str:
    """Its name, also where it has none."""
    return summary.policy or "(no policy named)"
