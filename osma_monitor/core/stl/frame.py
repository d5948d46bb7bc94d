"""Source for one frame: the values of all nodes that do not look ahead, and the state after the sample."""

from __future__ import annotations

from typing import Final

from osma_monitor.core.stl.emitter import Emitter, Slot, Triple
from osma_monitor.core.stl.graph import GATE_THRESHOLD, GraphNode, Reduction
from osma_monitor.core.stl.syntax import COMPARISONS

# results that may be NaN although the arguments are finite: the point dialect then hands the sample over
_MAY_BE_NAN: Final = frozenset({"+", "-", "*", "/", "sqrt", "exp", "pow"})
_CALLS: Final = {"sqrt": "root", "exp": "exponential", "pow": "power", "/": "divide", "min": "least", "max": "greatest"}


class FrameEmitter(Emitter):
    """Writes the body of the frame functions in either dialect."""

    def frame(self) -> None:
        """The values of all needed nodes, and the state after this sample."""
        needed = self.point_nodes() if self.point else self.needed
        pure = self.pure_nodes(needed)
        known = set(pure)
        # the point dialect may hand the sample over while these are computed, so they come before any state
        for index in pure + [i for i in needed if i not in known]:
            self.node(index)
        for pair in self.judged:
            self.accumulate(*pair)
        also = "; fresh = True" if self.stable else ""
        for position, index in enumerate(self.flags):
            flag = self.slot(f"g{position}", "flag", "False")
            true = self.condition(index) if self.point else ""
            self.add(f"if not {flag} and {true or f'{self.triple(index)[0]} > 0.0'}: {flag} = True{also}")

    def node(self, index: int) -> None:
        node = self.graph.nodes[index]
        if node.scalar:
            self.scalar_node(index, node)
        elif node.op in ("value", "gate") or node.op in COMPARISONS:
            self.leaf(index, node)
        else:
            self.inner(index, node)

    def pure_nodes(self, nodes: list[int]) -> list[int]:
        """Those of ``nodes`` that are functions of the sample alone, one comparison deep."""
        graph = self.graph.nodes
        return [i for i in nodes if graph[i].scalar or all(graph[a].scalar for a in graph[i].args)]

    def condition(self, index: int) -> str:
        """The test of a Boolean inequality over signals and numbers, '' for other nodes."""
        node = self.graph.nodes[index]
        if node.op == "gate":
            return f"{self.scalar(node.args[0])} > {GATE_THRESHOLD!r}"
        plain = all(self.graph.nodes[a].op in ("signal", "number") for a in node.args)
        if plain and node.boolean and node.op in ("<", "<=", ">", ">="):
            return f"{self.scalar(node.args[0])} {node.op} {self.scalar(node.args[1])}"
        return ""

    def point_nodes(self) -> list[int]:
        """What a frame of the point dialect must work out; the rest is worked out when somebody asks."""
        nodes = self.graph.nodes
        roots = {i for i in self.needed if self.may_be_undefined(i)}
        roots.update(n for _, inputs in self.streamed for n in inputs)
        roots.update(i for i in self.flags if not self.condition(i))
        if not self.stateless:
            roots.update(self.boundary)
        for index, k in self.judged:
            if not nodes[index].future:
                roots.add(index)
            elif nodes[index].op in ("always", "eventually", "until") and (index, k) not in self.reductions:
                roots.update(nodes[index].args)
        needed = self._below(sorted(roots))
        # Boolean leaves that only implications read are tested in place
        used = set(roots)
        for index in needed:
            used.update(nodes[index].args[1:] if nodes[index].op == "implies" else nodes[index].args)
        return [i for i in needed if i in used or not self.condition(i)]

    def may_be_undefined(self, index: int) -> bool:
        """Can finite signals give NaN here?"""
        node = self.graph.nodes[index]
        if node.scalar:
            return node.op in _MAY_BE_NAN
        plain = all(self.graph.nodes[a].op in ("signal", "number") for a in node.args)
        return node.op in COMPARISONS and not plain

    def hand_over(self, name: str) -> None:
        if self.point and not self.lazy:
            self.add(f"if {name} != {name}: return widen(stamp, [{self.inputs()}])")

    def scalar_node(self, index: int, node: GraphNode) -> None:
        if node.op in ("number", "signal"):
            return
        args = [self.scalar(a) for a in node.args]
        if node.op == "neg":
            text = f"-{args[0]}"
        elif node.op == "abs":
            text = f"abs({args[0]})"
        elif node.op in _CALLS:
            text = f"{_CALLS[node.op]}({', '.join(args)})"
        else:
            text = f"{args[0]} {node.op} {args[1]}"
        self.add(f"x{index} = {text}")
        if node.op in _MAY_BE_NAN:
            self.hand_over(f"x{index}")

    def leaf(self, index: int, node: GraphNode) -> None:
        if node.op in COMPARISONS and not all(self.graph.nodes[a].scalar for a in node.args):
            sides = ", ".join(self.packed(a) for a in node.args)
            self.add(f"{', '.join(self.triple(index))} = compare({node.op!r}, {sides}, {node.boolean})")
            return
        args = [self.scalar(a) for a in node.args]
        m = f"v{index}" if self.point else f"m{index}"
        if node.op == "value":
            self.add(f"{m} = {args[0]} + 0.0")
        elif node.op in ("==", "!="):
            sign, apart = ("", "-") if node.op == "==" else ("-", "")
            self.add(f"{m} = {args[0]} - {args[1]}")
            self.hand_over(m)
            false = f"{apart}INF" if node.boolean else f"{apart}abs({m})"
            self.add(f"{m} = {sign}INF if {m} == 0.0 else {m} if {m} != {m} else {false}")
        elif node.op == "gate":
            self.add(f"{m} = INF if {args[0]} > {GATE_THRESHOLD!r} else {args[0]} if {args[0]} != {args[0]} else -INF")
        else:
            small, large = args if node.op in ("<", "<=") else (args[1], args[0])
            self.add(f"{m} = {large} - {small}")
            if not all(self.graph.nodes[a].op in ("signal", "number") for a in node.args):
                self.hand_over(m)
            if node.boolean:
                test = ">" if node.op in ("<", ">") else ">="
                self.add(f"{m} = INF if {m} {test} 0 else {m} if {m} != {m} else -INF")
        self.spread(index, m)

    def spread(self, index: int, m: str) -> None:
        """A number that may be unknown to an interval."""
        if self.point:
            return
        low, high, rho = self.triple(index)
        self.add(f"if {m} == {m}: {low} = {high} = {rho} = {m}")
        self.add(f"else: {low} = -INF; {high} = INF; {rho} = NAN")

    def inner(self, index: int, node: GraphNode) -> None:
        out = self.triple(index)
        args = [self.triple(a) for a in node.args]
        if self.point and node.op == "implies" and self.condition(node.args[0]):
            self.add(f"{out[0]} = {args[1][0]} if {self.condition(node.args[0])} else INF")
            return
        if self.connective(out, node.op, args, f"t{index}"):
            return
        if node.op == "prev":
            state = self.parts(self.slot(f"s{index}", "track", "INF", "INF"))
            self.copy(out, state)
            self.copy(state, args[0])
        elif node.op in ("rise", "fall"):
            rising = node.op == "rise"
            edge = "-INF" if rising else "INF"
            state = self.parts(self.slot(f"s{index}", "track", edge, edge))
            turned = self.parts(f"t{index}")
            self.negate(turned, state if rising else args[0])
            self.extreme(out, args[0] if rising else state, turned, "<")
            self.copy(state, args[0])
        elif node.op in ("historically", "once"):
            self.look_back(index, node, out, args[0])
        elif node.op == "since":
            self.since(index, node, out, args[0], args[1])
        else:
            sides = ", ".join(self.packed(a) for a in node.args)
            self.add(f"{', '.join(out)} = interval_arithmetic({node.op!r}, {sides})")

    def look_back(self, index: int, node: GraphNode, out: Triple, value: Triple) -> None:
        lowest = node.op == "historically"
        if node.window is None:
            state = self.parts(self.slot(f"s{index}", "track", "INF" if lowest else "-INF"))
            self.running(state, value, "<" if lowest else ">")
            self.copy(out, state)
        else:
            window = self.parts(self.slot(f"w{index}", "window", f"SlidingMinimum{node.window!r}"))
            sign = "" if lowest else "-"
            for part in range(1 if self.point else 3):
                self.add(f"{out[part]} = {sign}{window[part]}.push(stamp, {sign}{value[part]})")
            if not self.point:
                self.add(f"if {window[2]}.empty and not {window[0]}.empty: {out[2]} = NAN")
        if not self.point:
            self.settle(out)

    def since(self, index: int, node: GraphNode, out: Triple, hold: Triple, release: Triple) -> None:
        if node.window is not None:
            window = self.parts(self.slot(f"w{index}", "window", f"SlidingSince{node.window!r}"))
            for part in range(1 if self.point else 3):
                self.add(f"{out[part]} = {window[part]}.push(stamp, {hold[part]}, {release[part]})")
            if not self.point:
                self.add(f"if {window[2]}.empty and not {window[0]}.empty: {out[2]} = NAN")
                self.settle(out)
            return
        state = self.parts(self.slot(f"s{index}", "track", "-INF"))
        for part in range(1 if self.point else 2):
            self.add(f"if {hold[part]} < {state[part]}: {state[part]} = {hold[part]}")
            self.add(f"if {release[part]} > {state[part]}: {state[part]} = {release[part]}")
        if not self.point:
            self.add(f"if {hold[2]} == {hold[2]} and {hold[2]} < {state[2]}: {state[2]} = {hold[2]}")
            self.add(f"if {release[2]} == {release[2]} and not {release[2]} <= {state[2]}: {state[2]} = {release[2]}")
        self.copy(out, state)
        if not self.point:
            self.settle(out)

    # --- judged at the k-th sample ---

    def accumulate(self, index: int, k: int) -> None:
        node = self.graph.nodes[index]
        if node.scalar or (node.future and node.op not in ("always", "eventually", "until")):
            return
        name = f"a{index}_{k}"
        depth = self.depth
        if self.point and (index, k) in self.reductions:
            self.reduce(name, self.reductions[index, k])
            return
        if not node.future:
            state = self.parts(self.slot(name, "track", "NAN", "NAN", k))
            self.add(f"if samples == {k}:")
            self.depth += 1
            self.copy(state, self.triple(index))
            if self.stable:
                self.add("fresh = True")
            self.depth = depth
            return
        conditions = [f"samples >= {k}"] if k else []
        late = False
        if node.window is not None:
            began = self.slot(f"k{k}", "flag", "0")
            self.add(f"if samples == {k}: {began} = stamp")
            near, far = node.window
            late = near > 0
            conditions.append(f"{began} + {near} <= stamp <= {began} + {far}" if late else f"stamp <= {began} + {far}")
        if node.op == "until":
            self.accumulate_until(name, node, k, conditions, late)
            return
        lowest = node.op == "always"
        initial = "INF" if lowest else "-INF"
        state = self.parts(self.slot(name, "track", initial, initial if late else "NAN", k))
        value = self.triple(node.args[0])
        if conditions:
            self.add(f"if {' and '.join(conditions)}:")
            self.depth += 1
        if late:
            self.first_in_window(name, state)
        self.running(state, value, "<" if lowest else ">", judged=True)
        self.depth = depth

    def reduce(self, name: str, reduction: Reduction) -> None:
        sign, start = (">", "-INF") if reduction.upper else ("<", "INF")
        limit = f"({reduction.limit!r})"
        raw = f"({limit} - {{}})" if reduction.upper else f"({{}} - {limit})"
        self.slots.setdefault(name, Slot(name, "track", "INF", "NAN", 0, raw, start))
        value, also = f"i{reduction.signal}", "; fresh = True" if self.stable else ""
        gate = "" if reduction.gate is None else f"i{reduction.gate} > {GATE_THRESHOLD!r} and "
        self.add(f"if {gate}{value} {sign} {name}: {name} = {value}{also}")

    def first_in_window(self, name: str, state: Triple) -> None:
        """An empty window has a value; its first sample makes rho unknown until one is known."""
        seen = self.slot(f"{name}f", "flag", "False")
        self.add(f"if not {seen}:")
        self.add(f"    {seen} = True")
        if not self.point:
            self.add(f"    {state[2]} = NAN")

    def accumulate_until(self, name: str, node: GraphNode, k: int, conditions: list[str], late: bool) -> None:
        best = self.parts(self.slot(name, "track", "-INF", "-INF" if late else "NAN", k))
        held = self.parts(self.slot(f"{name}h", "track", "INF", "INF"))
        hold, release = (self.triple(a) for a in node.args)
        depth = self.depth
        if conditions:
            self.add(f"if {' and '.join(conditions)}:")
            self.depth += 1
        if late:
            self.first_in_window(name, best)
        turned = self.parts("t")
        for part in range(1 if self.point else 2):
            self.add(f"{turned[part]} = {release[part]} if {release[part]} < {held[part]} else {held[part]}")
        if not self.point:
            known = f"{release[2]} != {release[2]} or {release[2]} < {held[2]}"
            self.add(f"{turned[2]} = {release[2]} if {known} else {held[2]}")
        self.running(best, turned, ">", judged=True)
        self.depth = depth
        if k:
            self.add(f"if samples >= {k}:")
            self.depth += 1
        also = "; fresh = True" if self.stable else ""
        for part in range(1 if self.point else 3):
            self.add(f"if {hold[part]} < {held[part]}: {held[part]} = {hold[part]}{also}")
        self.depth = depth
