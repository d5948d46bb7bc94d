"""The footprint of a robot from its URDF or MJCF file."""

from __future__ import annotations

from pathlib import Path

from osma_monitor.core.errors import UserError
from osma_monitor.core.robot import Shape
from osma_monitor.io.mjcf import mjcf_shapes
from osma_monitor.io.urdf import urdf_shapes
from osma_monitor.io.xml_tree import read_xml

MAX_SHAPES = 500  #: a footprint of more would make each frame slow


def model_shapes(path: Path, base: str = "") -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Collision shapes in the frame of the base, and what was left out and why, for people.

    Args:
        path: URDF (root element ``robot``) or MJCF (``mujoco``).
        base: link or body whose frame the base's pose gives; empty: the root.

    Raises:
        UserError: when the file cannot be read or gives no shape; it names file and line.
    """
    root = read_xml(path)
    readers = {"robot": urdf_shapes, "mujoco": mjcf_shapes}
    if root.tag not in readers:
        raise root.error("expected <robot> (URDF) or <mujoco> (MJCF)")
    shapes, left_out = readers[root.tag](root, base)
    if not shapes:
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise UserError(f"{path}: no collision shape of the base can be used{why}; give a footprint in the robot file")
    if len(shapes) > MAX_SHAPES:
        raise UserError(f"{path}: {len(shapes)} collision shapes of the base, at most {MAX_SHAPES} are used")
    return tuple(shapes), tuple(left_out)
