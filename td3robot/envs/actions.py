"""Action kinds: an action in [-1, 1] asks for a small move from the last commanded posture, in each row of a batch."""

from abc import ABC, abstractmethod
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.config import ActionConfig, GuardConfig
from td3robot.config.robot import TURN_RAD_S
from td3robot.jit import formula, kernel, plain
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics, Links, place_tool
from td3robot.row_math import damped_inverse, dot, peak
from td3robot.state import Array
from td3robot.tasks.interface import CLOSING_PER_S

Actions = NDArray[np.float32]

# A tilted tool is turned back to pointing down at this rate [1/s]; the error to correct is capped, so that the
# correction stays gentle [rad].
ORIENTATION_GAIN_HZ, MAX_TURN = 4.0, 0.1
# Damping of the damped least squares inverse of the position Jacobian [m/rad].
DAMPING = 0.05
# Response time of the arm: the share ``period / RESPONSE_S`` of the desired change of velocity happens in one control
# period, or all of it if the period is longer. A policy that dithers then moves the arm smoothly instead of being held
# back by the guard's acceleration limit [s].
RESPONSE_S = 0.125
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
    """Turn actions into desired commands.

    Attributes:
        layout: Names of the action's components; the gripper, if used, comes last.
    """

    layout: Layout

    def __init__(
        self, config: ActionConfig, fields: list[Field], spec: RobotSpec, kinematics: Kinematics, uses_gripper: bool
    ) -> None:
        self.config, self.uses_gripper, self._kinematics = config, uses_gripper, kinematics
        self._period = spec.period_s
        self._response = min(1.0, spec.period_s / RESPONSE_S)
        self._intent_step = INTENT_PER_S * spec.period_s
        gripper = [Field("gripper", ("closed",), "1", "gripper")] if uses_gripper else []
        self.layout = Layout([*fields, *gripper])

    @abstractmethod
    def move(self, actions: Actions, q: Array, velocity: Array, lowest: Array) -> Array:
        """Compute the changes (m, n) [rad] of commanded postures in one period.

        Args:
            actions: (m, action) in [-1, 1].
            q: (m, n) commanded postures [rad].
            velocity: (m, n) at which they were reached [rad/s].
            lowest: (m,) how low the tools may go [m]; one that is lower already is not lifted.
        """

    @abstractmethod
    def implied_speeds(self) -> dict[str, float]:
        """Return the largest tool [m/s] and joint [rad/s] speeds that actions ask for; some hold at home only."""

    def desired(
        self,
        actions: Actions,
        q: Array,
        velocity: Array,
        gripper: Array,
        closing_rate: Array,
        lowest: Array | None = None,
    ) -> Array:
        """Compute the desired postures (m, n) [rad]; arms rest while their fingers close.

        Args:
            actions: As in :meth:`move`.
            q: As there.
            velocity: As there.
            gripper: (m,) the next commanded closed fractions.
            closing_rate: (m,) how fast the measured closed fractions grow [1/s].
            lowest: As there; None for anywhere.
        """
        if self.uses_gripper:
            actions = resting(actions, gripper, closing_rate)
        return q + self.move(actions, q, velocity, np.full(len(q), -np.inf) if lowest is None else lowest)

    def intend(self, actions: Actions, intent: Array) -> Array:
        """Compute the grippers' intents (m,), in [0, 1], after actions, whose last component changes them."""
        if not self.uses_gripper:
            return intent
        return intents(intent, self._intent_step, actions)

    @staticmethod
    def intent_of(closed: float) -> float:
        """Return the intent that leaves a gripper as it is: undecided, unless it is open or closed."""
        if closed <= AT_END:
            return 0.0
        return 1.0 if closed >= 1.0 - AT_END else (OPENS_AT + CLOSES_AT) / 2

    @staticmethod
    def gripper_command(intent: Array, before: Array) -> Array:
        """Return the grippers' next commanded closed fractions (m,), after ``before``.

        They close at ``CLOSES_AT`` and above, and open at ``OPENS_AT`` and below. So closing is a single position
        command, and so is opening: a gripper pauses for every further one that is streamed to it.
        """
        return gripper_commands(intent, before)

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        terms = self.config.model_dump(mode="json") | {
            "response": self._response,
            "layout": self.layout.to_json(),
            "implied_speeds": self.implied_speeds(),
        }
        if self.uses_gripper:
            gripper = {"intent_per_s": INTENT_PER_S, "closes_at": CLOSES_AT, "opens_at": OPENS_AT}
            terms |= {"gripper": gripper, "wait_for_gripper": True}
        return terms


