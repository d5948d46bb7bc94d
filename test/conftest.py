"""What every test shares: reproducible property tests, a ROS domain of one's own, no windows."""

import contextlib
import fcntl
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No .hypothesis folder, so that runs beside each other share nothing; the same examples on every machine.
hypothesis.settings.register_profile("stable", database=None, deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", database=None, deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "stable"))

os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of the nodes where ROS is not installed; on CI it must be, and they fail."""
    if importlib.util.find_spec("rclpy") or os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("ros"):
            item.add_marker(pytest.mark.skip(reason="needs rclpy: run with `make test`, or source ROS 2 Jazzy"))


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """Give the test a ROS domain that no other test on this machine uses now, and its own log folder.

    The environment variables are set for the test's process and for those that it starts.
    """
    with _free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "ros_log"))
        yield domain


@contextlib.contextmanager
def _free_domain() -> Iterator[int]:
    """Hold a lock file for a free domain id of 1 to 101, those whose ports lie below Linux's ephemeral ones."""
    folder = Path(tempfile.gettempdir()) / f"osma_monitor_domains_{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for offset in range(101):
        domain = 1 + (os.getpid() + offset) % 101
        with (folder / str(domain)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if not _in_use(domain):
                yield domain
                return
    raise RuntimeError(f"all ROS domains are in use; is a test still running? ({folder})")


def _in_use(domain: int) -> bool:
    """Say whether some process listens on a port that DDS gives to this domain (DDSI-RTPS 9.6.1.1)."""
    first = 7400 + 250 * domain
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        path = Path(table)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            if first <= int(line.split()[1].rpartition(":")[2], 16) < first + 250:
                return True
    return False
