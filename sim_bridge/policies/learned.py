"""A learned policy from a file: ONNX (onnxruntime) or TorchScript (torch), with action chunks (OSMA-Bench D.1).

The model maps one observation vector (1, n) float32 to a chunk of base velocities (1, N_pred, 3): forward and lateral
m/s and yaw rad/s in the base frame. Of each chunk N_exec actions are executed before the model is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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

#: Parts of the observation vector and their lengths. Everything is in the base frame; angles as cosine and sine.
OBSERVATIONS = {"goal": 4, "velocity": 3, "obstacle": 4, "time": 1}
_ABSENT_OBSTACLE = (0.0, 0.0, 4.0, 0.0)


class LearnedPolicy:
    """Runs a model file. ``n_exec`` None executes whole chunks; ``observations`` name the vector's parts in order.

    ``goal``: x, y (m) of the goal and cosine, sine of its heading; ``velocity``: forward, lateral (m/s), yaw (rad/s);
    ``obstacle``: x, y (m) of the nearest obstacle, its surface distance (m) and 1 when there is one; ``time``: s since
    start.

    Raises UserError for a file that is no model of this shape, MissingDependencyError when its runtime is not
    installed.
    """

    name = "learned"

    def __init__(
        self,
        path: Path | str,
        n_exec: int | None = None,
        observations: Sequence[str] = ("goal", "velocity", "obstacle"),
    ) -> None:
        unknown = [name for name in observations if name not in OBSERVATIONS]
        if unknown or not observations:
            raise UserError(f"observations {list(observations)}: choose from {', '.join(OBSERVATIONS)}")
        if n_exec is not None and n_exec < 1:
            raise UserError(f"n_exec = {n_exec}: expected at least one action a chunk")
        self._path = Path(path)
        self._observations = tuple(observations)
        self._n_exec = n_exec
        self._model = _load(self._path)
        self.queries = 0  #: times the model was asked

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._task = parse_task(info.task)
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
        """The observation vector of a frame."""
        x, y, yaw = planar_pose(frame)
        c, s = math.cos(yaw), math.sin(yaw)

        def local(px: float, py: float) -> tuple[float, float]:
            dx, dy = px - x, py - y
            return c * dx + s * dy, -s * dx + c * dy

        parts: dict[str, tuple[float, ...]] = {}
        goal = self._task.goal
        turn = wrap(goal.yaw - yaw)
        parts["goal"] = (*local(goal.x, goal.y), math.cos(turn), math.sin(turn))
        assert frame.base is not None
        velocity, rate = frame.base.linear_velocity, frame.base.angular_velocity
        parts["velocity"] = tuple(float(v) if math.isfinite(v) else 0.0 for v in (velocity[0], velocity[1], rate[2]))
        parts["obstacle"] = _ABSENT_OBSTACLE
        seen = obstacles_of(frame)
        if seen and frame.objects is not None:
            distance = {name: float(d) for name, d in zip(frame.objects.id, frame.objects.distance, strict=True)}
            nearest = min(seen, key=lambda o: distance[o.id])
            parts["obstacle"] = (*local(nearest.x, nearest.y), distance[nearest.id], 1.0)
        start = self._start_ns if self._start_ns is not None else frame.stamp_ns
        parts["time"] = ((frame.stamp_ns - start) * 1e-9,)
        return np.array([[v for name in self._observations for v in parts[name]]], dtype=np.float32)

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
        if chunk.ndim != 2 or chunk.shape[1] != 3 or not len(chunk):
            raise UserError(f"{self._path}: the model gave shape {chunk.shape}, expected (1, N_pred, 3)")
        if self._n_exec is not None and self._n_exec > len(chunk):
            raise UserError(f"{self._path}: n_exec = {self._n_exec}, but the model predicts {len(chunk)} actions")
        self.queries += 1
        return [Action(float(vx), float(vy), float(rate)) for vx, vy, rate in chunk[: self._n_exec]]


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
