"""The plans of runs: read from run folders, carried into data sets, absent or damaged without harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osma_monitor.core.metrics.navigation_episode import PlannedTask
from osma_monitor.io import dataset, store
from osma_monitor.io.plans import planned

from .io_examples import make_record

PLAN = {"tasks": ["t1", "t2"], "policies": ["p"], "seeds": [0, 3], "over": "in-process"}
TASKS = {PlannedTask("p", task, seed) for task in ("t1", "t2") for seed in (0, 3)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store.write_record(tmp_path / "run", make_record(0, 3))
    store.write_run(tmp_path / "run", {"plan": PLAN})
    return tmp_path / "run"


def test_a_run_has_its_plan(run: Path) -> None:
    assert set(planned(run)) == TASKS and len(planned(run)) == 4


def test_data_sets_keep_the_plans_of_their_runs(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    store.write_record(other, make_record(0, 3))
    store.write_run(other, {"plan": PLAN | {"policies": ["q"], "seeds": [1]}})
    unplanned = tmp_path / "unplanned"
    store.write_record(unplanned, make_record(0, 3))
    dataset.compact([run, unplanned], tmp_path / "one")
    assert set(planned(tmp_path / "one")) == TASKS
    dataset.compact([tmp_path / "one", other], tmp_path / "two")
    assert set(planned(tmp_path / "two")) == TASKS | {PlannedTask("q", task, 1) for task in ("t1", "t2")}
    dataset.compact(unplanned, tmp_path / "none")
    assert planned(tmp_path / "none") == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan": 3}', '{"plan": {"tasks": ["t"]}}', '{"plan": null}'])
def test_a_plan_that_cannot_be_read_is_none(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    assert planned(run) == ()


def test_where_there_is_no_run_there_is_no_plan(tmp_path: Path) -> None:
    assert planned(tmp_path / "nowhere") == planned(tmp_path) == ()
    (tmp_path / "dataset.json").write_text(json.dumps({"plans": [PLAN, {"tasks": 1}]}))
    assert planned(tmp_path) == ()
