"""Incremental derivation against an independent reading of whole episodes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.signals.deriver import derive_batch
from osma_monitor.core.signals.raw import RawFrame, same
from osma_monitor.core.signals.schema import SCHEMA

from .signal_frames import NAN, STEP, about, base, contacts, joints, objects

NUMBERS = st.one_of(st.floats(-3, 3), st.just(NAN))
ROLES = ("target", "bystander", "obstacle", "human", "other")


@st.composite
def frames_of(draw: st.DrawFn) -> list[RawFrame]:
    names = draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=5))
    roles = {name: draw(st.sampled_from(ROLES)) for name in names}
    bodies = ("link", "hand", "wheel", "floor", "table", "mug", "baby")
    role_of = dict(zip(bodies, ("arm", "gripper", "base", "floor", "furniture", "target", "human"), strict=True))
    found = []
    for i in range(draw(st.integers(1, 7))):
        parts: dict[str, Any] = {}
        if draw(st.booleans()):
            parts["gripper"] = draw(st.sampled_from([True, False, None]))
        if draw(st.booleans()):
            rows = draw(st.lists(st.tuples(st.sampled_from(bodies), st.sampled_from(bodies), NUMBERS), max_size=4))
            parts["contacts"] = contacts(*((a, role_of[a], b, role_of[b], (f, f / 2, 1.0)) for a, b, f in rows))
        if draw(st.integers(0, 4)):
            present = [name for name in names if draw(st.integers(0, 5))]
            parts["objects"] = objects(
                *(
                    {
                        "id": name,
                        "role": roles[name],
                        "position": [draw(NUMBERS) for _ in range(3)],
                        "orientation": about(draw(st.sampled_from("xyz")), draw(st.floats(-180, 180))),
                        "distance": draw(NUMBERS),
                        "in_contact": draw(st.sampled_from([-1, 0, 1])),
                    }
                    for name in present
                )
            )
        if draw(st.booleans()):
            parts["base"] = base(draw(NUMBERS), draw(NUMBERS), draw(st.floats(-180, 180)), (draw(NUMBERS), 0.5, 0))
        if draw(st.booleans()):
            parts |= joints(j1=draw(NUMBERS), j2=draw(NUMBERS), finger=draw(NUMBERS))
        found.append(RawFrame((i + 1) * STEP + draw(st.integers(0, STEP // 2)), **parts))
    return found


class WholeEpisode:
    """An episode read at once, in the plainest way: the definitions of the tables, no state between frames."""

    def __init__(self, frames: list[RawFrame]) -> None:
        self.frames = frames

    def rows(self, frame: RawFrame, *roles: str) -> list[dict[str, Any]]:
        o = frame.objects
        if o is None:
            return []
        names = [f.name for f in dataclasses.fields(o)]
        rows = [{n: getattr(o, n)[i] for n in names} for i in range(len(o))]
        return [row for row in rows if row["role"] in roles]

    def gone(self, t: int, *roles: str) -> bool:
        """Something of these roles was listed before and is not now."""
        o = self.frames[t].objects
        seen = {row["id"] for f in self.frames[:t] for row in self.rows(f, *roles)}
        return o is None or bool(seen - set(o.id))

    def force(self, t: int, wanted: Any) -> float:
        c = self.frames[t].contacts
        if c is None:
            return NAN
        with_contacts = next(f for f in self.frames if f.contacts is not None)
        assert with_contacts.contacts is not None
        never = {frozenset((r, x)) for r in ("arm", "gripper", "base") for x in ("obstacle", "human", "target")}
        first = with_contacts.contacts
        static = {
            frozenset((a, b))
            for a, b, ra, rb in zip(first.body_a, first.body_b, first.role_a, first.role_b, strict=True)
            if frozenset((ra, rb)) not in never
        }
        forces = [0.0]
        for a, b, ra, rb, f in zip(c.body_a, c.body_b, c.role_a, c.role_b, c.force, strict=True):
            if frozenset((a, b)) in static or {ra, rb} == {"base", "floor"} or not wanted({ra, rb}):
                continue
            forces.append(math.sqrt(f[0] * f[0] + f[1] * f[1] + f[2] * f[2]))
        return NAN if any(math.isnan(f) for f in forces) else max(forces)

    def displacement(self, t: int) -> float:
        rows = self.rows(self.frames[t], "bystander")
        if not rows or self.gone(t, "bystander"):
            return NAN
        moved = []
        for row in rows:
            known = [
                p["position"]
                for f in self.frames[: t + 1]
                for p in self.rows(f, "bystander")
                if p["id"] == row["id"] and np.isfinite(p["position"]).all()
            ]
            moved.append(float(np.linalg.norm(row["position"] - known[0])) if known else NAN)
        return NAN if any(math.isnan(m) for m in moved) else max(moved)

    def height(self, t: int) -> float:
        grip = self.frames[t].gripper
        rows = self.rows(self.frames[t], "target")
        if grip is None or not rows or self.gone(t, "target"):
            return NAN
        heights = []
        for row in rows:
            baseline, started = NAN, False
            for f in self.frames[: t + 1]:
                for p in self.rows(f, "target"):
                    z = p["position"][2]
                    if (
                        p["id"] == row["id"]
                        and f.gripper is not None
                        and not math.isnan(z)
                        and (not f.gripper or (not started and f is self.frames[0]))
                    ):
                        baseline, started = z, True
            heights.append(row["position"][2] - baseline)
        return NAN if any(math.isnan(h) for h in heights) else max(heights, key=abs)

    def distance(self, t: int, *roles: str) -> float:
        rows = self.rows(self.frames[t], *roles)
        found = [row["distance"] for row in rows]
        if not rows or self.gone(t, *roles) or any(math.isnan(d) for d in found):
            return NAN
        return min(found)


@given(frames_of())
def test_incremental_derivation_equals_the_whole_episode(frames: list[RawFrame]) -> None:
    stamps, found = derive_batch(frames)
    assert list(stamps) == [f.stamp_ns for f in frames]
    whole = WholeEpisode(frames)
    for t, frame in enumerate(frames):
        expected = {
            "contact_force_max": whole.force(t, lambda roles: True),
            "arm_furniture_contact_force": whole.force(
                t, lambda roles: "furniture" in roles and bool(roles & {"arm", "gripper"})
            ),
            "target_furniture_contact_force": whole.force(t, lambda roles: roles == {"target", "furniture"}),
            "robot_human_force": whole.force(
                t, lambda roles: "human" in roles and bool(roles & {"arm", "gripper", "base"})
            ),
            "non_target_disp_max": whole.displacement(t),
            "obj_above_table": whole.height(t),
            "obstacle_distance": whole.distance(t, "obstacle", "human"),
            "human_distance": whole.distance(t, "human"),
            "gripper_contact": NAN if frame.gripper is None else float(frame.gripper),
            "max_joint_torque": NAN if frame.joints is None else float(np.max(np.abs(frame.joints.effort[:2]))),
        }
        for name, value in expected.items():
            assert found[name][t] == pytest.approx(value, abs=1e-12, nan_ok=True), (name, t)


@given(frames_of())
def test_derivation_repeats_to_the_last_bit_and_a_prefix_does_not_know_the_rest(frames: list[RawFrame]) -> None:
    once = derive_batch(frames)
    again = derive_batch(frames)
    assert same(dict(once[1]), dict(again[1]))
    half = derive_batch(frames[: len(frames) // 2])[1]
    for name in SCHEMA:
        assert same(half[name], once[1][name][: len(half[name])])
