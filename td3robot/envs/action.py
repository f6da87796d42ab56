"""Action kinds: an action in [-1, 1] asks for a small move from the last commanded posture."""

from abc import ABC, abstractmethod
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.config import ActionConfig, GuardConfig
from td3robot.geometry import headed_as, length, small_turn, turn_down
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.state import Array, JointCommand
from td3robot.tasks.interface import CLOSING_PER_S

# The orientation error to correct is capped at this, so that the correction stays gentle [rad].
MAX_TURN = 0.1
# Damping of the orientation task, for postures in which the position task leaves it little freedom [1].
ORIENTATION_DAMPING = 0.2
# Turning uses this share of the guard's joint acceleration limit: nearly all of it falls on one wrist joint.
TURN_ACCELERATION = 0.8
# The tool's distance from the walls of the workspace, enough to brake in [m].
WALL_MARGIN = 0.005
# Full tool speed of joint_delta, as a share of the guard's limit: between two postures the tool gains some speed.
TOOL_SHARE = 0.9
# A tool tilted by 1 rad has a finger this much nearer to the table: joint_delta keeps it that much higher [m].
TILT_RADIUS = 0.08
# Damping of the joints' slide along a wall: small, so that it keeps the tool's orientation [m/rad, 1].
SLIDE_DAMPING = 0.02
# Damping of the null space projection: small, so that turning does not move the tool [m].
NULL_SPACE_DAMPING = 1e-3
# Joints needed to set the tool's pose; an arm with more can move its elbow under a resting tool.
TASK_JOINTS = 6
# How fast such an elbow returns to its home position: slower than the tool, which full action moves through its whole
# workspace within 3 s, and faster than an episode [1/s].
POSTURE_GAIN_HZ = 1.0
# ... with no joint faster than this, which the guard's acceleration limit allows within one period [rad/s].
POSTURE_SPEED = 0.3

# Full action changes the gripper's intent, from 0 to 1, at this rate [1/s].
INTENT_PER_S = 3.0
# The gripper closes at this intent and above, and opens at this one and below; in between, its command stays.
CLOSES_AT, OPENS_AT = 0.7, 0.3
# A gripper this near to an end of its range counts as open or closed when an episode begins [closed fraction].
AT_END = 0.05


class ActionKind(ABC):
    """Turn actions into wishes.

    Attributes:
        layout: Names of the action's components; the gripper, if used, comes last.
    """

    layout: Layout

    def __init__(self, config: ActionConfig, fields: list[Field], spec: RobotSpec, uses_gripper: bool) -> None:
        self.config, self.uses_gripper = config, uses_gripper
        self._response = config.response(spec.period_s)
        self.intent_step = INTENT_PER_S * spec.period_s
        gripper = [Field("gripper", ("closed",), "1", "gripper")] if uses_gripper else []
        self.layout = Layout([*fields, *gripper])

    @abstractmethod
    def move(self, action: NDArray[np.float32], q: Array, velocity: Array) -> Array:
        """Compute the change (n,) [rad] of the commanded posture q (n,) in one period, after ``velocity`` [rad/s]."""

    @abstractmethod
    def implied_speeds(self) -> dict[str, float]:
        """Return the largest tool [m/s] and joint [rad/s] speeds that actions ask for; some hold at home only."""

    def waiting(self, action: NDArray[np.float32], closing_rate: float, gripper: float) -> NDArray[np.float32]:
        """Return an action, asking nothing of the arm if it waits for a gripper that closes.

        Args:
            action: (action,) in [-1, 1].
            closing_rate: How fast the measured closed fraction grows [1/s].
            gripper: The next commanded closed fraction.
        """
        if not (self.config.wait_for_gripper and gripper >= 1.0 and closing_rate >= CLOSING_PER_S):
            return action
        rest = np.zeros_like(action)
        rest[-1] = action[-1]
        return rest

    def wish(
        self, action: NDArray[np.float32], commanded: JointCommand, velocity: Array, gripper: float
    ) -> JointCommand:
        """Compute the wished command after ``commanded``, which was reached at ``velocity`` [rad/s].

        Args:
            action: (action,) in [-1, 1].
            commanded: The command that the guard last let through.
            velocity: (n,) of the commanded joints [rad/s].
            gripper: Wished closed fraction; from :meth:`told` if the gripper is part of the action.
        """
        return JointCommand(commanded.q + self.move(action, commanded.q, velocity), gripper)

    def intend(self, action: NDArray[np.float32], intent: float) -> float:
        """Compute the gripper's intent, in [0, 1], after an action, whose last component changes it."""
        if not self.uses_gripper:
            return intent
        return min(max(intent + self.intent_step * float(action[-1]), 0.0), 1.0)

    @staticmethod
    def intent_of(closed: float) -> float:
        """Return the intent that leaves a gripper as it is: undecided, unless it is open or closed."""
        if closed <= AT_END:
            return 0.0
        return 1.0 if closed >= 1.0 - AT_END else (OPENS_AT + CLOSES_AT) / 2

    def told(self, intent: float, before: float) -> float:
        """Return the gripper's next commanded closed fraction, after ``before``.

        It closes at ``CLOSES_AT`` and above, and opens at ``OPENS_AT`` and below. So closing is a single position
        command, and so is opening: a gripper pauses for every further one that is streamed to it.
        """
        if intent >= CLOSES_AT:
            return 1.0
        return 0.0 if intent <= OPENS_AT else before

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        left_out = {"response_s"}
        left_out |= {name for name in ("dead_zone", "per_axis", "wait_for_gripper") if not getattr(self.config, name)}
        terms = self.config.model_dump(mode="json", exclude=left_out) | {
            "response": self._response,
            "layout": self.layout.to_json(),
            "implied_speeds": self.implied_speeds(),
        }
        intent = {"intent_per_s": INTENT_PER_S, "closes_at": CLOSES_AT, "opens_at": OPENS_AT}
        return terms | {"gripper": intent} if self.uses_gripper else terms


