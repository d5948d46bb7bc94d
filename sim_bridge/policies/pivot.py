"""Waypoint selection after PIVOT (OSMA-Bench D.2.2): numbered candidates on the top view, three rounds of refinement,
a speed profile for the chosen leg, then the same again from where the robot is.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import check_condition, obstacle_phrase, task_instruction
from sim_bridge.kitchen.layout import BASE_RADIUS_M
from sim_bridge.kitchen.planning import MARGIN_M, RESOLUTION_M, FloorMap, cost_to_go, disc, floor_map, polyline
from sim_bridge.kitchen.tasks import Task, parse_task
from sim_bridge.options import taken, unknown
from sim_bridge.policies import prompts
from sim_bridge.policies.chat import ChatClient, ChatError, answered, text_message
from sim_bridge.policies.follower import NOMINAL_ACCELERATION, NOMINAL_SPEED, PathFollower, planar_pose
from sim_bridge.policies.navigation import keep_off
from sim_bridge.policies.scene_view import GENERIC_RADIUS_M, obstacles_of, static_footprints
from sim_bridge.policies.topview import ViewKind, png
from sim_bridge.policies.values import Situation, read_json
from sim_bridge.policies.views import Views
from sim_bridge.simulation import STOP, Action

Floats = NDArray[np.float64]
Profile = Sequence[tuple[float, float, float]]  #: from, to (0 to 100 along the leg), factor of the nominal speed

CANDIDATES, ROUNDS, KEPT = 16, 3, 3
_REACH_M = (0.4, 1.6)  #: candidates of the first round lie this far away
_SPREAD_M = 0.45  #: standard deviation around the kept ones in round 2, halved in round 3
_ARRIVED_M = 0.12
_LEG_FRAMES = 100
_LEAST_SPEED, _MOST_SPEED = 0.02, 2.0


class Chooser(Protocol):
    """Picks waypoints and speeds."""

    unparsed: int

    def choose(self, points: Floats, situation: Situation, round_number: int, count: int) -> list[int]:
        """Positions of the best candidates (n, 2), best first; never empty."""
        ...

    def profile(self, start: tuple[float, float], end: tuple[float, float], situation: Situation) -> Profile:
        """Speed along the leg."""
        ...


class Scorer:
    """Without a model: the way that is left, plus a penalty for room that a generic obstacle would not have."""

    def __init__(self) -> None:
        self.unparsed = 0
        self._known: tuple[Task, FloorMap, Floats] | None = None

    def choose(self, points: Floats, situation: Situation, round_number: int, count: int) -> list[int]:
        """See Chooser."""
        floor, to_go = self._field(situation.task)
        x, y, _ = planar_pose(situation.frame)
        scores = []
        for point in points:
            left = float(to_go[floor.cell(float(point[0]), float(point[1]))]) * RESOLUTION_M
            leg = polyline([(x, y), (float(point[0]), float(point[1]))]).points
            penalty = 0.0
            for seen in obstacles_of(situation.frame):
                away = disc(seen.x, seen.y, GENERIC_RADIUS_M).distance(leg[:, 0], leg[:, 1])
                penalty += 0.05 * float(keep_off(away, 0.0).max())
            scores.append(left + penalty)
        return [int(i) for i in np.argsort(scores, kind="stable")[:count]]

    def profile(self, start: tuple[float, float], end: tuple[float, float], situation: Situation) -> Profile:
        """See Chooser: nominal speed."""
        return [(0.0, 100.0, 1.0)]

    def _field(self, task: Task) -> tuple[FloorMap, Floats]:
        if self._known is None or self._known[0] != task:
            floor = floor_map(task.kitchen)
            self._known = task, floor, cost_to_go(floor.base_cost, floor.cell(task.goal.x, task.goal.y))
        return self._known[1], self._known[2]


class ChatChooser:
    """Asks a model, with the candidates drawn on the top view.

    Answers that do not parse are counted; the first candidates and the nominal speed are taken instead.
    """

    def __init__(self, client: ChatClient | Mapping[str, Any]) -> None:
        self.client = ChatClient.of(client, "the policy pivot with chooser=chat")
        self.unparsed = 0

    def choose(self, points: Floats, situation: Situation, round_number: int, count: int) -> list[int]:
        """See Chooser."""
        view = situation.views(situation.task)
        image = view.draw(situation.frame)
        view.dots(image, points.tolist())
        numbers = list(range(1, len(points) + 1))
        text = prompts.waypoint_question(situation.scene(), numbers, round_number, ROUNDS, count)
        answer = read_json(self.client.ask([text_message(text, [png(image)])])).get("choice")
        given = answer if isinstance(answer, list) else [answer]
        chosen = [int(n) - 1 for n in given if isinstance(n, (int, float)) and not isinstance(n, bool) and n in numbers]
        if not chosen:
            self.unparsed += 1
            return list(range(min(count, len(points))))
        return list(dict.fromkeys(chosen))[:count]

    def profile(self, start: tuple[float, float], end: tuple[float, float], situation: Situation) -> Profile:
        """See Chooser."""
        view = situation.views(situation.task)
        image = view.draw(situation.frame)
        view.path(image, [start, end])
        names = " and the ".join(map(obstacle_phrase, situation.obstacles)) or "things around"
        text = prompts.profile_question(situation.scene(), names)
        segments = read_json(self.client.ask([text_message(text, [png(image)])])).get("segments")
        found = []
        for segment in segments if isinstance(segments, list) else []:
            try:
                entry = tuple(float(segment[key]) for key in ("from", "to", "speed"))
            except (KeyError, TypeError, ValueError):
                continue
            if all(map(math.isfinite, entry)) and entry[0] < entry[1]:
                found.append((entry[0], entry[1], entry[2]))
        if not found:
            self.unparsed += 1
            return [(0.0, 100.0, 1.0)]
        return found


@dataclass(frozen=True, eq=False)
class Leg:
    """One chosen leg, for pictures and tests: the candidates of each round and what was kept."""

    rounds: tuple[Floats, ...]
    kept: tuple[tuple[int, ...], ...]
    waypoint: tuple[float, float]
    profile: tuple[tuple[float, float, float], ...]


class Pivot:
    """The waypoint selector. ``chooser`` is a Chooser, ``"scorer"``, or ``"chat"`` with the client's options.

    ``view`` is the picture that a model gets: ``"drawn"`` from task and frame, or ``"rendered"`` by a simulation of
    its own that follows the frames.
    """

    name = "pivot"
    seeded = True

    def __init__(
        self,
        chooser: Chooser | str = "scorer",
        candidates: int = CANDIDATES,
        condition: str | None = None,
        view: ViewKind = "drawn",
        **options: Any,
    ) -> None:
        check_condition(condition)
        self._condition = condition
        self._views = Views(view)
        own, client = taken(type(self)), inspect.signature(ChatClient).parameters
        for name in options:
            if name not in client:
                raise unknown("the policy pivot", name, own if chooser != "chat" else [*own, *taken(ChatClient)])
            if chooser != "chat":
                raise UserError(f"option {name}: goes with chooser=chat alone; the policy pivot takes {', '.join(own)}")
        if isinstance(chooser, str):
            if chooser not in ("scorer", "chat"):
                raise UserError(f"chooser {chooser!r} does not exist; choose scorer or chat")
            chooser = ChatChooser(options) if chooser == "chat" else Scorer()
        if not 12 <= candidates <= 20:
            raise UserError(f"{candidates} candidates: expected 12 to 20, as the published selector draws")
        self._chooser, self._candidates = chooser, candidates
        self._unparsed_before = 0

    @property
    def unparsed(self) -> int:
        """Answers that did not parse, over all episodes."""
        return self._chooser.unparsed

    @property
    def requested(self) -> dict[str, str]:
        """Attributes of the episode's record: how many answers did not parse, and a condition of the policy's own."""
        said = {"unparsed_answers": str(self.unparsed - self._unparsed_before)}
        return said if self._condition is None else {**said, "condition": self._condition}

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        self._info = info
        self._unparsed_before = self.unparsed
        self._task = parse_task(info.task)
        self._views.reset(info)
        self._floor = floor_map(self._task.kitchen)
        self._rng = np.random.default_rng([info.seed % 2**32, zlib.crc32(info.task.encode())])
        self._follower: PathFollower | None = None
        self._frames = 0
        self.failure: str | None = None  #: why the pipeline broke
        self.legs: list[Leg] = []

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        x, y, yaw = planar_pose(frame)
        self._frames += 1
        if self.failure is None and (self._follower is None or self._done(x, y) or self._frames > _LEG_FRAMES):
            try:
                self._choose(frame, x, y)
            except ChatError as error:
                if not answered(self._chooser):
                    raise
                self.failure = str(error)
            self._frames = 0
        if self._follower is None or self.failure is not None:
            return STOP
        return self._follower.act(x, y, yaw)

    def _done(self, x: float, y: float) -> bool:
        end = self.legs[-1].waypoint
        return math.hypot(x - end[0], y - end[1]) < _ARRIVED_M

    def _choose(self, frame: RawFrame, x: float, y: float) -> None:
        situation = Situation(self._task, task_instruction(self._info, self._condition), frame, self._views)
        free = self._traversable(frame)
        rounds, kept = [], []
        centres: Floats | None = None
        for number in range(1, ROUNDS + 1):
            points = self._sample(free, x, y, centres, _SPREAD_M / 2 ** (number - 2))
            if not len(points):
                self._follower = None
                return
            last = number == ROUNDS
            chosen = self._chooser.choose(points, situation, number, 1 if last else KEPT)
            rounds.append(points)
            kept.append(tuple(chosen))
            centres = points[chosen]
        waypoint = float(rounds[-1][kept[-1][0], 0]), float(rounds[-1][kept[-1][0], 1])
        profile = tuple(self._chooser.profile((x, y), waypoint, situation))
        self.legs.append(Leg(tuple(rounds), tuple(kept), waypoint, profile))
        path = polyline([(x, y), waypoint])
        along = 100.0 * path.along / max(path.length, 1e-9)
        factor = np.ones(len(along))
        for begin, end, alpha in profile:
            factor[(along >= begin) & (along <= end)] = min(max(alpha, _LEAST_SPEED), _MOST_SPEED)
        velocity = (0.0, 0.0) if self._follower is None else self._follower.velocity
        acceleration = np.full(len(along), NOMINAL_ACCELERATION)
        self._follower = PathFollower(path, self._task.goal.yaw, NOMINAL_SPEED * factor, acceleration, 0.05, velocity)

    def _traversable(self, frame: RawFrame) -> NDArray[np.bool_]:
        free = self._floor.distance >= BASE_RADIUS_M + MARGIN_M
        for outline in static_footprints(frame, self._task):
            free = free & (outline.distance(self._floor.x, self._floor.y) >= BASE_RADIUS_M)
        return free

    def _sample(self, free: NDArray[np.bool_], x: float, y: float, centres: Floats | None, spread: float) -> Floats:
        """Up to the wanted number of candidates on free floor that the robot reaches in a straight line."""
        found: list[tuple[float, float]] = []
        for _ in range(40 * self._candidates):
            if centres is None:
                angle, radius = self._rng.uniform(-math.pi, math.pi), self._rng.uniform(*_REACH_M)
                px, py = x + radius * math.cos(angle), y + radius * math.sin(angle)
            else:
                centre = centres[int(self._rng.integers(len(centres)))]
                px, py = centre + self._rng.normal(0.0, spread, 2)
            px, py = float(px), float(py)
            kitchen = self._task.kitchen
            if not (0 < px < kitchen.width and 0 < py < kitchen.depth) or math.hypot(px - x, py - y) < 2 * _ARRIVED_M:
                continue
            leg = polyline([(x, y), (px, py)], RESOLUTION_M).points[3:]  # the first cells may be those it stands in
            ix = (leg[:, 0] / RESOLUTION_M).astype(np.intp).clip(0, free.shape[0] - 1)
            iy = (leg[:, 1] / RESOLUTION_M).astype(np.intp).clip(0, free.shape[1] - 1)
            if free[ix, iy].all():
                found.append((px, py))
                if len(found) == self._candidates:
                    break
        return np.array(found).reshape(-1, 2)
