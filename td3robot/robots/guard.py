"""The guard between every policy and every arm: one object in training, evaluation and on hardware.

It is not a safety function. It keeps a policy's commands inside limits that lie inside the robot's own.

How it works: the guard plans from the last *commanded* posture and joint velocity, never from the measured ones.
A wish becomes a joint velocity for one control period. That vector is scaled as a whole, never single joints, so
the arm keeps its direction:

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
from math import exp, isfinite
from operator import le
from typing import Any, NamedTuple

import numpy as np

from td3robot.config import GuardConfig
from td3robot.errors import CommandRefusedError, RobotError
from td3robot.geometry import length
from td3robot.robots.interface import ArmModel, RobotSpec
from td3robot.robots.kinematics import Kinematics, Posture
from td3robot.state import Array, JointCommand, RobotState

REASONS = ("joint_speed", "tcp_speed", "acceleration", "position", "workspace", "clearance", "lead")

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
# A wish further away than this counts as a direction only, so that intermediate results cannot overflow [rad].
FAR = 1e3


@dataclass(frozen=True, slots=True)
class Ruling:
    """The guard's decision on a wish.

    Attributes:
        command: What may be sent.
        reasons: Why it differs from the wish; empty if it does not.
    """

    command: JointCommand
    reasons: tuple[str, ...]


class SpeedLimits:
    """A share of an arm's joint speed limits, which may depend on its posture."""

    def __init__(self, arm: ArmModel, share: float) -> None:
        self._arm, self._share = arm, share
        self._everywhere = self._shared(arm.home) if arm.joint_speeds is None else None

    @property
    def same_everywhere(self) -> bool:
        """Whether they are the same in every posture."""
        return self._everywhere is not None

    def at(self, q: Array) -> tuple[Array, Array]:
        """Return the lowest and highest joint velocities (..., n) at q (..., n) [rad/s], none of them 0.

        If the limits do not depend on the posture, these are the same two arrays (n,) each time.
        """
        return self._everywhere or self._shared(q)

    def _shared(self, q: Array) -> tuple[Array, Array]:
        lowest, highest = self._arm.velocity_at(q)
        return (
            np.minimum(self._share * lowest, -STANDSTILL_RAD_S),
            np.maximum(self._share * highest, STANDSTILL_RAD_S),
        )


class Plan(NamedTuple):
    """What a guard's next ruling depends on.

    Attributes:
        commanded: The command that was last let through.
        velocity: (n,) the joint velocity at which it was reached [rad/s].
        behind: (n,) how far the arm is behind it [rad].
        box_low, box_high: Where the tool may be (3,) [m].
    """

    commanded: JointCommand
    velocity: Array
    behind: Array
    box_low: list[float]
    box_high: list[float]


class Limits(NamedTuple):
    """A guard's limits as numbers.

    Attributes:
        period_s: One control period.
        lag_s, kept: How far an arm is behind its commands: the servo's lag, and what a period leaves of a distance.
        speeds: Joint velocities by posture [rad/s].
        change: Largest change of a joint velocity in a period [rad/s].
        lead: How far a command may run ahead of the measured arm [rad].
        lower, upper: (n,) joint limits [rad].
        tcp_speed, tcp_speed_squared: Tool speed limit at a step's start, and that at its end squared.
        speed_of_arm: Tool speed limit of the arm as it follows.
    """

    period_s: float
    lag_s: float
    kept: float
    speeds: SpeedLimits
    change: float
    lead: float
    lower: Array
    upper: Array
    tcp_speed: float
    tcp_speed_squared: float
    speed_of_arm: float

    def followed(self, behind: Array, velocity: Array) -> Array:
        """Compute how far (..., n) [rad] an arm is behind its command after a period at a velocity."""
        return _followed(behind, velocity, self.lag_s, self.kept)


class Trial(NamedTuple):
    """The outcome of one control period at a joint velocity.

    Attributes:
        posture: The posture at its end.
        velocity: (n,) the joint velocity of the whole period [rad/s].
        objection: The first limit broken by this posture or by one that braking from there would command, or None.
    """

    posture: Posture
    velocity: Array
    objection: str | None


