"""The arm behind the stand-in's ports: MuJoCo at 500 Hz, which supplies what a controller measures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import rotation_vector
from td3robot.robots.arms.model import ArmModel
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.arm_spec import calibrated_arm
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.robot import Variation
from td3robot.robots.simulated.scene import FLANGE_SITE, GRIPPER_PREFIX, TCP_SITE
from td3robot.robots.ur import JOINTS
from td3robot.robots.ur.calibration import DhParameters
from td3robot.simulators.presets import NOMINAL_CELL, CalibrationConfig, FrictionModel, ToolModel
from td3robot.state import Array, ObjectModel, Pose

# Control rate of an e-Series controller.
RATE_HZ = 500
PERIOD_S = 1.0 / RATE_HZ
# A finger speed that reaches every position within a period [1/s, as a share of the gripper's].
AT_ONCE = 1e6
# MuJoCo's `solimp` of a joint's friction: in six seconds, a joint at rest creeps by at most 8 % of its distance from
# its target. With MuJoCo's own values, it slides there in one.
STICKING = (0.9999, 0.9999, 0.001, 0.5, 2.0)


class SimulatedArm:
    """Arm, gripper, table and objects, one controller period at a time.

    The physics are those of training (:class:`MujocoRobot`); the controller decides where the arm has to be.

    Args:
        spec: The nominal robot.
        objects: The objects on the table.
        parameters: The arm's own Denavit-Hartenberg parameters; by default, the nominal ones.
        tool: What the controller does not know about its tool.
        friction: Friction of the joints.

    Attributes:
        spec: The true robot, with its own kinematics.
        q, dq: (6,) [rad, rad/s].
        driver_q: Mean of the gripper's drivers, in their unit.
        closed: The gripper's true closed fraction.
    """

    def __init__(
        self,
        spec: RobotSpec,
        objects: tuple[ObjectModel, ...] = (),
        parameters: DhParameters | None = None,
        tool: ToolModel = NOMINAL_CELL.tool,
        friction: FrictionModel = NOMINAL_CELL.friction,
    ) -> None:
        self.parameters = parameters or DhParameters.of(spec.arm.chain)
        self.spec = true_spec(spec, parameters, tool)
        self._robot = MujocoRobot(self.spec, RATE_HZ, objects)
        self._robot.connect()
        # The motor is that of the stand-in's own gripper (gripper.py), not of the training simulation's.
        self._robot.vary(Variation(gripper_speed=AT_ONCE))
        self._model, self._data = self._robot.own_model(), self._robot.data
        self._add_payload(tool.payload_kg)
        self._asked = mujoco.MjData(self._model)  # for postures the arm is not in
        self._jacobian = np.zeros((3, self._model.nv))
        self._flange, self._tcp = self._model.site(FLANGE_SITE).id, self._model.site(TCP_SITE).id
        self._gain = self._model.actuator_gainprm[:JOINTS, 0].copy()
        self._add_friction(friction)
        handled = {self._model.body(item.name).id for item in objects}
        bodies = self._model.geom_bodyid
        self._is_handled = np.isin(bodies, list(handled))
        names = [self._model.body(int(body)).name for body in bodies]
        self._is_gripper = np.array([name.startswith(GRIPPER_PREFIX) for name in names])
        self._is_robot = ~self._is_handled & (bodies != 0)
        geoms = [self._model.geom(index).name for index in range(self._model.ngeom)]
        self._pads = self._is_gripper & np.array([self.spec.gripper.pads in name for name in geoms])
        self._friction = self._model.geom_friction.copy()
        self._velocity = np.zeros(6)
        self._force = np.zeros(6)
        self._objects = [item.name for item in objects]
        self.reset(self.spec.arm.home)

    def _add_payload(self, payload_kg: float) -> None:
        """Add a mass at the gripper whose weight the controller does not compensate."""
        hand = self._model.body(GRIPPER_PREFIX + self.spec.gripper.palm).id
        known = float(self._model.body_mass[hand])
        self._model.body_mass[hand] = known + payload_kg
        self._model.body_gravcomp[hand] *= known / (known + payload_kg)
        mujoco.mj_setConst(self._model, mujoco.MjData(self._model))

    def _add_friction(self, friction: FrictionModel) -> None:
        """Add static and viscous friction to the joints, in proportion to the motors' stiffness."""
        if friction.stick_rad:
            self._model.dof_frictionloss[:JOINTS] = friction.stick_rad * self._gain
            self._model.dof_solimp[:JOINTS] = STICKING
        self._model.dof_damping[:JOINTS] += friction.viscous_s * self._gain

    def step(self, q: Array, gripper: float, v: Array | float = 0.0, a: Array | float = 0.0) -> None:
        """Integrate one period of the controller's reference.

        Args:
            q: (6,) where the reference is at its end [rad].
            gripper: The gripper's closed fraction.
            v: (6,) the reference's velocity in it [rad/s].
            a: (6,) by how much that differs from the one before, over the period [rad/s^2].
        """
        self._robot.motor.go_to(gripper)
        v = np.broadcast_to(v, q.shape).astype(float)
        self._robot.keep_to(q - PERIOD_S * v, v, np.broadcast_to(a, q.shape).astype(float))
        self._measure()

    def _measure(self) -> None:
        state = self._robot.read()
        self.q, self.dq, self.driver_q = state.q, state.dq, float(state.driver_q.mean())
        self.closed = self.spec.gripper.closed_fraction(state.driver_q)

    def reset(self, q: Array) -> None:
        """Place the arm at q, at rest, with the gripper open and every object where it was at first."""
        self._robot.move_to(q)
        self._lay_out()
        self._measure()

    def _lay_out(self) -> None:
        """Place the objects side by side, with room for a hand; all are created in the same place."""
        poses = self.object_poses()
        for index, name in enumerate(self._objects):
            aside = np.array([0.15 * ((index + 1) // 2) * (-1) ** index, 0.0, 0.0])
            poses[name] = Pose(poses[name].position + aside, poses[name].rotation)
        self.place(poses)

    def place(self, poses: Mapping[str, Pose]) -> None:
        """Place objects, at rest."""
        self._robot.place(poses)
        for name in poses:
            address = self._model.joint(name).dofadr[0]
            self._data.qvel[address : address + 6] = 0.0

    def object_poses(self) -> dict[str, Pose]:
        """Return the poses of the objects, by name."""
        return self._robot.object_poses()

    def set_slippery(self, slippery: bool) -> None:
        """Remove the friction of the gripper's pads, or restore it."""
        self._model.geom_friction[:] = self._friction
        if slippery:
            self._model.geom_friction[self._pads] = 1e-4

    def contact_force(self) -> float:
        """Return the sum of forces between robot and surroundings, and between links [N], without handled objects."""
        first, second = self._data.contact.geom.T
        handled, robot, gripper = self._is_handled, self._is_robot, self._is_gripper
        counts = (robot[first] | robot[second]) & ~(handled[first] | handled[second])
        counts &= ~(gripper[first] & gripper[second])  # the fingers touch each other when they close
        return float(np.linalg.norm(self._forces(np.flatnonzero(counts)), axis=1).sum())

    def tool_force(self) -> Array:
        """Return what the gripper's contacts do to it (6,): force [N], and torque about the tool [N m], base frame."""
        contact = self._data.contact
        first, second = self._is_gripper[contact.geom.T]
        chosen = np.flatnonzero(first != second)
        if not len(chosen):
            return np.zeros(6)
        signs = np.where(second[chosen], 1.0, -1.0)[:, None]
        forces = signs * np.einsum("kji,kj->ki", contact.frame[chosen].reshape(-1, 3, 3), self._forces(chosen))
        torques = np.cross(contact.pos[chosen] - self._data.site_xpos[self._tcp], forces)
        return np.concatenate([forces.sum(axis=0), torques.sum(axis=0)])

    def _forces(self, contacts: NDArray[np.intp]) -> Array:
        """Return the forces (k, 3) of some contacts in their own frames [N]."""
        found = np.empty((len(contacts), 3))
        for row, index in enumerate(contacts.tolist()):
            mujoco.mj_contactForce(self._model, self._data, index, self._force)
            found[row] = self._force[:3]
        return found

    def torques(self) -> Array:
        """Return the joints' motor torques [N m]."""
        return np.array(self._data.qfrc_actuator[:JOINTS])

    def tcp(self) -> Pose:
        """Return the pose of the tool centre point of this cell."""
        return _pose(self._data, self._tcp)

    def flange(self) -> Pose:
        """Return the pose of the tool flange."""
        return _pose(self._data, self._flange)

    def flange_at(self, q: Array) -> Pose:
        """Compute the pose of the flange at joint angles (6,) [rad]."""
        self._asked.qpos[:JOINTS] = q
        mujoco.mj_kinematics(self._model, self._asked)
        return _pose(self._asked, self._flange)

    def tool_speed_at(self, q: Array, dq: Array) -> float:
        """Compute the speed of the tool centre point of this cell [m/s] at q (6,) [rad] and dq (6,) [rad/s]."""
        self._asked.qpos[:JOINTS] = q
        mujoco.mj_kinematics(self._model, self._asked)
        mujoco.mj_comPos(self._model, self._asked)
        mujoco.mj_jacSite(self._model, self._asked, self._jacobian, None, self._tcp)
        return float(np.linalg.norm(self._jacobian[:, :JOINTS] @ dq))

    def tcp_velocity(self) -> Array:
        """Return the tool centre point's velocity (6,), linear [m/s] then angular [rad/s], in the base frame."""
        mujoco.mj_objectVelocity(self._model, self._data, mujoco.mjtObj.mjOBJ_SITE, self._tcp, self._velocity, 0)
        return np.concatenate([self._velocity[3:], self._velocity[:3]])


def six(pose: Pose) -> list[float]:
    """Return a pose as a controller reports it: position [m], then rotation vector [rad]."""
    return [*pose.position.tolist(), *rotation_vector(pose.rotation).tolist()]


def _pose(data: mujoco.MjData, site: int) -> Pose:
    return Pose(data.site_xpos[site].copy(), data.site_xmat[site].reshape(3, 3).copy())


def true_spec(spec: RobotSpec, parameters: DhParameters | None, tool: ToolModel) -> RobotSpec:
    """Return the robot that a stand-in simulates, from the nominal one, its own parameters and its tool."""
    arm = spec.arm if parameters is None else calibrated_arm(spec.arm, parameters.chain())
    return replace(spec, arm=arm, control_rate_hz=float(RATE_HZ), tcp_offset_m=spec.tcp_offset_m + tool.longer_m)


def own_parameters(arm: ArmModel, config: CalibrationConfig | Literal["off"]) -> DhParameters | None:
    """Return the parameters of the arm that the settings describe, or None for the nominal one."""
    return drawn_parameters(arm, config) if isinstance(config, CalibrationConfig) else None


def drawn_parameters(arm: ArmModel, config: CalibrationConfig) -> DhParameters:
    """Draw the Denavit-Hartenberg parameters of one particular arm around its nominal ones.

    Every length and angle is off by a normal deviate, except the sixth joint's ``a`` and ``alpha``: the arm ends at the
    flange, and calibrations of real arms have zeros there.
    """
    rng, nominal = np.random.default_rng(config.seed), DhParameters.of(arm.chain)

    def drawn(values: tuple[float, ...], sigma: float, kept: int = 0) -> tuple[float, ...]:
        """Return the values with deviates added, except the last ``kept`` of them."""
        deviates = sigma * rng.standard_normal(len(values))
        deviates[len(values) - kept :] = 0.0
        return tuple((np.array(values) + deviates).tolist())

    return DhParameters(
        theta=drawn(nominal.theta, config.angle_rad),
        a=drawn(nominal.a, config.length_m, kept=1),
        d=drawn(nominal.d, config.length_m),
        alpha=drawn(nominal.alpha, config.angle_rad, kept=1),
    )
