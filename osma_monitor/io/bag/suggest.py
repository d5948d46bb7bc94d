"""A first mapping of a bag: what its topics could give, which clauses that makes judgeable, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from osma_monitor.core import safety
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.signals.deriver import capabilities, unavailable
from osma_monitor.core.signals.raw import PARTS, RawFrame
from osma_monitor.core.signals.schema import SCHEMA
from osma_monitor.core.text import printable
from osma_monitor.io.bag.base import Topic
from osma_monitor.io.bag.frames import BagFrames
from osma_monitor.io.bag.mapping import InfoRule, Mapping, Plan, plan
from osma_monitor.io.bag.messages import CONVERSIONS, TF_TYPES
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.bag.source import bag_name
from osma_monitor.io.robots import load_robot

#: Frames that are looked at for what the source really fills in.
_LOOK_AT = 20

_WORDS = {
    "base": "pose and velocity of a mobile base",
    "joints": "joint states",
    "ee": "end-effector pose",
    "gripper": "gripper contact",
    "contacts": "contact pairs with forces",
    "objects": "tracked objects",
}


@dataclass
class Suggestion:
    """What :func:`suggest` found. ``text`` is the mapping file."""

    text: str
    given: dict[str, str]  #: raw part -> topic
    active: dict[str, str]  #: clause -> what it watches
    inactive: dict[str, str]  #: clause -> why not, clauses that the task could have
    motion: bool  #: the motion features can be computed
    hints: list[str] = field(default_factory=list)  #: next steps in plain words
    unused: dict[str, str] = field(default_factory=dict)  #: topic that is not read -> its type, and what it is good for


def suggest(path: Path | str, config: MonitorConfig, robot: str = "", templates: tuple[str, ...] = ()) -> Suggestion:
    """Looks at topics, types and the first frames of a bag. Raises InputError when it is no bag or nothing fits."""
    path = Path(path)
    mapping = Mapping(robot=load_robot(robot) if robot else "", info=InfoRule(templates=templates))
    with Recording(path) as recording:
        found = plan(recording.topics, mapping, str(path), all_topics=recording.all_topics)
        frames = []
        for step in BagFrames(recording, found, bag_name(path)).steps():
            if isinstance(step, RawFrame):
                frames.append(step)
                if len(frames) == _LOOK_AT:
                    break
    # the richest of the first frames: some topics start a little later
    frame = max(frames, key=lambda f: len(f.parts), default=RawFrame(1))
    have = capabilities(frame, (), config.library.parameters)
    missing = unavailable(have)
    active, inactive = safety.active_clauses(
        config.library, config.registry, templates, (), missing, extensions=config.extensions
    )
    given = {str(s.part): s.topic.name for s in found.sources}
    if found.frame is not None:
        given = {part: found.frame.name for part in PARTS if part in frame.parts}
    return Suggestion(
        text=_yaml(path, found, robot, templates, frame),
        given=given,
        active={c.id: c.description or c.family.replace("_", " ") for c in active},
        inactive={c: why for c, why in inactive.items() if "is not available" in why},
        motion="base" in have and "objects.obstacle" in have,
        hints=_hints(found, frame, have, missing, templates),
        unused=_unused(recording.topics, found),
    )


def _unused(topics: Table[str, Topic], found: Plan) -> dict[str, str]:
    """Topics that the plan reads nothing from. /tf is read, but changes nothing until a frame is named."""
    idle = {t.name for t in found.transforms} if not (found.mapping.frame or found.robot) else set()
    read = found.topics - idle
    unused = {}
    for topic in sorted(topics.values(), key=lambda t: t.name):
        if topic.name in read:
            continue
        parts = [part for part, kinds in CONVERSIONS.items() if topic.type in kinds]
        use = f"could give {' or '.join(parts)} under topics" if parts else ""
        if topic.type in TF_TYPES:
            use = "brings poses to the frame that `frame` names"
        unused[topic.name] = (topic.type or "type not known") + (f"; {use}" if use else "")
    return unused


def _yaml(path: Path, found: Plan, robot: str, templates: tuple[str, ...], frame: RawFrame) -> str:
    name = printable(path.name)
    lines = [f"# How osma reads {name}. Written by `osma map`; change it where it guessed wrong."]
    lines.append(f"robot: {robot}" if robot else "# robot: turtlebot            # joints, units, frames, footprint")
    if found.frame is not None:
        lines.append(
            f"mode: frame                   # {found.frame.name} holds the frames as the monitor evaluated them"
        )
    else:
        lines.append("topics:")
        for source in found.sources:
            lines.append(f"  {source.part}: {_quoted(source.topic.name)}  # {source.topic.type}, {_WORDS[source.part]}")
        for part in PARTS:
            if part not in found.parts:
                usual = next(iter(CONVERSIONS[part]))
                lines.append(f"  # {part}: ...  # none found; {usual} would give {_WORDS[part]}")
    if found.transforms:
        lines.append("# frame: map                  # bring all poses to this frame by /tf")
    if frame.objects is None:
        lines.append(
            "# obstacles: obstacles.yaml   # where things stood, for distances and motion features (docs/bags.md)"
        )
    if found.events is not None:
        lines.append("episodes: {by: message}")
    else:
        lines.append("episodes: {by: gap, gap: 2.0} # or edge (a topic), times (a list), whole")
        named = ", ".join(templates) or "navigate"
        lines.append(f'info: {{policy: "", task: "", templates: [{named}], tags: [], outcome: unknown}}')
    text = "\n".join(lines) + "\n"
    yaml.safe_load(text)  # topic names are arbitrary text: the file must read back
    return text


def _quoted(name: str) -> str:
    plain = all(c.isalnum() or c in "/_-" for c in name) and name.startswith("/")
    return name if plain else yaml.safe_dump(name, default_style='"', width=1 << 20).strip()


def _hints(
    found: Plan, frame: RawFrame, have: frozenset[str], missing: dict[str, str], templates: tuple[str, ...]
) -> list[str]:
    hints = [f"{doubt}; check it" for doubt in found.unsure]
    if frame.base is not None and "objects.obstacle" not in have:
        hints.append(
            "no obstacles: write a map of obstacles and name it under `obstacles`, for distances and motion features"
        )
    elif frame.objects is not None and frame.base is not None:
        from numpy import isnan

        if isnan(frame.objects.distance).all():
            hints.append("objects come without distance: a robot file with a footprint lets osma compute it")
    if frame.joints is not None and missing.get("max_joint_torque"):
        hints.append("joint states come without effort: torque clauses cannot be judged")
    if frame.contacts is None:
        count = sum("contacts" in need for need in missing.values())
        hints.append(f"no contacts: {count} of {len(SCHEMA)} signals (contact forces, self-collision) stay unavailable")
    if not templates and found.events is None:
        hints.append("the task is not known: give its mechanism under info.templates (osma explain lists them)")
    return hints
