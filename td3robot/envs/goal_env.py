"""A task in the form of Gymnasium-Robotics' ``GoalEnv``, for hindsight experience replay, also that of others."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from td3robot.envs.goals import ACHIEVED, DESIRED
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import ConfigError
from td3robot.tasks.interface import GoalPoints

Vector = NDArray[np.float32]


class GoalEnv(gymnasium.Wrapper[Any, Vector, Any, Vector]):
    """An environment that observes goals apart from the rest, with sparse rewards.

    Its observation is a Dict: ``observation`` has the fields of the task's layout that do not depend on the goal, and
    ``achieved_goal`` and ``desired_goal`` are positions (2,) or (3,) in the base frame [m], as they truly are. The
    reward is 0 within the task's tolerance of the goal and -1 elsewhere, as in panda-gym and Gymnasium-Robotics.
    ``info`` is that of :class:`RobotEnv`, whose ``success`` also asks for rest.

    Args:
        environment: Its task has goals that are positions.

    Raises:
        ConfigError: It has not.
    """

    def __init__(self, environment: RobotEnv) -> None:
        super().__init__(environment)
        task, batch = environment.task, environment.batch
        points = task.goal_points(batch.state, batch.goals)
        if points is None:
            raise ConfigError(
                f"goal_env needs a task whose goal is a position, as reach and push have it, and {task.name!r} asks "
                "for more; leave goal_env out"
            )
        self._within_m = points.within_m
        slices = environment.observation_layout.slices
        kept = [part for name, part in slices.items() if name not in task.goal_fields]
        self._columns = np.concatenate([np.arange(part.start, part.stop) for part in kept])
        goal = points.desired.shape[1]
        sizes = {"observation": len(self._columns), ACHIEVED: goal, DESIRED: goal}
        self.observation_space = Dict({name: Box(-np.inf, np.inf, (size,), np.float32) for name, size in sizes.items()})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, as :meth:`RobotEnv.reset` does."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._split(observation), info

    def step(self, action: Vector) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one control period."""
        observation, _, terminated, truncated, info = self.env.step(action)
        parts = self._split(observation)
        return parts, float(self.compute_reward(parts[ACHIEVED], parts[DESIRED], info)), terminated, truncated, info

    def compute_reward(self, achieved: NDArray[Any], desired: NDArray[Any], info: Any) -> NDArray[np.float32]:
        """Return the rewards () or (n,) for what was achieved and desired, (k,) or (n, k) [m]; ``info`` is not used."""
        away = np.linalg.norm(np.subtract(achieved, desired), axis=-1)
        return np.where(away > self._within_m, np.float32(-1.0), np.float32(0.0))

    def _split(self, observation: Vector) -> dict[str, Vector]:
        batch = self.env.unwrapped.batch  # type: ignore[attr-defined]  # a RobotEnv's
        points: GoalPoints = batch.task.goal_points(batch.state, batch.goals)
        achieved, desired = (each[0].astype(np.float32) for each in (points.achieved, points.desired))
        return {"observation": observation[self._columns], ACHIEVED: achieved, DESIRED: desired}
