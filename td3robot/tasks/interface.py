"""The interface between a task and an environment."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from td3robot.config.task import TaskConfig
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.state import Array, JointCommand, Pose, RobotState, World

# Fingers are at rest if they moved by less than this closed fraction within this time [s]: a 2F-85 at its slowest,
# 20 mm/s, moves twice as far.
AT_REST, REST_S = 0.012, 0.1
# Fingers that close at this rate or faster are not at rest [1/s].
CLOSING_PER_S = AT_REST / REST_S
# Fingers slower than this have stalled [1/s]. Fingers at rest may be twice as fast, so that what they hold counts as
# held by then, though control periods vary.
STALLED_PER_S = CLOSING_PER_S / 2


@dataclass(frozen=True, slots=True)
class Goal:
    """What one episode asks for.

    Attributes:
        position: (3,) where the tool centre point, or the object, must end up [m].
        start: (3,) where the tool centre point begins [m].
        gripper: Closed fraction that the gripper holds, if the task does not use it.
        intent: The gripper's intent to begin with, if the task uses the gripper, in [0, 1].
        lift_m: In practice, the gripper takes what it finds at the start and lifts it this far before the episode
            begins; 0 for an open gripper.
        whole: In practice, whether the episode goes on to its end, however long its object is held.
        objects: Poses of the objects at the beginning, by name.
    """

    position: Array
    start: Array
    gripper: float = 0.0
    intent: float = 0.0
    lift_m: float = 0.0
    whole: bool = False
    objects: Mapping[str, Pose] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """One control period, for scoring.

    Attributes:
        before, world: The states before and after it.
        action, previous_action: (action,) the policy's actions in this and the last period, in [-1, 1].
        interventions: Why the guard changed the wish; empty if it did not.
    """

    before: World
    world: World
    action: NDArray[np.float32]
    previous_action: NDArray[np.float32]
    interventions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one control period.

    Attributes:
        terms: Weighted reward terms by name; the reward is their sum.
        achieved: Whether the goal is met at this moment.
        distance_m: Distance left to the goal.
    """

    terms: Mapping[str, float]
    achieved: bool
    distance_m: float

    @property
    def reward(self) -> float:
        """The sum of the terms."""
        return sum(self.terms.values())


class Task(ABC):
    """A task: samples goals, builds observations, scores moments.

    Attributes:
        Config: The task's own section of a configuration.
        name: The task's name in configurations.
        vectorized: The module with its form for many environments at once, as ``VECTORIZED``; None if there is none. A
            subclass does not inherit it: it observes or scores something else.
        uses_gripper: Whether the gripper is part of the action.
        turns_tool: Whether ``tcp_delta`` has a component that turns the tool about the vertical.
        takes_goal: Whether a person may give the goal's position in place of the sampled one.
        hold_steps: How many moments at the end of an episode must be achieved for success.
        practice_hold_steps: In training, an episode that is not ``whole`` ends once this many moments in a row were
            achieved.
        layout: Fields of the observation; joint angles and gripper driver joints come first.
    """

    Config: ClassVar[type[TaskConfig]]
    name: str
    vectorized: ClassVar[str | None] = None
    uses_gripper: bool
    turns_tool: bool
    takes_goal: bool = True
    hold_steps: int
    practice_hold_steps: float = inf
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

    def settle(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal for where the objects really lie, which may not be where they were wanted."""
        return goal

    def held(self, state: RobotState, earlier: RobotState, commanded: JointCommand) -> str | None:
        """Return the name of the object between the fingers, judged by the driver joints, or None.

        Args:
            state: The newest state.
            earlier: The state ``REST_S`` before it, or the first of the episode.
            commanded: The command that the guard last let through.
        """
        return None

    def gripper_range(self, world: World) -> tuple[float, float]:
        """Return the closed fractions between which the gripper may be commanded in a world, as it is seen."""
        return 0.0, 1.0

    def gripper_words(self, world: World) -> str:
        """Return why the gripper does not do what the policy intends, where an operator would wonder; or nothing."""
        return ""

    @abstractmethod
    def observe(self, world: World, goal: Goal) -> dict[str, ArrayLike]:
        """Return the value of every field of the layout."""

    @abstractmethod
    def score(self, moment: Moment, goal: Goal) -> Score:
        """Score one control period."""


def robot_fields(spec: RobotSpec) -> list[Field]:
    """Return the fields that every observation begins with: arm joint angles, then the gripper's driver joints."""
    return [
        Field("q", spec.arm.joint_names, "rad", "arm"),
        Field("driver_q", spec.gripper.driver_names, spec.gripper.driver_unit, "gripper"),
    ]


def observe_robot(world: World) -> dict[str, ArrayLike]:
    """Return the values of :func:`robot_fields`: ``[q..., right_driver, left_driver]``, drivers in their own unit."""
    return {"q": world.robot.q, "driver_q": world.robot.driver_q}
