"""A slow, obvious evaluator: the definitions of docs/stl.md written down sample by sample, with plain Python floats.

Every node gives at every index a triple (lower, upper, rho). Nothing is shared with the engine but the parser and
NumPy's exp and pow.
"""

from __future__ import annotations

import math

import numpy as np

INF, NAN = math.inf, math.nan
FULL = (-INF, INF, NAN)


def settle(lower, upper, rho):
    if lower == upper:
        return (lower, upper, lower)
    return (lower, upper, rho if math.isnan(rho) else min(max(rho, lower), upper))


def neg(a):
    return (-a[1], -a[0], -a[2])


def _nan_min(a, b):
    return NAN if math.isnan(a) or math.isnan(b) else min(a, b)


def low(a, b):
    return settle(min(a[0], b[0]), min(a[1], b[1]), _nan_min(a[2], b[2]))


def high(a, b):
    return neg(low(neg(a), neg(b)))


def over_time(items):
    """Minimum over samples: rho skips NaN; +inf for no sample."""
    if not items:
        return (INF, INF, INF)
    known = [i[2] for i in items if not math.isnan(i[2])]
    return settle(min(i[0] for i in items), min(i[1] for i in items), min(known) if known else NAN)


def chain(pairs):
    """Maximum over pairs (release, the holds before it) of min(release, min(holds)); -inf for no pair."""
    if not pairs:
        return (-INF, -INF, -INF)

    def best(k, hold_default, release_default):
        def pick(v, default):
            return default if math.isnan(v) else v

        return max(
            min([pick(release[k], release_default)] + [pick(h[k], hold_default) for h in holds])
            for release, holds in pairs
        )

    known = any(not math.isnan(release[2]) for release, _ in pairs)
    return settle(best(0, INF, -INF), best(1, INF, -INF), best(2, INF, -INF) if known else NAN)


def arithmetic(op, values):
    if any(math.isnan(v) for v in values):
        return NAN
    with np.errstate(all="ignore"):
        if op == "neg":
            return -values[0]
        if op == "abs":
            return abs(values[0])
        if op == "sqrt":
            return math.sqrt(values[0]) if values[0] >= 0 else NAN
        if op == "exp":
            return float(np.exp(values[0]))
        if op in ("min", "max"):
            return min(values) if op == "min" else max(values)
        a, b = values
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return a * b
        result = float(np.divide(a, b)) if op == "/" else float(np.power(a, b))
        return NAN if math.isinf(result) and math.isfinite(a) and math.isfinite(b) else result


def interval_arithmetic(op, args):
    if any(a[0] == -INF and a[1] == INF for a in args):
        return FULL
    rho = arithmetic(op, [a[2] for a in args])
    corners = [[]]
    for a in args:
        corners = [[*c, v] for c in corners for v in (a[0], a[1])]
    if op in ("+", "-"):  # the other corners lie between these, or are inf - inf
        a, b = args
        corners = [(a[0], b[0]), (a[1], b[1])] if op == "+" else [(a[0], b[1]), (a[1], b[0])]
    values = [arithmetic(op, c) for c in corners]
    if op == "abs" and args[0][0] <= 0 <= args[0][1]:
        values.append(0.0)
    if op == "/" and args[1][0] <= 0 <= args[1][1]:
        return FULL
    if op == "pow" and not all(a[0] == a[1] for a in args) and not args[0][0] > 0:
        return FULL
    if any(math.isnan(v) for v in values):
        return FULL
    return settle(min(values), max(values), rho)


def comparison(op, a, b, boolean):
    if op == "!=":
        return neg(comparison("==", a, b, boolean))
    if op == "==":
        apart = max(a[0] - b[1], b[0] - a[1])
        far = max(a[1] - b[0], b[1] - a[0])
        if math.isnan(apart) or math.isnan(far):
            lower, upper = -INF, INF
        elif a[0] == a[1] == b[0] == b[1]:
            lower = upper = INF
        elif apart > 0:
            lower, upper = (-INF, -INF) if boolean else (-far, -apart)
        else:
            lower, upper = -INF if boolean else -far, INF
        distance = abs(a[2] - b[2])
        if math.isnan(distance):
            rho = NAN
        else:
            rho = INF if distance == 0 else -INF if boolean else -distance
        return settle(lower, upper, rho)
    small, large = (a, b) if op in ("<", "<=") else (b, a)
    lower, upper, rho = large[0] - small[1], large[1] - small[0], large[2] - small[2]
    lower = -INF if math.isnan(lower) else lower
    upper = INF if math.isnan(upper) else upper
    if boolean:

        def truth(m):
            if math.isnan(m):
                return NAN
            return INF if (m > 0 if op in ("<", ">") else m >= 0) else -INF

        lower, upper, rho = truth(lower), truth(upper), truth(rho)
    return settle(lower, upper, rho)


