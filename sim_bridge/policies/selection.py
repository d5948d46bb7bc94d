"""Rollout selection (OSMA-Bench G.1): K candidate rollouts from the present state, a verifier picks one, every 100
steps.

The policy keeps a simulation of its own, with the options that the episode's info names, and moves it with its own
commands: the same task, seed, options and commands give the same state bit for bit, so it needs no access to the
simulation that it drives, in process or over ROS.
"""

from __future__ import annotations

import copy
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.core.errors import UserError
from osma_monitor.core.metrics import candidates as candidate_metrics
from osma_monitor.core.signals.raw import CONTACT_YES, OBSTACLE_ROLES, RawFrame
from sim_bridge.kitchen.instructions import check_condition, task_instruction
from sim_bridge.kitchen.tasks import Task, parse_task
from sim_bridge.options import at_least, new_file
from sim_bridge.policies import prompts
from sim_bridge.policies.base import Policy
from sim_bridge.policies.chat import ChatClient, ChatError, answered, append_line, text_message
from sim_bridge.policies.follower import base_action, planar_pose
from sim_bridge.policies.navigation import ShortestPath
from sim_bridge.policies.scene_view import obstacles_of
from sim_bridge.policies.topview import TopView, ViewKind, grid, labelled, png
from sim_bridge.policies.values import read_json
from sim_bridge.policies.views import Views
from sim_bridge.simulation import Action

Floats = NDArray[np.float64]
ImageFormat = Literal["grid", "path", "overlay"]

HORIZON_STEPS, CHUNK_STEPS, FRAME_EVERY, OVERLAY_EVERY = 100, 20, 20, 10


class Stochastic(Policy, Protocol):
    """A policy whose next chunk of actions depends on noise that can be seeded."""

    def reseed(self, seed: Sequence[int]) -> None:
        """Draw the next chunk's noise from this seed."""
        ...


class NoisyShortestPath(ShortestPath):
    """The shortest path with a velocity offset that is drawn anew for every chunk of actions.

    By itself it draws from the episode's task and seed; once reseeded, whoever reseeds it says when a chunk begins.
    """

    name = "noisy_shortest_path"
    seeded = True

    def __init__(self, noise: float = 0.25) -> None:
        at_least("the policy noisy_shortest_path", "noise", noise, 0)
        self._noise = noise  #: standard deviation of the offset, m/s
        self._offset = (0.0, 0.0)

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        super().reset(info)
        self._rng: np.random.Generator | None = np.random.default_rng(
            [info.seed % 2**32, zlib.crc32(info.task.encode())]
        )
        self._steps = 0

    def reseed(self, seed: Sequence[int]) -> None:
        """See Stochastic."""
        self._rng = None
        self._draw(np.random.default_rng(list(seed)))

    def _draw(self, rng: np.random.Generator) -> None:
        dx, dy = rng.normal(0.0, self._noise, 2)
        self._offset = float(dx), float(dy)

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if self._rng is not None and self._steps % CHUNK_STEPS == 0:
            self._draw(self._rng)
        self._steps += 1
        action = super().act(frame)
        _, _, yaw = planar_pose(frame)
        offset = base_action(self._offset, yaw, 0.0)
        return Action(action.vx + offset.vx, action.vy + offset.vy, action.yaw_rate)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One rollout: the base's pose at its steps (n, 3), the actions, and how it went."""

    poses: Floats
    actions: tuple[Action, ...]
    distance: float  #: smallest obstacle distance, m; NaN without an obstacle
    contact: bool
    success: bool


@dataclass(frozen=True, eq=False)
class Decision:
    """What was decided: candidates, the order in which they were shown, the chosen one, and if the verifier chose."""

    candidates: tuple[Candidate, ...]
    order: tuple[int, ...]
    chosen: int
    valid: bool
    task: str = ""
    obstacle: tuple[float, float] | None = None  #: m, where it stood
    obstacle_distance: float = math.nan  #: m, surface distance at the decision
    seed: int = 0

    def for_metrics(self) -> candidate_metrics.Decision:
        """As osma_monitor.core.metrics.candidates scores it (diversity, collision-free selection)."""
        return candidate_metrics.Decision(
            self.task,
            [c.poses[:, :2] for c in self.candidates],
            [c.contact for c in self.candidates],
            self.chosen if self.valid else None,
            self.order,
            self.obstacle,
            self.obstacle_distance,
            self.seed,
        )


@dataclass(frozen=True)
class Scene:
    """What a verifier is told."""

    task: Task
    instruction: str
    frame: RawFrame
    views: Callable[..., TopView] = TopView  #: makes the top view of a task


class Verifier(Protocol):
    """Picks one of the candidates in the order shown, or none."""

    def choose(self, shown: Sequence[Candidate], scene: Scene) -> int | None:
        """Position in ``shown``; None for a rejection or an answer that names no candidate."""
        ...


