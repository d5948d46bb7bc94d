"""The language: what is read, what is refused and how it is said, and what a formula is as a value."""

import json
import os
import pickle
import random
import string
import subprocess
import sys
import time

import pytest
from hypothesis import given
from stl_strategies import comparisons, examples, formulas, terms

from osma_monitor.core import stl


def value(text, **signals):
    """Robustness of a formula on one sample."""
    return stl.evaluate(text, [0], {k: [v] for k, v in signals.items()})[0]


@examples(3)
@given(formulas(comparisons(terms())))
def test_text_round_trips(text):
    formula = stl.parse(text)
    again = stl.parse(str(formula))
    assert again == formula and hash(again) == hash(formula) and str(again) == str(formula)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("x<3", "x < 3"),
        ("always[0:100ms](x<=1e-3)", "always[0,0.1](x <= 0.001)"),
        ("always[0,5 us](x > 1)", "always[0,0.000005](x > 1)"),
        ("always[1ns,2s](x > 1)", "always[0.000000001,2](x > 1)"),
        ("always x < 3", "always(x < 3)"),
        ("not x < 3 and y > 1", "not(x < 3) and y > 1"),
        ("a -> b or c and d", "a -> b or c and d"),
        ("(a -> b) -> c", "(a -> b) -> c"),
        ("a -> (b -> c)", "a -> (b -> c)"),
        ("x - (5 - 3) > 0", "x - (5 - 3) > 0"),
        ("x - 5 - 3 > 0", "x - 5 - 3 > 0"),
        ("-x * 2 > - 3", "-x * 2 > -3"),
        ("-(x + 1) < 0", "-(x + 1) < 0"),
        ("- -5 < x", "5 < x"),
        ("min(x, y, 3) > max(x, 1)", "min(x, y, 3) > max(x, 1)"),
        ("pow(x, 2) + sqrt(abs(y)) < exp(1)", "pow(x, 2) + sqrt(abs(y)) < exp(1)"),
        ("robot.arm.force_1 < 2E2", "robot.arm.force_1 < 200"),
        ("x < 3 until[0,2] y > 1", "x < 3 until[0,2] y > 1"),
        ("(x < 3) since (y > 1)", "x < 3 since y > 1"),
        ("a iff b xor c", "a iff b xor c"),
        ("G(x > 0) && !F[0,1](y > 0)", "always(x > 0) and not(eventually[0,1](y > 0))"),
        ("H(x > 0) | O(y > 0) & X(x > 1)", "historically(x > 0) or once(y > 0) and next(x > 1)"),
        ("F > 3 U G > 2", "F > 3 until G > 2"),
        ("x > 0 implies y > 0 <-> z > 0", "x > 0 -> y > 0 iff z > 0"),
        ("(prev(x)) < x", "(prev(x)) < x"),
        ("rise(x > 0) or fall(x > 0) or next x > 0", "rise(x > 0) or fall(x > 0) or next(x > 0)"),
        ("x < .5 # a comment\n and y > 1.", "x < 0.5 and y > 1"),
        ("x < -0", "x < 0"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(stl.parse(text)) == canonical
    assert stl.parse(canonical) == stl.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x / 2 * 3", 12),
        ("x/2", 4),
        ("x-5-3", 0),
        ("2 + x * 3 - 1", 25),
        ("-x + 1", -7),
        ("2 * -x", -16),
        ("abs(-x) - min(x, 3) + max(x, 1, 9)", 14),
        ("pow(x, 2)", 64),
        ("sqrt(x * 2)", 4),
        ("exp(x - 8)", 1),
        ("x < 10 and x > 7 or x > 100", 1),
        ("x > 100 or x < 10 and x > 7", 1),
        ("not x < 10", -2),
        ("x > 100 -> x > 200", 92),
        ("x < 10 xor x < 9", -1),
        ("x < 10 iff x < 9", 1),
        ("1e1 - x", 2),
    ],
)
def test_values_of_one_sample(text, expected):
    assert value(text, x=8.0) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "offending", "message", "hint"),
    [
        ("a>0 -> b>0 -> c>0", 1, 12, "->", "ambiguous", "(a -> b) -> c"),
        ("a -> b implies c", 1, 8, "implies", "ambiguous", "(a -> b) -> c"),
        ("0 < x < 5", 1, 7, "<", "chained", "a < b and b < c"),
        ("x =< 5", 1, 3, "=", "operator", 'write "<="'),
        ("x < 0.5 m/s", 1, 9, "m", "operator", "carry no unit"),
        ("x ** 2 > 1", 1, 4, "*", "expected", "pow(x, y)"),
        ("eventualy[0,5](x > 1)", 1, 10, "[", "operator", "eventually"),
        ("foo(x) < 1", 1, 1, "foo", "unknown function", "known functions"),
        ("sqr(x) < 1", 1, 1, "sqr", "unknown function", "did you mean sqrt"),
        ("eventualy(x > 1)", 1, 1, "eventualy", "unknown function", "eventually"),
        ("always[5,2](x > 1)", 1, 7, "[5,2]", "ends before it begins", "smaller bound first"),
        ("always[-1,2](x > 1)", 1, 8, "-1", "negative", "once, historically, since"),
        ("always[1,1500ms](x > 1)", 1, 8, "1", "only the second bound has a unit", "[1s,"),
        ("always[0,2h](x > 1)", 1, 11, "h", "unknown unit", "ns, us, ms and s"),
        ("always[0,1e-10](x > 1)", 1, 7, "[0,1e-10]", "finer than 1 ns", ""),
        ("always[0,1e99](x > 1)", 1, 7, "[0,1e99]", "out of range", ""),
        ("always[0,1e999999999](x > 1)", 1, 7, "[0,1e999999999]", "out of range", ""),
        ("always[0,inf](x > 1)", 1, 10, "inf", "is a number", "unbounded operator"),
        ("always[0 2](x > 1)", 1, 10, "2", "[first,last]", ""),
        ("next[0,1](x > 1)", 1, 5, "[", "takes no time window", "always"),
        ("x < 1e999", 1, 5, "1e999", "too large", ""),
        ("x = 3", 1, 3, "=", "operator is expected", "=="),
        ("x < 3 y > 1", 1, 7, "y", "operator is expected", "missing"),
        ("x < 3 untill y > 1", 1, 7, "untill", "operator is expected", "until"),
        ("x < 3 and", 1, 10, "", "ends where", ""),
        ("", 1, 1, "", "ends where", ""),
        ("(x < 3", 1, 1, "(", "never closed", ""),
        ("x < 3)", 1, 6, ")", "closes nothing", ""),
        ("min(x) < 3", 1, 1, "min", "takes 2 arguments", ""),
        ("abs(x, y) < 3", 1, 1, "abs", "takes 1 argument", ""),
        ("x < 3, y < 2", 1, 6, ",", "outside", ""),
        ("(x < 3) + 1 > 2", 1, 1, "(x < 3)", "needs numbers", "and"),
        ("prev(x) < x", 1, 9, "<", "two ways", "(prev(x)) <"),
        ("once[0,1](x) + 1 > 3", 1, 14, "+", "two ways", ""),
        ("x < 3\nand y >> 2", 2, 8, ">", "is expected", ""),
        ("x < 3 and é", 1, 11, "é", "unexpected character", "letters"),
        ("x < 3 ; y", 1, 7, ";", "unexpected character", ""),
        ("2x < 3", 1, 1, "2x", "neither a number nor a name", ""),
        ("x < true", 1, 5, "true", "no formula here", "1 > 0"),
        ("x < max", 1, 5, "max", "is a function", "max("),
        ("x ^ 2 < 3", 1, 3, "^", "operator is expected", "pow(x, y)"),
        ("x < 3 unless y > 1", 1, 7, "unless", "operator is expected", "until"),
        ("x < 3 W y > 1", 1, 7, "W", "operator is expected", "until"),
        ("rise(x) > 3", 1, 9, ">", "two ways", "rise((x) > …)"),
        ("y > 1 and fall (x) + 1 > 3", 1, 20, "+", "two ways", "fall((x) + …)"),
        ("G -1 < x", 1, 1, "G", "two ways", "G(-…) for always, (G) - …"),
        ("y and not F - 2 < x", 1, 11, "F", "two ways", "eventually"),
        ("FALSE or x < 3", 1, 1, "FALSE", "no formula here", "1 < 0"),
        ("[0,1] always(x < 3)", 1, 1, "[", "is expected", "directly after always"),
        ("always(x < 3)[0,1]", 1, 14, "[", "operator is expected", "directly after always"),
        ("x < 3]", 1, 6, "]", "operator is expected", 'add "["'),
        ("x < 3 : 4", 1, 7, ":", "operator is expected", "time windows only"),
        ("x < 3 4", 1, 7, "4", "operator is expected", "missing before it"),
        ("always[500,1s](x < 3)", 1, 8, "500", "only the second bound", "write [500s,…]: bare"),
    ],
)
def test_refusals_say_where_what_and_how(text, line, column, offending, message, hint):
    with pytest.raises(stl.FormulaError) as caught:
        stl.parse(text)
    error = caught.value
    assert (error.line, error.column, error.offending) == (line, column, offending)
    assert message in error.reason and hint in error.hint
    shown = str(error).splitlines()
    assert shown[0].startswith(f"line {line}, column {column}: ")
    assert shown[2][2:].index("^") == column - 1
    assert shown[2].count("^") == max(1, len(offending))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("(F) - 2 < x", "(F) - 2 < x"),
        ("x + F - 2 < 3 - G - 1", "x + F - 2 < 3 - G - 1"),
        ("min(F - 1, 2) * ((G) - 2) < -H - 1", "min((F) - 1, 2) * ((G) - 2) < -H - 1"),
        ("F < G and G > -F", "F < G and G > -F"),
        ("G (-1 < x)", "always(-1 < x)"),
        ("rise((x) > 3) and fall(x)", "rise(x > 3) and fall(x)"),
    ],
)
def test_signals_named_like_short_operators(text, canonical):
    formula = stl.parse(text)
    assert str(formula) == canonical and stl.parse(canonical) == formula


