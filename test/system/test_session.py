"""run_session: the processes behind `osma demo`, their progress, and what it says when one dies."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from osma_monitor.core.errors import UserError
from osma_monitor.io.store import read_episodes
from osma_monitor.ros.session import SessionError, run_session

pytestmark = pytest.mark.ros
KINEMATIC = Path(__file__).parent / "kinematic.py"


def test_it_runs_every_task_seed_and_policy_and_says_where_it_is(tmp_path, kinematic_commands):
    seen = []
    result = run_session(
        ["steps/20", "steps/30"], ["a", "b"], [0, 1], tmp_path / "run", seen.append, commands=kinematic_commands
    )
    records = list(read_episodes(tmp_path / "run"))
    assert {(r.info.policy, r.info.task, r.info.seed) for r in records} == {
        (p, t, s) for p in "ab" for t in ("steps/20", "steps/30") for s in (0, 1)
    }
    assert result.episodes == len(records) == 8 and not result.aborted
    assert [p.number for p in seen if p.event == "episode"] == list(range(1, 9))
    assert [p.finished for p in seen if p.event == "end"] == list(range(1, 9))
    assert seen[-1].total == 8
    assert result.violations == seen[-1].violations == sum(p.event == "violation" for p in seen)


@pytest.mark.parametrize("topics", [["cmd_vel"], ["cmd_vel", "joint_command"]])
def test_commands_arrive_to_the_last_bit_on_one_topic_or_two(tmp_path, kinematic_commands, topics):
    sys.path.insert(0, str(KINEMATIC.parent))
    try:
        from kinematic import ChasePolicy, KinematicSimulation
    finally:
        sys.path.pop(0)
    run_session(
        ["steps/50"],
        ["a"],
        [3],
        tmp_path / "run",
        bridge_parameters={"commands": topics},
        commands=kinematic_commands,
    )
    simulation, policy = KinematicSimulation(), ChasePolicy()
    frame = simulation.reset("steps/50", 3)
    policy.reset(simulation.info())
    expected = [frame.base.position[0]]
    while simulation.outcome() is None:
        action = policy.act(frame)
        frame = simulation.step(action if "joint_command" in topics else replace(action, joints=()))
        expected.append(frame.base.position[0])
    [record] = read_episodes(tmp_path / "run")
    assert record.signals["base_x"].tolist() == expected


def test_two_sessions_at_once_do_not_meet(tmp_path, kinematic_commands):
    results = {}

    def run(name):
        results[name] = run_session(["steps/200"], [name], [0], tmp_path / name, commands=kinematic_commands)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        [record] = read_episodes(tmp_path / name)
        assert record.info.policy == name and len(record.stamps_ns) == 201 and not record.partial


def test_a_process_that_cannot_start_is_named_with_its_last_words(tmp_path, kinematic_commands):
    broken = {**kinematic_commands, "policy": [sys.executable, "-c", "import sys; sys.exit('no camera found')"]}
    with pytest.raises(SessionError, match=r"policy ended with exit code 1: no camera found"):
        run_session(
            ["steps/20"], ["a"], [0], tmp_path / "run", bridge_parameters={"startup_limit": 1.0}, commands=broken
        )


def test_a_wrong_task_is_the_bridges_error(tmp_path, kinematic_commands):
    with pytest.raises(SessionError, match="unknown task 'nonsense'"):
        run_session(["nonsense"], ["a"], [0], tmp_path / "run", commands=kinematic_commands)


def test_a_policy_that_dies_is_named_and_its_episode_listed_as_aborted(tmp_path, kinematic_commands):
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(KINEMATIC.parent)!r})\n"
        "import os, kinematic\n"
        "class Dying(kinematic.ChasePolicy):\n"
        "    steps = 0\n"
        "    def act(self, frame):\n"
        "        self.steps += 1\n"
        "        if self.steps == 40: os.kill(os.getpid(), 9)\n"
        "        return super().act(frame)\n"
        "kinematic.ChasePolicy = Dying\n"
        "sys.argv.insert(1, 'policy')\n"
        "sys.exit(kinematic.main())\n"
    )
    started = time.monotonic()
    with pytest.raises(SessionError, match="policy was ended by SIGKILL"):
        run_session(
            ["steps/100", "steps/100"],
            ["a"],
            [0],
            tmp_path / "run",
            bridge_parameters={"silence_limit": 1.0, "resend_after": 0.5},
            commands={**kinematic_commands, "policy": [sys.executable, str(dying)]},
        )
    assert time.monotonic() - started < 20
    [record] = read_episodes(tmp_path / "run")
    assert record.outcome.status == "aborted" and len(record.stamps_ns) == 40


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path, kinematic_commands):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match="choose another output folder"):
        run_session(["steps/20"], ["a"], [0], tmp_path / "run", commands=kinematic_commands)
