"""Environments side by side: robots step together as one batch, any others one after another."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from td3robot.envs.batch import RobotBatch, StepResult
from td3robot.envs.checked import checked
from td3robot.envs.goals import GoalColumns, GoalReader
from td3robot.envs.playing import REPORTED, Act, EpisodeFigures, require_finite
from td3robot.envs.robot_env import RobotEnv
from td3robot.layout import Layout

Vector = NDArray[np.float32]
Rows = NDArray[np.intp]


class SingleSteps(NamedTuple):
    """What k environments returned, one after another; as :class:`StepResult`, with a termination of their own."""

    observations: list[Vector]
    rewards: list[float]
    terminated: list[bool]
    truncated: list[bool]
    information: list[dict[str, Any]]

    def infos(self) -> list[dict[str, Any]]:
        """Return the info of each."""
        return self.information


Steps = StepResult | SingleSteps


class EnvironmentRows(ABC):
    """Environments with observations (size,) and actions in [-1, 1], alike except for their disturbances.

    Attributes:
        count: How many.
        action_shape: Of one action.
        observation_layout: Names of an observation's components, if they have any.
        privileged_size: How many numbers at the end of an observation only critics see.
        goals: Where an observation has its goals, if it has any.
    """

    count: int
    action_shape: tuple[int, ...]
    observation_layout: Layout | None
    privileged_size: int = 0
    goals: GoalColumns | None = None

    @abstractmethod
    def reset(self, row: int, seed: int) -> Vector:
        """Begin an episode in one environment, and return its first observation."""

    @abstractmethod
    def step(self, actions: Vector, rows: Rows) -> Steps:
        """Step some environments with their rows of actions (k, action)."""

    def rewards(self, row: int, achieved: Vector, desired: Vector) -> NDArray[np.float64]:
        """Return the rewards (n,) of one environment for goals, as :class:`~td3robot.envs.goals.GoalReader` does."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""


class RobotRows(EnvironmentRows):
    """Robots that step together.

    Args:
        environments: Alike except for their disturbances, and before their first reset.
        threads: How many threads advance them.
    """

    def __init__(self, environments: Sequence[RobotEnv], threads: int = 1) -> None:
        self.batch = RobotBatch.joined([environment.batch for environment in environments], threads)
        self.count, self._title = len(environments), self.batch.task.name
        self.action_shape = (self.batch.action_kind.layout.size,)
        self.observation_layout: Layout | None = self.batch.layout
        self.privileged_size = self.batch.privileged_size

    def reset(self, row: int, seed: int) -> Vector:
        """Begin an episode."""
        with checked(self._title, "reset"):
            return self.batch.reset(row, seeding.np_random(seed)[0])

    def step(self, actions: Vector, rows: Rows) -> StepResult:
        """Step some."""
        with checked(self._title, "step"):
            return self.batch.step(actions, rows)

    def close(self) -> None:
        """Close all."""
        self.batch.close()


class SingleRows(EnvironmentRows):
    """Environments of any kind, one after another."""

    def __init__(self, environments: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self._environments, first = environments, environments[0]
        self.count, self.action_shape = len(environments), first.action_space.shape or ()
        self.observation_layout = getattr(first.unwrapped, "observation_layout", None)
        if isinstance(robot := first.unwrapped, RobotEnv):
            self.privileged_size = robot.batch.privileged_size
        self._readers = [
            each.get_wrapper_attr("goals") if each.has_wrapper_attr("goals") else None for each in environments
        ]
        if isinstance(reader := self._readers[0], GoalReader):
            self.goals = reader.columns

    def reset(self, row: int, seed: int) -> Vector:
        """Begin an episode."""
        observation, _ = self._environments[row].reset(seed=seed)
        return np.asarray(observation, np.float32)

    def step(self, actions: Vector, rows: Rows) -> SingleSteps:
        """Step some."""
        taken = [self._environments[row].step(action) for row, action in zip(rows.tolist(), actions, strict=True)]
        return SingleSteps(
            [np.asarray(observation, np.float32) for observation, *_ in taken],
            [float(reward) for _, reward, *_ in taken],
            [bool(terminated) for _, _, terminated, _, _ in taken],
            [bool(truncated) for *_, truncated, _ in taken],
            [{key: info[key] for key in REPORTED if key in info} for *_, info in taken],
        )

    def rewards(self, row: int, achieved: Vector, desired: Vector) -> NDArray[np.float64]:
        """Return them by the environment's own function."""
        reader = self._readers[row]
        assert isinstance(reader, GoalReader)
        return reader.rewards(achieved, desired)

    def close(self) -> None:
        """Close all."""
        for environment in self._environments:
            environment.close()


def side_by_side(environments: Sequence[gymnasium.Env[Any, Any]], threads: int = 1) -> EnvironmentRows:
    """Return environments as rows: several of simulated robots step together, with so many threads.

    One alone stays itself, so that whoever made it may go on using it.
    """
    robots = [each for environment in environments if type(each := environment.unwrapped) is RobotEnv]
    if 1 < len(robots) == len(environments) and all(robot.robot.teleports for robot in robots):
        return RobotRows(robots, threads)
    return SingleRows(environments)


def play(
    rows: EnvironmentRows, act: Act, episodes: Iterable[tuple[int, int]], watch: Callable[[int, str], object]
) -> Iterator[EpisodeFigures]:
    """Play episodes side by side, and yield the figures of each when it has ended: its row plays the next one.

    An episode's figures do not depend on those beside it.

    Args:
        rows: Where they are played.
        act: The policy.
        episodes: Number and seed of each.
        watch: Called with an episode's number and what it does next.

    Raises:
        EnvironmentFaultError: An observation or reward is not finite.
    """
    waiting, playing = iter(episodes), dict[int, EpisodeFigures]()
    observations: dict[int, Vector] = {}
    while True:
        for row in sorted(set(range(rows.count)) - playing.keys()):
            if (episode := next(waiting, None)) is not None:
                figures = playing[row] = EpisodeFigures(*episode)
                watch(figures.number, "reset")
                observations[row] = rows.reset(row, figures.seed)
                require_finite(rows.observation_layout, observations[row], 0.0, f"episode {figures.number}, reset")
        if not playing:
            return
        busy = sorted(playing)
        watch(playing[busy[0]].number, f"step {playing[busy[0]].steps}{_others(len(busy) - 1)}")
        taken = rows.step(np.stack([act(observations[row]) for row in busy]), np.array(busy))
        for index, (row, info) in enumerate(zip(busy, taken.infos(), strict=True)):
            figures, observation, reward = playing[row], taken.observations[index], float(taken.rewards[index])
            require_finite(
                rows.observation_layout, observation, reward, f"episode {figures.number}, step {figures.steps}"
            )
            figures.count(reward, info)
            observations[row] = observation
            if taken.terminated[index] or taken.truncated[index]:
                figures.end(bool(taken.truncated[index]), info)
                yield playing.pop(row)


def _others(count: int) -> str:
    return f", with {count} others" if count else ""