def test_what_is_no_text_is_refused():
    for thing in (None, 3, b"x < 3", ["x < 3"]):
        with pytest.raises(stl.FormulaError, match="a formula is a text"):
            stl.parse(thing)


def test_a_long_formula_shows_the_part_around_the_mark():
    text = "x < 1 and " * 500 + "y <> 2"
    with pytest.raises(stl.FormulaError) as caught:
        stl.parse(text)
    assert caught.value.column == 5004
    assert max(map(len, str(caught.value).splitlines())) < 200


def test_what_can_be_read_in_two_ways_is_quoted_on_one_short_line():
    for inner in ("x\n", "x" + "\n + x" * 500):
        with pytest.raises(stl.FormulaError, match="two ways") as caught:
            stl.parse(f"prev({inner}) < 3")
        assert caught.value.line == inner.count("\n") + 1 and "\n" not in caught.value.reason
        assert max(map(len, str(caught.value).splitlines())) < 200


def test_errors_cross_processes():
    with pytest.raises(stl.FormulaError) as caught:
        stl.parse("x < 3 y")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.hint == caught.value.hint and again.column == 7


def test_formulas_are_values():
    one, other = stl.parse("always(x<3)"), stl.parse("always (x < 3.0)")
    assert one == other and one is not other and len({one, other, stl.parse("always(x<4)")}) == 2
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.signals == {"x"} and stl.parse("1 < 2").signals == frozenset()
    assert repr(one) == "stl.parse('always(x < 3)')"
    with pytest.raises(AttributeError):
        one.nodes = ()
    assert stl.parse("always[0,1](x > 1)") == stl.parse("always[0s,1000ms](x > 1)")


