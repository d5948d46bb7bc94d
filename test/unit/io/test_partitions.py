"""Scoring in pieces gives the whole, in order; on a Dask cluster too, with a worker killed in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from bag_examples import config, episode, write_bag
from io_examples import make_record
from lerobot_examples import make_v30

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import same
from osma_monitor.io import dataset, store
from osma_monitor.io import partitions as parts
from osma_monitor.io.partitions import partitions, score_on_cluster, score_partition
from osma_monitor.io.sources import Findings, open_sources


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    run = tmp_path / "run"
    for i in range(40):
        store.write_record(run, make_record(i, 50))
    monkeypatch.setattr(dataset, "FILE_ROWS", 500)
    dataset.compact(run, tmp_path / "set")
    lerobot = make_v30(tmp_path / "lerobot", [20] * 12)
    bag = write_bag(tmp_path / "bag", episode(steps=30))
    broken = tmp_path / "broken.mcap"
    broken.write_bytes(b"")
    return [run, tmp_path / "set", lerobot, broken, bag]


def test_pieces_make_the_whole(sources: list[Path]) -> None:
    whole = Findings()
    expected = list(open_sources(sources, config(), findings=whole))
    pieces = partitions(sources, per_partition=5)
    assert len(pieces) > 15
    got: list[EpisodeRecord] = []
    problems: list[str] = []
    for piece in (score_partition(p, config()) for p in pieces):
        got += piece.records
        problems += piece.findings.problems
    assert len(got) == 93 and all(same(a, b) for a, b in zip(got, expected, strict=True))
    assert problems == whole.problems and len(problems) == 1


@pytest.mark.long
def test_a_killed_worker_loses_nothing(sources: list[Path]) -> None:
    distributed = pytest.importorskip("distributed")
    expected = list(open_sources(sources, config()))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        victims = [worker.pid for worker in cluster.workers.values()]
        findings = Findings()
        got: list[EpisodeRecord] = []
        stream = score_on_cluster(sources, config(), cluster.scheduler_address, findings=findings, per_partition=2)
        for number, record in enumerate(stream):
            got.append(record)
            if number == 3:
                os.kill(victims[0], signal.SIGKILL)
        survivors = [worker.pid for worker in cluster.workers.values()]
    assert victims[0] not in survivors
    assert len(got) == len(expected) and all(same(a, b) for a, b in zip(got, expected, strict=True))
    assert len(findings.problems) == 1 and "0 bytes" in findings.problems[0]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "foo", "foo:bar", "tcp://127.0.0.1", "tcp://127.0.0.1:99999"])
def test_a_scheduler_that_does_not_answer_is_said_before_anything_is_read(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(parts, "partitions", None)
    with pytest.raises(UserError, match="no Dask scheduler answers there") as caught:
        list(score_on_cluster(sources, config(), address))
    assert ("HOST:PORT" in str(caught.value)) is (address in ("foo", "foo:bar", "tcp://127.0.0.1"))


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-x\r\n", None])
def test_what_listens_and_is_no_scheduler_is_said_soon(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch, greeting: bytes | None
) -> None:
    """Closed at once, another protocol, and one that never says a word."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(parts, "CONNECT_LIMIT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = server.accept()
                    if greeting:
                        link.sendall(greeting)
                    if greeting is None:
                        kept.append(link)
                    else:
                        link.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(UserError, match="no Dask scheduler"):
            list(score_on_cluster(sources, config(), address))
        assert time.monotonic() - began < 20
        server.shutdown(socket.SHUT_RDWR)
    for link in kept:
        link.close()
