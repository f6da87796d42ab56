"""The guard between every policy and every arm: one object in training, evaluation and on hardware.

It is not a safety function. It keeps a policy's commands inside limits that lie inside the robot's own.

One guard rules over the rows of a batch, each with a command of its own; an arm is a batch of one.

How it works: the guard plans from the last *commanded* posture and joint velocity, never from the measured ones.
A desired posture becomes a joint velocity for one control period. That vector is scaled as a whole, never single
joints, so the arm keeps its direction:

1. Down to the joint speed limits of the posture it starts from, and to the tool speed limit.
2. Towards the last commanded velocity, until the change is within the acceleration limit.
3. Towards braking, until the posture after this period *and every posture that braking from there would command*
   are inside joint limits and workspace, clear of table and links, and reached within the tool speed limit and the
   joint speed limits there: on some arms (the Franka FR3), a joint's speed limit falls as it nears its stop. The
   first of these postures must not be too far ahead of the measured arm, unless it is nearer to it than the last
   command.

An arm follows its commands with a servo's lag, so its postures differ from the commanded ones, and the same joint
velocities move the tool differently there. So step 3 also predicts the arm itself by its servo's lag: there, too, the
tool must be inside the workspace and within its speed limit, in every period until it rests. The prediction uses the
commands alone. An arm that catches up differently may be faster (docs/safety.md has figures); a driver watches the
measured one.

Braking slows all joints in proportion, along a straight line in joint space. Step 3 of an earlier period has
already admitted every one of its commands, so there is always a command to send. Postures between two commands are
not checked: at 250 mm/s and 20 Hz they come nearer to the table or the arm by under 0.1 mm, and a joint speed limit
that is concave in the joint angles, as the FR3's are, is nowhere lower than at the nearer of the two.
"""

from collections import Counter
from copy import copy
from dataclasses import dataclass
from math import exp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.config import GuardConfig
from td3robot.errors import CommandRefusedError, RobotError
from td3robot.geometry import lengths, times
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.state import Array, JointCommand, RobotState

Flags = NDArray[np.bool_]

REASONS = ("joint_speed", "tcp_speed", "acceleration", "position", "workspace", "clearance", "lead")
JOINT_SPEED, TCP_SPEED, ACCELERATION, POSITION, WORKSPACE, CLEARANCE, LEAD = range(len(REASONS))
# Limits to which a desired command is scaled, and those that a posture may break, in the order of their checks.
SCALED = ("joint_speed", "tcp_speed", "acceleration")
COMMAND_LIMITS = np.array([POSITION, JOINT_SPEED, TCP_SPEED, WORKSPACE])
FIRST = np.array([0])

# Bisections in the search for the largest admissible step; each halves the interval.
BISECTIONS = 5
# Tool speed is linear in joint velocity at one posture only. A step is scaled to the first share of the limit at its
# start and may reach the second at its end; the rest is for what lies between (tests/robots/test_guard.py measures it).
TCP_SPEED_AT_START, TCP_SPEED_AT_END = 0.98, 0.995
# The arm itself, as its servo's lag predicts it, must keep to this share of the tool speed limit even if each joint
# responds this much earlier or later [s]: heavy joints respond late, and then a motion of many joints that hardly moves
# the tool moves it more. Without this, benchmarks/cross_limits.py found 254.9 mm/s.
TCP_SPEED_OF_ARM, UNEVEN_S = 0.99, 0.02
# A controller gets targets in steps of some milliseconds, now and then one of them late. Joint speed and acceleration
# keep to this share of their limits, so that the limits hold there, too (tests/deploy/test_fuzz.py measures it).
JOINT_SHARE = 0.97
# Rounding puts speeds that were scaled to a limit above it by at most this share.
ROUNDING = 1e-6
# Replaces a joint speed limit of 0, to avoid dividing by 0 [rad/s].
STANDSTILL_RAD_S = 1e-9
# Between the ends of periods, and if joints respond late, an arm may be this far beyond a wall that its commands and
# its prediction respect: benchmarks/cross_limits.py found 0.68 mm [m].
WALL_M = 0.0008
# An arm may begin from rest this far outside the workspace at whose wall it was stopped, as measured [m].
ANCHOR_SLACK = 0.003
# A desired posture further away than this counts as a direction only: intermediate results cannot overflow [rad].
FAR = 1e3


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """The guard's decision on a desired command.

    Attributes:
        command: What may be sent.
        reasons: Why it differs from what was desired; empty if it does not.
    """

    command: JointCommand
    reasons: tuple[str, ...]