class ScoringVerifier:
    """Without a model: no contact first, then the nearest to the goal with a bonus for room."""

    def choose(self, shown: Sequence[Candidate], scene: Scene) -> int | None:
        """See Verifier; rejects when every candidate touches something."""
        goal = scene.task.goal
        free = [i for i, c in enumerate(shown) if not c.contact]
        if not free:
            return None

        def score(i: int) -> float:
            end = shown[i].poses[-1]
            room = 0.5 if math.isnan(shown[i].distance) else min(shown[i].distance, 0.5)
            return math.hypot(end[0] - goal.x, end[1] - goal.y) - room - 10.0 * shown[i].success

        return min(free, key=score)


class ChatVerifier:
    """Asks a model with one image a candidate."""

    def __init__(self, client: ChatClient | Mapping[str, Any], image_format: ImageFormat = "grid") -> None:
        if image_format not in get_args(ImageFormat):
            raise UserError(f"image format {image_format!r}: choose one of {', '.join(get_args(ImageFormat))}")
        self.client = ChatClient.of(client, "the policy rollout_selection with verifier=chat (its client)")
        self._format: ImageFormat = image_format
        self.unparsed = 0  #: answers that are neither a candidate nor a rejection, over all episodes

    def choose(self, shown: Sequence[Candidate], scene: Scene) -> int | None:
        """See Verifier."""
        images = [
            png(labelled(candidate_image(c, scene, self._format), f"Mode {number}"))
            for number, c in enumerate(shown, 1)
        ]
        text = prompts.verifier_question(scene.instruction, len(shown), self._format)
        try:
            answer = self.client.ask([text_message(text, images)])
        except ChatError:
            if not answered(self):
                raise
            return None
        mode = read_json(answer).get("mode")
        words = str(mode).lower().replace("mode", "").split() if isinstance(mode, (str, int)) else []
        number = int(words[0]) if len(words) == 1 and words[0].isdecimal() else 0
        if 1 <= number <= len(shown):
            return number - 1
        if not (isinstance(mode, str) and "none" in words):  # JSON's null is no rejection
            self.unparsed += 1
        return None


def candidate_image(candidate: Candidate, scene: Scene, image_format: ImageFormat) -> Image.Image:
    """The picture of one candidate in one of the three formats of OSMA-Bench Figure 9."""
    view = scene.views(scene.task, scale=40.0 if image_format == "grid" else 64.0)
    if image_format == "grid":
        frames = []
        for step in range(0, len(candidate.poses), FRAME_EVERY):
            image = view.draw(scene.frame, robot=False)
            view.path(image, candidate.poses[: step + 1].tolist())
            view.robot(image, _pose(candidate.poses[step]), 1.0)
            frames.append(image)
        return grid(frames)
    image = view.draw(scene.frame)
    if image_format == "overlay":
        for step in range(OVERLAY_EVERY, len(candidate.poses), OVERLAY_EVERY):
            view.robot(image, _pose(candidate.poses[step]), 0.25)
    view.path(image, candidate.poses.tolist())
    return image


def _pose(row: Floats) -> tuple[float, float, float]:
    return float(row[0]), float(row[1]), float(row[2])


def write_decision(path: Path, decision: Decision) -> None:
    """Append one decision as a JSON line."""
    data = decision.for_metrics()
    entry = {
        "task": data.task,
        "seed": data.seed,
        "paths": [np.round(p, 6).tolist() for p in data.paths],
        "contact": list(data.contact),
        "chosen": data.chosen,
        "order": list(data.order),
        "obstacle": data.obstacle,
        "obstacle_distance": None if math.isnan(data.obstacle_distance) else data.obstacle_distance,
    }
    append_line(path, entry)


