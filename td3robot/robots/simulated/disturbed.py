"""Disturbances of a simulated arm: delay, noise, bias, and physics that differ from the model."""

from collections import deque
from typing import ClassVar

import numpy as np

from td3robot.config.disturbance import DisturbanceConfig, in_periods
from td3robot.robots.interface import Robot
from td3robot.robots.simulated.robot import SimulatedRobot
from td3robot.robots.simulated.servo import SecondOrderServo
from td3robot.robots.simulated.variation import Variation
from td3robot.state import Array, JointCommand, RobotState

# Driver travel from open to closed to which a configuration's noise and bias refer: a 2F-85's [rad].
DRIVER_RANGE_RAD = 0.8
# If the servo overshoots, this share of the lag is left to the simulation's own servo.
OWN_LAG = 0.5


class DisturbedRobot(Robot):
    """A simulated robot behind delays and imperfect encoders; every episode draws its own.

    ``read`` returns the state as a controller sees it, ``truth`` the real one. A command takes effect ``action_delay``
    periods after it was sent; a state is read ``observation_delay`` periods after it was measured, with the stamp of
    its measurement.
    """

    is_disturbed: ClassVar[bool] = True

    def __init__(self, robot: SimulatedRobot, config: DisturbanceConfig) -> None:
        super().__init__(robot.spec)
        self.robot, self.config = robot, config
        self._driver_scale = abs(robot.spec.gripper.driver_range) / DRIVER_RANGE_RAD
        self._action_delay = self.observation_delay = 0
        self._servo: SecondOrderServo | None = None
        self._acting = JointCommand(robot.spec.arm.home, 0.0)
        self._under_way: deque[JointCommand] = deque()

    def begin(self, rng: np.random.Generator) -> None:
        """Draw an episode's disturbances, before ``move_to``; noise comes from ``rng`` until the next episode."""
        c = self.config
        self.rng = rng
        self._action_delay = self._periods(c.action_delay_s)
        self.observation_delay = self._periods(c.observation_delay_s)
        self._bias = rng.uniform(-c.encoder_bias_rad, c.encoder_bias_rad, self.spec.arm.home.shape)
        driver_bias = c.driver_bias_rad * self._driver_scale
        self._driver_bias = rng.uniform(-driver_bias, driver_bias)
        lag = rng.uniform(*c.servo_lag)
        self._servo = None
        if c.servo_damping is not None:
            outer_s = (1.0 - OWN_LAG) * lag * self.spec.arm.servo.lag_s
            self._servo = SecondOrderServo(outer_s, rng.uniform(*c.servo_damping), self.spec.period_s)
            self._servo.place(self._acting.q)  # an episode may begin where the arm stands
        self.robot.vary(
            Variation(
                servo_stiffness=rng.uniform(*c.servo_stiffness),
                servo_lag=lag if self._servo is None else OWN_LAG * lag,
                payload_kg=rng.uniform(*c.payload_kg),
                table_offset_m=rng.uniform(-c.table_offset_m, c.table_offset_m),
                object_mass_kg=c.object_mass_kg and float(np.exp(rng.uniform(*np.log(c.object_mass_kg)))),
                object_friction=c.object_friction and rng.uniform(*c.object_friction),
                object_scale=rng.uniform(*c.object_scale),
                tool_offset_m=tuple(rng.uniform(-c.tool_offset_m, c.tool_offset_m, 3)),
                gripper_speed=rng.uniform(*c.gripper_speed),
                gripper_delay_s=rng.uniform(*c.gripper_delay_s),
            )
        )

    def _periods(self, range_s: tuple[float, float]) -> int:
        """Draw a delay in whole control periods."""
        low, high = in_periods(range_s, self.spec.control_rate_hz)
        return int(self.rng.integers(low, high, endpoint=True))

    def connect(self) -> None:
        """Connect the wrapped robot."""
        self.robot.connect()

    def read(self) -> RobotState:
        """Return the state as it was ``observation_delay`` periods ago, through biased and noisy encoders."""
        c, rng, true = self.config, self.rng, self._states[0]
        q = true.q + self._bias + rng.normal(0.0, c.encoder_noise_rad, true.q.shape)
        driver_q = true.driver_q + self._driver_bias + rng.normal(0.0, c.driver_noise_rad * self._driver_scale, 2)
        return RobotState(q, true.dq, driver_q, true.stamp)

    def truth(self) -> RobotState:
        """Return the true state."""
        return self.robot.read()

    def now(self) -> float:
        """Return the wrapped robot's time [s]."""
        return self.robot.now()

    def _send(self, command: JointCommand) -> None:
        self._acting = self.robot.send(self.delayed(command))

    def delayed(self, command: JointCommand) -> JointCommand:
        """Take a command that is sent now, and return the one that takes effect now."""
        self._under_way.append(command)
        acting = self._under_way.popleft()
        if self._servo is not None:
            acting = JointCommand(self._servo.follow(acting.q), acting.gripper)
        self._acting = acting
        return acting

    def advance(self) -> None:
        """Advance by one control period, which may take longer than it should."""
        self.begin_period()
        self.robot.advance()
        self.end_period()

    def begin_period(self) -> None:
        """Draw how long the coming control period takes."""
        self.robot.period_share = 1.0 + self.rng.uniform(0.0, self.config.period_jitter)

    def end_period(self) -> None:
        """Measure the state at the end of a control period."""
        self._states.append(self.robot.read())
        if len(self._states) > self.observation_delay + 1:
            self._states.popleft()

    def move_to(self, q: Array) -> None:
        """Bring the arm to a posture, and drop commands and states still in transit."""
        self.robot.move_to(q)
        if self._servo is not None:
            self._servo.place(q)
        self._states = deque([self.robot.read()])
        self._acting = JointCommand(q.copy(), 0.0)
        self._under_way = deque([self._acting] * self._action_delay)

    def stop(self) -> None:
        """Stop the wrapped robot, and drop commands still in transit."""
        self.robot.stop()
        if self._servo is not None:
            self._servo.place(self._acting.q)
        self._under_way = deque([self._acting] * len(self._under_way))

    def close(self) -> None:
        """Release the wrapped robot."""
        self.robot.close()


def without_disturbances(robot: Robot) -> Robot:
    """Return the robot behind a disturbed one's disturbances, or the robot itself."""
    return robot.robot if isinstance(robot, DisturbedRobot) else robot
