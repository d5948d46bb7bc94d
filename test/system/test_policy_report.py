"""What a policy asked for, and that its pipeline broke, enter a record over ROS as in process."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from osma_monitor.core.signals.raw import same
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import read_episodes
from osma_monitor.ros.session import run_session
from sim_bridge.rollout import Job, PolicySpec, run_episode

pytestmark = pytest.mark.ros
KINEMATIC = Path(__file__).parent / "kinematic.py"


def test_requests_and_failures_are_those_of_a_run_in_process(tmp_path, kinematic_commands):
    sys.path.insert(0, str(KINEMATIC.parent))
    try:
        from kinematic import KinematicSimulation, ReportingPolicy
    finally:
        sys.path.pop(0)
    tasks, seeds = ["steps/1", "steps/30"], [2, 3]
    commands = {**kinematic_commands, "policy": [sys.executable, str(KINEMATIC), "reporting"]}
    both = {"commands": ["cmd_vel", "joint_command"]}
    result = run_session(tasks, ["reporting"], seeds, tmp_path / "run", bridge_parameters=both, commands=commands)
    assert result.episodes == 4 and not result.aborted
    simulation, policy = KinematicSimulation(), ReportingPolicy()
    config = monitor_config(source=simulation.provenance())
    expected = {}
    for task in tasks:
        for seed in seeds:
            job = Job(task, PolicySpec("reporting"), seed)
            expected[task, seed] = run_episode(simulation, policy, job, config)
    found = {(r.info.task, r.info.seed): r for r in read_episodes(tmp_path / "run")}
    assert found.keys() == expected.keys()
    for key, record in found.items():
        assert same(record.info.attributes, expected[key].info.attributes), key
        bare = [replace(r, provenance=replace(r.provenance, session={})) for r in (record, expected[key])]
        for f in fields(record):
            assert same(getattr(bare[0], f.name), getattr(bare[1], f.name)), (key, f.name)
    long = found["steps/30", 2]
    assert long.outcome.status == "success" and long.info.attributes["replans"] == "6"
    assert long.info.attributes["tier"] == "asked"
    broken = found["steps/30", 3]
    assert (broken.outcome.status, broken.outcome.reason) == ("failure", "pipeline error: no plan")
    assert len(broken.stamps_ns) == broken.outcome.steps == 12
