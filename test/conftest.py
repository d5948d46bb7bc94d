"""What every test shares: reproducible property tests, a ROS domain of one's own, no windows."""

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from osma_monitor.ros.domain import reserve_domain

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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a failed test of the nodes once more, and say so: on a loaded machine the discovery of processes among each
    other may take longer than a short episode lasts. What fails twice, fails.
    """
    if item.get_closest_marker("ros") is None:
        return None
    # a worker of xdist has threads, which a fork does not carry along, and is started anew when it dies
    run = runtestprotocol if hasattr(item.config, "workerinput") else _run_apart
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = run(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        item._initrequest()  # type: ignore[attr-defined]  # fresh fixtures
        reports = run(item, nextitem=nextitem, log=False)
        for report in reports:
            report.user_properties.append(("run", "twice"))  # goes from a worker to the one that prints
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_apart(item: pytest.Item, nextitem: pytest.Item | None, log: bool) -> list[pytest.TestReport]:
    """The test in a process of its own: rcl has crashed where a test destroyed its node, which ended the whole run."""
    hook = item.config.hook
    item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
    reading, writing = os.pipe()
    limit, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # the time limit goes along
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            reports = runtestprotocol(item, nextitem=None, log=log)
            plain = [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
            with os.fdopen(writing, "w") as sent:
                json.dump(plain, sent)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as received:
            text = received.read()
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    signal.setitimer(signal.ITIMER_REAL, limit)  # a second run has the same
    if text:
        reports = [hook.pytest_report_from_serializable(config=item.config, data=data) for data in json.loads(text)]
        for report in reports:
            if isinstance(report.longrepr, list):  # where and why a test was skipped, which JSON made a list of
                report.longrepr = tuple(report.longrepr)
        return reports
    died = f"the process of the test died: exit status {os.waitstatus_to_exitcode(status)} (negative: a signal)"
    return [pytest.TestReport(item.nodeid, item.location, {}, "failed", died, "call")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that needed a second run."""
    reports = (r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport))
    for nodeid in sorted({r.nodeid for r in reports if ("run", "twice") in map(tuple, r.user_properties)}):
        terminalreporter.write_line(f"RUN TWICE {nodeid}")


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
