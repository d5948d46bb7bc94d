"""A learned policy from a file: ONNX (onnxruntime) or TorchScript (torch), with action chunks (OSMA-Bench D.1).

The model maps its inputs to a chunk of actions (1, N_pred, m): base velocities (m = 3: forward and lateral m/s, yaw
rad/s in the base frame), or with ``action="joints"`` joint targets as the host takes them. Of each chunk N_exec
actions are executed before the model is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import check_condition
from sim_bridge.policies.model_inputs import Description, ModelInputs, StateInput, read_description
from sim_bridge.policies.observations import STATE
from sim_bridge.simulation import Action

Inputs = Mapping[str, NDArray[Any]]
Model = Callable[[Inputs], Any]

#: The one input of a model that comes without a description.
OBSERVATION = "observation"
_MODELS = (".onnx", ".pt", ".ts", ".torchscript")


class LearnedPolicy:
    """Runs a model. ``path`` is a model that takes one vector of ``observations`` (parts of `observations.STATE`), or
    the YAML description of one that takes more (see `model_inputs`): state, camera images, the instruction.

    ``n_exec`` None executes whole chunks, or as many actions as the description says. ``condition`` replaces the
    episode's instruction by that of c0 to c4.

    Raises UserError for a file that is no such model or description, MissingDependencyError when its runtime is not
    installed.
    """

    name = "learned"

    def __init__(
        self,
        path: Path | str,
        n_exec: int | None = None,
        observations: Sequence[str] | None = None,
        action: Literal["base", "joints"] | None = None,
        condition: str | None = None,
    ) -> None:
        check_condition(condition)
        if action not in (None, "base", "joints"):
            raise UserError(f"action {action!r}: choose base or joints")
        if n_exec is not None and n_exec < 1:
            raise UserError(f"n_exec = {n_exec}: expected at least one action a chunk")
        file = Path(path)
        if file.suffix in (".yaml", ".yml"):
            if observations is not None:
                raise UserError(f"{file}: a description names its inputs itself; leave observations out")
            described = read_description(file)
        else:
            described = _plain(file, ("goal", "velocity", "obstacle") if observations is None else observations)
        self._path = file.parent / described.model
        self._condition = condition
        self._n_exec = described.n_exec if n_exec is None else n_exec
        self._action = described.action if action is None else action
        self._inputs = ModelInputs(described, file.parent, condition)
        self._model = _load(self._path, described)
        self.queries = 0  #: times the model was asked

    @property
    def requested(self) -> dict[str, str]:
        """Attributes of the episode's record: a condition of the policy's own."""
        return {} if self._condition is None else {"condition": self._condition}

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._inputs.reset(info)
        self._queue: list[Action] = []

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if not self._queue:
            self._queue = self._ask(frame)
        return self._queue.pop(0)

    def observe(self, frame: RawFrame) -> Inputs:
        """The model's inputs by name. UserError names a part that the frame lacks."""
        return self._inputs.arrays(frame)

    def _ask(self, frame: RawFrame) -> list[Action]:
        inputs = self.observe(frame)
        try:
            chunk = np.asarray(self._model(inputs), dtype=np.float64)
        except UserError:
            raise
        except Exception as error:  # the runtimes raise types of their own
            given = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in inputs.items())
            raise UserError(f"{self._path}: the model does not take {given}: {str(error).splitlines()[0]}") from error
        chunk = chunk[0] if chunk.ndim == 3 and chunk.shape[0] == 1 else chunk
        if chunk.ndim != 2 or not chunk.size or (self._action == "base" and chunk.shape[1] != 3):
            wanted = "3" if self._action == "base" else "joints"
            raise UserError(f"{self._path}: the model gave shape {chunk.shape}, expected (1, N_pred, {wanted})")
        if self._n_exec is not None and self._n_exec > len(chunk):
            raise UserError(f"{self._path}: n_exec = {self._n_exec}, but the model predicts {len(chunk)} actions")
        self.queries += 1
        rows = chunk[: self._n_exec].tolist()
        return [Action(*row) if self._action == "base" else Action(joints=tuple(row)) for row in rows]


def _plain(file: Path, observations: Sequence[str]) -> Description:
    unknown = [name for name in observations if name not in STATE]
    if unknown or not observations:
        raise UserError(f"observations {list(observations)}: choose from {', '.join(STATE)}")
    return Description(model=file.name, inputs={OBSERVATION: StateInput(state=tuple(observations))})


def _load(path: Path, described: Description) -> Model:
    if not path.is_file():
        raise UserError(f"{path}: no such model file")
    if path.suffix == ".onnx":
        return _load_onnx(path, described)
    if path.suffix in _MODELS:
        return _load_torchscript(path, described)
    raise UserError(f"{path}: expected a model that ends in {', '.join(_MODELS)}, or a .yaml description of one")


def _load_onnx(path: Path, described: Description) -> Model:
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
    takes = [given.name for given in session.get_inputs()]
    plain = tuple(described.inputs) == (OBSERVATION,) and len(takes) == 1
    names = dict(zip(described.inputs, takes, strict=True)) if plain else {name: name for name in described.inputs}
    if set(names.values()) != set(takes):
        raise UserError(
            f"{path}: the model takes the inputs {', '.join(takes)}; described are {', '.join(described.inputs)}. "
            "Name each of them in a .yaml description of the model"
        )
    gives = [given.name for given in session.get_outputs()]
    output = gives[0] if described.output is None else described.output
    if output not in gives:
        raise UserError(f"{path}: the model has no output {output!r}; it gives {', '.join(gives)}")

    def run(inputs: Inputs) -> Any:
        return session.run([output], {names[name]: array for name, array in inputs.items()})[0]

    return run


def _load_torchscript(path: Path, described: Description) -> Model:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(f"{path}: torch is missing; pip install 'osma-monitor[learned]'") from error
    torch.set_num_threads(1)
    try:
        module = torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:
        raise UserError(f"{path}: is no TorchScript model: {str(error).splitlines()[0]}") from error

    takes = {argument.name for argument in module.forward.schema.arguments}
    by_name = set(described.inputs) <= takes  # traced models may have lost their names

    def run(inputs: Inputs) -> Any:
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        with torch.no_grad():
            given = module(**tensors) if by_name else module(*tensors.values())
        if isinstance(given, dict):
            output = next(iter(given)) if described.output is None else described.output
            if output not in given:
                raise UserError(f"{path}: the model has no output {output!r}; it gives {', '.join(given)}")
            given = given[output]
        return (given[0] if isinstance(given, (tuple, list)) else given).numpy()

    return run
