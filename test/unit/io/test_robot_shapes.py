"""Footprints from URDF and MJCF: what belongs to the base, where it sits, what is left out, wrong files."""

import struct
from pathlib import Path

import numpy as np
import pytest

from osma_monitor.core.errors import UserError
from osma_monitor.core.signals.geometry import Primitive, rotation
from osma_monitor.core.signals.geometry import distance as surface_distance
from osma_monitor.io import mjcf, xml_tree
from osma_monitor.io.clearance import distances, solid
from osma_monitor.io.obstacles import footprint_solids
from osma_monitor.io.robot_shapes import model_shapes
from osma_monitor.io.robots import load_robot

URDF = """<?xml version="1.0"?>
<robot name="cart">
  <link name="base_footprint"/>
  <link name="base_link">
    <collision><origin xyz="0.1 0 0.2" rpy="0 0 1.5707963267948966"/>
      <geometry><box size="0.6 0.4 0.3"/></geometry></collision>
    <collision><geometry><sphere radius="0.05"/></geometry></collision>
  </link>
  <joint name="up" type="fixed"><parent link="base_footprint"/><child link="base_link"/>
    <origin xyz="0 0 0.1"/></joint>
  <link name="mast"><collision><origin rpy="0.3 0.2 0.1"/>
    <geometry><cylinder radius="0.03" length="1.0"/></geometry></collision></link>
  <joint name="mount" type="fixed"><parent link="base_link"/><child link="mast"/>
    <origin xyz="-0.1 0.05 0.6" rpy="0.4 -0.2 0.7"/></joint>
  <link name="wheel"><collision><origin rpy="1.5707963267948966 0 0"/>
    <geometry><cylinder radius="0.1" length="0.04"/></geometry></collision></link>
  <joint name="drive" type="continuous"><parent link="base_link"/><child link="wheel"/>
    <origin xyz="0 0.25 0"/><axis xyz="0 1 0"/></joint>
  <link name="crank"><collision><origin xyz="0.1 0 0"/>
    <geometry><cylinder radius="0.1" length="0.04"/></geometry></collision></link>
  <joint name="turn" type="continuous"><parent link="base_link"/><child link="crank"/><axis xyz="0 1 0"/></joint>
  <link name="arm"><collision><geometry><box size="1 1 1"/></geometry></collision></link>
  <joint name="shoulder" type="revolute"><parent link="mast"/><child link="arm"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
</robot>
"""


def written(folder: Path, text: str, name: str = "cart.urdf") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_base_and_what_is_fixed_to_it_with_wheels_and_without_the_arm(tmp_path: Path) -> None:
    shapes, left_out = model_shapes(written(tmp_path, URDF))
    box, ball, wheel, mast = shapes
    assert (box.primitive, box.size) == ("box", pytest.approx((0.3, 0.2, 0.15)))
    assert box.position == pytest.approx((0.1, 0.0, 0.3))
    assert box.orientation == pytest.approx((0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)))
    assert (ball.primitive, ball.size, ball.position) == ("sphere", (0.05,), pytest.approx((0.0, 0.0, 0.1)))
    assert (mast.primitive, mast.size) == ("cylinder", (0.03, 0.5))
    assert wheel.size == (0.1, 0.02) and wheel.position == pytest.approx((0.0, 0.25, 0.1))
    assert left_out == ("link 'crank': its joint moves it", "links that joints move: arm")


def test_the_frame_of_the_base_can_be_chosen(tmp_path: Path) -> None:
    shapes, _ = model_shapes(written(tmp_path, URDF), "base_link")
    assert shapes[0].position == pytest.approx((0.1, 0.0, 0.2))
    moved, _ = model_shapes(written(tmp_path, URDF), "mast")
    assert len(moved) == len(shapes)  # up the tree too
    with pytest.raises(
        UserError, match=r"cart.urdf:2: <robot>: there is no link 'torso' \(model_base\); it has base_foot"
    ):
        model_shapes(written(tmp_path, URDF), "torso")


