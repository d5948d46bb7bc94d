"""Hypothesis strategies: formula texts, traces, stamps."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

SIGNALS = ("x", "y", "g")
GATES = frozenset({"g"})
SECOND = 1_000_000_000

# few distinct values, so that ties, equalities and repeated minima happen; all are exact in binary
numbers = st.sampled_from([-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.25])
constants = st.sampled_from(["-1", "-0.5", "0", "0.5", "1", "2", "1.25e0"])
names = st.sampled_from(["x", "y"])


def examples(share):
    """Settings with so many times the examples of the current profile."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))


def terms(temporal=True, partial=True):
    """``partial=False`` leaves out what rtamt lacks, and what is undefined for some numbers."""

    def grow(inner):
        binary = st.builds("({} {} {})".format, inner, st.sampled_from("+-*/" if partial else "+-*"), inner)
        unary = st.builds(
            "{}({})".format, st.sampled_from(["abs", "-", "exp", "sqrt"] if partial else ["abs", "-", "exp"]), inner
        )
        pairs = st.builds("{}({}, {})".format, st.sampled_from(["min", "max", "pow"]), inner, inner)
        options = [binary, unary, pairs] if partial else [binary, unary]
        if temporal:
            options.append(
                st.builds("({}({}))".format, st.sampled_from(["prev", "next", "once", "always[0,2]"]), inner)
            )
        return st.one_of(options)

    return st.recursive(names | constants, grow, max_leaves=3)


def comparisons(term, operators=("<", "<=", ">", ">=", "==", "!=")):
    plain = st.builds("({} {} {})".format, term, st.sampled_from(operators), term)
    gate = st.sampled_from(["g", "(g > 0.5)", "(g <= 0.5)", *(["(g == 1)", "(g != x)"] if "==" in operators else [])])
    return st.one_of(plain, plain, plain, gate)


def windows(bounds=((0, 0), (0, 1), (0, 2), (1, 2), (2, 5), (1, 1), (0, 7))):
    return st.sampled_from(["", *[f"[{a},{b}]" for a, b in bounds]])


PAST = ("historically", "once")
AHEAD = ("always", "eventually")


def formulas(
    leaf, past=True, future=True, connectives=("and", "or", "->", "iff", "xor"), edges=True, max_leaves=6, window=None
):
    window = windows() if window is None else window

    def grow(inner):
        options = [
            st.builds("({} {} {})".format, inner, st.sampled_from(connectives), inner),
            st.builds("(not {})".format, inner),
        ]
        single = (PAST if past else ()) + (AHEAD if future else ())
        double = (("since",) if past else ()) + (("until",) if future else ())
        if single:
            options.append(st.builds("({}{}({}))".format, st.sampled_from(single), window, inner))
            options.append(st.builds("({} {}{} {})".format, inner, st.sampled_from(double), window, inner))
        steps = (("prev", "rise", "fall") if past else ()) + (("next",) if future else ())
        if edges and steps:
            options.append(st.builds("({}({}))".format, st.sampled_from(steps), inner))
        return st.one_of(options)

    return st.recursive(leaf, grow, max_leaves=max_leaves)


def bounded(leaf, **options):
    return formulas(leaf, window=st.sampled_from(["[0,1]", "[0,2]", "[1,2]", "[2,4]", "[1,1]"]), **options)


@st.composite
def traces(draw, unknown=True, regular=False, least=1, most=12):
    count = draw(st.integers(least, most))
    if regular:
        stamps = np.arange(count, dtype=np.int64) * SECOND
    else:
        gaps = draw(
            st.lists(
                st.sampled_from([1, SECOND // 2, SECOND, SECOND, SECOND, 2 * SECOND, 6 * SECOND]),
                min_size=count,
                max_size=count,
            )
        )
        stamps = np.cumsum(np.array(gaps, dtype=np.int64))
    values = numbers
    if unknown:
        values = st.one_of(
            numbers, numbers, numbers, numbers, numbers, st.sampled_from([math.nan, math.inf, -math.inf])
        )
    gate = st.sampled_from([0.0, 1.0, 1.0, math.nan] if unknown else [0.0, 1.0])
    columns = {
        name: np.array(
            draw(st.lists(gate if name == "g" else values, min_size=count, max_size=count)), dtype=np.float64
        )
        for name in SIGNALS
    }
    return stamps, columns


WIDE_WINDOWS = st.sampled_from(["[0,0]", "[0,1]", "[0,2]", "[1,2]", "[2,5]", "[1,1]", "[0,7]", "[0.5,3]"])
LEAVES = st.sampled_from(
    [
        "(x > 0)", "(y > 0)", "(x < 1)", "g", "(g > 0.5)", "(x == 1)", "(x - y > 0)", "(1 / x > 0)", "rise(x > 0)",
        "prev(y > 0)", "once[0,2](x > 0.5)", "historically[0,1](y < 1)", "historically(y < 3)", "((x > 0) since g)",
        "(x > 1 or g)",
    ]
)  # fmt: skip


@st.composite
def ahead_inside(draw, unbounded=True):
    """A formula with one operator that looks ahead, over parts that do not."""
    window = draw(st.sampled_from(["", ""]) | WIDE_WINDOWS | WIDE_WINDOWS) if unbounded else draw(WIDE_WINDOWS)
    shape = draw(st.sampled_from(["eventually{w}({a})", "always{w}({a})", "(({a}) until{w} ({b}))", "next({a})"]))
    text = shape.format(w=window, a=draw(LEAVES), b=draw(LEAVES))
    for _ in range(draw(st.integers(0, 3))):
        around = draw(
            st.sampled_from(
                ["(({a}) -> ({b}))", "(({b}) -> ({a}))", "(({a}) and ({b}))", "(({b}) or ({a}))", "(not ({b}))"]
            )
        )
        text = around.format(a=draw(LEAVES), b=text)
    return text


@st.composite
def one_inside_another(draw, unbounded=True):
    """Clauses with an operator that looks ahead right inside another temporal operator, perhaps beside others."""

    def beside():
        if not draw(st.integers(0, 3)):
            return draw(LEAVES | st.sampled_from(["once(x > 0)", "once[0,2](y > 1)", "eventually(y > 1)"]))
        return outer()

    def outer():
        op = draw(st.sampled_from(["always", "always", "eventually", "historically", "once"]))
        windows = st.sampled_from(["", "", "[0,12]", "[3,9]"]) | WIDE_WINDOWS
        window = draw(windows) if op in ("always", "eventually") else ""
        return f"({op}{window}({draw(ahead_inside(unbounded))}))"

    joined = draw(st.sampled_from(["{}", "{}", "{}", "(not {})", "({} and {})", "({} -> {})", "({} xor {})"]))
    parts = [outer(), *(beside() for _ in range(joined.count("{}") - 1))]
    return joined.format(*draw(st.permutations(parts)))
