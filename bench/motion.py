"""What the motion features cost: one update while the robot moves, and one episode at its end.

Run: ``python bench/motion.py``.
"""

from __future__ import annotations

import time

import numpy as np

from osma_monitor.core.motion import OnlineMotion, episode_motion

STEPS = 2_000
REPEATS = 7


def main() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 0.02, (2, STEPS)).cumsum(axis=1)
    distance = rng.uniform(0.1, 2.0, STEPS)
    stamps = 1_000_000_000 + 50_000_000 * np.arange(STEPS)
    frames = list(zip(stamps.tolist(), x.tolist(), y.tolist(), distance.tolist(), strict=True))
    online, batch = [], []
    for _ in range(REPEATS):
        motion = OnlineMotion()
        start = time.perf_counter()
        for stamp, px, py, d in frames:
            motion.update(stamp, px, py, d, False, "obstacle")
        middle = time.perf_counter()
        episode_motion(stamps, x, y, distance, np.zeros(STEPS))
        online.append(middle - start)
        batch.append(time.perf_counter() - middle)
    print(f"online: {min(online) / STEPS * 1e6:.1f} us an update")
    print(f"batch:  {min(batch) * 1e3:.2f} ms an episode of {STEPS} steps, {min(online) / min(batch):.0f} times less")


if __name__ == "__main__":
    main()