def test_shapes_sit_where_mujoco_puts_them(tmp_path: Path) -> None:
    """MuJoCo compiles URDF too: an independent reader of the same file."""
    mujoco = pytest.importorskip("mujoco")
    text = URDF.replace('<robot name="cart">', '<robot name="cart"><mujoco><compiler fusestatic="false"/></mujoco>')
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    text = text.replace('<link name="base_footprint"/>', f'<link name="base_footprint">{inertial}</link>')
    for link in ("base_link", "mast", "wheel", "crank", "arm"):
        text = text.replace(f'<link name="{link}">', f'<link name="{link}">{inertial}')
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    fixed = [g for g in range(model.ngeom) if model.body(model.geom_bodyid[g]).name not in ("arm", "crank")]
    shapes, _ = model_shapes(written(tmp_path, URDF))
    assert len(fixed) == len(shapes)
    for shape in shapes:
        near = min(fixed, key=lambda g: float(np.abs(data.geom_xpos[g] - shape.position).max()))
        assert data.geom_xpos[near] == pytest.approx(np.array(shape.position), abs=1e-9)
        if shape.primitive != "sphere":
            assert data.geom_xmat[near].reshape(3, 3) == pytest.approx(rotation(np.array(shape.orientation)), abs=1e-9)
        assert model.geom_size[near][: len(shape.size)] == pytest.approx(shape.size)


def stl(corners: list[list[float]]) -> bytes:
    triangles = np.array(corners, "<f4").reshape(-1, 3, 3)
    body = b"".join(struct.pack("<3f", 0, 0, 1) + t.tobytes() + b"\0\0" for t in triangles)
    return b"solid that is none".ljust(80, b" ") + struct.pack("<I", len(triangles)) + body


