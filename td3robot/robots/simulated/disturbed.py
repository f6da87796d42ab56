"""Disturbances of a simulated cell: delay, noise and bias, a stalled controller, and what a real camera sees."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, floor, inf, pi, sin
from typing import ClassVar

import numpy as np

from td3robot.config.disturbance import DisturbanceConfig
from td3robot.geometry import rotation_matrix
from td3robot.jit import kernel
from td3robot.robots.interface import Robot
from td3robot.robots.objects import Objects, Sighting
from td3robot.robots.simulated.robot import SimulatedRobot, Variation
from td3robot.row_math import apart
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState

# Times and shares of a period that differ by less are the same [s], [1].
SAME = 1e-9
# Driver travel from open to closed to which a configuration's noise and bias refer: a 2F-85's [rad].
DRIVER_RANGE_RAD = 0.8


class DisturbedRobot(Robot):
    """A simulated robot behind delays and imperfect encoders; every episode draws its own.

    ``read`` returns the state as a controller sees it, ``truth`` the real one. A command takes effect a delay after it
    was sent, and a state is read a delay after it was measured, with the stamp of its measurement. Now and then the
    target stands still for a while, and so does everything that is under way.
    """

    is_disturbed: ClassVar[bool] = True

    def __init__(self, robot: SimulatedRobot, config: DisturbanceConfig) -> None:
        super().__init__(robot.spec)
        self.robot, self.config = robot, config
        self._driver_scale = abs(robot.spec.gripper.driver_range) / DRIVER_RANGE_RAD
        self._periods_late, self._observation_delay_s = 0, 0.0
        self._acting = JointCommand(robot.spec.arm.home, 0.0)
        self._under_way: deque[JointCommand] = deque()

    def begin(self, rng: np.random.Generator) -> None:
        """Draw an episode's disturbances, before ``move_to``; noise comes from ``rng`` until the next episode."""
        c = self.config
        self.rng = rng
        late = rng.uniform(*c.action_delay_s) * self.spec.control_rate_hz
        self._periods_late = floor(late + SAME)
        share = late - self._periods_late
        self.robot.late_share = share if share > SAME else 0.0
        self._observation_delay_s = rng.uniform(*c.observation_delay_s)
        self._until_hold_s = self._time_to_hold()
        self._bias = rng.uniform(-c.encoder_bias_rad, c.encoder_bias_rad, self.spec.arm.home.shape)
        driver_bias = c.driver_bias_rad * self._driver_scale
        self._driver_bias = rng.uniform(-driver_bias, driver_bias)
        self.robot.vary(
            Variation(
                servo_stiffness=rng.uniform(*c.servo_stiffness),
                servo_lag=rng.uniform(*c.servo_lag),
                servo_damping=rng.uniform(*c.servo_damping_factor),
                joint_friction_rad=self._joint_friction(),
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

    def _joint_friction(self) -> tuple[float, ...]:
        """Draw each joint's dry friction [rad]; where there is none, as before it existed, nothing is drawn."""
        most = self.config.joint_friction_rad
        return tuple(self.rng.uniform(0.0, most, len(self.spec.arm.home))) if most else ()

    def drawn(self) -> dict[str, float]:
        """Return this episode's delays and variations of the cell, by name."""
        late = (self._periods_late + self.robot.late_share) * self.spec.period_s
        return {
            "action_delay_s": late, "observation_delay_s": self._observation_delay_s, **self.robot.variation.to_dict()
        }  # fmt: skip

    def _time_to_hold(self) -> float:
        """Draw when the target stands still next [s]."""
        rate_hz = self.config.hold_rate_hz
        return self.rng.exponential(1.0 / rate_hz) if rate_hz > 0.0 else inf

    def connect(self) -> None:
        """Connect the wrapped robot."""
        self.robot.connect()

    def read(self) -> RobotState:
        """Return the state as it was an observation delay ago, through biased and noisy encoders."""
        c, rng, true = self.config, self.rng, self._delayed_state()
        q = true.q + self._bias + rng.normal(0.0, c.encoder_noise_rad, true.q.shape)
        driver_q = true.driver_q + self._driver_bias + rng.normal(0.0, c.driver_noise_rad * self._driver_scale, 2)
        return RobotState(q, true.dq, driver_q, true.stamp)

    def _delayed_state(self) -> RobotState:
        """Return the true state an observation delay ago, or that of the episode's beginning."""
        states, at = self._states, self._states[-1].stamp - self._observation_delay_s
        while len(states) > 1 and states[1].stamp <= at + SAME:
            states.popleft()
        before = states[0]
        if len(states) == 1 or before.stamp >= at - SAME:
            return before
        after = states[1]
        seconds = after.stamp - before.stamp
        share = (at - before.stamp) / seconds
        q, dq = motion_between(before.q, before.dq, after.q, after.dq, share, seconds)
        return RobotState(q, dq, before.driver_q + share * (after.driver_q - before.driver_q), at)

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
        self._acting = acting
        return acting

    def advance(self) -> None:
        """Advance by one control period, which may take longer than it should, or end in a hold of the target."""
        self._pass(1.0 + self.rng.uniform(0.0, self.config.period_jitter))
        self._until_hold_s -= self.spec.period_s
        if self._until_hold_s <= 0.0:
            left = self.rng.uniform(*self.config.hold_s) * self.spec.control_rate_hz
            while left > SAME:
                self._pass(min(left, 1.0))
                left -= 1.0
            self._until_hold_s = self._time_to_hold()

    def _pass(self, share: float) -> None:
        """Let a share of a control period pass, and measure the state at its end."""
        self.robot.period_share = share
        self.robot.advance()
        self._states.append(self.robot.read())

    def move_to(self, q: Array) -> None:
        """Bring the arm to a posture, and drop commands and states still in transit."""
        self.robot.move_to(q)
        self._states = deque([self.robot.read()])
        self._acting = JointCommand(q.copy(), 0.0)
        self._under_way = deque([self._acting] * self._periods_late)

    def stop(self) -> None:
        """Stop the wrapped robot, and drop commands still in transit."""
        self.robot.stop()
        self._under_way = deque([self._acting] * len(self._under_way))

    def close(self) -> None:
        """Release the wrapped robot."""
        self.robot.close()


@kernel
def motion_between(
    q: Array, dq: Array, next_q: Array, next_dq: Array, share: float, seconds: float
) -> tuple[Array, Array]:
    """Return joint angles (n,) [rad] and speeds (n,) [rad/s] at a share of the time [s] between two states.

    They lie on the cubic through both angles and speeds.
    """
    angles, speeds, left = np.empty_like(q), np.empty_like(q), 1.0 - share
    for joint in range(len(q)):
        mean = (next_q[joint] - q[joint]) / seconds
        speeds[joint] = (
            6.0 * share * left * mean
            + left * (1.0 - 3.0 * share) * dq[joint]
            + share * (3.0 * share - 2.0) * next_dq[joint]
        )
        angles[joint] = (
            (1.0 + 2.0 * share) * left**2 * q[joint]
            + (1.0 + 2.0 * left) * share**2 * next_q[joint]
            + share * left * seconds * (left * dq[joint] - share * next_dq[joint])
        )
    return angles, speeds


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


# An odd frame is off by this much [m].
ODD_M = (0.02, 0.2)
# Silence and nudges begin within this time [s]; this share of the episodes has a nudge, and none while the hand is
# nearer than this [m].
WITHIN_S, NUDGED_SHARE, AWAY_M = 5.0, 0.2, 0.12


class Camera(Objects):
    """See objects at the camera's own rate, late, noisily, with calibration errors, and not through the hand.

    Rate, latency, jitter, the share of lost frames, how much the hand hides, and the calibration's rotation and offset
    are drawn for each episode.
    """

    def __init__(self, objects: Objects, robot: DisturbedRobot) -> None:
        self._objects, self._robot = objects, robot

    def become(self, models: Mapping[str, ObjectModel]) -> None:
        """Give the objects another shape, size, mass and friction."""
        self._objects.become(models)

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects for the start of an episode, and draw the camera; its first frame has just arrived.

        That is no odd one: on an arm, an episode begins once several sightings agree.
        """
        c, rng = self._robot.config, self._robot.rng
        self._offset = rng.uniform(-c.object_offset_m, c.object_offset_m, 3)
        self._turn = rng.uniform(-c.object_turn_rad, c.object_turn_rad)
        self._frame = rotation_matrix(rng.uniform(-c.camera_turn_rad, c.camera_turn_rad, 3))
        self._latency = rng.uniform(*c.camera_latency_s)
        self._jitter = rng.uniform(0.0, c.camera_jitter_s)
        self._drop = rng.uniform(0.0, c.camera_drop)
        self._hidden = rng.uniform(*c.camera_hidden_m)
        self._odd = rng.uniform(0.0, c.camera_odd) if c.camera_odd else 0.0
        self._silent = self._drawn_silence(rng)
        self._interval = None if c.camera_rate_hz is None else 1.0 / rng.uniform(*c.camera_rate_hz)
        lying = self._objects.arrange(poses)
        self._nudges = self._drawn_nudges(poses, rng)
        now = self._robot.now()
        self._before_s, self._before_tool, self._before_poses = now, self._tool(), lying
        self._next_s = now + (0.0 if self._interval is None else rng.uniform(0.0, self._interval))
        self._coming: deque[_Frame] = deque()
        self._seen = {name: (self._measured(pose, rng, 0.0), now - self._latency) for name, pose in lying.items()}
        self._numbers = dict.fromkeys(lying, 1)
        return lying

    def read(self) -> Mapping[str, Sighting]:
        """Expose the frames of the last period, and return what has arrived of them and of earlier ones."""
        now, tool, poses = self._robot.now(), self._tool(), self._objects.truth()
        assert poses is not None
        if self._nudges:
            self._nudge(now, tool, poses)
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

    def drawn(self) -> dict[str, float]:
        """Return this episode's interval between frames, latency, share of lost frames, and hidden range, by name."""
        return {
            "camera_interval_s": self._interval or 0.0, "camera_latency_s": self._latency, "camera_drop": self._drop,
            "camera_hidden_m": self._hidden,
        }  # fmt: skip

    def close(self) -> None:
        """Release the wrapped objects."""
        self._objects.close()

    def _drawn_silence(self, rng: np.random.Generator) -> tuple[float, float]:
        """Draw when the camera is silent, from and to [s]."""
        if not self._robot.config.camera_silence_s[1]:
            return inf, inf
        begins = self._robot.now() + rng.uniform(0.0, WITHIN_S)
        return begins, begins + rng.uniform(*self._robot.config.camera_silence_s)

    def _drawn_nudges(self, lying: Mapping[str, Pose], rng: np.random.Generator) -> dict[str, tuple[float, Pose]]:
        """Draw when an object is moved, and where to."""
        range_m = self._robot.config.object_nudge_m
        if not lying or not range_m[1] or rng.random() >= NUDGED_SHARE:
            return {}
        name = str(rng.choice(sorted(lying)))
        angle, far = rng.uniform(0.0, 2.0 * pi), rng.uniform(*range_m)
        place = lying[name].position + far * np.array([cos(angle), sin(angle), 0.0])
        return {name: (self._robot.now() + rng.uniform(0.0, WITHIN_S), Pose(place, lying[name].rotation))}

    def _nudge(self, now: float, tool: Array, poses: Mapping[str, Pose]) -> None:
        """Move an object whose time has come; one that the hand has reached meanwhile stays."""
        for name, (at_s, pose) in list(self._nudges.items()):
            if now >= at_s:
                del self._nudges[name]
                if apart(poses[name].position, tool) > AWAY_M:
                    self._objects.arrange({name: pose})

    def _tool(self) -> Array:
        return self._robot.robot.tool_position()

    def _expose(self, at: float, tool: Array, poses: Mapping[str, Pose]) -> None:
        rng = self._robot.rng
        late = self._latency + rng.uniform(0.0, self._jitter)
        if rng.random() < self._drop or self._silent[0] <= at < self._silent[1]:
            return
        seen = {
            name: self._measured(pose, rng, self._odd)
            for name, pose in poses.items()
            if apart(pose.position, tool) >= self._hidden
        }
        # Frames are processed in order.
        due = max(at + late, self._coming[-1].due_s if self._coming else -inf)
        self._coming.append(_Frame(at, due, seen))

    def _measured(self, pose: Pose, rng: np.random.Generator, odd: float) -> Pose:
        c = self._robot.config
        offset = self._offset + rng.normal(0.0, c.object_noise_m, 3)
        if odd and rng.random() < odd:
            way = rng.normal(size=3)
            offset = offset + rng.uniform(*ODD_M) / np.linalg.norm(way) * way
        turn = self._turn + rng.normal(0.0, c.object_turn_noise_rad)
        return Pose(*seen_from(self._frame, offset, turn, pose.position, pose.rotation))
