"""Makers of example episodes, shared with the tests of the report."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
