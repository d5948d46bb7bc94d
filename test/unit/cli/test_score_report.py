"""`osma score` and `osma report` on stored episodes: what is printed, where files go, what errors say."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_examples as synthetic

from osma_monitor.cli import episodes as episodes_module
from osma_monitor.cli.main import main
from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.monitor import EpisodeMonitor
from osma_monitor.core.signals.raw import Contacts, RawFrame
from osma_monitor.io.configuration import clause_library, keep_library, monitor_config
from osma_monitor.io.dataset import compact
from osma_monitor.io.sources import Findings
from osma_monitor.io.store import write_record
from osma_monitor.resources import config_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of two policies."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    for record in synthetic.study(seeds=(0,)):
        write_record(folder, record)
    return folder


def store(folder: Path, change: Callable[[EpisodeRecord], EpisodeRecord]) -> Path:
    for record in synthetic.study(seeds=(0,)):
        write_record(folder, change(record))
    return folder


def test_score_prints_the_main_tables(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run)]) == 0
    out = capsys.readouterr().out
    for title in (
        "Safety by suite and policy",
        "Violations by clause",
        "Semantic Sensitivity Index",
        "Navigation outcomes",
    ):
        assert title in out
    assert "Depth of unsafe successes" not in out
    assert main(["score", str(run), "--all"]) == 0
    assert "Depth of unsafe successes" in capsys.readouterr().out


def test_score_twice_gives_the_same_bytes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        assert main(["score", str(run), "--all"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_score_csv_is_one_table_of_full_precision(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run), "--format", "csv", "--by", "tier,policy"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(frame.tier.unique()) == ["high", "low", "moderate"] and set(frame.n) == {4}
    records = synthetic.study(seeds=(0,))
    for row in frame.itertuples():
        group = [r for r in records if (r.info.policy, r.info.attributes["tier"]) == (row.policy, row.tier)]
        assert row.safety == sum(r.safety == "safe" for r in group) / len(group)
        assert row.vsi == pytest.approx(sum(r.depth for r in group) / len(group))


def test_score_of_a_data_set_reads_columns_and_prints_what_its_records_give(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    compact(run, data)
    words = [[str(data), "--all"], [str(data), "--by", "tier,policy", "--fail-on-violation", "--format", "csv"]]

    def printed() -> list[tuple[int, str]]:
        return [(main(["score", *given]), capsys.readouterr().out) for given in words]

    with monkeypatch.context() as patch:
        patch.setattr("osma_monitor.cli.episodes._columns_of", lambda *given: None)
        expected = printed()
    # nothing may go record by record now
    monkeypatch.setattr("osma_monitor.cli.episodes._records", lambda *given: pytest.fail("read record by record"))
    assert printed() == expected
    assert [code for code, _ in expected] == [0, 1]


def halves(run: Path, folder: Path) -> tuple[Path, Path, Path]:
    """The run's episodes as two data sets and three loose files."""
    files = sorted(run.glob("*.parquet"))
    for name, some in (("a", files[::2]), ("b", files[1:-3:2]), ("loose", files[-3:][1 - len(files) % 2 :])):
        (folder / f"{name}_run").mkdir(parents=True)
        for file in some:
            shutil.copy(file, folder / f"{name}_run")
        if name != "loose":
            compact(folder / f"{name}_run", folder / name)
    return folder / "a", folder / "b", folder / "loose_run"


