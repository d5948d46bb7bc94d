"""The examples of docs/stl.md, of docs/metrics.md and of the package's docstring are true."""

import doctest
from pathlib import Path

import pytest

from osma_monitor.core import stl

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(("name", "least"), [("stl.md", 30), ("metrics.md", 10)])
def test_the_pages_with_worked_examples(name, least):
    result = doctest.testfile(str(ROOT / "docs" / name), module_relative=False, encoding="utf-8")
    assert result.attempted > least and result.failed == 0


def test_the_package_docstring():
    result = doctest.testmod(stl)
    assert result.attempted >= 5 and result.failed == 0