@kernel
def intents(intent: Array, step: float, actions: Actions) -> Array:
    """Compute the grippers' intents (m,), in [0, 1], after actions whose full size changes them by a step."""
    found = np.empty(len(intent))
    for row in range(len(intent)):
        found[row] = min(max(intent[row] + step * float(actions[row, -1]), 0.0), 1.0)
    return found


@kernel
def gripper_commands(intent: Array, before: Array) -> Array:
    """Return the grippers' next commanded closed fractions (m,); see :meth:`ActionKind.gripper_command`."""
    found = before.copy()
    for row in range(len(intent)):
        if intent[row] >= CLOSES_AT:
            found[row] = 1.0
        elif intent[row] <= OPENS_AT:
            found[row] = 0.0
    return found


@kernel
def resting(actions: Actions, gripper: Array, closing_rate: Array) -> Actions:
    """Return the actions, with those of arms whose fingers close replaced by rest; see :meth:`ActionKind.desired`."""
    found = actions.copy()
    for row in range(len(found)):
        if gripper[row] >= 1.0 and closing_rate[row] >= CLOSING_PER_S:
            found[row] = 0.0
    return found


class Numbers(NamedTuple):
    """The numbers that turn actions into moves, for compiled code.

    Attributes:
        dead_zone, exponent: Of the configuration.
        period_s, response: One control period, and the share of the desired change of velocity that happens in it.
        low, high: (3,) where the tool may be desired [m].
        speed: (n,) full joint speeds [rad/s], or (1,) the full tool speed [m/s].
        tool_speed: Largest tool speed [m/s].
        home: (n,) the posture at home [rad].
        home_rotation: (3, 3) the tool's orientation there.
        turn: Full turn rate [rad/s], largest change of it in a period [rad/s], and share of a tilt that is corrected in
            a period; all 0 if the task does not turn the tool but for the last.
        turns_tool, tilts_tool: Whether a component turns the tool, and whether three turn it any way.
        redundant: Whether the arm has joints to spare.
    """

    dead_zone: float
    exponent: float
    period_s: float
    response: float
    low: Array
    high: Array
    speed: Array
    tool_speed: float
    home: Array
    home_rotation: Array
    turn: tuple[float, float, float]
    turns_tool: bool
    tilts_tool: bool
    redundant: bool


@kernel
def signed_share(component: float, dead_zone: float, exponent: float) -> float:
    """Map an action component in [-1, 1] to a signed fraction of full speed."""
    beyond = max(0.0, (abs(component) - dead_zone) / (1.0 - dead_zone))
    return float(np.copysign(beyond**exponent, component))


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
        fields = [Field("joint_delta", spec.arm.joint_names, "1", "arm")]
        super().__init__(config, fields, spec, kinematics, uses_gripper)
        self._home, self._joints = spec.arm.home, len(spec.arm.home)
        self._speed = spec.arm.velocity * guard.joint_speed_fraction * config.speed_fraction
        self._tool_speed = guard.max_tcp_speed_m_s * TOOL_SHARE
        self._numbers = Numbers(
            config.dead_zone, config.exponent, spec.period_s, self._response, *_walls(guard), self._speed,
            self._tool_speed, self._home, np.eye(3), (0.0, 0.0, 0.0), False, False, False,
        )  # fmt: skip
        self._packed = plain(self._numbers)

    def move(self, actions: Actions, q: Array, velocity: Array, lowest: Array) -> Array:
        """Compute the changes towards the speeds that the scaled actions ask for."""
        return joint_moves(self._packed, self._kinematics.links, actions, q, velocity, lowest)

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        return super().to_json() | {"slide": {"margin_m": WALL_MARGIN, "tilt_radius_m": TILT_RADIUS}}

    def implied_speeds(self) -> dict[str, float]:
        """Return the full joint speed, and the tool speed at the worst combination of full joint speeds."""
        linear = self._kinematics.tools(self._home[None]).linear[0]
        signs = np.array(list(product((-1.0, 1.0), repeat=self._joints)))
        tool = float(np.linalg.norm((signs * self._speed) @ linear.T, axis=1).max())
        return {"tcp_m_s_at_home": min(tool, self._tool_speed), "joint_rad_s": float(self._speed.max())}


