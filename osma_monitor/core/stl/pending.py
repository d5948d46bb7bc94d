"""One operator that looks ahead inside another temporal operator: the minimum over samples, kept up to date.

The formula ("body") holds one operator that looks ahead over parts that do not, as in ``a -> eventually[0,5] b``.
At each sample it is a clamp of that operator's future (:mod:`osma_monitor.core.stl.clamps`), so the minimum over all
samples whose windows are open takes constant time a sample, for any window. A sample whose window closes is folded
into a running value and let go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from osma_monitor.core.stl.clamps import IDENTITY, Clamp, ClampQueue, compose
from osma_monitor.core.stl.connectives import Values
from osma_monitor.core.stl.graph import Graph
from osma_monitor.core.stl.runtime import INF, NAN, SlidingMinimum, settle

Row = Sequence[Values]
_SKIPS_UNKNOWN: Final = frozenset({"historically", "once", "since"})


@dataclass(frozen=True, slots=True)
class Reading:
    """One input, perhaps negated."""

    position: int
    turned: bool

    def of(self, row: Row) -> Values:
        lower, upper, rho = row[self.position]
        return (-upper, -lower, -rho) if self.turned else (lower, upper, rho)


@dataclass(frozen=True, slots=True)
class Plan:
    """A body with its negations pushed to the inputs.

    Attributes:
        kind: of the operator that looks ahead: 'eventually', 'always', 'until', 'not until', 'next', 'not next';
            'input': there is none.
        operands: what it reads; for until the held side, then the released one.
        near, far: its window in nanoseconds; far None: unbounded.
        path: from the operator up to the body: (minimum rather than maximum, with which input).
        counting: an unbounded operator that says what it has seen so far.
        wide: what is unknown can be carried along; otherwise only samples that are known. An unbounded operator's rho
            at the end of the trace is not carried along.
    """

    kind: str
    operands: tuple[Reading, ...]
    near: int
    far: int | None
    path: tuple[tuple[bool, Reading], ...]
    counting: bool
    wide: bool

    @property
    def rests_high(self) -> bool:
        """What the operator is when no more samples come: the highest (always) or the lowest value that is left."""
        return self.kind in ("always", "not until")


def plan_body(graph: Graph, inputs: Sequence[int], body: int, turned: bool) -> Plan | None:
    """The plan of a node or of its negation; None when it has another shape."""
    nodes, place = graph.nodes, {node: i for i, node in enumerate(inputs)}
    path: list[tuple[bool, Reading]] = []
    index = body
    while nodes[index].future:
        node = nodes[index]
        if node.op == "not":
            index, turned = node.args[0], not turned
        elif node.op in ("and", "or", "implies"):
            signs = (turned ^ (node.op == "implies"), turned)
            ahead = [i for i, a in enumerate(node.args) if nodes[a].future]
            if len(ahead) != 1:
                return None
            side = ahead[0]
            other = Reading(place[node.args[1 - side]], signs[1 - side])
            path.append(((node.op == "and") != turned, other))
            index, turned = node.args[side], signs[side]
        else:
            break
    path.reverse()
    node = nodes[index]
    if not node.future:
        return Plan("input", (Reading(place[index], turned),), 0, 0, (), False, True)
    if node.op not in ("always", "eventually", "until", "next") or any(nodes[a].future for a in node.args):
        return None
    if node.op == "next":
        following = Reading(place[node.args[0]], turned)
        return Plan("not next" if turned else "next", (following,), 0, 0, tuple(path), False, True)
    counting = node.window is None and node.polarity == (1 if node.op == "always" else -1)
    plain = all(_plain(graph, inputs[reading.position]) for _, reading in path)
    if node.op == "until":
        # while it is pending its upper bound goes by the sign of what is held: known samples alone
        plain = plain and (node.window is not None or counting)
        kind, operands = "not until" if turned else "until", tuple(Reading(place[a], False) for a in node.args)
    else:
        kind = node.op if not turned else "always" if node.op == "eventually" else "eventually"
        operands = (Reading(place[node.args[0]], turned),)
        # one step up from an operator that is no point, rho is unknown unless the body is a point
        plain = plain or (len(path) == 1 and (node.window is not None or path[0][0] == (kind == "always")))
    near, far = node.window or (0, None)
    return Plan(kind, operands, near, far, tuple(path), counting, plain and not counting)


def _plain(graph: Graph, root: int) -> bool:
    """Is the node's rho known only where its interval is a point? Not where operators skip the unknown."""
    stack, seen = [root], {root}
    while stack:
        node = graph.nodes[stack.pop()]
        if node.op in _SKIPS_UNKNOWN:
            return False
        stack += [a for a in node.args if a not in seen]
        seen.update(node.args)
    return True


