"""What rviz shows: the boundary around each obstacle, the line of least clearance, violations as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from geometry_msgs.msg import Point
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.monitor import Update
from osma_monitor.core.signals.raw import OBSTACLE_ROLES, RawFrame
from osma_monitor.ros.conversions import WORLD_FRAME, header
from osma_monitor.ros.text import printable

BOUNDARY = 1.25  #: m, inside which motion features are taken (OSMA-Bench 3.2.2)
#: Caution tier -> colour (Okabe and Ito's palette, which colour-blind people tell apart).
TIER_COLOURS = {"high": (0.84, 0.37, 0.0), "moderate": (0.90, 0.62, 0.0), "low": (0.0, 0.62, 0.45)}
_UNKNOWN = (0.6, 0.6, 0.6)
_CORNERS = 48


def _colour(rgb: tuple[float, float, float], alpha: float = 1.0) -> ColorRGBA:
    return ColorRGBA(r=rgb[0], g=rgb[1], b=rgb[2], a=alpha)


def _marker(frame: RawFrame, space: str, number: int, kind: int, frame_id: str) -> Marker:
    marker = Marker(header=header(frame.stamp_ns, frame_id), ns=space, id=number, type=kind, action=Marker.ADD)
    marker.pose.orientation.w = 1.0
    marker.lifetime.sec = 1  # what is no longer sent goes away
    return marker


def scene(
    frame: RawFrame,
    update: Update,
    info: EpisodeInfo,
    tiers: Mapping[str, str],
    frame_id: str = WORLD_FRAME,
) -> MarkerArray:
    """Markers of one frame; ``tiers`` maps categories to caution tiers. Poses that are not known draw nothing."""
    found = []
    objects = frame.objects
    if objects is not None:
        for i, role in enumerate(objects.role):
            x, y, z = objects.position[i].tolist()
            if role not in OBSTACLE_ROLES or not math.isfinite(x + y + z):
                continue
            tier = tiers.get(objects.category[i], info.attributes.get("tier", ""))
            colour = TIER_COLOURS.get(tier, _UNKNOWN)
            ring = _marker(frame, "boundary", i, Marker.LINE_STRIP, frame_id)
            ring.scale.x = 0.02
            ring.color = _colour(colour, 0.6)
            ring.points = [
                Point(x=x + BOUNDARY * math.cos(a), y=y + BOUNDARY * math.sin(a), z=0.01)
                for a in (2 * math.pi * k / _CORNERS for k in range(_CORNERS + 1))
            ]
            found.append(ring)
            if objects.id[i] == update.signals.obstacle and frame.base is not None:
                found += _clearance(frame, (x, y, z), float(objects.distance[i]), colour, frame_id)
    if update.reasons and update.state in ("violated", "unknown") and frame.base is not None:
        text = _marker(frame, "violation", 0, Marker.TEXT_VIEW_FACING, frame_id)
        p = frame.base.position
        text.pose.position = Point(x=float(p[0]), y=float(p[1]), z=float(p[2]) + 1.0)
        text.scale.z = 0.15
        text.color = _colour((0.84, 0.15, 0.16) if update.state == "violated" else _UNKNOWN)
        text.text = printable(f"{update.state}: {', '.join(update.reasons)}")
        found.append(text)
    return MarkerArray(markers=found)


def _clearance(
    frame: RawFrame,
    obstacle: tuple[float, float, float],
    distance: float,
    colour: tuple[float, float, float],
    frame_id: str,
) -> list[Marker]:
    """Line from the base to the nearest obstacle, a ball at the obstacle's end, and the distance as text."""
    assert frame.base is not None
    start = Point(**dict(zip("xyz", frame.base.position.tolist(), strict=True)))
    end = Point(x=obstacle[0], y=obstacle[1], z=obstacle[2])
    line = _marker(frame, "clearance", 0, Marker.LINE_LIST, frame_id)
    line.scale.x = 0.03
    line.color = _colour(colour)
    line.points = [start, end]
    ball = _marker(frame, "nearest", 0, Marker.SPHERE, frame_id)
    ball.pose.position = end
    ball.scale.x = ball.scale.y = ball.scale.z = 0.1
    ball.color = _colour(colour)
    label = _marker(frame, "distance", 0, Marker.TEXT_VIEW_FACING, frame_id)
    label.pose.position = Point(x=(start.x + end.x) / 2, y=(start.y + end.y) / 2, z=(start.z + end.z) / 2 + 0.2)
    label.scale.z = 0.12
    label.color = _colour((1.0, 1.0, 1.0))
    label.text = "distance unknown" if math.isnan(distance) else f"{distance:.2f} m"
    return [line, ball, label]
