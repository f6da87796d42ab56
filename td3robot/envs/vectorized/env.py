"""Robot environments that step together, as arrays."""

from collections.abc import Sequence
from importlib import import_module
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.action import JointDelta, TcpDelta
from td3robot.envs.checked import checked
from td3robot.envs.robot_env import RobotEnv
from td3robot.envs.vectorized.action import VectorizedJointDelta, VectorizedTcpDelta, told, waiting
from td3robot.envs.vectorized.history import History
from td3robot.envs.vectorized.memory import VectorizedMemory
from td3robot.errors import EnvironmentFaultError, RobotError
from td3robot.geometry import lengths, times
from td3robot.robots.guard import Guard, Plan
from td3robot.robots.simulated.disturbed import without_disturbances
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.vectorized.arms import VectorizedArms
from td3robot.robots.vectorized.guard import SCALED, Rulings, VectorizedGuard, largest
from td3robot.robots.vectorized.kinematics import Tools, VectorizedKinematics
from td3robot.state import Array, JointCommand, Pose, RobotState
from td3robot.tasks.interface import REST_S, STALLED_PER_S, Task
from td3robot.tasks.vectorized import Worlds

Vector = NDArray[np.float32]
Rows = NDArray[np.intp]
ACTIONS: dict[type, Any] = {TcpDelta: VectorizedTcpDelta, JointDelta: VectorizedJointDelta}
NOTHING = np.zeros((0, 3))


