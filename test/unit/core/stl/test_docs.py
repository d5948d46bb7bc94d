"""The examples of docs/stl.md and of the package's docstring are true."""

import doctest
from pathlib import Path

from osma_monitor.core import stl

ROOT = Path(__file__).resolve().parents[4]


def test_the_page_on_stl():
    page = ROOT / "docs" / "stl.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 30 and result.failed == 0


def test_the_package_docstring():
    result = doctest.testmod(stl)
    assert result.attempted >= 5 and result.failed == 0
