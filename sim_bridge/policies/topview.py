"""A top view drawn from what a policy knows (task id and frames): the picture that language policies get. No simulator
needed.

Image x is world x; image y runs down while world y runs up.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from PIL import Image, ImageDraw

from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import goal_phrase, obstacle_phrase
from sim_bridge.kitchen.layout import BASE_SIZE_M, TABLE_WIDTH_M, load_obstacles
from sim_bridge.kitchen.tasks import IDENTICAL_OBSTACLE, Task
from sim_bridge.policies.follower import planar_pose
from sim_bridge.policies.scene_view import object_yaw, obstacles_of

ViewKind = Literal["drawn", "rendered"]

_PATH_COLOR = (245, 130, 32)
_ROBOT_COLOR = (245, 130, 32, 255)


@dataclass(frozen=True)
class TopView:
    """World to pixel for one task: ``scale`` pixels a metre."""

    task: Task
    scale: float = 64.0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        kitchen = self.task.kitchen
        return round(kitchen.width * self.scale), round(kitchen.depth * self.scale)

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Pixel of a point on the floor."""
        return x * self.scale, (self.task.kitchen.depth - y) * self.scale

    def draw(self, frame: RawFrame, robot: bool = True, labels: bool = True) -> Image.Image:
        """The scene of a frame: room, furniture with names, obstacles with names, robot, goal ring."""
        image = self.scene(frame, robot)
        canvas = ImageDraw.Draw(image)
        for name, fixture in self.task.kitchen.fixtures.items():
            if labels and (name != "human" or self.task.goal_name == "human"):
                x, y = fixture.at or (fixture.approach.x * 0.25 + _middle(fixture.x) * 0.75, _middle(fixture.y))
                canvas.text(self.pixel(x, y), goal_phrase(name), fill=(20, 20, 20), anchor="mm")
        if labels:
            for seen in obstacles_of(frame):
                px, py = self.pixel(seen.x, seen.y)
                canvas.text((px, py - 0.35 * self.scale), obstacle_phrase(seen.category), fill=(160, 0, 0), anchor="mm")
        gx, gy = self.pixel(self.task.goal.x, self.task.goal.y)
        ring = 0.15 * self.scale
        canvas.ellipse([gx - ring, gy - ring, gx + ring, gy + ring], outline=(20, 150, 60), width=3)
        return image

    def scene(self, frame: RawFrame, robot: bool) -> Image.Image:
        """The picture below labels and goal: room, furniture, obstacles, robot."""
        image = Image.new("RGB", self.size, (226, 221, 212))
        canvas = ImageDraw.Draw(image)
        for box in self.task.kitchen.boxes().values():
            a, b = self.pixel(box.x[0], box.y[1]), self.pixel(box.x[1], box.y[0])
            canvas.rectangle([a, b], fill=(150, 150, 155) if box.base == 0 else (105, 108, 115), outline=(90, 90, 95))
        self._objects(canvas, frame)
        if robot:
            self.robot(image, planar_pose(frame), 1.0)
        return image

    def _objects(self, canvas: ImageDraw.ImageDraw, frame: RawFrame) -> None:
        if frame.objects is None:
            return
        o = frame.objects
        for i in range(len(o)):
            x, y, yaw = float(o.position[i, 0]), float(o.position[i, 1]), object_yaw(o.orientation[i])
            half = TABLE_WIDTH_M / 2
            known = load_obstacles().get(o.category[i], IDENTICAL_OBSTACLE)
            if o.role[i] == "furniture":
                rectangles, color = [(-half, half, -half, half)], (140, 105, 75)
            else:
                parts = known.model_copy(update={"table": False})
                red, green, blue = (round(255 * v) for v in known.color)
                rectangles, color = parts.footprint(), (red, green, blue)
            for x0, x1, y0, y1 in rectangles:
                corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
                canvas.polygon([self.pixel(*_placed(c, x, y, yaw)) for c in corners], fill=color, outline=(40, 40, 40))

    def robot(self, image: Image.Image, pose: tuple[float, float, float], opacity: float) -> None:
        """The base's outline at a pose, its front marked."""
        layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
        canvas = ImageDraw.Draw(layer)
        a, b = BASE_SIZE_M[0] / 2, BASE_SIZE_M[1] / 2
        color = (*_ROBOT_COLOR[:3], round(255 * opacity))
        corners = [(a, b), (a, -b), (-a, -b), (-a, b)]
        canvas.polygon([self.pixel(*_placed(c, *pose)) for c in corners], fill=color, outline=(60, 30, 0, color[3]))
        nose = [self.pixel(*_placed(c, *pose)) for c in ((0.0, 0.0), (a, 0.0))]
        canvas.line(nose, fill=(60, 30, 0, color[3]), width=3)
        image.paste(Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB"))

    def path(self, image: Image.Image, points: Iterable[Sequence[float]]) -> None:
        """A way of the robot's base as an orange line."""
        pixels = [self.pixel(p[0], p[1]) for p in points]
        if len(pixels) > 1:
            ImageDraw.Draw(image).line(pixels, fill=_PATH_COLOR, width=3)

    def marks(self, image: Image.Image, points: Iterable[Sequence[float]], color: tuple[int, int, int]) -> None:
        """Small filled dots."""
        canvas = ImageDraw.Draw(image)
        for point in points:
            x, y = self.pixel(point[0], point[1])
            canvas.ellipse([x - 3, y - 3, x + 3, y + 3], fill=color)

    def dots(self, image: Image.Image, points: Sequence[Sequence[float]], first: int = 1) -> None:
        """Numbered candidates."""
        canvas = ImageDraw.Draw(image)
        for number, point in enumerate(points, first):
            x, y = self.pixel(point[0], point[1])
            canvas.ellipse([x - 9, y - 9, x + 9, y + 9], fill=(255, 255, 255), outline=(0, 60, 200), width=2)
            canvas.text((x, y), str(number), fill=(0, 60, 200), anchor="mm")


def png(image: Image.Image) -> bytes:
    """The image as PNG; the same pixels give the same bytes."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def labelled(image: Image.Image, text: str) -> Image.Image:
    """The image with a label in its upper left corner."""
    canvas = ImageDraw.Draw(image)
    canvas.rectangle(canvas.textbbox((4, 4), text), fill=(255, 255, 255))
    canvas.text((4, 4), text, fill=(0, 0, 0))
    return image


def grid(images: Sequence[Image.Image], columns: int = 3) -> Image.Image:
    """Images of one size side by side, row by row."""
    width, height = images[0].size
    rows = math.ceil(len(images) / columns)
    sheet = Image.new("RGB", (width * min(columns, len(images)), height * rows), (255, 255, 255))
    for i, image in enumerate(images):
        sheet.paste(image, ((i % columns) * width, (i // columns) * height))
    return sheet


def _placed(point: tuple[float, float], x: float, y: float, yaw: float) -> tuple[float, float]:
    c, s = math.cos(yaw), math.sin(yaw)
    return x + c * point[0] - s * point[1], y + s * point[0] + c * point[1]


def _middle(span: tuple[float, float] | None) -> float:
    return 0.0 if span is None else (span[0] + span[1]) / 2
