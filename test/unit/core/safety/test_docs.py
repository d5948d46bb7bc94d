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


def test_limits_of_body_regions_are_those_of_the_public_list_or_named_as_different() -> None:
    """Clamping forces in N as Buxbaum and Sen 2018, Table 1.4, reprint the list of 2011 that preceded ISO/TS 15066."""
    public = {
        **{"skull_and_forehead": 130, "face": 65, "neck": 145, "back_and_shoulders": 210, "chest": 140, "abdomen": 110},
        **{"pelvis": 180, "upper_arm": 150, "lower_arm": 160, "hand": 135, "thigh_and_knee": 220, "lower_leg": 140},
    }
    shipped = {name: limit.force for name, limit in LIBRARY.parameters.region_limits.items() if name != "any"}
    assert shipped.keys() == public.keys()
    assert LIBRARY.parameters.region_limits["any"].force == min(shipped.values())
    different = {name for name in public if shipped[name] != public[name]}
    assert different == {"neck", "hand", "lower_leg"}
    for name, force in shipped.items():
        words = name.replace("_", " ")
        row = next(line for line in TEXT.splitlines() if line.startswith("|") and f"{words} {force:.0f}" in line)
        assert row.endswith("|") and (("differ" in row) == (name in different))
