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

An arm follows its commands late, so its postures differ from the commanded ones, and the same joint
velocities move the tool differently there. So step 3 also predicts the arm itself by its servo's law: there, too, the
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.config import GuardConfig
from td3robot.errors import CommandRefusedError, RobotError
from td3robot.jit import formula, kernel, plain
from td3robot.robots.arms.model import joint_speed_limit
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics, Links, place_tool
from td3robot.robots.servo import decay, follow
from td3robot.row_math import dot, is_finite, peak
from td3robot.state import Array, JointCommand, RobotState

Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]
Violations = NDArray[np.int64]

REASONS = ("joint_speed", "tcp_speed", "acceleration", "position", "workspace", "clearance", "lead")
JOINT_SPEED, TCP_SPEED, ACCELERATION, POSITION, WORKSPACE, CLEARANCE, LEAD = range(len(REASONS))
NO_VIOLATION = -1
FIRST = np.array([0])

# Bisections in the search for the largest admissible step; each halves the interval.
BISECTIONS = 5
# Tool speed is linear in joint velocity at one posture only. A step is scaled to the first share of the limit at its
# start and may reach the second at its end; the rest is for what lies between (tests/robots/test_guard.py measures it).
TCP_SPEED_AT_START, TCP_SPEED_AT_END = 0.98, 0.995
# The arm itself, as its servo's law predicts it, must keep to this share of the tool speed limit even if each joint
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


class Limits(NamedTuple):
    """A guard's limits as numbers, for compiled code.

    Attributes:
        period_s: One control period.
        gain, lookahead_s, cosine, sine: The servo's law, and its decay over a period.
        change: Largest change of a joint velocity in one period [rad/s].
        lead: How far a command may be ahead of a measurement [rad].
        tcp_speed: The tool speed limit [m/s].
        lower, upper: (n,) joint angles [rad].
        speed: (n,) joint speed limits [rad/s].
        envelope: (5, n) how these fall towards the joints' ends; (0, n) where they do not.
        speed_share: Share of these limits that is kept to.
    """

    period_s: float
    gain: float
    lookahead_s: float
    cosine: float
    sine: float
    change: float
    lead: float
    tcp_speed: float
    lower: Array
    upper: Array
    speed: Array
    envelope: Array
    speed_share: float


joint_speed_limits = kernel(joint_speed_limit)


@formula
def speed_excess(limits: Limits, velocity: Array, q: Array) -> float:
    """Return by what factor a joint velocity (n,) is above the joint speed limits at q (n,); at most 1 if it is not."""
    excess = 0.0
    for joint in range(len(q)):
        lowest, highest = joint_speed_limits(q[joint], limits.speed[joint], limits.envelope, joint)
        lowest = min(limits.speed_share * lowest, -STANDSTILL_RAD_S)
        highest = max(limits.speed_share * highest, STANDSTILL_RAD_S)
        excess = max(excess, velocity[joint] / lowest, velocity[joint] / highest)
    return excess


@formula
def speed_of(jacobian: Array, velocity: Array) -> float:
    """Return the speed of a tool [m/s] at joint velocities (n,)."""
    squared = 0.0
    for axis in range(3):
        squared += dot(jacobian[axis], velocity) ** 2
    return float(np.sqrt(squared))


@formula
def is_within(low: Array, value: Array, high: Array) -> bool:
    """Whether every component is within its bounds."""
    inside = True
    for index in range(len(value)):
        inside &= low[index] <= value[index] <= high[index]
    return inside


@kernel
def limit_velocity(
    numbers: Limits, packed: Links, desired: Array, all_q: Array, all_velocities: Array, rows: Rows, reasons: Flags
) -> Array:
    """Return velocities (k, n) [rad/s] within the speed and acceleration limits, towards desired postures (k, n).

    Args:
        numbers: The limits.
        packed: The arm's geometry.
        desired: Desired postures after the period [rad].
        all_q: (m, n) commanded postures before it [rad].
        all_velocities: (m, n) velocities before it [rad/s].
        rows: (k,) which of these rows.
        reasons: (k, reasons) is set where a limit changed a velocity.
    """
    limits, links, velocities = Limits(*numbers), Links(*packed), np.empty(desired.shape)
    position, rotation, jacobian = np.empty(3), np.empty((3, 3)), np.empty((6, desired.shape[1]))
    for row in range(len(rows)):
        velocity, q, before = velocities[row], all_q[rows[row]], all_velocities[rows[row]]
        for joint in range(len(velocity)):
            velocity[joint] = desired[row, joint] - q[joint]
        scale(velocity, 1.0 / (max(1.0, peak(velocity) / FAR) * limits.period_s))
        excess = speed_excess(limits, velocity, q)
        if excess > 1.0 + 1e-9:
            scale(velocity, 1.0 / excess)
            reasons[row, JOINT_SPEED] = True
        place_tool(q, links, position, rotation, jacobian)
        speed, fastest = speed_of(jacobian, velocity), limits.tcp_speed * TCP_SPEED_AT_START
        if speed > fastest * (1.0 + 1e-9):
            scale(velocity, fastest / speed)
            reasons[row, TCP_SPEED] = True
        change = 0.0
        for joint in range(len(velocity)):
            change = max(change, abs(velocity[joint] - before[joint]))
        excess = change / limits.change
        if excess > 1.0 + 1e-9:
            for joint in range(len(velocity)):
                velocity[joint] = before[joint] + (velocity[joint] - before[joint]) / excess
            reasons[row, ACCELERATION] = True
    return velocities


