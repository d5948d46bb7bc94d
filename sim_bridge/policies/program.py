"""Programs of the code-generation planner: the text that a model writes, read without running it.

A program is a sequence of calls with constant arguments:

    go_to("sink")                                        # affordance: where to go
    keep_away("crawling baby", clearance_cm=50)          # avoidance
    slow_near("crawling baby", speed=0.4, radius_cm=90)  # velocity; speed is a factor of the nominal one
    face("sink")                                         # rotation: what to face at the end; the goal when left out

It is parsed with ``ast`` and interpreted call by call; nothing of it is ever executed.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: Ranges of the values (OSMA-Bench C.3; F.3 for the region of the three-step method): m, m, m, factor.
MAX_CLEARANCE_M, MAX_REGION_M, MAX_REGION_THREE_STEP_M, MAX_SPEED_FACTOR = 0.80, 0.80, 2.00, 2.0

_FENCE = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
_MAX_TEXT = 20_000


class ProgramError(Exception):
    """The text is no program, or none that leads anywhere; the message is the reason of the failed episode."""


@dataclass(frozen=True, slots=True)
class ControlValues:
    """Control values for one obstacle. None: not set, which counts as no clearance and nominal speed (C.3)."""

    clearance_m: float | None = None
    speed: float | None = None  #: factor of the nominal speed
    region_m: float | None = None  #: distance of the base's centre from the obstacle within which the speed applies

    def clipped(self, max_region_m: float = MAX_REGION_M) -> ControlValues:
        """The values inside their ranges; what is not finite counts as not set."""
        return ControlValues(
            _clip(self.clearance_m, MAX_CLEARANCE_M),
            _clip(self.speed, MAX_SPEED_FACTOR),
            _clip(self.region_m, max_region_m),
        )


def _clip(value: float | None, most: float) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return min(max(value, 0.0), most)


@dataclass(frozen=True, slots=True)
class Program:
    """What a program asks for, names as the model wrote them."""

    goal: str
    face: str = ""
    values: Mapping[str, ControlValues] = field(default_factory=dict)

    def text(self) -> str:
        """The program as text again."""
        lines = [f"go_to({self.goal!r})"]
        for name, v in self.values.items():
            if v.clearance_m is not None:
                lines.append(f"keep_away({name!r}, clearance_cm={v.clearance_m * 100:g})")
            if v.speed is not None or v.region_m is not None:
                speed = 1.0 if v.speed is None else v.speed
                region = 0.0 if v.region_m is None else v.region_m
                lines.append(f"slow_near({name!r}, speed={speed:g}, radius_cm={region * 100:g})")
        if self.face:
            lines.append(f"face({self.face!r})")
        return "\n".join(lines)


_ARGUMENTS = {
    "go_to": ("name",),
    "face": ("name",),
    "keep_away": ("name", "clearance_cm"),
    "slow_near": ("name", "speed", "radius_cm"),
}


def parse_program(text: str) -> Program:
    """Read a program. ProgramError says what is wrong: empty answer, no code, unknown call, no target."""
    fenced = _FENCE.search(text)
    code = (fenced[1] if fenced else text).strip()
    if not code:
        raise ProgramError("empty answer")
    if len(code) > _MAX_TEXT:
        raise ProgramError(f"the generated code has {len(code)} characters, more than {_MAX_TEXT}")
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"generated code does not parse: {error}") from error
    goal = face = ""
    values: dict[str, ControlValues] = {}
    for statement in tree.body:
        name, arguments = _call(statement)
        subject = arguments["name"]
        if not isinstance(subject, str):
            raise ProgramError(f"generated code: {name} needs a name in quotes, line {statement.lineno}")
        known = values.get(subject, ControlValues())
        if name == "go_to":
            goal = subject.strip()
        elif name == "face":
            face = subject.strip()
        elif name == "keep_away":
            centimetres = _number(arguments.get("clearance_cm"))
            values[subject] = replace(known, clearance_m=None if centimetres is None else centimetres / 100)
        else:
            centimetres = _number(arguments.get("radius_cm"))
            region = None if centimetres is None else centimetres / 100
            values[subject] = replace(known, speed=_number(arguments.get("speed")), region_m=region)
    if not goal:
        raise ProgramError("no target: the generated code holds no go_to")
    return Program(goal, face, values)


def _call(statement: ast.stmt) -> tuple[str, dict[str, object]]:
    value = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id not in _ARGUMENTS:
        raise ProgramError(f"generated code: line {statement.lineno} is none of the calls {', '.join(_ARGUMENTS)}")
    name = value.func.id
    names = _ARGUMENTS[name]
    arguments: dict[str, object] = {}
    try:
        for position, argument in zip(names, value.args, strict=False):
            arguments[position] = ast.literal_eval(argument)
        for keyword in value.keywords:
            if keyword.arg in names:
                arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ProgramError(f"generated code: {name} needs constants, line {statement.lineno}") from error
    if "name" not in arguments:
        raise ProgramError(f"generated code: {name} needs a name, line {statement.lineno}")
    return name, arguments


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
