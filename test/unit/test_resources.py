"""Configuration is found in the source tree, in a prefix and in an ament prefix."""

from pathlib import Path

import pytest

from osma_monitor import resources
from osma_monitor.core.errors import UserError

ROOT = Path(__file__).parents[2]


def install(prefix: Path, site_packages: str = "lib/python3.11/site-packages") -> Path:
    """Make an installation with one configuration file and return the folder of the package."""
    file = prefix / "share/osma_monitor/config/safety/library.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(str(prefix))
    return prefix / site_packages / "osma_monitor"


def test_source_tree_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert resources.config_path() == ROOT / "config"
    assert resources.launch_path() == ROOT / "launch"


@pytest.mark.parametrize("site_packages", ["lib/python3.12/site-packages", "local/lib/python3.12/dist-packages", ""])
def test_prefix_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site_packages: str) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", install(tmp_path, site_packages))
    assert resources.config_path("safety", "library.yaml").read_text() == str(tmp_path)


def test_own_prefix_wins_over_ament(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", install(tmp_path / "own"))
    install(tmp_path / "other")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "other"))
    assert resources.config_path("safety", "library.yaml").read_text() == str(tmp_path / "own")


def test_ament_prefixes_in_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path / "first")
    install(tmp_path / "second")
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "elsewhere" / "osma_monitor")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'none'}:{tmp_path / 'first'}:{tmp_path / 'second'}")
    assert resources.config_path("safety", "library.yaml").read_text() == str(tmp_path / "first")


def test_missing_file_names_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", install(tmp_path))
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    with pytest.raises(UserError, match=r"config/no\.yaml is not among .*share/osma_monitor"):
        resources.config_path("no.yaml")


@pytest.mark.parametrize("parts", [("..", "pyproject.toml"), ("/etc/passwd",), ("a", "../../x")])
def test_names_cannot_leave_the_folder(parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="leaves"):
        resources.config_path(*parts)