@formula
def scale(values: Array, factor: float) -> None:
    """Multiply the numbers (n,) in place."""
    for index in range(len(values)):
        values[index] *= factor


@kernel
def brake(velocity: Array, change: float) -> None:
    """Replace a velocity (n,) by the one after a period of braking as hard as allowed."""
    scale(velocity, max(0.0, 1.0 - change / max(peak(velocity), 1e-300)))


@formula
def look_ahead(
    limits: Limits, links: Links, velocity: Array, q: Array, servo: Array, measured: Array, box: Array, path: Array
) -> tuple[int, int]:
    """Check a period at a velocity (n,) from a commanded posture q (n,), and braking after it, apart from clearance.

    Where the arm itself is follows from its ``servo`` (2, n): how far it is behind the command, and how fast it moves.
    The velocity is changed.

    Returns:
        The first limit that is broken, and how many postures of ``path`` (.., n) have to be clear for it to be the
        first: those that were commanded up to there.
    """
    joints = len(q)
    posture, arm, late, speeds = np.empty(joints), np.empty(joints), servo[0].copy(), servo[1].copy()
    position, rotation, jacobian = np.empty(3), np.empty((3, 3)), np.empty((6, joints))
    lead = lead_before = 0.0
    for joint in range(joints):
        posture[joint] = q[joint] + velocity[joint] * limits.period_s
        lead = max(lead, abs(posture[joint] - measured[joint]))
        lead_before = max(lead_before, abs(q[joint] - measured[joint]))
    if lead > limits.lead and lead > lead_before:
        return LEAD, 0
    count = 0
    while True:
        if not is_within(limits.lower, posture, limits.upper):
            return POSITION, count
        if len(limits.envelope) and speed_excess(limits, velocity, posture) > 1.0 + ROUNDING:
            return JOINT_SPEED, count
        place_tool(posture, links, position, rotation, jacobian)
        if speed_of(jacobian, velocity) > limits.tcp_speed * TCP_SPEED_AT_END:
            return TCP_SPEED, count
        if not is_within(box[0], position, box[1]):
            return WORKSPACE, count
        for joint in range(joints):
            path[count, joint] = posture[joint]
            late[joint], speeds[joint] = follow(
                limits.gain, limits.lookahead_s, limits.cosine, limits.sine, late[joint], speeds[joint], velocity[joint]
            )
            arm[joint] = posture[joint] - late[joint]
        count += 1
        place_tool(arm, links, position, rotation, jacobian)
        gaining = 0.0
        for joint in range(joints):
            squared = jacobian[0, joint] ** 2 + jacobian[1, joint] ** 2 + jacobian[2, joint] ** 2
            gaining += abs(limits.gain * (late[joint] - limits.lookahead_s * speeds[joint])) * np.sqrt(squared)
        if speed_of(jacobian, speeds) + UNEVEN_S * gaining > limits.tcp_speed * TCP_SPEED_OF_ARM:
            return TCP_SPEED, count
        if not is_within(box[0], position, box[1]):
            return WORKSPACE, count
        brake(velocity, limits.change)
        if not peak(velocity) > 0.0 or count == len(path):
            return NO_VIOLATION, count
        for joint in range(joints):
            posture[joint] += velocity[joint] * limits.period_s


