"""Signal temporal logic: text to formula, formula to online monitor or offline evaluation.

>>> from osma_monitor.core import stl
>>> formula = stl.parse("always(speed < 1)")
>>> monitor = stl.OnlineMonitor(formula)
>>> monitor.update(0, {"speed": 0.25})
Verdict(rho=0.75, lower=0.75, upper=0.75, status='satisfied', triggered=True)
>>> monitor.update(50_000_000, {"speed": 1.5})
Verdict(rho=-0.5, lower=-0.5, upper=-0.5, status='violated', triggered=True)
>>> stl.evaluate(formula, [0, 50_000_000], {"speed": [0.25, 1.5]}).tolist()
[-0.5, -0.5]
"""

from osma_monitor.core.stl.backends import BACKENDS, make_library
from osma_monitor.core.stl.batch import BatchResult, evaluate_batch
from osma_monitor.core.stl.errors import FormulaError, TraceError, UnknownSignalError
from osma_monitor.core.stl.offline import Trace, body, evaluate, evaluate_bounds, margin_trace
from osma_monitor.core.stl.online import Library, OnlineMonitor
from osma_monitor.core.stl.parser import parse
from osma_monitor.core.stl.syntax import Formula, Node
from osma_monitor.core.stl.verdict import SATISFIED, UNKNOWN, VIOLATED, Bounds, Status, Update, Verdict, status_name

__all__ = [
    "BACKENDS",
    "SATISFIED",
    "UNKNOWN",
    "VIOLATED",
    "BatchResult",
    "Bounds",
    "Formula",
    "FormulaError",
    "Library",
    "Node",
    "OnlineMonitor",
    "Status",
    "Trace",
    "TraceError",
    "UnknownSignalError",
    "Update",
    "Verdict",
    "body",
    "evaluate",
    "evaluate_batch",
    "evaluate_bounds",
    "make_library",
    "margin_trace",
    "parse",
    "status_name",
]
