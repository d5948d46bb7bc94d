"""Queues of clamps against lists of them."""

import math

from hypothesis import given
from hypothesis import strategies as st
from stl_strategies import examples

from osma_monitor.core.stl.clamps import ClampQueue, compose

numbers = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0, 2.0, math.inf])
clamps = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
moves = st.lists(st.tuples(st.sampled_from(["push", "apply", "pop"]), clamps), max_size=40)


@given(clamps, clamps, numbers)
def test_composition(outer, inner, x):
    def clamp(pair, value):
        return max(pair[0], min(pair[1], value))

    assert clamp(compose(outer, inner), x) == clamp(outer, clamp(inner, x))


@examples(5)
@given(moves, st.booleans())
def test_a_queue_is_what_a_list_would_be(moves, leaving):
    queue, plain = ClampQueue(leaving), []
    for move, clamp in moves:
        if move == "push":
            queue.push(*clamp)
            plain.append(clamp)
        elif move == "apply":
            queue.apply(*clamp)
            plain = [compose(one, clamp) for one in plain]
        elif plain and leaving:
            assert queue.pop() == plain.pop(0)
        least = (min((p[0] for p in plain), default=math.inf), min((p[1] for p in plain), default=math.inf))
        assert queue.least() == least
        if leaving:
            assert queue.all() == plain and len(queue) == len(plain)
