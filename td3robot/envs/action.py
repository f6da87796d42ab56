"""What an action in [-1, 1] asks of the arm: a small move from the last commanded posture."""

from abc import ABC, abstractmethod
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.config import ActionConfig, GuardConfig
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.state import Array, JointCommand

# The posture pull sees no joint further than this from home, so that it stays gentle [rad].
POSTURE_REACH = 0.5
# The tool's distance from the walls of the workspace, enough to brake within [m].
WALL_MARGIN = 0.005
# Damping of the null space projection: small, so that the pull does not move the tool [m].
NULL_SPACE_DAMPING = 1e-3


class ActionKind(ABC):
    """Turn actions into wishes.

    Attributes:
        layout: Names of the action's components; the gripper, where used, comes last.
    """

    layout: Layout

    def __init__(self, config: ActionConfig, fields: list[Field], spec: RobotSpec, uses_gripper: bool) -> None:
        self.config, self.uses_gripper = config, uses_gripper
        self._gripper_reach = spec.gripper.closing_rate * spec.period_s
        gripper = [Field("gripper", ("closed",), "1", "gripper")] if uses_gripper else []
        self.layout = Layout([*fields, *gripper])

    @abstractmethod
    def move(self, action: NDArray[np.float32], q: Array) -> Array:
        """Compute the change (n,) [rad] of the commanded posture q (n,) in one period."""

    @abstractmethod
    def implied_speeds(self) -> dict[str, float]:
        """Give the largest tool [m/s] and joint [rad/s] speeds that actions ask for in the home posture."""

    def wish(self, action: NDArray[np.float32], commanded: JointCommand) -> JointCommand:
        """Compute the wished command; the gripper moves towards -1 open or +1 closed, as fast as it can."""
        gripper = 0.0
        if self.uses_gripper:
            way = (float(action[-1]) + 1.0) / 2.0 - commanded.gripper
            gripper = commanded.gripper + min(max(way, -self._gripper_reach), self._gripper_reach)
        return JointCommand(commanded.q + self.move(action, commanded.q), gripper)

    def to_json(self) -> dict[str, Any]:
        """Give the terms of a contract."""
        return self.config.model_dump(mode="json") | {
            "layout": self.layout.to_json(),
            "implied_speeds": self.implied_speeds(),
        }


class JointDelta(ActionKind):
    """Each component moves one joint, at full action by ``speed_fraction`` of the guard's joint speed limit."""

    def __init__(
        self, config: ActionConfig, guard: GuardConfig, spec: RobotSpec, kinematics: Kinematics, uses_gripper: bool
    ) -> None:
        super().__init__(config, [Field("joint_delta", spec.arm.joint_names, "1", "arm")], spec, uses_gripper)
        self._joints = len(spec.arm.home)
        self._speed = spec.arm.velocity * guard.joint_speed_fraction * config.speed_fraction
        self._scale = self._speed * spec.period_s
        _, self._home_jacobian = kinematics.tcp_and_jacobian(spec.arm.home)

    def move(self, action: NDArray[np.float32], q: Array) -> Array:
        """Scale the action."""
        return action[: self._joints] * self._scale

    def implied_speeds(self) -> dict[str, float]:
        """Give the joints' full speed, and the tool's at the worst combination of full joint speeds."""
        signs = np.array(list(product((-1.0, 1.0), repeat=self._joints)))
        tool = (signs * self._speed) @ self._home_jacobian.T
        return {
            "tcp_m_s_at_home": float(np.linalg.norm(tool, axis=1).max()),
            "joint_rad_s": float(self._speed.max()),
        }