class Guard:
    """Filter commands so that they never cross a limit.

    Args:
        spec: The robot's own limits.
        config: The limits to keep.
        kinematics: The robot's geometry; its ``clearance_m`` is the distance to keep.

    Attributes:
        home: (n,) the arm's posture to start from [rad].
        commanded: The command that was last let through.
        velocity: (n,) the joint velocity at which it was reached [rad/s].
        interventions: How often each limit changed a wish.
        commands: How many wishes were ruled on.
    """

    def __init__(self, spec: RobotSpec, config: GuardConfig, kinematics: Kinematics) -> None:
        arm = self._arm = spec.arm
        self._lag = arm.servo.lag_s
        self._kept = exp(-spec.period_s / self._lag)
        self.kinematics = kinematics
        self._period = spec.period_s
        # Limits that are only compared are lists: for a handful of numbers these are faster than arrays.
        self._lower: list[float] = (arm.lower + config.position_margin_rad).tolist()
        self._upper: list[float] = (arm.upper - config.position_margin_rad).tolist()
        self._keep(config)
        self.interventions: Counter[str] = Counter()
        self.commands = 0
        self.home = arm.home
        self._shape = arm.home.shape
        self.reset(arm.home)

    def _keep(self, config: GuardConfig) -> None:
        """Set the speed and acceleration limits."""
        self.config = config
        self._speed_limits = SpeedLimits(self._arm, JOINT_SHARE * config.joint_speed_fraction)
        self._max_change = JOINT_SHARE * config.max_joint_acceleration_rad_s2 * self._period
        self._max_tcp_speed = config.max_tcp_speed_m_s * TCP_SPEED_AT_START
        self._max_tcp_speed_squared = (config.max_tcp_speed_m_s * TCP_SPEED_AT_END) ** 2
        self._max_speed_of_arm = config.max_tcp_speed_m_s * TCP_SPEED_OF_ARM

    def reset(self, q: Array, gripper: float = 0.0) -> None:
        """Anchor to an arm at rest at q (n,) [rad], with the gripper at a closed fraction.

        If it rests just outside the workspace, that much is admitted until the next reset.
        """
        self._posture = self.kinematics.posture(q.copy())
        self._speeds = self._speed_limits.at(q)
        self.commanded = JointCommand(self._posture.q, gripper)
        self.velocity = self._behind = np.zeros_like(q)
        tool = self._posture.tcp.position
        low, high = np.array(self.config.workspace.low), np.array(self.config.workspace.high)
        self._box_low = np.minimum(low + WALL_M, np.maximum(tool, low - ANCHOR_SLACK)).tolist()
        self._box_high = np.maximum(high - WALL_M, np.minimum(tool, high + ANCHOR_SLACK)).tolist()

    @property
    def plan(self) -> Plan:
        """Where the guard stands; :meth:`resume` continues from there."""
        return Plan(self.commanded, self.velocity, self._behind, self._box_low, self._box_high)

    def resume(self, plan: Plan) -> None:
        """Continue from a plan that this guard, or one with the same limits, made."""
        self._posture = self.kinematics.posture(plan.commanded.q)
        self._speeds = self._speed_limits.at(plan.commanded.q)
        self.commanded, self.velocity, self._behind = plan.commanded, plan.velocity, plan.behind
        self._box_low, self._box_high = plan.box_low, plan.box_high

    def twin(self) -> "Guard":
        """Return a guard with the same limits and its own counts."""
        twin = copy(self)
        twin.interventions = Counter()
        twin.commands = 0
        return twin

    def slower(self, share: float) -> "Guard":
        """Return a guard at home, with a share of these speed and acceleration limits and its own counts."""
        slow = self.twin()
        slow._keep(self.config.scaled(share))
        slow.reset(self.home)
        return slow

    def admits(self, q: Array) -> str | None:
        """Return the limit that a posture at rest breaks, or None if an episode may start here."""
        return self._objection_at(self.kinematics.posture(q), np.zeros_like(q))

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

    def filter(self, wish: JointCommand, state: RobotState, now: float) -> Ruling:
        """Turn a wish into what may be sent for the coming control period.

        Args:
            wish: Joint angles to reach at the end of the period, and the gripper's closed fraction.
            state: The latest measured state.
            now: Time on the clock of ``state.stamp`` [s].

        Raises:
            CommandRefusedError: The wish has the wrong shape or is not finite, or the state is too old; nothing
                may be sent, and the arm must be stopped.
        """
        self._require_sane(wish, state, now)
        reasons: list[str] = []
        way = wish.q - self.commanded.q
        desired = way / max(1.0, _largest(way) / FAR) / self._period
        velocity = self._limit_speed(desired, reasons)
        velocity = self._limit_acceleration(velocity, reasons)
        step = self._limit_reach(velocity, state.q, reasons)

        step.posture.q.setflags(write=False)
        self._posture, self.velocity = step.posture, step.velocity
        self._behind = self._followed(self._behind, step.velocity)
        self._speeds = self._speed_limits.at(step.posture.q)
        self.commanded = JointCommand(step.posture.q, min(max(wish.gripper, 0.0), 1.0))
        self.commands += 1
        distinct = tuple(dict.fromkeys(reasons))
        self.interventions.update(distinct)
        return Ruling(self.commanded, distinct)

    def limits(self) -> Limits:
        """Return the limits as numbers."""
        return Limits(
            period_s=self._period,
            lag_s=self._lag,
            kept=self._kept,
            speeds=self._speed_limits,
            change=self._max_change,
            lead=self.config.max_lead_rad,
            lower=np.array(self._lower),
            upper=np.array(self._upper),
            tcp_speed=self._max_tcp_speed,
            tcp_speed_squared=self._max_tcp_speed_squared,
            speed_of_arm=self._max_speed_of_arm,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract."""
        return self.config.model_dump(mode="json")

    def _require_sane(self, wish: JointCommand, state: RobotState, now: float) -> None:
        if wish.q.shape != self._shape:
            raise CommandRefusedError(
                f"a command of shape {wish.q.shape} was refused: the arm has {self._shape[0]} joints; nothing was sent"
            )
        if not (_all_finite(wish.q) and isfinite(wish.gripper)):
            raise CommandRefusedError(
                f"a command that is not finite was refused: q {wish.q}, gripper {wish.gripper}; nothing was sent"
            )
        if not (state.q.shape == self._shape and _all_finite(state.q)):
            raise CommandRefusedError(f"the measured joint angles {state.q} are not usable; nothing was sent")
        age = now - state.stamp
        if age < -self._period:
            raise CommandRefusedError(
                f"the measured state is stamped {-age:.3f} s in the future; set the clocks right; nothing was sent"
            )
        if not age <= self.config.max_state_age_s:
            raise CommandRefusedError(
                f"the measured state is {age:.3f} s old, more than guard.max_state_age_s "
                f"{self.config.max_state_age_s:g} s; nothing was sent"
            )

    def _limit_speed(self, desired: Array, reasons: list[str]) -> Array:
        scale = 1.0
        lowest, highest = self._speeds
        joint_excess = float(np.maximum(desired / lowest, desired / highest).max())
        if joint_excess > 1.0 + 1e-9:
            scale = 1.0 / joint_excess
            reasons.append("joint_speed")
        tool = self._posture.jacobian @ desired
        tcp_speed = scale * length(tool)
        if tcp_speed > self._max_tcp_speed * (1.0 + 1e-9):
            scale *= self._max_tcp_speed / tcp_speed
            reasons.append("tcp_speed")
        return desired if scale == 1.0 else desired * scale

    def _limit_acceleration(self, velocity: Array, reasons: list[str]) -> Array:
        change = velocity - self.velocity
        excess = _largest(change) / self._max_change
        if excess <= 1.0 + 1e-9:
            return velocity
        reasons.append("acceleration")
        return self.velocity + change / excess

    def _limit_reach(self, velocity: Array, measured: Array, reasons: list[str]) -> Trial:
        """Return the trial of the largest admissible step from braking towards ``velocity``."""
        trial = self._try(velocity, measured)
        if trial.objection is None:
            return trial
        reasons.append(trial.objection)
        brake = self._braked(self.velocity)
        best: Trial | None = None
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            trial = self._try(brake + middle * (velocity - brake), measured)
            if trial.objection is None:
                low, best = middle, trial
            else:
                high = middle
        return best or Trial(self.kinematics.posture(self._after(brake)), brake, None)

    def _try(self, velocity: Array, measured: Array) -> Trial:
        """Check a period at ``velocity`` from the commanded posture, and braking after it."""
        posture = self.kinematics.posture(self._after(velocity))
        lead = _largest(posture.q - measured)
        if lead > self.config.max_lead_rad and lead > _largest(self.commanded.q - measured):
            return Trial(posture, velocity, "lead")
        return Trial(posture, velocity, self._objection(posture, velocity))

    def _after(self, velocity: Array) -> Array:
        """Compute the joint angles one period after the commanded ones."""
        return self.commanded.q + velocity * self._period

    def _objection(self, posture: Posture, velocity: Array) -> str | None:
        """Return the first limit broken at a posture reached at ``velocity``, or at one that braking then commands."""
        behind = self._followed(self._behind, velocity)
        objection = self._objection_at(posture, velocity) or self._objection_to_arm(
            posture.q - behind, behind, velocity
        )
        while objection is None:
            velocity = self._braked(velocity)
            if not _largest(velocity) > 0.0:
                return None
            posture = self.kinematics.posture(posture.q + velocity * self._period)
            behind = self._followed(behind, velocity)
            objection = self._objection_at(posture, velocity) or self._objection_to_arm(
                posture.q - behind, behind, velocity
            )
        return objection

    def _followed(self, behind: Array, velocity: Array) -> Array:
        return _followed(behind, velocity, self._lag, self._kept)

    def _objection_to_arm(self, q: Array, behind: Array, velocity: Array) -> str | None:
        """Return the limit that the arm itself breaks at q (n,), ``behind`` a command that moves at a velocity."""
        tool, jacobian = self.kinematics.tcp_and_jacobian(q)
        joint_speeds = behind / self._lag
        tool_speed = jacobian @ joint_speeds
        gaining = np.abs(velocity - joint_speeds) @ np.sqrt((jacobian * jacobian).sum(axis=0))
        if length(tool_speed) + UNEVEN_S / self._lag * float(gaining) > self._max_speed_of_arm:
            return "tcp_speed"
        return None if _within(self._box_low, tool.position, self._box_high) else "workspace"

    def _objection_at(self, posture: Posture, velocity: Array) -> str | None:
        q = posture.q
        if not _within(self._lower, q, self._upper):
            return "position"
        speeds = self._speed_limits.at(q)
        if speeds is not self._speeds and _exceeds(velocity, speeds):
            return "joint_speed"
        tool = posture.jacobian @ velocity
        if tool @ tool > self._max_tcp_speed_squared:
            return "tcp_speed"
        if not _within(self._box_low, posture.tcp.position, self._box_high):
            return "workspace"
        return "clearance" if self.kinematics.too_close(posture) else None

    def _braked(self, velocity: Array) -> Array:
        """Return the velocity after one period of braking as hard as allowed."""
        peak = _largest(velocity)
        return velocity * max(0.0, 1.0 - self._max_change / peak) if peak > 0.0 else velocity


def _followed(behind: Array, velocity: Array, lag_s: float, kept: float) -> Array:
    """Compute how far (..., n) [rad] an arm is behind its command after a period at a velocity.

    It follows with a first-order lag: ``behind' = velocity - behind / lag``.
    """
    return kept * behind + ((1.0 - kept) * lag_s) * velocity


# For a handful of numbers, these are faster than NumPy's own.


def _largest(values: Array) -> float:
    largest: float = max(map(abs, values.tolist()))
    return largest


def _all_finite(values: Array) -> bool:
    return all(map(isfinite, values.tolist()))


def _within(low: list[float], values: Array, high: list[float]) -> bool:
    numbers: list[float] = values.tolist()
    return all(map(le, low, numbers)) and all(map(le, numbers, high))


def _exceeds(velocity: Array, speeds: tuple[Array, Array]) -> bool:
    """Whether a joint is faster than allowed, by more than rounding."""
    lowest, highest = speeds
    return bool(np.maximum(velocity / lowest, velocity / highest).max() > 1.0 + ROUNDING)