def test_several_data_sets_and_loose_episodes_go_together_column_by_column(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, loose = halves(run, tmp_path)
    orders = [[first, second], [first, loose, second], [loose, first], [first, second, loose]]
    monkeypatch.setattr("osma_monitor.cli.episodes._labels", lambda paths: {})

    def printed(paths: list[Path], workers: int = 1) -> str:
        words = ["score", *map(str, paths), "--all", "--workers", str(workers)]
        assert main(words) == 0
        return capsys.readouterr().out

    for paths in orders:
        with monkeypatch.context() as patch:
            patch.setattr("osma_monitor.cli.episodes._columns_of", lambda *given: None)
            expected = printed(paths)
        read: list[int] = []
        with monkeypatch.context() as patch:
            real = episodes_module._records
            patch.setattr(
                "osma_monitor.cli.episodes._records",
                lambda sources, *rest, real=real, read=read: (read.append(1) or r for r in real(sources, *rest)),
            )
            for workers in (1, 2, 3):
                assert printed(paths, workers) == expected
        # data sets make no record for an episode
        assert len(read) == 3 * len(list(loose.glob("*.parquet"))) * (loose in paths)


def test_data_sets_of_one_policy_are_told_apart(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _ = halves(run, tmp_path)
    assert main(["score", str(first), str(second), "--table", "summary", "--format", "csv"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert {name.split(" ")[1] for name in frame.policy} == {"(a)", "(b)"}
    assert frame.n.sum() == len(list(first.parent.glob("[ab]_run/*.parquet")))


def test_a_damaged_data_set_is_said_and_the_others_are_scored(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = halves(run, tmp_path)
    victim = next(second.glob("steps/*.parquet"))
    victim.write_bytes(victim.read_bytes()[:100])
    assert main(["score", str(first), str(second), "--table", "outcomes", "--format", "csv"]) == 2
    told = capsys.readouterr()
    assert pd.read_csv(io.StringIO(told.out)).n.sum() == len(list((tmp_path / "a_run").glob("*.parquet")))
    assert victim.name in told.err and len(told.err.splitlines()) == 1


def test_score_picks_tables_and_writes_files(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run), "--format", "latex", "--table", "ssi,paired"]) == 0
    out = capsys.readouterr().out
    assert out.count(r"\begin{table}") == 2 and r"\label{tab:ssi}" in out
    assert main(["score", str(run), "--format", "markdown", "--out", str(tmp_path / "tables")]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert {"summary.md", "clauses.md", "depth_mix.md", "inactive.md"} <= {p.name for p in paths}
    assert all(p.read_text().startswith("### ") for p in paths)


def test_score_writes_preference_pairs(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.jsonl"
    assert main(["score", str(run), "--table", "summary", "--preferences", str(path)]) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    won = [r for r in synthetic.study(seeds=(0,)) if r.outcome.success]
    unsafe = {r.info.episode_id: r.info.task for r in won if r.safety == "unsafe"}
    safe = {r.info.task for r in won if r.safety == "safe"}
    assert sorted(row["rejected"] for row in rows) == sorted(e for e, task in unsafe.items() if task in safe)
    assert f"{len(rows)} preference pairs" in capsys.readouterr().err


def test_pairs_of_a_state_that_the_seed_does_not_tell_are_doubted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_seed(record: EpisodeRecord) -> EpisodeRecord:
        return replace(record, info=replace(record.info, task="kitchen"))

    pairs = ["--table", "summary", "--preferences", str(tmp_path / "pairs.jsonl")]
    assert main(["score", str(store(tmp_path / "run", without_seed)), *pairs]) == 0
    assert "the seed stands for the initial state; 2 of 2 hold several" in capsys.readouterr().err
    assert main(["score", str(run), *pairs]) == 0
    assert "initial state" not in capsys.readouterr().err


def test_score_can_fail_on_a_violation(run: Path, tmp_path: Path) -> None:
    assert main(["score", str(run), "--fail-on-violation", "--table", "summary"]) == 1
    safe = store(
        tmp_path / "safe",
        lambda r: replace(
            r,
            clauses=tuple(replace(c, lower=1.0, upper=1.0, rho=1.0, depth=0.0, status="satisfied") for c in r.clauses),
        ),
    )
    assert main(["score", str(safe), "--fail-on-violation", "--table", "summary"]) == 0


def test_a_compacted_data_set_gives_the_same_tables(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compact([run], tmp_path / "set")
    assert main(["score", str(run), "--all"]) == 0
    expected = capsys.readouterr().out
    assert main(["score", str(tmp_path / "set"), "--all"]) == 0
    assert capsys.readouterr().out == expected


def by_the_shipped_library(record: EpisodeRecord) -> EpisodeRecord:
    library = clause_library()
    result = replace(record.clauses[0], family=library["max_contact_force_under_200N"].family)
    return replace(record, clauses=(result,), provenance=replace(record.provenance, library_hash=library.hash))


def test_other_thresholds_come_from_stored_signals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "run", by_the_shipped_library)
    assert main(["score", str(folder), "--format", "csv", "--table", "sensitivity"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("variant")
    forces = {r.info.episode_id: r.signals["contact_force_max"].max() for r in synthetic.study(seeds=(0,))}
    for variant, limit in (("default", 200.0), ("force 100 N", 100.0), ("force 500 N", 500.0)):
        kept = sum(force <= limit for force in forces.values()) / len(forces)
        assert frame.loc[variant].safety == pytest.approx(kept), variant


def test_a_compacted_data_set_keeps_the_library_that_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(config_path("safety", "library.yaml").read_text().replace("threshold: 0.02", "threshold: 0.021"))
    judged = clause_library(own).hash

    def by_its_own_library(record: EpisodeRecord) -> EpisodeRecord:
        record = by_the_shipped_library(record)
        return replace(record, provenance=replace(record.provenance, library_hash=judged))

    assert judged != clause_library().hash
    folder = store(tmp_path / "run", by_its_own_library)
    keep_library(folder, own)
    compact([folder], tmp_path / "set")
    compact([tmp_path / "set"], tmp_path / "again")
    printed = []
    for source in ("run", "set", "again"):
        assert main(["score", str(tmp_path / source), "--table", "sensitivity,rankings"]) == 0
        printed.append(capsys.readouterr().out)
    assert "force 500 N" in printed[0] and printed == [printed[0]] * 3


def test_another_library_judges_stored_episodes_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clause, shipped = "max_contact_force_under_200N", clause_library()
    folder = tmp_path / "run"
    monitor = EpisodeMonitor(EpisodeInfo("pushed", policy="p", sources=("contacts",)), monitor_config())
    for step in range(5):
        force = np.array([[150.0, 0.0, 0.0]])
        contacts = Contacts(("arm",), ("vase",), ("arm",), ("obstacle",), force)
        monitor.update(RawFrame(10**9 + step * 50_000_000, contacts=contacts))
    write_record(folder, monitor.close(Outcome("success")))
    text = (config_path("safety", "library.yaml")).read_text()
    own = tmp_path / "own.yaml"
    before, after = text.split(f"  {clause}:\n")
    own.write_text(f"{before}  {clause}:\n" + after.replace("threshold: 200", "threshold: 100", 1))
    broken = {}
    for words in ([], ["--library", str(own)], ["--library", str(own), "--rejudge"]):
        assert main(["score", str(folder), "--table", "clauses", "--format", "csv", *words]) == 0
        told = capsys.readouterr()
        frame = pd.read_csv(io.StringIO(told.out)).set_index("clause")
        broken[len(words)] = (int(frame.loc[clause].n_violated), frame.loc[clause].library_hash == shipped.hash)
        assert ("not used" in told.err) == (len(words) == 2)
    assert broken == {0: (0, True), 2: (0, True), 3: (1, False)}


def test_a_family_of_ones_own_is_judged_by_ones_own_rules(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, rules = tmp_path / "library.yaml", tmp_path / "registry.yaml"
    for path in (library, rules):
        text = config_path("safety", path.name).read_text()
        path.write_text(
            text.replace("family: max_contact_force", "family: mine").replace("  max_contact_force:", "  mine:")
        )
    words = ["score", str(run), "--table", "clauses", "--rejudge", "--library", str(library)]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "family mine" in told and "name a registry that has one" in told and "not used" not in told
    assert "no scored clause is active" not in told
    assert main([*words, "--rules", str(rules)]) == 0
    assert "no rule" not in capsys.readouterr().err
    assert main(["score", str(run), "--table", "clauses", "--rules", str(rules)]) == 0
    assert f"--rules {rules}: not used" in capsys.readouterr().err


def test_a_run_given_twice_counts_once(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run)]) == 0
    expected = capsys.readouterr().out
    assert main(["score", str(run), str(run)]) == 0
    told = capsys.readouterr()
    assert told.out == expected and f"{run} is given twice" in told.err
    assert main(["compact", str(run), str(run / "."), "--out", str(tmp_path / "set")]) == 0
    count = len(list(synthetic.study(seeds=(0,))))
    assert f"set: {count} episodes" in capsys.readouterr().out
    assert main(["report", str(run), str(run), "--out", str(tmp_path / "page")]) == 0
    assert f"{run} is given twice" in capsys.readouterr().err
    assert f"n = {count} episodes" in (tmp_path / "page" / "report.html").read_text()


def test_copies_of_an_episode_are_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    first, second = sorted(folder.glob("*.parquet"))[:2]
    for name in ("copy-1", "copy-2"):
        shutil.copy(first, folder / f"{name}.parquet")
    shutil.copy(second, folder / "copy-3.parquet")
    assert main(["score", str(folder), "--table", "summary"]) == 0
    assert "3 of the episodes repeat one of the same id" in capsys.readouterr().err
    assert main(["score", str(run), "--table", "summary"]) == 0
    assert "repeat" not in capsys.readouterr().err


def test_a_table_that_needs_more_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "run", lambda record: record)  # judged by a library that nobody has
    assert main(["score", str(folder), "--table", "sensitivity"]) == 2
    assert "only episodes of one library at hand (--library)" in capsys.readouterr().err
    assert main(["score", str(folder), "--table", "structural"]) == 2
    assert "needs three policies" in capsys.readouterr().err


def test_other_gates_do_not_judge_stored_episodes_and_that_is_said(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(run), "--gates", "quantitative", "--table", "summary"]) == 0
    told = capsys.readouterr()
    assert "Gates boolean" in told.out
    assert "--gates quantitative: not used, these episodes are judged already; --rejudge does it anew" in told.err
    assert main(["score", str(run), "--gates", "boolean", "--table", "summary"]) == 0
    assert "not used" not in capsys.readouterr().err


def test_a_source_without_an_episode_takes_no_table_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compact(store(tmp_path / "run", by_the_shipped_library), tmp_path / "set")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "x.parquet").write_bytes(b"PAR1 and no more")
    assert main(["score", str(tmp_path / "set"), "--table", "sensitivity"]) == 0
    expected = capsys.readouterr().out
    assert main(["score", str(tmp_path / "set"), str(broken), "--table", "sensitivity"]) == 2
    told = capsys.readouterr()
    assert told.out == expected and "force 100 N" in expected and "x.parquet" in told.err


def test_what_a_table_is_not_grouped_by_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run), "--by", "task,policy", "--table", "summary,ssi"]) == 0
    summary, ssi = capsys.readouterr().out.split("Semantic Sensitivity Index")
    assert "not grouped by task" in ssi and "not grouped by" not in summary


