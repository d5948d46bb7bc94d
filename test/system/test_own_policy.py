"""The policy of docs/topics.md runs as it stands there."""

import re
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from osma_monitor.io.store import read_episodes

pytestmark = pytest.mark.ros
DOCUMENT = Path(__file__).parents[2] / "docs" / "topics.md"


def documented_policy() -> str:
    [code] = [
        c for c in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S) if c.startswith("# my_policy.py")
    ]
    return code


def test_it_is_short():
    lines = [line for line in documented_policy().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 20


def test_it_drives_the_robot(nodes, tmp_path):
    script = tmp_path / "my_policy.py"
    script.write_text(documented_policy())
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    policy = nodes.run([sys.executable, str(script)], "my_policy")
    bridge = nodes.kinematic("bridge", tasks=["steps/100"], policy="my_policy")
    assert bridge.wait() == 0, bridge.output + policy.output + monitor.output
    assert policy.stop(signal.SIGTERM) == 0 and "Traceback" not in policy.output
    [record] = read_episodes(tmp_path / "run")
    assert record.info.policy == "my_policy" and record.outcome.success
    assert len(record.stamps_ns) == 101 and not record.partial
    assert record.signals["base_x"][-1] != record.signals["base_x"][0], "the robot did not move"
