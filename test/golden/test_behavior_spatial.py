"""Printed figures of BEHAVIOR-Spatial from our own functions; every figure names its table in behavior_spatial.json."""

import json
from pathlib import Path

import pytest

from osma_monitor.core.metrics import selection
from osma_monitor.core.metrics.selection import Selection

FIGURES = {
    row["id"]: row for row in json.loads((Path(__file__).parent / "behavior_spatial.json").read_text())["figures"]
}


def figure(name):
    row = FIGURES[name]
    return row["inputs"], row["expected"], row["tolerance"]


def episodes(task, n, strict, soft, wrong=0):
    """n episodes with these counts."""
    verdicts = (
        [Selection("correct")] * strict + [Selection("none", True)] * (soft - strict) + [Selection("wrong")] * wrong
    )
    return [(task, s) for s in verdicts + [Selection("none")] * (n - len(verdicts))]


def test_held_out_baseline_by_task():
    """Table S5; pooling weights by episode: the unweighted means would be 27.8, 42.2 and 36.8."""
    inputs, expected, tolerance = figure("bs.s5")
    every = [
        e
        for task, (strict, soft, wrong) in inputs["counts_strict_soft_wrong"].items()
        for e in episodes(task, inputs["n"][task], strict, soft, wrong)
    ]
    s = selection.summarize(every)
    assert s.n == figure("bs.n")[1][0] == 469
    assert [100 * r for r in (s.strict, s.soft, s.wrong)] == pytest.approx(expected, abs=tolerance)
    assert [100 * s.macro[k] for k in ("strict", "soft", "wrong")] == pytest.approx([27.8, 42.2, 36.8], abs=0.05)
    assert 100 * s.by_task["reach_food_item"][1] == pytest.approx(53.1, abs=0.05)


@pytest.mark.parametrize("writer", range(5))
def test_code_as_policy_writers(writer):
    """Table S6."""
    inputs, expected, tolerance = figure("bs.s6")
    every = [e for row in inputs for e in episodes(row["task"], row["n"], *reversed(row["counts"][writer]))]
    s = selection.summarize(every)
    assert [100 * s.soft, 100 * s.strict] == pytest.approx(expected[2 * writer : 2 * writer + 2], abs=tolerance)


@pytest.mark.parametrize("variant", range(4))
def test_data_scaling(variant):
    """Table S9."""
    inputs, expected, tolerance = figure("bs.s9")
    every = [e for task, row in inputs.items() for e in episodes(task, row["n"], *row["strict_soft"][variant])]
    s = selection.summarize(every)
    assert [100 * s.strict, 100 * s.soft] == pytest.approx(expected[2 * variant : 2 * variant + 2], abs=tolerance)


def test_navigation():
    """Success is pooled over episodes; the VQA column averages the tasks."""
    inputs, expected, tolerance = figure("bs.nav")
    every = [
        (str(i), selection.reach_place(k < successes))
        for i, (successes, n) in enumerate(zip(inputs["counts"], inputs["n"], strict=True))
        for k in range(n)
    ]
    s = selection.summarize(every)
    assert s.n == figure("bs.n")[1][1] == 401
    assert 100 * s.strict == 100 * s.soft == pytest.approx(expected[0], abs=tolerance)
    assert sum(inputs["vqa"]) / 10 == pytest.approx(expected[1], abs=tolerance)


def test_training_distribution_study():
    """Table S8: counts of 69 episodes."""
    inputs, expected, tolerance = figure("bs.s8")
    for start in (0, 3):
        soft, strict, wrong = inputs["counts"][start : start + 3]
        s = selection.summarize(episodes("reach_paperback_book", 69, strict, soft, wrong))
        assert [100 * r for r in (s.soft, s.strict, s.wrong)] == pytest.approx(
            expected[start : start + 3], abs=tolerance
        )


def test_recovery_of_the_oracle_gain():
    """F.8: predicted dots recover 29 to 39 % of what oracle dots gain."""
    inputs, expected, tolerance = figure("bs.s7_recovery")
    got = [100 * selection.recovery_ratio(p, 41.6, 60.3) for p in inputs["pred"]]
    assert got == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("name", [n for n in FIGURES if n.startswith("bs.vqa_all")])
def test_question_answering_is_pooled_over_questions(name):
    """Table 1: the column All weights direction, distance and size by their numbers of questions."""
    inputs, expected, tolerance = figure(name)
    sizes, totals, _ = figure("bs.vqa_sizes")
    direction, locate, distance, size = sizes["single"]
    assert direction + locate + distance + size == totals[0]
    groups = {"dir": direction + locate, "dist": distance, "size": size}
    counts = [(round(inputs[k] * n / 100), n) for k, n in groups.items()]
    assert 100 * selection.pooled_rate(counts) == pytest.approx(expected, abs=tolerance)
