"""mj_geomDistance of the installed MuJoCo against independent distances: the reason why the version is pinned."""

import warnings

import mujoco
import numpy as np
import pytest
from scipy.optimize import lsq_linear, nnls

from sim_bridge import mujoco_sim
from sim_bridge.mujoco_sim import DISTANCE_LIMIT_M, MujocoSensors, TrackedObject, check_version, geom_roles


def rotation(rng):
    q = rng.normal(size=4)
    q /= np.linalg.norm(q)
    m = np.zeros(9)
    mujoco.mju_quat2Mat(m, q)
    return q, m.reshape(3, 3)


def box_distance(c1, r1, h1, c2, r2, h2):
    """Distance of two boxes: the nearest points solve a bounded least-squares problem."""
    bound = np.concatenate([h1, h2])
    found = lsq_linear(np.hstack([r1, -r2]), c2 - c1, (-bound, bound), tol=1e-12)
    return np.linalg.norm(c1 + r1 @ found.x[:3] - c2 - r2 @ found.x[3:])


def hull_distance(a, b):
    """Distance of two convex hulls: convex combinations of their corners, by non-negative least squares."""
    weight = 1e4
    matrix = np.vstack([np.hstack([a.T, -b.T]), weight * np.r_[np.ones(len(a)), np.zeros(len(b))]])
    matrix = np.vstack([matrix, weight * np.r_[np.zeros(len(a)), np.ones(len(b))]])
    x, _ = nnls(matrix, np.r_[np.zeros(3), weight, weight])
    return np.linalg.norm(a.T @ x[: len(a)] - b.T @ x[len(a) :])


def test_random_boxes():
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(150):
        h1, h2 = rng.uniform(0.03, 0.4, (2, 3))
        (q1, r1), (q2, r2) = rotation(rng), rotation(rng)
        offset = rng.normal(size=3)
        offset *= rng.uniform(0.1, 2.0) / np.linalg.norm(offset)
        spec = mujoco.MjSpec()
        for h, q, pos in ((h1, q1, np.zeros(3)), (h2, q2, offset)):
            spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=h, quat=q, pos=pos)
        model = spec.compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        expected = box_distance(np.zeros(3), r1, h1, offset, r2, h2)
        measured = mujoco.mj_geomDistance(model, data, 0, 1, 4.0, None)
        if expected > 1e-6 and abs(measured - expected) > 1e-5:
            wrong.append((expected, measured))
    assert wrong == []


def test_random_meshes():
    rng = np.random.default_rng(1)
    wrong = []
    for _ in range(60):
        spec = mujoco.MjSpec()
        corners = []
        offset = rng.normal(size=3)
        offset *= rng.uniform(0.3, 1.5) / np.linalg.norm(offset)
        for i, shift in enumerate((np.zeros(3), offset)):
            points = rng.uniform(-0.2, 0.2, (12, 3))
            spec.add_mesh(name=f"m{i}", uservert=points.ravel())
            spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=f"m{i}", pos=shift)
            corners.append(points + shift)
        model = spec.compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        expected = hull_distance(*corners)
        measured = mujoco.mj_geomDistance(model, data, 0, 1, 4.0, None)
        if expected > 1e-4 and abs(measured - expected) > 1e-4:
            wrong.append((expected, measured))
    assert wrong == []


def box_capsule_distance(r1, h1, offset, r2, radius, half):
    """A capsule is all that is within a radius of its axis: one more bounded least-squares problem."""
    bound = np.concatenate([h1, [half]])
    found = lsq_linear(np.hstack([r1, -r2[:, 2:]]), offset, (-bound, bound), tol=1e-12)
    return np.linalg.norm(r1 @ found.x[:3] - offset - r2[:, 2] * found.x[3]) - radius


def test_boxes_and_capsules_at_any_distance():
    """mj_geomDistance is wrong for this pair when its limit is near the distance: the sensors must not show it."""
    rng = np.random.default_rng(2)
    wrong = []
    for _ in range(200):
        h1, (radius, half) = rng.uniform(0.03, 0.4, 3), rng.uniform(0.03, 0.3, 2)
        (q1, r1), (q2, r2) = rotation(rng), rotation(rng)
        offset = rng.normal(size=3)
        offset *= rng.uniform(0.1, 5.0) / np.linalg.norm(offset)
        spec = mujoco.MjSpec()
        robot = spec.worldbody.add_body(name="robot")
        robot.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=h1, quat=q1)
        thing = spec.worldbody.add_body(name="thing", pos=offset)
        thing.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[radius, half, 0], quat=q2)
        away = box_capsule_distance(r1, h1, offset, r2, radius, half)
        model = spec.compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        roles = geom_roles(model, [("robot", "base")])
        measured = MujocoSensors(model, roles, [TrackedObject("t", "t", "obstacle", "thing")]).distance(data, 0)
        if away > 1e-6 and abs(measured - min(away, DISTANCE_LIMIT_M)) > 1e-5:
            wrong.append((away, measured))
    assert wrong == []


def random_scene(rng, spread):
    spec = mujoco.MjSpec()
    robot = spec.worldbody.add_body(name="robot")
    thing = spec.worldbody.add_body(name="thing", pos=rng.normal(size=3) * spread)
    kinds = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE)
    for body, count in ((robot, 6), (thing, 4)):
        for _ in range(count):
            body.add_geom(
                type=rng.choice(kinds),
                size=rng.uniform(0.05, 0.2, 3),
                pos=rng.normal(size=3) * 0.3,
                quat=rotation(rng)[0],
            )
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


@pytest.mark.parametrize("spread", [0.2, 1.0, 2.5])
def test_culling_never_changes_the_minimum(spread):
    rng = np.random.default_rng(int(spread * 10))
    for _ in range(20):
        model, data = random_scene(rng, spread)
        sensors = MujocoSensors(
            model, geom_roles(model, [("robot", "base")]), [TrackedObject("thing", "thing", "obstacle", "thing")]
        )
        pairs = [(i, j) for i in range(6) for j in range(6, 10)]
        expected = min(DISTANCE_LIMIT_M, *(mujoco.mj_geomDistance(model, data, i, j, 50.0, None) for i, j in pairs))
        assert sensors.distance(data, 0) == pytest.approx(expected, abs=1e-9)


def test_distance_saturates_and_goes_negative():
    def at(x):
        spec = mujoco.MjSpec()
        for name, position in (("robot", 0.0), ("thing", x)):
            body = spec.worldbody.add_body(name=name, pos=[position, 0, 0])
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.5, 0, 0])
        model = spec.compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        roles = geom_roles(model, [("robot", "base")])
        return MujocoSensors(model, roles, [TrackedObject("t", "t", "obstacle", "thing")]).distance(data, 0)

    assert at(20.0) == 4.0
    assert at(2.0) == pytest.approx(1.0)
    assert at(0.8) == pytest.approx(-0.2, abs=1e-6)


def test_an_unverified_version_warns_and_is_named(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_version() == {"simulator": f"mujoco {mujoco.__version__}", "simulator_verified": "true"}
    monkeypatch.setattr(mujoco_sim.mujoco, "__version__", "3.4.0")
    with pytest.warns(UserWarning, match=r"3\.4\.0 is not verified"):
        assert check_version()["simulator_verified"] == "false"