@kernel
def joint_moves(numbers: Numbers, packed: Links, actions: Actions, q: Array, velocity: Array, lowest: Array) -> Array:
    """Compute the moves (m, n) of :class:`JointDelta`."""
    n, links = Numbers(*numbers), Links(*packed)
    joints = q.shape[1]
    moves, wanted, back = np.empty(q.shape), np.empty(joints), np.zeros(6)
    position, rotation, jacobian = np.empty(3), np.empty((3, 3)), np.empty((6, joints))
    for row in range(len(q)):
        place_tool(q[row], links, position, rotation, jacobian)
        for joint in range(joints):
            wanted[joint] = signed_share(actions[row, joint], n.dead_zone, n.exponent) * n.speed[joint]
        tool = 0.0
        for axis in range(3):
            tool += dot(jacobian[axis], wanted) ** 2
        slower = min(1.0, n.tool_speed / max(np.sqrt(tool), 1e-9))
        for joint in range(joints):
            moves[row, joint] = approach(n, velocity[row, joint], slower * wanted[joint]) * n.period_s
        tilt = np.hypot(-rotation[1, 2] - dot(jacobian[3], moves[row]), rotation[0, 2] - dot(jacobian[4], moves[row]))
        beyond = False
        for axis in range(3):
            low = n.low[axis] if axis < 2 else floor_of(n, lowest[row], position[2]) + TILT_RADIUS * tilt
            moved = position[axis] + dot(jacobian[axis], moves[row])
            back[axis] = min(max(moved, low), n.high[axis]) - moved
            beyond |= back[axis] != 0.0
        if beyond:
            add(moves[row], damped_inverse(jacobian, back, SLIDE_DAMPING))
    return moves


@formula
def floor_of(n: Numbers, lowest: float, height: float) -> float:
    """Return how low a tool at a height may go [m]: no lower than the workspace, and no lower than a task lets it."""
    return float(max(n.low[2], min(lowest, height)))


@formula
def approach(n: Numbers, velocity: float, wanted: float) -> float:
    """Return a velocity after a control period, on the way to the one that is wanted."""
    return velocity + n.response * (wanted - velocity)


@formula
def add(values: Array, more: Array) -> None:
    """Add numbers (n,) to others in place."""
    for index in range(len(values)):
        values[index] += more[index]


