"""The report as one HTML file: no request leaves it, everything from messages is escaped, injected scripts do not run.

Templates, styles, scripts and the chart library are inlined. Names and texts pass through Jinja2's autoescape; the
data block is JSON with every ``<``, ``>`` and ``&`` written as an escape; a content security policy allows only the
scripts of this page, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.metrics.scores import natural
from osma_monitor.core.motion.features import FEATURES
from osma_monitor.report import traces, wording
from osma_monitor.report.model import (
    METRICS,
    OUTCOME_KINDS,
    ClauseSummary,
    FeatureSummary,
    Figure,
    PolicySummary,
    Report,
)
from osma_monitor.report.navigation_tables import FEW_CELLS
from osma_monitor.report.table import UNDEFINED, Table, cells, format_value, header

#: Rows in the list of episodes; further ones are only counted.
LISTED = 1500
#: Rows of one table in the page; the rest is in the CSV.
TABLE_ROWS = 400

#: Symbol, index and meaning of each motion feature.
_FEATURE_TEXT = {
    "d_min": ("d", "min", "smallest distance, m"),
    "mu_v": ("μ", "v", "mean speed over distance, 1/s"),
    "M_v": ("M", "v", "largest speed over distance, 1/s"),
    "mu_a": ("μ", "a", "mean acceleration over distance, 1/s²"),
    "M_a": ("M", "a", "largest acceleration over distance, 1/s²"),
    "mu_j": ("μ", "j", "mean jerk over distance, 1/s³"),
    "M_j": ("M", "j", "largest jerk over distance, 1/s³"),
}
TIERS = ("low", "moderate", "high")
_ADAPTS_INTRO = (
    "Mean over matched cells of each tier’s mean. A cautious robot keeps more distance and moves slower and smoother, "
    "the higher the tier: the distance rises to the right, everything else falls."
)
_ADAPTS_NOTE = (
    "τ compares the three tier means of each cell with the caution order (Kendall τ-b), averaged over cells. "
    "SSI is the mean over the features."
)


@cache
def _resource(folder: str, name: str) -> str:
    return (files("osma_monitor.report") / folder / name).read_text(encoding="utf-8")


def embed_json(value: Any) -> Markup:
    """``value`` as JSON that can stand inside a script element whatever its strings hold. NaN is refused."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _inline(text: str) -> Markup:
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError("an inlined file would close its own element")
    return Markup(text)


def render_page(
    report: Report,
    margins: traces.Margins | None = None,
    scenes: traces.Scenes | None = None,
    pictures: traces.Pictures | None = None,
) -> str:
    """The page as text.

    ``margins``, ``scenes`` and ``pictures`` give the traces their lines, surroundings and a picture (PNG) of the
    episode; without them those parts stay out.
    """
    scripts = [_inline(_resource("assets", "uplot.min.js")), _inline(_resource("templates", "page.js"))]
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    clauses = _clauses(report.clauses, {p.policy: i for i, p in enumerate(report.policies)})
    template = environment.from_string(_resource("templates", "page.html.j2"))
    order = traces.severity_order(report.records)
    listed = order[:LISTED]
    index = {p.policy: i for i, p in enumerate(report.policies)}
    return template.render(
        title=report.title,
        eyebrow=_eyebrow(report),
        headline=wording.headline(report),
        support=wording.support(report),
        warnings=wording.warnings(report),
        gate_note=wording.gate_note(report.gate_semantics),
        basis=" ".join(report.basis.sentences()),
        policies=[{"name": wording.policy_label(p)} for p in report.policies],
        scores=_scores(report.policies),
        outcome_kinds=[
            {"kind": k, "label": text}
            for k, text in OUTCOME_KINDS.items()
            if any(p.outcomes.get(k, 0) for p in report.policies)
        ],
        composition=[_composition(p) for p in report.policies],
        clauses=[c for c in clauses if c["broken"]],
        kept=[c for c in clauses if not c["broken"]],
        features=_features(report.features, index),
        adapts_intro=_ADAPTS_INTRO,
        adapts_note=_ADAPTS_NOTE,
        obstacles=_obstacles(report),
        episodes=[_episode_row(i, report.records[i], index) for i in listed],
        hidden_episodes=len(order) - len(listed),
        tables=[_table(t) for t in report.tables],
        provenance=_provenance(report),
        data=embed_json(_data(report, order, set(listed), index, margins, scenes, pictures)),
        styles=_inline(_resource("assets", "uplot.min.css") + _resource("templates", "page.css")),
        script_uplot=scripts[0],
        script_page=scripts[1],
        script_hashes=" ".join(f"'sha256-{d}'" for d in digests),
    )


