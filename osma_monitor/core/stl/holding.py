"""An unbounded until inside another temporal operator, while its release may still come.

``hold until release`` is pending: as long as hold has not been broken its upper bound is +inf, whatever its margin
(docs/stl.md, "When a formula is judged"). So samples are of two kinds: those since which hold has not been broken, and
the rest, for which until is a clamp of its own future as in :mod:`osma_monitor.core.stl.pending`. A broken hold moves
all samples so far to the second kind at once.
"""

from __future__ import annotations

from osma_monitor.core.stl.clamps import IDENTITY, Clamp, ClampQueue, compose
from osma_monitor.core.stl.connectives import Values
from osma_monitor.core.stl.pending import Aggregate, Plan, Row
from osma_monitor.core.stl.runtime import INF, NAN, settle


def aggregate_of(plan: Plan) -> Aggregate:
    """The aggregate that a plan needs."""
    if plan.kind in ("until", "not until") and plan.far is None and not plan.counting:
        return Holding(plan)
    return Aggregate(plan)


class Holding(Aggregate):
    """The minimum of a body with a pending until in it, while all samples are known.

    For ``not until`` lower and upper bound change places: there the lower one is open.
    """

    def _clear(self) -> None:
        super()._clear()
        # each zone: the body, and its mirror image, which finds points
        self._unbroken = [ClampQueue(False), ClampQueue(False)]
        self._broken = [ClampQueue(False), ClampQueue(False)]
        self._edge = INF  # least body over the unbroken samples if a release came now, however good
        self._fixed = False  # some unbroken sample is a point as soon as hold breaks
        # the least that a release must reach to make the body a point at an unbroken sample; NaN: none can
        self._needed = NAN
        self._newest_path = IDENTITY
        self._newest_open = True

    def _take_known(self, stamp: int, row: Row, admitted: bool) -> None:
        hold, release = (row[o.position][0] for o in self.plan.operands)
        path, (step, _) = self._path(row), self._steps(row, 0)
        self._newest_path, self._newest_clamp, self._newest_open = path, compose(path, step), hold >= 0
        if admitted:
            self._any = True
            self._push(*path)
        if not self._any:
            return
        if release >= self._needed:
            self.decided = True
        if self._needed > hold:
            self._needed = NAN
        if not self.decided:
            self._fixed = self._fixed or self._decides(self._unbroken, step)
            self.decided = self._decides(self._broken, step) or (self._fixed and hold < 0)
        for zone in (self._unbroken, self._broken):
            self._act(zone, [step])
        if hold < 0:
            for broken, unbroken in zip(self._broken, self._unbroken, strict=True):
                broken.push(*unbroken.least())
            self._unbroken = [ClampQueue(False), ClampQueue(False)]
            self._edge, self._fixed, self._needed = INF, False, NAN

    def _path(self, row: Row) -> Clamp:
        return self._clamp([reading.of(row) for _, reading in self.plan.path], 0)

    def _push(self, low: float, high: float) -> None:
        self._unbroken[0].push(low, high)
        self._unbroken[1].push(-high, -low)
        turned = self.plan.kind == "not until"
        self._edge = min(self._edge, low if turned else high)
        if low == high:
            self.decided = True
        needed = -low if turned else high
        if not self._needed <= needed:
            self._needed = needed

    def least(self, closed: bool) -> Values:
        if not self._any:
            return settle(*self.running)
        (low, high), (broken_low, broken_high) = self._unbroken[0].least(), self._broken[0].least()
        if self.plan.kind == "until":
            lower, upper = min(low, broken_low), min(self._edge, broken_high)
            lower, upper = (lower, lower) if closed else (lower, upper)
        else:
            lower, upper = min(self._edge, broken_low), min(high, broken_high)
            lower, upper = (upper, upper) if closed else (lower, upper)
        return (lower, upper, upper if self.decided or lower == upper else NAN)

    def newest(self, closed: bool) -> Values:
        low, high = self._newest_clamp
        if self.plan.kind == "until":
            lower, upper = low, low if closed else self._newest_path[1] if self._newest_open else high
        else:
            lower, upper = high if closed else self._newest_path[0] if self._newest_open else low, high
        return (lower, upper, lower if lower == upper else NAN)
