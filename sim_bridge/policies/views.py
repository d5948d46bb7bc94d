"""Which top view a policy gets: drawn from what it knows, or rendered by a simulation of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from PIL import Image

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.tasks import Task
from sim_bridge.policies.topview import TopView, ViewKind

#: m: where the robot stands in pictures without it.
_AWAY = 1000.0


@dataclass(frozen=True)
class RenderedView(TopView):
    """The same picture with the simulator's camera in place of drawn shapes; pixels agree with those of `TopView`."""

    simulation: Any = None  #: a KitchenSimulation in an episode of the task

    def scene(self, frame: RawFrame, robot: bool) -> Image.Image:
        """See TopView. UserError where nothing can be rendered."""
        if not robot and frame.base is not None:
            frame = replace(frame, base=replace(frame.base, position=np.array([_AWAY, _AWAY, 0.0])))
        self.simulation.synchronise(frame)
        kitchen, (width, height) = self.task.kitchen, self.size
        side = round(max(kitchen.width, kitchen.depth) * self.scale)
        try:
            image = Image.fromarray(self.simulation.render("top", side, side))
        except Exception as error:  # each GL library has errors of its own
            raise UserError(
                f"view=rendered: nothing can be rendered here ({type(error).__name__}: {error}); "
                "set MUJOCO_GL=egl or osmesa, or take view=drawn"
            ) from error
        left, top = (side - width) // 2, (side - height) // 2
        return image.crop((left, top, left + width, top + height))


class Views:
    """Makes the views of a policy. ``rendered`` keeps a simulation that follows the frames; nothing else needs MuJoCo.

    Raises:
        UserError: there is no such kind.
    """

    def __init__(self, kind: ViewKind = "drawn") -> None:
        if kind not in get_args(ViewKind):
            raise UserError(f"view {kind!r} does not exist; choose one of {', '.join(get_args(ViewKind))}")
        self._kind = kind
        self._twin: Any = None
        self._looks: dict[str, Any] = {}

    def reset(self, info: EpisodeInfo) -> None:
        """An episode begins."""
        if self._kind == "drawn":
            return
        from sim_bridge.kitchen.simulation import KitchenSimulation

        looks: dict[str, Any] = {"identical_shapes": info.attributes.get("shapes") == "identical"}
        if "style" in info.attributes:
            looks["style"] = info.attributes["style"]
        if self._twin is not None:
            self._twin.close()  # the renderer belongs to one model
        if self._twin is None or looks != self._looks:
            self._twin, self._looks = KitchenSimulation(**looks), looks
        self._twin.reset(info.task, info.seed)

    def __call__(self, task: Task, scale: float = 64.0) -> TopView:
        """The view of a task."""
        return TopView(task, scale) if self._kind == "drawn" else RenderedView(task, scale, self._twin)