class Slow:
    """Evaluates one formula on one trace; ``closed=False``: the trace is open, more may come."""

    def __init__(self, formula, stamps, signals, gates=frozenset(), closed=True):
        self.nodes, self.stamps, self.gates, self.closed = formula.nodes, list(stamps), frozenset(gates), closed
        self.signals = {
            k: [float(v) if v is not None and math.isfinite(v) else NAN for v in values]
            for k, values in signals.items()
        }
        self.count = len(self.stamps)
        self.memo = {}

    def trace(self):
        root = len(self.nodes) - 1
        return [self.formula(root, i, 1) for i in range(self.count)]

    def reads(self, index):
        node = self.nodes[index]
        own = {node.name} if node.op == "signal" else set()
        return own.union(*(self.reads(a) for a in node.args))

    # --- a node where a number is expected ---

    def term(self, index, i, sign):
        """(lower, upper, rho) of a term at sample i; ``sign``: polarity of the place it stands in."""
        node = self.nodes[index]
        if node.op == "number":
            return (node.value, node.value, node.value)
        if node.op == "signal":
            v = self.signals[node.name][i]
            return FULL if math.isnan(v) else (v, v, v)
        if node.op in ("always", "eventually", "historically", "once", "next", "prev"):
            return self.temporal(node, i, sign, self.term)
        signs = {"neg": [-1], "-": [1, -1], "abs": [0], "pow": [0, 0]}.get(node.op, [1] * len(node.args))
        if node.op in ("*", "/"):

            def scale(other):
                other = self.nodes[other]
                return 0 if other.op != "number" else (other.value > 0) - (other.value < 0)

            signs = [scale(node.args[1]), scale(node.args[0]) if node.op == "*" else 0]
        return interval_arithmetic(node.op, [self.term(a, i, sign * s) for a, s in zip(node.args, signs, strict=True)])

    # --- a node where a formula is expected ---

    def formula(self, index, i, sign):
        key = (index, i, sign)
        if key not in self.memo:
            self.memo[key] = self._formula(index, i, sign)
        return self.memo[key]

    def _formula(self, index, i, sign):
        node = self.nodes[index]
        op, args = node.op, node.args
        if op in ("<", "<=", ">", ">=", "==", "!="):
            boolean = bool(self.reads(index)) and self.reads(index) <= self.gates
            s = {"<": (-1, 1), "<=": (-1, 1), ">": (1, -1), ">=": (1, -1)}.get(op, (0, 0))
            return comparison(op, self.term(args[0], i, sign * s[0]), self.term(args[1], i, sign * s[1]), boolean)
        if op == "signal" and node.name in self.gates:
            return comparison(">", self.term(index, i, sign), (0.5, 0.5, 0.5), True)
        if op == "not":
            return neg(self.formula(args[0], i, -sign))
        if op == "and":
            return low(self.formula(args[0], i, sign), self.formula(args[1], i, sign))
        if op == "or":
            return high(self.formula(args[0], i, sign), self.formula(args[1], i, sign))
        if op == "implies":
            return high(neg(self.formula(args[0], i, -sign)), self.formula(args[1], i, sign))
        if op in ("iff", "xor"):
            a, b = self.formula(args[0], i, 0), self.formula(args[1], i, 0)
            both = low(high(neg(a), b), high(neg(b), a))
            return both if op == "iff" else neg(both)
        if op == "rise":
            now = self.formula(args[0], i, 0)
            return now if i == 0 else low(now, neg(self.formula(args[0], i - 1, 0)))
        if op == "fall":
            now = neg(self.formula(args[0], i, 0))
            return now if i == 0 else low(now, self.formula(args[0], i - 1, 0))
        if op in ("until", "since", "always", "eventually", "historically", "once", "next", "prev"):
            return self.temporal(node, i, sign, self.formula)
        return self.term(index, i, sign)

    def ahead(self, i, window):
        t = self.stamps
        return [j for j in range(i, self.count) if window is None or window[0] <= t[j] - t[i] <= window[1]]

    def back(self, i, window):
        t = self.stamps
        return [j for j in range(i + 1) if window is None or window[0] <= t[i] - t[j] <= window[1]]

    def cut(self, i, window):
        return self.stamps[-1] - self.stamps[i] < window[1]

    def temporal(self, node, i, sign, value):
        op, window = node.op, node.window
        child = node.args[0]
        if op == "prev":
            return (INF, INF, INF) if i == 0 else value(child, i - 1, sign)
        if op == "next":
            if i + 1 < self.count:
                return value(child, i + 1, sign)
            return (INF, INF, INF) if self.closed else FULL
        if op == "historically":
            return over_time([value(child, j, sign) for j in self.back(i, window)])
        if op == "once":
            return neg(over_time([neg(value(child, j, sign)) for j in self.back(i, window)]))
        if op == "always":
            lower, upper, rho = over_time([value(child, j, sign) for j in self.ahead(i, window)])
            pending = self.cut(i, window) if window else (not self.closed and sign != 1)
            return settle(-INF, upper, NAN) if pending else (lower, upper, rho)
        if op == "eventually":
            lower, upper, rho = neg(over_time([neg(value(child, j, sign)) for j in self.ahead(i, window)]))
            pending = self.cut(i, window) if window else (not self.closed and sign != -1)
            return settle(lower, INF, NAN) if pending else (lower, upper, rho)
        hold, release = node.args
        if op == "since":
            js = self.back(i, window)
            pairs = [(value(release, j, sign), [value(hold, k, sign) for k in range(j + 1, i + 1)]) for j in js]
            return chain(pairs)
        js = self.ahead(i, window)
        pairs = [(value(release, j, sign), [value(hold, k, sign) for k in range(i, j)]) for j in js]
        lower, upper, rho = chain(pairs)
        pending = self.cut(i, window) if window else (not self.closed and sign != -1)
        if not pending:
            return (lower, upper, rho)
        held = min(value(hold, k, sign)[1] for k in range(i, self.count))
        if window is None and held >= 0:
            held = INF
        return settle(lower, max(upper, held), NAN)
