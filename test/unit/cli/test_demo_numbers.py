"""The demo: its printed tables against a recomputation from its files, over ROS against in process."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from report_by_hand import tau, wilson

from osma_monitor.core.signals.raw import same
from osma_monitor.io.store import read_episodes

pytest.importorskip("mujoco")

FEATURES = {"d_min": 1, "mu_v": -1, "M_v": -1, "mu_a": -1, "M_a": -1, "mu_j": -1, "M_j": -1}


def demo(folder: Path, *more: str) -> str:
    command = [sys.executable, "-m", "osma_monitor.cli.main", "demo", "--quick", "--out", str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder.resolve() / "report.html")
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "run"
    return folder, demo(folder, "--in-process")


def raw(path: Path) -> dict[str, Any]:
    """One stored episode by pyarrow and json alone."""
    table = pq.read_table(path)
    record = json.loads(table.schema.metadata[b"osma.record"])
    return {**record, "columns": {name: table[name].to_numpy() for name in table.column_names if name != "obstacle"}}


def number(value: Any) -> float:
    return float(value)  # infinities and NaN are stored as text


def features(columns: dict[str, Any]) -> dict[str, float]:
    """Distance, speed and acceleration features by the paper's formulas (jerk needs the filter)."""
    x, y, d = columns["base_x"], columns["base_y"], columns["obstacle_distance"]
    v = [math.hypot(x[t + 1] - x[t], y[t + 1] - y[t]) / 0.05 for t in range(len(x) - 1)]
    a = [
        math.hypot(x[t + 2] - 2 * x[t + 1] + x[t], y[t + 2] - 2 * y[t + 1] + y[t]) / 0.05**2 for t in range(len(x) - 2)
    ]
    out = {"d_min": 0.0 if columns["obstacle_contact"].any() else max(float(d.min()), 0.0)}
    for name, values in (("v", v), ("a", a)):
        ratios = [q / max(d[t], 0.05) for t, q in enumerate(values) if d[t] <= 1.25]
        out |= {f"mu_{name}": sum(ratios) / len(ratios), f"M_{name}": max(ratios)}
    return out


def recomputed(episodes: list[dict[str, Any]]) -> dict[str, float]:
    n = len(episodes)
    scored = [[c for c in e["clauses"] if c["scored"]] for e in episodes]
    unsafe = [any(number(c["upper"]) < 0 for c in clauses) for clauses in scored]
    won = [e["outcome"]["status"] == "success" for e in episodes]
    free = [w and not e["columns"]["obstacle_contact"].any() for w, e in zip(won, episodes, strict=True)]
    depth = [max((number(c["depth"]) for c in clauses), default=0.0) for clauses in scored]
    cells: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for e in episodes:
        for feature in FEATURES:
            value = number(e["motion"][feature])
            cells[feature][e["info"]["attributes"]["cell"]][e["info"]["attributes"]["tier"]].append(value)
    taus = []
    for feature, its in cells.items():
        found = [
            tau([float(np.mean(c[t])) for t in ("low", "moderate", "high")], FEATURES[feature]) for c in its.values()
        ]
        taus.append(float(np.mean([t for t in found if not math.isnan(t)])))
    return {
        "SR": sum(won) / n,
        "Safety": 1 - sum(unsafe) / n,
        "SBU": sum(w and u for w, u in zip(won, unsafe, strict=True)) / n,
        "VSI": sum(depth) / n,
        "TSR": sum(won) / n,
        "CFSR": sum(free) / n,
        "SSI": float(np.mean(taus)),
    }


def printed(out: str, policy: str) -> dict[str, tuple[str, str, int]]:
    block = out.split(f"{policy}\n{'=' * len(policy)}\n")[1].split("\n\n")[0]
    rows = re.findall(r"^(\S+)  +(\S+)(?: %)?  +(–|\S+ to \S+)  +(\d+)  (?:higher|lower)$", block, re.M)
    return {
        metric: (value.replace("−", "-"), interval.replace("−", "-"), int(n)) for metric, value, interval, n in rows
    }


def test_the_printed_tables_are_what_the_files_say(run: tuple[Path, str]) -> None:
    folder, out = run
    episodes = [raw(path) for path in sorted(folder.glob("*.parquet"))]
    ssi = {}
    for policy in ("cautious", "shortest_path"):
        mine = [e for e in episodes if e["info"]["policy"] == policy]
        expected, shown = recomputed(mine), printed(out, policy)
        for metric, value in expected.items():
            digits, scale = (3, 1) if metric in ("VSI", "SSI") else (1, 100)
            assert float(shown[metric][0]) == pytest.approx(scale * value, abs=0.51 * 10**-digits), (policy, metric)
            assert shown[metric][2] == len(mine) == 6
            if scale == 100:
                low, high = wilson(round(value * len(mine)), len(mine))
                assert shown[metric][1] == f"{100 * low:.1f} to {100 * high:.1f}"
        ssi[policy] = expected["SSI"]
    assert ssi["cautious"] > ssi["shortest_path"]


def test_the_stored_features_follow_from_the_stored_path(run: tuple[Path, str]) -> None:
    for path in sorted(run[0].glob("*.parquet")):
        episode = raw(path)
        for name, value in features(episode["columns"]).items():
            assert number(episode["motion"][name]) == pytest.approx(value, rel=1e-9), (path.name, name)


@pytest.mark.ros
@pytest.mark.long
def test_the_run_over_ros_equals_the_one_in_process(run: tuple[Path, str], tmp_path: Path) -> None:
    folder, out = run
    over_ros = demo(tmp_path / "ros")
    assert over_ros.rpartition("\n/")[0] == out.rpartition("\n/")[0]  # the tables, byte for byte
    sides = [{r.info.episode_id: r for r in read_episodes(path)} for path in (folder, tmp_path / "ros")]
    assert sides[0].keys() == sides[1].keys() and len(sides[0]) == 12
    for key, one in sides[0].items():
        other = sides[1][key]
        for field in fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            if field.name == "provenance":
                a, b = replace(a, session={}), replace(b, session={})
            assert same(a, b), (key, field.name)
