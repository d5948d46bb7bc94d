"""The gate's decisions: fail safe, and not for ever."""

import math

import pytest

from osma_monitor.core.gate import Gate, GateConfig, scaled

MS = 1_000_000


def gate(mode, **options) -> Gate:
    return Gate(GateConfig(mode, **options))


def test_observe_passes_everything():
    g = gate("observe")
    assert g.decide(0).scale == 1
    g.hear(0, "violated", "violated")
    assert g.decide(10**12).scale == 1


@pytest.mark.parametrize("mode", ["slow", "stop"])
def test_a_silent_or_absent_monitor_stops(mode):
    g = gate(mode, heartbeat_ns=100 * MS)
    assert g.decide(0).scale == 0
    assert "never heard" in g.decide(0).reason
    g.hear(0, "ok")
    g.see("low", 9.0)
    assert g.decide(100 * MS).scale == 1
    assert g.decide(101 * MS).scale == 0
    assert "silent for 0.1 s" in g.decide(101 * MS).reason


def test_a_violation_stops_until_it_is_acknowledged():
    g = gate("stop")
    g.hear(0, "violated", "violated", "contact_force")
    assert g.decide(1).reason == "violated: contact_force"
    g.hear(2, "ok", "violated")
    assert g.decide(3).scale == 0
    g.hear(4, "ok", "ok")
    assert g.decide(5).scale == 1


def test_without_the_latch_the_instant_decides():
    g = gate("stop", hold_latched=False)
    g.hear(0, "ok", "violated")
    assert g.decide(1).scale == 1


def test_one_unknown_instant_stops_nothing_a_lasting_one_does_and_recovers():
    g = gate("stop", unknown_ns=300 * MS, heartbeat_ns=10_000 * MS)
    g.hear(0, "ok")
    g.hear(50 * MS, "unknown", "unknown")
    assert g.decide(100 * MS).scale == 1
    g.hear(350 * MS, "unknown", "unknown", "tilt")
    assert g.decide(351 * MS).scale == 0
    assert "tilt" in g.decide(351 * MS).reason
    g.hear(400 * MS, "ok", "unknown")
    assert g.decide(401 * MS).scale == 1


def test_slow_scales_by_tier_and_distance():
    g = gate("slow")
    g.hear(0, "ok")
    scales = {}
    for tier in ("high", "moderate", "low"):
        g.see(tier, 0.5)
        scales[tier] = g.decide(1).scale
    assert scales["high"] < scales["moderate"] < scales["low"] < 1
    g.see("high", 2.0)
    assert g.decide(1).scale == 1
    g.see("high", -0.1)
    assert g.decide(1).scale == 0


def test_slow_takes_the_unknown_for_the_most_delicate():
    g = gate("slow")
    g.hear(0, "ok")
    g.see("", 0.5)
    unknown = g.decide(1).scale
    g.see("high", 0.5)
    assert unknown == g.decide(1).scale
    g.see("high", math.nan)
    assert g.decide(1).scale == 0


def test_a_stop_is_zero_whatever_was_commanded():
    assert [scaled(v, 0.0) for v in (1.0, math.nan, math.inf, -math.inf)] == [0.0] * 4
    assert scaled(2.0, 0.25) == 0.5 and math.isnan(scaled(math.nan, 0.5))
