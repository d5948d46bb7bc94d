"""What the model of a learned policy takes, by a description file: state, camera images, the instruction.

    model: policy.onnx                    # beside this file; .onnx, .pt, .ts or .torchscript
    n_exec: 8                             # actions of a chunk that are executed; left out: all
    action: base                          # or joints
    output: actions                       # which output is the chunk; left out: the first
    inputs:                               # by the model's own names; TorchScript without those names: in its order
      state:    {state: [goal, velocity, obstacle]}
      image:    {camera: robot_left, width: 224, height: 224, layout: chw, mean: [...], std: [...]}
      tokens:   {instruction: tokens, length: 32}
      mask:     {instruction: mask, length: 32}
      language: {instruction: embedding, file: conditions.npz}
    tokenizer: {vocabulary: words.txt, unknown: 1, padding: 0}    # or {file: tokenizer.json}

Every input has a leading batch axis of 1.
"""

from __future__ import annotations

import importlib
import re
import zipfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import MissingDependencyError, UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import CONDITIONS, task_instruction
from sim_bridge.kitchen.tasks import SUITE, Task, parse_task
from sim_bridge.policies.observations import STATE, state_vector
from sim_bridge.policies.views import Cameras
from sim_bridge.yaml_data import load

Array = NDArray[Any]
DType = Literal["float32", "float16", "float64", "uint8", "int32", "int64"]

_WORDS = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StateInput(_Data):
    """A vector (1, n) of parts of `observations.STATE`, one after another."""

    state: tuple[str, ...] = Field(min_length=1)
    dtype: DType = "float32"

    @field_validator("state")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in STATE]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: choose from {', '.join(STATE)}")
        return value


class ImageInput(_Data):
    """A picture of one of the kitchen's cameras, RGB: (1, 3, h, w) or (1, h, w, 3).

    0 to 255 as uint8; else 0 to 1, with ``mean`` and ``std`` of each colour taken off where they are given.
    """

    camera: Literal["top", "robot_left", "robot_right", "robot_wrist"]
    width: int = Field(224, ge=1, le=1280)
    height: int = Field(224, ge=1, le=1280)
    layout: Literal["chw", "hwc"] = "chw"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    dtype: DType = "float32"

    @model_validator(mode="after")
    def _scale(self) -> ImageInput:
        if min(self.std) <= 0:
            raise ValueError("std needs numbers over 0")
        if self.dtype in ("uint8", "int32", "int64") and (any(self.mean) or self.std != (1.0, 1.0, 1.0)):
            raise ValueError(f"mean and std need a float dtype, not {self.dtype}")
        return self

    def array(self, image: NDArray[np.uint8]) -> Array:
        """The model's input of an image (h, w, 3)."""
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            pixels: Array = image.astype(self.dtype)
        else:
            pixels = ((image / 255.0 - np.array(self.mean)) / np.array(self.std)).astype(self.dtype)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1) if self.layout == "chw" else pixels)[None]


class TextInput(_Data):
    """The instruction as numbers of its tokens, padded or cut to ``length``, or 1 for a token and 0 for padding."""

    instruction: Literal["tokens", "mask"]
    length: int = Field(ge=1, le=4096)
    dtype: DType = "int64"


class EmbeddingInput(_Data):
    """A precomputed embedding of the instruction.

    ``file`` is an .npz whose names are instructions word for word, or conditions (c0 to c4), or an .npy with one row a
    condition.
    """

    instruction: Literal["embedding"]
    file: str
    dtype: DType = "float32"


def _kind(value: Any) -> str:
    """Tag of an input by its keys; in brackets, so that no message takes it for a key."""
    data = value if isinstance(value, Mapping) else {}
    if "camera" in data:
        return "(image)"
    if "instruction" in data:
        return "(embedding)" if data["instruction"] == "embedding" else "(text)"
    return "(state)"


Input = Annotated[
    Annotated[StateInput, Tag("(state)")]
    | Annotated[ImageInput, Tag("(image)")]
    | Annotated[TextInput, Tag("(text)")]
    | Annotated[EmbeddingInput, Tag("(embedding)")],
    Discriminator(_kind),
]


class TokenizerData(_Data):
    """Words or signs to numbers: a ``vocabulary`` (a mapping, or a file with one a line), or a ``file`` of the package
    tokenizers.

    With a vocabulary the text is cut into lower-case words and signs; ``start`` and ``end`` are put around them.
    """

    vocabulary: dict[str, int] | str | None = None
    file: str | None = None
    unknown: int | None = None
    padding: int = 0
    start: int | None = None
    end: int | None = None

    @model_validator(mode="after")
    def _one(self) -> TokenizerData:
        if (self.vocabulary is None) == (self.file is None):
            raise ValueError("needs either vocabulary or file")
        return self


class Description(_Data):
    """A description file."""

    model: str
    inputs: dict[str, Input] = Field(min_length=1)
    n_exec: Annotated[int, Field(ge=1)] | None = None
    action: Literal["base", "joints"] = "base"
    output: str | None = None
    tokenizer: TokenizerData | None = None

    @model_validator(mode="after")
    def _tokens(self) -> Description:
        if self.tokenizer is None and any(isinstance(i, TextInput) for i in self.inputs.values()):
            raise ValueError("an input of tokens needs a tokenizer")
        return self


def read_description(path: Path) -> Description:
    """Read and check a description file. UserError names file, line, key and what was expected."""
    return load(TypeAdapter(Description), path, "docs/kitchen.md explains a model's description")


