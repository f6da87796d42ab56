"""Kinematics, Jacobian and clearance of an arm, fast enough for control loops."""

from typing import NamedTuple
from weakref import WeakValueDictionary

import mujoco
import numpy as np

from td3robot.geometry import rotation_vector
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import TCP_SITE, guard_spec, require_chain
from td3robot.state import Array, Pose

# An inverse has arrived at half of this squared error [m², rad²]; how many steps it may take.
ARRIVED, MAX_STEPS = 1e-10, 60


class Posture(NamedTuple):
    """Joint angles with the geometry that follows from them; made by :class:`Kinematics`.

    Attributes:
        q: (n,) joint angles [rad].
        tcp: The tool centre point, in the base frame.
        jacobian: (3, n) its linear Jacobian, in the base frame [m/rad].
    """

    q: Array
    tcp: Pose
    jacobian: Array


class Geometry:
    """A compiled model of arm, gripper and table, without dynamics."""

    def __init__(self, spec: RobotSpec, clearance_m: float) -> None:
        self.arm, self.gripper = spec.arm, spec.gripper
        self.model = guard_spec(spec).compile()
        require_chain(self.model, spec)
        self.model.geom_margin[:] = clearance_m


# A model takes 8 MB, and 40 ms to make. Those in use are shared: the environments of a training have the same one. Its
# arm and gripper live as long as it does, so their ids stay theirs.
_geometries: "WeakValueDictionary[tuple[float, ...], Geometry]" = WeakValueDictionary()


def geometry_of(spec: RobotSpec, clearance_m: float) -> Geometry:
    """Return the model of a robot, compiled once for all that use it; nobody may change it.

    Raises:
        ConfigError: Its kinematics disagree with the arm's own numbers.
    """
    key = (id(spec.arm), id(spec.gripper), spec.tcp_offset_m, spec.table_height_m, clearance_m)
    geometry = _geometries.get(key)
    if geometry is None:
        geometry = _geometries[key] = Geometry(spec, clearance_m)
    return geometry


class Kinematics:
    """The arm's geometry, from a MuJoCo model without dynamics: a few microseconds per call.

    All results are in the base frame. They depend on the arguments alone, never on earlier calls, and are never changed
    once returned. One object serves one thread.
    """

    def __init__(self, spec: RobotSpec, clearance_m: float = 0.0) -> None:
        """Build the model.

        Raises:
            ConfigError: Its kinematics disagree with the arm's own numbers.
        """
        self.clearance_m = clearance_m
        self._compile(spec)

    def adopt(self, spec: RobotSpec) -> None:
        """Adopt what is now known of the robot: once connected, it may have its arm's own kinematics."""
        if spec is not self.spec:
            self._compile(spec)

    def _compile(self, spec: RobotSpec) -> None:
        self.spec = spec
        self._geometry = geometry_of(spec, self.clearance_m)  # kept alive by those that use it
        self._model = self._geometry.model
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(TCP_SITE).id
        # Views of the model's data: looking them up costs more than using them.
        self._q = self._data.qpos
        self._position = self._data.site_xpos[self._site]
        self._rotation = self._data.site_xmat[self._site].reshape(3, 3)
        self._jacobian = np.zeros((6, self._model.nv))
        self._linear, self._angular = self._jacobian[:3], self._jacobian[3:]
        # The last result for joint angles that nobody can change: an action asks again about the commanded posture.
        self._answered: tuple[Array, Pose, Array] | None = None
        # The posture that the model is in, if it is one: further calls about it need not place the arm again.
        self._placed: Posture | None = None

    @property
    def model(self) -> mujoco.MjModel:
        """The model, which several may share; nobody may change it."""
        return self._model

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        self._place(q)
        return Pose(self._position.copy(), self._rotation.copy())

    def tcp_and_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its linear Jacobian (3, n) [m/rad]."""
        pose = self.tcp(q)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._linear, None, self._site)
        return pose, self._linear.copy()

    def tcp_and_full_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its Jacobian (6, n), linear [m/rad] above angular [1]."""
        if self._answered is not None and q is self._answered[0]:
            return self._answered[1:]
        pose = self.tcp(q)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._linear, self._angular, self._site)
        jacobian = self._jacobian.copy()
        self._answered = None if q.flags.writeable else (q, pose, jacobian)
        return pose, jacobian

    def inverse(self, position: Array, q_start: Array, rotation: Array | None = None) -> Array | None:
        """Compute joint angles (n,) that bring the tool to a position (3,) [m], and a rotation (3, 3) if given.

        Levenberg and Marquardt's method from ``q_start``, damped in proportion to the squared error (Chan and Lawrence
        1988; Corke and Haviland, "Manipulator Differential Kinematics", 2023). Its steps are those of the Robotics
        Toolbox's ``ik_LM``, whose import takes seconds and 100 MB.

        Returns:
            The posture within the joint limits, accurate to 0.02 mm, or None if there is none nearby.
        """
        q, rows = q_start, 3 if rotation is None else 6
        for _ in range(MAX_STEPS):
            pose, jacobian = self.tcp_and_full_jacobian(q)
            error = position - pose.position
            if rotation is not None:
                error = np.concatenate([error, rotation_vector(rotation @ pose.rotation.T)])
            squared = 0.5 * (error @ error)
            if squared < ARRIVED:
                arm = self.spec.arm
                return q if ((q >= arm.lower) & (q <= arm.upper)).all() else None
            J = jacobian[:rows]
            q = q + np.linalg.solve(J.T @ J + squared * np.eye(len(q)), J.T @ error)
        return None

    def posture(self, q: Array) -> Posture:
        """Compute the posture at joint angles q (n,) [rad]: tool and linear Jacobian; q must not change afterwards."""
        posture = self._placed = Posture(q, *self.tcp_and_jacobian(q))
        return posture

    def too_close(self, posture: Posture) -> bool:
        """Whether links, gripper or table are closer than ``clearance_m`` in a posture."""
        self._collide(posture)
        return bool(self._data.ncon) and bool((self._data.contact.dist < self.clearance_m).any())

    def closest_pair(self, posture: Posture) -> tuple[str, str, float] | None:
        """Return names and distance [m] of a posture's closest bodies, or None if none are within ``clearance_m``."""
        self._collide(posture)
        if not self._data.ncon:
            return None
        contact = min((self._data.contact[i] for i in range(self._data.ncon)), key=lambda contact: contact.dist)
        bodies = [self._model.body(self._model.geom_bodyid[geom]).name for geom in contact.geom]
        return bodies[0], bodies[1], float(contact.dist)

    def _place(self, q: Array) -> None:
        self._placed = None
        self._q[:] = q
        mujoco.mj_kinematics(self._model, self._data)

    def _collide(self, posture: Posture) -> None:
        if posture is not self._placed:
            self._place(posture.q)
            mujoco.mj_comPos(self._model, self._data)
            self._placed = posture
        mujoco.mj_collision(self._model, self._data)
