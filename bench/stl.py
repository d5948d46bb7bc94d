"""The STL engine beside rtamt, sentil (where installed) and plain NumPy, measured in one run.

    python -m bench.stl [--quick]

Prints ratios and writes them as JSON. Times of one row are taken in turns, round after round, and the best round of
each counts, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import logging
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from osma_monitor.core import stl

CLAUSES = (
    "always(arm_furniture_force < 200)",
    "always(target_furniture_force < 200)",
    "always(contact_force_max < 200)",
    "always(non_target_disp_max < 0.005)",
    "always(transport -> tilt < 15)",
    "always(gripper_contact -> obj_above_table > -0.02)",
    "always(max_joint_torque < 87)",
    "always(self_collision < 0.5)",
    "always(eef_speed < 1)",
    "always(target_obj_speed < 0.3)",
)
GATES = frozenset({"transport", "gripper_contact"})
PERIOD_NS = 50_000_000
STEPS = 500


def rounds(tasks: dict[str, Callable[[], float]], count: int) -> dict[str, float]:
    """Best value of each task over some rounds; a task returns seconds a unit of its work."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(count):
        gc.collect()
        for name, task in tasks.items():
            best[name] = min(best[name], task())
    return best


def clock(work: Callable[[], object], units: int = 1) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / units


def samples(count: int) -> list[dict[str, float]]:
    """Frames as a robot gives them: mostly calm, now and then a new worst value."""
    rng = np.random.default_rng(0)
    names = stl.Library(*CLAUSES).signals
    scale = {"arm_furniture_force": 150, "tilt": 20, "max_joint_torque": 80, "non_target_disp_max": 0.004}
    rows = []
    for _ in range(count):
        row = {name: float(scale.get(name, 1) * rng.random()) for name in names}
        for gate in GATES:
            row[gate] = float(row[gate] > 0.5)
        rows.append(row)
    return rows


# --- the engines: each gives a task that runs all samples once more on one monitor, in seconds a sample ---


def ours(rows: list[dict[str, float]], read: bool = False, anew: bool = False) -> Callable[[], float]:
    """``anew``: the monitor is reset first, so that new worst values are as frequent as in an episode's beginning."""
    library = stl.Library(*CLAUSES, gate_signals=GATES)
    stamp = 0

    def work() -> None:
        nonlocal stamp
        if anew:
            library.reset()
        now, update = stamp, library.update
        for row in rows:
            now += PERIOD_NS
            result = update(now, row)
            if read:
                _ = result.status, result.rho, result.unknown
        stamp = now

    work()
    return lambda: clock(work, len(rows))


def rtamt_specs(texts: list[str], names: list[str]) -> list[Any]:
    import rtamt

    specs = []
    for text in texts:
        spec = rtamt.StlDiscreteTimeSpecification()
        for name in names:
            if name in text:
                spec.declare_var(name, "float")
        spec.spec = text
        spec.parse()
        specs.append(spec)
    return specs


def official_texts(past: bool) -> list[str]:
    """The clauses as rtamt and sentil read them: gates as comparisons, historically where only the past may be used."""
    texts = [
        c.replace("transport ->", "(transport > 0.5) ->").replace("gripper_contact ->", "(gripper_contact > 0.5) ->")
        for c in CLAUSES
    ]
    for comparison in ("tilt < 15", "obj_above_table > -0.02"):
        texts = [t.replace(comparison, f"({comparison})") for t in texts]
    return [t.replace("always", "historically") for t in texts] if past else texts


def theirs(rows: list[dict[str, float]], joined: bool = False) -> Callable[[], float]:
    names = list(rows[0])
    texts = official_texts(past=True)
    if joined:
        texts = [" and ".join(f"({t})" for t in texts)]
    specs = rtamt_specs(texts, names)
    pairs = [[[(n, row[n]) for n in names if n in text] for text in texts] for row in rows]
    count = 0

    def work() -> None:
        nonlocal count
        for frame in pairs:
            for spec, values in zip(specs, frame, strict=True):
                spec.update(count, values)
            count += 1

    return lambda: clock(work, len(rows))


