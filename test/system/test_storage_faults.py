"""Disks that are full, read-only, forbidden or absent: monitoring goes on, the cause is named, the finished stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from driving import of, values
from osma_monitor.msg import ClauseStatus, EpisodeSummary

from osma_monitor.io.store import read_episodes
from osma_monitor.ros import topics

pytestmark = pytest.mark.ros
ERROR = 2


class Logged:
    """A monitor that logs into ``folder``, and what it says of it."""

    def __init__(self, base, observer, nodes, folder, prefix=(), **parameters):
        self.base, self.observer, self.folder = base, observer, folder
        self.status = observer.listen(ClauseStatus, of(topics.STATUS))
        self.summaries = observer.listen(EpisodeSummary, of(topics.SUMMARY), topics.latched(10))
        self.diagnostics = observer.listen(DiagnosticArray, topics.DIAGNOSTICS)
        command = [*prefix, sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args"]
        for name, value in {"episode_log": folder, **parameters}.items():
            command += ["-p", f"{name}:={value}"]
        self.monitor = nodes.run(command, "safety_monitor")
        observer.until(
            lambda: base.odometry.get_subscription_count() and base.objects.get_subscription_count(),
            "the monitor",
            30,
            self.monitor,
        )

    def log(self):
        return values(self.diagnostics, "episode log") or (0, "", {})

    def names(self, *texts):
        """The diagnostics name the cause, as an error."""
        self.base.until(
            lambda: self.log()[0] == ERROR and all(text in self.log()[1] for text in texts),
            f"an error that names {texts}",
            self.base.send,
            self.monitor,
        )

    def goes_on(self, frames=20):
        seen = len(self.status)
        self.base.until(lambda: len(self.status) > seen + frames, "more frames", self.base.send, self.monitor)

    def recovers(self):
        self.base.until(lambda: self.log()[0] < ERROR, "no error any more", self.base.send, self.monitor)

    def begin(self, name):
        self.base.start(episode_id=name)
        self.base.until(
            lambda: self.status and self.status[-1].episode_id == name, f"{name} runs", self.base.send, self.monitor
        )

    def end(self, name):
        """The summary of the running episode."""
        self.base.end(episode_id=name)
        found = lambda: [s for s in self.summaries if s.episode_id == name]  # noqa: E731
        return self.base.observer.until(found, f"the summary of {name}", 20, self.monitor)[0]

    def stored(self):
        return {r.info.episode_id: r for r in read_episodes(self.folder)}


@pytest.fixture
def start(base, observer, nodes):
    return lambda folder, **more: Logged(base, observer, nodes, folder, **more)


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, which can be filled and made read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs leave to mount a tmpfs (root)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk):
    """A file that leaves nothing free."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"0" * size)
    return ballast


def test_a_folder_that_cannot_be_is_named_before_the_first_episode(start):
    logged = start("/proc/osma_monitor/run")
    logged.observer.until(lambda: logged.log()[0] == ERROR, "an error at once", 10, logged.monitor)
    assert "/proc/osma_monitor" in logged.log()[1] and "No such file or directory" in logged.log()[1]
    logged.begin("one")
    logged.goes_on()
    summary = logged.end("one")
    assert not summary.stored and "/proc/osma_monitor" in summary.error and summary.safety == EpisodeSummary.SAFE
    assert logged.monitor.stop() == 0


def test_a_full_disk_loses_nothing_that_is_finished_and_the_log_goes_on_when_there_is_room(start, disk):
    logged = start(disk, log_segment=0.01)
    logged.begin("one")
    logged.goes_on()
    assert logged.end("one").stored
    logged.begin("two")
    logged.goes_on()
    ballast = fill(disk)
    logged.names("No space left on device")
    assert logged.log()[2]["free"] == "0 MB"
    logged.goes_on()
    assert set(logged.stored()) == {"one"}
    ballast.unlink()
    logged.recovers()
    assert "episodes are logged again" in logged.monitor.output
    ballast = fill(disk)
    logged.names("No space left on device")
    summary = logged.end("two")
    assert not summary.stored and "No space left on device" in summary.error
    ballast.unlink()
    logged.begin("three")
    logged.goes_on()
    assert logged.end("three").stored and logged.monitor.stop() == 0
    records = logged.stored()
    assert {"one", "three"} <= set(records) and all(r.complete for r in records.values())
    # what reached the disk of the second one is recovered at the next start
    again = start(disk)
    again.observer.until(lambda: "'two' did not end" in again.monitor.output, "its recovery", 20, again.monitor)
    assert set(again.stored()) == {"one", "two", "three"} and not again.stored()["two"].complete


def test_a_disk_that_turns_read_only_and_back(start, disk):
    def remount(how):
        subprocess.run(["mount", "-o", f"remount,{how},size=400k", str(disk)], check=True, capture_output=True)

    logged = start(disk, log_segment=0.01)
    logged.begin("one")
    logged.goes_on()
    assert logged.end("one").stored
    # a mount with open files refuses to turn read-only, as a disk that breaks does not
    remount("ro")
    logged.begin("two")
    logged.names("Read-only file system")
    logged.goes_on()
    summary = logged.end("two")
    assert not summary.stored and "Read-only file system" in summary.error
    assert set(logged.stored()) == {"one"}
    remount("rw")
    logged.begin("three")
    logged.goes_on()
    assert logged.end("three").stored
    logged.recovers()
    assert set(logged.stored()) == {"one", "three"} and logged.monitor.stop() == 0


def test_a_folder_without_permission(start, tmp_path):
    """Root may write everywhere: there the monitor runs as a user who owns its files and has no such right."""
    folder = tmp_path / "run"
    folder.mkdir()
    prefix = []
    if os.geteuid() == 0:
        prefix = ["unshare", "--user"]
        if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
            pytest.skip("needs leave to make a user namespace")
    folder.chmod(0o555)
    try:
        logged = start(folder, prefix=prefix)
        logged.observer.until(lambda: logged.log()[0] == ERROR, "an error at once", 10, logged.monitor)
        assert "Permission denied" in logged.log()[1] and str(folder) in logged.log()[1]
        logged.begin("one")
        logged.goes_on()
        assert "Permission denied" in logged.end("one").error and not list(folder.iterdir())
        folder.chmod(0o755)
        logged.begin("two")
        logged.goes_on()
        assert logged.end("two").stored
        logged.recovers()
    finally:
        folder.chmod(0o755)
    assert set(logged.stored()) == {"two"} and logged.monitor.stop() == 0


def test_the_oldest_episodes_go_when_the_folder_passes_its_limit(start, tmp_path):
    logged = start(tmp_path / "run", log_limit=0.001)
    for name in ("one", "two", "three"):
        logged.begin(name)
        logged.goes_on()
        assert logged.end(name).stored
    assert set(logged.stored()) == {"three"}
    logged.observer.until(lambda: logged.log()[2].get("removed") == "2", "the count", 10, logged.monitor)
