"""Which object did the robot act on, and which was it told to? (BEHAVIOR-Spatial 5.1, Table S4)

What it comes to goes into the episode's attributes ``target_selection``, ``target_credit``, ``target_object`` and
``selected_object``, which `osma score --all` makes its table of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from osma_monitor.core.metrics.selection import Selection, reach
from osma_monitor.core.signals.raw import RawFrame


def attributes_of(selection: Selection, target: str, selected: str) -> dict[str, str]:
    """The attributes of an episode; ``selected`` is empty when the robot committed to nothing."""
    credit = {"target_credit": str(selection.credit).lower()} if selection.verdict == "none" else {}
    return {
        "target_selection": selection.verdict,
        **credit,
        "target_object": target,
        "selected_object": selected,
    }


class ReachTracker:
    """Follows an episode in which the robot has to take one of several objects.

    The candidates are the task's target and its bystanders: objects that the task does not name. The first of them
    that the gripper touches is what the robot chose; without one, coming strictly closer to the target than to every
    other candidate (end effector to the object's origin) earns soft credit.
    """

    def __init__(self, frame: RawFrame) -> None:
        objects = frame.objects
        by_role: dict[str, list[str]] = {"target": [], "bystander": []}
        for name, role in zip(objects.id, objects.role, strict=True) if objects is not None else ():
            if role in by_role:
                by_role[role].append(name)
        targets = by_role["target"]
        #: None: the task has several targets, none, or nothing else that could be taken
        self.target = targets[0] if len(targets) == 1 and by_role["bystander"] else None
        self._closest = dict.fromkeys([*targets, *by_role["bystander"]], math.inf)
        self._touched: list[str] = []

    def see(self, frame: RawFrame, touched: Sequence[str]) -> None:
        """One frame, and the objects that the gripper touched since the frame before, in the order of first touch."""
        if self.target is None:
            return
        self._touched.extend(name for name in touched if name not in self._touched)
        objects, ee = frame.objects, frame.ee
        for name in self._closest:
            known = objects is not None and ee is not None and name in objects.id
            if not known:
                self._closest[name] = math.nan  # it may have been near while nobody saw it
                continue
            assert objects is not None and ee is not None
            gap = float(np.sqrt(((objects.position[objects.id.index(name)] - ee.position) ** 2).sum()))
            self._closest[name] = float(np.minimum(self._closest[name], gap))

    def attributes(self) -> Mapping[str, str]:
        """What it came to so far; empty where nothing could be chosen."""
        if self.target is None:
            return {}
        selected = next((name for name in self._touched if name in self._closest), "")
        return attributes_of(reach(self.target, self._touched, self._closest), self.target, selected)