class TcpDelta(ActionKind):
    """Three components move the tool centre point along the base frame's axes; a fourth may turn it.

    Full action is ``speed_fraction`` of the guard's tool speed limit along an axis, and in any direction: a velocity
    beyond it is shortened as a whole. Along each axis, speed grows with the power ``exponent`` of the component beyond
    the dead zone, so that one axis at full speed, as when the tool pushes on the table, leaves the others fine. The
    tool slides along the workspace's walls: the desired position is clipped to the guard's box, less ``WALL_MARGIN``,
    because the guard would stop the whole arm there.

    Position has priority, by damped least squares (Nakamura and Hanafusa 1986), ``dq1 = Jp* dx``. The remaining
    freedom turns the tool back to its orientation at home, which it cannot always keep at the edge of the arm's reach:
    ``dq = dq1 + (Jo N)* (w - Jo dq1)`` with ``N`` the projection into the null space of ``Jp``. If the task turns the
    tool, the turn about the vertical belongs to the action, and only tilt is corrected. If the task tilts it, three
    components turn it about the base frame's axes, and nothing is corrected.

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
        pace: float = 1.0,
        tilts_tool: bool = False,
    ) -> None:
        fields = [Field("tcp_delta", ("x", "y", "z"), "1", "kinematics")]
        if turns_tool or tilts_tool:
            axes = ("x", "y", "z") if tilts_tool else ("yaw",)
            fields.append(Field("tcp_turn", axes, "1", "kinematics"))
        super().__init__(config, fields, spec, kinematics, uses_gripper)
        self._turns_tool, self._home = turns_tool or tilts_tool, spec.arm.home
        self._turn_rad_s, self._gain_hz = TURN_RAD_S * pace, ORIENTATION_GAIN_HZ * pace
        self._speed = guard.max_tcp_speed_m_s * config.speed_fraction
        self._redundant = len(spec.arm.home) > TASK_JOINTS
        turn_change = TURN_ACCELERATION * guard.max_joint_acceleration_rad_s2 * spec.period_s
        self._numbers = Numbers(
            config.dead_zone, config.exponent, spec.period_s, self._response, *_walls(guard), np.array([self._speed]),
            self._speed, self._home, kinematics.tcp(spec.arm.home).rotation,
            (self._turn_rad_s, turn_change, self._gain_hz * spec.period_s), turns_tool, tilts_tool,
            self._redundant,
        )  # fmt: skip
        self._packed = plain(self._numbers)

    def move(self, actions: Actions, q: Array, velocity: Array, lowest: Array) -> Array:
        """Compute the joint displacements for tool displacements."""
        return tool_moves(self._packed, self._kinematics.links, actions, q, velocity, lowest)

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        terms = super().to_json() | {
            "per_axis": True,
            "damping_m": DAMPING,
            "orientation_gain_hz": self._gain_hz,
            "turn_rad_s": self._turn_rad_s,
        }
        return terms | {"posture_gain_hz": POSTURE_GAIN_HZ} if self._redundant else terms

    def implied_speeds(self) -> dict[str, float]:
        """Return the full tool speed, and the fastest joint's speed in the worst direction."""
        jacobian = self._kinematics.tools(self._home[None]).jacobian[0]
        per_direction = np.linalg.norm(np.linalg.pinv(jacobian)[:, :3], axis=1)
        speeds = {"tcp_m_s": self._speed, "joint_rad_s_at_home": float(self._speed * per_direction.max())}
        return speeds | ({"turn_rad_s": self._turn_rad_s} if self._turns_tool else {})


@kernel
def tool_moves(numbers: Numbers, packed: Links, actions: Actions, q: Array, velocity: Array, lowest: Array) -> Array:
    """Compute the moves (m, n) of :class:`TcpDelta`."""
    n, links = Numbers(*numbers), Links(*packed)
    joints = q.shape[1]
    moves, dx, turn, free, twist = np.empty(q.shape), np.empty(3), np.empty(3), np.empty((3, joints)), np.empty(3)
    position, rotation, jacobian = np.empty(3), np.empty((3, 3)), np.empty((6, joints))
    for row in range(len(q)):
        place_tool(q[row], links, position, rotation, jacobian)
        linear, angular, v = jacobian[:3], jacobian[3:], velocity[row]
        for axis in range(3):
            dx[axis] = signed_share(actions[row, axis], n.dead_zone, n.exponent)
        speed = n.speed[0] / max(np.sqrt(dot(dx, dx)), 1.0)
        for axis in range(3):
            reached = position[axis] + approach(n, dot(linear[axis], v), speed * dx[axis]) * n.period_s
            low = n.low[axis] if axis < 2 else floor_of(n, lowest[row], position[2])
            dx[axis] = min(max(reached, low), n.high[axis]) - position[axis]
        if n.tilts_tool:
            for axis in range(3):
                turn[axis] = turn_by(n, actions[row, 3 + axis], dot(angular[axis], v))
        else:
            turn_upright(n, rotation, turn)
        if n.turns_tool:
            turn[2] = turn_by(n, actions[row, 3], dot(angular[2], v))
        dq = damped_inverse(linear, dx, DAMPING)
        for axis in range(3):  # Jo N
            for k in range(3):
                twist[k] = dot(linear[k], angular[axis])
            taken = damped_inverse(linear, twist, NULL_SPACE_DAMPING)
            for joint in range(joints):
                free[axis, joint] = angular[axis, joint] - taken[joint]
            turn[axis] -= dot(angular[axis], dq)
        add(dq, damped_inverse(free, turn, ORIENTATION_DAMPING))
        if n.redundant:
            move_to_posture(n, jacobian, q[row], v, dq)
        for joint in range(joints):
            moves[row, joint] = dq[joint]
    return moves


