"""Requested against executed control (OSMA-Bench F, G.2.2)."""

import math

import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo, EpisodeRecord, Outcome
from osma_monitor.core.metrics import requested
from osma_monitor.core.metrics.requested import RequestedControl
from osma_monitor.core.metrics.ssi import TIERS
from osma_monitor.core.motion import MotionFeatures

NAN = math.nan


def table(requests, d_min=None, mu_v=None, cells=1):
    """One task for each tier and cell, Low to High."""
    n = 3 * cells
    assert len(requests) == n
    return {
        "cell": np.repeat([f"c{i}" for i in range(cells)], 3),
        "tier": list(TIERS) * cells,
        "obstacle": ["bag", "wine", "cat"] * cells,
        "d_min": np.asarray(d_min if d_min is not None else [0.3, 0.4, 0.5] * cells, dtype=float),
        "mu_v": np.asarray(mu_v if mu_v is not None else [1.2, 1.0, 0.8] * cells, dtype=float),
        **requested.request_columns(requests),
    }


ORDERED = [RequestedControl(0.2, 0.9, 0.9), RequestedControl(0.4, 0.6, 0.9), RequestedControl(0.6, 0.3, 0.9)]


def test_value_level_ssi_of_ordered_requests_is_1():
    v = requested.value_level(table(ORDERED))
    assert v.clearance_speed.ssi == 1.0 and v.clearance_ratio.ssi == 1.0
    assert v.clearance_m == pytest.approx((0.2, 0.4, 0.6)) and v.speed == pytest.approx((0.9, 0.6, 0.3))
    assert v.speed_over_clearance == pytest.approx((4.5, 1.5, 0.5))


def test_clearance_counts_up_and_speed_down():
    v = requested.value_level(
        table([RequestedControl(0.2, 0.3), RequestedControl(0.4, 0.6), RequestedControl(0.6, 0.9)])
    )
    assert v.clearance_speed.tau == {"clearance": 1.0, "speed": -1.0}


def test_values_that_are_not_set_are_no_clearance_and_nominal_speed():
    v = requested.value_level(table([RequestedControl(), RequestedControl(0.4, 0.6), RequestedControl(0.6, 0.3)]))
    assert v.clearance_m[0] == 0.0 and v.speed[0] == 1.0 and v.speed_over_clearance[0] == pytest.approx(1 / 0.05)
    assert v.clearance_speed.ssi == 1.0


def test_the_ratio_is_averaged_per_task():
    data = table([*ORDERED, RequestedControl(0.1, 0.9), *ORDERED[1:]], cells=2)
    assert requested.value_level(data).speed_over_clearance[0] == pytest.approx((0.9 / 0.2 + 0.9 / 0.1) / 2)


def test_region_placement_and_the_fraction_that_takes_effect():
    asked = [
        RequestedControl(0.4, 0.5, 0.76),  # exactly R_C + R_base
        RequestedControl(0.4, 0.5, 0.75),
        RequestedControl(0.4, 0.5, 0.30),
        RequestedControl(0.4, 0.5, 2.0, "other"),
        RequestedControl(0.4, 0.5),
        RequestedControl(0.4, 0.5, 0.9, "none"),
    ]
    shares = requested.region_placement(table(asked, cells=2))
    sixth = pytest.approx(1 / 6)
    assert shares == {
        "reached": sixth,
        "short": sixth,
        "inside_clearance": sixth,
        "other_object": sixth,
        "nowhere": pytest.approx(1 / 3),
    }
    assert requested.velocity_region_fraction(table(asked, cells=2)) == sixth
    assert requested.velocity_region_fraction(table(asked, cells=2), base_radius=0.35) == pytest.approx(2 / 6)
    own = table(asked, cells=2)
    for radius, share in ((0.35, pytest.approx(2 / 6)), (NAN, sixth)):
        own["base_radius_m"] = [radius] * len(own["cell"])
        assert requested.velocity_region_fraction(own) == share


def test_sums_of_centimetres_reach_although_they_are_not_exact():
    clearance = np.arange(0, 81) / 100
    asked = [RequestedControl(c, 0.5, float(c + 0.36)) for c in clearance]
    assert requested.velocity_region_fraction(table(asked, [1.0] * 81, [1.0] * 81, cells=27)) == 1.0


def test_clamp_raises_and_never_lowers():
    assert requested.clamp_region(0.4, 0.3) == pytest.approx(0.76) and requested.clamp_region(0.4, 1.0) == 1.0


