"""The environment of robots with a task, behind the guard: rows that step together, in simulation and on hardware."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.actions import ActionKind
from td3robot.envs.initial_states import InitialState, InitialStateSampler
from td3robot.envs.privileged import Privileged
from td3robot.envs.retreat import Retreat
from td3robot.errors import EnvironmentFaultError, RobotError, TrackerError
from td3robot.jit import kernel
from td3robot.layout import Layout
from td3robot.robots.guard import Guard, GuardDecision
from td3robot.robots.interface import GripperModel, Robot
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.object_memory import ObjectMemory
from td3robot.robots.objects import ObjectBounds, Objects
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.robots.travel import Travel
from td3robot.row_math import dot, is_finite, largest, lengths, shift, totals
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState, World
from td3robot.tasks.interface import (
    AT_REST,
    NOTHING_HELD,
    REST_S,
    STALLED_PER_S,
    Failure,
    Goal,
    Goals,
    ObjectPoses,
    Scores,
    Task,
    TaskState,
    Transition,
    put,
    take,
)

Vector = NDArray[np.float32]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]
Steps = NDArray[np.int64]
# Called with a desired command, what the guard decided, and what was sent.
Watch = Callable[[JointCommand, GuardDecision, JointCommand], None]

# How long closing on an object, and lifting it, may take before an episode of practice begins [s]; the slowest gripper
# of domain randomization closes within 3 s.
GRIP_S, LIFT_S = 4.0, 2.0
# Below this, the commanded joints rest [rad/s].
STILL = 1e-6


class StepResult(NamedTuple):
    """What k rows returned, as arrays: another process gets them sooner than k dictionaries.

    Attributes:
        observations: (k, size).
        rewards: (k,).
        truncated, success: (k,) bool.
        names, terms: The reward's terms, and their values (k, terms).
        interventions: Why the guard changed each command.
        distance_m, tcp_speed_m_s, joint_speed_rad_s: (k,) as in the info of ``RobotEnv``.
        failures: Why episodes that ended without success failed, by index among the k.
    """

    observations: Vector
    rewards: Array
    truncated: NDArray[np.bool_]
    success: NDArray[np.bool_]
    names: tuple[str, ...]
    terms: Array
    interventions: list[tuple[str, ...]]
    distance_m: Array
    tcp_speed_m_s: Array
    joint_speed_rad_s: Array
    failures: Mapping[int, Failure]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """No episode of a robot terminates."""
        return np.zeros(len(self.rewards), np.bool_)

    def infos(self) -> list[dict[str, Any]]:
        """Return the info of each row, as ``RobotEnv`` returns it."""
        figures = zip(
            self.terms.tolist(), self.interventions, self.success.tolist(), self.distance_m.tolist(),
            self.tcp_speed_m_s.tolist(), self.joint_speed_rad_s.tolist(), self.truncated.tolist(), strict=True,
        )  # fmt: skip
        return [
            {
                "reward_terms": dict(zip(self.names, values, strict=True)),
                "interventions": changed,
                "success": succeeded,
                "distance_m": distance,
                "tcp_speed_m_s": speed,
                "joint_speed_rad_s": joint_speed,
            }
            | ({"is_success": succeeded} if ended else {})
            | ({"failure": self.failures[index]} if index in self.failures else {})
            for index, (values, changed, succeeded, distance, speed, joint_speed, ended) in enumerate(figures)
        ]


class Cell(NamedTuple):
    """What a row has for itself.

    Attributes:
        robot: Any robot; it is connected at the first reset.
        objects: The source of its object poses.
        initial: Draws how its episodes begin.
    """

    robot: Robot
    objects: Objects
    initial: InitialStateSampler


class _Measured:
    """Measured states of m rows, of which the gripper's go back as far as fingers rest.

    Attributes:
        q, dq, driver_q: The newest; see :class:`TaskState`.
        closed_and_stamp: (1 + rest, m, 2) closed fractions and times [s], oldest first.
    """

    def __init__(self, count: int, joints: int, rest: int) -> None:
        self.q, self.dq = np.zeros((2, count, joints))
        self.driver_q = np.zeros((count, 2))
        self.closed_and_stamp = np.zeros((1 + rest, count, 2))

    def add(self, rows: Rows, states: Sequence[RobotState], gripper: GripperModel, anew: bool) -> None:
        """Add the newest states of some rows, forgetting all others if their episodes begin anew."""
        newest = np.empty((len(rows), 2))
        for index, (row, state) in enumerate(zip(rows.tolist(), states, strict=True)):
            self.q[row], self.dq[row], self.driver_q[row] = state.q, state.dq, state.driver_q
            newest[index, 0], newest[index, 1] = gripper.closed_fraction(state.driver_q), state.stamp
        shift(self.closed_and_stamp, rows, newest, anew)


@kernel
def bounded(actions: Vector) -> Vector:
    """Return actions (k, n) clipped to [-1, 1]."""
    found = np.empty_like(actions)
    for row in range(found.shape[0]):
        for index in range(found.shape[1]):
            found[row, index] = min(max(actions[row, index], np.float32(-1.0)), np.float32(1.0))
    return found


@kernel
def count_steps(
    achieved: Flags, held: NDArray[np.intp], rows: Rows, hold_steps: Steps, steps: Steps, gripped: Flags
) -> None:
    """Count a step of some rows (k,): their steps (m,), those in a row that met the goal, and whether any gripped."""
    for index in range(len(rows)):
        row = rows[index]
        gripped[row] |= held[index] != NOTHING_HELD
        hold_steps[row] = hold_steps[row] + 1 if achieved[index] else 0
        steps[row] += 1


@kernel
def fingers_of(closed_and_stamp: Array, rows: Rows) -> tuple[Array, Array, Array, Array]:
    """Return ``stamp``, ``closed``, ``earlier_closed`` and ``closing_rate`` of some rows; see :class:`TaskState`.

    Args:
        closed_and_stamp: (t, m, 2) as in :class:`_Measured`.
        rows: (k,) which rows.
    """
    found = np.zeros((4, len(rows)))
    for index in range(len(rows)):
        now, before = closed_and_stamp[-1, rows[index]], closed_and_stamp[0, rows[index]]
        found[0, index], found[1, index], found[2, index] = now[1], now[0], before[0]
        if now[1] > before[1]:
            found[3, index] = (now[0] - before[0]) / (now[1] - before[1])
    return found[0], found[1], found[2], found[3]


@kernel
def motions(jacobians: Array, dq: Array) -> tuple[Array, Array]:
    """Compute tools' velocities (k, 3) [m/s], and their turn rates (k,) about the vertical [rad/s].

    Args:
        jacobians: (k, 6, n), linear [m/rad] above angular [1].
        dq: (k, n) joint velocities [rad/s].
    """
    velocities, turn_rates = np.empty((len(dq), 3)), np.empty(len(dq))
    for row in range(len(dq)):
        for axis in range(3):
            velocities[row, axis] = dot(jacobians[row, axis], dq[row])
        turn_rates[row] = dot(jacobians[row, 5], dq[row])
    return velocities, turn_rates


@kernel
def stand_still(
    rate: Array, commanded: Array, held: NDArray[np.intp], rows: Rows, period_s: float, stalled_s: Array, told: Array
) -> Array:
    """Count for how long the fingers of some rows have stood still since their last command, holding nothing.

    Args:
        rate: (k,) how fast their closed fractions grow [1/s].
        commanded: (k,) closed fractions.
        held: (k,) what they hold.
        rows: (k,) which rows.
        period_s: One control period.
        stalled_s: (m,) for how long they have stood still [s]; changed.
        told: (m,) what was commanded a period ago; changed.

    Returns:
        ``stalled_s`` of these rows.
    """
    for index in range(len(rows)):
        row = rows[index]
        is_still = abs(rate[index]) < STALLED_PER_S and held[index] == NOTHING_HELD
        stalled_s[row] = stalled_s[row] + period_s if is_still and commanded[index] == told[row] else 0.0
        told[row] = commanded[index]
    return stalled_s[rows]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rows of a batch have in common.

    Attributes:
        task: Observes and scores.
        action_kind: What actions mean.
        guard: Its limits and its kinematics hold in every row.
        objects: The task's objects.
        episode_steps: Control periods in an episode.
        bounds: Where the objects can be; None for anywhere.
        pace: Speed of the arm, as a share of training's.
        rising: How tools retreat where nothing goes on, ``tcp_delta``; None to let them be, as in training.
        observer: The kinematics of the measured arm; None for the guard's, which are those of the commands.
        privileged: Whether the true state follows each observation, for critics that see it.
    """

    task: Task
    action_kind: ActionKind
    guard: Guard
    objects: tuple[ObjectModel, ...]
    episode_steps: int
    bounds: ObjectBounds | None = None
    pace: float = 1.0
    rising: ActionKind | None = None
    observer: Kinematics | ToolboxKinematics | None = None
    privileged: bool = False