def _eyebrow(report: Report) -> str:
    tasks = {(r.info.suite, r.info.task) for r in report.records}
    seeds = sorted({r.info.seed for r in report.records})
    suites = sorted({r.info.suite for r in report.records if r.info.suite})
    parts = [wording.plural(len(report.records), "episode"), wording.plural(len(tasks), "task")]
    if seeds:
        parts.append("seed " + ", ".join(map(str, seeds)) if len(seeds) <= 5 else f"{len(seeds)} seeds")
    return " · ".join([*(suites[:3]), *parts])


# ---- headline metrics


def _scores(policies: Sequence[PolicySummary]) -> list[dict[str, Any]]:
    out = []
    for spec in METRICS.values():
        figures = [p.figures.get(spec.key) for p in policies]
        if not any(f is not None and f.known for f in figures):
            continue
        if spec.key == "tsr" and all(f == p.figures.get("sr") for f, p in zip(figures, policies, strict=True)):
            continue  # the same numbers twice tell nobody anything
        low, high = spec.low, spec.high
        if spec.key == "vsi":
            tops = [v for f in figures if f is not None for v in (f.value, f.high) if not math.isnan(v)]
            high = next(top for top in (0.1, 0.25, 0.5, 1.0) if max(tops) <= top or top == 1.0)
        rows = []
        for i, figure in enumerate(figures):
            if figure is None:
                continue
            rows.append(
                {
                    "policy": i,
                    "n": figure.n,
                    **_place(figure, low, high),
                    **_figure_text(figure, spec.kind, spec.digits),
                }
            )
        few = spec.key.startswith("ssi") and any(f is not None and f.known and math.isnan(f.low) for f in figures)
        about = f"{spec.help}; {FEW_CELLS}" if few else spec.help
        out.append({"label": spec.label, "help": about, "rows": rows, "axis": _axis(low, high, spec.kind)})
    return out


