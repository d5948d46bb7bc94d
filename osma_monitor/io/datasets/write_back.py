"""A copy of a LeRobot data set with what the monitor says about it, valid for LeRobot's own reader.

Each frame gets ``safety.margin.<clause>`` (the clause's margin of that instant, float32, NaN where unknown or
switched off) for every clause that is active in some episode, and ``safety.violated`` (bool: some scored clause is
broken in this frame). Each episode's meta entry gets ``safety.verdict``, ``safety.depth``,
``safety.violated_clauses`` and ``safety.d_min``. info.json describes the new columns like any other feature; the
originals and videos are copied (hard-linked where the file system can) unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from osma_monitor.core import stl
from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.signals.schema import GATE_SIGNALS
from osma_monitor.io.bag.mapping import Mapping
from osma_monitor.io.datasets import lerobot
from osma_monitor.io.datasets.fieldmap import FieldMap
from osma_monitor.io.errors import InputError, StoreError
from osma_monitor.io.sources import Findings, open_source

VIOLATED = "safety.violated"
MARGIN = "safety.margin."


def write_back(
    path: Path | str,
    out: Path | str,
    config: MonitorConfig,
    mapping: Path | str | Mapping | FieldMap | None = None,
    *,
    findings: Findings | None = None,
) -> Path:
    """Writes the copy ``out``, which must not exist. Raises InputError and StoreError; nothing half-written stays."""
    path, out = Path(path), Path(out)
    if not lerobot.is_lerobot(path):
        raise InputError(f"{path}: no LeRobot data set (meta/info.json is missing); --write-back is for those")
    if out.exists():
        raise StoreError(17, f"{out} exists already; a data set is never overwritten")
    data = lerobot.LeRobotDataset(path)
    records = {
        int(r.info.attributes["episode_index"]): r for r in open_source(path, config, mapping, findings=findings)
    }
    clauses = sorted({c.clause for r in records.values() for c in r.clauses})
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        shutil.copytree(path, temporary, copy_function=_link)
        _frames(data, temporary, records, clauses, config)
        _episodes(data, temporary, records)
        _info(data, temporary, clauses)
        os.replace(temporary, out)
    except OSError as error:
        raise StoreError(error.errno, f"{out}: {error.strerror or error}; nothing was written") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return out


def _link(source: str, target: str) -> None:
    # videos are large: another name for the same bytes where the file system can; what changes is written anew
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _columns(
    record: EpisodeRecord | None, rows: int, clauses: Sequence[str], config: MonitorConfig
) -> dict[str, NDArray[Any]]:
    margins = {c: np.full(rows, np.nan, np.float32) for c in clauses}
    violated = np.zeros(rows, bool)
    gates = GATE_SIGNALS if config.gate_semantics == "boolean" else frozenset()
    if record is not None and len(record.stamps_ns) == rows and rows:
        for result in record.clauses:
            formula = stl.parse(config.library[result.clause].text(config.gate_semantics))
            trace = stl.margin_trace(formula, record.stamps_ns, record.signals, gates)
            margins[result.clause] = trace.rho.astype(np.float32)
            if result.scored:
                violated |= trace.upper < 0
    return {**{MARGIN + c: m for c, m in margins.items()}, VIOLATED: violated}


def _frames(
    data: lerobot.LeRobotDataset,
    root: Path,
    records: dict[int, EpisodeRecord],
    clauses: Sequence[str],
    config: MonitorConfig,
) -> None:
    files: dict[Path, list[lerobot.EpisodeEntry]] = {}
    for entry in data.entries:
        files.setdefault(entry.file, []).append(entry)
    for file, entries in files.items():
        if not file.is_file():
            continue  # said when it was scored
        table = pq.read_table(file)
        index = table["episode_index"].to_numpy()
        added: dict[str, NDArray[Any]] = _columns(None, table.num_rows, clauses, config)
        for entry in entries:
            rows = np.flatnonzero(index == entry.index)
            for name, values in _columns(records.get(entry.index), len(rows), clauses, config).items():
                added[name][rows] = values
        for name, values in added.items():
            table = table.append_column(name, pa.array(values))
        target = root / file.relative_to(data.path)
        target.unlink()
        pq.write_table(_described(table, clauses), target, compression="snappy")


def _described(table: pa.Table, clauses: Sequence[str]) -> pa.Table:
    """The note that the ``datasets`` package keeps in its files, with the new columns."""
    metadata = dict(table.schema.metadata or {})
    if b"huggingface" in metadata:
        note = json.loads(metadata[b"huggingface"])
        features = note.setdefault("info", {}).setdefault("features", {})
        features.update({MARGIN + c: {"dtype": "float32", "_type": "Value"} for c in clauses})
        features[VIOLATED] = {"dtype": "bool", "_type": "Value"}
        metadata[b"huggingface"] = json.dumps(note).encode()
    return table.replace_schema_metadata(metadata)


def _verdict(record: EpisodeRecord | None) -> dict[str, Any]:
    if record is None:
        return {"safety.verdict": "unknown", "safety.depth": None, "safety.violated_clauses": "", "safety.d_min": None}
    broken = ",".join(c.clause for c in record.clauses if c.scored and c.status == "violated")
    d_min = record.motion.d_min
    return {
        "safety.verdict": record.safety,
        "safety.depth": record.depth,
        "safety.violated_clauses": broken,
        "safety.d_min": None if np.isnan(d_min) else d_min,
    }


def _episodes(data: lerobot.LeRobotDataset, root: Path, records: dict[int, EpisodeRecord]) -> None:
    if not data.v3:
        path = root / "meta" / "episodes.jsonl"
        path.unlink()
        lines = (json.dumps({**e.meta, **_verdict(records.get(e.index))}) + "\n" for e in data.entries)
        path.write_text("".join(lines), encoding="utf-8")
        return
    for path in sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        table = pq.read_table(path)
        verdicts = [_verdict(records.get(i)) for i in table["episode_index"].to_pylist()]
        types = {"safety.verdict": pa.string(), "safety.violated_clauses": pa.string()}
        for name in _verdict(None):
            kind = types.get(name, pa.float64())
            table = table.append_column(name, pa.array([v[name] for v in verdicts], kind))
        path.unlink()
        pq.write_table(table, path, compression="snappy")


def _info(data: lerobot.LeRobotDataset, root: Path, clauses: Sequence[str]) -> None:
    info = dict(data.info)
    scalar = {"shape": [1], "names": None}
    added = {MARGIN + c: {"dtype": "float32", **scalar} for c in clauses}
    info["features"] = {**data.features, **added, VIOLATED: {"dtype": "bool", **scalar}}
    path = root / lerobot.INFO
    path.unlink()
    path.write_text(json.dumps(info, indent=4) + "\n", encoding="utf-8")
