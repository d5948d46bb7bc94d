"""episode_scorer gives the numbers that the report functions give for the same folder."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy")

import pandas as pd
from osma_monitor.srv import ScoreRun

from osma_monitor.io.store import read_episodes
from osma_monitor.ros.session import run_session

pytestmark = pytest.mark.ros


def ask(observer, **fields):
    client = observer.node.create_client(ScoreRun, "episode_scorer/score")
    observer.until(client.service_is_ready, "the service")
    future = client.call_async(ScoreRun.Request(**fields))
    observer.until(future.done, "the tables", 60)
    return future.result()


def test_tables_on_request(nodes, observer, tmp_path, kinematic_commands):
    run_session(["steps/60", "steps/80"], ["chase"], [0, 1], tmp_path / "run", commands=kinematic_commands)
    nodes.start("episode_scorer", folder=tmp_path / "run")
    response = ask(observer)
    assert response.success and response.episodes == 4, response.message
    table = pd.read_csv(next(f for f in response.files if f.endswith("summary.csv")))
    records = list(read_episodes(tmp_path / "run"))
    unsafe = sum(r.safety == "unsafe" for r in records) / len(records)
    assert table["n"].tolist() == [4]
    assert table["sr"].tolist() == [1.0]
    assert table["safety"].tolist() == [pytest.approx(1.0 - unsafe)]
    assert "chase" in response.text


def test_an_empty_folder_is_said(nodes, observer, tmp_path):
    (tmp_path / "run").mkdir()
    nodes.start("episode_scorer", folder=tmp_path / "run")
    response = ask(observer)
    assert not response.success and "no finished episode yet" in response.message
