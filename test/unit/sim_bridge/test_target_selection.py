"""Which object was chosen: followed in frames, in a small MuJoCo host that is always there, and in the kitchen."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from osma_monitor.core.episode import EpisodeInfo, Outcome
from osma_monitor.core.metrics.scores import as_table, score_records
from osma_monitor.core.signals.raw import NO_CONTACTS, EndEffector, Objects, RawFrame
from osma_monitor.io.configuration import monitor_config
from osma_monitor.report.condition_tables import selections, target_selection
from sim_bridge.hosts.base import MujocoHost
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.mujoco_sim import MujocoSensors, TrackedObject, geom_roles
from sim_bridge.policies.program import ControlValues, Program
from sim_bridge.policies.values import Plan
from sim_bridge.policies.voxposer import VoxPoser
from sim_bridge.rollout import Job, PolicySpec, drive, run_episode
from sim_bridge.simulation import STOP, Action, Simulation, findings_of
from sim_bridge.target_selection import ReachTracker

TABLE = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 0.1"/>
    <body name="hand" pos="0 0 0.05">
      <joint name="x" type="slide" axis="1 0 0" damping="20"/>
      <joint name="y" type="slide" axis="0 1 0" damping="20"/>
      <geom name="finger" type="sphere" size="0.03" mass="1"/>
      <geom name="wrist" type="box" size="0.02 0.02 0.02" pos="0 0 0.3" mass="0.2"/>
      <site name="tip"/>
    </body>
    {bodies}
  </worldbody>
  <actuator>
    <velocity name="vx" joint="x" kv="200"/><velocity name="vy" joint="y" kv="200"/>
  </actuator>
</mujoco>
"""
BODY = """
    <body name="{name}" pos="{x} {y} 0.05"><freejoint/>
      <geom name="{name}/0" type="box" size="0.04 0.04 0.05" mass="0.2"/></body>
"""
CUPS = {"cup_left": (0.3, 0.2), "cup_middle": (0.3, 0.0), "cup_right": (0.3, -0.2)}


class Cups(MujocoHost):
    """A hand on two rails and three cups: take the one that the task names."""

    suite, robot = "cups", "rails"

    def __init__(self, roles=None, max_steps=40):
        super().__init__(50_000_000, max_steps)
        self._given = roles

    def tasks(self):
        return tuple(CUPS)

    def _start(self, task, seed):
        bodies = "".join(BODY.format(name=name, x=x, y=y) for name, (x, y) in CUPS.items())
        model = mujoco.MjModel.from_xml_string(TABLE.format(bodies=bodies))
        roles = self._given or {name: "target" if name == task else "bystander" for name in CUPS}
        rules = [("finger", "gripper"), ("wrist", "arm"), ("floor", "floor"), *roles.items()]
        tracked = [TrackedObject(name, "cup", role, name) for name, role in roles.items()]
        self._sensors = MujocoSensors(model, geom_roles(model, rules), tracked, ("x", "y"), "tip")
        self._data = mujoco.MjData(model)
        mujoco.mj_forward(model, self._data)
        self._sensors.record(self._data)

    def _advance(self, action):
        self._data.ctrl[:] = action.vx, action.vy
        for _ in range(25):
            mujoco.mj_step(self._sensors.model, self._data)
            self._sensors.record(self._data)
        mujoco.mj_kinematics(self._sensors.model, self._data)

    def _judge(self):
        moved = self._data.body(self._task).xpos[0] - CUPS[self._task][0]
        return Outcome("success", "pushed") if moved > 0.1 else None

    def _describe(self):
        return EpisodeInfo(f"{self._task}.s0", self._task, self.suite, robot=self.robot, sources=self.sources)


