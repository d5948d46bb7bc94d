"""Which topic of a bag gives what: the mapping file, and a first one made from what a bag holds.

    robot: turtlebot                # a robot file by name or path: topics, joints and units, frames, footprint
    topics: {base: /odom}           # raw part -> topic of this bag, before those of the robot file
    frame: map                      # bring all poses to this frame, by /tf or the robot file's fixed transforms
    obstacles: obstacles.yaml       # a map of obstacles for a bag that has none (path beside this file)
    episodes: {by: gap, gap: 2.0}   # message, gap, edge, times or whole
    info: {policy: dwb, task: corridor, templates: [navigate]}
    extensions: [base_speed_limit]  # extension families of clauses that are scored too

Every key may be left out; ``osma map BAG`` writes a first file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from osma_monitor.core.episode import OutcomeStatus
from osma_monitor.core.monitor import MonitorConfig
from osma_monitor.core.robot import ForceSensor, InputSpec, Part, RobotModel
from osma_monitor.core.signals.raw import PARTS
from osma_monitor.io import yaml_files
from osma_monitor.io.bag.base import Topic
from osma_monitor.io.bag.messages import CONVERSIONS, EVENT_TYPE, FRAME_TYPE, SHAPES_TYPE, TF_TYPES, WRENCH
from osma_monitor.io.errors import InputError
from osma_monitor.io.faults import Place
from osma_monitor.io.obstacles import ObstacleMap, load_obstacles
from osma_monitor.io.obstacles import rules as obstacle_rules
from osma_monitor.io.robots import load_robot

_EXACT = {"extra": "forbid"}
#: Types without a fixed part: a flag or number of theirs can be the gripper.
NUMBER_TYPES = tuple(
    f"std_msgs/msg/{n}" for n in ("Bool", "Float32", "Float64", "Int8", "Int16", "Int32", "UInt8", "UInt16", "UInt32")
)


@dataclass(frozen=True, slots=True)
class TopicRule:
    """A topic and how to read it. ``field`` with ``above`` makes a flag of any number; ``role`` fills objects."""

    __pydantic_config__ = _EXACT

    topic: str
    field: str = ""  #: dotted path of a number or flag, for the gripper and for edges
    above: float = 0.5  #: the flag is on above this
    age_limit: float | None = None  #: s, hold mode: an older value is unknown


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """One episode of a list: seconds from the first stamp of the bag, or stamps in seconds where they are past 1e8."""

    __pydantic_config__ = _EXACT

    start: float
    end: float
    outcome: OutcomeStatus = "unknown"
    task: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpisodeRule:
    """Where episodes begin and end in the bag. ``auto``: by message where the bag has any, else at pauses."""

    __pydantic_config__ = _EXACT

    by: Literal["auto", "message", "gap", "edge", "times", "whole"] = "auto"
    topic: str = ""  #: message and edge: the topic
    field: str = "data"  #: edge: dotted path of a number or flag
    above: float = 0.5  #: edge: an episode while the field is above this
    gap: float = 2.0  #: s without a frame
    longest: float = 3600.0  #: s, an endless episode is split here
    times: tuple[TimeSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class InfoRule:
    """What the bag does not say about its episodes."""

    __pydantic_config__ = _EXACT

    task: str = ""
    suite: str = ""
    policy: str = ""
    instruction: str = ""
    seed: int = 0
    templates: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    outcome: OutcomeStatus = "unknown"


@dataclass(frozen=True, slots=True)
class Mapping:
    """One mapping file."""

    __pydantic_config__ = _EXACT

    robot: str | RobotModel = ""
    topics: dict[str, str | TopicRule] = field(default_factory=dict)
    namespace: str = ""  #: the robot file's topics are below this
    frame: str = ""
    obstacles: str | ObstacleMap = ""
    mode: Literal["auto", "frame", "exact", "hold"] = "auto"
    primary: str = ""  #: hold mode: raw part whose messages make frames
    rate: float = 0.0  #: hold mode: frames a second instead of a primary; 0: primary
    transform_wait: float = 1.0  #: s of recording that a frame waits for the transforms around its stamp
    transform_tolerance: float = 1.5  #: s before the first and after the last transform in which it still holds
    episodes: EpisodeRule = field(default_factory=EpisodeRule)
    info: InfoRule = field(default_factory=InfoRule)
    extensions: tuple[str, ...] = ()  #: extension families that are scored beside those of the suite


def load_mapping(path: Path | str) -> Mapping:
    """Reads a mapping file and what it names. Raises InputError with file, line, key and value."""
    path = Path(path)
    mapping = yaml_files.load(path, Mapping, "mapping", rules)
    return resolve(mapping, path.parent, str(path))


def parse_mapping(text: str, file: str = "<text>", folder: Path | None = None) -> Mapping:
    """The same from text; paths inside are beside ``folder``."""
    return resolve(yaml_files.parse(text, Mapping, "mapping", file, rules), folder or Path(), file)


def rules(mapping: Mapping) -> Iterator[tuple[Place, str]]:
    """What a mapping must obey beyond its types."""
    known = {*PARTS, "frame", "episode"}
    for name, rule in mapping.topics.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected some of {', '.join(sorted(known))}"
            yield ("topics", name), f"is no raw part; {hint}"
        if isinstance(rule, TopicRule) and rule.age_limit is not None and rule.age_limit <= 0:
            yield ("topics", name, "age_limit"), f"expected seconds above 0, got {rule.age_limit:g}"
    for key in ("rate", "transform_wait", "transform_tolerance"):
        if getattr(mapping, key) < 0:
            yield (key,), f"expected a number of at least 0, got {getattr(mapping, key):g}"
    if mapping.rate > 0 and mapping.primary:
        yield (
            ("rate",),
            f"frames come at a rate or with each message of primary ({mapping.primary}): name one of the two",
        )
    yield from _episode_rules(mapping.episodes)
    if isinstance(mapping.obstacles, ObstacleMap):
        yield from obstacle_rules(mapping.obstacles, ("obstacles",))
        if _contradict(mapping.frame, mapping.obstacles.frame):
            yield (
                ("frame",),
                f"{mapping.frame!r}, but the obstacles stand in the frame {mapping.obstacles.frame!r}; make them "
                "equal, or leave one out",
            )


def _episode_rules(episodes: EpisodeRule) -> Iterator[tuple[Place, str]]:
    for key in ("gap", "longest"):
        if getattr(episodes, key) <= 0:
            yield ("episodes", key), f"expected seconds above 0, got {getattr(episodes, key):g}"
    if episodes.by == "times" and not episodes.times:
        yield ("episodes",), "by times needs the key times: a list such as [{start: 0, end: 12.5, outcome: success}]"
    elif episodes.times and episodes.by != "times":
        yield ("episodes", "times"), f"counts with by: times alone, and by is {episodes.by}"
    if episodes.by == "edge" and not episodes.topic:
        yield ("episodes",), "by edge needs the key topic: a number or flag that is above 0.5 while an episode runs"
    elif episodes.topic and episodes.by not in ("edge", "message"):
        yield ("episodes", "topic"), f"counts with by: edge or by: message alone, and by is {episodes.by}"
    for number, span in enumerate(episodes.times):
        if span.end <= span.start:
            yield ("episodes", "times", number), f"ends at {span.end:g} s, not after its start at {span.start:g} s"


def _contradict(one: str, other: str) -> bool:
    return bool(one and other) and one.lstrip("/") != other.lstrip("/")


def resolve(mapping: Mapping, folder: Path, file: str) -> Mapping:
    """``mapping`` with robot and obstacle files in place of their names.

    Raises InputError for what they hold, and where mapping and obstacle file name different frames.
    """
    if isinstance(mapping.robot, str) and mapping.robot:
        beside = folder / mapping.robot
        name = str(beside) if beside.suffix in (".yaml", ".yml") and beside.is_file() else mapping.robot
        mapping = replace(mapping, robot=load_robot(name))
    if isinstance(mapping.obstacles, str) and mapping.obstacles:
        path = folder / mapping.obstacles
        obstacles = load_obstacles(path)
        if _contradict(mapping.frame, obstacles.frame):
            raise InputError(
                f"{file}: frame: {mapping.frame!r}, but {path} says frame: {obstacles.frame!r}; poses and obstacles "
                "are compared in one frame: make them equal, or leave one out"
            )
        mapping = replace(mapping, obstacles=obstacles)
    return mapping


def with_extensions(config: MonitorConfig, mapping: Mapping) -> MonitorConfig:
    """``config`` that also scores the extension families that the mapping names."""
    return replace(config, extensions=tuple(dict.fromkeys((*config.extensions, *mapping.extensions))))


# ---------------------------------------------------------------------------------------------------- against a bag


@dataclass(frozen=True, slots=True)
class Source:
    """A topic of the bag that gives a raw part."""

    part: Part
    topic: Topic
    spec: InputSpec  #: age limit, peak hold, frame, role as the robot file says
    rule: TopicRule
    sensor: ForceSensor | None = None  #: the topic is a force sensor


@dataclass(frozen=True)
class Plan:
    """How one bag is read: what :func:`plan` made of mapping, robot file and the bag's topics."""

    sources: tuple[Source, ...]
    frame: Topic | None  #: recorded RawFrames, which make all other inputs superfluous
    events: Topic | None
    transforms: tuple[Topic, ...]
    edge: Topic | None
    shapes: Topic | None  #: object shapes, where distances are to be worked out from the robot file's footprint
    robot: RobotModel | None
    mapping: Mapping
    unsure: tuple[str, ...] = ()  #: choices that a person should look at, one sentence each

    @property
    def topics(self) -> frozenset[str]:
        """Everything that has to be decoded."""
        names = {s.topic.name for s in self.sources} | {t.name for t in self.transforms}
        return frozenset(names | {t.name for t in (self.frame, self.events, self.edge, self.shapes) if t is not None})

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(p for p in PARTS if any(s.part == p for s in self.sources))