class Aggregate:
    """The minimum of a body over the admitted samples so far.

    Two ways of working: while all is known, one clamp a sample; from the first unknown input on (``widen``) the
    bounds and rho each have their own.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.wide = False
        self.running: Values = (INF, INF, NAN)  # over samples whose windows have closed
        self.decided = False  # the body has been a point at some sample
        # always and until can sink to a low that known values give; eventually only rises
        self._sinks = plan.kind in ("until", "not until") or (plan.kind == "always" and bool(plan.path))
        self._clear()

    def widen(self) -> None:
        """From here on inputs may be unknown. The open samples must be taken again."""
        self.wide = True
        self._clear()

    def _clear(self) -> None:
        # known: body, and its mirror image; unknown: the body's bounds, and bounds and rho of the operator itself
        count, leaving = 5 if self.wide else 2, self.plan.far is not None
        self._open = [ClampQueue(leaving) for _ in range(count)]
        self._early = [ClampQueue(leaving) for _ in range(count)]  # samples whose windows have yet to begin
        self._stamps: deque[int] = deque()
        self._early_stamps: deque[int] = deque()
        self._others: deque[list[Values]] = deque()  # what the path reads, of all these samples
        self._known_before: deque[int] = deque()
        self._known = 0
        self._any = False
        self._newest: Values = (-INF, INF, NAN)
        self._newest_clamp = IDENTITY
        self._awaited: tuple[int, bool, list[Values]] | None = None  # next: stamp, admitted, what the path reads
        self._reach: SlidingMinimum | None = None
        self._least_reach = NAN  # the same without a window
        if self.wide and self.plan.far is not None:
            self._reach = SlidingMinimum(self.plan.near, self.plan.far)

    @property
    def oldest(self) -> int | None:
        """The oldest sample whose window is open; None: there is none."""
        if self._awaited is not None:
            return self._awaited[0]
        if self._stamps:
            return self._stamps[0]
        return self._early_stamps[0] if self._early_stamps else None

    # --- samples ---

    def take(self, stamp: int, row: Row, admitted: bool) -> None:
        """One more sample; ``admitted``: the minimum counts it."""
        plan = self.plan
        if plan.kind == "input":
            self._newest = plan.operands[0].of(row)
            if admitted:
                self._merge(*self._newest)
            return
        if plan.kind in ("next", "not next"):
            self._take_next(stamp, row, admitted)
            return
        if plan.far is not None:
            before = stamp - plan.far
            while self._early_stamps and self._early_stamps[0] < before:
                self._begin()
            while self._stamps and self._stamps[0] < before:
                self._finish()
            while self._early_stamps and self._early_stamps[0] <= stamp - plan.near:
                self._begin()
        if self.wide:
            self._take_wide(stamp, row, admitted)
        else:
            self._take_known(stamp, row, admitted)
        if plan.far is not None:
            while self._stamps and self._stamps[0] <= before:  # windows that end now
                self._finish()

    def _take_next(self, stamp: int, row: Row, admitted: bool) -> None:
        if self._awaited is not None and self._awaited[1]:
            self._merge(*self._body(self.plan.operands[0].of(row), self._awaited[2]))
        self._awaited = (stamp, admitted, [reading.of(row) for _, reading in self.plan.path])

    def _next_now(self, closed: bool) -> Values:
        """The body at the newest sample: what comes next is not known, and true where nothing comes."""
        assert self._awaited is not None
        beyond = (INF,) * 3 if self.plan.kind == "next" else (-INF,) * 3
        return self._body(beyond if closed else (-INF, INF, NAN), self._awaited[2])

    def _take_known(self, stamp: int, row: Row, admitted: bool) -> None:
        plan = self.plan
        low, high = IDENTITY
        for minimum, reading in plan.path:
            lower, upper, _ = row[reading.position]
            value = -upper if reading.turned else lower
            if minimum:
                low, high = (low if low < value else value), (high if high < value else value)
            else:
                low, high = (low if low > value else value), (high if high > value else value)
        step, early_step = self._steps(row, 0)
        self._newest_clamp = compose((low, high), early_step if plan.near else step)
        if admitted:
            self._any = True
            if plan.far is not None:
                (self._early_stamps if plan.near else self._stamps).append(stamp)
            zone = self._early if plan.near else self._open
            zone[0].push(low, high)
            if not self.decided:
                self.decided = low == high
                if self._sinks:
                    zone[1].push(-high, -low)
        elif not self._any:
            return
        if not self.decided:
            self.decided = self._decides(self._open, step) or (
                bool(plan.near) and self._decides(self._early, early_step)
            )
        self._act(self._open, [step])
        if plan.near and early_step != IDENTITY:
            self._act(self._early, [early_step])

    def _act(self, zone: list[ClampQueue], steps: list[Clamp]) -> None:
        if self.wide:
            for queue, step in zip(zone, steps, strict=True):
                queue.apply(*step)
            return
        low, high = steps[0]
        zone[0].apply(low, high)
        if self._sinks and not self.decided:
            zone[1].apply(-high, -low)

    def _decides(self, zone: list[ClampQueue], step: Clamp) -> bool:
        """Does the step turn some clamp of the zone into a constant?"""
        least = zone[0].least()
        if least == (INF, INF):  # none, or all of them constant
            return False
        if step[0] == step[1] or least[1] <= step[0]:
            return True
        return self._sinks and -zone[1].least()[1] >= step[1]  # the greatest low

    def _steps(self, row: Row, part: int) -> tuple[Clamp, Clamp]:
        """What this sample does to windows that have begun, and to those that have not.

        ``part``: 0 of the lower bound, 1 of the upper, 2 of rho.
        """
        kind = self.plan.kind
        if kind in ("eventually", "always"):
            value = self.plan.operands[0].of(row)[part]
            if kind == "eventually":
                return (value if value == value else -INF, INF), IDENTITY
            return (-INF, value if value == value else INF), IDENTITY
        turned = kind == "not until"
        source = part if part == 2 or not turned else 1 - part
        hold, release = (row[o.position][source] for o in self.plan.operands)
        hold = hold if hold == hold else INF
        release = release if release == release else -INF
        most = hold if hold > release else release
        if turned:
            return (-most, -release), (-hold, INF)
        return (release, most), (-INF, hold)

    def _take_wide(self, stamp: int, row: Row, admitted: bool) -> None:
        plan = self.plan
        others = [reading.of(row) for _, reading in plan.path]
        lower, upper, rho = (self._steps(row, part) for part in range(3))
        at_once = [early if plan.near else step for step, early in (lower, upper, rho)]
        self._newest = self._body(self._operator_now(at_once, row), others)
        zone = self._early if plan.near else self._open
        reach = NAN
        if admitted:
            self._any = True
            if plan.far is not None:
                (self._early_stamps if plan.near else self._stamps).append(stamp)
                if not plan.near:
                    self._known_before.append(self._known)
                self._others.append(others)
            low, high = self._clamp(others, 0), self._clamp(others, 1)
            for queue, clamp in zip(zone, (low, high, IDENTITY, IDENTITY, IDENTITY), strict=True):
                queue.push(*clamp)
            self.decided = self.decided or low[0] == high[1]
            reach = self._where_decided(low, high)
        elif self.oldest is None and not (self._any and plan.far is None):
            return
        self._known += bool(plan.operands[-1].of(row)[2] == plan.operands[-1].of(row)[2])
        self._act(self._open, [step for step, _ in (lower, upper, lower, upper, rho)])
        if plan.near:
            self._act(self._early, [early for _, early in (lower, upper, lower, upper, rho)])
        if not self.decided and self.running[2] != self.running[2]:  # nobody asks once a known value is folded in
            still = all(low[0] == -INF and high[1] == INF for low, high in zip(lower, upper, strict=True))
            self.decided = self._some_point(stamp, row, reach, still)
        if plan.kind in ("eventually", "always") and lower[0] == upper[0] and lower[0][0] == lower[0][1]:
            while self._stamps:  # the operator is a point at all of them, whatever comes
                self._finish()

    def _operator_now(self, steps: list[Clamp], row: Row) -> Values:
        """The operator at the newest sample."""
        if self.plan.far == 0:
            end = 1 if self.plan.rests_high else 0
            known = self.plan.operands[-1].of(row)[2]
            return settle(steps[0][end], steps[1][end], steps[2][end] if known == known else NAN)
        return settle(steps[0][0], steps[1][1], NAN)

    def _clamp(self, others: list[Values], part: int) -> Clamp:
        low, high = IDENTITY
        for (minimum, _), other in zip(self.plan.path, others, strict=True):
            value = other[part]
            low, high = (min(low, value), min(high, value)) if minimum else (max(low, value), max(high, value))
        return (low, high)

    def _body(self, operator: Values, others: list[Values]) -> Values:
        """The body from the operator's value and the other inputs of the same sample."""
        lower, upper, rho = operator
        for (minimum, _), (low, high, other) in zip(self.plan.path, others, strict=True):
            choose = min if minimum else max
            lower, upper, rho = settle(
                choose(lower, low), choose(upper, high), choose(rho, other) if rho == rho and other == other else NAN
            )
        return (lower, upper, rho)

    # --- has the body been a point at some sample whose window is open? ---

    def _where_decided(self, lower: Clamp, upper: Clamp) -> float:
        """How far eventually must rise (always: sink, negated) to make the body a point; NaN: it cannot."""
        if self.plan.kind == "eventually":
            return lower[1] if lower[1] == upper[1] else NAN
        return -upper[0] if lower[0] == upper[0] else NAN

    def _some_point(self, stamp: int, row: Row, reach: float, still: bool) -> bool:
        """``still``: this sample moves no bound of an earlier one."""
        kind = self.plan.kind
        if kind in ("eventually", "always"):
            if self._reach is None:
                if reach == reach and not reach >= self._least_reach:
                    self._least_reach = reach
                needed, none = self._least_reach, self._least_reach != self._least_reach
            else:
                needed, none = self._reach.push(stamp, reach), self._reach.empty
            if none:
                return False
            lower, upper, _ = self.plan.operands[0].of(row)
            return needed <= lower if kind == "eventually" else needed <= -upper
        return not still and any(
            low[0] == high[1]
            for zone in (self._open, self._early)
            for low, high in zip(zone[0].all(), zone[1].all(), strict=True)
        )

    # --- windows that begin and end ---

    def _begin(self) -> None:
        self._stamps.append(self._early_stamps.popleft())
        self._known_before.append(self._known)
        for early, open_ in zip(self._early, self._open, strict=True):
            if len(early):
                open_.push(*early.pop())

    def _finish(self) -> None:
        self._stamps.popleft()
        end = 1 if self.plan.rests_high else 0
        if not self.wide:
            value = self._open[0].pop()[end]
            if not self.decided:
                self.decided = True  # from here on the mirror images are not needed
                self._open[1], self._early[1] = ClampQueue(), ClampQueue()
            self._merge(value, value, value)
            return
        known = self._known > self._known_before.popleft()
        parts = [queue.pop()[end] for queue in self._open][2:]
        operator = settle(parts[0], parts[1], parts[2] if known else NAN)
        self._merge(*self._body(operator, self._others.popleft()))

    def _merge(self, lower: float, upper: float, rho: float) -> None:
        least_lower, least_upper, least_rho = self.running
        if rho == rho and not rho >= least_rho:
            least_rho = rho
        self.running = (
            lower if lower < least_lower else least_lower,
            upper if upper < least_upper else least_upper,
            least_rho,
        )

    # --- what can be said ---

    def _ends(self, closed: bool) -> tuple[int, int]:
        """Which end of a clamp is the lower bound, and which the upper."""
        plan = self.plan
        if plan.counting or plan.far == 0 or (closed and plan.far is None):
            return (1, 1) if plan.rests_high else (0, 0)
        return (0, 1)

    def least(self, closed: bool) -> Values:
        """The minimum over the admitted samples so far; ``closed``: the trace has ended."""
        lower, upper, rho = self.running
        if self._awaited is not None and self._awaited[1]:
            low, high, value = self._next_now(closed)
            rho = value if value == value and not value >= rho else rho
            return settle(min(lower, low), min(upper, high), rho)
        if self._any:
            first, last = self._ends(closed)
            for zone in (self._open, self._early) if self.plan.near else (self._open,):
                one = zone[0].least()
                other = zone[1].least() if self.wide else one
                lower = one[first] if one[first] < lower else lower
                upper = other[last] if other[last] < upper else upper
            # a point that is not folded in yet is no less than the upper bound, which rho cannot exceed
            if rho != rho and (self.decided or (first == last and self.plan.far is None)):
                rho = upper
        return settle(lower, upper, rho)

    def newest(self, closed: bool) -> Values:
        """The body at the newest sample."""
        if self._awaited is not None:
            return self._next_now(closed)
        if self.wide or self.plan.kind == "input":
            return self._newest
        first, last = self._ends(closed)
        lower, upper = self._newest_clamp[first], self._newest_clamp[last]
        return (lower, upper, lower if lower == upper else NAN)

    # --- plain data ---

    def state(self) -> list[Any]:
        return [self.wide, list(self.running), self.decided]

    def load(self, state: list[Any]) -> None:
        """The open samples must be taken again."""
        wide, running, decided = state
        self.wide, self.running, self.decided = bool(wide), (running[0], running[1], running[2]), bool(decided)
        self._clear()
