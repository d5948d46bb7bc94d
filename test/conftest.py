"""What every test shares: reproducible property tests, a ROS domain of one's own, no windows."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from osma_monitor.ros.domain import reserve_domain

# No .hypothesis folder, so that runs beside each other share nothing; the same examples on every machine.
hypothesis.settings.register_profile("stable", database=None, deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", database=None, deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "stable"))

os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of the nodes a second run, or skip them where ROS is not installed; on CI it must be.

    On a loaded machine the discovery of processes among each other may take longer than a short episode lasts, and
    rcl has crashed where a test destroyed its node. What fails twice, fails; `rerun` in the summary names the others.
    """
    absent = not (importlib.util.find_spec("rclpy") or os.environ.get("CI"))
    skip = pytest.mark.skip(reason="needs rclpy: run with `make test`, or source ROS 2 Jazzy")
    again = pytest.mark.flaky(reruns=1, rerun_except="Timeout")  # the clock of the time limit runs once for both
    for item in items:
        if item.get_closest_marker("ros"):
            item.add_marker(skip if absent else again)


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """Give the test a ROS domain that no other test on this machine uses now, and its own log folder.

    The environment variables are set for the test's process and for those that it starts.
    """
    with reserve_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "ros_log"))
        yield domain