def test_base_radius_is_the_mean_standoff():
    assert requested.base_radius([0.9, 0.7, NAN], [0.5, 0.4, 0.1]) == pytest.approx(0.35)


def test_requested_against_executed():
    data = table(ORDERED * 2, d_min=[0.3, 0.5, 0.5, 0.1, 0.5, 0.7], mu_v=[1.2, 1.0, 0.8, 1.2, 0.7, 0.8], cells=2)
    r = requested.requested_against_executed(data)
    assert (r.n, r.clearance.cells) == (6, 2)
    assert r.clearance.requested == pytest.approx((0.2, 0.4, 0.6)) and r.clearance.executed == pytest.approx(
        (0.2, 0.5, 0.6)
    )
    assert r.speed.executed == pytest.approx((1.2, 0.85, 0.8))
    assert (r.clearance.requested_in_order, r.clearance.executed_in_order) == (1.0, 0.5)
    assert (r.speed.requested_in_order, r.speed.executed_in_order) == (1.0, 0.5)
    assert r.share_met == pytest.approx(4 / 6) and r.mean_surplus == pytest.approx(
        (0.1 + 0.1 - 0.1 - 0.1 + 0.1 + 0.1) / 6
    )
    assert r.d_min_of_large == pytest.approx(0.6) and r.d_min_of_small == pytest.approx(0.2)


def test_correlation_is_within_cells():
    """Over all tasks the two go together; within each cell they do not."""
    asked = [RequestedControl(c, 0.5) for c in (0.1, 0.2, 0.3, 0.6, 0.7, 0.8)]
    d = [0.3, 0.2, 0.1, 0.8, 0.7, 0.6]
    r = requested.requested_against_executed(table(asked, d, cells=2))
    assert r.clearance.correlation == pytest.approx(-1.0)
    within = 2 * (0.1**2 + 0 + 0.1**2)
    assert r.within_cell_variance == pytest.approx(within / (np.var(d) * 6))
    assert math.isnan(r.speed.correlation)  # the same speed everywhere


def test_tabletop_obstacles_can_be_left_out():
    data = table(ORDERED)
    r = requested.requested_against_executed(data, requested.TABLETOP)
    assert r.n == 2 and math.isnan(r.clearance.requested[1]) and math.isnan(r.clearance.requested_in_order)


def test_tasks_without_the_feature_are_left_out():
    r = requested.requested_against_executed(table(ORDERED * 2, d_min=[0.3, 0.4, 0.5, NAN, 0.4, 0.5], cells=2))
    assert r.clearance.cells == 1 and r.speed.cells == 2 and r.share_met == pytest.approx(3 / 5)


def test_empty_table():
    r = requested.requested_against_executed(table([], [], [], cells=0))
    assert r.n == 0 and math.isnan(r.share_met) and math.isnan(r.clearance.correlation)
    assert math.isnan(requested.velocity_region_fraction(table([], [], [], cells=0)))


def test_from_attributes():
    assert requested.requested_of({}) is None
    assert requested.requested_of({"requested_speed": "0.5"}) == RequestedControl(None, 0.5, None, "none")
    got = requested.requested_of({"requested_clearance_m": "0.4", "requested_region_m": "0.8"})
    assert got == RequestedControl(0.4, None, 0.8, "obstacle")
    with pytest.raises(ValueError, match="'table'"):
        requested.requested_of({"region_on": "table"})


def record(task, tier="low", status="success", **attributes):
    info = EpisodeInfo(
        "e", task=task, policy="p", attributes={"cell": "c", "tier": tier, "obstacle": "bag", **attributes}
    )
    return EpisodeRecord(info, Outcome(status), np.array([10**9]), {}, ("",), (), {}, MotionFeatures(d_min=0.4))


def test_table_with_requests_keeps_rows_and_columns_together():
    records = [record("a"), record("b", status="aborted"), record("c"), record("d")]
    asked = {"a": RequestedControl(0.1), "b": RequestedControl(0.2), "d": RequestedControl(0.4)}
    got = requested.table_with_requests(records, asked)
    assert list(got["task"]) == ["a", "d"] and list(got["requested_clearance_m"]) == [0.1, 0.4]
    got = requested.table_with_requests([record("a"), record("b", requested_speed="0.5")])
    assert list(got["task"]) == ["b"] and list(got["requested_speed"]) == [0.5]
