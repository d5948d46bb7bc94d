"""docs/topics.md and the code name the same topics, types and quality of service."""

import re
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from osma_monitor.ros import inputs, topics

pytestmark = pytest.mark.ros
TEXT = (Path(__file__).parents[3] / "docs" / "topics.md").read_text()
ROWS = {m[1]: m[2] for m in re.finditer(r"^\| `([^`]+)` \| (\w+/(?:msg|srv)/\w+) \|", TEXT, re.M)}


def names_in_code():
    skip = {"DIAGNOSTICS", "MONITOR", "DEPTH"}
    return {
        value for name, value in vars(topics).items() if name.isupper() and isinstance(value, str) and name not in skip
    } | {topics.DIAGNOSTICS}


def test_every_topic_of_the_code_is_described_and_no_other():
    assert set(ROWS) == names_in_code()


def test_types_of_the_raw_parts():
    for part, (kind, _) in inputs.PART_TYPES.items():
        package, _, name = kind.__module__.split(".")[0], None, kind.__name__
        assert ROWS[topics.PART_TOPICS[part]] == f"{package}/msg/{name}"


def test_every_message_and_service_of_the_package_is_mentioned():
    root = Path(__file__).parents[3]
    for file in [*root.glob("msg/*.msg"), *root.glob("srv/*.srv")]:
        assert file.stem in TEXT, f"docs/topics.md does not mention {file.stem}"


def test_quality_of_service_is_as_described():
    assert topics.reliable().depth == topics.DEPTH == 100
    assert f"keep last {topics.DEPTH}" in TEXT
    assert topics.latched().durability.name == "TRANSIENT_LOCAL" and topics.latched().depth == 1
    assert topics.best_effort().reliability.name == "BEST_EFFORT"