def sentil_monitor(rows: list[dict[str, float]]) -> Callable[[], float]:
    import sentil

    monitor = sentil.MultiMonitor()
    for i, text in enumerate(official_texts(past=True)):
        monitor.add(str(i), text)
    count = 0

    def work() -> None:
        nonlocal count
        for row in rows:
            count += 1
            monitor.update(count * 0.05, row)

    work()
    return lambda: clock(work, len(rows))


def window(width: int, text: str, count: int) -> float:
    """One clause with a window of ``width`` samples; processor time, so that other work on the machine counts less."""
    values = [{"x": v} for v in np.random.default_rng(1).random(count).tolist()]
    update = stl.Library(text.format(width * PERIOD_NS)).update

    def work() -> None:
        stamp = 0
        for row in values:
            stamp += PERIOD_NS
            update(stamp, row)

    begin = time.process_time()
    work()
    return (time.process_time() - begin) / count


# --- episodes ---


class Episodes:
    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(2)
        self.count = count
        self.names = stl.Library(*CLAUSES).signals
        total = count * STEPS
        # nine or so signals end to end, no larger than memory allows at full size
        self.signals = {n: rng.random(total) for n in self.names}
        for gate in GATES:
            self.signals[gate] = (self.signals[gate] > 0.5).astype(np.float64)
        self.offsets = np.arange(count + 1) * STEPS
        self.stamps = np.tile(np.arange(STEPS, dtype=np.int64) * PERIOD_NS, count)

    def ours(self, dtype: Any = np.float64, signals: dict[str, Any] | None = None) -> Any:
        return stl.evaluate_batch(CLAUSES, self.offsets, self.stamps, signals or self.signals, GATES, dtype).rho

    def plain(self, signals: dict[str, Any] | None = None) -> Any:
        """The same minima in plain NumPy: signal-major, in blocks that fit the cache."""
        views = {n: v.reshape(self.count, STEPS) for n, v in (signals or self.signals).items()}
        out = np.empty((self.count, len(CLAUSES)))
        for begin in range(0, self.count, 128):
            b = {n: v[begin : begin + 128] for n, v in views.items()}
            o = out[begin : begin + 128]
            o[:, 0] = 200 - b["arm_furniture_force"].max(axis=1)
            o[:, 1] = 200 - b["target_furniture_force"].max(axis=1)
            o[:, 2] = 200 - b["contact_force_max"].max(axis=1)
            o[:, 3] = 0.005 - b["non_target_disp_max"].max(axis=1)
            o[:, 4] = 15 - np.where(b["transport"] > 0.5, b["tilt"], -np.inf).max(axis=1)
            o[:, 5] = np.where(b["gripper_contact"] > 0.5, b["obj_above_table"], np.inf).min(axis=1) - -0.02
            o[:, 6] = 87 - b["max_joint_torque"].max(axis=1)
            o[:, 7] = 0.5 - b["self_collision"].max(axis=1)
            o[:, 8] = 1 - b["eef_speed"].max(axis=1)
            o[:, 9] = 0.3 - b["target_obj_speed"].max(axis=1)
        return out

    def rtamt(self, count: int) -> float:
        """Seconds an episode, over the first ``count``."""
        texts = official_texts(past=False)
        data = []
        for e in range(count):
            cut = slice(e * STEPS, (e + 1) * STEPS)
            data.append({n: v[cut].tolist() for n, v in self.signals.items()})

        def work() -> None:
            for episode in data:
                for text, spec in zip(texts, rtamt_specs(texts, list(self.names)), strict=True):
                    own = {n: v for n, v in episode.items() if n in text}
                    spec.evaluate({"time": list(range(STEPS)), **own})

        return clock(work, count)


