"""Environments that say what was achieved and what was wanted, as Gymnasium-Robotics' ``GoalEnv`` does."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, flatdim
from numpy.typing import NDArray

from td3robot.envs.checked import checked, number
from td3robot.errors import EnvironmentFaultError

ACHIEVED, DESIRED, COMPUTE_REWARD = "achieved_goal", "desired_goal", "compute_reward"


@dataclass(frozen=True, slots=True)
class GoalColumns:
    """Where a flattened observation has its goals.

    Attributes:
        achieved, desired: The columns of either.
    """

    achieved: slice
    desired: slice


class GoalReader:
    """The goals of an environment whose observation is a Dict.

    Args:
        environment: Before its observation is flattened; it has goals, see :meth:`of`.
        space: Its observation space.
        title: Its name in messages.

    Attributes:
        columns: Where the flattened observation has them.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], space: Dict, title: str) -> None:
        self._environment, self._title, self._space = environment, title, space.spaces[DESIRED]
        edges, start = {}, 0
        for name, part in space.spaces.items():  # the order in which Gymnasium flattens them
            edges[name] = slice(start, start + flatdim(part))
            start = edges[name].stop
        self.columns = GoalColumns(edges[ACHIEVED], edges[DESIRED])

    @classmethod
    def of(cls, environment: gymnasium.Env[Any, Any], title: str) -> "GoalReader | None":
        """Return what reads an environment's goals, or None if it has none."""
        space = environment.observation_space
        if not isinstance(space, Dict) or not environment.has_wrapper_attr(COMPUTE_REWARD):
            return None
        goals = [space.spaces.get(name) for name in (ACHIEVED, DESIRED)]
        alike = all(isinstance(goal, Box) for goal in goals) and goals[0].shape == goals[1].shape  # type: ignore[union-attr]
        return cls(environment, space, title) if alike else None

    def rewards(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the rewards (n,) by the environment's ``compute_reward``, with an empty info.

        Args:
            achieved: (n, goal) what was achieved after each step.
            desired: (n, goal) what is taken for the goal of each.

        Raises:
            EnvironmentFaultError: It raised an exception, or returned no finite number.
        """
        compute = self._environment.get_wrapper_attr(COMPUTE_REWARD)
        with checked(self._title, COMPUTE_REWARD):
            found = np.array([
                number(compute(self._goal(mine), self._goal(wanted), {}))
                for mine, wanted in zip(achieved, desired, strict=True)
            ])  # fmt: skip
        if not np.isfinite(found).all():
            raise EnvironmentFaultError(
                f"{COMPUTE_REWARD} of the environment {self._title!r} returned no finite number"
            )
        return found

    def _goal(self, flat: NDArray[np.float32]) -> NDArray[Any]:
        """Return a goal as the environment has it."""
        return flat.astype(self._space.dtype).reshape(self._space.shape)
