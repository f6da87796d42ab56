"""The Robotics Toolbox's kinematics of an arm, and the backend ``kinematic``: that arm without dynamics."""

import numpy as np

from td3robot.errors import RobotError
from td3robot.robots.arms.model import ServoLaw
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Tools
from td3robot.robots.servo import follow_line, rub
from td3robot.robots.simulated.robot import Fingers, SimulatedRobot, Variation
from td3robot.state import Array, JointCommand, Pose, RobotState


class ToolboxKinematics:
    """An arm built from its numbers by the Robotics Toolbox: independent of MuJoCo.

    Importing the toolbox takes over a second, so make this class only where it is needed.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._assemble(spec)

    def adopt(self, spec: RobotSpec) -> None:
        """Use the connected robot's calibrated kinematics."""
        if spec is not self.spec:
            self._assemble(spec)

    def _assemble(self, spec: RobotSpec) -> None:
        self.spec = spec
        from roboticstoolbox import ET
        from roboticstoolbox.ets.ETS import ETS

        arm = spec.arm
        make = {"tx": ET.tx, "ty": ET.ty, "tz": ET.tz, "Rx": ET.Rx, "Ry": ET.Ry, "Rz": ET.Rz}
        steps = [make[axis](value) for axis, value in arm.chain.links[0]]
        for link, lower, upper in zip(arm.chain.links[1:], arm.lower, arm.upper, strict=True):
            steps.append(ET.Rz(qlim=np.array([lower, upper])))
            steps += [make[axis](value) for axis, value in link]
        self._ets = ETS([*steps, ET.tz(spec.tcp_offset_m)])

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        transform = self._ets.eval(q)
        return Pose(transform[:3, 3].copy(), transform[:3, :3].copy())

    def tools(self, q: Array) -> Tools:
        """Compute the tools of m postures q (m, n) [rad]."""
        poses = [self.tcp(row) for row in q]
        jacobians = np.array([np.asarray(self._ets.jacob0(row)) for row in q])
        return Tools(
            np.array([pose.position for pose in poses]), np.array([pose.rotation for pose in poses]), jacobians
        )


class KinematicRobot(SimulatedRobot):
    """An arm built from its numbers that integrates velocities, without inertia and contact.

    Each joint follows a target, which moves to the command in a straight line over the period, by the servo's law.

    An environment computes the tool pose with :attr:`kinematics`, so no MuJoCo model is involved in observations.

    The gripper's drivers move to their targets at the device's own closing speed.
    """

    def __init__(self, spec: RobotSpec) -> None:
        super().__init__(spec)
        self.kinematics = ToolboxKinematics(spec)
        self._open = False
        self._q, self._dq = spec.arm.home.copy(), np.zeros_like(spec.arm.home)
        self._friction, self._drag = np.zeros_like(self._q), np.zeros_like(self._q)
        self._moves = np.ones(len(self._q), np.bool_)
        self._target = self._before = spec.arm.home.copy()
        self._motor, self._time = Fingers(spec.gripper.closing_rate), 0.0
        self._set_law(spec.law)

    def connect(self) -> None:
        """Place the arm at its home posture."""
        if not self._open:
            self._open = True
            self.move_home()

    def read(self) -> RobotState:
        """Return the state at the end of the last period."""
        self._require_open()
        drivers = self.spec.gripper.drivers_at(self._motor.fraction)
        return RobotState(self._q - self._drag, self._dq * self._moves, drivers, self._time)

    def now(self) -> float:
        """Return the integrated time [s]."""
        self._require_open()
        return self._time

    def _send(self, command: JointCommand) -> None:
        self._require_open()
        self._command = command
        self._motor.go_to(command.gripper, self.late_share * self.spec.period_s)

    def advance(self) -> None:
        """Integrate one control period, exactly."""
        self._require_open()
        period, late = self.period_share * self.spec.period_s, self.late_share
        if late > 0.0:
            self._follow(self._before, late * period)
        self._follow(self._before + (1.0 - late) * (self._command.q - self._before), (1.0 - late) * period)
        self._before = self._command.q.copy()
        self._motor.advance(period, self._motor.fraction)
        self._time += period

    def _follow(self, end: Array, seconds: float) -> None:
        """Follow the target while it moves to its end (n,) [rad] in a straight line."""
        before = self._q.copy()
        follow_line(self._gain, self._lookahead_s, seconds, self._target, end, self._q, self._dq)
        self._moves = rub(self._q - before, self._dq, self._friction, self._drag)
        self._target = end

    def move_to(self, q: Array) -> None:
        """Place the arm at q, at rest, with the gripper open."""
        self._require_open()
        self._q, self._dq, self._time = q.copy(), np.zeros_like(q), 0.0
        self._drag = np.zeros_like(q)
        self._motor.place(0.0)
        self._target = self._before = q.copy()
        self._command = JointCommand(self._q.copy(), 0.0)

    def vary(self, variation: Variation) -> None:
        """Adopt a variation's servo law, friction and gripper; its other parts mean nothing without dynamics."""
        self.variation = variation
        self._set_law(self.spec.law.varied(variation.servo_lag, variation.servo_damping))
        self._friction = variation.friction_of(len(self._q))
        self._motor.share, self._motor.delay_s = variation.gripper_speed, variation.gripper_delay_s

    def _set_law(self, law: ServoLaw) -> None:
        self._gain, self._lookahead_s = np.full(len(self.spec.arm.home), law.gain), law.lookahead_s

    def tool_position(self) -> Array:
        """Compute the tool centre point's position (3,) [m]."""
        assert self.kinematics is not None
        return self.kinematics.tcp(self._q - self._drag).position

    def stop(self) -> None:
        """Stand still."""
        if self._open:
            self._dq = np.zeros_like(self._q)
            self._target = self._before = self._q.copy()
            self._command = JointCommand(self._q.copy(), self._motor.fraction)

    def close(self) -> None:
        """Close the robot."""
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise RobotError("the kinematic arm is not connected; call connect() first")
