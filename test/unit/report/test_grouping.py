"""Tables grouped by attributes that bear the names of the tables' own columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.report import build, clause_tables, safety_tables
from osma_monitor.report.grouping import OWN, key_of

from . import report_examples as synthetic


def with_attribute(name: str) -> list[EpisodeRecord]:
    """Two groups: the seeds, under another name."""
    return [
        replace(r, info=r.info.with_attributes({name: f"group {r.info.seed}"}), partial=r.info.seed == 3)
        for r in synthetic.study()
    ]


def grouped_tables(name: str) -> dict[str, object]:
    scores = build.collect(with_attribute(name)).scores
    tables = [safety_tables.summary(scores, (name,)), *clause_tables.all_tables(scores, (name,))[0]]
    return {t.key: t for t in tables if t.columns[0].key == key_of(name)}


def test_every_own_column_is_known() -> None:
    for key, t in grouped_tables("site").items():
        own = {n for c in t.columns[1:] for n in (c.key, *([f"{c.key}_low"] if c.interval else []))}
        assert own <= OWN, key


@pytest.mark.parametrize("name", ["n", "clause", "sr", "safety", "n_unknown", "library_hash", "vsi_low", "class_0"])
def test_an_attribute_with_the_name_of_a_column_takes_nothing_away(name: str) -> None:
    plain, clashing = grouped_tables("site"), grouped_tables(name)
    assert plain.keys() == clashing.keys() and len(plain) > 4
    for key, t in clashing.items():
        assert t.columns[0].key == f"attribute_{name}"
        names = [c.key for c in t.columns]
        assert len(set(names)) == len(names), key
        expected = plain[key].frame.rename(columns={"site": f"attribute_{name}"})
        assert t.frame[names].equals(expected[names]), key
        assert set(t.frame[f"attribute_{name}"]) == {"group 0", "group 3"}


def test_partial_episodes_are_counted_in_the_summary() -> None:
    frame = safety_tables.summary(build.collect(with_attribute("site")).scores, ("site",))
    assert "n_partial" in [c.key for c in frame.columns]
    assert frame.frame.set_index("site").n_partial.to_dict() == {"group 0": 0, "group 3": 24}
    whole = safety_tables.summary(build.collect(synthetic.study()).scores, ("policy",))
    assert "n_partial" not in [c.key for c in whole.columns]