def test_body_of_always():
    assert stl.body("always(always(x < 3))") == stl.parse("x < 3")
    assert stl.body("always[0,1](x < 3)") == stl.parse("always[0,1](x < 3)")
    trace = stl.margin_trace("always(x < 3)", [0, 1, 2], {"x": [1.0, 4.0, float("nan")]})
    assert trace.rho.tolist()[:2] == [2.0, -1.0] and trace.upper[2] == float("inf")


# --- size ---


def calls(work):
    """How many functions run, Python's and C's: the work done, whatever else the machine does."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_thousand_operators_and_deep_nesting_stay_clear_of_the_recursion_limit():
    script = """
import sys
from osma_monitor.core import stl
chain = " and ".join(f"(x{i % 7} + {i} < {i} * 2)" for i in range(1000))
texts = [
    chain,
    "always(" * 200 + "x0 > 0" + ")" * 200,
    "(" * 5000 + "x0 > 0" + ")" * 5000,
    "not " * 3000 + "x0 > 0",
    "x0" + " + x0" * 2000 + " > 0",
    "abs(" * 2000 + "x0" + ")" * 2000 + " > 0",
    " or ".join(f"once[0,{i}](x0 > {i})" for i in range(300)),
]
sample = {f"x{i}": float(i) for i in range(7)}
sys.setrecursionlimit(120)
for text in texts:
    formula = stl.parse(text)
    assert stl.parse(str(formula)) == formula and hash(formula) == hash(stl.parse(text))
    signals = {n: [sample[n]] for n in formula.signals}
    rho = stl.evaluate(formula, [0], signals)
    monitor = stl.OnlineMonitor(formula)
    assert monitor.update(0, {n: sample[n] for n in formula.signals}).rho == rho[0]
    monitor.update(1, {n: float("nan") for n in formula.signals})
    assert monitor.close() is not None
    del formula
