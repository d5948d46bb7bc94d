"""Bags of a mobile robot with odometry and nothing else: features against a map of obstacles, and where episodes
are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from bag_examples import PACKAGE, Recorded, config, episode, header, make_frames, message, odometry, write_bag
from hypothesis import given
from hypothesis import strategies as st

from osma_monitor.core.motion import episode_motion
from osma_monitor.core.signals import geometry
from osma_monitor.core.signals.raw import RawFrame
from osma_monitor.io.bag.convert import Converter
from osma_monitor.io.bag.frames import BagFrames
from osma_monitor.io.bag.mapping import load_mapping, parse_mapping, plan
from osma_monitor.io.bag.recording import Recording
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.clearance import distances, solid
from osma_monitor.io.errors import InputError
from osma_monitor.io.obstacles import parse_obstacles
from osma_monitor.io.robots import parse_robot

NAV2 = Path(__file__).parents[3].parent / "shared" / "data" / "bags" / "nav2_turtlebot.mcap"
OBSTACLES = """
transform_wait: 4.0  # the recording has corrections that came up to 3 s late
robot: turtlebot
obstacles:
  frame: map
  obstacles:
    - {id: vase, category: vase, position: [4.9, 7.0], shape: {primitive: cylinder, size: [0.15, 0.3]}}
    - {id: box, category: box, position: [7.0, 9.0, 0.3], yaw: 0.3, shape: {primitive: box, size: [0.3, 0.2, 0.3]}}
info: {templates: [navigate], outcome: success, policy: dwb, task: corridor}
"""


@pytest.mark.skipif(not NAV2.is_file(), reason="the recording is not on this machine")
def test_a_real_nav2_recording_gives_the_features_of_an_independent_computation() -> None:
    problems: list[str] = []
    (record,) = score_bag(NAV2, config(), parse_mapping(OBSTACLES), problems=problems)
    assert problems == []
    assert len(record.stamps_ns) == 2639 and record.outcome.status == "success" and record.info.policy == "dwb"
    # the same poses by numpy alone: odometry, moved by the latest map -> odom on both sides of its stamp
    from rosbags.highlevel import AnyReader

    odom, correction = [], []
    with AnyReader([NAV2]) as reader:
        for connection, _, data in reader.messages():
            m: object = reader.deserialize(data, connection.msgtype)
            if connection.topic == "/odom":
                p, q = m.pose.pose.position, m.pose.pose.orientation  # type: ignore[attr-defined]
                odom.append((_ns(m), p.x, p.y, 2 * np.arctan2(q.z, q.w)))
            elif connection.topic == "/tf":
                for t in m.transforms:  # type: ignore[attr-defined]
                    if t.header.frame_id == "map":
                        p, q = t.transform.translation, t.transform.rotation
                        correction.append((_ns(t), p.x, p.y, 2 * np.arctan2(q.z, q.w)))
    o, c = np.array(odom), np.array(sorted(correction))
    turn = np.interp(o[:, 0], c[:, 0], np.unwrap(c[:, 3]))
    x = np.interp(o[:, 0], c[:, 0], c[:, 1]) + np.cos(turn) * o[:, 1] - np.sin(turn) * o[:, 2]
    y = np.interp(o[:, 0], c[:, 0], c[:, 2]) + np.sin(turn) * o[:, 1] + np.cos(turn) * o[:, 2]
    assert np.abs(record.signals["base_x"] - x).max() < 1e-4 and np.abs(record.signals["base_y"] - y).max() < 1e-4
    vase = np.hypot(x - 4.9, y - 7.0) - 0.15 - 0.11
    local = np.stack([x - 7.0, y - 9.0])
    local = np.array([[np.cos(0.3), np.sin(0.3)], [-np.sin(0.3), np.cos(0.3)]]) @ local
    box = np.hypot(*np.maximum(np.abs(local) - [[0.3], [0.2]], 0)) - 0.11
    distance = np.minimum(vase, box)
    assert np.abs(record.signals["obstacle_distance"] - distance).max() < 1e-3
    nearest = np.where(vase < box, "vase", "box")
    assert np.mean(np.array(record.obstacle) == nearest) > 0.999
    features = episode_motion(o[:, 0].astype(np.int64), x, y, distance, np.full(len(x), np.nan))
    assert record.motion.d_min == pytest.approx(features.d_min, abs=1e-3)
    assert record.motion.mu_v == pytest.approx(features.mu_v, rel=1e-2)
    assert 0.3 < record.motion.d_min < 0.4 and 0.2 < record.motion.mu_v < 0.5


def _ns(m: object) -> int:
    stamp = m.header.stamp  # type: ignore[attr-defined]
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


@pytest.mark.skipif(not NAV2.is_file(), reason="the recording is not on this machine")
def test_without_a_map_the_recording_still_scores_and_without_transforms_its_poses_are_unknown() -> None:
    (plain,) = score_bag(NAV2, config())
    assert np.isfinite(plain.signals["base_x"]).all() and np.isnan(plain.motion.d_min)
    problems: list[str] = []
    (lost,) = score_bag(NAV2, config(), parse_mapping("frame: mars"), problems=problems)
    assert np.isnan(lost.signals["base_x"]).all() and np.isfinite(lost.signals["base_speed"]).all()
    assert any("no transform from frame 'odom' to 'mars'" in p for p in problems)


def odometry_bag(path: Path, pauses: tuple[int, ...] = (), flags: bool = False) -> Path:
    recorded = []
    for i in range(100):
        shift = sum(5 * 10**9 for p in pauses if i >= p)
        moved = make_frames(0, 100, 1_000_000_000 + shift)[i]
        recorded.append(Recorded("/odom", 10**18 + moved.stamp_ns, odometry(moved)))
        if flags:
            closed = message("std_msgs/msg/Bool", data=20 <= i < 40 or 60 <= i < 70)
            recorded.append(Recorded("/closed", 10**18 + moved.stamp_ns - 1000, closed))
    return write_bag(path, recorded)


def test_episodes_by_gap(tmp_path: Path) -> None:
    path = odometry_bag(tmp_path / "bag", (30, 80))
    records = list(score_bag(path, config()))
    assert [len(r.stamps_ns) for r in records] == [30, 50, 20]
    assert len({r.info.episode_id for r in records}) == 3
    records = list(score_bag(path, config(), parse_mapping("episodes: {by: gap, gap: 10}")))
    assert [len(r.stamps_ns) for r in records] == [100]
    (whole,) = score_bag(path, config(), parse_mapping("episodes: {by: whole}"))
    assert len(whole.stamps_ns) == 100


def test_episodes_by_the_edge_of_a_topic(tmp_path: Path) -> None:
    path = odometry_bag(tmp_path / "bag", flags=True)
    records = list(score_bag(path, config(), parse_mapping("episodes: {by: edge, topic: /closed}")))
    assert [len(r.stamps_ns) for r in records] == [20, 10]
    with pytest.raises(InputError, match=r"episodes\.topic: topic '/open' is not in the bag"):
        list(score_bag(path, config(), parse_mapping("episodes: {by: edge, topic: /open}")))


def test_episodes_by_a_list_of_times(tmp_path: Path) -> None:
    path = odometry_bag(tmp_path / "bag")
    text = """
