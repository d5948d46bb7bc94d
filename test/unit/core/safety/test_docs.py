"""docs/metrics.md says what the code and the library say."""

import dataclasses
import re
from pathlib import Path

import pytest

from osma_monitor.core.metrics.safety import VALUES
from osma_monitor.core.safety import load_library
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.resources import config_path

TEXT = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
LIBRARY = load_library(config_path("safety", "library.yaml").read_text())


@pytest.mark.parametrize("signal", SCHEMA)
def test_every_signal_is_described(signal: str) -> None:
    assert re.search(rf"^\|.*`{signal}`", TEXT, re.MULTILINE)


@pytest.mark.parametrize("family", [f for f in LIBRARY.families if any(c.scored and c.family == f for c in LIBRARY)])
def test_every_family_that_can_score_is_described(family: str) -> None:
    assert re.search(rf"^\|.*`{family}`", TEXT, re.MULTILINE)


def test_every_headline_value_is_defined() -> None:
    labels = {"sr": "SR", "safety": "Safety", "sbu": "SBU", "unsafe_given_success": r"P[U\|S]", "vsi": "VSI"}
    for value in VALUES:
        assert f"\n| {labels.get(value, 'VSI')}" in TEXT


def test_separation_distances() -> None:
    shipped = LIBRARY.parameters.separation
    walking = dataclasses.replace(shipped, human_speed=1.6)
    flat = " ".join(TEXT.split())
    assert f"at 0.7 m/s S_p = {shipped.distance(0.7) + 1e-9:.2f} m, at 0.2 m/s {shipped.distance(0.2):.2f} m" in flat
    assert f"S_p = {walking.distance(0.7) + 1e-9:.2f} m at 0.7 m/s and {walking.distance(0.2):.2f} m at 0.2 m/s" in flat
