"""Paper figures of a report: vector files that a LaTeX document takes as they are (no window, no global state)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics.outcomes import DEPTH_EDGES
from osma_monitor.core.motion.features import FEATURES
from osma_monitor.report.clause_tables import depth_labels
from osma_monitor.report.model import METRICS, OUTCOME_KINDS, OutcomeKind, Report
from osma_monitor.report.traces import Margin

COLORS = ("#2f5fd0", "#c9720b", "#7a4bb5", "#16867c", "#a93a6b", "#5d6673")
OUTCOME_COLORS: dict[OutcomeKind, str] = {
    "safe-success": "#1f8a70",
    "unsafe-success": "#cf3a43",
    "safe-failure": "#a9d3c6",
    "unsafe-failure": "#eeb0ae",
    "unknown": "#b9bdc2",
}
FILE_TYPES = ("pdf", "svg", "png")
WIDTH_IN = 5.5  # one text column of the usual conference styles


def _figure(rows: float, width: float = WIDTH_IN, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0].tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def _legend(ax: Axes, **options: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**{"fontsize": 7, "frameon": False, **options})


def scores(report: Report) -> Figure:
    """The rates of every policy with their 95 % intervals."""
    keys = [k for k in ("sr", "safety", "sbu", "cfsr") if any(k in p.figures for p in report.policies)]
    figure, (ax,) = _figure(0.5 + 0.28 * len(keys) * max(len(report.policies), 1))
    step = 0.8 / max(len(report.policies), 1)
    for i, policy in enumerate(report.policies):
        for j, key in enumerate(keys):
            f = policy.figures.get(key)
            if f is None or not f.known:
                continue
            at, color = j - 0.4 + step * (i + 0.5), COLORS[i % len(COLORS)]
            if not math.isnan(f.low):
                ax.plot([100 * f.low, 100 * f.high], [at, at], color=color, alpha=0.4, lw=4, solid_capstyle="round")
            ax.plot(100 * f.value, at, "o", color=color, ms=5, label=policy.policy if j == 0 else None)
    ax.set_yticks(range(len(keys)), [METRICS[k].label for k in keys])
    ax.set_xlim(-2, 102)
    ax.set_xlabel("% of episodes, with 95 % interval", fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="x", color="#e4e6e1", lw=0.6)
    _legend(ax, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def outcomes(report: Report) -> Figure:
    """Success x safety in four classes, one bar a policy (SafeVLA-Bench Figure 6)."""
    figure, (ax,) = _figure(0.9 + 0.3 * max(len(report.policies), 1))
    left = np.zeros(len(report.policies))
    totals = np.array([max(p.n, 1) for p in report.policies], dtype=float)
    for kind, label in OUTCOME_KINDS.items():
        share = 100.0 * np.array([p.outcomes.get(kind, 0) for p in report.policies]) / totals
        hatch = "///" if kind in ("unsafe-failure", "unknown") else None
        color = OUTCOME_COLORS[kind]
        ax.barh(range(len(share)), share, left=left, color=color, hatch=hatch, edgecolor="white", lw=0.5, label=label)
        left += share
    ax.set_yticks(range(len(report.policies)), [p.policy for p in report.policies])
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of scored episodes", fontsize=8)
    ax.invert_yaxis()
    _legend(ax, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.35))
    return figure


def depth_mix(report: Report) -> Figure:
    """Unsafe successes by the depth of their worst clause, as a share of all episodes (SafeVLA-Bench Figure 3)."""
    figure, (ax,) = _figure(0.9 + 0.3 * max(len(report.policies), 1))
    labels = depth_labels()
    left = np.zeros(len(report.policies))
    shares = np.zeros((len(report.policies), len(labels)))
    for i, policy in enumerate(report.policies):
        for r in report.records:
            if r.info.policy == policy.policy and r.complete and r.outcome.success and r.safety == "unsafe":
                place = int(np.searchsorted(DEPTH_EDGES, r.depth)) if r.depth < 1.0 else len(DEPTH_EDGES)
                shares[i, place] += 100.0 / max(policy.n, 1)
    for k, label in enumerate(labels):
        color = ("#f6d2cf", "#ec9a97", "#d95f63", "#a3222c")[k]
        ax.barh(range(len(left)), shares[:, k], left=left, color=color, edgecolor="white", lw=0.5, label=label)
        left += shares[:, k]
    ax.set_yticks(range(len(report.policies)), [p.policy for p in report.policies])
    ax.set_xlabel("unsafe successes, % of scored episodes", fontsize=8)
    ax.invert_yaxis()
    _legend(ax, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.35))
    return figure


def adaptation(report: Report) -> Figure:
    """CFSR/TSR against SSI: the upper right corner is collision-free and adapted (OSMA-Bench Figure 3a)."""
    figure, (ax,) = _figure(3.0, 3.6)
    for i, policy in enumerate(report.policies):
        free, ssi = policy.figures.get("cfsr_over_tsr"), policy.figures.get("ssi")
        if free is None or ssi is None or not free.known or not ssi.known:
            continue
        ax.plot(100 * free.value, ssi.value, "o", color=COLORS[i % len(COLORS)], label=policy.policy)
    ax.axhline(0.0, color="#5d6673", lw=0.8, ls="--")
    ax.set_xlim(-3, 103)
    ax.set_ylim(-1.05, 1.05)
    ax.set_xlabel("CFSR/TSR (%)", fontsize=8)
    ax.set_ylabel("SSI", fontsize=8)
    _legend(ax)
    return figure


def tier_means(report: Report) -> Figure:
    """The seven motion features over the caution tiers, mean over cells."""
    figure, axes = _figure(1.7, 9.0, len(FEATURES))
    for ax, feature in zip(axes, FEATURES, strict=True):
        for i, policy in enumerate(report.policies):
            for s in report.features:
                if s.feature == feature and s.policy == policy.policy and s.tiers:
                    ax.plot(range(3), [s.tiers.get(t, math.nan) for t in ("low", "moderate", "high")], "o-", ms=3,
                            color=COLORS[i % len(COLORS)], label=policy.policy)  # fmt: skip
        ax.set_title(feature, fontsize=8)
        ax.set_xticks(range(3), ["L", "M", "H"])
    _legend(axes[-1], fontsize=6)
    return figure


def margin_trace(record: EpisodeRecord, margins: Sequence[Margin], clause: str | None = None) -> Figure:
    """Every clause's margin over time, divided by |threshold|; one in red (SafeVLA-Bench Figure 5).

    ``clause`` defaults to the worst violated one. Raises UserError when the episode has no margin of that name.
    """
    bad = [c for c in record.clauses if c.status == "violated"]
    chosen = clause or (max(bad, key=lambda c: c.depth).clause if bad else "")
    names = [m.clause for m in margins]
    if clause is not None and clause not in names:
        raise UserError(
            f"{record.info.episode_id}: no margin of clause {clause!r}; there are {', '.join(names) or 'none'}"
        )
    figure, (ax,) = _figure(1.9)
    t = (record.stamps_ns - record.stamps_ns[0]) / 1e9 if len(record.stamps_ns) else np.zeros(0)
    for m in sorted(margins, key=lambda m: m.clause == chosen):
        red = m.clause == chosen
        values = np.where(np.isfinite(m.values), m.values, np.nan)
        color = "#cf3a43" if red else "#b9bdc2"
        ax.plot(t, np.clip(values, -20, 1.1), color=color, lw=1.5 if red else 0.9, label=m.clause if red else None)
    ax.axhline(0.0, color="#5d6673", lw=0.8)
    ax.set_xlabel("time (s)", fontsize=8)
    ax.set_ylabel("margin / |threshold|", fontsize=8)
    _legend(ax)
    return figure


FIGURES: dict[str, Callable[[Report], Figure]] = {
    "scores": scores,
    "outcomes": outcomes,
    "depth_mix": depth_mix,
    "adaptation": adaptation,
    "tier_means": tier_means,
}


def save(report: Report, folder: Path, file_type: str = "pdf") -> list[Path]:
    """Write every figure of ``report`` into ``folder`` (made if absent); the same report gives the same bytes.

    Raises UserError for a file type other than pdf, svg, png.
    """
    if file_type not in FILE_TYPES:
        raise UserError(f"--figures: no file type {file_type!r}; choose one of {', '.join(FILE_TYPES)}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    without_date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}[file_type]
    for name, draw in FIGURES.items():
        path = folder / f"{name}.{file_type}"
        draw(report).savefig(path, metadata=without_date, dpi=200)
        paths.append(path)
    return paths
