"""Outcome flips (OSMA-Bench Table 4, Table 25)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from osma_monitor.core.metrics.flips import outcome_flips


def test_flips_are_named_by_task():
    flips = outcome_flips({"a": True, "b": True, "c": False, "d": False}, {"a": True, "b": False, "c": True, "d": True})
    assert flips.success_to_failure == ("b",) and flips.failure_to_success == ("c", "d")
    assert (flips.n, flips.before, flips.after, flips.difference, flips.unmatched) == (4, 2, 3, 0.25, 0)
    assert flips.interval[0] <= 0.25 <= flips.interval[1]


def test_tasks_without_a_partner_or_a_known_outcome_are_counted_apart():
    flips = outcome_flips({"a": True, "b": None, "c": True}, {"a": False, "b": True, "d": True})
    assert (flips.n, flips.unmatched) == (1, 3)


def test_nothing_matched():
    flips = outcome_flips({}, {"a": True})
    assert flips.n == 0 and math.isnan(flips.difference) and flips.p_value == 1.0


outcomes = st.dictionaries(st.integers(0, 30).map(str), st.booleans())


@given(outcomes, outcomes)
def test_the_flips_are_the_change(before, after):
    flips = outcome_flips(before, after)
    gained, lost = len(flips.failure_to_success), len(flips.success_to_failure)
    assert gained - lost == flips.after - flips.before
    if gained + lost:
        assert flips.p_value == pytest.approx(binomtest(lost, gained + lost).pvalue)