class TcpDelta(ActionKind):
    """Three components move the tool centre point along the base frame's axes.

    Full action is ``speed_fraction`` of the guard's tool speed limit in any direction: the vector is shortened to
    that length, not its components. At the workspace's walls the tool slides along: the wished position is clipped to
    the guard's box, less ``WALL_MARGIN``, where the guard would stop the whole arm. Joints follow by damped least squares (Nakamura and Hanafusa 1986),
    ``dq = J' (J J' + damping^2)^-1 dx``, and what freedom is left pulls them gently towards home.
    """

    def __init__(
        self, config: ActionConfig, guard: GuardConfig, spec: RobotSpec, kinematics: Kinematics, uses_gripper: bool
    ) -> None:
        super().__init__(config, [Field("tcp_delta", ("x", "y", "z"), "1", "kinematics")], spec, uses_gripper)
        self._kinematics = kinematics
        self._home = spec.arm.home
        self._period = spec.period_s
        self._speed = guard.max_tcp_speed_m_s * config.speed_fraction
        self._low = np.array(guard.workspace.low) + WALL_MARGIN
        self._high = np.array(guard.workspace.high) - WALL_MARGIN
        self._damping = config.damping_m**2 * np.eye(3)
        self._null_space_damping = NULL_SPACE_DAMPING**2 * np.eye(3)

    def move(self, action: NDArray[np.float32], q: Array) -> Array:
        """Solve for the joints' share of a tool displacement."""
        direction = action[:3].astype(np.float64)
        length = float(np.sqrt(direction @ direction))
        dx = direction * (self._speed * self._period / max(length, 1.0))
        pose, jacobian = self._kinematics.tcp_and_jacobian(q)
        dx = np.clip(pose.position + dx, self._low, self._high) - pose.position
        gram = jacobian @ jacobian.T
        pull = np.clip(self._home - q, -POSTURE_REACH, POSTURE_REACH) * (self.config.posture_gain_hz * self._period)
        tool = np.linalg.solve(gram + self._damping, dx)
        null = np.linalg.solve(gram + self._null_space_damping, jacobian @ pull)
        displacement: Array = jacobian.T @ (tool - null) + pull
        return displacement

    def implied_speeds(self) -> dict[str, float]:
        """Give the tool's full speed, and the fastest joint's in the worst direction."""
        _, jacobian = self._kinematics.tcp_and_jacobian(self._home)
        per_direction = np.linalg.norm(np.linalg.pinv(jacobian), axis=1)
        return {"tcp_m_s": self._speed, "joint_rad_s_at_home": float(self._speed * per_direction.max())}


class UprightTcpDelta(ActionKind):
    """Three components move the tool centre point, one turns it about the vertical; the tool keeps pointing down.

    As :class:`TcpDelta`, over all six rows of the Jacobian; ``alignment_gain_hz`` brings a tilted tool upright.
    """

    ALIGNMENT_GAIN_HZ = 4.0

    def __init__(
        self, config: ActionConfig, guard: GuardConfig, spec: RobotSpec, kinematics: Kinematics, uses_gripper: bool
    ) -> None:
        fields = [
            Field("tcp_delta", ("x", "y", "z"), "1", "kinematics"),
            Field("tcp_turn", ("yaw",), "1", "kinematics"),
        ]
        super().__init__(config, fields, spec, uses_gripper)
        self._kinematics = kinematics
        self._home = spec.arm.home
        self._period = spec.period_s
        self._speed = guard.max_tcp_speed_m_s * config.speed_fraction
        self._low = np.array(guard.workspace.low) + WALL_MARGIN
        self._high = np.array(guard.workspace.high) - WALL_MARGIN
        self._damping = config.damping_m**2 * np.eye(6)

    def move(self, action: NDArray[np.float32], q: Array) -> Array:
        """Solve for the joints' share of a tool displacement and turn."""
        direction = action[:3].astype(np.float64)
        length = float(np.sqrt(direction @ direction))
        pose, jacobian = self._kinematics.tcp_and_full_jacobian(q)
        twist = np.empty(6)
        wished = pose.position + direction * (self._speed * self._period / max(length, 1.0))
        twist[:3] = np.clip(wished, self._low, self._high) - pose.position
        # The tool's z axis towards straight down: tilt is z x (0, 0, -1).
        z = pose.rotation[:, 2]
        gain = self.ALIGNMENT_GAIN_HZ * self._period
        twist[3:] = gain * -z[1], gain * z[0], float(action[3]) * self.config.turn_rad_s * self._period
        displacement: Array = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + self._damping, twist)
        return displacement

    def implied_speeds(self) -> dict[str, float]:
        """Give the tool's full speed and turn, and the fastest joint's in the worst direction."""
        _, jacobian = self._kinematics.tcp_and_full_jacobian(self._home)
        inverse = np.linalg.pinv(jacobian)
        fastest = self._speed * np.linalg.norm(inverse[:, :3], axis=1) + self.config.turn_rad_s * np.abs(inverse[:, 5])
        return {
            "tcp_m_s": self._speed,
            "turn_rad_s": self.config.turn_rad_s,
            "joint_rad_s_at_home": float(fastest.max()),
        }


def make_action_kind(
    config: ActionConfig,
    guard: GuardConfig,
    spec: RobotSpec,
    kinematics: Kinematics,
    uses_gripper: bool,
    keeps_upright: bool,
) -> ActionKind:
    """Make the configured kind."""
    if config.kind == "joint_delta":
        return JointDelta(config, guard, spec, kinematics, uses_gripper)
    if keeps_upright:
        return UprightTcpDelta(config, guard, spec, kinematics, uses_gripper)
    return TcpDelta(config, guard, spec, kinematics, uses_gripper)
