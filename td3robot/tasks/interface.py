"""The interface between a task and the environment: rows of states in, observations and scores out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from math import inf
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from td3robot.config.task import TaskConfig
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, ObjectModel, Pose

# Fingers are at rest if they moved by less than this closed fraction within this time [s]: a 2F-85 at its slowest,
# 20 mm/s, moves twice as far.
AT_REST, REST_S = 0.012, 0.1
# Fingers that close at this rate or faster are not at rest [1/s].
CLOSING_PER_S = AT_REST / REST_S
# Fingers slower than this have stalled [1/s]. Fingers at rest may be twice as fast, so that what they hold counts as
# held by then, though control periods vary.
STALLED_PER_S = CLOSING_PER_S / 2
NOTHING_HELD = -1


class ObjectPoses(NamedTuple):
    """The poses of one object in each of m rows.

    Attributes:
        position, rotation: (m, 3) [m], (m, 3, 3), in the base frame.
        age_s: (m,) time since it was last seen, times the environment's pace [s].
    """

    position: Array
    rotation: Array
    age_s: Array


class TaskState(NamedTuple):
    """Everything that a task may use, in each of m rows: the arm's state and what follows from it.

    Attributes:
        q, dq: (m, n) measured joint angles [rad] and velocities [rad/s].
        driver_q: (m, 2) gripper driver joints, in their own unit.
        stamp: (m,) time of the measurement on the robot's own clock [s].
        closed, earlier_closed: (m,) closed fractions of the gripper, now and ``REST_S`` ago or at the episode's start.
        closing_rate: (m,) how fast that fraction grows [1/s].
        stalled_s: (m,) finger standstill since the last gripper command, while nothing is held [s].
        tcp_position, tcp_rotation, tcp_velocity: Tool centre points, from the measured joint angles: (m, 3) [m],
            (m, 3, 3), (m, 3) [m/s].
        commanded_q, commanded_dq: (m, n) of the command that the guard last let through [rad], [rad/s].
        commanded_gripper: (m,) closed fraction of that command.
        commanded_position, commanded_rotation: Its tool centre point: (m, 3) [m], (m, 3, 3).
        commanded_velocity, commanded_turn_rate: (m, 3) [m/s], and (m,) about the vertical [rad/s].
        commanded_jacobian: (m, 6, n), linear [m/rad] above angular [1].
        intent: (m,) the gripper's intent, which an action changes: 0 to open, 1 to close.
        held: (m,) which of the task's objects is between the fingers; ``NOTHING_HELD`` for none.
        objects: Poses by name, as far as they are known.
        numbers: (m, numbers_size) those of each row's :class:`Goal`.
    """

    q: Array
    dq: Array
    driver_q: Array
    stamp: Array
    closed: Array
    earlier_closed: Array
    closing_rate: Array
    stalled_s: Array
    tcp_position: Array
    tcp_rotation: Array
    tcp_velocity: Array
    commanded_q: Array
    commanded_dq: Array
    commanded_gripper: Array
    commanded_position: Array
    commanded_rotation: Array
    commanded_velocity: Array
    commanded_turn_rate: Array
    commanded_jacobian: Array
    intent: Array
    held: NDArray[np.intp]
    objects: Mapping[str, ObjectPoses]
    numbers: Array


class Goals(NamedTuple):
    """What the episodes of m rows ask for.

    Attributes:
        position: (m, 3) where the tool centre point, or the object, must end up [m].
        rotation: (m, 3, 3) how it must be turned there, for tasks that ask for it.
        objects: Where the objects lay at the beginning, by name.
    """

    position: Array
    rotation: Array
    objects: Mapping[str, ObjectPoses]


@dataclass(frozen=True, slots=True)
class Goal:
    """What one episode asks for, and how it begins.

    Attributes:
        position: (3,) where the tool centre point, or the object, must end up [m]. The tool must be able to go there.
        start: (3,) where the tool centre point begins [m].
        rotation: (3, 3) how the tool, or the object, must be turned at the end, for tasks that ask for it.
        gripper: Closed fraction that the gripper keeps, if the task does not use it.
        intent: The gripper's intent to begin with, if the task uses the gripper, in [0, 1].
        lift_m: In practice, the gripper takes what it finds at the start and lifts it this far before the episode
            begins; 0 for an open gripper.
        whole: In practice, whether the episode goes on to its end, however long its object is held.
        objects: Poses of the objects at the beginning, by name.
        models: What they are in this episode, by name, where that differs from what the task's configuration says.
        numbers: (numbers_size,) what the task computes once for the episode; its states have them.
    """

    position: Array
    start: Array
    rotation: Array = field(default_factory=lambda: np.eye(3))
    gripper: float = 0.0
    intent: float = 0.0
    lift_m: float = 0.0
    whole: bool = False
    objects: Mapping[str, Pose] = field(default_factory=dict)
    models: Mapping[str, ObjectModel] = field(default_factory=dict)
    numbers: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def begins_at_object(self) -> bool:
        """Whether the episode begins with the tool around the object, in practice."""
        return self.intent > 0.0 or self.lift_m > 0.0


class GoalPoints(NamedTuple):
    """Goals that are positions, of m rows.

    Attributes:
        achieved, desired: (m, k) in the base frame [m].
        within_m: How near to each other they have to be [m].
    """

    achieved: Array
    desired: Array
    within_m: float


class Transition(NamedTuple):
    """One control period of m rows, for scoring.

    Attributes:
        before, state: The true states before and after it.
        goals: What is asked for.
        action, previous_action: (m, action) the policy's actions in this and the last period, in [-1, 1].
        intervened: (m,) whether the guard changed the command.
    """

    before: TaskState
    state: TaskState
    goals: Goals
    action: NDArray[np.float32]
    previous_action: NDArray[np.float32]
    intervened: NDArray[np.bool_]


Rows = TypeVar("Rows", TaskState, Goals, Transition)


def take(rows: Rows, which: NDArray[np.intp]) -> Rows:
    """Return a copy of some of the rows of a state, of goals or of a transition."""
    taken: Rows = _mapped(lambda array: array[which], rows)
    return taken


def put(rows: Rows, which: NDArray[np.intp], new: Rows) -> Rows:
    """Return a copy of a state or of goals in which some rows are replaced."""

    def replaced(array: Array, part: Array) -> Array:
        """Return an array with the new rows."""
        changed = array.copy()
        changed[which] = part
        return changed

    result: Rows = _mapped(replaced, rows, new)
    return result


def _mapped(function: Callable[..., Array], *values: Any) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return function(*values)
    if isinstance(first, Mapping):
        return {name: _mapped(function, *(each[name] for each in values)) for name in first}
    return type(first)(*(_mapped(function, *each) for each in zip(*values, strict=True)))


class Scores(NamedTuple):
    """The scores of one control period.

    Attributes:
        terms: Weighted reward terms (m,) by name; the reward is their sum.
        achieved: (m,) whether the goal is met at this moment.
        distance_m: (m,) distance left to the goal [m].
    """

    terms: Mapping[str, NDArray[Any]]
    achieved: NDArray[np.bool_]
    distance_m: Array

    @property
    def reward(self) -> Array:
        """The sums of the terms (m,)."""
        return sum(self.terms.values(), np.zeros(len(self.achieved)))


class Failure(NamedTuple):
    """Why an episode did not succeed.

    Attributes:
        kind: A name; ``td3robot.format.FAILURES`` has words for those of the tasks in this repository.
        distance_m: How far from success it ended, where a distance says that [m].
    """

    kind: str
    distance_m: float | None = None


# The goal was met at the end, but not for as long as success takes.
TOO_SHORT = Failure("too_short")


class Task(ABC):
    """A task: samples goals, builds observations, scores control periods. Everything but sampling is over rows.

    Attributes:
        Config: The task's own section of a configuration.
        name: The task's name in configurations.
        uses_gripper: Whether the gripper is part of the action.
        turns_tool: Whether ``tcp_delta`` has a component that turns the tool about the vertical.
        tilts_tool: Whether it has three that turn the tool about the base frame's axes, and goals have a ``rotation``.
        takes_goal: Whether a person may give the goal in place of the sampled one.
        goal_form: The numbers of such a goal; those in brackets may be left out.
        goal_fields: Names of the observation's fields that depend on the goal, for tasks with ``goal_points``.
        gripper_kept: Closed fraction at which a gripper that the task does not use has to be; None for any.
        hold_steps: How many moments at the end of an episode must be achieved for success.
        practice_hold_steps: In training, an episode that is not ``whole`` ends once this many moments in a row were
            achieved.
        numbers_size: How many numbers it computes once for each episode; see :class:`Goal`.
        layout: Fields of the observation; joint angles and gripper driver joints come first.
    """

    Config: ClassVar[type[TaskConfig]]
    name: str
    uses_gripper: bool
    turns_tool: bool
    tilts_tool: bool = False
    takes_goal: bool = True
    goal_form: str = "x,y,z"
    goal_fields: tuple[str, ...] = ()
    gripper_kept: float | None = None
    hold_steps: int
    practice_hold_steps: float = inf
    numbers_size: int = 0
    layout: Layout

    @abstractmethod
    def __init__(self, config: Any, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        """Lay out observations for a robot with this tool speed limit [m/s]."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the task's terms of a contract: its name, and what its observations depend on."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample the goal of an episode; in practice, some may begin where there is most to learn."""

    def given(self, goal: Goal, numbers: Array) -> Goal:
        """Return a sampled goal with what a person gives in its place: the numbers (k,) of ``goal_form`` [m, rad].

        Raises:
            ValueError: There are more numbers, or fewer.
        """
        x, y, z = numbers
        return replace(goal, position=np.array([x, y, z]))

    def objection(self, goal: Goal, objects: Mapping[str, Pose]) -> str | None:
        """Return why a goal cannot be asked for with the objects where they lie, as a sentence, or None if it can."""
        return None

    def rebase(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal for where the objects really lie, which may not be where they were wanted."""
        return goal

    def goal_points(self, state: TaskState, goals: Goals) -> GoalPoints | None:
        """Return what is achieved and what is desired, for tasks whose goal is a position; None for others."""
        return None

    def held(self, state: TaskState) -> NDArray[np.intp]:
        """Return which object is between the fingers (m,), or ``NOTHING_HELD``, judged by the driver joints.

        The objects of the state are where they were believed to be a period ago.
        """
        return np.full(len(state.q), NOTHING_HELD)

    def gripper_range(self, state: TaskState, goals: Goals) -> tuple[Array, Array]:
        """Return the closed fractions (m,) between which the gripper may be commanded, from what a controller sees."""
        return np.zeros(len(state.q)), np.ones(len(state.q))

    def lowest(self, state: TaskState) -> Array | None:
        """Return how low each of m tools may be wanted, from a state as it is seen [m]; None for anywhere.

        A tool that is lower already may stay there, and slides along: it is not lifted.
        """
        return None

    def way_left(self, state: TaskState, goals: Goals) -> Array | None:
        """Return how far each of m rows is from its goal, as a controller sees it [m]; None for tasks without retreat.

        Where that does not get shorter for some time, the tool rises with its gripper open, and the policy goes on from
        there. It is 0 where there is nothing left to do, and infinite where the attempt has failed.
        """
        return None

    def gripper_message(self, state: TaskState, goals: Goals) -> str:
        """Return why the gripper of the first row does not follow the policy's intent, for operators; or nothing."""
        return ""

    @abstractmethod
    def observe(self, state: TaskState, goals: Goals) -> Mapping[str, Array]:
        """Return the value of every field of the layout: (m, size), or (m,) for a field of one number."""

    @abstractmethod
    def score(self, transition: Transition) -> Scores:
        """Score one control period."""

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Return why each of m rows, whose episodes end here, failed; success takes ``hold_steps`` achieved moments.

        Args:
            transition: The last control period.
            gripped: (m,) whether anything was held in the episode.
        """
        scores = self.score(transition)
        return [
            TOO_SHORT if achieved else Failure("away", float(distance))
            for achieved, distance in zip(scores.achieved, scores.distance_m, strict=True)
        ]


def robot_fields(spec: RobotSpec) -> list[Field]:
    """Return the fields that every observation begins with: arm joint angles, then the gripper's driver joints."""
    return [
        Field("q", spec.arm.joint_names, "rad", "arm"),
        Field("driver_q", spec.gripper.driver_names, spec.gripper.driver_unit, "gripper"),
    ]