def test_csv_says_that_there_are_more_tables(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run), "--format", "csv"]) == 0
    assert "CSV prints one table, here summary" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["score", "RUN", "--map", "none.yaml"], "--map none.yaml: no such file"),
        (["score", "nowhere"], "nowhere: no such file or folder"),
        (["score", "."], "neither run, bag nor data set"),
        (["score", "RUN", "--gates", "fuzzy"], "--gates fuzzy: expected one of boolean, quantitative"),
        (["score", "RUN", "--format", "xml"], "--format xml: expected one of text, csv, markdown, latex"),
        (["score", "RUN", "--scheduler", "nonsense://"], "no Dask scheduler answers there"),
        (["score", "RUN", "--by", "colour"], "no episode has a column 'colour'; there are"),
        (["score", "RUN", "--table", "nothing"], "--table nothing: these episodes give summary,"),
        (["score", "RUN", "--format", "csv", "--table", "ssi", "--table", "paired"], "prints one table"),
        (["report", "RUN", "--figures", "gif", "--out", "OUT"], "choose one of pdf, svg, png"),
        (["report", "RUN", "--library", "none.yaml"], "none.yaml"),
    ],
)
def test_errors_are_one_line_with_the_next_step(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"RUN": str(run), "OUT": str(tmp_path / "out")}
    assert main([known.get(word, word) for word in words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0]


def test_a_damaged_file_is_said_and_the_rest_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "run", lambda r: r)
    victim = sorted(folder.glob("*.parquet"))[0]
    victim.write_bytes(victim.read_bytes()[:200])
    assert main(["score", str(folder), "--table", "outcomes", "--format", "csv"]) == 2
    told = capsys.readouterr()
    assert pd.read_csv(io.StringIO(told.out)).n.sum() == len(synthetic.study(seeds=(0,))) - 1
    assert len(told.err.splitlines()) == 1 and victim.name in told.err


