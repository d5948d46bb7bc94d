"""Where the code-generation planner gets its programs and control values from: a table, a file, or a chat endpoint."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import yaml

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.raw import RawFrame
from sim_bridge.kitchen.instructions import goal_phrase, obstacle_phrase
from sim_bridge.kitchen.layout import R_BASE_M, load_tiers
from sim_bridge.kitchen.tasks import HUMAN_ROUTE, Task
from sim_bridge.options import checked, taken, unknown
from sim_bridge.policies import prompts
from sim_bridge.policies.chat import ChatClient, text_message
from sim_bridge.policies.program import (
    MAX_REGION_M,
    MAX_REGION_THREE_STEP_M,
    ControlValues,
    Program,
    parse_program,
)
from sim_bridge.policies.scene_view import obstacles_of
from sim_bridge.policies.topview import TopView, png

Method = Literal["program", "value_only", "2_step", "3_step"]
Guidance = Literal["none", "per_obstacle", "collision_risk", "both"]


@dataclass(frozen=True)
class Situation:
    """What a value source is asked about."""

    task: Task
    instruction: str
    frame: RawFrame
    views: Callable[..., TopView] = TopView  #: makes the top view of a task

    @property
    def obstacles(self) -> list[str]:
        """Categories of the obstacles in sight."""
        return [seen.category for seen in obstacles_of(self.frame)]

    def scene(self) -> str:
        """The scene in words."""
        fixtures = [n for n in self.task.kitchen.fixtures if n != "human" or self.task.route == HUMAN_ROUTE]
        return prompts.scene_text(
            self.instruction, [goal_phrase(n) for n in fixtures], [obstacle_phrase(o) for o in self.obstacles]
        )

    def image(self) -> bytes:
        """The top view as PNG."""
        return png(self.views(self.task).draw(self.frame))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a source decided: the program to drive, and the values as asked for, before any clamp."""

    program: Program
    asked: Mapping[str, ControlValues]
    unparsed: int = 0  #: answers that did not parse and were defaulted


class ValueSource(Protocol):
    """Decides a task's program. Raises ProgramError when no program comes of it."""

    def plan(self, situation: Situation) -> Plan:
        """The program for a situation."""
        ...


def _ready_program(situation: Situation, values: Mapping[str, ControlValues]) -> Plan:
    named = {obstacle_phrase(name): value for name, value in values.items()}
    goal = goal_phrase(situation.task.goal_name)
    return Plan(Program(goal, goal, named), named)


class TableSource:
    """Values by obstacle, or by tier for obstacles that the table does not name; by default the tier table's."""

    def __init__(self, table: Mapping[str, ControlValues | Mapping[str, float]] | None = None) -> None:
        if table is None:
            cautions = {name: tier.caution for name, tier in load_tiers().tiers.items()}
            self._table: dict[str, ControlValues] = {
                name: ControlValues(c.clearance_m, c.speed, c.clearance_m + R_BASE_M + 0.3)
                for name, c in cautions.items()
            }
        else:
            self._table = {name: _values(value, name) for name, value in table.items()}

    def plan(self, situation: Situation) -> Plan:
        """See ValueSource."""
        tiers = load_tiers()
        found = {}
        for obstacle in situation.obstacles:
            value = self._table.get(obstacle) or self._table.get(tiers.tier_of(obstacle))
            if value is not None:
                found[obstacle] = value.clipped(MAX_REGION_THREE_STEP_M)
        return _ready_program(situation, found)


