"""MuJoCo behind the Simulation protocol: what its state says in the words of RawFrame.

:class:`MujocoSensors` reads contacts, joint torques, poses and surface distances from any model; a host (the kitchen,
LIBERO, an arm) names the geoms' roles and the tracked objects and calls :meth:`MujocoSensors.record` after every
physics substep.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from osma_monitor.core.signals.raw import (
    CONTACT_NO,
    CONTACT_YES,
    NO_CONTACTS,
    NO_OBJECTS,
    ROBOT_ROLES,
    Contacts,
    EndEffector,
    Floats,
    Joints,
    Objects,
)
from sim_bridge.simulation import BOX, CAPSULE, CYLINDER, SPHERE, Shapes

#: Versions whose mj_geomDistance was held against an independent distance (random box and mesh pairs).
VERIFIED_MUJOCO = frozenset({"3.3.1", "3.3.2", "3.3.3"})
#: Surface distances saturate here (m), as in OSMA-Bench.
DISTANCE_LIMIT_M = 4.0
#: What mj_geomDistance is asked to look within (m). Its box-capsule distance is wrong when the limit is near the true
#: distance, so it always gets a far one; saturation is ours.
_SEARCH_M = 50.0
#: A pair touches when its summed force exceeds this in any substep (N), as in OSMA-Bench.
CONTACT_FORCE_N = 0.05

#: Rules that give geoms their role: (pattern of a geom, body or ancestor body name, role), first match wins.
RoleRules = Sequence[tuple[str, str]]

_PRIMITIVE_CODES = {
    mujoco.mjtGeom.mjGEOM_BOX: BOX,
    mujoco.mjtGeom.mjGEOM_SPHERE: SPHERE,
    mujoco.mjtGeom.mjGEOM_CYLINDER: CYLINDER,
    mujoco.mjtGeom.mjGEOM_CAPSULE: CAPSULE,
}
_NOT_FINGER_CONTACT = ROBOT_ROLES | {"floor", "furniture"}


@dataclass(frozen=True, slots=True)
class TrackedObject:
    """One object of the report: ``body`` is the MuJoCo body whose pose and geoms it has."""

    id: str
    category: str
    role: str
    body: str


def check_version() -> Mapping[str, str]:
    """Provenance of the installed MuJoCo; warns when its surface distances were never verified."""
    version = mujoco.__version__
    verified = version in VERIFIED_MUJOCO
    if not verified:
        warnings.warn(
            f"mujoco {version} is not verified: its surface distances may be wrong (verified: "
            f"{', '.join(sorted(VERIFIED_MUJOCO))}). Install mujoco==3.3.1, or run the tests with this one.",
            stacklevel=2,
        )
    return {"simulator": f"mujoco {version}", "simulator_verified": str(verified).lower()}


def geom_name(model: mujoco.MjModel, geom: int) -> str:
    """Name of a geom, or of its body with the geom's number when it has none."""
    return model.geom(geom).name or f"{model.body(model.geom_bodyid[geom]).name}#{geom}"


def geom_roles(model: mujoco.MjModel, rules: RoleRules, default: str = "other") -> tuple[str, ...]:
    """Role of every geom by the first rule whose pattern matches its own name or that of a body that holds it."""
    roles = []
    for geom in range(model.ngeom):
        names = [model.geom(geom).name]
        body = int(model.geom_bodyid[geom])
        while body:
            names.append(model.body(body).name)
            body = int(model.body_parentid[body])
        names.append("world")
        roles.append(next((r for p, r in rules if any(fnmatch.fnmatchcase(n, p) for n in names if n)), default))
    return tuple(roles)


def contact_forces(
    cone: int, dim: NDArray[np.int32], friction: Floats, address: NDArray[np.int64], efc_force: Floats
) -> Floats:
    """Force of each contact in its own frame, (n, 3) N: normal and two tangents; zero where the solver has no row.

    The same numbers as ``mj_contactForce``, for many contacts at once: ``cone`` as in the model's options, the others
    columns of ``data.contact`` (``address`` is its efc_address) and ``data.efc_force``.
    """
    force = np.zeros((len(dim), 3))
    for size in np.unique(dim):
        rows = np.flatnonzero((dim == size) & (address >= 0))
        start = address[rows]
        if size == 1:
            force[rows, 0] = efc_force[start]
        elif cone == mujoco.mjtCone.mjCONE_ELLIPTIC:
            force[rows] = efc_force[start[:, None] + np.arange(3)]
        else:  # pyramid: the normal is the sum of the edges, a tangent the scaled difference of its two
            edges = efc_force[start[:, None] + np.arange(2 * (size - 1))]
            force[rows, 0] = edges.sum(axis=1)
            force[rows, 1] = (edges[:, 0] - edges[:, 1]) * friction[rows, 0]
            force[rows, 2] = (edges[:, 2] - edges[:, 3]) * friction[rows, 1]
    return force