print("done")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120
    )
    assert result.stdout == "done\n", result.stderr[-3000:]


@pytest.mark.parametrize("shape", ["x0 > 0{}", "({}x0 > 0{}", "not {}x0 > 0"])
def test_parsing_takes_linear_time(shape):
    def text(size):
        if shape.startswith("("):
            return "(" * size + "x0 > 0" + ")" * size
        if shape.startswith("not"):
            return "not " * size + "x0 > 0"
        return "x0 > 0" + " and x0 > 0" * size

    small = calls(lambda: stl.parse(text(300)))
    large = calls(lambda: stl.parse(text(3_000)))
    assert small > 300 and large < 11 * small  # ten times the text


# --- fuzzing ---

WORDS = """
    <= >= == != -> <-> && || not and or xor iff abs sqrt exp pow min max always eventually until since once historically
    next prev rise fall a.b ms ns s us 2.5 1e3 1e999 .5 5. 1e-400 [0,1] [2,1] [0:5ms] # é '' __import__ lambda {x} %s ∞
"""
PIECES = [*"()[],:+-*/<>=!&|GFUSHOXY01xy_", *WORDS.split(), "\\", " ", "\n", "\t", "\x00"]
SEEDS = [
    "always(x < 3 and y > 2)",
    "always(x > 0 -> eventually[0,2](y > 0))",
    "x < 3 until[0,5s] min(x, y) > pow(2, x) / 3 - 1",
    "not (rise(x > 0) xor fall(y > 1e-3)) iff once[1,2](x == y)",
]


def random_text(rng):
    kind = rng.random()
    if kind < 0.4:
        return "".join(rng.choice(PIECES) + rng.choice(("", " ")) for _ in range(rng.randrange(1, 25)))
    if kind < 0.5:
        return "".join(rng.choice(string.printable) for _ in range(rng.randrange(40)))
    text = list(rng.choice(SEEDS))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text) + 1)
        what = rng.random()
        if what < 0.4:
            text[at : at + rng.randrange(4)] = []
        elif what < 0.8:
            text[at:at] = rng.choice(PIECES)
        else:
            other = rng.randrange(len(text) + 1)
            text[at:at] = text[other : other + 12]
    return "".join(text)


def fuzz(count, seed):
    rng = random.Random(seed)
    accepted = 0
    slowest = 0.0
    for _ in range(count):
        text = random_text(rng)
        begin = time.perf_counter()
        try:
            formula = stl.parse(text)
        except stl.FormulaError as error:
            assert error.line >= 1 and error.column >= 1 and str(error)
            continue
        finally:
            slowest = max(slowest, time.perf_counter() - begin)
        accepted += 1
        assert isinstance(formula, stl.Formula) and stl.parse(str(formula)) == formula, text
    assert accepted > count // 50 and accepted < count
    assert slowest < 10.0  # seconds; bounded, with room for a busy machine


def test_random_texts_give_a_formula_or_a_formula_error():
    fuzz(5_000, seed=1)


@pytest.mark.long
def test_a_hundred_thousand_random_texts_give_a_formula_or_a_formula_error():
    fuzz(100_000, seed=2)


def test_accepted_random_texts_run_online_and_offline():
    rng = random.Random(3)
    ran = 0
    while ran < 150:
        try:
            formula = stl.parse(random_text(rng))
        except stl.FormulaError:
            continue
        signals = {name: [0.5, float("nan"), 2.0] for name in formula.signals}
        trace = stl.evaluate_bounds(formula, [0, 5, 9], signals, closed=False)
        library = stl.Library(formula)
        for i, stamp in enumerate((0, 5, 9)):
            update = library.update(stamp, {name: column[i] for name, column in signals.items()})
        at = -1 if formula.is_past else 0
        assert (update.lower[0], update.upper[0]) == (trace.lower[at], trace.upper[at]), str(formula)
        ran += 1


def test_names_never_reach_the_generated_source():
    library = stl.Library(
        "always(import_os.system < evil_name) and exec_ > 1", signals=["import_os.system", "evil_name", "exec_"]
    )
    source = library._program.source
    assert not any(name in source for name in ("import_os", "evil_name", "exec_"))
    assert json.dumps(library.snapshot())
