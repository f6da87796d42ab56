"""Forward kinematics, Jacobian and clearance of an arm, for loops; and its independent Robotics Toolbox twin."""

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


class ToolboxKinematics:
    """The same arm built from UR's DH numbers by the Robotics Toolbox: an independent check, and inverse kinematics.

    Importing the toolbox takes over a second, so this class is made only where it is needed.
    """

    def __init__(self, spec: RobotSpec) -> None:
        from roboticstoolbox import ET, DHRobot, RevoluteDH

        arm = spec.arm
        chain = DHRobot(
            [
                RevoluteDH(a=a, d=d, alpha=alpha, qlim=[lower, upper])
                for a, d, alpha, lower, upper in zip(
                    arm.dh_a, arm.dh_d, arm.dh_alpha, arm.lower, arm.upper, strict=True
                )
            ],
            name=arm.name,
        )
        self._ets = chain.ets() * ET.tz(spec.tcp_offset_m)
        self._limits = arm.lower, arm.upper

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        transform = self._ets.eval(q)
        return Pose(transform[:3, 3].copy(), transform[:3, :3].copy())

    def tcp_and_jacobian(self, q: Array) -> tuple[Pose, Array]:
        """Compute the tool's pose, and its linear Jacobian (3, n) [m/rad]."""
        return self.tcp(q), np.asarray(self._ets.jacob0(q))[:3]

    def inverse(self, position: Array, q_start: Array, rotation: Array | None = None) -> Array | None:
        """Find joint angles (n,) that bring the tool to a position (3,) [m], and a rotation (3, 3) if given.

        Levenberg-Marquardt from ``q_start`` alone: the toolbox restarts from postures of its own random generator,
        which no seed of ours controls.

        Returns:
            The posture within the joint limits, exact to 0.02 mm, or None where there is none near.
        """
        target = np.eye(4)
        target[:3, 3] = position
        target[:3, :3] = np.eye(3) if rotation is None else rotation
        mask = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]) if rotation is None else None
        solution = self._ets.ik_LM(target, q0=q_start, ilimit=60, slimit=1, tol=1e-10, mask=mask, joint_limits=True)
        return np.asarray(solution.q, dtype=np.float64) if solution.success else None
