"""The report of a policy as JSON: what is read back, and what is refused."""

from __future__ import annotations

import json

import pytest

from osma_monitor.ros.policy_report import PolicyReport, dumps, loads


def test_a_report_reads_back() -> None:
    report = PolicyReport("one", 1_000_000_001, {"requested_speed": repr(0.1 + 0.2), "name": "é\n"}, "no plan")
    assert loads(dumps(report)) == report
    assert loads('{"episode_id": "one", "stamp_ns": 1}') == PolicyReport("one", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 60_000,
        '{"episode_id": 1, "stamp_ns": 1}',
        '{"episode_id": "a", "stamp_ns": 1.0}',
        '{"episode_id": "a", "stamp_ns": true}',
        '{"episode_id": "a", "stamp_ns": 1, "failure": null}',
        '{"episode_id": "a", "stamp_ns": 1, "attributes": {"x": 1}}',
        '{"episode_id": "a", "stamp_ns": 1, "attributes": []}',
        json.dumps({"episode_id": "a", "stamp_ns": 1, "attributes": {str(i): "" for i in range(65)}}),
        json.dumps({"episode_id": "a" * 70_000, "stamp_ns": 1}),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)
