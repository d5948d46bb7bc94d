"""The clause library: what each clause demands, where its numbers come from, and how deep a violation is."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from osma_monitor.core import stl
from osma_monitor.core.errors import UserError
from osma_monitor.core.safety.document import Entry, check_version, read, suggestion
from osma_monitor.core.safety.severity import violation_depth
from osma_monitor.core.signals.parameters import KeepOutBox, RegionLimit, Separation, SignalParameters
from osma_monitor.core.signals.schema import GATE_SIGNALS, SCHEMA

GateSemantics = Literal["boolean", "quantitative"]
GATE_SEMANTICS: tuple[GateSemantics, ...] = ("boolean", "quantitative")

Tier = Literal["main", "alternate", "report-only", "extension"]
TIERS: dict[str, str] = {
    "main": "counts in Safety, SBU and VSI wherever it applies",
    "alternate": "another threshold of a main clause, for threshold sensitivity alone",
    "report-only": "evaluated and reported, never in Safety, SBU or VSI",
    "extension": "off until a suite or configuration names its family; then it counts",
}
AXES = ("scene_interaction", "object_handling", "execution", "human_proximity", "workspace", "perception", "diagnostic")

_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_PLACEHOLDER = "{threshold}"


@dataclass(frozen=True, slots=True)
class Clause:
    """One threshold instantiation of a constraint family.

    ``template`` and ``template_quantitative`` hold ``{threshold}`` where the threshold goes; `formula` and
    `formula_quantitative` are the texts that are evaluated.
    """

    id: str
    family: str
    axis: str
    tier: Tier
    template: str
    threshold: float
    severe: float  #: severity anchor in ``unit``; NaN for a binary clause
    unit: str
    requirement: str  #: standard or paper table that the threshold comes from
    signal: str  #: the quantity that the threshold bounds
    binary: bool = False
    template_quantitative: str = ""
    description: str = ""
    signals: frozenset[str] = frozenset()  #: all that either formula reads
    line: int | None = None

    @property
    def scored(self) -> bool:
        """Counts in Safety, SBU and VSI once it is active."""
        return self.tier in ("main", "extension")

    @property
    def formula(self) -> str:
        return self.template.replace(_PLACEHOLDER, repr(self.threshold))

    @property
    def formula_quantitative(self) -> str:
        return (self.template_quantitative or self.template).replace(_PLACEHOLDER, repr(self.threshold))

    @property
    def margin_unit(self) -> float:
        """What makes robustness comparable over clauses: |threshold|; for 0, |severe − threshold| or 1 if binary."""
        return abs(self.threshold) or (1.0 if self.binary else abs(self.severe - self.threshold))

    def text(self, gate_semantics: GateSemantics = "boolean") -> str:
        """The formula text under these gate semantics."""
        return self.formula if gate_semantics == "boolean" else self.formula_quantitative

    def depth(self, rho: float) -> float:
        """`violation_depth` of a robustness (or its upper bound) under this clause."""
        return violation_depth(rho, self.threshold, self.severe, self.binary)

    def with_threshold(self, threshold: float, severe: float | None = None) -> Clause:
        """The same clause at another threshold; without an anchor, severe = 2 x threshold.

        Raises:
            UserError: the clause is binary or its formula has no place for the threshold.
        """
        if self.binary or _PLACEHOLDER not in self.template:
            raise UserError(f"clause {self.id} has no threshold that can be varied")
        anchor = 2.0 * threshold if severe is None else severe
        if not (math.isfinite(threshold) and math.isfinite(anchor)) or anchor == threshold:
            raise UserError(f"clause {self.id}: threshold {threshold} with severity anchor {anchor} gives no depth")
        return replace(self, threshold=float(threshold), severe=float(anchor))


@dataclass(frozen=True)
class Library:
    """All clauses in file order, and the parameters of the signals that they read."""

    clauses: tuple[Clause, ...]
    parameters: SignalParameters = field(default_factory=SignalParameters)
    source: str = "library"

    def __iter__(self) -> Iterator[Clause]:
        return iter(self.clauses)

    def __len__(self) -> int:
        return len(self.clauses)

    def __contains__(self, clause: object) -> bool:
        return clause in self._by_id

    def __getitem__(self, clause: str) -> Clause:
        """The clause of that id; `UserError` with the nearest id when there is none."""
        try:
            return self._by_id[clause]
        except KeyError:
            raise UserError(f"{self.source} has no clause {clause!r}{suggestion(clause, self._by_id)}") from None

    @cached_property
    def _by_id(self) -> dict[str, Clause]:
        return {clause.id: clause for clause in self.clauses}

    @cached_property
    def families(self) -> tuple[str, ...]:
        """Families in file order."""
        return tuple(dict.fromkeys(clause.family for clause in self.clauses))

    def main(self, family: str) -> Clause:
        """The clause of a family that scores: its main or extension tier."""
        for clause in self.clauses:
            if clause.family == family and clause.scored:
                return clause
        raise UserError(f"{self.source} has no scored clause of family {family!r}{suggestion(family, self.families)}")

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that decides a number: clauses without their lines and prose, and the signal parameters."""
        clauses = []
        for clause in self.clauses:
            row = asdict(clause)
            for key in ("line", "description", "signals"):
                del row[key]
            clauses.append({k: (None if isinstance(v, float) and math.isnan(v) else v) for k, v in row.items()})
        form = {"clauses": sorted(clauses, key=lambda row: str(row["id"])), "parameters": asdict(self.parameters)}
        return hashlib.sha256(json.dumps(form, sort_keys=True, allow_nan=False).encode()).hexdigest()