def test_findings_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert episodes_module.told(Findings(["bag \x1b[31m\nred"], ["fine"]))
    assert capsys.readouterr().err == "osma: fine\nosma: bag ?[31m red\n"


def test_episodes_without_a_scored_clause_get_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "run", lambda r: replace(r, clauses=()))
    assert main(["score", str(folder)]) == 0
    assert "--table inactive says why" in capsys.readouterr().err


def test_report_writes_page_tables_and_figures(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(run), "--out", str(tmp_path), "--tables", "csv", "--figures", "svg", "--title", "A & B"]
    assert main(words) == 0
    page = Path(capsys.readouterr().out.splitlines()[-1])
    assert page == tmp_path / "report.html" and "<title>A &amp; B</title>" in page.read_text()
    assert (tmp_path / "tables" / "summary.csv").is_file() and (tmp_path / "figures" / "outcomes.svg").is_file()


def test_the_page_of_a_file_bears_its_name_and_goes_into_the_working_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings, here = tmp_path / "recordings", tmp_path / "here"
    recordings.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    files = sorted(run.glob("*.parquet"))[:2]
    for name, file in zip(("one", "two"), files, strict=True):
        shutil.copy(file, recordings / f"{name}.parquet")
        assert main(["report", str(recordings / f"{name}.parquet"), "--tables", "csv"]) == 0
        captured = capsys.readouterr()
        assert captured.out.strip() == str(here / f"{name}.report.html") and "replaced" not in captured.err
    assert sorted(p.name for p in recordings.iterdir()) == ["one.parquet", "two.parquet"]
    assert sorted(p.name for p in here.iterdir()) == [
        "one.report.html", "one.tables", "two.report.html", "two.tables"
    ]  # fmt: skip
    assert main(["report", str(recordings / "one.parquet")]) == 0
    assert "one.report.html: an earlier report, replaced" in capsys.readouterr().err


def test_what_is_no_report_of_ours_is_left_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "report.html"
    mine.write_text("<p>my own notes</p>")
    assert main(["report", str(run), "--out", str(tmp_path)]) == 2
    assert "report.html: is there and is no report of osma" in capsys.readouterr().err
    assert mine.read_text() == "<p>my own notes</p>"


def test_report_goes_into_the_run_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "run", lambda r: r)
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")


def test_two_runs_of_one_policy_are_compared_in_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def only(policy: str) -> Callable[[EpisodeRecord], EpisodeRecord]:
        return lambda r: replace(r, info=replace(r.info, policy="mine", episode_id=r.info.episode_id))

    runs = []
    for name, policy in (("before", "shortest_path"), ("after", "cautious")):
        folder = tmp_path / name
        for record in synthetic.study(seeds=(0,)):
            if record.info.policy == policy:
                write_record(folder, only(policy)(record))
        runs.append(str(folder))
    assert main(["score", *runs, "--table", "summary", "--table", "paired"]) == 0
    out = capsys.readouterr().out
    assert "mine (before)" in out and "mine (after)" in out
    assert "12" in out.split("on the same tasks and seeds")[1]
