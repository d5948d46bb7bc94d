"""What a policy says beside its commands: further attributes of the episode, and that its pipeline broke.

One JSON object in a std_msgs/String: ``{"episode_id": "...", "stamp_ns": 1000000000, "attributes": {"requested_speed":
"0.5"}, "failure": ""}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_CHARACTERS, MOST_ATTRIBUTES = 65_536, 64


@dataclass(frozen=True)
class PolicyReport:
    """``stamp_ns`` is that of the observation which it answers; ``failure`` is empty while all is well."""

    episode_id: str
    stamp_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""


def dumps(report: PolicyReport) -> str:
    """The report as JSON."""
    return json.dumps(
        {
            "episode_id": report.episode_id,
            "stamp_ns": report.stamp_ns,
            "attributes": dict(report.attributes),
            "failure": report.failure,
        }
    )


def loads(text: str) -> PolicyReport:
    """The report of a message. Raises ValueError for anything else: other types, more than 64 attributes or 64 KiB."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text)} characters, at most {MOST_CHARACTERS} are read")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("expected a JSON object with episode_id and stamp_ns")
    name, stamp, failure = data.get("episode_id"), data.get("stamp_ns"), data.get("failure", "")
    attributes = data.get("attributes", {})
    if not isinstance(name, str) or type(stamp) is not int or not isinstance(failure, str):
        raise ValueError("expected the texts episode_id and failure, and the whole number stamp_ns")
    if not isinstance(attributes, dict) or not all(isinstance(v, str) for v in attributes.values()):
        raise ValueError("expected attributes to map names to texts")
    if len(attributes) > MOST_ATTRIBUTES:
        raise ValueError(f"{len(attributes)} attributes, at most {MOST_ATTRIBUTES} are read")
    return PolicyReport(name, stamp, attributes, failure)