class VectorizedSteps(NamedTuple):
    """What k environments returned, as arrays: another process gets them sooner than k dictionaries.

    Attributes:
        observations: (k, size).
        rewards: (k,).
        truncated, success: (k,) bool.
        names, terms: The reward's terms, and their values (k, terms).
        interventions: Why the guard changed each action.
        distance_m, tcp_speed_m_s, joint_speed_rad_s: (k,) as in the info of :class:`RobotEnv`.
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

    def infos(self) -> list[dict[str, Any]]:
        """Return the info of each environment, as :class:`RobotEnv` returns it."""
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
            for values, changed, succeeded, distance, speed, joint_speed, ended in figures
        ]


class VectorizedRobotEnv:
    """The environments of a process, stepped together.

    Each :class:`RobotEnv` begins its own episodes; from then on, its state is a row here. The arithmetic is that of the
    environments, which are the reference: observations and rewards agree up to rounding. The results of an environment
    do not depend on which others step beside it. Delays, noise and cameras are the environments' own.

    Args:
        environments: Environments that :func:`can_be_vectorized`, alike except for their disturbances.
        threads: How many threads the physics use.

    Attributes:
        arms: The physics of their arms.
    """

    def __init__(self, environments: Sequence[RobotEnv], threads: int = 1) -> None:
        for environment in environments:
            environment.connect()
        self._environments, first = environments, environments[0]
        self._title = first.task.name
        spec, self._kind, task = first.robot.spec, first.action_kind, first.task
        count, joints, rest = len(environments), len(spec.arm.home), spec.periods(REST_S)
        limits, self._max_age, self._period = first.guard.limits(), first.guard.config.max_state_age_s, spec.period_s
        self._kinematics = VectorizedKinematics(first.guard.kinematics)
        self._guard = VectorizedGuard(limits, self._kinematics)
        self._action = ACTIONS[type(self._kind)](self._kind)
        self._task = import_module(str(_own(task))).VECTORIZED(task, count)
        self.arms = VectorizedArms([_simulated(environment) for environment in environments], threads)
        self._memory = VectorizedMemory(count, spec.period_s, rest)
        self._hold_steps, self._practice_steps = task.hold_steps, task.practice_hold_steps
        self._ends_early = np.zeros(count, np.bool_)
        self._disturbed = np.array([environment.robot.is_disturbed for environment in environments])
        self._episode_steps = first.episode_steps
        self._q, self._velocity, self._behind = np.zeros((3, count, joints))
        self._gripper, self._intent, self._wanted = np.zeros((3, count))
        self._tools = Tools(count, joints)
        self._box = np.zeros((2, count, 3))
        self._previous = np.zeros((count, self._kind.layout.size), np.float32)
        self._steps, self._held = np.zeros((2, count), np.int64)
        self._gripper_range = np.zeros((2, count))
        self._stalled_s, self._told = np.zeros((2, count))
        self._seen, self._true = (History(count, joints, rest) for _ in range(2))
        self._before: Any = None

    def begin(self, row: int) -> None:
        """Take over an environment that was just reset.

        Raises:
            EnvironmentFaultError: The task's code raised an exception.
        """
        with checked(self._title, "reset"):
            self._begin(row)

    def _begin(self, row: int) -> None:
        environment = self._environments[row]
        plan, world = environment.guard.plan, environment.world
        self._q[row], self._velocity[row], self._behind[row] = plan.commanded.q, plan.velocity, plan.behind
        self._gripper[row], self._intent[row] = plan.commanded.gripper, world.intent
        self._wanted[row] = environment.goal.gripper
        self._ends_early[row] = environment.ends_early
        self._box[:, row] = plan.box_low, plan.box_high
        self._previous[row] = 0.0
        self._steps[row] = self._held[row] = 0
        self._stalled_s[row], self._told[row] = environment.seen.stalled_s, environment.seen.commanded.gripper
        self._gripper_range[:, row] = environment.task.gripper_range(environment.seen)
        self.arms.place(row)
        self._kinematics.fill(self._tools, self._q, [row])
        for history, state in ((self._seen, environment.seen.robot), (self._true, world.robot)):
            history.begin(row, state, self.arms.closed_fractions(state.driver_q[None])[0])
        for name, pose in environment.seen.objects.items():
            tool = environment.seen.tcp
            held = environment.seen.held == name
            self._memory.begin(row, pose.position, pose.rotation, tool.position, tool.rotation, held)
        self._task.begin(row, environment.goal, environment.seen_goal)
        rows = np.array([row])
        worlds = self._with_objects(self._world(self._true, rows), rows)
        measures = self._task.measure(worlds, rows)
        if self._before is None:
            shapes = ((len(self._environments), *each.shape[1:]) for each in measures)
            self._before = type(measures)(*map(np.zeros, shapes))
        for kept, each in zip(self._before, measures, strict=True):
            kept[row] = each[0]

    def step(self, actions: Vector, rows: Rows) -> VectorizedSteps:
        """Step environments.

        Args:
            actions: (k, action) in [-1, 1].
            rows: (k,) which environments, in ascending order.

        Raises:
            EnvironmentFaultError: An action is not finite, or the task's code or MuJoCo raised an exception.
            CommandRefusedError: The guard refused to send anything.
            RobotError: A simulation became unstable.
        """
        with checked(self._title, "step"):
            return self._step(actions, rows)

    def _step(self, actions: Vector, rows: Rows) -> VectorizedSteps:
        if not np.isfinite(actions).all():
            raise EnvironmentFaultError(f"actions {actions} are not finite numbers in [-1, 1]; nothing was sent")
        actions = np.clip(actions, -1.0, 1.0)
        gripper, asked = self._wanted[rows], actions
        if self._kind.uses_gripper:
            change = self._kind.intent_step * actions[:, -1].astype(np.float64)
            self._intent[rows] = np.minimum(np.maximum(self._intent[rows] + change, 0.0), 1.0)
            least, most = self._gripper_range[:, rows]
            gripper = np.minimum(np.maximum(told(self._intent[rows], self._gripper[rows]), least), most)
            if self._kind.config.wait_for_gripper:
                asked = waiting(actions, self._seen.closing_rate(rows), gripper)
        reasons = self._pass_period(asked, gripper, rows)
        worlds, seen = self._look(rows)
        if self._kind.uses_gripper:
            self._gripper_range[:, rows] = self._task.gripper_range(seen)
        before = type(self._before)(*(each[rows] for each in self._before))
        now = self._task.measure(worlds, rows)
        turned = actions - self._previous[rows]
        roughness = (turned * turned).sum(axis=1).astype(np.float64) / (4.0 * actions.shape[1])
        intervened = np.array([bool(each) for each in reasons])
        scores = self._task.score(before, now, worlds, roughness, intervened, rows)
        for kept, each in zip(self._before, now, strict=True):
            kept[rows] = each
        self._previous[rows] = actions
        self._held[rows] = np.where(scores.achieved, self._held[rows] + 1, 0)
        self._steps[rows] += 1
        practised = self._ends_early[rows] & (self._held[rows] >= self._practice_steps)
        truncated = (self._steps[rows] >= self._episode_steps) | practised
        rewards = sum(scores.terms.values(), np.zeros(len(rows)))
        return VectorizedSteps(
            observations=self._task.observe(seen, rows),
            rewards=rewards,
            truncated=truncated,
            success=self._held[rows] >= self._hold_steps,
            names=tuple(scores.terms),
            terms=np.array(list(scores.terms.values())).T,
            interventions=reasons,
            distance_m=scores.distance_m,
            tcp_speed_m_s=lengths(worlds.velocity),
            joint_speed_rad_s=largest(self._true.dq[rows]),
        )

    def _pass_period(self, actions: Vector, gripper: Array, rows: Rows) -> list[tuple[str, ...]]:
        """Send the guard's rulings, advance by one control period, and return why wishes were changed."""
        q, velocity, behind = self._q[rows], self._velocity[rows], self._behind[rows]
        commanded = self._tools.rows(rows)
        wishes = q + self._action.moves(actions, q, velocity, commanded)
        measured = self._seen.q[rows]
        rulings = self._guard.rule(wishes, measured, q, velocity, behind, commanded, self._box[:, rows])
        age = self.arms.time[rows] - self._seen.stamps[-1, rows]
        timely = (age >= -self._period) & (age <= self._max_age)
        left = rulings.objected | ~(np.isfinite(wishes).all(axis=1) & timely)
        scaled = rulings.scaled.any(axis=0)
        reasons: list[tuple[str, ...]] = [()] * len(rows)
        for index in np.flatnonzero(left | scaled).tolist():
            if left[index]:
                reasons[index] = self._rule_alone(
                    index, int(rows[index]), wishes[index], float(gripper[index]), rulings
                )
            else:
                reasons[index] = tuple(compress(SCALED, rulings.scaled[:, index]))
        self._q[rows], self._velocity[rows], self._behind[rows] = rulings.q, rulings.velocity, rulings.behind
        self._gripper[rows] = np.minimum(np.maximum(gripper, 0.0), 1.0)
        self._tools.set_rows(rows, rulings.tools)
        self._advance(rulings.q, self._gripper[rows], rows)
        return reasons

    def _advance(self, q: Array, gripper: Array, rows: Rows) -> None:
        """Advance by one control period, with commands that are delayed where the arm is disturbed."""
        disturbed = [(index, rows[index]) for index in np.flatnonzero(self._disturbed[rows])]
        if disturbed:
            q, gripper = q.copy(), gripper.copy()
        for index, row in disturbed:
            robot = self._environments[row].robot
            acting = robot.delayed(JointCommand(q[index].copy(), float(gripper[index])))
            q[index], gripper[index] = acting.q, acting.gripper
            robot.begin_period()
        self.arms.advance(q, gripper, rows)
        for _, row in disturbed:
            self.arms.mirror(row)
            self._environments[row].robot.end_period()

    def _rule_alone(self, index: int, row: int, wish: Array, gripper: float, rulings: Rulings) -> tuple[str, ...]:
        """Let the environment's own guard rule on a wish, and put its ruling among the others."""
        environment, seen = self._environments[row], self._seen
        guard = environment.guard
        commanded = JointCommand(self._q[row].copy(), float(self._gripper[row]))
        box_low, box_high = self._box[:, row].tolist()
        guard.resume(Plan(commanded, self._velocity[row].copy(), self._behind[row].copy(), box_low, box_high))
        now = float(self.arms.time[row])
        state = RobotState(seen.q[row].copy(), seen.dq[row].copy(), seen.drivers[row], float(seen.stamps[-1, row]))
        try:
            ruling = guard.filter(JointCommand(wish, gripper), state, now)
        except RobotError:
            environment.robot.stop()
            raise
        plan = guard.plan
        rulings.q[index], rulings.velocity[index], rulings.behind[index] = plan.commanded.q, plan.velocity, plan.behind
        self._kinematics.fill(rulings.tools, rulings.q, [index])
        return ruling.reasons

    def _look(self, rows: Rows) -> tuple[Worlds, Worlds]:
        """Read the arms and the objects: return the worlds as they are, and as controllers see them."""
        arms, disturbed = self.arms, self._disturbed[rows]
        self._true.add(rows, arms.q[rows], arms.dq[rows], arms.drivers[rows], arms.time[rows], arms.closed_fractions)
        self._seen.follow(self._true, rows)
        for row in rows[disturbed]:
            state = self._environments[row].robot.read()
            self._seen.correct(row, state, arms.closed_fractions(state.driver_q[None])[0])
        true = self._world(self._true, rows)
        seen = self._stalled(self._world(self._seen, rows) if disturbed.any() else true, rows)
        if arms.objects:
            true = self._with_objects(true, rows)
            seen = self._remember(seen, rows, disturbed)
        return true, seen

    def _world(self, history: History, rows: Rows) -> Worlds:
        """Return the worlds that follow from states; nothing is said of objects yet."""
        commanded, q = self._tools.rows(rows), history.q[rows]
        tools = Tools(*q.shape)
        self._kinematics.fill(tools, q, range(len(rows)))
        twist = times(commanded.jacobians, self._velocity[rows])
        closed, before = history.closed[-1, rows], history.closed[0, rows]
        return Worlds(
            q=q,
            drivers=history.drivers[rows],
            closed=closed,
            position=tools.positions,
            rotation=tools.rotations,
            velocity=times(tools.linear, history.dq[rows]),
            commanded_position=commanded.positions,
            commanded_rotation=commanded.rotations,
            commanded_velocity=twist[:, :3],
            commanded_turn_rate=twist[:, 5],
            commanded_q=self._q[rows],
            commanded_dq=self._velocity[rows],
            commanded_jacobian=commanded.jacobians,
            commanded_gripper=self._gripper[rows],
            intent=self._intent[rows],
            closing_rate=history.closing_rate(rows),
            stalled_s=NOTHING,
            held=self._task.held(closed, before, self._gripper[rows]),
            item=NOTHING,
            item_rotation=NOTHING,
            item_age_s=NOTHING,
        )

    def _stalled(self, seen: Worlds, rows: Rows) -> Worlds:
        """Return worlds, as controllers see them, with the time for which their fingers have stalled."""
        told = seen.commanded_gripper
        stalls = (np.abs(seen.closing_rate) < STALLED_PER_S) & (told == self._told[rows]) & ~seen.held
        self._stalled_s[rows] = np.where(stalls, self._stalled_s[rows] + self._period, 0.0)
        self._told[rows] = told
        return seen._replace(stalled_s=self._stalled_s[rows])

    def _with_objects(self, worlds: Worlds, rows: Rows) -> Worlds:
        """Return worlds with their object where it really is."""
        for positions, rotations in self.arms.objects.values():
            return worlds._replace(item=positions[rows], item_rotation=rotations[rows], item_age_s=np.zeros(len(rows)))
        return worlds

    def _remember(self, worlds: Worlds, rows: Rows, disturbed: NDArray[np.bool_]) -> Worlds:
        """Return worlds with their object where it was last seen, or where the hand carries it."""
        ((name, (positions, rotations)),) = self.arms.objects.items()
        calm, ages = ~disturbed, np.zeros(len(rows))
        if calm.any():
            where = rows[calm]
            self._memory.look(
                worlds.position[calm], worlds.rotation[calm], worlds.held[calm],
                positions[where], rotations[where], where,
            )  # fmt: skip
        for index in np.flatnonzero(disturbed):
            row = rows[index]
            memory = self._environments[row].memory
            tool = Pose(worlds.position[index].copy(), worlds.rotation[index].copy())
            memory.look(tool, name if worlds.held[index] else None)
            self._memory.positions[row], self._memory.rotations[row] = (
                memory.poses[name].position, memory.poses[name].rotation
            )  # fmt: skip
            ages[index] = memory.ages_s[name]
        return worlds._replace(
            item=self._memory.positions[rows], item_rotation=self._memory.rotations[rows], item_age_s=ages
        )


def can_be_vectorized(environment: RobotEnv) -> bool:
    """Whether an environment can step together with others: simulated in MuJoCo, with a task and actions that can."""
    kind, simulated = environment.action_kind, without_disturbances(environment.robot)
    return (
        type(environment) is RobotEnv
        and type(simulated) is MujocoRobot
        and type(kind) in ACTIONS
        and _own(environment.task) is not None
        and type(environment.guard) is Guard
        and len(simulated.object_models) <= 1
    )


def _own(task: Task) -> str | None:
    """Return the module of this task's own vectorized form: a base class's would be another task's."""
    module: str | None = vars(type(task)).get("vectorized")
    return module


def _simulated(environment: RobotEnv) -> MujocoRobot:
    simulated = without_disturbances(environment.robot)
    assert isinstance(simulated, MujocoRobot)
    return simulated