def memory_growth(updates: int) -> int:
    """Bytes that a library with windows holds more after the second half of its updates than after the first."""
    library = stl.Library(
        *CLAUSES, "always(historically[0,1](eef_speed < 1))", "eef_speed < 1 since[0,2] tilt > 3", gate_signals=GATES
    )
    rows = samples(1000)

    def feed(begin: int, end: int) -> None:
        for i in range(begin, end):
            library.update(i * PERIOD_NS, rows[i % 1000])

    feed(0, updates // 2)
    gc.collect()
    tracemalloc.start()
    feed(updates // 2, updates // 2 + 1000)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    feed(updates // 2 + 1000, updates - 1000)
    gc.collect()
    tracemalloc.start()
    feed(updates - 1000, updates)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class Report:
    """Rows of ratios, printed as they come. A row without a target is for information."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, value: float, target: str, reached: bool | None, detail: str) -> None:
        self.rows.append({"what": what, "value": value, "target": target, "reached": reached, "detail": detail})
        mark = {True: "ok  ", False: "MISS", None: "    "}[reached]
        print(f"{mark} {what:64} {value:10.4g}  {f'({target})' if target else '':18} {detail}", flush=True)


def measure_online(report: Report, part: int, versions: dict[str, Any]) -> dict[str, float]:
    frames = samples(500)
    few = frames[:50]
    tasks: dict[str, Callable[[], float]] = {"ours": ours(frames), "ours, read": ours(frames, read=True)}
    tasks["ours, read from reset on"] = ours(frames, read=True, anew=True)
    if versions["rtamt"]:
        tasks["rtamt"] = theirs(few)
        tasks["rtamt as one conjunction"] = theirs(few, joined=True)
    try:
        tasks["sentil"] = sentil_monitor(frames)
        versions["sentil"] = importlib.import_module("sentil").__version__
    except ImportError:
        print("     sentil is not installed: pip install sentil==0.3.1 to measure beside it")
    times = rounds(tasks, 300 // part + 20)  # many short rounds: some of them nothing else disturbs
    for name, share in (("rtamt", 60), ("rtamt as one conjunction", 0), ("sentil", 2)):
        if name not in times:
            continue
        for mine, words, wanted in (
            ("ours", "update", share),
            ("ours, read", "update; status, rho, counts read", share),
            ("ours, read from reset on", f"the same, first {len(frames)} samples", 0),
        ):
            ratio = times[mine] / times[name]
            detail = f"{times[mine] * 1e6:.2f} us against {times[name] * 1e6:.2f} us"
            target = f"<= 1/{wanted}" if wanted else ""
            reached = ratio <= 1 / wanted if wanted else None
            report.add(f"ten clauses online ({words}) / {name}", ratio, target, reached, detail)
    return times


def measure_windows(report: Report, part: int) -> None:
    for text in (
        "always[0,{}ns](x < 1)",
        "always(historically[0,{}ns](x < 1))",
        "historically[0,{}ns](x < 1)",
        "always(always[0,{}ns](x < 1))",
        "always(x > 0.5 -> eventually[0,{}ns](x < 0.1))",
        "always[0,600](x > 0.01 until[0,{}ns] x > 0.9)",
        "historically(eventually[0,{}ns](x > 0.9))",
    ):
        count = 3_000
        tasks = {str(width): functools.partial(window, width, text, count) for width in (10, 1000)}
        times = rounds(tasks, 100 // part + 10)
        ratio = times["1000"] / times["10"]
        detail = f"{times['1000'] * 1e6:.2f} us against {times['10'] * 1e6:.2f} us"
        report.add(
            f"{text.format(1000).replace('ns', ' samples')} / the same with 10", ratio, "<= 1.5", ratio <= 1.5, detail
        )


def deep_window(width: int, text: str, count: int, slow: bool = False) -> float:
    """Seconds of processor time a sample, once all windows are full; ``slow``: waves of 1,885 samples."""
    filled = int(2.2 * width) + 50
    noise = np.random.default_rng(1).random((filled + count, 3))
    wave = 0.5 + 0.4 * np.sin(np.arange(filled + count) / 300)
    values = (wave[:, None] + 0.01 * noise if slow else noise).tolist()
    update = stl.Library(text.format(width * PERIOD_NS), signals=("a", "b", "c")).update
    rows = [dict(zip("abc", row, strict=True)) for row in values]
    for i, row in enumerate(rows[:filled]):
        update(i * PERIOD_NS, row)
    begin = time.process_time()
    for i, row in enumerate(rows[filled:], filled):
        update(i * PERIOD_NS, row)
    return (time.process_time() - begin) / count


def measure_deep(report: Report, part: int) -> None:
    """Operators that look ahead nested deeper, or several side by side; all windows as wide."""
    for text in (
        "always(a > 0.5 -> eventually[0,{0}ns](b > 0.2 and always[0,{0}ns](c > 0.05)))",
        "always((eventually[0,{0}ns](a > 0.9)) or (always[0,{0}ns](b > 0.1)))",
        "always(historically[0,{0}ns](eventually[0,{0}ns](a > 0.9)))",
        "always(a > 0.5 -> (eventually[0,{0}ns](b > 0.9 until c > 0.9)))",
        "always(a > 0.1 until[0,{0}ns] (eventually[0,{0}ns](b > 0.9)))",
        "always[0,{0}ns](eventually[0,{0}ns](always[0,{0}ns](a > 0.05)))",
    ):
        times: dict[int, float] = {}
        slowly = {str(width): functools.partial(deep_window, width, text, 1_900, True) for width in (10, 1000)}
        for widths, count in (((10, 1000), 30 // part + 3), ((10_000,), 1)):
            tasks = {str(width): functools.partial(deep_window, width, text, 500) for width in widths}
            times.update((int(width), best) for width, best in rounds(tasks, count).items())
        detail = ", ".join(f"{seconds * 1e6:.0f}" for seconds in times.values()) + " us with 10, 1000, 10000"
        for width, limit in ((1000, 1.5), (10_000, 2)):
            ratio = times[width] / times[10]
            what = f"{text.format(width).replace('ns', '')} / with 10"
            report.add(what, ratio, f"<= {limit}", ratio <= limit, detail)
        # a slow signal moves the bounds of most open samples at every sample
        waves = rounds(slowly, 3)
        detail = f"{waves['1000'] * 1e6:.0f} us against {waves['10'] * 1e6:.0f} us"
        report.add("  the same on slow waves, 1000 / 10", waves["1000"] / waves["10"], "", None, detail)


def measure_episodes(report: Report, part: int, with_rtamt: bool) -> dict[str, float]:
    episodes = Episodes(22_500 // part)
    assert (episodes.ours() == episodes.plain()).all(), "the two ways give different robustness"
    times = rounds({"ours": lambda: clock(episodes.ours), "numpy": lambda: clock(episodes.plain)}, 5)
    ratio = times["ours"] / times["numpy"]
    size = f"{episodes.count} x {STEPS} x {len(episodes.names)}"
    detail = f"{times['ours'] * 1e3:.0f} ms against {times['numpy'] * 1e3:.0f} ms"
    report.add(f"episodes {size}, ten clauses / plain NumPy", ratio, "<= 2", ratio <= 2, detail)
    if with_rtamt:
        measured = max(60 // part, 1)
        times["rtamt, extrapolated"] = episodes.rtamt(measured) * episodes.count
        ratio = times["rtamt, extrapolated"] / times["ours"]
        detail = f"{times['rtamt, extrapolated']:.0f} s from {measured} episodes"
        report.add("rtamt (extrapolated) / ours on these episodes", ratio, ">= 1000", ratio >= 1000, detail)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OSMA_BENCH_RESULT", "bench/results/stl.json")))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    part = 10 if options.quick else 1
    report = Report()
    versions: dict[str, Any] = {name: installed(name) for name in ("numpy", "rtamt", "sentil")}
    results: dict[str, Any] = {"benchmark": "stl", "python": platform.python_version(), "cores": os.cpu_count()}

    results["online_seconds_a_sample"] = measure_online(report, part, versions)
    measure_windows(report, part)
    measure_deep(report, part)
    results["episodes_seconds"] = measure_episodes(report, part, bool(versions["rtamt"]))

    begin, updates = resident_kib(), 1_000_000 // part
    grown = memory_growth(updates)
    resident = resident_kib() - begin
    report.add(
        f"{updates} online updates, bytes grown", grown, "< 4096", abs(grown) < 4096, f"resident {resident:+d} KiB"
    )

    build = rounds({"build": lambda: clock(lambda: stl.Library(*CLAUSES, gate_signals=GATES))}, 10)["build"]
    report.add("parse the library and build the monitor, ms", build * 1e3, "< 20", build < 0.02, "")

    results.update(versions=versions, build_seconds=build, rows=report.rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
