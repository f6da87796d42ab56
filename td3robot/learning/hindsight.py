"""Hindsight experience replay: whatever was achieved, the episode is also stored as if that had been the goal.

Andrychowicz et al., "Hindsight Experience Replay", 2017, Algorithm 1 with the strategy "future".
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.goals import GoalColumns
from td3robot.errors import ConfigError
from td3robot.learning.replay import Transition

Vector = NDArray[np.float32]
Rewards = Callable[[Vector, Vector], NDArray[np.float64]]


class PastStep(NamedTuple):
    """A step of an episode that is still in progress."""

    observation: Vector
    action: Vector
    reward: float
    next_observation: Vector
    terminated: bool


class Hindsight:
    """Makes the transitions of an episode once it has ended.

    Args:
        columns: Where observations have their goals; None if they have none.
        goals: How many goals replace that of each step; each is what was achieved after it or after a later step, drawn
            uniformly.
        gamma: Discount of a transition.

    Raises:
        ConfigError: The environment has no goals.
    """

    def __init__(self, columns: GoalColumns | None, goals: int, gamma: float) -> None:
        if columns is None:
            raise ConfigError(
                "agent.hindsight_goals needs an environment whose observation is a Dict with achieved_goal and "
                "desired_goal, each a Box of the same shape, and which has a method compute_reward(achieved_goal, "
                "desired_goal, info); set it to 0, or use such an environment"
            )
        self._columns, self._goals, self._gamma = columns, goals, gamma

    def transitions(self, steps: Sequence[PastStep], rng: np.random.Generator, rewards: Rewards) -> list[Transition]:
        """Return an episode's steps with their own goal, then with others, as many times as there are ``goals``.

        Whether a step ended the episode stays as it was.

        Args:
            steps: The whole episode.
            rng: Draws the goals.
            rewards: Computes rewards (n,) from what was achieved (n, goal) and desired (n, goal).
        """
        columns, count = self._columns, len(steps)
        own = [Transition(*step[:5], self._gamma) for step in steps]
        achieved = np.stack([step.next_observation[columns.achieved] for step in steps])
        which = np.repeat(np.arange(count), self._goals)
        desired = achieved[rng.integers(which, count)]
        computed, relabelled = rewards(achieved[which], desired), []
        for index, goal, reward in zip(which.tolist(), desired, computed.tolist(), strict=True):
            step, pair = steps[index], []
            for observation in (step.observation, step.next_observation):
                pair.append(observation.copy())
                pair[-1][columns.desired] = goal
            relabelled.append(Transition(pair[0], step.action, reward, pair[1], step.terminated, self._gamma))
        return own + relabelled
