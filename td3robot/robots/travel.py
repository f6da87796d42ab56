"""Bring an arm that cannot be placed to a posture: period by period, through the guard, slower than a policy may go."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from td3robot.errors import RobotError
from td3robot.robots.guard import Guard, GuardDecision
from td3robot.robots.interface import Robot
from td3robot.state import Array, JointCommand, RobotState

# Share of the guard's speed and acceleration limits on the way; a slower travel does no harm. A joint of damping ratio
# zeta overshoots a new speed by exp(-pi zeta / sqrt(1 - zeta^2)): 16 % at 0.5, and 25 % at 0.4, for which this share
# makes up (tests/robots/test_travel.py measures it).
SPEED_SHARE = 0.8
# Arrived: every joint is this near [rad] and this slow [rad/s].
NEAR_RAD, SLOW_RAD_S = 5e-3, 0.01
# The path is blocked if the arm comes no nearer for this long [s].
STALL_S = 2.0
# Longest duration of a plan [s].
MAX_WAY_S = 150.0
# Share of the guard's acceleration that braking is planned with, so that the arm does not overshoot the posture.
BRAKING = 0.7
# If the direct path is blocked, the tool goes up this far first, if the arm can [m].
RISE_M = 0.15
# The gripper counts as open below this closed fraction; fingers may take this long [s], and closing ones have arrived
# within the second fraction of where they go.
OPEN_FRACTION, FINGERS_S = 0.1, 3.0
ARRIVED_FRACTION = 0.02
# Something held is lowered in straight pieces of this length [m].
LOWERING_M = 0.02


@dataclass(frozen=True, slots=True)
class TravelPlan:
    """A planned travel, shown to the person who has to agree.

    Attributes:
        start, end: (n,) postures [rad].
        way: The postures to pass, the last of them ``end``.
        tools: (m, 3) positions of the tool centre point on the way, one for each control period [m].
        seconds: How long the way takes, without the gripper.
        opens_gripper: Whether the fingers will open before the arm moves.
        drops: Whether the gripper reports that it holds something, which would fall.
    """

    start: Array
    end: Array
    way: tuple[Array, ...]
    tools: Array
    seconds: float
    opens_gripper: bool
    drops: bool


class Travel:
    """Bring one robot from where it stands to a posture.

    Attributes:
        agree: Called before anything moves; raises to refuse. Without it, an arm that holds nothing may go.
        watch: Called in every period with the measured state and what the guard let through; raises to end the travel,
            and the arm is stopped.
    """

    def __init__(self, robot: Robot, guard: Guard) -> None:
        self._robot, self._guard = robot, guard
        self._period = robot.spec.period_s
        self.agree: Callable[[TravelPlan], None] | None = None
        self.watch: Callable[[RobotState, GuardDecision], None] | None = None

    def to(self, q: Array, opens: bool = True) -> Array:
        """Open the gripper, bring the arm to a posture q (n,) [rad], and to rest.

        The path is the straight line in joint space if the guard admits it, otherwise one via home, going up first.

        Args:
            q: The posture.
            opens: Whether the gripper opens; if not, it keeps what it carries.

        Returns:
            (n,) the measured posture in which the arm rests [rad].

        Raises:
            RobotError: The path is blocked, naming the limit; it was not agreed to; or the robot failed. The arm rests.
        """
        state = self._robot.read()
        closed = self._robot.spec.gripper.closed_fraction(state.driver_q)
        way, tools = self._plan(state.q, q)
        seconds = len(tools) * self._period
        plan = TravelPlan(
            state.q, q, way, tools, seconds, opens and closed > OPEN_FRACTION, opens and self._robot.holds
        )
        if self.agree is not None:
            self.agree(plan)
        elif plan.drops:
            raise RobotError(
                "the gripper holds something that it would drop when it opens for the next start; take it out, and "
                "agree (or open the gripper) before travelling"
            )
        kept = 1.0 if self._robot.holds else self._closed(state)
        guard = self._guard.slower(SPEED_SHARE)
        guard.reset(state.q, self._closed(state))
        try:
            if plan.opens_gripper:
                self._open(guard, state.q)
            for posture in way:
                self._drive(guard, posture, 0.0 if opens else kept)
        finally:
            self._robot.stop()
        return self._robot.read().q

    def grip(self, closed: float) -> None:
        """Bring the fingers to a closed fraction in [0, 1] while the arm rests; closing may end at an object.

        Raises:
            RobotError: They did not open in time, or the robot failed.
        """
        state = self._robot.read()
        guard = self._guard.slower(SPEED_SHARE)
        guard.reset(state.q, self._closed(state))
        try:
            if closed < OPEN_FRACTION:
                self._open(guard, state.q)
            else:
                self._close(guard, state.q, closed)
        finally:
            self._robot.stop()

    def put_down(self, drop_m: float) -> None:
        """Lower what the gripper holds straight down, open the gripper, and go back up the same way.

        Args:
            drop_m: How far; less if a limit of the guard is in the way.

        Raises:
            RobotError: The fingers did not open, the arm was held up, or the robot failed. The arm rests.
        """
        state = self._robot.read()
        guard = self._guard.slower(SPEED_SHARE)
        guard.reset(state.q, self._closed(state))
        way = self._down(guard, state.q, drop_m)
        try:
            for posture in way[1:]:
                self._drive(guard, posture, 1.0)
            self._open(guard, way[-1])
            for posture in way[-2::-1]:
                self._drive(guard, posture, 0.0)
        finally:
            self._robot.stop()

    def _down(self, guard: Guard, q: Array, drop_m: float) -> list[Array]:
        """Return postures with the tool straight below where it is, from there on, as far as the guard admits them."""
        tool, way = guard.kinematics.tcp(q), [q]
        pieces = max(1, round(drop_m / LOWERING_M))
        for piece in range(1, pieces + 1):
            position = tool.position - np.array([0.0, 0.0, drop_m * piece / pieces])
            posture = guard.kinematics.inverse(position, way[-1], tool.rotation)
            if posture is None or guard.admits(posture) is not None:
                break
            way.append(posture)
        return way

    def _closed(self, state: RobotState) -> float:
        return min(max(self._robot.spec.gripper.closed_fraction(state.driver_q), 0.0), 1.0)

    def _plan(self, start: Array, end: Array) -> tuple[tuple[Array, ...], Array]:
        """Find a path, and its tool positions (m, 3), by asking the guard ahead of time; the arm does not move."""
        guard = self._guard.slower(SPEED_SHARE)
        guard.reset(start)
        guard.require_admitted(start)
        blocked = ""
        for way in self._ways(start, end):
            guard.reset(start)
            tools = list[Array]()
            blocked = next((limit for posture in way if (limit := self._blocked(guard, posture, tools))), "")
            if not blocked:
                return way, np.array(tools).reshape(-1, 3)
        raise RobotError(
            f"the way to {np.round(end, 3).tolist()} rad is blocked by the guard's limit {blocked!r}, also by way of "
            "home: move the arm by hand, in freedrive, towards home"
        )

    def _ways(self, start: Array, end: Array) -> Iterator[tuple[Array, ...]]:
        home = self._robot.spec.arm.home
        yield (end,)
        yield (home, end)
        kinematics = self._guard.kinematics
        tool = kinematics.tcp(start)
        raised = kinematics.inverse(tool.position + np.array([0.0, 0.0, RISE_M]), start, tool.rotation)
        if raised is not None:
            yield (raised, home, end)

    def _blocked(self, guard: Guard, q: Array, tools: list[Array]) -> str | None:
        """Simulate the guard's way to q without an arm; return the limit that it meets, or None if it arrives.

        The tool's position in each period is appended to ``tools``.
        """
        nearest, since = np.inf, 0
        for _ in range(round(MAX_WAY_S / self._period)):
            commanded = guard.commanded
            left = float(np.abs(q - commanded.q).max())
            if left < NEAR_RAD / 10:
                return None
            nearest, since = (left, 0) if left < nearest - NEAR_RAD / 100 else (nearest, since + 1)
            state = RobotState(commanded.q, np.zeros_like(q), np.zeros(2), 0.0)
            decision = guard.filter(self._desired(guard, q, 0.0), state, 0.0)
            tools.append(guard.kinematics.tcp(decision.command.q).position)
            if since * self._period > STALL_S / 2:
                return _limit(decision)
        return "time"

    def _drive(self, guard: Guard, q: Array, closed: float) -> None:
        nearest, since = np.inf, 0
        while True:
            state = self._robot.read()
            left = float(np.abs(q - state.q).max())
            if left < NEAR_RAD and np.abs(state.dq).max() < SLOW_RAD_S:
                return
            nearest, since = (left, 0) if left < nearest - NEAR_RAD / 10 else (nearest, since + 1)
            decision = self._step(guard, self._desired(guard, q, closed), state)
            if since * self._period > STALL_S:
                raise RobotError(
                    f"the arm came no nearer than {nearest:.3f} rad to {np.round(q, 3).tolist()} rad for {STALL_S:g} s "
                    f"(the guard's limit: {_limit(decision)}); see what holds it"
                )

    def _open(self, guard: Guard, q: Array) -> None:
        for _ in range(round(FINGERS_S / self._period)):
            state = self._robot.read()
            if self._robot.spec.gripper.closed_fraction(state.driver_q) < OPEN_FRACTION:
                return
            self._step(guard, JointCommand(q, 0.0), state)
        raise RobotError(f"the gripper did not open within {FINGERS_S:g} s; see what holds its fingers")

    def _close(self, guard: Guard, q: Array, closed: float) -> None:
        """Close until the fingers arrive, or hold something, or have had their time."""
        for _ in range(round(FINGERS_S / self._period)):
            state = self._robot.read()
            if abs(self._closed(state) - closed) < ARRIVED_FRACTION:
                return
            self._step(guard, JointCommand(q, closed), state)

    def _step(self, guard: Guard, desired: JointCommand, state: RobotState) -> GuardDecision:
        decision = guard.filter(desired, state, self._robot.now())
        self._robot.send(decision.command)
        self._robot.advance()
        if self.watch is not None:
            self.watch(state, decision)
        return decision

    def _desired(self, guard: Guard, q: Array, closed: float) -> JointCommand:
        """Return a command towards q, slow enough to brake before it: ``v^2 = 2 a d`` for the fastest joint."""
        way = q - guard.commanded.q
        left = float(np.abs(way).max())
        step = np.sqrt(2.0 * BRAKING * guard.config.max_joint_acceleration_rad_s2 * left) * self._period
        return JointCommand(guard.commanded.q + way * min(1.0, step / max(left, 1e-12)), closed)


def _limit(decision: GuardDecision) -> str:
    """Return the limit that blocks the way, rather than those that only slow the arm down."""
    blocking = [reason for reason in decision.reasons if reason not in ("joint_speed", "tcp_speed", "acceleration")]
    return (blocking or list(decision.reasons) or ["none"])[-1]
