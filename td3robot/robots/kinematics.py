"""Kinematics, Jacobians and clearance of arms, fast enough for control loops, over rows of postures."""

from typing import NamedTuple
from weakref import WeakValueDictionary

import mujoco
import numpy as np

from td3robot.geometry import rotation_vector
from td3robot.jit import formula, kernel, plain
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import guard_spec, require_chain
from td3robot.state import Array, Pose

# An inverse has arrived at half of this squared error [m², rad²]; how many steps it may take.
ARRIVED, MAX_STEPS = 1e-10, 60


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


class Tools(NamedTuple):
    """The tools of m postures, in the base frame.

    Attributes:
        position: (m, 3) tool centre points [m].
        rotation: (m, 3, 3).
        jacobian: (m, 6, n), linear [m/rad] above angular [1].
    """

    position: Array
    rotation: Array
    jacobian: Array

    @property
    def linear(self) -> Array:
        """The linear Jacobians (m, 3, n) [m/rad]."""
        return self.jacobian[:, :3]


class Links(NamedTuple):
    """An arm's n + 1 fixed transforms: to its first joint, between its joints, and from the last one to the tool.

    Attributes:
        rotation: (n + 1, 3, 3).
        offset: (n + 1, 3) [m].
    """

    rotation: Array
    offset: Array

    @classmethod
    def of(cls, spec: RobotSpec) -> "Links":
        """Return the links of a robot, from its base frame to its tool centre point."""
        transforms = np.array(spec.arm.chain.transforms())
        transforms[-1, :3, 3] += spec.tcp_offset_m * transforms[-1, :3, 2]
        return cls(transforms[:, :3, :3].copy(), transforms[:, :3, 3].copy())


@formula
def place_tool(q: Array, links: Links, position: Array, rotation: Array, jacobian: Array) -> None:
    """Compute the tool at joint angles q (n,) [rad]: position (3,) [m], rotation (3, 3) and Jacobian (6, n)."""
    joints = len(q)
    origins = np.empty((joints, 3))
    for row in range(3):
        position[row] = links.offset[0, row]
        for column in range(3):
            rotation[row, column] = links.rotation[0, row, column]
    for joint in range(joints):
        c, s = np.cos(q[joint]), np.sin(q[joint])
        for row in range(3):
            origins[joint, row], jacobian[3 + row, joint] = position[row], rotation[row, 2]
            x, y, z = rotation[row, 0], rotation[row, 1], rotation[row, 2]
            x, y = c * x + s * y, c * y - s * x  # turned by the joint
            for column in range(3):
                rotation[row, column] = (
                    x * links.rotation[joint + 1, 0, column]
                    + y * links.rotation[joint + 1, 1, column]
                    + z * links.rotation[joint + 1, 2, column]
                )
            position[row] += (
                x * links.offset[joint + 1, 0] + y * links.offset[joint + 1, 1] + z * links.offset[joint + 1, 2]
            )
    for joint in range(joints):
        for row in range(3):  # the joint's axis, crossed with the way from the joint to the tool
            a, b = (row + 1) % 3, (row + 2) % 3
            jacobian[row, joint] = jacobian[3 + a, joint] * (position[b] - origins[joint, b]) - jacobian[
                3 + b, joint
            ] * (position[a] - origins[joint, a])


@kernel
def place_tools(q: Array, packed: Links, position: Array, rotation: Array, jacobian: Array) -> None:
    """Compute the tools of m postures q (m, n); see :func:`place_tool`."""
    links = Links(*packed)
    for row in range(len(q)):
        place_tool(q[row], links, position[row], rotation[row], jacobian[row])


class Kinematics:
    """The arm's geometry: its tool by compiled arithmetic, and its clearance from a MuJoCo model without dynamics.

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
        """Use the connected robot's calibrated kinematics."""
        if spec is not self.spec:
            self._compile(spec)

    def _compile(self, spec: RobotSpec) -> None:
        self.spec, self.links = spec, plain(Links.of(spec))  # to call compiled code with
        self._geometry = geometry_of(spec, self.clearance_m)  # kept alive by those that use it
        self._model = self._geometry.model
        self._data = mujoco.MjData(self._model)
        self._q = self._data.qpos  # a view: looking it up costs more than using it

    def tools(self, q: Array) -> Tools:
        """Compute the tools of m postures q (m, n) [rad]."""
        count, joints = q.shape
        tools = Tools(np.empty((count, 3)), np.empty((count, 3, 3)), np.empty((count, 6, joints)))
        place_tools(np.ascontiguousarray(q), self.links, *tools)
        return tools

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        return self.tcp_and_jacobian(q)[0]

    def tcp_and_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its Jacobian (6, n): linear [m/rad] above angular [1]."""
        tools = self.tools(q[None])
        return Pose(tools.position[0], tools.rotation[0]), tools.jacobian[0]

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
            pose, jacobian = self.tcp_and_jacobian(q)
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

    def too_close(self, q: Array) -> bool:
        """Whether links, gripper or table are closer than ``clearance_m`` at joint angles q (n,) [rad]."""
        self._collide(q)
        return bool(self._data.ncon) and bool((self._data.contact.dist < self.clearance_m).any())

    def closest_pair(self, q: Array) -> tuple[str, str, float] | None:
        """Return names and distance [m] of a posture's closest bodies, or None if none are within ``clearance_m``."""
        self._collide(q)
        if not self._data.ncon:
            return None
        contact = min((self._data.contact[i] for i in range(self._data.ncon)), key=lambda contact: contact.dist)
        bodies = [self._model.body(self._model.geom_bodyid[geom]).name for geom in contact.geom]
        return bodies[0], bodies[1], float(contact.dist)

    def _collide(self, q: Array) -> None:
        self._q[:] = q
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_collision(self._model, self._data)