def observe_robot(state: TaskState) -> dict[str, Array]:
    """Return the values of :func:`robot_fields`: ``[q..., right_driver, left_driver]``, drivers in their own unit."""
    return {"q": state.q, "driver_q": state.driver_q}


Method = TypeVar("Method", bound=Callable[..., Any])


def per_row(method: Method) -> Method:
    """Let a task's method be written for a single row: it is called for each, and what it returns is stacked.

    Its arguments are those of the method over rows, without their first axis: ``state.q`` is (n,), ``state.held`` a
    number. It returns numbers or arrays in the same places: a mapping for :meth:`Task.observe`, :class:`Scores` for
    :meth:`Task.score`. Slower than arrays; docs/add_task.md has an example of both.
    """

    @wraps(method)
    def over_rows(self: Task, *arguments: Any) -> Any:
        """Call the method for each row, and stack what it returns."""
        first: Any = arguments[0]
        count = len((first.state if isinstance(first, Transition) else first).q)
        rows = [method(self, *(_row(each, index) for each in arguments)) for index in range(count)]
        return _stacked(rows)

    return over_rows  # type: ignore[return-value]


def _row(value: Any, index: int) -> Any:
    return _mapped(lambda array: array[index], value)


def _stacked(rows: Sequence[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Mapping):
        return {name: _stacked([row[name] for row in rows]) for name in first}
    if isinstance(first, tuple):
        parts = [_stacked(each) for each in zip(*rows, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return np.array(rows)