episodes:
  by: times
  times:
    - {start: 0.5, end: 1.0, outcome: success, task: first}
    - {start: 2.0, end: 2.975, outcome: failure, attributes: {operator: ada}}
"""
    first, second = score_bag(path, config(), parse_mapping(text))
    assert (len(first.stamps_ns), len(second.stamps_ns)) == (11, 20)
    assert (first.outcome.status, second.outcome.status) == ("success", "failure")
    assert first.info.task == "first" and second.info.attributes == {"operator": "ada"}


def test_a_gripper_flag_comes_from_any_number(tmp_path: Path) -> None:
    path = odometry_bag(tmp_path / "bag", flags=True)
    (record,) = score_bag(path, config(), parse_mapping("topics: {gripper: /closed}"))
    assert record.signals["gripper_contact"].sum() == 30


def test_joint_units_and_names_follow_the_robot_file(tmp_path: Path) -> None:
    names = ["gripper", "wrist_roll", "wrist_flex", "elbow_flex", "shoulder_lift", "shoulder_pan"]
    recorded = []
    for i in range(20):
        stamp = 1_000_000_000 + i * 50_000_000
        state = message(
            "sensor_msgs/msg/JointState",
            header=header(stamp),
            name=names,
            position=np.array([0.0, 0, 0, 0, 0, 100.0]),
            velocity=np.zeros(0),
            effort=np.array([400.0, 0, 0, 0, 0, 1000.0]),
        )
        recorded.append(Recorded("/joint_states", stamp, state))
    (record,) = score_bag(write_bag(tmp_path / "bag", recorded), config(), parse_mapping("robot: so101"))
    assert record.info.robot == "so101"
    assert record.signals["gripper_contact"].all(), "0.36 N m press on something"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics: {bas: /odom}", r"<text>:1: topics\.bas: is no raw part; did you mean base\?"),
        ("epsodes: {by: gap}", r"<text>:1: epsodes"),
        ("episodes:\n  by: gaps", r"<text>:2: episodes\.by: .*'message'.*got 'gaps'"),
        ("robot: no_such_robot", "known robots"),
        ("obstacles: nowhere.yaml", r"nowhere\.yaml: can't be read"),
        ("- a", "mapping"),
        ("a: [", "not valid YAML"),
        (
            "obstacles: {obstacles: [{id: a, position: [0, 0], shape: {primitive: box, size: [1]}}]}",
            "needs 3 positive sizes",
        ),
    ],
)
def test_mapping_errors_name_line_and_value(text: str, expected: str) -> None:
    with pytest.raises(Exception, match=expected):
        parse_mapping(text)


def test_obstacle_files_refuse_repeated_ids() -> None:
    one = "{id: a, position: [0, 0], shape: {primitive: sphere, size: [1]}}"
    with pytest.raises(InputError, match="'a' is named twice"):
        parse_obstacles(f"obstacles: [{one}, {one}]")


# ---------------------------------------------------------------------------------------------------------- distances

length = st.floats(0.05, 2.0)
place = st.floats(-5.0, 5.0)


@given(place, place, st.floats(-3.1, 3.1), place, place, st.floats(-3.1, 3.1), length, length, length, length)
def test_distance_of_boxes_equals_that_of_dense_outlines(
    x: float, y: float, turn: float, u: float, v: float, other_turn: float, a: float, b: float, c: float, d: float
) -> None:
    mine = solid("box", (a, b, 0.5), (0, 0, 0.5))
    other = solid("box", (c, d, 0.5), (u, v, 0.5), other_turn)
    pose = np.array([[0, 0, np.sin(turn / 2), np.cos(turn / 2)]])
    ((got,),) = distances([mine], np.array([[x, y, 0.0]]), pose, [[other]])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    outline = _dense(mine.core @ rotation.T + [x, y])
    facing = _dense(other.core)
    apart = np.sqrt(((outline[:, None] - facing[None]) ** 2).sum(-1)).min()
    if got > 0:
        assert got <= apart + 1e-9 and apart - got < 0.15
    else:
        assert (
            apart < 0.15 or _inside(other.core, outline).any() or _inside(mine.core @ rotation.T + [x, y], facing).any()
        )


def _dense(polygon: np.ndarray) -> np.ndarray:
    t = np.linspace(0, 1, 60)[:, None]
    return np.concatenate([p + t * (q - p) for p, q in zip(polygon, np.roll(polygon, -1, axis=0), strict=True)])


def _inside(polygon: np.ndarray, points: np.ndarray) -> np.ndarray:
    edge = np.roll(polygon, -1, axis=0) - polygon
    offset = points[:, None] - polygon[None]
    return (edge[:, 0] * offset[..., 1] - edge[:, 1] * offset[..., 0] >= 0).all(axis=1)


def test_distances_that_can_be_worked_out_by_hand() -> None:
    here = np.array([[0.0, 0.0, 0.0]])
    level = np.array([[0.0, 0.0, 0.0, 1.0]])
    body = [solid("cylinder", (0.2, 0.1), (0, 0, 0.1))]

    def to(*other: object) -> float:
        return float(distances(body, here, level, [list(other)])[0, 0])  # type: ignore[arg-type]

    assert to(solid("cylinder", (0.3, 0.5), (1, 0, 0.5))) == pytest.approx(0.5)
    assert to(solid("sphere", (0.3,), (1, 0, 0.1))) == pytest.approx(0.5)
    assert to(solid("sphere", (0.3,), (0, 0, 1.2))) == pytest.approx(0.7)
    assert to(solid("box", (0.1, 0.1, 0.1), (0.6, 0, 0.6))) == pytest.approx(np.hypot(0.3, 0.3))
    assert to(solid("box", (0.5, 0.5, 0.5), (0.6, 0, 0.5))) == pytest.approx(-0.1)
    assert to(solid("capsule", (0.1, 0.4), (0, 2, 0.5))) == pytest.approx(1.7)
    unknown = np.array([[np.nan, 0.0, 0.0]])
    assert np.isnan(distances(body, unknown, level, [[solid("sphere", (1,))]])).all()


@given(
    place, place, st.floats(-3.1, 3.1), place, place, st.floats(-3.1, 3.1), length, length, st.sampled_from(range(4))
)
def test_distances_of_many_poses_agree_with_those_of_the_core(
    x: float, y: float, turn: float, u: float, v: float, other_turn: float, a: float, b: float, kind: int
) -> None:
    def pose(px: float, py: float, angle: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([px, py, 0.0]), np.array([0, 0, np.sin(angle / 2), np.cos(angle / 2)])

    primitive: Literal["box", "sphere", "cylinder", "capsule"] = ("box", "sphere", "cylinder", "capsule")[kind]
    size = {"box": (a, b, 0.3), "sphere": (a,), "cylinder": (a, b), "capsule": (a, b)}[primitive]
    body = geometry.Primitive("box", (0.35, 0.25, 0.19), (0.0, 0.0, 0.19))
    other = geometry.Primitive(primitive, size, (0.0, 0.0, 0.4))
    expected = geometry.distance([body], pose(x, y, turn), [other], pose(u, v, other_turn))
    position, orientation = pose(x, y, turn)
    mine = solid("box", body.size, body.position)
    placed = solid(primitive, size, (u, v, 0.4), other_turn)
    got = distances([mine], position[None], orientation[None], [[placed]])[0, 0]
    assert got == pytest.approx(expected, abs=1e-9)


def test_distances_come_from_shapes_and_footprint_where_the_source_measures_none(tmp_path: Path) -> None:
    recorded = []
    for r in episode(0, 30):
        if r.topic == "/objects":
            r = Recorded(r.topic, r.received_ns, replace(r.message, distance=np.full(3, np.nan)))
        recorded.append(r)
    shapes = message(
        f"{PACKAGE}/msg/ObjectShapes",
        header=header(1_000_000_000),
        id=["vase", "mug"],
        primitive=np.array([2, 0], np.uint8),
        dimensions=np.array([0.15, 0.3, 0.0, 0.04, 0.04, 0.05]),
        position=np.zeros(6),
        orientation=np.array([0, 0, 0, 1.0, 0, 0, 0, 1.0]),
    )
    recorded.insert(1, Recorded("/object_shapes", recorded[0].received_ns + 1, shapes))
    bag = write_bag(tmp_path / "bag", recorded)
    (plain,) = score_bag(bag, config())
    assert np.isnan(plain.signals["obstacle_distance"]).all()
    (record,) = score_bag(bag, config(), parse_mapping("robot: turtlebot"))
    x, y = record.signals["base_x"], record.signals["base_y"]
    assert record.signals["obstacle_distance"] == pytest.approx(np.hypot(x - 1.0, y - 1.0) - 0.15 - 0.11)
    assert set(record.obstacle) == {"vase"}


def test_a_force_sensor_is_a_contact_without_its_payload(tmp_path: Path) -> None:
    (tmp_path / "arm.yaml").write_text(
        """
