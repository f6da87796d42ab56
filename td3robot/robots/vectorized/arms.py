"""The physics of many simulated arms in one call, with the state of all as arrays."""

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from td3robot.errors import RobotError
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.scene import TCP_SITE
from td3robot.state import Array

STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value
# A warning's count stands behind its last information.
UNSTABLE, COUNT = mujoco.mjtWarning.mjWARN_BADQACC.value, 1


class VectorizedArms:
    """The arms of m environments, which are alike except for their variations.

    Each :class:`MujocoRobot` places its own arm at the beginning of an episode; from then on, its state is a row here.
    The physics are the same bit for bit: MuJoCo steps each row as it would step the robot's own data.

    Attributes:
        time: (m,) [s].
        objects: By name, the positions (m, 3) [m] and rotations (m, 3, 3) of the objects.
    """

    def __init__(self, robots: Sequence[MujocoRobot], threads: int = 1) -> None:
        self._robots, first = robots, robots[0]
        self._models = [robot.model for robot in robots]
        model, count, self._joints = first.model, len(robots), len(first.spec.arm.home)
        assert model is not None
        self._batch = Batch(model, count, threads)
        self._qpos, self._qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        self._act, self._ctrl = self._batch.bind("act"), self._batch.bind("ctrl")
        self.time = self._batch.bind("time")
        self._outputs = self._batch.bind("xpos"), self._batch.bind("xmat")
        self._tools, self._site = self._batch.bind("site_xpos"), model.site(TCP_SITE).id
        self._bodies = {item.name: model.body(item.name).id for item in first.object_models}
        self.objects = {name: (np.zeros((count, 3)), np.zeros((count, 3, 3))) for name in self._bodies}
        self._spec, self._substeps, self._rate = first.spec, first.substeps, first.physics_rate_hz
        self._drivers, self._fingers = first.drivers, first.fingers

    def place(self, row: int) -> None:
        """Take over an arm that its robot has just placed, and the model that it has varied."""
        robot = self._robots[row]
        self._models[row] = robot.model
        mujoco.mj_getState(robot.model, robot.data, self._batch.state[row], STATE)
        self._batch.set_models(self._models)
        self._batch.warning[row] = 0
        for name, body in self._bodies.items():
            positions, rotations = self.objects[name]
            positions[row], rotations[row] = robot.data.xpos[body], robot.data.xmat[body].reshape(3, 3)

    def mirror(self, row: int) -> None:
        """Give an arm's robot its state back, as far as the robot reports it."""
        data = self._robots[row].data
        data.time, data.qpos[:], data.qvel[:] = self.time[row], self._qpos[row], self._qvel[row]
        data.site_xpos[self._site] = self._tools[row, self._site]
        for name, body in self._bodies.items():
            positions, rotations = self.objects[name]
            data.xpos[body], data.xmat[body] = positions[row], rotations[row].ravel()

    @property
    def q(self) -> Array:
        """Joint angles (m, n) [rad]."""
        q: Array = self._qpos[:, : self._joints]
        return q

    @property
    def dq(self) -> Array:
        """Joint velocities (m, n) [rad/s]."""
        dq: Array = self._qvel[:, : self._joints]
        return dq

    @property
    def drivers(self) -> Array:
        """Gripper drivers (m, 2) in their unit."""
        drivers: Array = self._qpos[:, self._drivers]
        return drivers

    def closed_fractions(self, drivers: Array) -> Array:
        """Compute the closed fractions (k,) of drivers (k, 2); see :meth:`GripperModel.closed_fraction`."""
        gripper = self._spec.gripper
        fractions: Array = ((drivers[:, 0] + drivers[:, 1]) / 2.0 - gripper.driver_open) / gripper.driver_range
        return fractions

    def advance(self, q: Array, gripper: Array, rows: NDArray[np.intp]) -> None:
        """Send commands to some arms, and advance them by one control period.

        Args:
            q: (k, n) joint angles [rad].
            gripper: (k,) closed fractions.
            rows: (k,) which arms.

        Raises:
            RobotError: The simulation of an arm became unstable.
        """
        arm, n = self._spec.arm, self._joints
        robots = [self._robots[row] for row in rows]
        steps = np.array([round(robot.period_share * self._substeps) for robot in robots])
        target = np.minimum(np.maximum(q, arm.lower), arm.upper)
        share = self._spec.control_rate_hz * (self._substeps / steps)
        self._ctrl[rows, :n] = (target - self._act[rows, :n]) * share[:, None]
        closed = self.closed_fractions(self.drivers[rows])
        moved = zip(robots, gripper.tolist(), closed.tolist(), (steps / self._rate).tolist(), strict=True)
        self._ctrl[rows, self._fingers] = [_moved(*each) for each in moved]
        for count in set(steps.tolist()):
            self.integrate(rows[steps == count], count)
        for row in rows[self._batch.warning[rows, UNSTABLE, COUNT] > 0]:
            raise RobotError(self._robots[row].unstable)
        self._act[rows, :n] = target
        self._ctrl[rows, :n] = 0.0
        for name, body in self._bodies.items():
            for kept, output in zip(self.objects[name], self._outputs, strict=True):
                kept[rows] = output[rows, body].reshape(len(rows), *kept.shape[1:])

    def integrate(self, rows: NDArray[np.intp], steps: int) -> None:
        """Do physics steps of some arms."""
        self._batch.step(rows, nstep=steps)


def _moved(robot: MujocoRobot, asked: float, measured: float, seconds: float) -> float:
    """Return the control of a robot's fingers after its motor was asked for a closed fraction."""
    robot.motor.go_to(asked)
    return robot.spec.gripper.control_at(robot.motor.advance(seconds, measured))
