"""Against sentil, where it is installed (pip install sentil==0.3.1).

Left out are windows ahead (near the end of a trace sentil's values differ from the definition; here what is cut off is
unknown) and ``since`` (sentil's left side must hold at the release, too).
"""

import numpy as np
import pytest
from hypothesis import assume, given
from stl_strategies import comparisons, examples, formulas, terms, traces

from osma_monitor.core import stl

sentil = pytest.importorskip("sentil")


@examples(1)
@given(
    formulas(
        comparisons(terms(temporal=False, partial=False), ("<", ">")).filter(lambda leaf: leaf != "g"),
        connectives=("and", "or", "->"),
        edges=False,
    ),
    traces(unknown=False, regular=True, least=9, most=14),
)
def test_values_equal_sentils(text, trace):
    formula = stl.parse(text)
    assume(formula.signals and "since" not in text)
    assume(not any(n.window and n.op in ("always", "eventually", "until") for n in formula.nodes))
    stamps, columns = trace
    found = stl.evaluate_bounds(formula, stamps, columns)
    read = {name: columns[name] for name in formula.signals}
    expected = np.asarray(sentil.Formula.parse(str(formula)).robustness_signal(sentil.Trace(stamps / 1e9, read)))
    decided = found.lower == found.upper
    np.testing.assert_allclose(found.rho[decided], expected[decided], rtol=1e-12, atol=1e-12)
