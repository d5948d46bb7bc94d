"""SSI of tiers that mean nothing."""

import math

import numpy as np
import pytest

from osma_monitor.core.metrics import ssi
from osma_monitor.core.metrics.ssi_null import indifference
from osma_monitor.core.motion import FEATURES

SIGN = np.array(list(FEATURES.values()))


def table(seed, effect=0.0, cells=12, holes=0.0):
    rng = np.random.default_rng(seed)
    tier = np.tile(np.repeat([0, 1, 2], 4), cells)
    values = (effect * tier[:, None] + rng.normal(size=(len(tier), 7)) + rng.normal(size=(len(tier), 1))) * SIGN
    values[rng.random(values.shape) < holes] = math.nan
    names = [ssi.TIERS[t] for t in tier]
    return {"cell": np.repeat(np.arange(cells), 12), "tier": names, **dict(zip(FEATURES, values.T, strict=True))}


def test_an_effect_is_beyond_chance():
    found = indifference(table(0, effect=2.0), deals=300)
    assert found.ssi > 0.9 and found.p_value == pytest.approx(1 / 301) and found.interval[1] < found.ssi
    assert indifference(table(0, effect=-2.0), deals=300).p_value == pytest.approx(1 / 301)


def test_p_is_uniform_when_tiers_mean_nothing():
    p = np.array([indifference(table(seed, cells=6), deals=100, seed=seed).p_value for seed in range(150)])
    for level in (0.1, 0.3, 0.5, 0.8):
        assert (p <= level).mean() == pytest.approx(level, abs=0.13)


def test_the_deals_keep_the_table_and_lie_around_0():
    """Equal to shuffling the column by hand; unknown values and unequal tiers are kept."""
    data = table(3, holes=0.2)
    data = ssi.select(data, np.arange(len(data["cell"])) % 7 != 0)
    rng = np.random.default_rng(0)
    tier, cell = np.asarray(data["tier"]), np.asarray(data["cell"])
    by_hand = []
    for _ in range(600):
        mixed = tier.copy()
        for c in np.unique(cell):
            mixed[cell == c] = rng.permutation(mixed[cell == c])
        by_hand.append(ssi.semantic_sensitivity_index({**data, "tier": mixed}).ssi)
    found = indifference(data, deals=600)
    assert found.interval == pytest.approx(tuple(np.quantile(by_hand, [0.025, 0.975])), abs=0.04)
    assert found.interval[0] < 0 < found.interval[1] and found.deals == 600


def test_a_seed_gives_the_same_deals():
    assert indifference(table(1), deals=50, seed=4) == indifference(table(1), deals=50, seed=4)


def test_undefined():
    data = {"cell": ["a"] * 3, "tier": list(ssi.TIERS), "d_min": [1.0, 1.0, 1.0]}
    found = indifference(data, deals=10)
    assert math.isnan(found.ssi) and math.isnan(found.p_value) and found.deals == 0
    empty = indifference({"cell": [], "tier": [], "d_min": []}, deals=10)
    assert math.isnan(empty.p_value)