class JointDeltaTerms(NamedTuple):
    """The numbers of :class:`JointDelta`.

    Attributes:
        period_s: One control period.
        speed: (n,) full joint speeds [rad/s].
        tool_speed: Full tool speed [m/s].
        response: Share of the wished change of velocity that happens in one period.
        low, high: (3,) where an upright tool may be wished [m].
        slide_damping: (6, 6) squared damping.
    """

    period_s: float
    speed: Array
    tool_speed: float
    response: float
    low: Array
    high: Array
    slide_damping: Array


class JointDelta(ActionKind):
    """Each component moves one joint; full action is ``speed_fraction`` of the guard's joint speed limit.

    Speed grows with the power ``exponent`` of the action beyond its dead zone. If the joints together would move the
    tool faster than ``TOOL_SHARE`` of the guard's limit, all are slowed down alike, before the guard does so at a cost
    to the policy.

    The tool slides along the workspace's walls, as with :class:`TcpDelta`: what the joints would move it beyond them is
    taken back by damped least squares of the whole Jacobian, without turning it. The floor rises with the tool's tilt.
    Otherwise the guard would stop all joints, for as long as the policy asks for the same.
    """

    def __init__(
        self, config: ActionConfig, guard: GuardConfig, spec: RobotSpec, kinematics: Kinematics, uses_gripper: bool
    ) -> None:
        super().__init__(config, [Field("joint_delta", spec.arm.joint_names, "1", "arm")], spec, uses_gripper)
        self._joints = len(spec.arm.home)
        self._speed = spec.arm.velocity * guard.joint_speed_fraction * config.speed_fraction
        self._period = spec.period_s
        self._kinematics = kinematics
        self._tool_speed = guard.max_tcp_speed_m_s * TOOL_SHARE
        _, self._home_jacobian = kinematics.tcp_and_jacobian(spec.arm.home)
        self._low, self._high = _walls(guard)
        self._slide_damping = SLIDE_DAMPING**2 * np.eye(6)

    def move(self, action: NDArray[np.float32], q: Array, velocity: Array) -> Array:
        """Compute the change towards the speed that the scaled action asks for."""
        bent = self.config.signed_share(action)
        wanted = bent[: self._joints] * self._speed
        pose, jacobian = self._kinematics.tcp_and_full_jacobian(q)
        tool = jacobian[:3] @ wanted
        wanted *= min(1.0, self._tool_speed / max(length(tool), 1e-9))
        dq: Array = (velocity + self._response * (wanted - velocity)) * self._period
        moved = jacobian @ dq
        position, tilt = pose.position + moved[:3], turn_down(pose.rotation)[:2] - moved[3:5]
        low = self._low.copy()
        low[2] += TILT_RADIUS * length(tilt)
        back = np.minimum(np.maximum(position, low), self._high) - position
        if not back.any():
            return dq
        gram = jacobian @ jacobian.T + self._slide_damping
        slid: Array = dq + jacobian.T @ np.linalg.solve(gram, np.concatenate([back, np.zeros(3)]))
        return slid

    def terms(self) -> JointDeltaTerms:
        """Return the numbers."""
        return JointDeltaTerms(
            self._period, self._speed, self._tool_speed, self._response, self._low, self._high, self._slide_damping
        )

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        return super().to_json() | {"slide": {"margin_m": WALL_MARGIN, "tilt_radius_m": TILT_RADIUS}}

    def implied_speeds(self) -> dict[str, float]:
        """Return the full joint speed, and the tool speed at the worst combination of full joint speeds."""
        signs = np.array(list(product((-1.0, 1.0), repeat=self._joints)))
        tool = float(np.linalg.norm((signs * self._speed) @ self._home_jacobian.T, axis=1).max())
        return {"tcp_m_s_at_home": min(tool, self._tool_speed), "joint_rad_s": float(self._speed.max())}