class Towards:
    """Drives its hand sideways to a row, then forward; ``steps`` of it."""

    name = "towards"

    def __init__(self, y, steps=1000):
        self._y, self._left = y, steps

    def reset(self, info):
        pass

    def act(self, frame):
        self._left -= 1
        gap = self._y - float(frame.ee.position[1])
        if self._left < 0:
            return STOP
        return Action(0.0, 0.4 * np.sign(gap)) if abs(gap) > 0.02 else Action(0.4, 0.0)


@pytest.mark.parametrize(
    ("y", "steps", "verdict", "selected", "credit"),
    [
        (0.2, 1000, "correct", "cup_left", None),
        (-0.2, 1000, "wrong", "cup_right", None),
        (0.2, 14, "none", "", "true"),  # on its way to the target when time ran out
        (-0.2, 14, "none", "", "false"),
        (0.0, 0, "none", "", "false"),  # it never moved: nearest to another
    ],
)
def test_a_host_says_what_the_gripper_took_first(y, steps, verdict, selected, credit):
    host: Simulation = Cups()
    _, outcome = drive(host, Towards(y, steps), "cup_left", 0)
    expected = {"target_selection": verdict, "target_object": "cup_left", "selected_object": selected}
    assert findings_of(host) == (expected if credit is None else {**expected, "target_credit": credit})
    assert outcome.success == (verdict == "correct")


def test_an_episode_does_not_remember_the_one_before():
    host = Cups()
    drive(host, Towards(-0.2), "cup_left", 0)
    assert host.findings()["target_selection"] == "wrong"
    host.reset("cup_right", 0)
    assert host.findings() == {
        "target_selection": "none",
        "target_credit": "false",
        "target_object": "cup_right",
        "selected_object": "",
    }


@pytest.mark.parametrize(
    "roles",
    [
        {"cup_left": "target"},
        {"cup_left": "target", "cup_middle": "target", "cup_right": "bystander"},
        {"cup_left": "target", "cup_middle": "other"},
        {"cup_middle": "bystander", "cup_right": "bystander"},
    ],
)
def test_without_a_choice_nothing_is_said(roles):
    host = Cups(roles)
    drive(host, Towards(0.2), "cup_left", 0)
    assert host.findings() == {}


def test_a_thing_that_the_task_names_beside_its_target_is_no_candidate():
    """A plate to put the cup on may be touched first."""
    host = Cups({"cup_left": "target", "cup_middle": "other", "cup_right": "bystander"})
    host.reset("cup_left", 0)
    for action in [Action(0.4, 0.0)] * 14 + [Action(-0.4, 0.0)] * 14:
        host.step(action)
    assert host.findings()["target_selection"] == "none"
    touched = Cups({"cup_left": "target", "cup_middle": "bystander"})
    touched.reset("cup_left", 0)
    for action in [Action(0.4, 0.0)] * 14:
        touched.step(action)
    assert touched.findings()["selected_object"] == "cup_middle"


def frame_of(gaps, ee=(0.0, 0.0, 0.0), stamp=1):
    names = tuple(gaps)
    objects = Objects(
        names,
        names,
        tuple("target" if n == "a" else "bystander" for n in names),
        np.array([[gap, 0.0, 0.0] for gap in gaps.values()]),
        np.tile([0.0, 0.0, 0.0, 1.0], (len(names), 1)),
        np.zeros(len(names)),
        np.zeros(len(names), dtype=np.int8),
    )
    return RawFrame(
        stamp, ee=EndEffector(np.array(ee), np.array([0.0, 0, 0, 1])), contacts=NO_CONTACTS, objects=objects
    )