def plan(topics: Table[str, Topic], mapping: Mapping, where: str, *, all_topics: bool = True) -> Plan:
    """Fits ``mapping`` to the topics of a bag. Raises InputError on topics that are named and absent, or when
    nothing fits.

    ``where`` names mapping and bag in messages. ``all_topics`` False: further topics may turn up, absent ones are
    no error.
    """
    robot = mapping.robot if isinstance(mapping.robot, RobotModel) else None
    unsure: list[str] = []
    sources: list[Source] = []
    for part in PARTS:
        if part in mapping.topics:
            sources.append(_named(part, mapping.topics[part], topics, where, all_topics))
            continue
        if robot is not None:
            sources += _of_robot(part, robot, mapping.namespace, topics)
        if not any(s.part == part for s in sources):
            sources += _guessed(part, topics, unsure)
    if mapping.primary and all_topics and mapping.mode == "hold":
        _known_primary(mapping.primary, sources, where)
    frame = _special("frame", FRAME_TYPE, mapping, topics, where)
    events = _special("episode", EVENT_TYPE, mapping, topics, where)
    edge = None
    if mapping.episodes.by == "edge":
        edge = _present(mapping.episodes.topic, topics, f"{where}: episodes.topic", all_topics)
    if mapping.episodes.by == "message" and mapping.episodes.topic:
        events = _present(mapping.episodes.topic, topics, f"{where}: episodes.topic", all_topics)
    if mapping.mode in ("exact", "hold"):
        frame = None
    elif mapping.mode == "frame" and frame is None:
        raise InputError(f"{where}: mode is frame, but no topic has type {FRAME_TYPE}")
    if frame is None and not sources:
        raise InputError(f"{where}: {_nothing_fits(topics)}")
    tf = () if frame is not None else tuple(t for t in topics.values() if t.type in TF_TYPES)
    shapes = next((t for t in topics.values() if t.type == SHAPES_TYPE), None)
    shapes = shapes if robot is not None and robot.footprint and frame is None else None
    return Plan(tuple(sources), frame, events, tf, edge, shapes, robot, mapping, tuple(unsure))


