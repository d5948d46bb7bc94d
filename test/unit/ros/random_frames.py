"""Frames of anything: for tests that send them through messages."""

import math

import numpy as np
from hypothesis import strategies as st

from osma_monitor.core.signals.raw import PARTS, Base, Contacts, EndEffector, Joints, Objects, RawFrame

floats = st.floats(width=64, allow_nan=True, allow_infinity=True)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
stamps = st.integers(1, 2**31 * 10**9 - 1)


def array(draw, *shape):
    n = math.prod(shape)
    return np.array(draw(st.lists(floats, min_size=n, max_size=n)), dtype=np.float64).reshape(shape)


def texts(draw, n):
    return tuple(draw(st.lists(names, min_size=n, max_size=n)))


@st.composite
def frames(draw):
    n, m, k = (draw(st.integers(0, 4)) for _ in range(3))
    parts = {
        "base": lambda: Base(array(draw, 3), array(draw, 4), array(draw, 3), array(draw, 3)),
        "joints": lambda: Joints(texts(draw, n), array(draw, n), array(draw, n), array(draw, n)),
        "ee": lambda: EndEffector(array(draw, 3), array(draw, 4)),
        "gripper": lambda: draw(st.booleans()),
        "contacts": lambda: Contacts(*(texts(draw, m) for _ in range(4)), array(draw, m, 3)),
        "objects": lambda: Objects(
            *(texts(draw, k) for _ in range(3)),
            array(draw, k, 3),
            array(draw, k, 4),
            array(draw, k),
            np.array(draw(st.lists(st.integers(-1, 1), min_size=k, max_size=k)), dtype=np.int8),
        ),
    }
    present = draw(st.sets(st.sampled_from(PARTS)))
    return RawFrame(draw(stamps), **{name: parts[name]() for name in PARTS if name in present})