CORNERS = [[0, 0, 0], [200, 0, 0], [0, 100, 60]]
TEXT_STL = "solid x\nfacet normal 0 0 1\nouter loop\n" + "".join(f" vertex {x} {y} {z}\n" for x, y, z in CORNERS)
MESH = """<robot name="m"><link name="base"><collision><origin xyz="0 0 1"/>
<geometry><mesh filename="{}" scale="0.001 -0.001 0.001"/></geometry></collision></link></robot>"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.stl", stl(CORNERS)),
        ("b.STL", TEXT_STL.encode()),
        ("c.obj", "".join(f"v {x} {y} {z}\nvn 0 0 9\n" for x, y, z in CORNERS).encode()),
    ],
)
@pytest.mark.parametrize("reach", ["", "package://my_robot/meshes/", "file://{}/my_robot/meshes/"])
def test_a_mesh_counts_by_its_bounding_box(tmp_path: Path, name: str, content: bytes, reach: str) -> None:
    package = tmp_path / "my_robot"
    (package / "meshes").mkdir(parents=True)
    (package / "meshes" / name).write_bytes(content)
    reach = reach.format(tmp_path) or "../meshes/"
    (package / "urdf").mkdir()
    (box,), left_out = model_shapes(written(package / "urdf", MESH.format(reach + name)))
    assert box.size == pytest.approx((0.1, 0.05, 0.03)) and not left_out
    assert box.position == pytest.approx((0.1, -0.05, 1.03))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x.dae", "x.dae: cannot be read"),
        ("there.dae", ".dae is not read, only .stl and .obj"),
        ("short.stl", "neither a binary STL of the length that it says nor a text STL"),
        ("nan.obj", "holds no finite corners"),
        ("word.obj", "a v line without three numbers"),
        ("package://nowhere/x.stl", "package nowhere is not found: source its workspace"),
        ("http://host/x.stl", "http:// is not read"),
    ],
)
def test_a_mesh_that_cannot_be_read_is_left_out_by_name(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "there.dae").write_text("<COLLADA/>")
    (tmp_path / "short.stl").write_bytes(stl(CORNERS)[:-1])
    (tmp_path / "nan.obj").write_text("v nan 0 0\n")
    (tmp_path / "word.obj").write_text("v one 0 0\n")
    ball = "<collision><geometry><sphere radius='1'/></geometry></collision></link>"
    text = MESH.format(name).replace("</link>", ball)
    shapes, (left_out,) = model_shapes(written(tmp_path, text))
    assert len(shapes) == 1 and left_out.startswith("link 'base': mesh ") and why in left_out
    with pytest.raises(UserError, match="no collision shape of the base can be used"):
        model_shapes(written(tmp_path, MESH.format(name)))


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE robot [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<robot name="&c;"/>
"""
BAD = [
    (LAUGHS, r":2: has a document type declaration; such files are refused"),
    ("<robot><link name='a'></robot>", r":1: not valid XML: mismatched tag"),
    ("", r":1: not valid XML: no element found"),
    ("<sdf/>", r":1: <sdf>: expected <robot> \(URDF\) or <mujoco> \(MJCF\)"),
    ("<robot name='r'/>", r":1: <robot>: has no link"),
    ("<robot>\n<link/></robot>", r":2: <link>: attribute name is missing"),
    ("<robot><link name='a'/>\n<link name='a'/></robot>", r":2: <link>: link 'a' is there twice"),
    (
        "<robot><link name='a'/><link name='b'/></robot>",
        r"several root links \(a, b\): name the base's link as model_b",
    ),
    ("<robot xmlns:xacro='x'>\n<xacro:macro/></robot>", r":2: <xacro:macro>: is a macro: expand the file first"),
    (URDF.replace('"0.1 0 0.2"', '"0.1 0"'), r":5: <origin>: xyz is '0.1 0', expected 3 finite numbers"),
    (URDF.replace('"0.1 0 0.2"', '"0.1 0 inf"'), r":5: <origin>: xyz is '0.1 0 inf', expected 3 finite"),
    (URDF.replace('"0.6 0.4 0.3"', '"0.6 0.4 x"'), r":6: <box>: size is '0.6 0.4 x', expected 3 finite numbers"),
    (URDF.replace('radius="0.05"', 'radius="-1"'), r":7: <sphere>: sizes must be above 0 m, found -1"),
    (URDF.replace('type="revolute"', 'type="screw"'), r"<joint>: type is 'screw', expected one of fixed, revolute"),
    (URDF.replace('<child link="arm"/>', '<child link="leg"/>'), r"<child>: there is no link 'leg'"),
    (URDF.replace('<child link="arm"/>', ""), r"<joint>: has no <child>"),
    (URDF.replace("<sphere", "<pyramid"), r":7: <pyramid>: is no shape of a URDF"),
    ("<robot><link name='a'><collision/></link></robot>", r":1: <collision>: expected a <geometry> with one shape"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_file_gives_one_line_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=message) as raised:
        model_shapes(path)
    assert str(raised.value).startswith(str(path)) and "\n" not in str(raised.value)


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "<robot>" + "<a>" * 300 + "</a>" * 300 + "</robot>"
    with pytest.raises(UserError, match="more than 200000 elements or 200 levels"):
        model_shapes(written(tmp_path, deep))
    with pytest.raises(UserError, match="more than 200000 elements"):
        model_shapes(written(tmp_path, "<robot>" + "<a/>" * 200_001 + "</robot>"))
    ball = "<collision><geometry><sphere radius='1'/></geometry></collision>"
    with pytest.raises(UserError, match="501 collision shapes of the base, at most 500"):
        model_shapes(written(tmp_path, f"<robot><link name='a'>{ball * 501}</link></robot>"))
    monkeypatch.setattr(xml_tree, "MAX_BYTES", 10)
    with pytest.raises(UserError, match="more than the 10 that are read"):
        model_shapes(written(tmp_path, URDF))
    with pytest.raises(UserError, match="cannot be read"):
        model_shapes(tmp_path / "none.urdf")


MJCF = """<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="cart" pos="1 2 0.1">
      <freejoint/>
      <geom type="box" size="0.3 0.2 0.1" pos="0 0 0.1" euler="0 0 30"/>
      <geom type="sphere" size="0.05" contype="0" conaffinity="0"/>
      <geom type="capsule" size="0.04" fromto="0 0 0.2 0.3 0.1 0.8"/>
      <body name="mast" pos="0 0.1 0.3" quat="0.9 0.1 0.2 0.3">
        <geom type="cylinder" size="0.02 0.4" euler="10 20 30"/>
        <geom type="sphere" size="0.03 0 0" pos="0 0 0.5"/>
        <body name="arm"><joint type="hinge"/><geom type="box" size="1 1 1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("before", ["", "<compiler/><worldbody/><compiler angle='radian'/>"])  # sections may repeat
def test_mjcf_with_and_without_mujoco_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    pytest.importorskip("mujoco")
    path = written(tmp_path, MJCF.replace("<mujoco>", f"<mujoco>{before}"), "cart.xml")
    compiled, left_out = model_shapes(path)
    with monkeypatch.context() as without:
        without.setattr(mjcf.importlib.util, "find_spec", lambda name: None)
        plain, plain_left_out = model_shapes(path)
    assert left_out == plain_left_out == ("bodies that joints move: arm",)
    assert [s.primitive for s in compiled] == [s.primitive for s in plain]
    assert [s.primitive for s in plain] == ["box", "capsule", "cylinder", "sphere"]
    for a, b in zip(compiled, plain, strict=True):
        assert a.size == pytest.approx(b.size) and a.position == pytest.approx(b.position)
        turned = rotation(np.array(a.orientation)), rotation(np.array(b.orientation))
        if a.primitive == "box":
            assert turned[0] == pytest.approx(turned[1])
        elif a.primitive != "sphere":
            assert abs(turned[0][:, 2] @ turned[1][:, 2]) == pytest.approx(1.0)  # round things: the axis


def test_mjcf_by_mujoco_reads_defaults_and_meshes(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    (tmp_path / "part.stl").write_bytes(
        stl([*CORNERS, [0, 0, 0], [200, 0, 0], [0, 0, 60], [0, 100, 0], [0, 0, 60], [200, 100, 0]])
    )
    text = """<mujoco><default><geom type="cylinder" size="0.1 0.2"/></default>
<asset><mesh name="part" file="part.stl" scale="0.001 0.001 0.001"/></asset>
<worldbody><body name="base"><geom/><geom type="mesh" mesh="part" pos="1 0 0"/>
<geom type="ellipsoid" size="0.1 0.2 0.3" pos="-1 0 0"/></body></worldbody></mujoco>"""
    (cylinder, mesh, ellipsoid), left_out = model_shapes(written(tmp_path, text, "m.xml"))
    assert (cylinder.primitive, cylinder.size) == ("cylinder", (0.1, 0.2)) and not left_out
    box = Primitive("box", mesh.size, mesh.position, mesh.orientation)
    # the box holds the mesh's corners: (1, 0, 0) is one, (1.2, 0.1, 0) another
    for corner in ([1.0, 0.0, 0.0], [1.2, 0.1, 0.0], [1.0, 0.0, 0.06]):
        local = rotation(np.array(box.orientation)).T @ (np.array(corner) - box.position)
        assert (np.abs(local) <= np.array(box.size) + 1e-6).all()
    assert ellipsoid.primitive == "box" and sorted(ellipsoid.size) == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MJCF.replace("<worldbody>", "<default/><worldbody>"),
            r"c.xml:2: <default>: needs MuJoCo to be read: pip install",
        ),
        (MJCF.replace('euler="10 20 30"', 'axisangle="1 0 0 5"'), r":10: <geom>: needs MuJoCo"),
        (MJCF.replace("0.9 0.1 0.2 0.3", "0 0 0 0"), r":9: <body>: quat is zero"),
        (
            MJCF.replace('size="0.02 0.4"', 'size="0.02"'),
            r":10: <geom>: size is '0.02', expected 2 or 3 finite numbers",
        ),
        (MJCF.replace("worldbody", "world"), r":1: <mujoco>: has no <worldbody>"),
        (
            MJCF.replace("</worldbody>", '<body name="other"/></worldbody>').replace("<freejoint/>", ""),
            r"which body is the base",
        ),
    ],
)
def test_bad_mjcf_without_mujoco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.setattr(mjcf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        model_shapes(written(tmp_path, text, "c.xml"))


def test_bad_mjcf_by_mujoco(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    path = written(tmp_path, MJCF.replace('size="0.02 0.4"', 'size="0.02"').replace("cylinder", "cilinder"), "c.xml")
    with pytest.raises(UserError, match=r"c\.xml:10: MuJoCo cannot read it: .*cilinder"):
        model_shapes(path)
    with pytest.raises(UserError, match=r"there is no body 'torso' \(model_base\); it has cart, mast, arm"):
        model_shapes(written(tmp_path, MJCF, "c.xml"), "torso")
    shapes, _ = model_shapes(written(tmp_path, MJCF, "c.xml"), "mast")
    assert len(shapes) == 2 and shapes[1].position == pytest.approx((0.0, 0.0, 0.5))


ROBOT = "name: cart\ninputs: [{part: base, topic: odom}]\nprimary: odom\nmodel_file: cart.urdf\n"


def test_a_robot_file_takes_its_footprint_from_the_model(tmp_path: Path) -> None:
    written(tmp_path, URDF)
    extra = "footprint: [{primitive: box, size: [0.1, 0.1, 0.1], position: [2.0, 0.0, 0.1]}]\n"
    robot = load_robot(written(tmp_path, ROBOT + extra, "cart.yaml"))
    assert len(robot.footprint) == 5 and robot.footprint[0].position == (2.0, 0.0, 0.1)
    assert robot.notes[-1] == "cart.urdf: left out of the footprint: links that joints move: arm"
    with pytest.raises(UserError, match=r"none\.urdf: cannot be read"):
        load_robot(written(tmp_path, ROBOT.replace("cart.urdf", "none.urdf"), "cart.yaml"))
    with pytest.raises(UserError, match=r"cart\.yaml:5: footprint\.0\.size: a box has 3 sizes above 0 m, found"):
        load_robot(written(tmp_path, ROBOT + "footprint: [{primitive: box, size: [0.1]}]\n", "cart.yaml"))


def test_tilted_shapes_keep_their_shadow_in_clearances(tmp_path: Path) -> None:
    """The mast leans and the wheel lies: distances to a map of obstacles are those of the exact shapes."""
    written(tmp_path, URDF)
    robot = load_robot(written(tmp_path, ROBOT, "cart.yaml"))
    solids = footprint_solids(robot.footprint)
    shapes = [Primitive(s.primitive, s.size, s.position, s.orientation) for s in robot.footprint]
    upright = np.array([0.0, 0.0, 0.0, 1.0])
    post = Primitive("cylinder", (0.1, 0.5), (0.0, 0.0, 0.5))
    for x, y, heading in ((1.0, 0.0, 0.0), (0.0, 1.5, 0.4), (-1.0, -1.0, 2.0)):
        turn = np.array([0.0, 0.0, np.sin(heading / 2), np.cos(heading / 2)])
        obstacle = solid("cylinder", (0.1, 0.5), (x, y, 0.5))
        [[found]] = distances(solids, np.zeros((1, 3)), turn[None], [[obstacle]])
        exact = surface_distance(shapes, (np.zeros(3), turn), [post], (np.array([x, y, 0.0]), upright))
        assert found == pytest.approx(exact, abs=1e-9)
