"""TSR and CFSR divide by what was planned: what did not run, was aborted or has no outcome is no success."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import report_examples as synthetic

from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.io.dataset import compact
from osma_monitor.io.store import write_record, write_run

POLICY = "cautious"
TASKS = [f"kitchen/layout0/{route}/{o}" for route in ("A", "D", "E") for its in synthetic.TIERS.values() for o in its]


def won(record: EpisodeRecord) -> EpisodeRecord:
    still = {**record.signals, "obstacle_contact": 0.0 * record.stamps_ns}
    return replace(record, outcome=Outcome("success"), signals=still)


def ends(status: str) -> Callable[[EpisodeRecord], EpisodeRecord]:
    return lambda record: replace(won(record), outcome=Outcome(status))  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """18 tasks planned for two policies. Of one: 9 won, 1 without an outcome, 1 aborted, 7 not run; the other never."""
    write_run(tmp_path / "run", {"plan": {"tasks": TASKS, "policies": [POLICY, "later"], "seeds": [0]}})
    records = [r for r in synthetic.study(seeds=(0,)) if r.info.policy == POLICY]
    changes = [ends("unknown"), ends("aborted"), *[won] * 9]
    for record, change in zip(records, changes, strict=False):
        record = change(record)
        place = {"layout": "0", "cell": record.info.attributes["cell"]}
        write_record(tmp_path / "run", replace(record, info=record.info.with_attributes(place)))
    return tmp_path / "run"


def table(paths: list[Path], key: str, capsys: pytest.CaptureFixture[str]) -> pd.DataFrame:
    assert main(["score", *map(str, paths), "--format", "csv", "--table", key]) == 0
    return pd.read_csv(io.StringIO(capsys.readouterr().out))


def test_rates_divide_by_the_plan(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = table([run], "navigation", capsys).itertuples()
    assert (row.policy, row.n, row.n_unknown, row.n_aborted) == (POLICY, 18, 9, 1)
    assert row.tsr == row.cfsr == 9 / 18
    assert row.cfsr_over_tsr == 1.0
    assert main(["score", str(run), "--table", "navigation"]) == 0
    said = capsys.readouterr().out
    assert "TSR and CFSR divide by the planned tasks" in said and "without an episode: later." in said


def test_what_did_not_run_is_placed_by_its_task(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    routes = table([run], "navigation_route", capsys).set_index("route")
    assert routes.n.to_dict() == {"A": 6, "D": 6, "E": 6} and routes.tsr["E"] == 0.0
    assert routes.tsr.sum() * 6 == pytest.approx(9)
    assert table([run], "navigation_tier", capsys).n.tolist() == [6, 6, 6]


def test_the_page_and_a_data_set_say_the_same(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page"), "--tables", "csv"]) == 0
    capsys.readouterr()
    expected = table([run], "navigation", capsys)
    assert pd.read_csv(tmp_path / "page" / "tables" / "navigation.csv").equals(expected)
    page = " ".join((tmp_path / "page" / "report.html").read_text().split())
    assert "<b>50.0 %</b>" in page.split("<h3>TSR</h3>")[1].split("<h3>")[0]
    compact(run, tmp_path / "set")
    assert table([tmp_path / "set"], "navigation", capsys).equals(expected)


def test_runs_with_and_without_a_plan_stand_side_by_side(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    for record in synthetic.study(seeds=(0,))[:3]:
        write_record(bare, replace(won(record), info=replace(record.info, policy="bare")))
    found = table([run, bare], "navigation", capsys).set_index("policy")
    assert (found.n[POLICY], found.n["bare"]) == (18, 3)
    assert main(["score", str(run), str(bare), "--table", "navigation"]) == 0
    assert "no plan is known of bare, whose rates divide by the tasks of known outcome" in capsys.readouterr().out
    assert main(["score", str(bare), "--table", "navigation"]) == 0
    assert "No plan is known: TSR and CFSR divide by the tasks whose outcome is known." in capsys.readouterr().out


def test_two_runs_of_one_policy_keep_their_own_plans(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    write_run(again, {"plan": {"tasks": TASKS[:4], "policies": [POLICY], "seeds": [0]}})
    for record in synthetic.study(seeds=(0,)):
        if record.info.policy == POLICY and record.info.task in TASKS[:2]:
            write_record(again, won(record))
    found = table([run, again], "navigation", capsys).set_index("policy")
    assert found.n.to_dict() == {f"{POLICY} (again)": 4, f"{POLICY} (run)": 18}
    assert found.tsr[f"{POLICY} (again)"] == 0.5


def test_a_run_of_another_host_is_no_navigation_that_never_ran(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = tmp_path / "arm"
    write_run(arm, {"plan": {"tasks": ["so101/pick_cube", "so101/pick_place"], "policies": ["act"], "seeds": [0]}})
    first = synthetic.study(seeds=(0,))[0]
    info = replace(first.info, policy="act", suite="so101", task="so101/pick_cube", attributes={})
    write_record(arm, replace(first, info=info))
    assert main(["score", str(run), str(arm), "--table", "navigation"]) == 0
    assert "Planned, but without an episode: later." in capsys.readouterr().out