class FileSource:
    """Values from a YAML or JSON file: task id or obstacle -> {clearance_m, speed, region_m}; a task id wins."""

    def __init__(self, path: Path | str) -> None:
        file = Path(path)
        try:
            data = yaml.safe_load(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from error
        except yaml.YAMLError as error:
            raise UserError(f"{file}: is neither YAML nor JSON: {error}") from error
        if not isinstance(data, dict):
            raise UserError(f"{file}: expected a mapping of task ids or obstacles to values")
        self._values = {str(name): _values(value, f"{file}: {name}") for name, value in data.items()}

    def plan(self, situation: Situation) -> Plan:
        """See ValueSource."""
        found = {}
        for obstacle in situation.obstacles:
            value = self._values.get(situation.task.id) or self._values.get(obstacle)
            if value is not None:
                found[obstacle] = value.clipped(MAX_REGION_THREE_STEP_M)
        return _ready_program(situation, found)


class ChatSource:
    """Programs and values from a language model (OSMA-Bench D.2.1, F.3).

    ``program``: the model writes the program with its values, the system prompt carries the ``guidance``.
    ``value_only``: one question for the values; the program around them is ours.
    ``2_step``: the program without values, then one question for all values.
    ``3_step``: clearance first, then speed and region given the clearance, then the program, in which the obstacle's
    values are replaced; the region is raised to clearance + R_base where it is smaller.

    A value answer that does not parse is counted and leaves the values unset: no clearance, nominal speed.
    """

    def __init__(
        self,
        client: ChatClient | Mapping[str, Any],
        method: Method = "program",
        guidance: Guidance = "none",
        base_radius_m: float = R_BASE_M,
        images: bool = True,
    ) -> None:
        if method not in get_args(Method):
            raise UserError(f"method {method!r} does not exist; choose one of {', '.join(get_args(Method))}")
        if guidance not in get_args(Guidance):
            raise UserError(f"guidance {guidance!r} does not exist; choose one of {', '.join(get_args(Guidance))}")
        self.client = ChatClient.of(client, "the value source chat (its client)")
        self._method, self._guidance, self._base_radius, self._images = method, guidance, base_radius_m, images

    def plan(self, situation: Situation) -> Plan:
        """See ValueSource. ChatError when the endpoint does not answer."""
        picture = [situation.image()] if self._images else []
        scene = situation.scene()
        asked: dict[str, ControlValues] = {}
        executed: dict[str, ControlValues] = {}
        unparsed = 0
        if self._method != "program":
            for obstacle in map(obstacle_phrase, situation.obstacles):
                if self._method == "3_step":
                    value, missed = self._three_steps(scene, obstacle, picture)
                    region = max(value.region_m or 0.0, (value.clearance_m or 0.0) + self._base_radius)
                    executed[obstacle] = replace(value, region_m=region)
                else:
                    answer = self._question(prompts.both_values(scene, obstacle), picture)
                    value, missed = read_values(answer, ("clearance_cm", "speed_percent", "radius_cm"))
                    value = executed[obstacle] = value.clipped(MAX_REGION_M)
                asked[obstacle] = value
                unparsed += missed
        if self._method == "value_only":
            goal = goal_phrase(situation.task.goal_name)
            return Plan(Program(goal, goal, executed), asked, unparsed)
        system = prompts.PLANNER_SYSTEM + prompts.GUIDANCE[self._guidance]
        if self._method == "2_step":
            system += prompts.WITHOUT_VALUES
        messages = [text_message(system, role="system"), text_message(scene, picture)]
        program = parse_program(self.client.ask(messages))
        if self._method == "program":
            values = {name: v.clipped(MAX_REGION_M) for name, v in program.values.items()}
            return Plan(replace(program, values=values), values, unparsed)
        # only the obstacle under evaluation is rewritten; the rest of the program stays
        kept = {name: v for name, v in program.values.items() if _plain(name) not in {_plain(o) for o in executed}}
        if self._method == "2_step":
            kept = {}
        return Plan(replace(program, values={**kept, **executed}), asked, unparsed)

    def _three_steps(self, scene: str, obstacle: str, picture: list[bytes]) -> tuple[ControlValues, int]:
        answer = self._question(prompts.clearance_question(scene, obstacle), picture)
        first, missed = read_values(answer, ("clearance_cm",))
        clearance = first.clipped().clearance_m
        answer = self._question(prompts.speed_question(scene, obstacle, 100 * (clearance or 0.0)), picture)
        second, also = read_values(answer, ("speed_percent", "radius_cm"))
        return replace(second.clipped(MAX_REGION_THREE_STEP_M), clearance_m=clearance), missed + also

    def _question(self, text: str, picture: list[bytes]) -> str:
        messages = [text_message(prompts.VALUE_SYSTEM, role="system"), text_message(text, picture)]
        return self.client.ask(messages)


def read_values(answer: str, wanted: tuple[str, ...]) -> tuple[ControlValues, int]:
    """Values in an answer (JSON, or ``name = number`` pairs) and 1 when some wanted one is not there, else 0."""
    found = read_numbers(answer, wanted)
    return (
        ControlValues(
            None if found.get("clearance_cm") is None else found["clearance_cm"] / 100,
            None if found.get("speed_percent") is None else found["speed_percent"] / 100,
            None if found.get("radius_cm") is None else found["radius_cm"] / 100,
        ),
        int(any(name not in found for name in wanted)),
    )


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def read_json(answer: str) -> dict[str, Any]:
    """The first JSON object in an answer; empty when there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", answer):
        try:
            value, _ = decoder.raw_decode(answer, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def read_numbers(answer: str, names: tuple[str, ...]) -> dict[str, float]:
    """Finite numbers by name: from the first JSON object, or from ``name = 12`` and ``name: 12`` in the text."""
    data = read_json(answer)
    found = {}
    for name in names:
        value = data.get(name)
        if value is None:
            match = re.search(rf"\b{re.escape(name)}\b[^\w.+-]{{0,4}}({_NUMBER})", answer)
            value = match[1] if match else None
        try:
            number = float(value) if not isinstance(value, bool) and value is not None else math.nan
        except (TypeError, ValueError):
            continue
        if math.isfinite(number):
            found[name] = number
    return found


def _values(value: ControlValues | Mapping[str, Any], where: str) -> ControlValues:
    if isinstance(value, ControlValues):
        return value
    known = ("clearance_m", "speed", "region_m")
    if not isinstance(value, Mapping) or set(value) - set(known):
        raise UserError(f"{where}: expected a mapping with {', '.join(known)}, found {value!r}")
    try:
        return ControlValues(*(None if value.get(name) is None else float(value[name]) for name in known))
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {', '.join(known)} are numbers, found {dict(value)!r}") from error


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9]+", " ", name.lower()).split())


def make_source(kind: str, **options: Any) -> ValueSource:
    """A source by name: ``table``, ``file`` or ``chat``; ``options`` go to its constructor (see sim_bridge.options)."""
    sources: Mapping[str, Any] = {"table": TableSource, "file": FileSource, "chat": ChatSource}
    if kind not in sources:
        raise UserError(f"value source {kind!r} does not exist; choose one of {', '.join(sources)}")
    if kind == "chat" and "client" not in options:
        raise UserError("source=chat needs the option client='{url: http://localhost:8000/v1, model: NAME}'")
    for name in options:
        others = [other for other, cls in sources.items() if name in inspect.signature(cls).parameters]
        if not others:
            raise unknown("the policy voxposer", name, ["source", "condition", *taken(sources[kind])])
        if kind not in others:
            raise UserError(f"option {name} goes with source={' or source='.join(others)}, not with source={kind}")
    source: ValueSource = sources[kind](**checked(f"the value source {kind}", sources[kind], options))
    return source
