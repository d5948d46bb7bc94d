"""Precision, recall and lead time of warnings."""

import math

import numpy as np
import pytest

from osma_monitor.core.metrics.forecast import ForecastScore, score_forecast, total

STAMPS = np.arange(100, dtype=np.int64) * 100_000_000


def mask(*spans):
    m = np.zeros(100, bool)
    for a, b in spans:
        m[a : b + 1] = True
    return m


def test_a_right_and_a_wrong_warning():
    s = score_forecast(STAMPS, mask((20, 25)), mask((15, 19), (60, 62)))
    assert (s.warnings, s.right, s.violations, s.foreseen) == (2, 1, 1, 1)
    assert s.lead == pytest.approx((0.5,))
    assert s.precision == 0.5 and s.recall == 1.0


def test_a_violation_without_warning_and_a_warning_too_early():
    s = score_forecast(STAMPS, mask((50, 51)), mask((5, 10)))
    assert s.recall == 0.0 and s.precision == 0.0
    assert math.isnan(s.median_lead)


def test_warnings_during_a_violation_do_not_count():
    assert score_forecast(STAMPS, mask((10, 20)), mask((12, 15))).warnings == 0


def test_two_warnings_before_one_violation():
    s = score_forecast(STAMPS, mask((30, 31)), mask((22, 23), (27, 29)))
    assert (s.warnings, s.right, s.foreseen) == (2, 2, 1)
    assert s.lead == pytest.approx((0.8,))


def test_nothing_happened_and_sums():
    empty = score_forecast(STAMPS, mask(), mask())
    assert math.isnan(empty.precision) and math.isnan(empty.recall)
    assert total([empty, ForecastScore(2, 1, 3, 1, (0.5,)), ForecastScore(1, 1, 1, 1, (0.1,))]) == ForecastScore(
        3, 2, 4, 2, (0.5, 0.1)
    )
    with pytest.raises(ValueError, match="unequal lengths: 100 stamps, 2 verdicts"):
        score_forecast(STAMPS, np.zeros(2, bool), mask())