def read_decisions(path: Path | str) -> list[candidate_metrics.Decision]:
    """The decisions of a log. UserError names file and line of what is none."""
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            place, distance = entry["obstacle"], entry["obstacle_distance"]
            found.append(
                candidate_metrics.Decision(
                    entry["task"],
                    [np.array(p, dtype=np.float64) for p in entry["paths"]],
                    entry["contact"],
                    entry["chosen"],
                    entry["order"],
                    None if place is None else (float(place[0]), float(place[1])),
                    math.nan if distance is None else float(distance),
                    int(entry.get("seed", 0)),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}:{number}: is no decision ({error})") from error
    return found


def _for_the_twin(given: Mapping[str, Any]) -> dict[str, Any]:
    if not given:
        return {}
    from sim_bridge.hosts import checked_options
    from sim_bridge.kitchen.simulation import KitchenSimulation  # only this policy needs the simulator

    found = checked_options("kitchen", KitchenSimulation, given)
    KitchenSimulation(**found).close()
    return found


class RolloutSelection:
    """Chooses among rollouts of a stochastic policy.

    ``view`` is the picture that a model gets: ``"drawn"``, or ``"rendered"`` by a simulation that follows the frames.
    ``verifier`` is a Verifier, ``"scorer"`` or ``"chat"`` (with the client's options in ``client``).
    ``simulation_options`` go to the twin, beside what the episode's info says. ``log`` is a JSON-lines file that every
    decision is appended to, for :func:`read_decisions`.
    """

    name = "rollout_selection"
    seeded = True

    def __init__(
        self,
        verifier: Verifier | str = "scorer",
        k: int = 4,
        base: Stochastic | None = None,
        image_format: ImageFormat = "grid",
        client: ChatClient | Mapping[str, Any] | None = None,
        verifier_seed: int = 0,
        log: Path | str | None = None,
        condition: str | None = None,
        simulation_options: Mapping[str, Any] | None = None,
        view: ViewKind = "drawn",
    ) -> None:
        check_condition(condition)
        self._condition = condition
        self._views = Views(view)
        if k < 1:
            raise UserError(f"k = {k}: expected at least one candidate")
        at_least("the policy rollout_selection", "verifier_seed", verifier_seed, 0)
        if isinstance(verifier, str):
            if verifier not in ("scorer", "chat"):
                raise UserError(f"verifier {verifier!r} does not exist; choose scorer or chat")
            if verifier == "scorer" and client is not None:
                raise UserError("client: goes with verifier=chat; add it, or leave client out")
            if verifier == "chat" and client is None:
                raise UserError("the chat verifier needs client: {url, model}")
            verifier = (
                ScoringVerifier() if verifier == "scorer" or client is None else ChatVerifier(client, image_format)
            )
        self._verifier, self._k, self._seed = verifier, k, verifier_seed
        self._base: Stochastic = base if base is not None else NoisyShortestPath()
        self._options = _for_the_twin(simulation_options or {})
        self._log = None if log is None else new_file("log", log)
        self.decisions: list[Decision] = []
        self._twin: Any = None
        self._said = ""  #: options of the simulation that is driven
        self._unparsed_before = 0

    @property
    def unparsed(self) -> int:
        """Answers of the verifier that did not parse, over all episodes."""
        return int(getattr(self._verifier, "unparsed", 0))

    @property
    def requested(self) -> dict[str, str]:
        """Attributes of the episode's record: how many answers did not parse, and a condition of the policy's own."""
        said = {"unparsed_answers": str(self.unparsed - self._unparsed_before)}
        return said if self._condition is None else {**said, "condition": self._condition}

    def reset(self, info: EpisodeInfo) -> None:
        """See Policy."""
        from sim_bridge.kitchen.simulation import KitchenSimulation  # only this policy needs the simulator

        self._info, self._task = info, parse_task(info.task)
        self._unparsed_before = self.unparsed
        self._views.reset(info)
        said = info.attributes.get("simulation", "")
        if self._twin is None or said != self._said:
            self._twin, self._said = KitchenSimulation.of(info, **self._options), said
        self._twin.restart_clock()
        self._twin.reset(info.task, info.seed)
        self._base.reset(info)
        self._queue: list[Action] = []
        self.decisions = []

    def act(self, frame: RawFrame) -> Action:
        """See Policy."""
        if not self._queue:
            if not self.decisions:
                self._twin.synchronise(frame)
            self._decide(frame)
        return self._queue.pop(0)

    def _decide(self, frame: RawFrame) -> None:
        start = self._twin.save()
        made = [self._roll(frame, start, number) for number in range(self._k)]
        order = np.random.default_rng([self._seed, len(self.decisions)]).permutation(self._k)
        rolled = tuple(candidate for candidate, _, _ in made)
        scene = Scene(self._task, task_instruction(self._info, self._condition), frame, self._views)
        answer = self._verifier.choose([rolled[i] for i in order], scene)
        valid = answer is not None
        chosen = int(order[answer]) if answer is not None else 0  # a rejection takes the first one generated
        _, end, policy = made[chosen]
        self._twin.restore(end)
        self._base = policy
        self._queue = list(rolled[chosen].actions)
        seen = obstacles_of(frame)
        place = (seen[0].x, seen[0].y) if seen else None
        distance = (
            float(frame.objects.distance[frame.objects.id.index(seen[0].id)]) if seen and frame.objects else math.nan
        )
        shown = tuple(int(i) for i in order)
        made_here = Decision(rolled, shown, chosen, valid, self._info.task, place, distance, self._info.seed)
        self.decisions.append(made_here)
        if self._log is not None:
            write_decision(self._log, made_here)

    def _roll(self, frame: RawFrame, start: Any, number: int) -> tuple[Candidate, Any, Stochastic]:
        self._twin.restore(start)
        policy = copy.deepcopy(self._base)
        poses, actions = [planar_pose(frame)], []
        distances, contact = [], False
        outcome = None
        for step in range(HORIZON_STEPS):
            if step % CHUNK_STEPS == 0:
                policy.reseed([self._info.seed % 2**32, len(self.decisions), number, step // CHUNK_STEPS])
            actions.append(policy.act(frame))
            frame = self._twin.step(actions[-1])
            poses.append(planar_pose(frame))
            objects = frame.objects
            for i in range(0 if objects is None else len(objects)):
                if objects is not None and objects.role[i] in OBSTACLE_ROLES:
                    distances.append(float(objects.distance[i]))
                    contact = contact or bool(objects.in_contact[i] == CONTACT_YES)
            outcome = self._twin.outcome()
            if outcome is not None:
                break
        success = outcome is not None and outcome.status == "success"
        candidate = Candidate(np.array(poses), tuple(actions), min(distances, default=math.nan), contact, success)
        return candidate, self._twin.save(), policy
