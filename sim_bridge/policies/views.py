"""Which top view a policy gets: drawn from what it knows, or rendered by a simulation of its own."""

from __future__ import annotations

import ctypes.util
import os
import sys
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import EXIT_ENVIRONMENT, UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.tasks import Task
from sim_bridge.policies.topview import TopView, ViewKind

#: m: where the robot stands in pictures without it.
_AWAY = 1000.0


class RenderingError(UserError):
    """Nothing can be rendered on this machine."""

    exit_code = EXIT_ENVIRONMENT


def draw_without_a_display() -> None:
    """Let MuJoCo render by EGL where there is no display and nothing else was said.

    MuJoCo chooses when it is imported, and its own choice needs a display; where it is imported already, or EGL is not
    installed, nothing changes.
    """
    headless = not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"))
    if headless and "mujoco" not in sys.modules and ctypes.util.find_library("EGL"):
        os.environ["MUJOCO_GL"] = "egl"


class Cameras:
    """The kitchen's cameras for a policy: a simulation of its own is put where each frame says, and rendered.

    Frames hold no images, and a policy sees nothing else: so the pictures are the same in process and over ROS. They
    show what the frame says, not what this simulation would have made of the episode.
    """

    def __init__(self) -> None:
        self._twin: Any = None
        self._options: str | None = None
        draw_without_a_display()

    def reset(self, info: EpisodeInfo) -> None:
        """An episode of the kitchen begins. UserError for another host's."""
        from sim_bridge.kitchen.simulation import KitchenSimulation

        if self._twin is not None:
            self._twin.close()  # the renderers belong to one model
        options = info.attributes.get("simulation", "")
        if self._twin is None or options != self._options:
            self._twin, self._options = KitchenSimulation.of(info), options
        self._twin.reset(info.task, info.seed)

    def image(self, frame: RawFrame, camera: str, width: int, height: int) -> NDArray[np.uint8]:
        """What a camera sees, (height, width, 3) RGB. UserError where nothing can be rendered."""
        self._twin.synchronise(frame)
        try:
            image: NDArray[np.uint8] = self._twin.render(camera, width, height)
        except Exception as error:  # each GL library has errors of its own
            raise RenderingError(
                f"camera {camera}: nothing can be rendered here ({type(error).__name__}: {error}); set MUJOCO_GL=egl "
                "or osmesa; policies with view=drawn and models without images need no rendering"
            ) from error
        return image


@dataclass(frozen=True)
class RenderedView(TopView):
    """The same picture with the simulator's camera in place of drawn shapes; pixels agree with those of `TopView`."""

    cameras: Cameras | None = None  #: in an episode of the task

    def scene(self, frame: RawFrame, robot: bool) -> Image.Image:
        """See TopView. UserError where nothing can be rendered."""
        assert self.cameras is not None
        if not robot and frame.base is not None:
            frame = replace(frame, base=replace(frame.base, position=np.array([_AWAY, _AWAY, 0.0])))
        kitchen, (width, height) = self.task.kitchen, self.size
        side = round(max(kitchen.width, kitchen.depth) * self.scale)
        image = Image.fromarray(self.cameras.image(frame, "top", side, side))
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
        self._cameras = Cameras() if kind == "rendered" else None

    def reset(self, info: EpisodeInfo) -> None:
        """An episode begins."""
        if self._cameras is not None:
            self._cameras.reset(info)

    def __call__(self, task: Task, scale: float = 64.0) -> TopView:
        """The view of a task."""
        return TopView(task, scale) if self._cameras is None else RenderedView(task, scale, self._cameras)