@kernel
def look_ahead_all(
    numbers: Limits, packed: Links, velocities: Array, q: Array, servo: Array, measured: Array, box: Array, rows: Rows
) -> tuple[Violations, Violations, Array]:
    """Look ahead at velocities (k, n) from measured postures (k, n) in some of m rows.

    ``servo`` is (m, 2, n), and ``box`` (m, 2, 3).

    Returns:
        As :func:`look_ahead` for each row, and the paths (k, .., n).
    """
    limits, links, fastest = Limits(*numbers), Links(*packed), 0.0
    for velocity in velocities:
        fastest = max(fastest, peak(velocity))
    path = np.empty((len(rows), int(fastest / limits.change) + 3, q.shape[1]))
    violations, counts = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    for index in range(len(rows)):
        row, velocity = rows[index], velocities[index].copy()
        violations[index], counts[index] = look_ahead(
            limits, links, velocity, q[row], servo[row], measured[index], box[row], path[index]
        )
    return violations, counts, path


@kernel
def range_of(values: Array) -> tuple[float, float]:
    """Return the smallest and the largest of the numbers (n,); NaN if one of them is not a number."""
    low = high = values[0]
    for value in values:
        if value < low or np.isnan(value):
            low = value
        if value > high or np.isnan(value):
            high = value
    return low, high


