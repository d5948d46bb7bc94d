"""Source that reads the accumulators: the judged bounds of each clause, and the bounds of this instant."""

from __future__ import annotations

from osma_monitor.core.stl.emitter import Triple
from osma_monitor.core.stl.frame import FrameEmitter
from osma_monitor.core.stl.graph import GraphNode
from osma_monitor.core.stl.syntax import COMPARISONS


class JudgeEmitter(FrameEmitter):
    """Writes the functions that turn an update's data into bounds."""

    def judge(self, point: bool) -> None:
        """Functions from an update's data to the bounds (lower, upper, rho) of the simple clauses.

        Two give lists. Where no clause is a stream two more give the update's arrays at once.
        """
        graph = self.graph
        dialect = "point" if point else "interval"
        roots = [graph.roots[c] for c in self.simple]
        self.point, self.flat = False, point
        for ending, finish in (("", self.lists), ("_arrays", self.arrays))[: 1 if self.streamed else 2]:
            self.aliases: dict[tuple[int, int], Triple] = {}
            self.begin(f"judged_{dialect}{ending}")
            for index, k in sorted(self.judged, key=lambda pair: (pair[0], -pair[1])):
                self.judge_pair(index, k)
            finish([self.pair_names(r, 0) if graph.nodes[r].future else self.triple(r) for r in roots])

            self.begin(f"now_{dialect}{ending}")
            done: set[int] = set()
            for root in roots:
                self.newest(root, done)
            finish([self.newest_names(r) for r in roots])
        self.flat = False

    def begin(self, name: str) -> None:
        self.depth = 0
        self.add(f"def {name}(state, values, samples, closed, stamp):")
        self.depth = 1
        self.unpack(self.state_names(self.flat), "state")
        if not (self.flat and self.stateless):
            self.unpack(self.value_names(self.flat), "values")
            return
        self.unpack([f"i{c}" for c in range(len(self.graph.signals))], "values")
        self.point = self.lazy = True
        past = [r for r in self.graph.roots if not self.graph.nodes[r].future]
        wanted = self.boundary if name.startswith("now") else past
        for index in self._below(wanted):
            self.node(index)
        self.point = self.lazy = False

    def unpack(self, names: list[str], source: str) -> None:
        if names:
            self.add(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {source}")

    def parts_of(self, triples: list[Triple]) -> list[str]:
        """Lower, upper and rho written out without negative zeros; one text where every value is a point."""
        written = [", ".join(f"{t[part]} + 0.0" for t in triples) for part in range(3)]
        return written[:1] if written[0] == written[1] == written[2] else written

    def lists(self, triples: list[Triple]) -> None:
        """Ends with the three lists; one list thrice where every value is a point."""
        written = [f"[{part}]" for part in self.parts_of(triples)]
        if len(written) == 1:
            self.add(f"lower = upper = rho = {written[0]}")
            self.add("return lower, upper, rho")
        else:
            self.add(f"return {', '.join(written)}")

    def arrays(self, triples: list[Triple]) -> None:
        """Ends with the arrays of :class:`osma_monitor.core.stl.packing.Packing`."""
        written = self.parts_of(triples)
        self.add(f"return {'points' if len(written) == 1 else 'intervals'}({', '.join(written) if triples else ''})")

    def read(self, name: str) -> Triple:
        """Names of an accumulator's tracks in the data."""
        return (self.slots[name].value(),) * 3 if self.flat else (f"{name}l", f"{name}u", f"{name}r")

    def pair_names(self, index: int, k: int) -> Triple:
        return self.aliases.get((index, k), (f"jl{index}_{k}", f"ju{index}_{k}", f"jr{index}_{k}"))

    def newest_names(self, index: int) -> Triple:
        if not self.graph.nodes[index].future:
            return self.triple(index)
        node = self.graph.nodes[index]
        if self.flat and node.op == "always" and node.window is None and node.polarity == 1:
            return self.newest_names(node.args[0])
        return (f"nl{index}", f"nu{index}", f"nr{index}")

    def judge_pair(self, index: int, k: int) -> None:
        node = self.graph.nodes[index]
        out = self.pair_names(index, k)
        if node.scalar:
            return
        if not node.future:
            self.aliases[index, k] = self.read(f"a{index}_{k}")
        elif node.op == "next":
            inner = self.pair_names(node.args[0], k + 1)
            self.add(f"if samples > {k + 1}: {', '.join(out)} = {', '.join(inner)}")
            self.add(f"else: {', '.join(out)} = (INF, INF, INF) if closed else (-INF, INF, NAN)")
        elif node.op in ("always", "eventually", "until"):
            state = self.read(f"a{index}_{k}")
            if node.window is not None:
                pending = f"stamp - k{k} < {node.window[1]}"
            else:
                pending = "not closed" if node.polarity != (1 if node.op == "always" else -1) else ""
            if self.flat and not pending:
                self.aliases[index, k] = state
                return
            self.copy(out, state)
            self.settle(out)
            held = self.read(f"a{index}_{k}h")[1] if node.op == "until" else ""
            self.widen(out, node, pending, held)
        else:
            self.judged_inner(out, node, [self.pair_names(a, k) for a in node.args], index)

    def judged_inner(self, out: Triple, node: GraphNode, args: list[Triple], index: int) -> None:
        """A connective, comparison or arithmetic over operands that look ahead."""
        if self.connective(out, node.op, args, f"t{index}"):
            return
        packed = [
            f"({self.scalar(a)},) * 3" if self.graph.nodes[a].scalar else f"({', '.join(names)})"
            for a, names in zip(node.args, args, strict=True)
        ]
        if node.op in COMPARISONS:
            call = f"compare({node.op!r}, {', '.join(packed)}, {node.boolean})"
        else:
            call = f"interval_arithmetic({node.op!r}, {', '.join(packed)})"
        self.add(f"{', '.join(out)} = {call}")

    def widen(self, out: Triple, node: GraphNode, pending: str, held: str) -> None:
        """More samples may come: opens the interval on the side that they can move."""
        if not pending:
            return
        self.add(f"if {pending}:")
        self.depth += 1
        if node.op == "always":
            self.add(f"{out[0]} = -INF")
        elif node.op == "eventually":
            self.add(f"{out[1]} = INF")
        elif node.window is None:
            self.add(f"{out[1]} = INF if {held} >= 0.0 else {out[1]} if {out[1]} > {held} else {held}")
        else:
            self.add(f"{out[1]} = {out[1]} if {out[1]} > {held} else {held}")
        self.add(f"{out[2]} = NAN")
        self.settle(out)
        self.depth -= 1

    def newest(self, root: int, done: set[int]) -> None:
        """The value at the newest sample: windows ahead hold that sample alone."""
        wanted: set[int] = set()
        stack = [root]
        while stack:
            index = stack.pop()
            node = self.graph.nodes[index]
            if index in wanted or index in done or not node.future:
                continue
            if self.newest_names(index)[0][0] != "n":  # always(body) so far is its body
                stack += node.args
                continue
            wanted.add(index)
            if node.op != "next":
                stack += node.args
        for index in sorted(wanted):
            done.add(index)
            node, out = self.graph.nodes[index], self.newest_names(index)
            args = [self.newest_names(a) for a in node.args]
            if node.op == "next":
                self.add(f"{', '.join(out)} = (INF, INF, INF) if closed else (-INF, INF, NAN)")
            elif node.op in ("always", "eventually", "until"):
                self.newest_ahead(out, node, args)
            else:
                self.judged_inner(out, node, args, index)

    def newest_ahead(self, out: Triple, node: GraphNode, args: list[Triple]) -> None:
        if node.window is not None and node.window[0] > 0:
            edge = "INF" if node.op == "always" else "-INF"
            self.add(f"{' = '.join(out)} = {edge}")
        else:
            self.copy(out, args[-1])
        if node.window is not None:
            pending = "True" if node.window[1] > 0 else ""
        else:
            pending = "not closed" if node.polarity != (1 if node.op == "always" else -1) else ""
        self.widen(out, node, pending, args[0][1])

    def read_slots(self) -> list[str]:
        """State that an update carries away, so that it can be judged later."""
        return [n for n, s in self.slots.items() if n[0] in "ak" and s.kind != "window" and not n.endswith("f")]

    def state_names(self, point: bool) -> list[str]:
        names: list[str] = []
        for name in self.read_slots():
            names += [name] if point or self.slots[name].kind == "flag" else [f"{name}l", f"{name}u", f"{name}r"]
        return names

    def value_names(self, point: bool) -> list[str]:
        """What an update keeps of its own sample: the boundary's values."""
        names: list[str] = []
        for index in self.boundary:
            names += [f"v{index}"] if point else [f"l{index}", f"u{index}", f"r{index}"]
        return names
