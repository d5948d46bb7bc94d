"""Scoring in pieces: on this machine one after the other, or on a Dask cluster, with the same result in the same order.

A partition is a bag, a part of a compacted data set, or a few files or episodes of a run or LeRobot data set.
Workers read them where they are, so every machine of a cluster must see the same paths (a shared file system). A
worker that dies loses nothing: its partitions run again elsewhere.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.io import dataset, store
from osma_monitor.io.bag.mapping import Mapping
from osma_monitor.io.datasets import lerobot
from osma_monitor.io.datasets.fieldmap import FieldMap
from osma_monitor.io.errors import InputError
from osma_monitor.io.sources import Findings, expand, kind_of, open_source, overlaps

#: Episodes of one partition where they are files or rows of their own.
PER_PARTITION = 256
#: Partitions given out at a time for each worker: enough to keep it busy, few enough to bound the results that wait.
IN_FLIGHT = 4
_COUNT_WORKERS_EVERY = 32
#: s that a scheduler has to answer.
CONNECT_LIMIT = 4.0
_ADDRESS = re.compile(r"((?P<protocol>tcp|tls)://)?(?P<host>[^:/\s\[\]]+|\[[0-9a-fA-F:.%\w]+\]):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Partition:
    """A piece of work. ``first`` and ``last`` select files, episodes or parts; None: all of the source."""

    path: Path
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Piece:
    """What one partition gave."""

    records: tuple[EpisodeRecord, ...]
    findings: Findings


def partitions(paths: Iterable[Path | str], per_partition: int = PER_PARTITION) -> list[Partition]:
    """The pieces of all sources, in their order. A source that can't be looked at is a piece of its own, to say why."""
    found: list[Partition] = []
    for source in (s for path in paths for s in expand(path)):
        try:
            count, step = _size(source, per_partition)
        except UserError:
            count, step = 0, 1
        if count <= step:
            found.append(Partition(source))
        else:
            found += [Partition(source, i, min(i + step, count)) for i in range(0, count, step)]
    return found


def _size(source: Path, per_partition: int) -> tuple[int, int]:
    """Number of selectable things in a source, and how many make a partition."""
    kind = kind_of(source)
    if kind == "dataset":
        return dataset.part_count(source), 1
    if kind == "run":
        return len(store.episode_files(source)), per_partition
    if kind == "lerobot":
        return len(lerobot.LeRobotDataset(source).entries), per_partition
    return 1, 1


def score_partition(
    partition: Partition, config: MonitorConfig, mapping: Path | str | Mapping | FieldMap | None = None
) -> Piece:
    """Scores one piece; a source that can't be used becomes a problem, never an exception."""
    findings = Findings()
    select = None if partition.first is None or partition.last is None else (partition.first, partition.last)
    try:
        records = tuple(open_source(partition.path, config, mapping, findings=findings, select=select))
    except UserError as error:
        findings.problems.append(str(error))
        records = ()
    return Piece(records, findings)


def _reach(address: str) -> None:
    """A short try before Dask's own, which asks again for half a minute. Raises InputError when nobody listens."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(
            f"--scheduler {address}: no Dask scheduler answers there; expected tcp://HOST:PORT, such as "
            "tcp://127.0.0.1:8786, as `dask scheduler` prints it"
        )
    found: list[OSError | None] = []

    def connect() -> None:
        try:
            with socket.create_connection((match["host"].strip("[]"), int(match["port"])), CONNECT_LIMIT) as link:
                if match["protocol"] != "tls" and not link.recv(1):  # a scheduler greets first
                    raise OSError("what listens there closes the connection")
                found.append(None)
        except TimeoutError:
            found.append(OSError(f"no greeting within {CONNECT_LIMIT:g} s"))
        except (OSError, OverflowError) as error:
            found.append(error if isinstance(error, OSError) else OSError("the port is above 65535"))

    trying = threading.Thread(target=connect, daemon=True)  # a name server may take longer than any time-out
    trying.start()
    trying.join(2 * CONNECT_LIMIT)
    why = found[0] if found else OSError(f"no answer within {2 * CONNECT_LIMIT:g} s")
    if why is not None:
        raise InputError(
            f"--scheduler {address}: no Dask scheduler answers there ({why.strerror or why}); start one with "
            "`dask scheduler`, or leave --scheduler out to score here"
        )


@contextmanager
def _client(make: Callable[..., Any], address: str) -> Iterator[Any]:
    """A Dask client, without Dask's log of how it failed. Raises InputError where no scheduler of its kind listens."""
    log = logging.getLogger("distributed")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        client = make(address, timeout=CONNECT_LIMIT, set_as_default=False)
    except Exception as error:  # Dask's transports raise types of their own
        raise InputError(
            f"--scheduler {address}: something listens there that is no Dask scheduler, or one of another version "
            f"({type(error).__name__})"
        ) from error
    finally:
        log.setLevel(level)
    with client:
        yield client


def score_on_cluster(
    paths: Iterable[Path | str],
    config: MonitorConfig,
    address: str,
    mapping: Path | str | Mapping | FieldMap | None = None,
    *,
    findings: Findings | None = None,
    per_partition: int = PER_PARTITION,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[EpisodeRecord]:
    """As ``open_sources``, on the Dask scheduler at ``address`` (tcp://host:8786). Records come in the order of the
    paths.

    Raises MissingDependencyError without the extra ``dask`` and InputError when the scheduler does not answer.
    """
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise MissingDependencyError("--scheduler needs Dask: pip install 'osma-monitor[dask]'") from error
    findings = findings if findings is not None else Findings()
    _reach(address)
    work = deque(partitions(paths, per_partition))
    total, done = len(work), 0
    with _client(Client, address) as client:
        shared = client.scatter(config, broadcast=True)
        running: deque[tuple[Partition, object]] = deque()
        workers = 1
        while work or running:
            if done % _COUNT_WORKERS_EVERY == 0:  # they come and go; asking costs a round trip
                workers = max(len(client.nthreads()), 1)
            while work and len(running) < IN_FLIGHT * workers:
                part = work.popleft()
                running.append((part, client.submit(score_partition, part, shared, mapping, pure=False, retries=3)))
            part, future = running.popleft()
            try:
                piece: Piece = future.result()  # type: ignore[attr-defined]
            except KilledWorker:
                findings.problems.append(f"{part.path}: its workers died again and again; not scored")
                continue
            done += 1
            if on_progress is not None:
                on_progress(done, total)
            findings.problems += piece.findings.problems
            findings.remarks += piece.findings.remarks
            findings.spans += piece.findings.spans
            yield from piece.records
    findings.problems += overlaps(findings.spans)