def load_library(document: str | Mapping[str, Any], name: str = "library.yaml") -> Library:
    """The library in a YAML text or a mapping of the same shape (see config/safety/library.yaml).

    Raises:
        UserError: with file and line, for anything unknown, missing, repeated, or that does not fit together: a formula
            that does not parse, a signal that does not exist, a unit that is not the signal's, a threshold that the
            formula never uses, a second scored clause of a family.
    """
    root = read(document, name)
    top = root.mapping(allowed=("version", "parameters"), required=("clauses",))
    check_version(top)
    parameters = _parameters(top["parameters"]) if "parameters" in top else SignalParameters()
    clauses = tuple(_clause(key, entry) for key, entry in top["clauses"].mapping().items())
    if not clauses:
        top["clauses"].fail("no clause")
    _check_families(clauses, top["clauses"].mapping())
    return Library(clauses, parameters, name)


_CLAUSE_KEYS = ("formula_quantitative", "severe", "binary", "description")
_CLAUSE_REQUIRED = ("family", "axis", "tier", "signal", "formula", "threshold", "unit", "requirement")


def _clause(clause_id: str, entry: Entry) -> Clause:
    if not _ID.fullmatch(clause_id):
        entry.fail("a clause id is letters, digits, underscores and dots, and begins with a letter")
    keys = entry.mapping(_CLAUSE_KEYS, _CLAUSE_REQUIRED)
    binary = keys["binary"].flag() if "binary" in keys else False
    threshold = keys["threshold"].number()
    signal = keys["signal"].choice(SCHEMA)
    unit = keys["unit"].text()
    if unit != SCHEMA[signal].unit:
        keys["unit"].fail(f"{signal} is in {SCHEMA[signal].unit}, not {unit}")
    template = keys["formula"].text()
    quantitative = keys["formula_quantitative"].text() if "formula_quantitative" in keys else ""
    severe = math.nan
    if binary:
        if "severe" in keys:
            keys["severe"].fail("a binary clause has no severity anchor; its depth is 1 on violation")
    elif "severe" not in keys:
        entry.fail("missing severe, the magnitude at which the depth saturates (or binary: true)")
    else:
        severe = keys["severe"].number()
        if severe == threshold:
            keys["severe"].fail(f"equals the threshold {threshold}; the depth would be a division by zero")
    tier = keys["tier"].choice(TIERS)
    clause = Clause(
        id=clause_id,
        family=keys["family"].text(),
        axis=keys["axis"].choice(AXES),
        tier=tier,  # type: ignore[arg-type]
        template=template,
        threshold=threshold,
        severe=severe,
        unit=unit,
        requirement=keys["requirement"].text(),
        signal=signal,
        binary=binary,
        template_quantitative=quantitative,
        description=keys["description"].text() if "description" in keys else "",
        line=entry.line,
    )
    read_signals = _check_formula(clause, keys["formula"], clause.formula)
    if quantitative:
        read_signals |= _check_formula(clause, keys["formula_quantitative"], clause.formula_quantitative)
    elif read_signals & GATE_SIGNALS:
        entry.fail(
            f"the formula has the gate {', '.join(sorted(read_signals & GATE_SIGNALS))}: missing formula_quantitative, "
            "the text with the gate as a comparison"
        )
    return replace(clause, signals=read_signals)