class Tokenizer:
    """Numbers of a text's tokens. UserError for a vocabulary that is none or a word that it lacks."""

    def __init__(self, data: TokenizerData, folder: Path) -> None:
        self._data = data
        self._table: Mapping[str, int] = {}
        self._fast: Any = None
        if data.file is not None:
            self._fast = _fast_tokenizer(folder / data.file)
        elif isinstance(data.vocabulary, str):
            path = folder / data.vocabulary
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{path}: the vocabulary cannot be read ({error})") from error
            self._table = {word.strip(): number for number, word in enumerate(lines)}
        else:
            self._table = data.vocabulary or {}

    def __call__(self, text: str) -> list[int]:
        """All tokens, without padding."""
        if self._fast is not None:
            return [int(number) for number in self._fast.encode(text).ids]
        numbers = []
        for word in _WORDS.findall(text.lower()):
            number = self._table.get(word, self._data.unknown)
            if number is None:
                raise UserError(f"the vocabulary has no word {word!r} of {text!r}; add it, or name a token `unknown`")
            numbers.append(number)
        start = [] if self._data.start is None else [self._data.start]
        return start + numbers + ([] if self._data.end is None else [self._data.end])

    def padded(self, text: str, length: int) -> tuple[list[int], list[int]]:
        """Exactly ``length`` tokens, and 1 for each that is no padding; a text that is too long keeps its end token."""
        numbers = self(text)
        if len(numbers) > length:
            numbers = numbers[:length] if self._data.end is None else [*numbers[: length - 1], self._data.end]
        fill = length - len(numbers)
        return numbers + [self._data.padding] * fill, [1] * len(numbers) + [0] * fill


def _fast_tokenizer(path: Path) -> Any:
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise MissingDependencyError(
            f"{path}: the package tokenizers is missing; pip install tokenizers, or give a vocabulary"
        ) from error
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain exceptions
        raise UserError(f"{path}: is no tokenizer.json ({error})") from error


class Embeddings:
    """Precomputed embeddings by instruction or condition; plain arrays, never pickled objects."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            data = np.load(path, allow_pickle=False)
            if isinstance(data, np.ndarray):
                if data.ndim != 2 or len(data) != len(CONDITIONS):
                    raise UserError(f"{path}: shape {data.shape}, expected one row for each of {', '.join(CONDITIONS)}")
                self._rows: dict[str, Array] = dict(zip(CONDITIONS, data, strict=True))
            else:
                with data:
                    self._rows = {name: np.atleast_1d(data[name]) for name in data.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: holds no plain arrays, .npy or .npz without pickled objects ({error})") from error
        for name, row in self._rows.items():
            if row.dtype.kind not in "fiu":
                raise UserError(f"{path}: {name} holds {row.dtype}, expected numbers")

    def of(self, instruction: str, condition: str) -> Array:
        """The embedding of an instruction word for word, else that of its condition ("": it has none).

        UserError where neither is.
        """
        for name in (instruction, condition):
            if name in self._rows:
                return self._rows[name]
        also = f" or its condition {condition!r}" if condition else ", which is that of no condition"
        raise UserError(
            f"{self._path}: no embedding for {instruction!r}{also}; it has {', '.join(list(self._rows)[:8])}"
        )


class ModelInputs:
    """Makes the inputs of a model from info and frames. Without an image nothing is rendered."""

    def __init__(self, description: Description, folder: Path, condition: str | None = None) -> None:
        self._inputs = description.inputs
        self._condition = condition
        self._tokenizer = None if description.tokenizer is None else Tokenizer(description.tokenizer, folder)
        self._embeddings = {
            name: Embeddings(folder / spec.file)
            for name, spec in self._inputs.items()
            if isinstance(spec, EmbeddingInput)
        }
        images = any(isinstance(spec, ImageInput) for spec in self._inputs.values())
        self._cameras = Cameras() if images else None
        self._task: Task | None = None
        self._texts: dict[str, Array] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names in the file's order."""
        return tuple(self._inputs)

    @cached_property
    def _goal(self) -> bool:
        return any(isinstance(spec, StateInput) and "goal" in spec.state for spec in self._inputs.values())

    def reset(self, info: EpisodeInfo) -> None:
        """A new episode: what its instruction comes to."""
        self._task = parse_task(info.task) if self._goal else None
        self._start_ns: int | None = None
        if self._cameras is not None:
            self._cameras.reset(info)
        text = task_instruction(info, self._condition)
        condition = self._condition or info.attributes.get("condition", "")
        if info.suite == SUITE and condition in CONDITIONS and task_instruction(info, condition) != text:
            condition = ""  # a run may give an instruction of its own
        self._texts = {}
        for name, spec in self._inputs.items():
            if isinstance(spec, EmbeddingInput):
                self._texts[name] = self._embeddings[name].of(text, condition).astype(spec.dtype)[None]
            elif isinstance(spec, TextInput):
                assert self._tokenizer is not None
                tokens, mask = self._tokenizer.padded(text, spec.length)
                self._texts[name] = np.array([tokens if spec.instruction == "tokens" else mask], dtype=spec.dtype)

    def arrays(self, frame: RawFrame) -> dict[str, Array]:
        """Every input by name, for one frame."""
        if self._start_ns is None:
            self._start_ns = frame.stamp_ns
        found: dict[str, Array] = {}
        for name, spec in self._inputs.items():
            if isinstance(spec, StateInput):
                found[name] = state_vector(spec.state, frame, self._task, self._start_ns).astype(spec.dtype)[None]
            elif isinstance(spec, ImageInput):
                assert self._cameras is not None
                found[name] = spec.array(self._cameras.image(frame, spec.camera, spec.width, spec.height))
            else:
                found[name] = self._texts[name]
        return found