@formula
def turn_by(n: Numbers, component: float, rate: float) -> float:
    """Return how far a tool that turns about an axis at a rate [rad/s] is turned in a period, by an action [rad]."""
    change = n.response * (signed_share(component, n.dead_zone, n.exponent) * n.turn[0] - rate)
    return (rate + min(max(change, -n.turn[1]), n.turn[1])) * n.period_s


@formula
def turn_upright(n: Numbers, rotation: Array, turn: Array) -> None:
    """Approximate this period's share of the rotation vector (3,) from a tool (3, 3) to home's orientation.

    If the task turns the tool, home's orientation is turned about the vertical to the tool's own heading. The skew part
    of ``wanted rotation'`` is the rotation axis times the sine of the angle (Luh, Walker and Paul 1980), here limited
    to ``MAX_TURN``.
    """
    wanted = n.home_rotation.copy()
    if n.turns_tool:
        x, y = wanted[0, 0], wanted[1, 0]
        c, s = x * rotation[0, 0] + y * rotation[1, 0], x * rotation[1, 0] - y * rotation[0, 0]
        size = max(np.hypot(c, s), 1e-9)
        for column in range(3):
            x, y = wanted[0, column], wanted[1, column]
            wanted[0, column], wanted[1, column] = (c * x - s * y) / size, (s * x + c * y) / size
    for axis in range(3):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn[axis] = 0.5 * (dot(wanted[j], rotation[i]) - dot(wanted[i], rotation[j]))
    share = n.turn[2] * min(1.0, MAX_TURN / max(np.sqrt(dot(turn, turn)), 1e-9))
    for axis in range(3):
        turn[axis] *= share


@kernel
def move_to_posture(n: Numbers, jacobian: Array, q: Array, velocity: Array, move: Array) -> None:
    """Add to a move (n,) the change [rad] that brings an arm nearer to home without moving its tool."""
    change, twist = np.empty(len(q)), np.empty(TASK_JOINTS)
    for joint in range(len(q)):
        change[joint] = POSTURE_GAIN_HZ * (n.home[joint] - q[joint])
    change[-1] = 0.0  # the last joint turns the tool, whose heading decides where it is
    slower = min(1.0, POSTURE_SPEED / max(peak(change), 1e-9))
    for joint in range(len(q)):
        change[joint] = approach(n, velocity[joint], slower * change[joint]) * n.period_s
    for axis in range(TASK_JOINTS):
        twist[axis] = dot(jacobian[axis], change)
    taken = damped_inverse(jacobian, twist, NULL_SPACE_DAMPING)
    for joint in range(len(q)):
        move[joint] += change[joint] - taken[joint]


def _walls(guard: GuardConfig) -> tuple[Array, Array]:
    """Return where the tool may be desired, from lowest to highest (3,) [m]."""
    return np.array(guard.workspace.low) + WALL_MARGIN, np.array(guard.workspace.high) - WALL_MARGIN


def make_action_kind(
    config: ActionConfig,
    guard: GuardConfig,
    spec: RobotSpec,
    kinematics: Kinematics,
    uses_gripper: bool,
    turns_tool: bool,
    pace: float = 1.0,
    tilts_tool: bool = False,
) -> ActionKind:
    """Return the configured kind of action; at a pace below 1, the tool turns slower than in training."""
    if config.kind == "joint_delta":
        return JointDelta(config, guard, spec, kinematics, uses_gripper)
    return TcpDelta(config, guard, spec, kinematics, uses_gripper, turns_tool, pace, tilts_tool)