def _check_formula(clause: Clause, entry: Entry, text: str) -> frozenset[str]:
    try:
        signals: frozenset[str] = stl.parse(text).signals
    except stl.FormulaError as error:
        entry.fail(str(error))
    for signal in sorted(signals):
        if signal not in SCHEMA:
            entry.fail(f"unknown signal {signal}{suggestion(signal, SCHEMA)}")
    if clause.signal not in signals:
        entry.fail(f"the formula never reads {clause.signal}, which the clause names as its signal")
    if _PLACEHOLDER not in entry.text():
        numbers = {float(number) for number in _NUMBER.findall(text)}
        if abs(clause.threshold) not in numbers:
            entry.fail(f"the formula never uses the threshold {clause.threshold}; write {_PLACEHOLDER} where it goes")
    return signals


def _check_families(clauses: tuple[Clause, ...], entries: dict[str, Entry]) -> None:
    scored: dict[str, str] = {}
    for clause in clauses:
        if clause.scored and clause.family in scored:
            entries[clause.id].fail(
                f"family {clause.family} is already scored by {scored[clause.family]}; "
                "a further threshold of it is tier alternate"
            )
        if clause.scored:
            scored[clause.family] = clause.id
    for clause in clauses:
        if clause.tier == "alternate" and clause.family not in scored:
            entries[clause.id].fail(f"tier alternate, but no clause of family {clause.family} is scored")


def _parameters(entry: Entry) -> SignalParameters:
    keys = entry.mapping(SignalParameters.__dataclass_fields__)
    given: dict[str, Any] = {}
    if "separation" in keys:
        names = list(Separation.__dataclass_fields__)
        values = keys["separation"].mapping(names)
        given["separation"] = Separation(
            **{
                key: value.positive() if key == "deceleration" else value.not_negative()
                for key, value in values.items()
            }
        )
    if "region_limits" in keys:
        given["region_limits"] = {
            region: RegionLimit(**{k: v.positive() for k, v in limit.mapping(required=("force", "pressure")).items()})
            for region, limit in keys["region_limits"].mapping().items()
        }
    if "region_of_body" in keys:
        known = given.get("region_limits", {})
        given["region_of_body"] = {
            body: region.choice(known) for body, region in keys["region_of_body"].mapping().items()
        }
    if "contact_area" in keys:
        given["contact_area"] = {body: area.positive() for body, area in keys["contact_area"].mapping().items()}
    if "keep_out" in keys:
        given["keep_out"] = tuple(_box(name, box) for name, box in keys["keep_out"].mapping().items())
    if "not_arm_joints" in keys:
        given["not_arm_joints"] = keys["not_arm_joints"].texts()
    for name in ("base_radius", "obstacle_contact_force"):
        if name in keys:
            given[name] = keys[name].not_negative()
    return SignalParameters(**given)


def _box(name: str, entry: Entry) -> KeepOutBox:
    keys = entry.mapping(required=("applies_to", "lower", "upper"))
    lower, upper = keys["lower"].vector(3), keys["upper"].vector(3)
    if not all(low < high for low, high in zip(lower, upper, strict=True)):
        keys["upper"].fail(f"every upper corner must be above the lower one {list(lower)}, found {list(upper)}")
    part = keys["applies_to"].choice(("ee", "base"))
    return KeepOutBox(name, part, lower, upper)  # type: ignore[arg-type]
