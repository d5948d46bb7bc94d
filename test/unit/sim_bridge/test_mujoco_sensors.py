"""Contacts, torques and shapes as MujocoSensors reports them, against MuJoCo's own functions and statics."""

import mujoco
import numpy as np
import pytest

from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, contact_forces, geom_roles
from sim_bridge.simulation import BOX, CAPSULE

PILE = """
<mujoco>
  <option timestep="0.002" cone="{cone}"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1" condim="{dim}"/>
    <body name="box" pos="0 0 .1"><freejoint/>
      <geom name="box/0" type="box" size=".1 .1 .1" mass="2" condim="{dim}"/></body>
    <body name="ball" pos="0.03 0 .3"><freejoint/>
      <geom name="ball/0" type="sphere" size=".1" mass="1" condim="{dim}"/></body>
    <body name="rod" pos="0.5 0 .1" euler="0 20 0"><freejoint/>
      <geom name="rod/0" type="capsule" size=".05 .2" mass="1" condim="{dim}"/></body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("dim", [1, 3, 4, 6])
def test_forces_are_those_of_mj_contact_force(cone, dim):
    model = mujoco.MjModel.from_xml_string(PILE.format(cone=cone, dim=dim))
    data = mujoco.MjData(model)
    seen = 0
    for _ in range(200):
        mujoco.mj_step(model, data)
        c = data.contact
        if not data.ncon:
            continue
        forces = contact_forces(model.opt.cone, c.dim, c.friction, c.efc_address, data.efc_force)
        for i in range(data.ncon):
            expected = np.zeros(6)
            mujoco.mj_contactForce(model, data, i, expected)
            np.testing.assert_allclose(forces[i], expected[:3], atol=1e-9)
            seen += expected[0] > 0
    assert seen > 100


def test_a_resting_box_weighs_on_the_floor():
    model = mujoco.MjModel.from_xml_string(PILE.format(cone="elliptic", dim=3))
    data = mujoco.MjData(model)
    data.qpos[7:10] = [5, 5, 0.1]  # the ball away
    sensors = MujocoSensors(model, geom_roles(model, [("floor", "floor"), ("box", "obstacle")]))
    for _ in range(500):
        mujoco.mj_step(model, data)
    sensors.record(data)
    contacts, _, _ = sensors.contacts()
    i = contacts.body_b.index("box/0")
    assert (contacts.body_a[i], contacts.role_a[i], contacts.role_b[i]) == ("floor", "floor", "obstacle")
    np.testing.assert_allclose(contacts.force[i], [0, 0, 2 * 9.81], atol=0.05)  # on the second body: upwards
    assert sensors.contacts()[0].body_a == ()  # reported once


HAMMER = """
<mujoco>
  <option timestep="0.002" gravity="0 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <body name="thing" pos="0 0 .5"><freejoint/><geom name="thing/0" type="box" size=".1 .1 .1" mass="5"/></body>
    <body name="robot" pos="-.35 0 .5"><joint type="slide" axis="1 0 0"/>
      <geom name="robot/0" type="sphere" size=".1" mass="10"/></body>
  </worldbody>
</mujoco>"""


def test_peak_over_substeps_with_its_vector_and_the_robot_first():
    model = mujoco.MjModel.from_xml_string(HAMMER)
    data = mujoco.MjData(model)
    data.qvel[6] = 2.0
    sensors = MujocoSensors(
        model,
        geom_roles(model, [("robot", "base"), ("thing", "human"), ("floor", "floor")]),
        [TrackedObject("thing", "baby", "human", "thing")],
    )
    highest = np.zeros(3)
    for _ in range(100):
        mujoco.mj_step(model, data)
        sensors.record(data)
        total = np.zeros(3)
        for i in range(data.ncon):
            force = np.zeros(6)
            mujoco.mj_contactForce(model, data, i, force)
            # the frame's normal points from the first geom to the second
            sign = 1 if model.geom(data.contact[i].geom2).name == "thing/0" else -1
            total += sign * data.contact[i].frame.reshape(3, 3).T @ force[:3]
        if np.linalg.norm(total) > np.linalg.norm(highest):
            highest = total
    contacts, touching, fingers = sensors.contacts()
    assert contacts.body_a == ("robot/0",) and contacts.body_b == ("thing/0",)
    assert contacts.role_a == ("base",) and contacts.role_b == ("human",)
    np.testing.assert_allclose(contacts.force[0], highest, rtol=1e-12)
    assert contacts.force[0, 0] > 100  # pushes the thing forward
    assert touching.tolist() == [1] and fingers is False
    assert sensors.report(data, touching).in_contact.tolist() == [1]


def test_roles_match_geom_body_and_ancestors_first_rule_wins():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/><body name="arm"><geom name="a" size=".1"/>'
        '<body name="hand"><geom name="b" size=".1"/><geom name="pad_1" size=".1"/></body></body></worldbody></mujoco>'
    )
    assert geom_roles(model, [("pad_*", "gripper"), ("arm", "arm"), ("floor", "floor")]) == (
        "floor",
        "arm",
        "arm",
        "gripper",
    )


def test_shapes_are_primitives_in_the_object_frame():
    model = mujoco.MjModel.from_xml_string(PILE.format(cone="elliptic", dim=3))
    sensors = MujocoSensors(
        model,
        geom_roles(model, []),
        [TrackedObject("rod", "rod", "obstacle", "rod"), TrackedObject("box", "box", "obstacle", "box")],
    )
    shapes = sensors.shapes()
    assert shapes.id == ("rod", "box") and shapes.primitive == (CAPSULE, BOX)
    np.testing.assert_allclose(shapes.dimensions, [[0.05, 0.2, 0.0], [0.1, 0.1, 0.1]])
    np.testing.assert_allclose(shapes.orientation, [[0, 0, 0, 1]] * 2)
