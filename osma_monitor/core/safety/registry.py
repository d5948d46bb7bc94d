"""Which clauses apply to which task: templates, tags, and one rule a family (SafeVLA-Bench 3.2 and C.5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from osma_monitor.core.errors import UserError
from osma_monitor.core.safety.document import Entry, check_version, read, suggestion
from osma_monitor.core.safety.library import Clause, Library
from osma_monitor.core.signals.raw import PARTS
from osma_monitor.core.signals.schema import SCHEMA

_CAPABILITIES = frozenset(PARTS).union(*(spec.needs for spec in SCHEMA.values()))


@dataclass(frozen=True, slots=True)
class Rule:
    """A family applies when every required tag is present and no invalidating tag is."""

    family: str
    requires: tuple[str, ...] = ()
    invalidated_by: tuple[str, ...] = ()

    def obstacle(self, tags: frozenset[str]) -> str:
        """Why the family does not apply under ``tags``; empty when it does."""
        for tag in self.requires:
            if tag not in tags:
                return f"needs the tag {tag}"
        for tag in self.invalidated_by:
            if tag in tags:
                return f"switched off by the tag {tag}"
        return ""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task is made of. Two templates for a task that combines two mechanisms."""

    suite: str
    id: str
    templates: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A benchmark suite: what its host can report, tags that hold for all its tasks, the extensions that it scores."""

    name: str
    title: str = ""
    capabilities: tuple[str, ...] = ()  #: `needs` words of the signal schema that the host serves
    tags: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()  #: of a task that the suite does not list
    extensions: tuple[str, ...] = ()  #: extension families that count in Safety, SBU and VSI
    report: tuple[str, ...] = ()  #: extension families that are evaluated and reported only
    tasks: Mapping[str, Task] = field(default_factory=dict)

    def task(self, task: str) -> Task:
        """The listed task of that id or name; any other is a task of the suite's default templates, when it has some.

        Raises:
            UserError: the suite lists its tasks and has no default.
        """
        if self.lists(task) or self.templates or not self.tasks:
            return self.find(task)
        raise UserError(
            f"suite {self.name} has no task {task!r}{suggestion(task, self.tasks)}; "
            "give the task's templates and tags, or add it to the suite's file"
        )

    def lists(self, task: str) -> bool:
        """Whether the suite has a task of that id or name."""
        return task in self.tasks or any(t.name == task for t in self.tasks.values())

    def find(self, task: str) -> Task:
        """As `task`; one that is not listed and has no default is a task without templates and tags."""
        listed = self.tasks.get(task) or next((t for t in self.tasks.values() if t.name == task), None)
        return listed or Task(self.name, task, self.templates)


@dataclass(frozen=True, slots=True)
class Registry:
    """Tags, mechanism templates, rules, and suites by name."""

    tags: Mapping[str, str]  #: tag -> what it says
    templates: Mapping[str, tuple[str, ...]]  #: template -> its tags
    rules: Mapping[str, Rule]  #: family -> rule
    suites: Mapping[str, Suite] = field(default_factory=dict)
    source: str = "registry"

    def resolve(self, templates: Iterable[str], tags: Iterable[str], suite: str = "", task: str = "") -> frozenset[str]:
        """All tags that hold: those of the templates, of the task and of the suite.

        A task that comes with neither templates nor tags is looked up in its suite. A suite that the registry does not
        know adds nothing, and so does a task that its suite does not list: the clauses that need no tag still apply.

        Raises:
            UserError: an unknown template or tag.
        """
        templates, resolved = tuple(templates), set(tags)
        known = self.suites.get(suite)
        if known is not None:
            if not templates and not resolved and task:
                entry = known.find(task)
                templates, resolved = entry.templates, set(entry.tags)
            resolved |= set(known.tags)
        for template in templates:
            if template not in self.templates:
                raise UserError(f"{self.source}: unknown template {template!r}{suggestion(template, self.templates)}")
            resolved |= set(self.templates[template])
        for tag in sorted(resolved):
            if tag not in self.tags:
                raise UserError(f"{self.source}: no rule knows the tag {tag!r}{suggestion(tag, self.tags)}")
        return frozenset(resolved)

    def check_typed(self, templates: Iterable[str], tags: Iterable[str], suite: str = "", task: str = "") -> str:
        """What a person typed of a task is known. Returns what is odd about it and may be meant so, else nothing.

        Events of a host may name any suite and task, as labels; a typing error must not pass for one: without
        templates and tags an unknown suite or a task that it does not list would switch clauses off in silence.

        Raises:
            UserError: an unknown template or tag, and, where neither is given, an unknown suite or task.
        """
        templates, tags = tuple(templates), tuple(tags)
        self.resolve(templates, tags)
        known = self.suites.get(suite)
        if suite and known is None:
            hint = suggestion(suite, self.suites)
            if templates or tags:
                return f"suite {suite!r} is not known and only a name here{hint}"
            raise UserError(
                f"{self.source}: there is no suite {suite!r}{hint}; one of your own needs templates or tags"
            )
        if known is not None and task and not known.lists(task) and known.tasks:
            if not templates and not tags:
                known.task(task)
            return f"suite {suite} does not list the task {task!r}{suggestion(task, known.tasks)}"
        return ""

    @property
    def hash(self) -> str:
        """SHA-256 of templates, rules and suites."""
        form = {
            "templates": {name: sorted(tags) for name, tags in self.templates.items()},
            "rules": {name: [sorted(rule.requires), sorted(rule.invalidated_by)] for name, rule in self.rules.items()},
            "suites": {
                name: [sorted(s.tags), sorted(s.templates), sorted(s.extensions), sorted(s.report)]
                + [
                    [t.id, t.name, sorted(t.templates), sorted(t.tags)]
                    for t in sorted(s.tasks.values(), key=lambda t: t.id)
                ]
                for name, s in self.suites.items()
            },
        }
        return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()


def active_clauses(
    library: Library,
    registry: Registry,
    templates: Iterable[str] = (),
    tags: Iterable[str] = (),
    unavailable_signals: Mapping[str, str] | Iterable[str] = (),
    *,
    suite: str = "",
    task: str = "",
    extensions: Iterable[str] = (),
) -> tuple[tuple[Clause, ...], dict[str, str]]:
    """The clauses that apply, in file order, and for every other clause the reason why it does not.

    Args:
        library: the clauses.
        registry: the rules.
        templates: mechanism templates of the task.
        tags: object and task tags.
        unavailable_signals: signals that the source cannot give, with the need that is missing
            (see `signals.deriver.unavailable`).
        suite: name of the suite; its tags and extensions hold when the registry knows it.
        task: task id, looked up in the suite when neither templates nor tags are given. One that is not listed has
            no template: a monitor that runs beside hardware judges what it can, and the reasons say so.
        extensions: extension families to score on top of the suite's.

    Raises:
        UserError: an unknown template, tag or extension, or a family without a rule.
    """
    templates, tags = tuple(templates), tuple(tags)
    resolved = registry.resolve(templates, tags, suite, task)
    known_suite = registry.suites.get(suite, Suite(suite))
    bare = task and not templates and not tags and not known_suite.find(task).templates
    nothing_known = f"; nothing says what {task!r} of suite {suite or '(none)'} is made of" if bare else ""
    scored = set(extensions) | set(known_suite.extensions)
    reported = set(known_suite.report) - scored
    offered = {clause.family for clause in library if clause.tier == "extension"}
    for family in sorted(scored | reported):
        if family not in offered:
            raise UserError(f"{library.source} has no extension {family!r}{suggestion(family, offered)}")
    missing = (
        dict(unavailable_signals)
        if isinstance(unavailable_signals, Mapping)
        else dict.fromkeys(unavailable_signals, "not given by the source")
    )
    active: list[Clause] = []
    inactive: dict[str, str] = {}
    for clause in library:
        rule = registry.rules.get(clause.family)
        if rule is None:
            place = library.source if clause.line is None else f"{library.source}:{clause.line}"
            raise UserError(
                f"{place}: family {clause.family} of clause {clause.id} has no rule in {registry.source}; "
                "add one there, or name a registry that has one"
            )
        reason = rule.obstacle(resolved)
        if reason and not set(rule.requires) <= resolved:
            reason += nothing_known
        if clause.tier == "alternate":
            reason = f"alternate tier of {library.main(clause.family).id}"
        elif clause.tier == "extension" and clause.family not in scored | reported:
            reason = "extension, not switched on by suite or configuration"
        if not reason:
            for signal in sorted(clause.signals):
                if signal in missing:
                    reason = f"signal {signal} is not available: {missing[signal]}"
                    break
        if reason:
            inactive[clause.id] = reason
        elif clause.family in reported:
            active.append(replace(clause, tier="report-only"))
        else:
            active.append(clause)
    return tuple(active), inactive


def load_registry(
    document: str | Mapping[str, Any],
    suites: Mapping[str, str | Mapping[str, Any]] | None = None,
    name: str = "registry.yaml",
) -> Registry:
    """The registry in a YAML text or mapping, with the suites of further documents (file name -> text or mapping).

    Raises:
        UserError: with file and line: an unknown key, a template or task with a tag that no rule knows, a tag that no
            rule uses, an unknown template, a rule that requires and forbids the same tag, a suite defined twice.
    """
    root = read(document, name)
    top = root.mapping(allowed=("version",), required=("tags", "templates", "rules"))
    check_version(top)
    tags = {tag: entry.text() for tag, entry in top["tags"].mapping().items()}
    rules = {family: _rule(family, entry, tags) for family, entry in top["rules"].mapping().items()}
    used = {tag for rule in rules.values() for tag in rule.requires + rule.invalidated_by}
    for tag, entry in top["tags"].mapping().items():
        if tag not in used:
            entry.fail("no rule uses this tag")
    templates = {
        template: _tags(entry.mapping(("description", "tags")).get("tags"), tags)
        for template, entry in top["templates"].mapping().items()
    }
    loaded: dict[str, Suite] = {}
    for file, text in (suites or {}).items():
        suite_root = read(text, file)
        suite = _suite(suite_root, tags, templates, rules)
        if suite.name in loaded:
            suite_root.mapping()["suite"].fail(f"suite {suite.name} is already defined in another file")
        loaded[suite.name] = suite
    return Registry(tags, templates, rules, loaded, name)


def _rule(family: str, entry: Entry, tags: Mapping[str, str]) -> Rule:
    keys = entry.mapping(("requires", "invalidated_by"))
    rule = Rule(family, _tags(keys.get("requires"), tags), _tags(keys.get("invalidated_by"), tags))
    both = set(rule.requires) & set(rule.invalidated_by)
    if both:
        entry.fail(f"requires and forbids the tag {', '.join(sorted(both))}; the family could never apply")
    return rule


def _tags(entry: Entry | None, known: Iterable[str]) -> tuple[str, ...]:
    return () if entry is None else _names(entry, known, "tag", "no rule knows the tag")


def _names(entry: Entry, known: Iterable[str], what: str, problem: str) -> tuple[str, ...]:
    names: list[str] = []
    for item in entry.items():
        value = item.text()
        if value not in known:
            item.fail(f"{problem} {value!r}{suggestion(value, known)}")
        if value in names:
            item.fail(f"the {what} {value!r} appears twice")
        names.append(value)
    return tuple(names)


def _suite(
    root: Entry, tags: Mapping[str, str], templates: Mapping[str, tuple[str, ...]], rules: Mapping[str, Rule]
) -> Suite:
    keys = root.mapping(
        ("version", "title", "capabilities", "tags", "templates", "extensions", "report", "tasks"), required=("suite",)
    )
    check_version(keys)
    name = keys["suite"].text()

    def template_names(entry: Entry | None) -> tuple[str, ...]:
        return () if entry is None else _names(entry, templates, "template", "unknown template")

    tasks: dict[str, Task] = {}
    for task, entry in keys["tasks"].mapping().items() if "tasks" in keys else ():
        fields = entry.mapping(("name", "tags"), required=("templates",))
        tasks[task] = Task(
            name,
            task,
            template_names(fields["templates"]),
            _tags(fields.get("tags"), tags),
            fields["name"].text() if "name" in fields else "",
        )
        if not tasks[task].templates:
            fields["templates"].fail("a task needs at least one template")
    if not tasks and "templates" not in keys:
        root.fail("a suite needs tasks, or templates for tasks that it does not list")
    families = {
        key: _names(keys[key], rules, "family", "no rule for the family") if key in keys else ()
        for key in ("extensions", "report")
    }
    return Suite(
        name=name,
        title=keys["title"].text() if "title" in keys else "",
        capabilities=_names(keys["capabilities"], _CAPABILITIES, "capability", "no signal needs the capability")
        if "capabilities" in keys
        else (),
        tags=_tags(keys.get("tags"), tags),
        templates=template_names(keys.get("templates")),
        extensions=families["extensions"],
        report=families["report"],
        tasks=tasks,
    )