def _known_primary(primary: str, sources: list[Source], where: str) -> None:
    names = {name for s in sources for name in (s.part, s.topic.name, s.topic.name.lstrip("/"))}
    if primary not in names:
        given = ", ".join(dict.fromkeys(f"{s.part} ({s.topic.name})" for s in sources)) or "nothing"
        raise InputError(f"{where}: primary: {primary!r} is none of what the bag gives: {given}")


def _nothing_fits(topics: Table[str, Topic]) -> str:
    some = ", ".join(f"{t.name} ({t.type})" for t in list(topics.values())[:4]) or "no topic at all"
    more = f" and {len(topics) - 4} more" if len(topics) > 4 else ""
    return f"no topic gives anything to score: it has {some}{more}; expected odometry, joint states or our own messages"


def _present(name: str, topics: Table[str, Topic], where: str, all_topics: bool) -> Topic:
    topic = topics.get(name) or topics.get("/" + name.lstrip("/"))
    if topic is not None:
        return topic
    if all_topics:
        names = ", ".join(sorted(topics)[:8]) or "none"
        more = f" and {len(topics) - 8} more" if len(topics) > 8 else ""
        raise InputError(f"{where}: topic {name!r} is not in the bag; it has {names}{more}")
    return Topic(name, "")


def _named(part: str, given: str | TopicRule, topics: Table[str, Topic], where: str, all_topics: bool) -> Source:
    rule = TopicRule(given) if isinstance(given, str) else given
    topic = _present(rule.topic, topics, f"{where}: topics.{part}", all_topics)
    if not rule.field and topic.type and topic.type not in CONVERSIONS[part]:
        if part == "gripper" and topic.type in NUMBER_TYPES:
            rule = replace(rule, field="data")
        else:
            usual = ", ".join(CONVERSIONS[part])
            raise InputError(f"{where}: topics.{part}: {topic.name} has type {topic.type}, expected one of {usual}")
    if rule.field and part != "gripper":
        raise InputError(f"{where}: topics.{part}: only the gripper is read from a field")
    return Source(part, topic, InputSpec(part, topic.name), rule)  # type: ignore[arg-type]


