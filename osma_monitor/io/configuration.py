"""Reads config/ into a MonitorConfig: clause library, registry, suites."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from osma_monitor.core import safety
from osma_monitor.core.errors import UserError
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.resources import config_path

#: A run folder's own copy of the clause library that judged it.
LIBRARY_FILE = "library.yaml"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


@lru_cache(maxsize=16)
def _parsed_library(text: str, name: str) -> safety.Library:
    return safety.load_library(text, name)


@lru_cache(maxsize=16)
def _parsed_registry(text: str, suites: tuple[tuple[str, str], ...], name: str) -> safety.Registry:
    return safety.load_registry(text, dict(suites), name)


def clause_library(path: Path | str | None = None) -> safety.Library:
    """The clause library of a file, or the one that ships. UserError names file, line and value."""
    file = Path(path) if path is not None else config_path("safety", "library.yaml")
    return _parsed_library(_text(file), str(path) if path is not None else file.name)


def keep_library(folder: Path, path: Path | str | None = None) -> None:
    """A copy of the library beside the episodes that it judges, so that margins can be drawn and thresholds varied
    after the file has changed. A folder that holds another one gets a second copy, named by the content's hash.

    Raises:
        OSError: it can't be read or written.
    """
    text = Path(path if path is not None else config_path("safety", "library.yaml")).read_bytes()
    target = folder / LIBRARY_FILE
    if target.exists() and target.read_bytes() != text:
        target = folder / f"library-{hashlib.sha256(text).hexdigest()[:12]}.yaml"
    if not target.exists():
        target.write_bytes(text)


def kept_libraries(folder: Path) -> list[Path]:
    """The copies that `keep_library` made."""
    return sorted(folder.glob("library*.yaml")) if folder.is_dir() else []


def registry(path: Path | str | None = None, suites: Iterable[Path | str] = ()) -> safety.Registry:
    """The applicability rules with every suite that ships and those of ``suites``."""
    file = Path(path) if path is not None else config_path("safety", "registry.yaml")
    shipped = sorted(config_path("safety", "suites").glob("*.yaml"))
    texts = [(p.name, _text(p)) for p in shipped] + [(str(p), _text(Path(p))) for p in suites]
    return _parsed_registry(_text(file), tuple(texts), str(path) if path is not None else file.name)


def monitor_config(
    library: Path | str | None = None,
    rules: Path | str | None = None,
    suites: Iterable[Path | str] = (),
    *,
    gate_semantics: safety.GateSemantics = "boolean",
    backend: Literal["native", "rtamt"] = "native",
    extensions: Iterable[str] = (),
    prediction_horizon: float = 1.0,
    source: Mapping[str, str] | None = None,
) -> MonitorConfig:
    """What to monitor, from files; those that ship with the package where none are given.

    Raises:
        UserError: a file cannot be read or something in it does not fit; the message names file and line.
    """
    return MonitorConfig(
        clause_library(library),
        registry(rules, suites),
        gate_semantics=gate_semantics,
        backend=backend,
        extensions=tuple(extensions),
        prediction_horizon=prediction_horizon,
        source=dict(source or {}),
    )