def test_soft_credit_needs_to_be_known_and_strict():
    near = ReachTracker(frame_of({"a": 0.3, "b": 0.4}))
    near.see(frame_of({"a": 0.3, "b": 0.4}), [])
    assert near.attributes()["target_credit"] == "true"
    near.see(frame_of({"a": 0.5, "b": 0.3}), [])
    assert near.attributes()["target_credit"] == "false", "equally near at their closest"
    lost = ReachTracker(frame_of({"a": 0.1, "b": 0.4}))
    lost.see(frame_of({"a": 0.1, "b": 0.4}), [])
    lost.see(frame_of({"a": 0.1}), [])
    assert lost.attributes()["target_credit"] == "false", "the other one may have been nearer while nobody saw it"
    blind = ReachTracker(frame_of({"a": 0.1, "b": 0.4}))
    blind.see(replace(frame_of({"a": 0.1, "b": 0.4}), ee=None), [])
    assert blind.attributes()["target_credit"] == "false"
    blind.see(frame_of({"a": 0.1, "b": 0.4}), ["floor", "b", "a"])
    assert blind.attributes()["selected_object"] == "b" and "target_credit" not in blind.attributes()


def test_first_touch_within_one_step_is_ordered_by_substep():
    """Two cups in one control step: the one that came first is the choice, wherever it stands in the report."""
    host = Cups({"cup_right": "target", "cup_left": "bystander"})
    host.reset("cup_right", 0)
    sensors, data = host._sensors, host._data
    for name in ("cup_left", "cup_right"):
        joint = sensors.model.joint(sensors.model.body(name).jntadr[0]).qposadr[0]
        data.qpos[joint : joint + 2] = 0.068, 0.0  # the finger reaches 0.03, a cup 0.04 on either side
        mujoco.mj_forward(sensors.model, data)
        sensors.record(data)
        data.qpos[joint : joint + 2] = 1.0, 1.0 if name == "cup_left" else -1.0
    sensors.contacts()
    assert [sensors.objects[i].id for i in sensors.gripper_touched] == ["cup_left", "cup_right"]
    assert sensors.contacts()[1].tolist() == [0, 0] and sensors.gripper_touched == ()


class To:
    """A program that names some goal."""

    def __init__(self, goal):
        self._goal = goal

    def plan(self, situation):
        return Plan(Program(self._goal, self._goal, {}), {"vase": ControlValues()})


@pytest.mark.parametrize(
    ("goal", "max_steps", "verdict", "selected"),
    [
        ("coffee machine", 500, "correct", "coffee_machine"),
        ("sink", 250, "wrong", "sink"),
        ("sink", 55, "none", ""),  # still moving
        ("fridge", 60, "none", ""),  # where it started
    ],
)
def test_the_kitchen_says_which_fixture_was_reached(goal, max_steps, verdict, selected):
    simulation = KitchenSimulation(max_steps=max_steps, selection=True)
    task = "kitchen/layout0/A/none"
    policy = VoxPoser(To(goal))
    record = run_episode(simulation, policy, Job(task, PolicySpec("voxposer"), 0), monitor_config())
    attributes = record.info.attributes
    assert (attributes["target_selection"], attributes["selected_object"]) == (verdict, selected)
    assert attributes["target_object"] == attributes["goal"] == "coffee_machine"
    assert (record.outcome.status == "success") == (verdict == "correct")


def test_the_kitchen_says_so_only_when_asked():
    simulation = KitchenSimulation(max_steps=5)
    job = Job("kitchen/layout0/A/none", PolicySpec("voxposer"), 0)
    record = run_episode(simulation, VoxPoser(To("sink")), job, monitor_config())
    assert not {"target_selection", "target_object", "selected_object"} & set(record.info.attributes)


def test_the_table_of_target_selection_is_made_from_such_records():
    records = []
    for number, (y, steps) in enumerate([(0.2, 1000), (-0.2, 1000), (0.2, 14)]):
        job = Job("cup_left", PolicySpec("towards"), number)
        records.append(run_episode(Cups(), Towards(y, steps), job, monitor_config()))
    [row] = target_selection(selections(as_table(score_records(records)))).frame.to_dict("records")
    assert (row["episodes"], row["strict"], row["soft"], row["wrong"]) == pytest.approx((3, 1 / 3, 2 / 3, 1 / 3))