class MujocoSensors:
    """Reads one model. ``roles`` holds a role per geom; pairs with ``ignored_roles`` on both sides are left out.

    Contacts are reported per geom pair, the robot's geom first. Geoms without collision (contype and conaffinity 0) are
    neither touched nor measured.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        roles: Sequence[str],
        objects: Sequence[TrackedObject] = (),
        joints: Sequence[str] = (),
        ee_site: str | None = None,
        ignored_roles: frozenset[str] = frozenset({"floor", "furniture"}),
    ) -> None:
        self.model = model
        self.objects = tuple(objects)
        self.roles = tuple(roles)
        self.names = tuple(geom_name(model, g) for g in range(model.ngeom))
        role = np.array(self.roles)
        solid = (np.asarray(model.geom_contype) | np.asarray(model.geom_conaffinity)) != 0
        robot = np.isin(role, list(ROBOT_ROLES))
        quiet = np.isin(role, list(ignored_roles))
        self._keep = ~(quiet[:, None] & quiet[None, :])
        self._robot = robot
        self._robot_geoms = np.flatnonzero(robot & solid)
        self._body_ids = np.array([model.body(o.body).id for o in self.objects], dtype=np.intp)
        #: object index of every geom, -1 for none
        self._owner = np.full(model.ngeom, -1)
        for index, body in enumerate(self._body_ids):
            inside = {int(body)}
            for child in range(int(body) + 1, model.nbody):
                if int(model.body_parentid[child]) in inside:
                    inside.add(child)
            self._owner[np.isin(model.geom_bodyid, list(inside))] = index
        self._object_geoms = [np.flatnonzero((self._owner == i) & solid) for i in range(len(self.objects))]
        self._joint_names = tuple(joints)
        self._qpos = np.array([model.joint(j).qposadr[0] for j in joints], dtype=np.intp)
        self._dof = np.array([model.joint(j).dofadr[0] for j in joints], dtype=np.intp)
        self._site = None if ee_site is None else model.site(ee_site).id
        self._log: list[tuple[NDArray[np.int32], Floats, NDArray[np.int32], Floats, NDArray[np.int32], Floats]] = []
        self._from_to = np.zeros(6)
        self._gripper = role == "gripper"
        #: objects that the gripper touched in the span of the last :meth:`contacts`, in the order of first touch
        self.gripper_touched: tuple[int, ...] = ()

    # contacts
    def record(self, data: mujoco.MjData) -> None:
        """Remember the contacts of the substep that was just solved."""
        if data.ncon:
            c = data.contact
            self._log.append(
                (
                    c.geom.copy(),
                    c.frame.copy(),
                    c.dim.copy(),
                    c.friction.copy(),
                    c.efc_address.copy(),
                    data.efc_force.copy(),
                )
            )

    def contacts(self) -> tuple[Contacts, NDArray[np.int8], bool]:
        """Since the last call: pairs with their peak force, which objects touch the robot, finger contact."""
        touching = np.full(len(self.objects), CONTACT_NO, dtype=np.int8)
        self.gripper_touched = ()
        if not self._log:
            return NO_CONTACTS, touching, False
        log, self._log = self._log, []
        substep = np.repeat(np.arange(len(log)), [len(entry[0]) for entry in log])
        geom = np.concatenate([entry[0] for entry in log]).astype(np.int64)
        frame = np.concatenate([entry[1] for entry in log]).reshape(-1, 3, 3)
        dim = np.concatenate([entry[2] for entry in log])
        friction = np.concatenate([entry[3] for entry in log])
        offset = np.cumsum([0] + [len(entry[5]) for entry in log[:-1]])
        local = np.concatenate([entry[4] for entry in log]).astype(np.int64)
        address = np.where(local >= 0, local + offset[substep], -1)
        solver = np.concatenate([entry[5] for entry in log])

        keep = self._keep[geom[:, 0], geom[:, 1]] & (address >= 0)
        if not keep.any():
            return NO_CONTACTS, touching, False
        substep, geom, frame = substep[keep], geom[keep], frame[keep]
        force = contact_forces(self.model.opt.cone, dim[keep], friction[keep], address[keep], solver)
        world = np.einsum(
            "ni,nij->nj", force, frame
        )  # on the second geom: rows of the frame are its axes, normal first
        swap = self._robot[geom[:, 1]] & ~self._robot[geom[:, 0]]
        geom[swap] = geom[swap][:, ::-1]
        world[swap] *= -1.0

        pair = geom[:, 0] * self.model.ngeom + geom[:, 1]
        key, where = np.unique(pair * len(log) + substep, return_inverse=True)
        total = np.zeros((len(key), 3))
        np.add.at(total, where, world)
        size = np.sqrt(total[:, 0] ** 2 + total[:, 1] ** 2 + total[:, 2] ** 2)
        pair = key // len(log)
        self.gripper_touched = self._touched_by_gripper(pair, key % len(log), size)
        order = np.lexsort((np.arange(len(key)), -size, pair))  # per pair: the largest first, the earliest of equals
        first = order[np.concatenate([[True], pair[order][1:] != pair[order][:-1]])]
        a, b = pair[first] // self.model.ngeom, pair[first] % self.model.ngeom
        peak = size[first]
        hit = (peak > CONTACT_FORCE_N) & self._robot[a] & (self._owner[b] >= 0)
        touching[self._owner[b[hit]]] = CONTACT_YES
        fingers = any(
            self.roles[i] == "gripper" and self.roles[j] not in _NOT_FINGER_CONTACT
            for i, j, p in zip(a, b, peak, strict=True)
            if p > CONTACT_FORCE_N
        )
        found = peak > 0.0
        a, b = a[found], b[found]
        return (
            Contacts(
                tuple(self.names[i] for i in a),
                tuple(self.names[i] for i in b),
                tuple(self.roles[i] for i in a),
                tuple(self.roles[i] for i in b),
                total[first][found],
            ),
            touching,
            fingers,
        )

    def _touched_by_gripper(self, pair: NDArray[np.int64], substep: NDArray[np.int64], size: Floats) -> tuple[int, ...]:
        """Objects that gripper geoms press, by the substep of first touch, then by position in the report."""
        a, b = pair // self.model.ngeom, pair % self.model.ngeom
        rows = np.flatnonzero((size > CONTACT_FORCE_N) & self._gripper[a] & (self._owner[b] >= 0))
        order = rows[np.lexsort((self._owner[b[rows]], substep[rows]))]
        return tuple(dict.fromkeys(int(i) for i in self._owner[b[order]]))

    # objects
    def distance(self, data: mujoco.MjData, index: int) -> float:
        """Signed surface distance in m between the robot's and the object's collision geoms, saturating at 4 m."""
        a, b = self._robot_geoms, self._object_geoms[index]
        if not len(a) or not len(b):
            return float("nan")
        bound = self.model.geom_rbound
        centre = data.geom_xpos
        apart = (
            np.linalg.norm(centre[a][:, None, :] - centre[b][None, :, :], axis=2)
            - bound[a][:, None]
            - bound[b][None, :]
        )
        # a plane has no bounding sphere: never cull it
        apart[(bound[a] == 0.0)[:, None] | (bound[b] == 0.0)[None, :]] = -np.inf
        best = DISTANCE_LIMIT_M
        order = np.argsort(apart, axis=None, kind="stable")
        for flat in order:
            i, j = divmod(int(flat), len(b))
            if apart[i, j] >= best:
                break
            best = min(best, mujoco.mj_geomDistance(self.model, data, int(a[i]), int(b[j]), _SEARCH_M, self._from_to))
        return float(best)

    def report(self, data: mujoco.MjData, touching: NDArray[np.int8]) -> Objects:
        """Poses, surface distances and contact of all tracked objects."""
        if not self.objects:
            return NO_OBJECTS
        return Objects(
            tuple(o.id for o in self.objects),
            tuple(o.category for o in self.objects),
            tuple(o.role for o in self.objects),
            data.xpos[self._body_ids].copy(),
            data.xquat[self._body_ids][:, [1, 2, 3, 0]],
            np.array([self.distance(data, i) for i in range(len(self.objects))]),
            touching,
        )

    def shapes(self) -> Shapes:
        """Collision primitives of the tracked objects in their body frame; meshes are given by their bounding box."""
        model = self.model
        ids, codes, sizes, positions, turns = [], [], [], [], []
        for index, tracked in enumerate(self.objects):
            for geom in self._object_geoms[index]:
                code = _PRIMITIVE_CODES.get(model.geom_type[geom])
                size = model.geom_size[geom].copy()
                if code is None:
                    code, size = BOX, model.geom_aabb[geom][3:].copy()
                elif code == SPHERE:
                    size = np.array([size[0], 0.0, 0.0])
                elif code in (CYLINDER, CAPSULE):
                    size = np.array([size[0], size[1], 0.0])
                ids.append(tracked.id)
                codes.append(code)
                sizes.append(size)
                positions.append(model.geom_pos[geom].copy())
                turns.append(model.geom_quat[geom][[1, 2, 3, 0]])
        if not ids:
            return Shapes()
        return Shapes(tuple(ids), tuple(codes), np.array(sizes), np.array(positions), np.array(turns))

    # robot
    def joints(self, data: mujoco.MjData) -> Joints:
        """Position, velocity and actuator torque of the arm's joints."""
        return Joints(self._joint_names, data.qpos[self._qpos], data.qvel[self._dof], data.qfrc_actuator[self._dof])

    def end_effector(self, data: mujoco.MjData) -> EndEffector | None:
        """Pose of the end-effector site."""
        if self._site is None:
            return None
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, data.site_xmat[self._site])
        return EndEffector(data.site_xpos[self._site].copy(), quaternion[[1, 2, 3, 0]])