def _place(figure: Figure, low: float, high: float) -> dict[str, Any]:
    def at(value: float) -> float:
        return round(100.0 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    if not figure.known:
        return {"at": None, "left": None, "width": None}
    if math.isnan(figure.low) or math.isnan(figure.high):
        return {"at": at(figure.value), "left": None, "width": None}
    return {"at": at(figure.value), "left": at(figure.low), "width": round(at(figure.high) - at(figure.low), 2)}


def _figure_text(figure: Figure, kind: Any, digits: int) -> dict[str, str]:
    unit = " %" if kind == "percent" else ""
    text = format_value(figure.value, kind, digits)
    span = [format_value(v, kind, digits) for v in (figure.low, figure.high)]
    return {
        "text": text + (unit if figure.known else ""),
        "interval": "" if UNDEFINED in span else f"{span[0]} to {span[1]}",
    }


def _axis(low: float, high: float, kind: Any) -> dict[str, Any]:
    ticks = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low + share * (high - low)
        text = (
            f"{100 * value:.0f} %"
            if kind == "percent"
            else f"{value:+.1f}".replace("-", "−")
            if low < 0
            else f"{value:g}"
        )
        ticks.append({"at": 100.0 * share, "text": "0" if value == 0 else text, "zero": value == 0.0})
    return {"ticks": ticks}


def _composition(p: PolicySummary) -> dict[str, Any]:
    parts = [{"kind": kind, "label": text, "count": p.outcomes.get(kind, 0)} for kind, text in OUTCOME_KINDS.items()]
    spoken = ", ".join(f"{part['count']} {part['label']}" for part in parts if part["count"]) or "no scored episode"
    return {
        "name": wording.policy_label(p),
        "n": p.n,
        "aborted": p.aborted,
        "parts": parts,
        "spoken": f"{p.policy}: {spoken}",
    }


# ---- clauses


def _clauses(summaries: Sequence[ClauseSummary], index: Mapping[str, int]) -> list[dict[str, Any]]:
    by_clause: dict[str, list[ClauseSummary]] = {}
    for s in summaries:
        by_clause.setdefault(s.clause, []).append(s)
    worst = {name: max((s.broken / s.n if s.n else 0.0) for s in rows) for name, rows in by_clause.items()}
    out = []
    for name in sorted(by_clause, key=lambda n: (-worst[n], n)):
        rows = [_clause_row(s, index[s.policy]) for s in by_clause[name] if s.policy in index]
        about = by_clause[name][0].about or by_clause[name][0].family.replace("_", " ")
        out.append({"id": name, "about": about, "rows": rows, "broken": worst[name] > 0})
    return out


def _clause_row(s: ClauseSummary, policy: int) -> dict[str, Any]:
    if not s.applicable:
        return {
            "policy": policy,
            "percent": 0,
            "text": UNDEFINED,
            "detail": "not applicable",
            "depths": [],
            "spoken": "not applicable",
        }
    share = s.broken / s.applicable
    detail = f"{s.broken} of {s.applicable}"
    if s.broken:
        detail += f", run {format_value(s.longest_run, 'number', 0)} steps"
    if s.unknown:
        detail += f", {s.unknown} unknown"
    ordered = sorted(s.depths)
    middle = ordered[len(ordered) // 2] if ordered else math.nan
    spoken = f"depths of {wording.plural(len(ordered), 'violation')}" + (f", median {middle:.2f}" if ordered else "")
    thinned = ordered if len(ordered) <= 250 else ordered[:: math.ceil(len(ordered) / 250)]
    return {
        "policy": policy,
        "percent": round(100.0 * share, 2),
        "text": f"{format_value(share, 'percent', 1)} %",
        "detail": detail,
        "depths": [round(1.0 + 98.0 * d, 1) for d in thinned],
        "spoken": spoken,
    }


# ---- motion features

_X = {"low": 44, "moderate": 112, "high": 180}
_TOP, _BOTTOM = 14.0, 78.0


def _features(summaries: Sequence[FeatureSummary], index: Mapping[str, int]) -> list[dict[str, Any]]:
    out = []
    for feature, sign in FEATURES.items():
        rows = [s for s in summaries if s.feature == feature and s.policy in index]
        values = [v for s in rows for v in s.tiers.values() if not math.isnan(v)]
        if not values:
            continue
        low, high = min(values), max(values)
        span = (high - low) or abs(high) or 1.0
        low, high = low - 0.08 * span, high + 0.08 * span

        def y(value: float, low: float = low, high: float = high) -> float:
            return round(_BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low), 1)

        lines = [
            {
                "policy": index[s.policy],
                "points": [
                    {"x": _X[t], "y": y(s.tiers[t]), "tier": t, "text": f"{s.tiers[t]:.3g}"}
                    for t in TIERS
                    if not math.isnan(s.tiers.get(t, math.nan))
                ],
            }
            for s in rows
        ]
        taus = [
            {
                "policy": index[s.policy],
                "text": f"τ {format_value(s.tau, 'signed', 2)}",
                "cells": wording.plural(s.cells, "cell"),
            }
            for s in rows
        ]
        spoken = "; ".join(_spoken(s) for s in rows)
        ticks = [{"y": y(v) + 3, "text": f"{v:.2f}" if v < 1 else f"{v:.2g}"} for v in (min(values), max(values))]
        symbol, subscript, meaning = _FEATURE_TEXT[feature]
        about = f"{meaning}; {'higher' if sign > 0 else 'lower'} is more cautious"
        out.append(
            {
                "symbol": symbol,
                "index": subscript,
                "about": about,
                "lines": lines,
                "taus": taus,
                "spoken": spoken,
                "ticks": ticks,
            }
        )
    return out


def _spoken(s: FeatureSummary) -> str:
    means = ", ".join(f"{t} {s.tiers[t]:.3g}" for t in TIERS if t in s.tiers)
    return f"{s.policy}: {means}, tau {format_value(s.tau, 'signed', 2)}"


def _obstacles(report: Report) -> list[dict[str, Any]]:
    """A row an obstacle, a cell a policy; empty with fewer than two obstacles."""
    cells = {(s.tier, s.obstacle, s.policy): s for s in report.obstacles}
    rows = list(dict.fromkeys((s.tier, s.obstacle) for s in report.obstacles))
    if len(rows) < 2:
        return []
    out = []
    for tier, obstacle in rows:
        row = []
        for p in report.policies:
            s = cells.get((tier, obstacle, p.policy))
            if s is None or not s.n:
                row.append({"text": UNDEFINED, "detail": "", "heat": 0})
                continue
            near = "" if math.isnan(s.distance) else f"{s.distance:.2f} m"
            share = s.unsafe / s.n
            row.append({"text": f"{s.unsafe} of {s.n}", "detail": near, "heat": round(62 * share)})
        out.append({"name": obstacle.replace("_", " "), "tier": tier, "cells": row})
    return out


# ---- episodes


def _number(value: float, digits: int) -> str:
    return UNDEFINED if math.isnan(value) else f"{value:.{digits}f}"


def _episode_row(i: int, r: EpisodeRecord, index: Mapping[str, int]) -> dict[str, Any]:
    broken = [c for c in r.clauses if c.scored and c.status == "violated"]
    worst = max(broken, key=lambda c: c.depth, default=None)
    at = worst.first_violation_ns if worst is not None else None
    first = f"{(at - int(r.stamps_ns[0])) / 1e9:.2f} s" if at is not None and len(r.stamps_ns) else ""
    flags = [word for word, on in (("incomplete", not r.complete), ("partial", r.partial)) if on]
    return {
        "index": i,
        "policy": index.get(r.info.policy, 0),
        "task": r.info.task or r.info.episode_id,
        "who": ", ".join([r.info.policy or "no policy named", f"seed {r.info.seed}", *flags]),
        "safety": r.safety,
        "outcome": r.outcome.status,
        "reason": r.outcome.reason,
        "depth": f"{r.depth:.2f}" if r.depth > 0 else "",
        "worst": worst.clause if worst is not None else "",
        "first": first,
        "d_min": _number(r.motion.d_min, 2),
        "traced": True,
    }


def _data(
    report: Report,
    order: Sequence[int],
    listed: set[int],
    index: Mapping[str, int],
    margins: traces.Margins | None,
    scenes: traces.Scenes | None,
    pictures: traces.Pictures | None,
) -> dict[str, Any]:
    records = report.records
    drawn: dict[str, Any] = {}
    names: dict[str, int] = {}
    outlines: dict[str, int] = {}
    spent = seen = 0
    for i in traces.with_counterparts(order, records):
        if i not in listed or not len(records[i].stamps_ns):
            continue
        one = traces.trace(records[i], margins(records[i]) if margins is not None else (), names)
        scene = scenes(records[i]) if scenes is not None else None
        grown = dict(outlines)
        if scene is not None:
            one["scene"] = scene.view(grown)
        fresh = sum(map(len, list(grown)[len(outlines) :]))
        cost = fresh + len(json.dumps(one, allow_nan=False, separators=(",", ":")))
        if spent + cost > traces.BUDGET:
            break
        spent += cost
        outlines = grown
        picture = pictures(records[i]) if pictures is not None and seen < traces.PICTURE_BYTES else None
        if picture is not None:
            seen += len(picture)
            one["picture"] = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        drawn[str(i)] = one
    twins: dict[tuple[str, str, int], int] = {}
    episodes = {
        str(i): {
            "id": records[i].info.episode_id,
            "task": records[i].info.task or records[i].info.episode_id,
            "policy": index.get(records[i].info.policy, 0),
            "seed": records[i].info.seed,
            "safety": records[i].safety,
            "story": wording.story(records[i]),
            "twin": twins.setdefault((records[i].info.suite, records[i].info.task, records[i].info.seed), len(twins)),
        }
        for i in sorted(listed)
    }
    return {
        "policies": [wording.policy_label(p) for p in report.policies],
        "episodes": episodes,
        "traces": drawn,
        "clauses": list(names),
        "outlines": [json.loads(text) for text in outlines],
        "first": next((i for i in order if str(i) in drawn), None),
    }


# ---- tables and provenance


def _table(table: Table) -> dict[str, Any]:
    heads = [{"text": header(c), "help": c.help, "left": c.kind == "text", "better": c.better} for c in table.columns]
    rows = cells(table)
    notes = list(table.said)
    if len(rows) > TABLE_ROWS:
        notes.append(f"{len(rows) - TABLE_ROWS} more rows: osma score --format csv")
    if not rows:
        notes.insert(0, "no rows")
    return {"key": table.key, "title": table.title, "heads": heads, "rows": rows[:TABLE_ROWS], "notes": notes}


def _distinct(values: Iterable[str], limit: int = 4) -> str:
    """The different values; of more than ``limit`` the first and last in order (times sort as text)."""
    found = sorted({v for v in values if v}, key=natural)
    return ", ".join(found) if len(found) <= limit else f"{found[0]} to {found[-1]} ({len(found)} different)"


def _provenance(report: Report) -> list[tuple[str, str]]:
    rows = [(name, value) for name, value in report.facts.items()]
    rows.append(("Gate semantics", ", ".join(report.gate_semantics)))
    rows.append(("Clause library", ", ".join(report.library_hashes)))
    provenances = [r.provenance for r in report.records]
    rows.append(("Applicability registry", _distinct(p.registry_hash for p in provenances)))
    rows.append(("Monitor version", _distinct(p.monitor_version for p in provenances)))
    rows.append(("Backend", _distinct(p.backend for p in provenances)))
    for label in ("source", "session"):
        facts = [getattr(p, label) for p in provenances]
        for name in dict.fromkeys(name for f in facts for name in f):
            rows.append((f"{name} ({label})", _distinct(f.get(name, "") for f in facts)))
    return [(name, value) for name, value in rows if value]
