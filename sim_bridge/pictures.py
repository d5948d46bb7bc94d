"""Pictures of recorded kitchen drives for a report: the top view with the way of the base, its outline, and contacts.

Made from the episode's record alone, so that nothing is rendered while the robot drives. Drawn, or with ``rendered``
over what the simulator's top camera sees (then it needs GL).

    python -m sim_bridge.pictures RUN --out pictures            # one PNG an episode
    python -m sim_bridge.pictures RUN --out pictures --rendered
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from osma_monitor.core.episode import EpisodeRecord
from osma_monitor.core.errors import EXIT_BAD_INPUT, UserError
from osma_monitor.core.signals.raw import CONTACT_UNKNOWN, Base, Objects, RawFrame
from osma_monitor.io.store import read_episodes
from sim_bridge.kitchen.tasks import SUITE, Task, parse_task, with_identical_shape
from sim_bridge.policies.topview import TopView, png
from sim_bridge.policies.views import Cameras, RenderedView

_OUTLINES = 6  #: of the base along its way, the last at its end
_CONTACT_COLOR = (200, 0, 0)


def drive_picture(record: EpisodeRecord, cameras: Cameras | None = None, scale: float = 96.0) -> Image.Image:
    """The top view of a recorded drive at ``scale`` pixels a metre.

    The obstacle is where it stood first; red dots are steps in contact with it. ``cameras`` renders the scene instead
    of drawing it. UserError for an episode of another host, or without base poses.
    """
    if record.info.suite != SUITE:
        raise UserError(f"{record.info.episode_id!r}: pictures are of kitchen drives, this is {record.info.suite!r}")
    task = parse_task(record.info.task)
    if record.info.attributes.get("shapes") == "identical":
        task = with_identical_shape(task)
    way = np.column_stack([record.signals[name] for name in ("base_x", "base_y", "base_yaw")])
    known = np.isfinite(way).all(axis=1)
    if not known.any():
        raise UserError(f"{record.info.episode_id!r}: the record holds no base pose")
    frame = _first_frame(task, way[known][0], int(record.stamps_ns[0]))
    if cameras is None:
        view = TopView(task, scale)
    else:
        cameras.reset(record.info)
        view = RenderedView(task, scale, cameras)
    image = view.draw(frame)
    poses = way[known]
    for index in np.unique(np.linspace(0, len(poses) - 1, _OUTLINES).round().astype(int)):
        x, y, yaw = (float(v) for v in poses[index])
        view.robot(image, (x, y, yaw), 0.35)
    view.path(image, poses.tolist())
    touched = way[known & (record.signals["obstacle_contact"] > 0.5)]
    view.marks(image, touched.tolist(), _CONTACT_COLOR)
    return image


def _first_frame(task: Task, pose: np.ndarray, stamp_ns: int) -> RawFrame:
    """What the policy saw first, as far as the task says it."""
    yaw = float(pose[2])
    base = Base(
        np.array([pose[0], pose[1], 0.0]),
        np.array([0.0, 0.0, np.sin(yaw / 2), np.cos(yaw / 2)]),
        np.zeros(3),
        np.zeros(3),
    )
    rows: list[tuple[str, str, tuple[float, float, float, float]]] = []
    x, y, z, turn = task.obstacle_pose
    if task.shape is not None:
        rows.append((task.obstacle, "human" if task.tier == "high" else "obstacle", (x, y, z, turn)))
        if task.shape.table:
            rows.append(("table", "furniture", (x, y, 0.0, turn)))
    person = task.kitchen.fixtures["human"]
    if task.goal_name == "human" and person.at is not None:
        rows.append(("human", "target", (*person.at, 0.0, person.approach.yaw + np.pi)))
    names = tuple(name if role != "target" else "goal_person" for name, role, _ in rows)
    place = np.array([at for *_, at in rows]).reshape(-1, 4)
    objects = Objects(
        names,
        tuple(name for name, _, _ in rows),
        tuple(role for _, role, _ in rows),
        place[:, :3].copy(),
        np.column_stack([np.zeros((len(rows), 2)), np.sin(place[:, 3] / 2), np.cos(place[:, 3] / 2)]),
        np.full(len(rows), np.nan),
        np.full(len(rows), CONTACT_UNKNOWN, dtype=np.int8),
    )
    return RawFrame(stamp_ns=stamp_ns, base=base, objects=objects)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one PNG for each kitchen episode of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", type=Path, help="run folders or episode files")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder for the pictures")
    parser.add_argument("--rendered", action="store_true", help="the simulator's top camera instead of a drawing")
    given = parser.parse_args(arguments)
    cameras = Cameras() if given.rendered else None
    written: dict[str, int] = {}
    other = 0
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        for record in read_episodes(given.run):
            if record.info.suite != SUITE:
                other += 1
                continue
            # a name made of the parsed task and the seed: text of a record is never a path
            task = parse_task(record.info.task)
            policy = "".join(c if c.isalnum() or c in "-_" else "_" for c in record.info.policy) or "policy"
            name = f"{policy}.{task.id.replace('/', '.')}.s{int(record.info.seed)}"
            written[name] = written.get(name, 0) + 1
            again = f".{written[name]}" if written[name] > 1 else ""  # the same drive of another run
            (given.out / f"{name}{again}.png").write_bytes(png(drive_picture(record, cameras)))
            print(f"\r{sum(written.values())} pictures", end="", file=sys.stderr, flush=True)
    except UserError as error:
        print(f"\n{error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"\n--out {given.out}: {error.strerror or error}; choose a folder that can be written", file=sys.stderr)
        return EXIT_BAD_INPUT
    none = f"; {other} episodes of other hosts have none" if other else ""
    print(f"\n{sum(written.values())} pictures in {given.out}{none}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
