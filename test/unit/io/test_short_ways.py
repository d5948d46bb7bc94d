"""What is done differently in batch gives the numbers of the long way, to the last bit."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bag_examples import config, episode, make_frames, make_info, topics_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.serde import SerdeError

from osma_monitor.core.episode import EpisodeRecord, Outcome
from osma_monitor.core.monitor import EpisodeMonitor, MonitorConfig
from osma_monitor.core.segmenter import Begin
from osma_monitor.core.signals.raw import RawFrame, same
from osma_monitor.core.signals.transforms import Transform, TransformBuffer, UnknownFrameError
from osma_monitor.io.bag import messages
from osma_monitor.io.bag.cdr import DECODERS, fast_decoder
from osma_monitor.io.bag.tf import TransformTree, apply
from osma_monitor.io.bag.types import as_known, known_types
from osma_monitor.io.judge import BatchJudge, collect_frames


def live(frames: list[RawFrame], number: int, made: MonitorConfig, outcome: Outcome) -> EpisodeRecord:
    monitor = EpisodeMonitor(make_info(number), made, frames[0].stamp_ns)
    for frame in frames:
        monitor.update(frame)
    return monitor.close(outcome, {"inputs": "test"})


def spoiled(frames: list[RawFrame], seed: int) -> list[RawFrame]:
    """Parts that go missing, NaN, stamps that repeat or go back."""
    rng = np.random.default_rng(seed)
    result = []
    for frame in frames:
        for part in ("base", "joints", "ee", "gripper", "contacts", "objects"):
            if rng.random() < 0.05:
                frame = replace(frame, **{part: None})  # type: ignore[arg-type]
        if frame.objects is not None and rng.random() < 0.1:
            distance = frame.objects.distance.copy()
            distance[2] = np.nan
            frame = replace(frame, objects=replace(frame.objects, distance=distance))
        if rng.random() < 0.05:
            frame = replace(frame, stamp_ns=frame.stamp_ns - int(rng.integers(0, 200_000_000)))
        result.append(frame)
    return result


@settings(max_examples=8)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 60), st.booleans()), min_size=1, max_size=4))
def test_episodes_judged_together_equal_the_live_monitor(parts: list[tuple[int, int, bool]]) -> None:
    for semantics in ("boolean", "quantitative"):
        made = replace(config(), gate_semantics=semantics)
        batch = BatchJudge(made)
        got: list[EpisodeRecord] = []
        expected = []
        for seed, steps, spoil in parts:
            frames = make_frames(seed, max(steps, 12))[:steps]
            frames = spoiled(frames, seed) if spoil else frames
            outcome = Outcome("success", "goal", steps)
            expected.append(live(frames, seed, made, outcome))
            begin = Begin(frames[0].stamp_ns, make_info(seed))
            got += batch.add(collect_frames(begin, frames, outcome, made, {"inputs": "test"}))
        got += batch.flush()
        assert all(same(a, b) for a, b in zip(got, expected, strict=True))


def test_clauses_with_memory_go_frame_by_frame_and_equal_the_live_monitor() -> None:
    made = config()
    changed = tuple(
        replace(c, template="always (once[0,0.2] (contact_force_max < {threshold}))")
        if c.id == "max_contact_force_under_200N"
        else c
        for c in made.library
    )
    made = replace(made, library=replace(made.library, clauses=changed))
    frames = make_frames(3, 60)
    outcome = Outcome("failure")
    batch = BatchJudge(made)
    begin = Begin(frames[0].stamp_ns, make_info(3))
    (got,) = [*batch.add(collect_frames(begin, frames, outcome, made, {"inputs": "test"})), *batch.flush()]
    assert same(got, live(frames, 3, made, outcome))


def test_short_decoders_give_what_the_message_objects_give() -> None:
    store = known_types()
    recorded = episode(with_frames=True, steps=30)
    seen = set()
    for item in recorded:
        if item.kind not in DECODERS:
            continue
        seen.add(item.kind)
        data = bytes(store.serialize_cdr(item.message, item.kind))
        message: Any = store.deserialize_cdr(data, item.kind)
        decode = fast_decoder(item.kind, lambda d, kind=item.kind: store.deserialize_cdr(d, kind))  # type: ignore[misc]
        assert decode is not None
        got = decode(data)
        assert got.stamp_ns == messages.stamp_of(message) and got.frame_id == messages.frame_of(message)
        part = {"/odom": "base", "/joint_states": "joints", "/ee_pose": "ee"}.get(item.topic, item.topic.strip("/"))
        if part == "safety_monitor/frame":
            assert same(got.value, messages.raw_frame(message))
            assert (got.episode_id, got.step) == (message.episode_id, message.step)
        else:
            assert same(got.value, messages.CONVERSIONS[part][item.kind](message))
        big = bytes(store.serialize_cdr(item.message, item.kind, little_endian=False))
        assert messages.stamp_of(decode(big)) == got.stamp_ns
        for end in range(4, len(data) - 8, 37):
            with pytest.raises((AssertionError, SerdeError, ValueError, IndexError, struct.error)):
                decode(data[:end])
    assert seen == set(DECODERS) - {"tf2_msgs/msg/TFMessage"}


def test_empty_joint_arrays_are_unknown_and_unequal_ones_refused() -> None:
    store = known_types()
    frame = make_frames()[0]
    state = next(r.message for r in topics_of(frame, 0) if r.topic == "/joint_states")
    kind = "sensor_msgs/msg/JointState"
    decode = fast_decoder(kind, lambda d: d)
    assert decode is not None
    empty = store.serialize_cdr(replace(state, effort=np.zeros(0)), kind)
    assert np.isnan(decode(bytes(empty)).value.effort).all()
    with pytest.raises(messages.Malformed, match="velocity has 1 elements, expected 2"):
        decode(bytes(store.serialize_cdr(replace(state, velocity=np.zeros(1)), kind)))


def test_only_the_layout_that_we_know_takes_the_short_way() -> None:
    text = "std_msgs/Header header\nfloat64 x\n" + "=" * 80 + "\nMSG: std_msgs/Header\n"
    text += "builtin_interfaces/Time stamp\nstring frame_id\n"
    other = MessageDefinition(MessageDefinitionFormat.MSG, text)
    assert not as_known("sensor_msgs/msg/JointState", other)
    assert as_known("sensor_msgs/msg/JointState", MessageDefinition(MessageDefinitionFormat.NONE, ""))


numbers = st.floats(-10, 10)
sevens = st.tuples(*[numbers] * 7).filter(lambda v: sum(x * x for x in v[3:]) > 0.1)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 40), sevens), min_size=1, max_size=12),
    st.integers(1, 40),
    sevens,
)
def test_the_transform_tree_equals_that_of_the_core(
    moves: list[tuple[str, int, tuple[float, ...]]], stamp: int, pose: tuple[float, ...]
) -> None:
    parents = {"a": "map", "b": "a", "c": "a", "d": "c"}
    tree, buffer = TransformTree(2 * 10**8), TransformBuffer(extrapolate_ns=2 * 10**8)
    fixed = (0.1, 0.2, 0.3, 0.0, 0.0, 0.6, 0.8)
    tree.set_fixed("b", "tool", fixed)
    buffer.set_fixed("b", "tool", Transform(np.array(fixed[:3]), np.array(fixed[3:])))
    for child, at, (x, y, z, *q) in moves:
        unit = tuple(float(v) for v in np.array(q) / np.sqrt(np.sum(np.square(q))))
        tree.set(parents[child], child, at * 10**7, (x, y, z, *unit))  # type: ignore[arg-type]
        buffer.set(parents[child], child, at * 10**7, Transform(np.array([x, y, z]), np.array(unit)))
    for target, source in (("map", "tool"), ("d", "b"), ("tool", "map"), ("map", "map"), ("map", "mars")):
        try:
            expected = buffer.lookup(target, source, stamp * 10**7)
        except UnknownFrameError as error:
            with pytest.raises(UnknownFrameError) as caught:
                tree.lookup(target, source, stamp * 10**7)
            assert str(caught.value) == str(error)
            continue
        got = tree.lookup(target, source, stamp * 10**7)
        assert same(np.array(got[:3]), expected.translation) and same(np.array(got[3:]), expected.rotation)
        position, orientation = apply(got, np.array(pose[:3]), np.array(pose[3:]))
        assert same(position, expected.points(np.array(pose[:3])))
        assert same(orientation, expected.orientations(np.array(pose[3:])))
