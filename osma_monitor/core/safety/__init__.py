"""Safety as data: the clause library, the rules of applicability, how deep a violation is (SafeVLA-Bench 3, C)."""

from osma_monitor.core.safety.library import GATE_SEMANTICS, TIERS, Clause, GateSemantics, Library, load_library
from osma_monitor.core.safety.registry import Registry, Rule, Suite, Task, active_clauses, load_registry
from osma_monitor.core.safety.severity import violation_depth, violation_depths

__all__ = [
    "GATE_SEMANTICS",
    "TIERS",
    "Clause",
    "GateSemantics",
    "Library",
    "Registry",
    "Rule",
    "Suite",
    "Task",
    "active_clauses",
    "load_library",
    "load_registry",
    "violation_depth",
    "violation_depths",
]
