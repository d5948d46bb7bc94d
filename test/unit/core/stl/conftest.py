"""Puts the helpers of this folder (``stl_slow``, ``stl_strategies``) on the import path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