class Candidates(NamedTuple):
    """The outcome of one control period at a joint velocity, for k rows.

    Attributes:
        q: (k, n) postures at its end [rad].
        velocity: (k, n) joint velocities of the whole period [rad/s].
        violations: (k,) the first limit broken by this posture or by one that braking from there would command, as an
            index into ``REASONS``; -1 if there is none.
    """

    q: Array
    velocity: Array
    violations: NDArray[np.intp]


class Guard:
    """Filter commands so that they never cross a limit.

    Args:
        spec: The robot's own limits.
        config: The limits to keep.
        kinematics: The robot's geometry; its ``clearance_m`` is the distance to keep.
        count: How many rows (m) it guards.

    Attributes:
        home: (n,) the arm's posture to start from [rad].
        q: (m, n) the posture that was last let through, in each row [rad].
        velocity: (m, n) the joint velocities at which it was reached [rad/s].
        gripper: (m,) the closed fraction that was last let through.
        interventions: How often each limit changed a command.
        commands: How many commands were decided on.
    """

    def __init__(self, spec: RobotSpec, config: GuardConfig, kinematics: Kinematics, count: int = 1) -> None:
        self._spec, self.kinematics, self.home = spec, kinematics, spec.arm.home
        self._lag = spec.arm.servo.lag_s
        self._kept = exp(-spec.period_s / self._lag)
        self._period = spec.period_s
        self._lower = spec.arm.lower + config.position_margin_rad
        self._upper = spec.arm.upper - config.position_margin_rad
        self._keep(config)
        self.q, self.velocity, self._behind = np.zeros((3, count, len(self.home)))
        self.gripper, self._box = np.zeros(count), np.zeros((2, count, 3))
        self.interventions: Counter[str] = Counter()
        self.commands = 0
        for row in range(count):
            self.reset(self.home, row=row)

    def _keep(self, config: GuardConfig) -> None:
        """Set the speed and acceleration limits."""
        self.config = config
        self._speed_share = JOINT_SHARE * config.joint_speed_fraction
        self._speeds_everywhere = None
        if self._spec.arm.joint_speeds is None:
            self._speeds_everywhere = self._speed_limits(self.home)
        self._max_change = JOINT_SHARE * config.max_joint_acceleration_rad_s2 * self._period
        self._max_tcp_speed = config.max_tcp_speed_m_s

    def reset(self, q: Array, gripper: float = 0.0, row: int = 0) -> None:
        """Anchor a row to an arm at rest at q (n,) [rad], with the gripper at a closed fraction.

        If it rests just outside the workspace, that much is admitted until the next reset.
        """
        self.q[row], self.gripper[row] = q, gripper
        self.velocity[row] = self._behind[row] = 0.0
        tool = self.kinematics.tcp(q).position
        low, high = np.array(self.config.workspace.low), np.array(self.config.workspace.high)
        self._box[0, row] = np.minimum(low + WALL_M, np.maximum(tool, low - ANCHOR_SLACK))
        self._box[1, row] = np.maximum(high - WALL_M, np.minimum(tool, high + ANCHOR_SLACK))

    @property
    def commanded(self) -> JointCommand:
        """The command that was last let through in the first row."""
        return _command(self.q[0].copy(), float(self.gripper[0]))

    def over(self, count: int) -> "Guard":
        """Return a guard with the same limits over so many rows, at home, with its own counts."""
        return Guard(self._spec, self.config, self.kinematics, count)

    def twin(self) -> "Guard":
        """Return a guard in the same state with its own counts."""
        twin = copy(self)
        for name in ("q", "velocity", "_behind", "gripper", "_box"):
            setattr(twin, name, getattr(self, name).copy())
        twin.interventions, twin.commands = Counter(), 0
        return twin

    def slower(self, share: float) -> "Guard":
        """Return a guard over one row at home, with a share of these speed and acceleration limits."""
        return Guard(self._spec, self.config.scaled(share), self.kinematics)

    def admits(self, q: Array) -> str | None:
        """Return the limit that a posture (n,) at rest breaks, or None if the first row may start an episode there."""
        found = self._violations(q[None], np.zeros((1, len(q))), self._box[:, :1], self._speed_limits_at(q[None]))[0]
        return REASONS[found] if found >= 0 else "clearance" if self.kinematics.too_close(q) else None

    def require_admitted(self, q: Array) -> None:
        """Refuse to begin at the arm's posture (n,) [rad] if the guard would not let it move from there.

        Raises:
            RobotError: Naming the limit and where the tool is.
        """
        if (limit := self.admits(q)) is not None:
            x, y, z = self.kinematics.tcp(q).position
            raise RobotError(
                f"the arm stands where the guard's limit {limit!r} keeps it from moving (tool at {x:.3f}, {y:.3f}, "
                f"{z:.3f} m): move it by hand, in freedrive, towards home"
            )

    def filter(self, desired: JointCommand, state: RobotState, now: float) -> GuardDecision:
        """Turn a desired command of the first row into what may be sent for the coming control period.

        Args:
            desired: Joint angles to reach at the end of the period, and the gripper's closed fraction.
            state: The latest measured state.
            now: Time on the clock of ``state.stamp`` [s].

        Raises:
            CommandRefusedError: As :meth:`decide`, or the command or the state has the wrong shape.
        """
        shape = self.home.shape
        if desired.q.shape != shape:
            raise CommandRefusedError(
                f"a command of shape {desired.q.shape} was refused: the arm has {shape[0]} joints; nothing was sent"
            )
        if state.q.shape != shape:
            raise CommandRefusedError(f"the measured joint angles {state.q} are not usable; nothing was sent")
        (reasons,) = self.decide(
            desired.q[None], np.array([desired.gripper]), state.q[None], np.array([now - state.stamp]), FIRST
        )
        return GuardDecision(self.commanded, reasons)

    def decide(
        self, desired: Array, gripper: Array, measured: Array, age_s: Array, rows: NDArray[np.intp]
    ) -> list[tuple[str, ...]]:
        """Decide what may be sent to some rows; it becomes :attr:`q`, :attr:`velocity` and :attr:`gripper` there.

        Args:
            desired: (k, n) postures to reach at the end of the period [rad].
            gripper: (k,) desired closed fractions.
            measured: (k, n) the latest measured postures [rad].
            age_s: (k,) how old these are [s].
            rows: (k,) which rows.

        Returns:
            Why each command differs from what was desired; empty if it does not.

        Raises:
            CommandRefusedError: A number is not finite, or a state is too old; nothing may be sent, and the arm must be
                stopped.
        """
        self._require_sane(desired, gripper, measured, age_s)
        before, q = self.velocity[rows], self.q[rows]
        way = desired - q
        velocity = way / (np.maximum(1.0, largest(way) / FAR) * self._period)[:, None]
        velocity, scaled = self._limit_speed(velocity, q)
        velocity, sudden = self._limit_acceleration(velocity, before)
        found = self._try(velocity, measured, rows)
        reasons: list[tuple[str, ...]] = [()] * len(rows)
        violated = np.flatnonzero(found.violations >= 0)
        for index in np.flatnonzero(scaled.any(axis=0) | sudden | (found.violations >= 0)).tolist():
            flags = (*scaled[:, index], sudden[index])
            limits = [name for name, flag in zip(SCALED, flags, strict=True) if flag]
            if (violation := found.violations[index]) >= 0:
                limits.append(REASONS[violation])
            reasons[index] = tuple(dict.fromkeys(limits))
            self.interventions.update(reasons[index])
        if violated.size:
            best = self._search(velocity[violated], measured[violated], rows[violated])
            found.q[violated], found.velocity[violated] = best.q, best.velocity
        self.q[rows], self.velocity[rows] = found.q, found.velocity
        self._behind[rows] = self._followed(self._behind[rows], found.velocity)
        self.gripper[rows] = np.minimum(np.maximum(gripper, 0.0), 1.0)
        self.commands += len(rows)
        return reasons

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        return self.config.model_dump(mode="json")

    def _require_sane(self, desired: Array, gripper: Array, measured: Array, age_s: Array) -> None:
        if not (np.isfinite(desired).all() and np.isfinite(gripper).all()):
            raise CommandRefusedError(
                f"a command that is not finite was refused: q {desired}, gripper {gripper}; nothing was sent"
            )
        if not np.isfinite(measured).all():
            raise CommandRefusedError(f"the measured joint angles {measured} are not usable; nothing was sent")
        youngest, oldest = float(age_s.min()), float(age_s.max())
        if youngest < -self._period:
            raise CommandRefusedError(
                f"the measured state is stamped {-youngest:.3f} s in the future; set the clocks right; nothing was sent"
            )
        if not oldest <= self.config.max_state_age_s:
            raise CommandRefusedError(
                f"the measured state is {oldest:.3f} s old, more than guard.max_state_age_s "
                f"{self.config.max_state_age_s:g} s; nothing was sent"
            )

    def _speed_limits(self, q: Array) -> tuple[Array, Array]:
        """Return the lowest and highest joint velocities (..., n) at q (..., n) [rad/s], none of them 0."""
        lowest, highest = self._spec.arm.velocity_at(q)
        share = self._speed_share
        return np.minimum(share * lowest, -STANDSTILL_RAD_S), np.maximum(share * highest, STANDSTILL_RAD_S)

    def _speed_limits_at(self, q: Array) -> tuple[Array, Array]:
        """Return the same, without computing what does not depend on the posture."""
        return self._speeds_everywhere or self._speed_limits(q)

    def _limit_speed(self, velocity: Array, q: Array) -> tuple[Array, Flags]:
        """Scale velocities (k, n) to the joint and tool speed limits at q; say for which of both (2, k)."""
        lowest, highest = self._speed_limits_at(q)
        excess = np.maximum(velocity / lowest, velocity / highest).max(axis=1)
        fast = excess > 1.0 + 1e-9
        scale = np.where(fast, 1.0 / np.maximum(excess, 1.0), 1.0)
        speed = scale * lengths(times(self.kinematics.tools(q).linear, velocity))
        limit = self._max_tcp_speed * TCP_SPEED_AT_START
        tool_fast = speed > limit * (1.0 + 1e-9)
        scale = np.where(tool_fast, scale * (limit / np.maximum(speed, limit)), scale)
        return velocity * scale[:, None], np.array([fast, tool_fast])

    def _limit_acceleration(self, velocity: Array, before: Array) -> tuple[Array, Flags]:
        """Move velocities (k, n) towards those before, until the change is within the limit; say which (k,)."""
        change = velocity - before
        excess = largest(change) / self._max_change
        sudden = excess > 1.0 + 1e-9
        if sudden.any():
            velocity = np.where(sudden[:, None], before + change / np.maximum(excess, 1.0)[:, None], velocity)
        return velocity, sudden

    def _search(self, velocity: Array, measured: Array, rows: NDArray[np.intp]) -> Candidates:
        """Return the largest admissible steps from braking towards velocities (k, n) that are not."""
        brake = self._braked(self.velocity[rows])
        best = Candidates(self.q[rows] + brake * self._period, brake.copy(), np.full(len(rows), -1))
        low, high = np.zeros(len(rows)), np.ones(len(rows))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            found = self._try(brake + middle[:, None] * (velocity - brake), measured, rows)
            free = found.violations < 0
            low, high = np.where(free, middle, low), np.where(free, high, middle)
            best.q[free], best.velocity[free] = found.q[free], found.velocity[free]
        return best

    def _try(self, velocity: Array, measured: Array, rows: NDArray[np.intp]) -> Candidates:
        """Check a period at velocities (k, n) from the commanded postures, and braking after it."""
        commanded, box = self.q[rows], self._box[:, rows]
        first = posture = commanded + velocity * self._period
        behind = self._followed(self._behind[rows], velocity)
        lead = largest(posture - measured)
        leads = (lead > self.config.max_lead_rad) & (lead > largest(commanded - measured))
        violations = np.where(leads, LEAD, -1)
        going, braking = np.flatnonzero(~leads), velocity
        while going.size:
            q, v, late = posture[going], braking[going], behind[going]
            violations[going] = found = self._first_violation(q, v, late, box[:, going])
            braking = self._braked(braking)
            going = going[(found < 0) & (largest(braking[going]) > 0.0)]
            posture = posture + braking * self._period
            behind = self._followed(behind, braking)
        return Candidates(first, velocity, violations)

    def _first_violation(self, q: Array, velocity: Array, behind: Array, box: Array) -> NDArray[np.intp]:
        """Return the first limit that is broken at postures (k, n), or by the arms behind them; -1 if none is."""
        found = self._violations(q, velocity, box, self._speed_limits_at(q))
        for row in np.flatnonzero(found < 0).tolist():
            if self.kinematics.too_close(q[row]):
                found[row] = CLEARANCE
        arm = self._violations_of_arm(q - behind, behind, velocity, box)
        return np.where(found < 0, arm, found)

    def _violations(self, q: Array, velocity: Array, box: Array, speeds: tuple[Array, Array]) -> NDArray[np.intp]:
        """Return the first limit that commands break at postures (k, n) reached at velocities; -1 if none."""
        tools, (lowest, highest) = self.kinematics.tools(q), speeds
        outside = ((q < self._lower) | (q > self._upper)).any(axis=1)
        fast = np.zeros(len(q), np.bool_)
        if self._speeds_everywhere is None:
            fast = np.maximum(velocity / lowest, velocity / highest).max(axis=1) > 1.0 + ROUNDING
        tool = times(tools.linear, velocity)
        tool_fast = (tool * tool).sum(axis=1) > (self._max_tcp_speed * TCP_SPEED_AT_END) ** 2
        beyond = ((tools.position < box[0]) | (tools.position > box[1])).any(axis=1)
        broken = np.array([outside, fast, tool_fast, beyond])
        return np.where(broken.any(axis=0), COMMAND_LIMITS[broken.argmax(axis=0)], -1)

    def _violations_of_arm(self, q: Array, behind: Array, velocity: Array, box: Array) -> NDArray[np.intp]:
        """Return the first limit that arms at q (k, n) break, ``behind`` commands that move at velocities."""
        tools, speeds = self.kinematics.tools(q), behind / self._lag
        linear = tools.linear
        gaining = (np.abs(velocity - speeds) * np.sqrt((linear * linear).sum(axis=1))).sum(axis=1)
        fast = lengths(times(linear, speeds)) + UNEVEN_S / self._lag * gaining > self._max_tcp_speed * TCP_SPEED_OF_ARM
        beyond = ((tools.position < box[0]) | (tools.position > box[1])).any(axis=1)
        return np.where(fast, TCP_SPEED, np.where(beyond, WORKSPACE, -1))

    def _braked(self, velocity: Array) -> Array:
        """Return velocities (k, n) after one period of braking as hard as allowed."""
        peak = largest(velocity)
        braked: Array = velocity * np.maximum(0.0, 1.0 - self._max_change / np.maximum(peak, 1e-300))[:, None]
        return braked

    def _followed(self, behind: Array, velocity: Array) -> Array:
        """Compute how far arms are behind their commands (k, n) [rad] after a period at velocities.

        They follow with a first-order lag: ``behind' = velocity - behind / lag``.
        """
        return self._kept * behind + ((1.0 - self._kept) * self._lag) * velocity


def largest(values: Array) -> Array:
    """Return the largest magnitude (m,) of each row (m, n)."""
    found: Array = np.abs(values).max(axis=1)
    return found


def _command(q: Array, gripper: float) -> JointCommand:
    q.setflags(write=False)
    return JointCommand(q, gripper)
