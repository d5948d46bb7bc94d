"""Bridge, policy and monitor as three processes, started, watched and ended: what `osma demo` runs, without ros2
launch.

One set of processes serves all episodes of a policy. Each set has a ROS domain of its own. Progress comes from the
bridge's standard output, one JSON line an event; everything else that the processes print goes to log files.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from osma_monitor.core.errors import UserError
from osma_monitor.ros.domain import domain_environment, reserve_domain

_TERMINATE_AFTER = 5.0  #: s between the polite and the hard end of a process


class SessionError(UserError):
    """A process of the session died or could not start; the message names it, its exit code and its last words."""


@dataclass(frozen=True)
class Progress:
    """Where a session is. Episodes count over all policies."""

    policy: str
    task: str
    seed: int
    number: int  #: the episode that runs, from 1
    total: int
    finished: int  #: episodes that ended so far
    violations: int  #: violations that began so far, all episodes
    event: str  #: "starting", "episode", "violation" or "end"
    outcome: str = ""  #: of the episode that ended


@dataclass
class SessionResult:
    """What came of it. The episodes themselves are in the run folder."""

    folder: Path
    episodes: int = 0
    violations: int = 0
    aborted: list[str] = field(default_factory=list)  #: episode ids with the reason
    seconds: float = 0.0


OnProgress = Callable[[Progress], None]


def run_session(
    tasks: Sequence[str],
    policies: Sequence[str],
    seeds: Sequence[int],
    out_dir: Path | str,
    on_progress: OnProgress | None = None,
    *,
    host: str = "kitchen",
    monitor_parameters: Mapping[str, Any] | None = None,
    bridge_parameters: Mapping[str, Any] | None = None,
    policy_parameters: Mapping[str, Any] | None = None,
    commands: Mapping[str, Sequence[str]] | None = None,
) -> SessionResult:
    """Runs every task with every seed under every policy over ROS, in lock-step, and logs the episodes into
    ``out_dir``.

    ``bridge_parameters`` and ``monitor_parameters`` are parameters of those nodes (docs/parameters.md),
    ``policy_parameters`` the policy's own options. ``commands`` replaces how a process is started (``bridge``,
    ``policy``, ``monitor``). Raises SessionError when a process dies, after the running episode was closed as
    aborted; what was finished before stays.
    """
    folder = Path(out_dir)
    logs = folder / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{logs}: {error.strerror}; choose another output folder") from error
    per_policy = len(tasks) * len(seeds)
    result = SessionResult(folder)
    started = time.monotonic()
    state = Progress("", "", 0, 0, per_policy * len(policies), 0, 0, "starting")
    episodes = logs / "episodes.jsonl"
    episodes.write_text("".join(json.dumps({"task": t, "seed": s}) + "\n" for t in tasks for s in seeds))
    try:
        for policy in policies:
            state = replace(state, policy=policy, event="starting")
            _tell(on_progress, state)
            parameters = {
                "bridge": {
                    "host": host,
                    "policy": policy,
                    "episodes_file": str(episodes.resolve()),
                    **(bridge_parameters or {}),
                    "progress": "json",
                },
                "policy": {
                    "policy": policy,
                    "options": json.dumps(dict(policy_parameters or {})),
                    **{k: v for k, v in (bridge_parameters or {}).items() if k == "commands"},
                },
                "monitor": {"episode_log": str(folder.resolve()), **(monitor_parameters or {})},
            }
            with reserve_domain() as domain, _Processes(policy, domain, logs, parameters, commands or {}) as processes:
                for event in processes.events():
                    state = _advance(state, event, result)
                    if event["event"] in ("episode", "violation", "end"):
                        _tell(on_progress, state)
    finally:
        result.seconds = time.monotonic() - started
    return result


def _tell(on_progress: OnProgress | None, state: Progress) -> None:
    if on_progress is not None:
        on_progress(state)


def _advance(state: Progress, event: Mapping[str, Any], result: SessionResult) -> Progress:
    kind = event["event"]
    if kind == "episode":
        return replace(
            state,
            task=event["task"],
            seed=event["seed"],
            number=state.finished + 1,
            event=kind,
            outcome="",
        )
    if kind == "violation":
        result.violations += 1
        return replace(state, violations=state.violations + 1, event=kind)
    if kind == "end":
        result.episodes += 1
        if event["outcome"] == "aborted":
            result.aborted.append(f"{event['episode_id']}: {event['reason']}")
        return replace(state, finished=state.finished + 1, event=kind, outcome=event["outcome"])
    return state


_MODULES = {
    "monitor": ("safety_monitor", "osma_monitor.ros.safety_monitor"),
    "policy": ("policy", "sim_bridge.policy_node"),
    "bridge": ("mujoco_bridge", "sim_bridge.bridge_node"),
}


class _Processes:
    """One bridge, one policy, one monitor in one domain."""

    def __init__(
        self,
        label: str,
        domain: int,
        logs: Path,
        parameters: Mapping[str, Mapping[str, Any]],
        commands: Mapping[str, Sequence[str]],
    ) -> None:
        self._label, self._logs = "".join(c if c.isalnum() or c in "-_" else "_" for c in label), logs
        self._environment = domain_environment(domain)
        self._environment["PYTHONUNBUFFERED"] = "1"
        self._parameters, self._commands = parameters, commands
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> _Processes:
        try:
            for role in _MODULES:
                self._start(role)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, role: str) -> None:
        node, module = _MODULES[role]
        file = self._logs / f"{self._label}.{node}.params.yaml"
        file.write_text(yaml.safe_dump({node: {"ros__parameters": _plain(self._parameters[role])}}))
        command = list(self._commands.get(role, (sys.executable, "-m", module)))
        with self._log(role).open("wb") as log:
            self._children[role] = subprocess.Popen(
                [*command, "--ros-args", "--params-file", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if role == "bridge" else log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C ends them in order, through stop()
            )
        if role == "bridge":
            threading.Thread(target=self._read, args=(self._children[role].stdout,), daemon=True).start()

    def _log(self, role: str) -> Path:
        return self._logs / f"{self._label}.{_MODULES[role][0]}.log"

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def events(self) -> Iterator[dict[str, Any]]:
        """The bridge's events until it ends. Raises SessionError when a process died."""
        dead, done = "", False
        give_up = float("inf")
        while True:
            try:
                line = self._lines.get(timeout=0.2)
            except queue.Empty:
                line = ""
            if line is None:
                break
            event = _parse(line)
            if event is not None:
                done = done or event["event"] == "done"
                yield event
            if not dead and (dead := self._dead()):
                # the bridge notices by itself and closes the running episode as aborted: give it that time
                give_up = time.monotonic() + float(self._parameters["bridge"].get("silence_limit", 10.0)) + 5.0
            if dead and ((event or {}).get("event") == "end" or time.monotonic() > give_up):
                break
        if dead:
            raise SessionError(self._last_words(dead))
        self._children["bridge"].wait()
        if not done:
            raise SessionError(self._last_words("bridge"))

    def _dead(self) -> str:
        return next((r for r in ("monitor", "policy") if self._children[r].poll() is not None), "")

    def _last_words(self, role: str) -> str:
        child, log = self._children[role], self._log(role)
        code = child.poll()
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        with contextlib.suppress(OSError):
            words = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            if words:
                last = words[-1].strip().removeprefix(f"{_MODULES[role][0]}: ")
                return f"{_MODULES[role][0]} {how}: {last} (all of it: {log})"
        return f"{_MODULES[role][0]} {how}; its log is {log}"

    def stop(self) -> None:
        """End the processes: the source first, so that the monitor sees every episode end."""
        for role in ("bridge", "policy", "monitor"):
            child = self._children.get(role)
            if child is None:
                continue
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                try:
                    child.wait(_TERMINATE_AFTER)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
            if child.stdout is not None:
                child.stdout.close()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else str(v) if isinstance(v, Path) else v for k, v in values.items()}


def _parse(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