def _of_robot(part: str, robot: RobotModel, namespace: str, topics: Table[str, Topic]) -> list[Source]:
    found = []
    for spec in robot.inputs:
        full = "/".join(p for p in (namespace.strip("/"), spec.topic.lstrip("/")) if p)
        topic = topics.get(spec.topic) or topics.get(f"/{full}")
        if spec.part == part and topic is not None and topic.type in CONVERSIONS[part]:
            found.append(Source(spec.part, topic, spec, TopicRule(topic.name)))
    for sensor in robot.force_sensors if part == "contacts" else ():
        full = "/".join(p for p in (namespace.strip("/"), sensor.topic.lstrip("/")) if p)
        topic = topics.get(sensor.topic) or topics.get(f"/{full}")
        if topic is not None and topic.type == WRENCH:
            spec = InputSpec("contacts", topic.name, age_limit=sensor.age_limit)
            found.append(Source("contacts", topic, spec, TopicRule(topic.name), sensor))
    return found


#: Names that tell topics of the same type apart, the likeliest first.
_HINTS: dict[str, tuple[str, ...]] = {
    "base": ("odom", "odometry/filtered", "odometry"),
    "joints": ("joint_states",),
    "ee": ("ee_pose", "eef_pose", "end_effector", "tcp", "current_pose"),
    "gripper": ("gripper",),
    "contacts": ("contacts",),
    "objects": ("objects",),
}


def _guessed(part: str, topics: Table[str, Topic], unsure: list[str]) -> list[Source]:
    """The topic that most likely gives ``part``, by its type, and by its name where there are several."""
    kinds = CONVERSIONS[part]
    usual = next(iter(kinds))
    fitting = [t for t in topics.values() if t.type == usual and t.count != 0]
    if part == "ee":  # a stamped pose may be anything: only its name tells
        fitting = [t for t in topics.values() if t.type in kinds and any(h in t.name.lower() for h in _HINTS["ee"])]
    if not fitting:
        return []

    def rank(topic: Topic) -> tuple[int, int, str]:
        named = [i for i, h in enumerate(_HINTS[part]) if topic.name.lower().endswith("/" + h) or topic.name == h]
        return (min(named, default=99), topic.name.count("/"), topic.name)

    fitting.sort(key=rank)
    if len(fitting) > 1:
        others = ", ".join(t.name for t in fitting[1:4]) + (" ..." if len(fitting) > 4 else "")
        unsure.append(f"{part}: took {fitting[0].name}, there are {len(fitting) - 1} others of its type ({others})")
    best = fitting[0]
    return [Source(part, best, InputSpec(part, best.name), TopicRule(best.name))]  # type: ignore[arg-type]


def _special(name: str, kind: str, mapping: Mapping, topics: Table[str, Topic], where: str) -> Topic | None:
    given = mapping.topics.get(name)
    if given is not None:
        topic = _present(given if isinstance(given, str) else given.topic, topics, f"{where}: topics.{name}", True)
        if topic.type != kind:
            raise InputError(f"{where}: topics.{name}: {topic.name} has type {topic.type}, expected {kind}")
        return topic
    return next((t for t in sorted(topics.values(), key=lambda t: t.name) if t.type == kind and t.count != 0), None)
