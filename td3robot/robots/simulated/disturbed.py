"""Disturbances of a simulated cell: delay, noise and bias, a servo that overshoots, and what a real camera sees."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from td3robot.config.disturbance import DisturbanceConfig, in_periods
from td3robot.geometry import rotation_matrix
from td3robot.jit import kernel
from td3robot.robots.interface import Robot
from td3robot.robots.objects import Objects, Sighting
from td3robot.robots.simulated.robot import SimulatedRobot, Variation
from td3robot.row_math import apart
from td3robot.state import Array, JointCommand, Pose, RobotState


class SecondOrderServo:
    """Follow a target that moves in straight lines, like a damped mass on a spring.

    ``a = w^2 (target - q) - 2 z w v`` with ``w = 2 z / lag``, so that it trails a ramp by the lag; solved exactly over
    each period.

    Args:
        lag_s: How far in time it trails a target that moves steadily.
        damping: The damping ratio z; below 1 it overshoots.
        period_s: Time between two targets.
    """

    def __init__(self, lag_s: float, damping: float, period_s: float) -> None:
        from scipy.linalg import expm  # takes half a second and 20 MB; undisturbed arms need none of it

        w = 2.0 * damping / lag_s
        self._period = period_s
        change = np.array([[0, 1, 0, 0], [-(w**2), -2 * damping * w, w**2, 0], [0, 0, 0, 1], [0, 0, 0, 0]], float)
        self._step: Array = expm(change * period_s)

    def place(self, q: Array) -> None:
        """Place the servo at rest at q (n,) [rad]."""
        self._state = np.stack([q, np.zeros_like(q), q, np.zeros_like(q)])

    def follow(self, target: Array) -> Array:
        """Return the joint angles (n,) [rad] after one period, in which the target moved to ``target`` (n,) [rad]."""
        self._state[3] = (target - self._state[2]) / self._period
        self._state = self._step @ self._state
        self._state[2] = target
        q: Array = self._state[0].copy()
        return q


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


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: the poses of the objects in view, by name."""

    exposed_s: float
    due_s: float
    poses: Mapping[str, Pose]


@kernel
def between(before: Array, after: Array, share: float) -> Array:
    """Return the point (3,) at a share of the way between two."""
    point = np.empty(3)
    for axis in range(3):
        point[axis] = before[axis] + share * (after[axis] - before[axis])
    return point


@kernel
def seen_from(frame: Array, offset: Array, turn: float, position: Array, rotation: Array) -> tuple[Array, Array]:
    """Return where a camera with a calibration error sees a pose, in the base frame.

    Args:
        frame: (3, 3) rotation of the calibration.
        offset: (3,) its offset, with noise [m].
        turn: By how much the object appears turned about the vertical [rad].
        position: (3,) true position [m].
        rotation: (3, 3) true rotation.
    """
    seen, turned, c, s = offset.copy(), np.zeros((3, 3)), np.cos(turn), np.sin(turn)
    for axis in range(3):
        for k in range(3):
            seen[axis] += frame[axis, k] * position[k]
            for column in range(3):
                turned[axis, column] += frame[axis, k] * rotation[k, column]
    for column in range(3):
        x, y = turned[0, column], turned[1, column]
        turned[0, column], turned[1, column] = c * x - s * y, s * x + c * y
    return seen, turned


class Camera(Objects):
    """See objects at the camera's own rate, late, noisily, with calibration errors, and not through the hand.

    Rate, latency, jitter, the share of lost frames, how much the hand hides, and the calibration's rotation and offset
    are drawn for each episode.
    """

    def __init__(self, objects: Objects, robot: DisturbedRobot) -> None:
        self._objects, self._robot = objects, robot

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects for the start of an episode, and draw the camera; its first frame has just arrived."""
        c, rng = self._robot.config, self._robot.rng
        self._offset = rng.uniform(-c.object_offset_m, c.object_offset_m, 3)
        self._turn = rng.uniform(-c.object_turn_rad, c.object_turn_rad)
        self._frame = rotation_matrix(rng.uniform(-c.camera_turn_rad, c.camera_turn_rad, 3))
        self._latency = rng.uniform(*c.camera_latency_s)
        self._jitter = rng.uniform(0.0, c.camera_jitter_s)
        self._drop = rng.uniform(0.0, c.camera_drop)
        self._hidden = rng.uniform(*c.camera_hidden_m)
        self._interval = None if c.camera_rate_hz is None else 1.0 / rng.uniform(*c.camera_rate_hz)
        lying = self._objects.arrange(poses)
        now = self._robot.now()
        self._before_s, self._before_tool, self._before_poses = now, self._tool(), lying
        self._next_s = now + (0.0 if self._interval is None else rng.uniform(0.0, self._interval))
        self._coming: deque[_Frame] = deque()
        self._seen = {name: (self._measured(pose, rng), now - self._latency) for name, pose in lying.items()}
        self._numbers = dict.fromkeys(lying, 1)
        return lying

    def read(self) -> Mapping[str, Sighting]:
        """Expose the frames of the last period, and return what has arrived of them and of earlier ones."""
        now, tool, poses = self._robot.now(), self._tool(), self._objects.truth()
        assert poses is not None
        if self._interval is None:
            self._expose(now, tool, poses)
        else:
            while self._next_s <= now:
                share = (self._next_s - self._before_s) / max(now - self._before_s, 1e-9)
                self._expose(
                    self._next_s,
                    between(self._before_tool, tool, share),
                    # The rotation is that of the end of the period.
                    {
                        name: Pose(between(self._before_poses[name].position, pose.position, share), pose.rotation)
                        for name, pose in poses.items()
                    },
                )
                self._next_s += self._interval
        self._before_s, self._before_tool, self._before_poses = now, tool, poses
        while self._coming and self._coming[0].due_s <= now + 1e-9:
            frame = self._coming.popleft()
            for name, pose in frame.poses.items():
                self._seen[name] = pose, frame.exposed_s
                self._numbers[name] += 1
        return {
            name: Sighting(pose, now - exposed, self._numbers[name]) for name, (pose, exposed) in self._seen.items()
        }

    def truth(self) -> Mapping[str, Pose] | None:
        """Return the true poses of the objects."""
        return self._objects.truth()

    def close(self) -> None:
        """Release the wrapped objects."""
        self._objects.close()

    def _tool(self) -> Array:
        return self._robot.robot.tool_position()

    def _expose(self, at: float, tool: Array, poses: Mapping[str, Pose]) -> None:
        rng = self._robot.rng
        late = self._latency + rng.uniform(0.0, self._jitter)
        if rng.random() < self._drop:
            return
        seen = {
            name: self._measured(pose, rng)
            for name, pose in poses.items()
            if apart(pose.position, tool) >= self._hidden
        }
        # Frames are processed in order.
        due = max(at + late, self._coming[-1].due_s if self._coming else -inf)
        self._coming.append(_Frame(at, due, seen))

    def _measured(self, pose: Pose, rng: np.random.Generator) -> Pose:
        c = self._robot.config
        offset = self._offset + rng.normal(0.0, c.object_noise_m, 3)
        turn = self._turn + rng.normal(0.0, c.object_turn_noise_rad)
        return Pose(*seen_from(self._frame, offset, turn, pose.position, pose.rotation))
