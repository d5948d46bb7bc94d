"""A ROS domain of one's own, so that two sessions (or two test runs) on one machine never meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Domains whose ports lie below Linux' ephemeral port range (docs.ros.org, "The ROS_DOMAIN_ID"), without the default 0.
FIRST, LAST = 1, 101
_PORT_BASE, _DOMAIN_GAIN = 7400, 250  # RTPS 2.2, 9.6.1.1


@contextlib.contextmanager
def reserve_domain(attempts: int = 500) -> Iterator[int]:
    """A domain id that no other holder of a reservation and no visible DDS participant on this machine uses.

    The reservation is a file lock, so it ends with the process at the latest. Raises RuntimeError when none is free.
    """
    ids = list(range(FIRST, LAST + 1))
    random.SystemRandom().shuffle(ids)
    folder = Path(tempfile.gettempdir()) / f"osma_domains.{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for domain in ids[:attempts]:
        handle = os.open(folder / str(domain), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if _in_use(domain):
                continue
            yield domain
            return
        finally:
            os.close(handle)
    raise RuntimeError(f"no free ROS domain between {FIRST} and {LAST}: too many sessions run on this machine")


def _in_use(domain: int) -> bool:
    """Whether somebody listens on the domain's discovery port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", _PORT_BASE + _DOMAIN_GAIN * domain))
        except OSError:
            return True
    return False


def domain_environment(domain: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process in this domain, which talks to this machine only."""
    environment = dict(os.environ if base is None else base)
    environment["ROS_DOMAIN_ID"] = str(domain)
    environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    environment.pop("ROS_LOCALHOST_ONLY", None)
    return environment
