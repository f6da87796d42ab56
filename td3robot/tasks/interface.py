"""What a task is, to an environment."""

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

# Fingers that have not moved for so long are at rest [s].
REST_S = 0.1


@dataclass(frozen=True, slots=True)
class Goal:
    """What one episode asks for.

    Attributes:
        position: (3,) where the tool centre point, or the object, shall end up [m].
        start: (3,) where the tool centre point begins [m].
        gripper: Closed fraction that the gripper holds, where the task does not use it.
        objects: Where objects lie at the beginning, by name.
    """

    position: Array
    start: Array
    gripper: float = 0.0
    objects: Mapping[str, Pose] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """One control period, for scoring.

    Attributes:
        before, world: The states before and after it.
        action, previous_action: (action,) what the policy wished in this and the last period, in [-1, 1].
        interventions: Why the guard changed the wish; empty where it did not.
    """

    before: World
    world: World
    action: NDArray[np.float32]
    previous_action: NDArray[np.float32]
    interventions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """What one control period is worth.

    Attributes:
        terms: Weighted reward terms by name; the reward is their sum.
        achieved: Whether the goal is met at this moment.
        distance_m: What is left to go.
    """

    terms: Mapping[str, float]
    achieved: bool
    distance_m: float

    @property
    def reward(self) -> float:
        """The sum of the terms."""
        return sum(self.terms.values())


class Task(ABC):
    """A task: draws goals, lays out observations, scores moments.

    Attributes:
        Config: The task's own section of a configuration.
        name: As in configurations.
        uses_gripper: Whether the gripper is part of the action.
        turns_tool: Whether ``tcp_delta`` has a component that turns the tool about the vertical.
        takes_goal: Whether a person may give the position of the goal in place of the drawn one.
        hold_steps: How many moments at the end of an episode must be achieved for success.
        practice_hold_steps: In training, an episode is over once so many moments in a row were achieved.
        layout: Fields of the observation; joint angles and gripper driver joints come first.
    """

    Config: ClassVar[type[TaskConfig]]
    name: str
    uses_gripper: bool
    turns_tool: bool
    takes_goal: bool = True
    hold_steps: int
    practice_hold_steps: float = inf
    layout: Layout

    @abstractmethod
    def __init__(self, config: Any, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        """Lay out observations for a robot whose tool goes at most so fast [m/s]."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Give the terms of a contract: the task's name, and what its observations depend on."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Draw the goal of an episode; practising, some may begin where there is most to learn."""

    def settle(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Give the goal once the objects lie where they lie, which may not be where they were wanted."""
        return goal

    def held(self, state: RobotState, earlier: RobotState, commanded: JointCommand) -> str | None:
        """Say which object is between the fingers, by what the drivers do.

        Args:
            state: The newest.
            earlier: The one from ``REST_S`` before it, or the first of the episode.
            commanded: What the guard last let through.
        """
        return None

    @abstractmethod
    def observe(self, world: World, goal: Goal) -> dict[str, ArrayLike]:
        """Give the value of every field of the layout."""

    @abstractmethod
    def score(self, moment: Moment, goal: Goal) -> Score:
        """Judge one control period."""


def robot_fields(spec: RobotSpec) -> list[Field]:
    """Name what every observation begins with: arm joint angles, then the gripper's driver joints."""
    return [
        Field("q", spec.arm.joint_names, "rad", "arm"),
        Field("driver_q", spec.gripper.driver_names, spec.gripper.driver_unit, "gripper"),
    ]


def observe_robot(world: World) -> dict[str, ArrayLike]:
    """Give the values of :func:`robot_fields`: ``[q..., right_driver, left_driver]``, drivers in their own unit."""
    return {"q": world.robot.q, "driver_q": world.robot.driver_q}
