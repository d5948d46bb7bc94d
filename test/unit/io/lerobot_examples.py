"""LeRobot data sets of both layouts, as the published format describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]
FPS = 20


def features() -> dict[str, Any]:
    scalar = {"shape": [1], "names": None}
    vector = {"dtype": "float32", "shape": [6], "names": NAMES}
    return {
        "observation.state": vector,
        "observation.effort": vector,
        "action": vector,
        "observation.images.front": {
            "dtype": "video",
            "shape": [480, 640, 3],
            "names": ["height", "width", "channels"],
        },
        "next.success": {"dtype": "bool", **scalar},
        "timestamp": {"dtype": "float32", **scalar},
        "frame_index": {"dtype": "int64", **scalar},
        "episode_index": {"dtype": "int64", **scalar},
        "index": {"dtype": "int64", **scalar},
        "task_index": {"dtype": "int64", **scalar},
    }


def arrays(episode: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(episode)
    return {
        "observation.state": rng.uniform(-100, 100, (length, 6)).astype(np.float32),
        "observation.effort": rng.uniform(-900, 900, (length, 6)).astype(np.float32),
        "action": rng.uniform(-100, 100, (length, 6)).astype(np.float32),
        "next.success": np.arange(length) >= length - (1 if episode % 2 == 0 else 0),
        "timestamp": (np.arange(length) / FPS).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": np.full(length, episode),
        "task_index": np.zeros(length, np.int64),
    }


def _table(data: dict[str, np.ndarray], first: int) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, values in data.items():
        if values.ndim == 2:
            flat = pa.array(values.reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            columns[name] = pa.array(values)
    columns["index"] = pa.array(np.arange(first, first + len(data["timestamp"])))
    hints = {n: {"_type": "Value", "dtype": f["dtype"]} for n, f in features().items() if f["shape"] == [1]}
    table = pa.table(columns)
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": hints}})})


def make_v21(path: Path, lengths: list[int], **info: Any) -> Path:
    _meta(path, lengths, "v2.1", "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", info)
    (path / "data" / "chunk-000").mkdir(parents=True)
    episodes, stats, first = [], [], 0
    for e, length in enumerate(lengths):
        pq.write_table(_table(arrays(e, length), first), path / f"data/chunk-000/episode_{e:06d}.parquet")
        episodes.append({"episode_index": e, "tasks": ["pick up the butter"], "length": length})
        stats.append({"episode_index": e, "stats": {"timestamp": {"min": [0.0], "count": [length]}}})
        first += length
    _lines(path / "meta/episodes.jsonl", episodes)
    _lines(path / "meta/episodes_stats.jsonl", stats)
    _lines(path / "meta/tasks.jsonl", [{"task_index": 0, "task": "pick up the butter"}])
    return path


def make_v30(path: Path, lengths: list[int], per_file: int = 2, **info: Any) -> Path:
    _meta(path, lengths, "v3.0", "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", info)
    (path / "data" / "chunk-000").mkdir(parents=True)
    (path / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    rows, first = [], 0
    for file, start in enumerate(range(0, len(lengths), per_file)):
        group = list(range(start, min(start + per_file, len(lengths))))
        tables = []
        for e in group:
            tables.append(_table(arrays(e, lengths[e]), first))
            rows.append(
                {
                    "episode_index": e,
                    "tasks": ["pick up the butter"],
                    "length": lengths[e],
                    "data/chunk_index": 0,
                    "data/file_index": file,
                    "dataset_from_index": first,
                    "dataset_to_index": first + lengths[e],
                    "meta/episodes/chunk_index": 0,
                    "meta/episodes/file_index": 0,
                    "stats/timestamp/min": [0.0],
                }
            )
            first += lengths[e]
        pq.write_table(pa.concat_tables(tables), path / f"data/chunk-000/file-{file:03d}.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["pick up the butter"]}), path / "meta/tasks.parquet")
    (path / "meta/stats.json").write_text(json.dumps({"timestamp": {"min": [0.0]}}))
    return path


def _meta(path: Path, lengths: list[int], version: str, data_path: str, extra: dict[str, Any]) -> None:
    (path / "meta").mkdir(parents=True)
    info = {
        "codebase_version": version,
        "robot_type": "so101_follower",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": data_path,
        "video_path": None,
        "features": features(),
        **extra,
    }
    (path / "meta" / "info.json").write_text(json.dumps(info, indent=4))


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
