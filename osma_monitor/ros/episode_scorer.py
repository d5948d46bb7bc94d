"""episode_scorer: keeps the tables of a run folder up to date while episodes finish, and on request.

The numbers are those of `osma score`: both read the same records with the same functions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from osma_monitor.core.errors import UserError
from osma_monitor.io.errors import StoreError
from osma_monitor.io.plans import planned
from osma_monitor.io.store import read_episodes
from osma_monitor.msg import EpisodeSummary
from osma_monitor.report import build
from osma_monitor.report.policy_table import policy_tables
from osma_monitor.report.table import to_csv, to_text
from osma_monitor.ros import topics
from osma_monitor.ros.parameters import Parameter, check_parameter_files, declare
from osma_monitor.ros.runtime import Spinner, run_application, spin_until_stopped
from osma_monitor.ros.text import printable
from osma_monitor.srv import ScoreRun

NAME = "episode_scorer"

PARAMETERS = (
    Parameter("folder", str, "", "Run folder that the monitor logs into."),
    Parameter("group_by", str, ("policy",), "Columns that the tables group by."),
    Parameter("monitor_node", str, topics.MONITOR, "Name of the monitor whose episodes are scored."),
    Parameter(
        "quiet_time", float, 2.0, "s without a finished episode after which the tables are written anew.", 0.1, 3600.0
    ),
    Parameter("bootstrap", bool, False, "Compute bootstrap intervals, which takes longer."),
)


class EpisodeScorer:
    """See the module."""

    def __init__(self, arguments: list[str]) -> None:
        self.node = node = Node(NAME)
        check_parameter_files(arguments, node.get_name(), node.get_namespace())
        self.values = v = declare(node, PARAMETERS)
        if not v.folder:
            raise UserError(f"{NAME}: give the parameter folder: the one that safety_monitor logs into (episode_log)")
        self.folder = Path(v.folder).expanduser()
        self._fresh = False
        self._quiet = node.create_timer(v.quiet_time, self._on_quiet, clock=Clock(clock_type=ClockType.STEADY_TIME))
        node.create_subscription(
            EpisodeSummary,
            topics.of_monitor(topics.SUMMARY, v.monitor_node),
            self._on_summary,
            topics.latched(topics.EVENT_READ_DEPTH),
        )
        node.create_service(ScoreRun, "~/score", self._on_request)

    def run(self, spinner: Spinner) -> int:
        """Serve until told to stop; the tables are up to date then."""
        code = spin_until_stopped(spinner)
        if self._fresh:
            self._on_quiet()
        return code

    def close(self) -> None:
        """Nothing is held."""

    def _on_summary(self, message: EpisodeSummary) -> None:
        self._fresh = self._fresh or message.stored
        self._quiet.reset()

    def _on_quiet(self) -> None:
        if not self._fresh:
            return
        self._fresh = False
        try:
            count, files, _ = self.score(self.values.group_by)
            self.node.get_logger().info(f"{count} episodes scored, {len(files)} tables in {self.folder}")
        except (UserError, StoreError, ValueError) as error:
            self.node.get_logger().error(printable(str(error), 1000))

    def _on_request(self, request: ScoreRun.Request, response: ScoreRun.Response) -> ScoreRun.Response:
        try:
            response.episodes, files, response.text = self.score(tuple(request.group_by) or self.values.group_by)
            response.files = [str(f) for f in files]
            response.success = True
            response.message = f"{response.episodes} episodes"
        except (UserError, StoreError, ValueError) as error:
            response.message = printable(str(error), 1000)
        return response

    def score(self, group_by: Sequence[str]) -> tuple[int, list[Path], str]:
        """Number of episodes, tables written (CSV), and the policy tables as text.

        Raises UserError when there is no episode, StoreError when a file cannot be read or written.
        """
        collected = build.collect(read_episodes(self.folder))
        count = len(collected.records)
        if not count:
            raise UserError(f"{self.folder}: no finished episode yet")
        report = build.build(collected, group_by, bootstrap=self.values.bootstrap, plan=planned(self.folder))
        target = self.folder / "tables"
        try:
            target.mkdir(exist_ok=True)
            files = []
            for table in report.tables:
                if not table.empty:
                    files.append(target / f"{table.key}.csv")
                    files[-1].write_text(to_csv(table), encoding="utf-8")
        except OSError as error:
            raise StoreError(error.errno, f"{target}: {error.strerror}") from error
        return count, files, "\n".join(to_text(table) for table in policy_tables(report))


def main() -> int:
    """Entry point of the executable ``episode_scorer``."""
    return run_application(NAME, EpisodeScorer)


if __name__ == "__main__":
    sys.exit(main())
