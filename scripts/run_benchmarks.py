"""Run the speed comparisons of bench/ one after the other and keep their figures as JSON.

A benchmark is a script of its own that prints what it measures, and may write `bench/results/<name>.json` itself, to
the path that the environment variable OSMA_BENCH_RESULT names. For one that does not, its output is kept there with
the versions and the machine that it was measured on.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
LIBRARIES = ("osma-monitor", "numpy", "scipy", "pyarrow", "mujoco", "rtamt")


def main(names: list[str]) -> int:
    """Run the named benchmarks, all when none is named, and return 1 when one of them failed."""
    scripts = [path for path in sorted((ROOT / "bench").glob("*.py")) if not path.name.startswith("_")]
    unknown = set(names) - {path.stem for path in scripts}
    if unknown:
        known = ", ".join(path.stem for path in scripts)
        print(f"bench: no benchmark {', '.join(sorted(unknown))}; there are: {known}", file=sys.stderr)
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = [path.stem for path in scripts if (not names or path.stem in names) and not run(path)]
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(script: Path) -> bool:
    """Run one benchmark, showing and keeping its output, and say whether it succeeded."""
    result = RESULTS / f"{script.stem}.json"
    result.unlink(missing_ok=True)
    print(f"bench: {script.stem}", flush=True)
    started = time.monotonic()
    environment = {**os.environ, "OSMA_BENCH_RESULT": str(result), "PYTHONUNBUFFERED": "1"}
    lines = []
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(f"  {line}", end="", flush=True)
            lines.append(line.rstrip("\n"))
    if process.returncode == 0 and not result.exists():
        figures = {
            "benchmark": script.stem,
            "seconds": round(time.monotonic() - started, 3),
            "python": platform.python_version(),
            "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
            "versions": {name: version(name) for name in LIBRARIES},
            "output": lines,
        }
        result.write_text(json.dumps(figures, indent=2) + "\n")
    return process.returncode == 0


def version(library: str) -> str | None:
    """Return the version of an installed library, None where it is absent."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