class TcpDeltaTerms(NamedTuple):
    """The numbers of :class:`TcpDelta`.

    Attributes:
        turns_tool: Whether a component turns the tool.
        redundant: Whether the arm's null space motion brings it back to its posture at home.
        home: (n,) that posture [rad].
        home_rotation: (3, 3) the tool's orientation at home.
        period_s: One control period.
        speed: Full tool speed [m/s].
        response: Share of the wished change of velocity that happens in one period.
        turn_change: Largest change of the turn rate in one period [rad/s].
        low, high: (3,) where the tool may be wished [m].
        position_damping, orientation_damping, null_space_damping: (3, 3) squared dampings.
    """

    turns_tool: bool
    redundant: bool
    home: Array
    home_rotation: Array
    period_s: float
    speed: float
    response: float
    turn_change: float
    low: Array
    high: Array
    position_damping: Array
    orientation_damping: Array
    null_space_damping: Array


class TcpDelta(ActionKind):
    """Three components move the tool centre point along the base frame's axes; a fourth may turn it.

    Full action is ``speed_fraction`` of the guard's tool speed limit in any direction: a longer vector is shortened as
    a whole, not per component. Speed grows with the power ``exponent`` of its length beyond the dead zone or, with
    ``per_axis``, of each component's. The tool slides along the workspace's walls: the wished position is clipped to
    the guard's box, less ``WALL_MARGIN``, because the guard would stop the whole arm there.

    Position has priority, by damped least squares (Nakamura and Hanafusa 1986), ``dq1 = Jp* dx``. The remaining
    freedom turns the tool back to its orientation at home, which it cannot always keep at the edge of the arm's reach:
    ``dq = dq1 + (Jo N)* (w - Jo dq1)`` with ``N`` the projection into the null space of ``Jp``. If the task turns the
    tool, the turn about the vertical belongs to the action, and only tilt is corrected.

    If the arm has more than six joints, its null space motion brings it back towards its home posture (Liegeois 1977):
    ``dq + (I - J* J) (home - q) gain``. Otherwise the elbow would drift, since moving the tool along a closed path does
    not bring it back.
    """

    def __init__(
        self,
        config: ActionConfig,
        guard: GuardConfig,
        spec: RobotSpec,
        kinematics: Kinematics,
        uses_gripper: bool,
        turns_tool: bool,
    ) -> None:
        fields = [Field("tcp_delta", ("x", "y", "z"), "1", "kinematics")]
        if turns_tool:
            fields.append(Field("tcp_turn", ("yaw",), "1", "kinematics"))
        super().__init__(config, fields, spec, uses_gripper)
        self._turns_tool = turns_tool
        self._kinematics = kinematics
        self._home = spec.arm.home
        self._home_rotation = kinematics.tcp(spec.arm.home).rotation
        self._period = spec.period_s
        self._speed = guard.max_tcp_speed_m_s * config.speed_fraction
        self._turn_change = TURN_ACCELERATION * guard.max_joint_acceleration_rad_s2 * spec.period_s
        self._low, self._high = _walls(guard)
        self._position_damping = config.damping_m**2 * np.eye(3)
        self._orientation_damping = ORIENTATION_DAMPING**2 * np.eye(3)
        self._null_space_damping = NULL_SPACE_DAMPING**2 * np.eye(3)
        self._redundant = len(spec.arm.home) > TASK_JOINTS

    def move(self, action: NDArray[np.float32], q: Array, velocity: Array) -> Array:
        """Compute the joint displacement for a tool displacement."""
        pose, jacobian = self._kinematics.tcp_and_full_jacobian(q)
        position, orientation = jacobian[:3], jacobian[3:]
        before = position @ velocity
        tool = before + self._response * (self._velocity(action[:3].astype(np.float64)) - before)
        dx = np.minimum(np.maximum(pose.position + tool * self._period, self._low), self._high) - pose.position
        upright = headed_as(self._home_rotation, pose.rotation) if self._turns_tool else self._home_rotation
        turn = small_turn(pose.rotation, upright, MAX_TURN) * (self.config.orientation_gain_hz * self._period)
        if self._turns_tool:
            rate = float(orientation[2] @ velocity)
            change = self._response * (self.config.signed_share(float(action[3])) * self.config.turn_rad_s - rate)
            turn[2] = (rate + min(max(change, -self._turn_change), self._turn_change)) * self._period

        gram = position @ position.T
        dq: Array = position.T @ np.linalg.solve(gram + self._position_damping, dx)
        crossed = np.linalg.solve(gram + self._null_space_damping, position @ orientation.T)
        free = orientation - crossed.T @ position  # Jo N
        dq = dq + free.T @ np.linalg.solve(free @ free.T + self._orientation_damping, turn - orientation @ dq)
        return dq + self._back_to_posture(jacobian, q, velocity) if self._redundant else dq

    def terms(self) -> TcpDeltaTerms:
        """Return the numbers."""
        return TcpDeltaTerms(
            turns_tool=self._turns_tool,
            redundant=self._redundant,
            home=self._home,
            home_rotation=self._home_rotation,
            period_s=self._period,
            speed=self._speed,
            response=self._response,
            turn_change=self._turn_change,
            low=self._low,
            high=self._high,
            position_damping=self._position_damping,
            orientation_damping=self._orientation_damping,
            null_space_damping=self._null_space_damping,
        )

    def _back_to_posture(self, jacobian: Array, q: Array, velocity: Array) -> Array:
        """Compute the change (n,) [rad] that brings the arm nearer to home without moving the tool."""
        wanted = POSTURE_GAIN_HZ * (self._home - q)
        wanted[-1] = 0.0  # the last joint turns the tool, whose heading decides where it is
        wanted *= min(1.0, POSTURE_SPEED / max(float(np.abs(wanted).max()), 1e-9))
        change = (velocity + self._response * (wanted - velocity)) * self._period
        gram = jacobian @ jacobian.T + NULL_SPACE_DAMPING**2 * np.eye(TASK_JOINTS)
        free: Array = change - jacobian.T @ np.linalg.solve(gram, jacobian @ change)
        return free

    def _velocity(self, direction: Array) -> Array:
        """Return the tool velocity (3,) [m/s] that an action (3,) asks for: at most full speed, and finer near zero."""
        if self.config.per_axis:
            bent = self.config.signed_share(direction)
            return self._speed * bent / max(length(bent), 1.0)
        size = length(direction)
        return direction * (self._speed * self.config.share(min(size, 1.0)) / max(size, 1e-9))

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        terms = super().to_json()
        return terms | {"posture_gain_hz": POSTURE_GAIN_HZ} if self._redundant else terms

    def implied_speeds(self) -> dict[str, float]:
        """Return the full tool speed, and the fastest joint's speed in the worst direction."""
        _, jacobian = self._kinematics.tcp_and_full_jacobian(self._home)
        per_direction = np.linalg.norm(np.linalg.pinv(jacobian)[:, :3], axis=1)
        speeds = {"tcp_m_s": self._speed, "joint_rad_s_at_home": float(self._speed * per_direction.max())}
        return speeds | ({"turn_rad_s": self.config.turn_rad_s} if self._turns_tool else {})


def _walls(guard: GuardConfig) -> tuple[Array, Array]:
    """Return where the tool may be wished, from lowest to highest (3,) [m]."""
    return np.array(guard.workspace.low) + WALL_MARGIN, np.array(guard.workspace.high) - WALL_MARGIN


def make_action_kind(
    config: ActionConfig,
    guard: GuardConfig,
    spec: RobotSpec,
    kinematics: Kinematics,
    uses_gripper: bool,
    turns_tool: bool,
) -> ActionKind:
    """Return the configured kind of action."""
    if config.kind == "joint_delta":
        return JointDelta(config, guard, spec, kinematics, uses_gripper)
    return TcpDelta(config, guard, spec, kinematics, uses_gripper, turns_tool)
