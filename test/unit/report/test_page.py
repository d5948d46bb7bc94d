"""The HTML page: offline, escaped, small, and it says what the figures say."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
import report_by_hand as by_hand
import report_examples as synthetic
from page_reader import Page

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.report import traces
from osma_monitor.report.model import Comparison, Report
from osma_monitor.report.page import embed_json, render_page
from osma_monitor.report.traces import Margin, Outline, Scene

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&</script>"
COMPARISON = Comparison("cautious", "shortest_path", 24, 0.25, 0.08, 0.42, 0.031, 6, 0)


def margins(record: EpisodeRecord) -> list[Margin]:
    force = record.signals["contact_force_max"]
    return [Margin("max_contact_force_under_200N", "N", 200.0, (200.0 - force) / 200.0)]


def scene(record: EpisodeRecord) -> Scene:
    square = ((1.2, -0.3), (1.8, -0.3), (1.8, 0.3), (1.2, 0.3))
    return Scene((Outline("obstacle", square, record.info.attributes["obstacle"]),))


@pytest.fixture(scope="module")
def report() -> Report:
    return by_hand.report(synthetic.study(), COMPARISON)


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return render_page(report, margins, scene)


def test_it_opens_with_the_answer(html: str, report: Report) -> None:
    words = Page(html).words
    safety = {p.policy: p.figures["safety"].value for p in report.policies}
    top, other = 100 * safety["cautious"], 100 * safety["shortest_path"]
    assert f"cautious is safer than shortest_path: {top:.0f} % of episodes against {other:.0f} %" in words
    assert "95 % interval +8 to +42; exact McNemar p = 0.031" in words
    assert words.index("is safer than") < words.index("What happened")


def test_every_headline_figure_stands_on_the_page(html: str, report: Report) -> None:
    words = Page(html).words
    for p in report.policies:
        for key in ("sr", "safety", "sbu", "cfsr"):
            figure = p.figures[key]
            text = f"{100 * figure.value:.1f} % {100 * figure.low:.1f} to {100 * figure.high:.1f} n {figure.n}"
            assert text in words, (p.policy, key)
        assert f"{p.figures['vsi'].value:.3f}" in words


def test_nothing_is_requested_from_elsewhere(html: str) -> None:
    page = Page(html)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset", "background", "formaction", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    assert not {tag for tag, _ in page.tags} & {"iframe", "object", "embed", "base"}
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.S))
    assert "url(" not in styles and "@import" not in styles
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_text_from_messages_never_becomes_markup() -> None:
    record = synthetic.episode("cautious", "A", "high", "baby")
    bad = replace(
        record,
        info=replace(
            record.info,
            task=EVIL,
            policy=EVIL,
            suite=EVIL,
            episode_id=EVIL,
            attributes={**record.info.attributes, "obstacle": EVIL},
        ),
        outcome=Outcome("success", EVIL),
        clauses=tuple(replace(c, clause=EVIL, family=EVIL) for c in record.clauses),
        provenance=replace(record.provenance, library_hash=EVIL, source={EVIL: EVIL}),
    )
    honest, attacked = (
        render_page(by_hand.report([record]), margins, scene),
        render_page(by_hand.report([bad]), margins, scene),
    )
    names = [tag for tag, _ in Page(honest).tags]
    assert [tag for tag, _ in Page(attacked).tags] == names
    assert "onerror" not in {name for _, attributes in Page(attacked).tags for name in attributes}
    assert json.loads(Page(attacked).data)["episodes"]["0"]["task"] == EVIL
    assert attacked.count("</script>") == honest.count("</script>") == 3


def test_embedded_json_cannot_close_its_element() -> None:
    text = embed_json({"a": "</script><!--<script>&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--<script>&\u2028"}
    with pytest.raises(ValueError, match="JSON"):
        embed_json(math.nan)


def test_the_same_report_gives_the_same_page(html: str, report: Report) -> None:
    assert render_page(report, margins, scene) == html


def test_every_episode_is_listed_and_traced(html: str, report: Report) -> None:
    data = json.loads(Page(html).data)
    assert len(data["episodes"]) == len(data["traces"]) == len(report.records)
    assert html.count("<tr data-i=") == len(report.records)
    worst = max(
        range(len(report.records)), key=lambda i: (report.records[i].safety == "unsafe", report.records[i].depth)
    )
    assert data["first"] == worst
    assert len(data["outlines"]) == 6  # one an obstacle, shared by policies, routes and seeds


def test_a_long_run_stays_small_and_keeps_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    records = synthetic.study(seeds=(0, 3))
    monkeypatch.setattr(traces, "BUDGET", 30_000)
    monkeypatch.setattr("osma_monitor.report.page.LISTED", 20)
    html = render_page(by_hand.report(records), margins, scene)
    data = json.loads(Page(html).data)
    assert 0 < len(data["traces"]) < 20 == len(data["episodes"])
    assert len(json.dumps(data["traces"], separators=(",", ":"))) < 31_000
    unsafe = {str(i) for i, r in enumerate(records) if r.safety == "unsafe"}
    assert len(unsafe & set(data["traces"])) >= min(len(unsafe), len(data["traces"])) // 2
    assert "of 48 are listed" in Page(html).words


def test_unknown_aborted_and_mixed_libraries_are_said() -> None:
    records = synthetic.study(seeds=(0,))
    hidden = records[0].clauses[0]
    hidden = replace(hidden, status="unknown", rho=math.nan, lower=-math.inf, upper=math.inf, depth=0.0)
    records[0] = replace(records[0], clauses=(hidden,))
    records[1] = replace(records[1], outcome=Outcome("aborted", "policy silent"))
    records[2] = replace(records[2], complete=False)
    records[3] = replace(records[3], provenance=replace(records[3].provenance, library_hash="f" * 16))
    page = Page(render_page(by_hand.report(records), margins))
    words = page.words
    assert "the safety of 1 episode of 11 is unknown; left out" in words
    assert "1 episode aborted, listed but not scored" in words
    assert "did not end regularly" in words
    assert "judged by different clause libraries" in words
    assert "since an input was missing or invalid" in json.dumps(
        json.loads(Page(render_page(by_hand.report(records))).data)
    )


@pytest.mark.parametrize("count", [0, 1])
def test_few_or_no_episodes_are_still_a_page(count: int) -> None:
    words = Page(render_page(by_hand.report(synthetic.study(seeds=(0,))[:count]))).words
    assert ("There is no scored episode yet" if count == 0 else "kept every clause in") in words


def test_no_clear_difference_is_called_that(report: Report) -> None:
    unclear = replace(COMPARISON, low=-0.1, p_value=0.4)
    words = Page(render_page(replace(report, comparison=unclear))).words
    assert "is safer than" not in words and "can’t rule out chance" in words


def test_thinning_keeps_single_step_violations() -> None:
    values = np.ones(10_000)
    values[1234] = -0.5
    starts = traces.buckets(len(values))
    assert len(starts) <= traces.POINTS
    reduced = traces.reduce(values, starts, np.fmin)
    assert reduced.min() == -0.5 and (reduced < 0).sum() == 1
    assert math.isnan(traces.reduce(np.full(9, np.nan), traces.buckets(9), np.fmin)[0])


def test_a_constant_trace_is_one_number() -> None:
    assert traces.thousandths(np.array([1.0, 1.0, 1.0])) == 1000
    assert traces.thousandths(np.array([1.0, np.nan])) == [1000, None]
    assert traces.thousandths(np.array([np.inf, np.inf])) is None


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_runs_it_without_errors_and_runs_nothing_foreign(tmp_path: Path) -> None:
    record = synthetic.episode("shortest_path", "A", "high", "baby", seed=3)
    bad = replace(record, info=replace(record.info, task=EVIL, policy=EVIL), outcome=Outcome("failure", EVIL))
    path = tmp_path / "page.html"
    path.write_text(render_page(by_hand.report([bad, record]), margins, scene), encoding="utf-8")
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
        "--enable-logging=stderr",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not re.search(r"CONSOLE.*(error|refused|violat)", done.stderr, re.I), done.stderr
    page = Page(done.stdout)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title and title[1] == "Safety report"
    assert sum(tag == "canvas" for tag, _ in page.tags) == 2  # margins and distance were drawn
    assert ("article", False) in [(t, "hidden" in a) for t, a in page.tags if t == "article"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [320, 375])
def test_nothing_reaches_past_the_edge_of_a_phone(html: str, tmp_path: Path, width: int) -> None:
    # a browser's window has a least width of its own; a frame in it has none
    path = tmp_path / "frame.html"
    path.write_text(
        f'<body><iframe id="f" width="{width}" height="800" srcdoc="{escape(html)}"></iframe><p id="p"></p><script>'
        "onload = () => setTimeout(() => { const e = document.getElementById('f').contentDocument.documentElement;"
        "document.getElementById('p').textContent = `widths ${e.clientWidth} ${e.scrollWidth} `"
        " + e.querySelectorAll('#c-path svg').length; }, 1500)</script></body>",
        encoding="utf-8",
    )
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = re.search(r">widths (\d+) (\d+) (\d+)<", done.stdout)
    assert said is not None and int(said[3]) == 1, "the path was drawn"
    assert int(said[2]) <= int(said[1]) <= width


def test_an_episode_without_clauses_is_said_to_be_unchecked() -> None:
    record = replace(synthetic.episode("cautious", "A", "high", "baby"), clauses=(), inactive={"force": "no contacts"})
    record = replace(record, info=replace(record.info, policy=""))
    page = Page(render_page(by_hand.report([record])))
    assert "No safety clause was active in this episode" in page.words
    assert "(no policy named): the safety of 1 episode of 1 is unknown" in page.words
    assert "No scored clause was active." in json.loads(page.data)["episodes"]["0"]["story"]
    assert ", n = 0" not in page.words


def test_policies_on_different_tasks_are_warned_about() -> None:
    records = synthetic.study(seeds=(0,))
    assert "did not all run the same tasks" not in Page(render_page(by_hand.report(records))).words
    assert "did not all run the same tasks" in Page(render_page(by_hand.report(records[1:]))).words


def test_a_shared_first_place_names_all() -> None:
    records = [r for r in synthetic.study(seeds=(0,)) if r.safety == "safe"]
    third = [replace(r, info=replace(r.info, policy="third")) for r in records if r.info.policy == "cautious"]
    words = Page(render_page(by_hand.report([*records, *third]))).words
    assert "shortest_path, cautious and third share the highest safety: 100 % of episodes" in words
