"""Forward kinematics, Jacobian and clearance of an arm, for loops."""

import mujoco
import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import TCP_SITE, guard_spec
from td3robot.state import Array, Pose


class Kinematics:
    """The arm's geometry, asked of a MuJoCo model without dynamics: a few microseconds a question.

    All results are in the base frame. Each call overwrites the model's posture, never the arrays given back.
    """

    def __init__(self, spec: RobotSpec, clearance_m: float = 0.0) -> None:
        self.clearance_m = clearance_m
        self._model = guard_spec(spec).compile()
        self._model.geom_margin[:] = clearance_m
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(TCP_SITE).id
        self._jacobian = np.zeros((3, self._model.nv))
        self._jacobian_rotation = np.zeros((3, self._model.nv))

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        self._data.qpos[:] = q
        mujoco.mj_kinematics(self._model, self._data)
        return self._pose()

    def tcp_and_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its linear Jacobian (3, n) [m/rad]."""
        pose = self.tcp(q)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._jacobian, None, self._site)
        return pose, self._jacobian.copy()

    def tcp_and_full_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its Jacobian (6, n), linear [m/rad] above angular [1]."""
        pose = self.tcp(q)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._jacobian, self._jacobian_rotation, self._site)
        return pose, np.vstack([self._jacobian, self._jacobian_rotation])

    def too_close(self) -> bool:
        """Whether links, gripper or table are nearer than ``clearance_m`` in the posture asked about last."""
        mujoco.mj_collision(self._model, self._data)
        return bool(self._data.ncon) and bool((self._data.contact.dist < self.clearance_m).any())

    def closest_pair(self) -> tuple[str, str, float] | None:
        """Name the closest bodies found by the last :meth:`too_close`, and their distance [m]."""
        if not self._data.ncon:
            return None
        contact = min((self._data.contact[i] for i in range(self._data.ncon)), key=lambda contact: contact.dist)
        bodies = [self._model.body(self._model.geom_bodyid[geom]).name for geom in contact.geom]
        return bodies[0], bodies[1], float(contact.dist)

    def _pose(self) -> Pose:
        return Pose(self._data.site_xpos[self._site].copy(), self._data.site_xmat[self._site].reshape(3, 3).copy())
