"""A learned policy from a file: ONNX (onnxruntime) or TorchScript (torch), with action chunks (OSMA-Bench D.1).

The model maps one observation vector (1, n) float32 to a chunk of actions (1, N_pred, m): base velocities (m = 3:
forward and lateral m/s, yaw rad/s in the base frame), or with ``action="joints"`` joint targets as the host takes
them. Of each chunk N_exec actions are executed before the model is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.tasks import parse_task
from sim_bridge.policies.follower import planar_pose, wrap
from sim_bridge.policies.scene_view import obstacles_of
from sim_bridge.simulation import Action

Floats = NDArray[np.float32]

#: Parts that an observation vector can have.
OBSERVATIONS = ("goal", "velocity", "obstacle", "joints", "ee", "target", "time")
_ABSENT_OBSTACLE = (0.0, 0.0, 4.0, 0.0)


class LearnedPolicy:
    """Runs a model file. ``n_exec`` None executes whole chunks; ``observations`` name the vector's parts in order.

    In the base frame: ``goal``: x, y (m) of the kitchen task's goal and cosine, sine of its heading; ``velocity``:
    forward, lateral (m/s), yaw (rad/s); ``obstacle``: x, y (m) of the nearest obstacle, its surface distance (m) and 1
    when there is one. In the world frame: ``ee``: position (m) and quaternion x y z w; ``target``: position (m) of the
    target object. ``joints``: their positions; ``time``: s since the start.

    Raises UserError for a file that is no such model, MissingDependencyError when its runtime is not installed.
    """

    name = "learned"

    def __init__(
        self,
        path: Path | str,
        n_exec: int | None = None,
        observations: Sequence[str] = ("goal", "velocity", "obstacle"),
        action: Literal["base", "joints"] = "base",
    ) -> None:
        if action not in ("base", "joints"):
            raise UserError(f"action {action!r}: choose base or joints")
        unknown = [name for name in observations if name not in OBSERVATIONS]
        if unknown or not observations:
            raise UserError(f"observations {list(observations)}: choose from {', '.join(OBSERVATIONS)}")
        if n_exec is not None and n_exec < 1:
            raise UserError(f"n_exec = {n_exec}: expected at least one action a chunk")
        self._path = Path(path)
        self._observations = tuple(observations)
        self._n_exec, self._action = n_exec, action
        self._model = _load(self._path)
        self.queries = 0  #: times the model was asked

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._task = parse_task(info.task) if "goal" in self._observations else None
        self._queue: list[Action] = []
        self._start_ns: int | None = None

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if self._start_ns is None:
            self._start_ns = frame.stamp_ns
        if not self._queue:
            self._queue = self._ask(frame)
        return self._queue.pop(0)

    def observe(self, frame: RawFrame) -> Floats:
        """The observation vector of a frame. UserError names a part that the frame lacks."""
        parts: list[float] = []
        for name in self._observations:
            try:
                parts.extend(getattr(self, f"_{name}")(frame))
            except (ValueError, AttributeError) as error:
                raise UserError(f"the frames hold nothing for the observation {name!r} ({error})") from error
        return np.array([parts], dtype=np.float32)

    def _goal(self, frame: RawFrame) -> list[float]:
        assert self._task is not None
        goal = self._task.goal
        turn = wrap(goal.yaw - planar_pose(frame)[2])
        return [*_local(frame, goal.x, goal.y), math.cos(turn), math.sin(turn)]

    def _velocity(self, frame: RawFrame) -> list[float]:
        base = _present(frame.base, "base")
        values = (base.linear_velocity[0], base.linear_velocity[1], base.angular_velocity[2])
        return [float(v) if math.isfinite(v) else 0.0 for v in values]

    def _obstacle(self, frame: RawFrame) -> list[float]:
        seen = obstacles_of(frame)
        if not seen:
            return list(_ABSENT_OBSTACLE)
        objects = _present(frame.objects, "objects")
        distance = {name: float(d) for name, d in zip(objects.id, objects.distance, strict=True)}
        nearest = min(seen, key=lambda o: distance[o.id])
        return [*_local(frame, nearest.x, nearest.y), distance[nearest.id], 1.0]

    def _joints(self, frame: RawFrame) -> list[float]:
        return [float(v) for v in _present(frame.joints, "joints").position]

    def _ee(self, frame: RawFrame) -> list[float]:
        ee = _present(frame.ee, "ee")
        return [float(v) for v in (*ee.position, *ee.orientation)]

    def _target(self, frame: RawFrame) -> list[float]:
        objects = _present(frame.objects, "objects")
        return [float(v) for v in objects.position[objects.role.index("target")]]

    def _time(self, frame: RawFrame) -> list[float]:
        start = self._start_ns if self._start_ns is not None else frame.stamp_ns
        return [(frame.stamp_ns - start) * 1e-9]

    def _ask(self, frame: RawFrame) -> list[Action]:
        observation = self.observe(frame)
        try:
            chunk = np.asarray(self._model(observation), dtype=np.float64)
        except Exception as error:  # the runtimes raise types of their own
            raise UserError(
                f"{self._path}: the model does not take an observation of shape {observation.shape} float32 "
                f"({', '.join(self._observations)}): {str(error).splitlines()[0]}"
            ) from error
        chunk = chunk[0] if chunk.ndim == 3 and chunk.shape[0] == 1 else chunk
        if chunk.ndim != 2 or not chunk.size or (self._action == "base" and chunk.shape[1] != 3):
            wanted = "3" if self._action == "base" else "joints"
            raise UserError(f"{self._path}: the model gave shape {chunk.shape}, expected (1, N_pred, {wanted})")
        if self._n_exec is not None and self._n_exec > len(chunk):
            raise UserError(f"{self._path}: n_exec = {self._n_exec}, but the model predicts {len(chunk)} actions")
        self.queries += 1
        rows = chunk[: self._n_exec].tolist()
        return [Action(*row) if self._action == "base" else Action(joints=tuple(row)) for row in rows]


def _present(part: Any, name: str) -> Any:
    if part is None:
        raise ValueError(f"no {name}")
    return part


def _local(frame: RawFrame, px: float, py: float) -> tuple[float, float]:
    """A point in the base frame."""
    x, y, yaw = planar_pose(frame)
    c, s = math.cos(yaw), math.sin(yaw)
    dx, dy = px - x, py - y
    return c * dx + s * dy, -s * dx + c * dy


def _load(path: Path) -> Callable[[Floats], Any]:
    if not path.is_file():
        raise UserError(f"{path}: no such model file")
    if path.suffix == ".onnx":
        return _load_onnx(path)
    if path.suffix in (".pt", ".ts", ".torchscript"):
        return _load_torchscript(path)
    raise UserError(f"{path}: expected a model that ends in .onnx, .pt, .ts or .torchscript")


def _load_onnx(path: Path) -> Callable[[Floats], Any]:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependencyError(f"{path}: onnxruntime is missing; pip install 'osma-monitor[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the same sums in the same order everywhere
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UserError(f"{path}: is no ONNX model: {str(error).splitlines()[0]}") from error
    name = session.get_inputs()[0].name

    def run(observation: Floats) -> Any:
        return session.run(None, {name: observation})[0]

    return run


def _load_torchscript(path: Path) -> Callable[[Floats], Any]:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(f"{path}: torch is missing; pip install 'osma-monitor[learned]'") from error
    torch.set_num_threads(1)
    try:
        module = torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:
        raise UserError(f"{path}: is no TorchScript model: {str(error).splitlines()[0]}") from error

    def run(observation: Floats) -> Any:
        with torch.no_grad():
            return module(torch.from_numpy(observation)).numpy()

    return run
