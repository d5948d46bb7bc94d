"""Where the files that come with the package are: configuration and launch files."""

import os
from collections.abc import Iterator
from pathlib import Path

from osma_monitor.core.errors import UserError

_PACKAGE = Path(__file__).absolute().parent


def config_path(*parts: str) -> Path:
    """Return the path of a shipped configuration file or folder, such as `config_path("safety", "library.yaml")`.

    The same in every kind of installation: the source tree, a pip installation (`share/osma_monitor` of the
    environment) and an ament prefix.

    Raises:
        UserError: when no installation has it; the message names the places that were looked at.
    """
    return _resource("config", *parts)


def launch_path(*parts: str) -> Path:
    """Return the path of a shipped launch file; see `config_path`."""
    return _resource("launch", *parts)


def _resource(*parts: str) -> Path:
    relative = Path(*parts)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{relative} leaves the package's own files")
    folders = list(_share_folders())
    for folder in folders:
        if (folder / relative).exists():
            return folder / relative
    looked_at = ", ".join(map(str, folders)) or "nowhere: no share/osma_monitor beside the package"
    raise UserError(f"{relative} is not among the files of this installation; looked in {looked_at}")


def _share_folders() -> Iterator[Path]:
    """Yield the folders that hold config/ and launch/, the one that belongs to this very package first."""
    source = _PACKAGE.parent
    if (source / "package.xml").exists():
        yield source
    # lib/python3.x/site-packages/osma_monitor of a prefix, or osma_monitor/ of a `pip install --target` folder.
    prefixes = [*_PACKAGE.parents, *map(Path, filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)))]
    for prefix in prefixes:
        share = prefix / "share" / "osma_monitor"
        if share.is_dir():
            yield share
