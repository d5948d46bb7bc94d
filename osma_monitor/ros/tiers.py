"""Caution tiers of obstacle categories, for the gate and the markers."""

from __future__ import annotations

import yaml

from osma_monitor.core.errors import UserError
from osma_monitor.resources import config_path


def read_tiers() -> dict[str, str]:
    """Category -> caution tier (high, moderate, low), from config/obstacle_tiers.yaml. UserError when it is broken."""
    path = config_path("obstacle_tiers.yaml")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {str(c): str(tier) for tier, entry in content["tiers"].items() for c in entry["obstacles"]}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: no caution tiers in it ({type(error).__name__}: {error})") from error
