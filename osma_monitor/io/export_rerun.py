"""An episode as a rerun recording (.rrd): signals, clause margins, violations and the path of the base.

Needs the extra ``rerun``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.signals.schema import GATE_SIGNALS


def export_rerun(record: EpisodeRecord, path: Path | str, config: MonitorConfig) -> Path:
    """Writes one episode. Raises ImportError when rerun-sdk is absent."""
    import rerun as rr

    path = Path(path)
    recording = rr.RecordingStream("osma_monitor", recording_id=record.info.episode_id)
    recording.save(str(path))
    seconds = (record.stamps_ns - record.stamps_ns[0]) / 1e9 if len(record.stamps_ns) else np.zeros(0)
    times = [rr.TimeColumn("time", duration=seconds)]

    def curve(entity: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        if len(values) and not np.isnan(values).all():
            recording.send_columns(entity, indexes=times, columns=rr.Scalars.columns(scalars=values))

    for name, values in record.signals.items():
        curve(f"signals/{name}", values)
    gates = GATE_SIGNALS if config.gate_semantics == "boolean" else frozenset()
    for result in record.clauses:
        if result.clause not in config.library or not len(seconds):
            continue
        formula = stl.parse(config.library[result.clause].text(config.gate_semantics))
        margin = stl.margin_trace(formula, record.stamps_ns, record.signals, gates).rho
        curve(f"margins/{result.clause}", np.where(np.isinf(margin), np.nan, margin))
        if result.first_violation_ns is not None:
            at = (result.first_violation_ns - int(record.stamps_ns[0])) / 1e9
            recording.set_time("time", duration=at)
            recording.log(
                "violations", rr.TextLog(f"{result.clause} violated, depth {result.depth:.2f}", level="ERROR")
            )
    x, y = record.signals.get("base_x"), record.signals.get("base_y")
    if x is not None and y is not None and np.isfinite(x).any():
        known = np.isfinite(x) & np.isfinite(y)
        recording.log("base/path", rr.LineStrips2D([np.column_stack([x[known], y[known]])]), static=True)
    recording.flush()
    return path