@kernel
def let_through(
    numbers: Limits, velocities: Array, grippers: Array, rows: Rows, q: Array, velocity: Array, servo: Array,
    gripper: Array,
) -> None:  # fmt: skip
    """Move the commands of some rows on by a period at admitted velocities (k, n), with closed fractions (k,).

    Args:
        numbers: The limits.
        velocities: Joint velocities [rad/s].
        grippers: Desired closed fractions.
        rows: (k,) which rows.
        q: (m, n) commanded postures [rad]; changed, as all that follow.
        velocity: (m, n) their velocities [rad/s].
        servo: (m, 2, n) how far the arms are behind them [rad], and how fast they move [rad/s].
        gripper: (m,) commanded closed fractions.
    """
    limits = Limits(*numbers)
    for index in range(len(rows)):
        row = rows[index]
        for joint in range(q.shape[1]):
            speed = velocities[index, joint]
            q[row, joint] += speed * limits.period_s
            velocity[row, joint] = speed
            servo[row, 0, joint], servo[row, 1, joint] = follow(
                limits.gain, limits.lookahead_s, limits.cosine, limits.sine, servo[row, 0, joint],
                servo[row, 1, joint], speed,
            )  # fmt: skip
        gripper[row] = min(max(grippers[index], 0.0), 1.0)


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
        self.config = config
        self._limits = self._made(spec)
        self._packed = plain(self._limits)
        self.q, self.velocity = np.zeros((2, count, len(self.home)))
        self._servo = np.zeros((count, 2, len(self.home)))
        self.gripper, self._box = np.zeros(count), np.zeros((count, 2, 3))
        self.interventions: Counter[str] = Counter()
        self.commands = 0
        for row in range(count):
            self.reset(self.home, row=row)

    def adopt(self, spec: RobotSpec) -> None:
        """Use the connected robot's calibrated kinematics."""
        self.kinematics.adopt(spec)
        self._limits = self._made(spec)
        self._packed = plain(self._limits)

    def _made(self, spec: RobotSpec) -> Limits:
        """Return the limits of a robot as numbers."""
        arm, config, (gain, lookahead_s) = spec.arm, self.config, spec.law
        cosine, sine = decay(gain, lookahead_s, spec.period_s)
        return Limits(
            period_s=spec.period_s,
            gain=gain,
            lookahead_s=lookahead_s,
            cosine=cosine,
            sine=sine,
            change=JOINT_SHARE * config.max_joint_acceleration_rad_s2 * spec.period_s,
            lead=config.max_lead_rad,
            tcp_speed=config.max_tcp_speed_m_s,
            lower=arm.lower + config.position_margin_rad,
            upper=arm.upper - config.position_margin_rad,
            speed=arm.velocity,
            envelope=arm.speed_envelope,
            speed_share=JOINT_SHARE * config.joint_speed_fraction,
        )

    def reset(self, q: Array, gripper: float = 0.0, row: int = 0) -> None:
        """Anchor a row to an arm at rest at q (n,) [rad], with the gripper at a closed fraction.

        If it rests just outside the workspace, that much is admitted until the next reset.
        """
        self.q[row], self.gripper[row] = q, gripper
        self.velocity[row] = self._servo[row] = 0.0
        tool = self.kinematics.tcp(q).position
        low, high = np.array(self.config.workspace.low), np.array(self.config.workspace.high)
        self._box[row, 0] = np.minimum(low + WALL_M, np.maximum(tool, low - ANCHOR_SLACK))
        self._box[row, 1] = np.maximum(high - WALL_M, np.minimum(tool, high + ANCHOR_SLACK))

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
        for name in ("q", "velocity", "_servo", "gripper", "_box"):
            setattr(twin, name, getattr(self, name).copy())
        twin.interventions, twin.commands = Counter(), 0
        return twin

    def slower(self, share: float) -> "Guard":
        """Return a guard over one row at home, with a share of these speed and acceleration limits."""
        return Guard(self._spec, self.config.scaled(share), self.kinematics)

    def admits(self, q: Array) -> str | None:
        """Return the limit that a posture (n,) at rest breaks, or None if the first row may start an episode there."""
        rest, start = np.zeros((1, 2, len(q))), np.array(q)[None]
        (found,) = self._check(rest[0, :1], start, rest, start, FIRST)
        return None if found == NO_VIOLATION else REASONS[found]

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
            np.array([desired.q]),
            np.array([desired.gripper]),
            np.array([state.q]),
            np.array([now - state.stamp]),
            FIRST,
        )
        return GuardDecision(self.commanded, reasons)

    def decide(
        self, desired: Array, gripper: Array, measured: Array, age_s: Array, rows: Rows
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
        changed = np.zeros((len(rows), len(REASONS)), np.bool_)
        velocity = limit_velocity(self._packed, self.kinematics.links, desired, self.q, self.velocity, rows, changed)
        violations = self._look_ahead(velocity, measured, rows)
        (violated,) = (violations != NO_VIOLATION).nonzero()
        if violated.size:
            changed[violated, violations[violated]] = True
            velocity[violated] = self._search(velocity[violated], measured[violated], rows[violated])
        let_through(self._packed, velocity, gripper, rows, self.q, self.velocity, self._servo, self.gripper)
        self.commands += len(rows)
        return self._reasons(changed)

    def to_json(self) -> dict[str, Any]:
        """Return the terms of a contract; optional limits that are not set are left out."""
        return self.config.model_dump(mode="json", exclude_none=True)

    def _require_sane(self, desired: Array, gripper: Array, measured: Array, age_s: Array) -> None:
        if not (is_finite(desired) and is_finite(gripper)):
            row = np.argmin(np.isfinite(desired).all(axis=1) & np.isfinite(gripper))
            raise CommandRefusedError(
                f"a command that is not finite was refused: q {desired[row]}, gripper {gripper[row]}; nothing was sent"
            )
        if not is_finite(measured):
            row = np.argmin(np.isfinite(measured).all(axis=1))
            raise CommandRefusedError(f"the measured joint angles {measured[row]} are not usable; nothing was sent")
        youngest, oldest = range_of(age_s)
        if youngest < -self._limits.period_s:
            raise CommandRefusedError(
                f"the measured state is stamped {-youngest:.3f} s in the future; set the clocks right; nothing was sent"
            )
        if not oldest <= self.config.max_state_age_s:
            raise CommandRefusedError(
                f"the measured state is {oldest:.3f} s old, more than guard.max_state_age_s "
                f"{self.config.max_state_age_s:g} s; nothing was sent"
            )

    def _look_ahead(self, velocity: Array, measured: Array, rows: Rows) -> Violations:
        """Check a period at velocities (k, n), and braking after it; return the first limit broken in each row."""
        return self._check(velocity, self.q, self._servo, measured, rows)

    def _check(self, velocity: Array, q: Array, servo: Array, measured: Array, rows: Rows) -> Violations:
        violations, counts, path = look_ahead_all(
            self._packed, self.kinematics.links, velocity, q, servo, measured, self._box, rows
        )
        for row, count in enumerate(counts.tolist()):
            for posture in path[row, :count]:
                if self.kinematics.too_close(posture):
                    violations[row] = CLEARANCE
                    break
        return violations

    def _search(self, velocity: Array, measured: Array, rows: Rows) -> Array:
        """Return the largest admissible steps from braking towards velocities (k, n) that are not."""
        braking = self.velocity[rows]
        for row_velocity in braking:
            brake(row_velocity, self._limits.change)
        best, low, high = braking.copy(), np.zeros(len(rows)), np.ones(len(rows))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            candidate = braking + middle[:, None] * (velocity - braking)
            free = self._look_ahead(candidate, measured, rows) == NO_VIOLATION
            low, high = np.where(free, middle, low), np.where(free, high, middle)
            best[free] = candidate[free]
        return best

    def _reasons(self, changed: Flags) -> list[tuple[str, ...]]:
        """Return the names of the limits (k, reasons) that changed commands, and count them."""
        reasons: list[tuple[str, ...]] = [()] * len(changed)
        for row, limit in zip(*(each.tolist() for each in changed.nonzero()), strict=True):
            reasons[row] += (REASONS[limit],)
            self.interventions[REASONS[limit]] += 1
        return reasons


def _command(q: Array, gripper: float) -> JointCommand:
    q.setflags(write=False)
    return JointCommand(q, gripper)