class RobotBatch:
    """Environments of robots that step together; one environment, and an arm, is a batch of one.

    Each row has its robot, its objects and its episodes; what follows from them is computed over rows. What a row does
    doesn't depend on which others step beside it.

    Args:
        cells: The rows' own parts.
        setting: What they have in common.
        threads: How many threads advance simulated robots.

    Attributes:
        goals, seen_goals: What is asked for, and how that looks to a controller.
        state, seen: The true states of all rows, and as a controller sees them.
        watch: Called in every control period once a row's command is sent.
        layout: Fields of the observation, and of the true state where that follows.
        privileged_size: How many numbers the true state has; 0 where it does not follow.
    """

    def __init__(self, cells: Sequence[Cell], setting: Setting, threads: int = 1) -> None:
        self.cells, self.setting = list(cells), setting
        self.task, self.action_kind = setting.task, setting.action_kind
        self.spec = cells[0].robot.spec
        count, joints, rest = len(cells), len(self.spec.arm.home), self.spec.periods(REST_S)
        self.guard = setting.guard if count == 1 else setting.guard.over(count)
        self.travel = Travel(cells[0].robot, self.guard)
        self.watch: Watch | None = None
        self._observer = setting.observer or self.guard.kinematics
        self._names = tuple(item.name for item in setting.objects)
        self.memory = ObjectMemory(
            [cell.objects for cell in cells], self._names, self.spec.period_s, rest, setting.pace, setting.bounds
        )
        self.retreat: Retreat | None = None
        if setting.rising is not None:
            self.retreat = Retreat(setting.rising, count, self.spec.period_s, setting.pace, self.task.uses_gripper)
        self._privileged, self.privileged_size, self.layout = None, 0, self.task.layout
        if setting.privileged:
            self._privileged = Privileged(self.task, self.spec, setting.objects, count)
            self.privileged_size = self._privileged.layout.size
            self.layout = Layout([*self.task.layout.fields, *self._privileged.layout.fields])
        self._disturbed = np.array([cell.robot.is_disturbed for cell in cells])
        self._threads = min(threads, count)
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None
        self._all = np.arange(count)
        self._seen_of = self._true_of = _Measured(count, joints, rest)
        if self._disturbed.any():
            self._true_of = _Measured(count, joints, rest)
        self._intent, self._keeps, self._stalled_s, self._told = np.zeros((4, count))
        self.previous_actions = np.zeros((count, self.action_kind.layout.size), np.float32)
        self._steps, self._held = np.zeros((2, count), np.int64)
        self._numbers = np.zeros((count, self.task.numbers_size))
        self._ends_early, self._gripped = np.zeros((2, count), np.bool_)
        poses = {
            name: ObjectPoses(np.zeros((count, 3)), np.zeros((count, 3, 3)), np.zeros(count)) for name in self._names
        }
        self.goals = self.seen_goals = Goals(np.zeros((count, 3)), np.zeros((count, 3, 3)), poses)
        self.goal: list[Goal | None] = [None] * count
        self.state = self.seen = self._observed(self._true_of, self._all, np.zeros(count), self.goals.objects)

    def __len__(self) -> int:
        return len(self.cells)

    @classmethod
    def joined(cls, batches: Sequence["RobotBatch"], threads: int = 1) -> "RobotBatch":
        """Return one batch with the rows of several that are alike, before their first reset."""
        if len(batches) == 1:
            return batches[0]
        return cls([cell for batch in batches for cell in batch.cells], batches[0].setting, threads)

    def connect(self, row: int = 0) -> None:
        """Connect a row's robot, and compute with what it then knows of its arm.

        Raises:
            RobotError: It cannot be reached, or is another robot.
        """
        robot = self.cells[row].robot
        robot.connect()
        if len(self) == 1:
            self.guard.adopt(robot.spec)
            self._observer.adopt(robot.spec)

    def reset(self, row: int, rng: np.random.Generator, goal: Array | None = None, stay: bool = False) -> Vector:
        """Sample a goal, bring a row's arm to its start, and return the observation (size,).

        Args:
            row: Which row.
            rng: Draws everything about the episode.
            goal: The numbers of a goal [m, rad] in place of the sampled one, for tasks that take one.
            stay: Whether the episode begins where the arm stands, with its gripper as it is.

        Raises:
            ConfigError: The given goal is not possible.
            RobotError: The robot cannot be reached or did not get to the start.
        """
        self.connect(row)
        robot, objects, initial = self.cells[row]
        start = initial.draw(rng, goal)
        if start.goal.models:
            objects.become(start.goal.models)
        robot.begin(rng)
        start = self._bring(row, start, stay)
        lying = objects.arrange(start.goal.objects)
        start = start._replace(goal=initial.among(start.goal, lying, rng, goal))
        self.memory.forget(row)
        self.guard.reset(start.q, start.gripper, row)
        self._intent[row] = max(start.goal.intent, self.action_kind.intent_of(start.gripper))
        self._keeps[row] = start.goal.gripper
        self._ends_early[row] = initial.practice and not start.goal.whole
        self.previous_actions[row] = 0.0
        self._steps[row] = self._held[row] = self._gripped[row] = 0
        self._numbers[row] = start.goal.numbers
        self._look_anew(row)
        self._ask(row, start.goal, lying)
        if self.retreat:
            self.retreat.reset(row)
        if self._privileged:
            self._privileged.begin(row, robot, objects)
        if start.goal.lift_m > 0.0 and robot.teleports and not stay:
            self._lift(row, start.goal)
        observation: Vector = self._observation(np.array([row]))[0]
        return observation

    def step(self, actions: Vector, rows: Rows | None = None) -> StepResult:
        """Advance rows by one control period.

        Args:
            actions: (k, action) in [-1, 1].
            rows: (k,) which rows, in ascending order; all by default.

        Raises:
            EnvironmentFaultError: An action is not finite; nothing was sent.
            CommandRefusedError: The guard refused to send anything; the arms were told to stop.
            RobotError: A robot failed; all were told to stop.
            TrackerError: Objects were lost; the arms have taken their commands.
        """
        rows = self._all if rows is None else rows
        actions = self.admissible(actions)
        self._intent[rows] = self.action_kind.intend(actions, self._intent[rows])
        desired, gripper = self._desired(actions, self.guard, rows)
        reasons = self._pass_period(desired, gripper, rows)
        before = self._of(self.state, rows)
        self._look(rows)
        self._notice(rows)
        transition = Transition(
            before, self._of(self.state, rows), self._of(self.goals, rows), actions, self.previous_actions[rows],
            np.array([bool(each) for each in reasons]),
        )  # fmt: skip
        scores = self.task.score(transition)
        self.previous_actions[rows] = actions
        count_steps(scores.achieved, transition.state.held, rows, self._held, self._steps, self._gripped)
        practised = self._ends_early[rows] & (self._held[rows] >= self.task.practice_hold_steps)
        truncated = (self._steps[rows] >= self.setting.episode_steps) | practised
        for row in rows[truncated].tolist():
            if not self.cells[row].robot.teleports:
                self.cells[row].robot.stop()  # nobody sends targets between two episodes
        return self._result(scores, reasons, truncated, rows, self._failures(transition, truncated, rows))

    def info(self) -> dict[str, Any]:
        """Return the info of a step in which the first row rested: that of an episode that ends before its first."""
        rows = self._all[:1]
        state, still, no = self._of(self.state, rows), self.previous_actions[:1], np.zeros(1, np.bool_)
        scores = self.task.score(Transition(state, state, self._of(self.goals, rows), still, still, no))
        return self._result(scores, [()], no, rows, {}).infos()[0]

    def preview(self, actions: Vector) -> GuardDecision:
        """Return what a step with actions (1, action) would send to the first row now; nothing is sent or changed.

        Raises:
            EnvironmentFaultError: An action is not finite.
            CommandRefusedError: The guard would refuse to send anything.
        """
        actions, guard, robot = self.admissible(actions), self.guard.twin(), self.cells[0].robot
        intent = self._intent.copy()
        self._intent[:1] = self.action_kind.intend(actions, self._intent[:1])
        desired, gripper = self._desired(actions, guard, self._all[:1])
        self._intent = intent
        return guard.filter(JointCommand(desired[0], float(gripper[0])), self._measured(0), robot.now())

    def drive(self, desired: JointCommand, row: int = 0) -> tuple[str, ...]:
        """Advance a row by one control period with a command that comes from no action, as when a person jogs the arm.

        The guard decides as on any other; no reward and no step of the episode are counted. Returns its reasons.

        Raises:
            CommandRefusedError: The guard refused to send anything; the arm was told to stop.
            RobotError: The robot failed; it was told to stop.
        """
        rows = np.array([row])
        (reasons,) = self._pass_period(np.array([desired.q]), np.array([desired.gripper]), rows)
        self._intent[row] = self.action_kind.intent_of(float(self.guard.gripper[row]))
        self._look(rows)
        return reasons

    def resume(self, velocity: Array | None = None) -> Vector:
        """Continue the first row's episode after a pause in which its robot was stopped; return the observation.

        The guard is anchored to where the arm rests now, and the gripper keeps its command. The pause does not count as
        time in which objects were unseen. Fingers that moved in it have not stalled.

        Args:
            velocity: (n,) of the joints [rad/s], for an arm whose motion is only assumed; None at rest.

        Raises:
            RobotError: The robot failed.
        """
        state = self.cells[0].robot.read()
        self.guard.reset(state.q, float(self.guard.gripper[0]))
        if velocity is not None:
            self.guard.velocity[0] = velocity
        self.previous_actions[0] = 0.0
        if abs(self.spec.gripper.closed_fraction(state.driver_q) - self.seen.closed[0]) >= AT_REST:
            self._stalled_s[0] = 0.0
        self.memory.pause(max(0.0, state.stamp - float(self.seen.stamp[0]) - self.spec.period_s))
        self._look(self._all[:1])
        observation: Vector = self._observation(self._all[:1])[0]
        return observation

    def close(self) -> None:
        """Release the robots."""
        if self._pool is not None:
            self._pool.shutdown()
        for cell in self.cells:
            cell.objects.close()
            cell.robot.close()

    def admissible(self, actions: Vector) -> Vector:
        """Return actions clipped to [-1, 1].

        Raises:
            EnvironmentFaultError: An action is not finite or has the wrong shape.
        """
        actions = np.array(actions, np.float32, order="C")  # compiled code knows one kind of array
        size = self.action_kind.layout.size
        if actions.ndim != 2 or actions.shape[1] != size or not is_finite(actions):
            raise EnvironmentFaultError(
                f"action {actions if len(actions) != 1 else actions[0]} is not {size} finite numbers in [-1, 1]; "
                "nothing was sent"
            )
        return bounded(actions)

    def world(self, state: TaskState, row: int = 0) -> World:
        """Return one row of a state as plain values, for people, pictures and records."""
        held = int(state.held[row])
        return World(
            robot=RobotState(state.q[row], state.dq[row], state.driver_q[row], float(state.stamp[row])),
            tcp=Pose(state.tcp_position[row], state.tcp_rotation[row]),
            tcp_velocity=state.tcp_velocity[row],
            commanded=JointCommand(state.commanded_q[row], float(state.commanded_gripper[row])),
            commanded_tcp=Pose(state.commanded_position[row], state.commanded_rotation[row]),
            objects={name: Pose(each.position[row], each.rotation[row]) for name, each in state.objects.items()},
            ages_s={name: float(each.age_s[row]) for name, each in state.objects.items()},
            held=None if held == NOTHING_HELD else self._names[held],
        )

    def _bring(self, row: int, start: InitialState, stay: bool) -> InitialState:
        """Bring a row's arm to where an episode begins."""
        robot, _, initial = self.cells[row]
        if stay:
            return initial.standing(start.goal, robot)
        if robot.teleports:
            robot.move_to(start.q)
            return start
        return start._replace(q=self.travel.to(start.q))

    def _ask(self, row: int, goal: Goal, lying: Mapping[str, Pose]) -> None:
        """Set a row's goal, for where the objects lie and for where they are seen."""
        seen = {name: Pose(each.position[row], each.rotation[row]) for name, each in self.seen.objects.items()}
        rows = np.array([row])
        self.goal[row] = true_goal = self.task.rebase(goal, lying)
        self.goals = put(self.goals, rows, _goals(true_goal, self._names))
        self.seen_goals = put(self.seen_goals, rows, _goals(self.task.rebase(goal, seen), self._names))

    def _lift(self, row: int, goal: Goal) -> None:
        """Close the gripper where the arm is, and lift what it holds, as practice may begin in simulation."""
        here = self.guard.q[row].copy()
        above, _ = self.cells[row].initial.posture_at(goal.start + np.array([0.0, 0.0, goal.lift_m]))
        for _ in range(self.spec.periods(GRIP_S)):
            if self.state.held[row] != NOTHING_HELD:
                break
            self.drive(JointCommand(here, 1.0), row)
        if above is not None and self.state.held[row] != NOTHING_HELD:
            for _ in range(self.spec.periods(LIFT_S)):
                self.drive(JointCommand(above, 1.0), row)
                if np.abs(self.guard.velocity[row]).max() < STILL:
                    break
        self._look_anew(row)

    def _desired(self, actions: Vector, guard: Guard, rows: Rows) -> tuple[Array, Array]:
        """Compute the desired postures (k, n) [rad] and closed fractions (k,): what actions and intents ask for."""
        kind, q, velocity = self.action_kind, self._part(guard.q, rows), self._part(guard.velocity, rows)
        seen = self._of(self.seen, rows)
        gripper = self._keeps[rows]
        if kind.uses_gripper:
            least, most = self.task.gripper_range(seen, self._of(self.seen_goals, rows))
            gripper = kind.gripper_command(self._intent[rows], guard.gripper[rows])
            gripper = np.minimum(np.maximum(gripper, least), most)
        desired = kind.desired(actions, q, velocity, gripper, seen.closing_rate, self.task.lowest(seen))
        if self.retreat and (rises := self.retreat.rises[rows]).any():
            desired[rises] = self.retreat.desired(take(seen, np.flatnonzero(rises)), q[rises], velocity[rises])
            if kind.uses_gripper:
                gripper[rises] = 0.0
        return desired, gripper

    def _notice(self, rows: Rows) -> None:
        """Let tools rise where nothing goes on; their grippers forget what they were to do."""
        if self.retreat is None:
            return
        left = self.task.way_left(self._of(self.seen, rows), self._of(self.seen_goals, rows))
        if left is not None:
            self.retreat.look(left, rows)
            self._intent[rows[self.retreat.rises[rows]]] = 0.0

    def _pass_period(self, desired: Array, gripper: Array, rows: Rows) -> list[tuple[str, ...]]:
        """Send the guard's decisions, advance by one control period, and return why commands were changed."""
        robots = [self.cells[row].robot for row in rows.tolist()]
        try:
            age_s = np.array([robot.now() for robot in robots]) - self.seen.stamp[rows]
            reasons = self.guard.decide(desired, gripper, self.seen.q[rows], age_s, rows)
            for index, (row, robot) in enumerate(zip(rows.tolist(), robots, strict=True)):
                command = JointCommand(self.guard.q[row].copy(), float(self.guard.gripper[row]))
                sent = robot.send(command)
                if self.watch is not None:
                    wanted = JointCommand(desired[index], float(gripper[index]))
                    self.watch(wanted, GuardDecision(command, reasons[index]), sent)
            self._advance(robots)
        except RobotError:
            for robot in robots:
                robot.stop()
            raise
        return reasons

    def _advance(self, robots: Sequence[Robot]) -> None:
        """Advance robots by a period: the threads take one after the other, and MuJoCo lets them run side by side."""
        waiting = iter(robots)

        def work() -> None:
            """Advance whichever robots are left."""
            for robot in waiting:
                robot.advance()

        helpers = [] if self._pool is None else [self._pool.submit(work) for _ in range(self._threads - 1)]
        work()
        for helper in helpers:
            helper.result()

    def _look_anew(self, row: int) -> None:
        """Read a row's robot where an episode begins: what was before does not count."""
        self._stalled_s[row], self._told[row] = 0.0, self.guard.gripper[row]
        self._look(np.array([row]), anew=True)

    def _look(self, rows: Rows, anew: bool = False) -> None:
        """Read robots and objects: ``seen`` is the state as a controller sees it, ``state`` the true one."""
        robots = [self.cells[row].robot for row in rows.tolist()]
        try:
            self._seen_of.add(rows, [robot.read() for robot in robots], self.spec.gripper, anew)
            if self._true_of is not self._seen_of:
                self._true_of.add(rows, [robot.truth() for robot in robots], self.spec.gripper, anew)
            seen = self._see(rows)
        except TrackerError:
            raise  # the episode ends with its reason: see RobotEnv
        except RobotError:
            for robot in robots:
                robot.stop()
            raise
        true = seen
        if self._true_of is not self._seen_of:
            true = self._observed(self._true_of, rows, seen.stalled_s, seen.objects)
        if self._names and (lying := self._truth(rows)) is not None:
            true = true._replace(objects=lying)
        if true.held is not seen.held:
            true = true._replace(held=self.task.held(true))
        everything = len(rows) == len(self)
        self.state = true if everything else put(self.state, rows, true)
        self.seen = seen if everything else put(self.seen, rows, seen)

    def _observed(
        self, measured: _Measured, rows: Rows, stalled_s: Array, objects: Mapping[str, ObjectPoses]
    ) -> TaskState:
        """Return the states that follow from what was measured, with nothing held."""
        guard, q, dq = self.guard, self._part(measured.q, rows), self._part(measured.dq, rows)
        tools = self._observer.tools(q)
        stamp, closed, earlier_closed, closing_rate = fingers_of(measured.closed_and_stamp, rows)
        commanded_q, commanded_dq = self._part(guard.q, rows), self._part(guard.velocity, rows)
        commanded = guard.kinematics.tools(commanded_q)
        commanded_velocity, commanded_turn_rate = motions(commanded.jacobian, commanded_dq)
        return TaskState(
            q=q,
            dq=dq,
            driver_q=self._part(measured.driver_q, rows),
            stamp=stamp,
            closed=closed,
            earlier_closed=earlier_closed,
            closing_rate=closing_rate,
            stalled_s=stalled_s,
            tcp_position=tools.position,
            tcp_rotation=tools.rotation,
            tcp_velocity=motions(tools.jacobian, dq)[0],
            commanded_q=commanded_q,
            commanded_dq=commanded_dq,
            commanded_gripper=self._part(guard.gripper, rows),
            commanded_position=commanded.position,
            commanded_rotation=commanded.rotation,
            commanded_velocity=commanded_velocity,
            commanded_turn_rate=commanded_turn_rate,
            commanded_jacobian=commanded.jacobian,
            intent=self._part(self._intent, rows),
            held=np.full(len(rows), NOTHING_HELD),
            objects=objects,
            numbers=self._part(self._numbers, rows),
        )

    def _see(self, rows: Rows) -> TaskState:
        """Return states as a controller sees them: the objects where they were seen last, or where hands carry them."""
        seen = self._observed(self._seen_of, rows, self._part(self._stalled_s, rows), self._of(self.seen, rows).objects)
        held, objects = seen.held, seen.objects
        if self._names:
            held = self.task.held(seen)
            self.memory.look(seen.tcp_position, seen.tcp_rotation, held, rows)
            objects = self._remembered(rows)
        commanded = seen.commanded_gripper
        stalled_s = stand_still(
            seen.closing_rate, commanded, held, rows, self.spec.period_s, self._stalled_s, self._told
        )
        return seen._replace(held=held, objects=objects, stalled_s=stalled_s)

    def _remembered(self, rows: Rows) -> dict[str, ObjectPoses]:
        memory = self.memory
        position, rotation, age_s = (
            self._part(each, rows) for each in (memory.position, memory.rotation, memory.age_s)
        )
        return {
            name: ObjectPoses(position[:, item], rotation[:, item], age_s[:, item])
            for item, name in enumerate(self._names)
        }

    def _truth(self, rows: Rows) -> dict[str, ObjectPoses] | None:
        """Return where the objects really are, or None if nobody knows."""
        truths = [self.cells[row].objects.truth() for row in rows.tolist()]
        if truths[0] is None:
            return None
        unseen = np.zeros(len(rows))
        return {
            name: ObjectPoses(
                np.array([truth[name].position for truth in truths if truth]),
                np.array([truth[name].rotation for truth in truths if truth]),
                unseen,
            )
            for name in self._names
        }

    def _measured(self, row: int) -> RobotState:
        seen = self.seen
        return RobotState(seen.q[row], seen.dq[row], seen.driver_q[row], float(seen.stamp[row]))

    def _observation(self, rows: Rows) -> Vector:
        observed = self.task.observe(self._of(self.seen, rows), self._of(self.seen_goals, rows))
        packed = self.task.layout.pack(observed, len(rows))
        if self._privileged is None:
            return packed
        truth = self._privileged.observe(self._of(self.state, rows), self._of(self.goals, rows), rows)
        return np.concatenate([packed, truth], axis=1)

    def _of(self, values: Any, rows: Rows) -> Any:
        """Return some rows of a state or of goals; all of them without a copy."""
        return values if len(rows) == len(self) else take(values, rows)

    def _part(self, values: NDArray[Any], rows: Rows) -> NDArray[Any]:
        """Return a copy of some rows of an array; that of all takes a third of the time."""
        return values.copy() if len(rows) == len(self) else values[rows]

    def _failures(self, transition: Transition, truncated: Flags, rows: Rows) -> dict[int, Failure]:
        """Return why the episodes of these rows (k,) that end now failed, by index."""
        failed = np.flatnonzero(truncated & (self._held[rows] < self.task.hold_steps))
        if not len(failed):
            return {}
        reasons = self.task.failures(take(transition, failed), self._gripped[rows[failed]])
        return dict(zip(failed.tolist(), reasons, strict=True))

    def _result(
        self, scores: Scores, reasons: list[tuple[str, ...]], truncated: Flags, rows: Rows, failures: dict[int, Failure]
    ) -> StepResult:
        state = self._of(self.state, rows)
        terms = np.array(list(scores.terms.values()), np.float64).reshape(-1, len(rows))
        return StepResult(
            observations=self._observation(rows),
            rewards=totals(terms),
            truncated=truncated,
            success=self._held[rows] >= self.task.hold_steps,
            names=tuple(scores.terms),
            terms=terms.T,
            interventions=reasons,
            distance_m=scores.distance_m,
            tcp_speed_m_s=lengths(state.tcp_velocity),
            joint_speed_rad_s=largest(state.dq),
            failures=failures,
        )


def _goals(goal: Goal, names: Sequence[str]) -> Goals:
    """Return a goal as one row."""
    unseen = np.zeros(1)
    objects = {
        name: ObjectPoses(goal.objects[name].position[None], goal.objects[name].rotation[None], unseen)
        for name in names
    }
    return Goals(goal.position[None], goal.rotation[None], objects)