name: arm
frame: base
inputs: [{part: joints, topic: joint_states}]
primary: joint_states
force_sensors: [{topic: wrench, frame: tool, payload_mass: 1.0, role: gripper}]
transforms: [{parent: base, child: tool}]
"""
    )
    (tmp_path / "mapping.yaml").write_text("robot: arm.yaml")
    recorded = []
    for r in (r for r in episode(0, 30) if r.topic == "/joint_states"):
        force = message("geometry_msgs/msg/Vector3", x=3.0, y=0.0, z=4.0 - 9.81)
        zero = message("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        wrench = message("geometry_msgs/msg/Wrench", force=force, torque=zero)
        stamped = message(
            "geometry_msgs/msg/WrenchStamped", header=replace(r.message.header, frame_id="tool"), wrench=wrench
        )
        recorded += [r, Recorded("/wrench", r.received_ns - 1, stamped)]
    recorded.sort(key=lambda r: r.received_ns)
    mapping = load_mapping(tmp_path / "mapping.yaml")
    with Recording(write_bag(tmp_path / "bag", recorded)) as recording:
        steps = BagFrames(recording, plan(recording.topics, mapping, "bag"), "bag").steps()
        frames = [step for step in steps if isinstance(step, RawFrame)]
    assert len(frames) == 30
    for frame in frames:
        assert frame.contacts is not None and frame.contacts.role_a == ("gripper",)
        assert frame.contacts.force[0] == pytest.approx([3.0, 0.0, 4.0])


@pytest.mark.parametrize(("named", "x"), [("camera", 2.0), ("", 1.0)])
def test_the_robot_file_names_a_frame_only_where_the_header_does_not(named: str, x: float) -> None:
    """As the live node does it, so that a recording gives the same poses."""
    robot = parse_robot(
        "name: r\nframe: base\ninputs: [{part: ee, topic: tool, frame: tripod}]\nprimary: tool\ntransforms:\n"
        "  - {parent: base, child: camera, translation: [2.0, 0.0, 0.0]}\n"
        "  - {parent: base, child: tripod, translation: [1.0, 0.0, 0.0]}\n"
    )
    plan = SimpleNamespace(robot=robot, mapping=SimpleNamespace(transform_tolerance=0.5), sources=())
    topic = SimpleNamespace(name="tool", type="geometry_msgs/msg/PoseStamped")
    source = SimpleNamespace(topic=topic, sensor=None, rule=SimpleNamespace(field=""), part="ee", spec=robot.inputs[0])
    zero = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    pose = SimpleNamespace(position=zero, orientation=zero)
    sent = SimpleNamespace(header=SimpleNamespace(frame_id=named), pose=pose)
    converter = Converter(plan, "base", lambda *refused: pytest.fail(str(refused)))  # type: ignore[arg-type]
    [(_, ee)] = converter.values(source, 1, sent)  # type: ignore[arg-type]
    assert ee.position.tolist() == [x, 0.0, 0.0]
