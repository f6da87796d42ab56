"""A guide: the task's hand-written policy acts in a share of the environments, and says what it would do in all."""

import numpy as np
from numpy.typing import NDArray

from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.layout import Layout
from td3robot.robots.interface import robot_spec
from td3robot.tasks.scripted import Script, script_of

# Standard deviation of the Gaussian noise on the hand-written actions.
NOISE = 0.1


class Guide:
    """Replaces the actions of the last environments by those of a hand-written policy, with noise; advises the others.

    Args:
        script: The hand-written policy.
        size: Numbers of an observation that it sees; what follows is for the critics.
        count: In how many environments it acts.
    """

    def __init__(self, script: Script, size: int, count: int) -> None:
        self._script, self._size, self._count = script, size, count

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (action,) for an observation (observation,)."""
        return self._script.act(observation[: self._size])

    def replace(
        self, actions: NDArray[np.float32], observations: NDArray[np.float32], rng: np.random.Generator
    ) -> None:
        """Replace the last rows of actions (n, action), given observations (n, observation)."""
        if not self._count:
            return
        guided = np.array([self.act(row) for row in observations[-self._count :]])
        noisy = guided + rng.normal(0.0, NOISE, guided.shape)
        actions[-self._count :] = np.clip(noisy, -1.0, 1.0)


def make_guide(config: RunConfig, layout: Layout) -> Guide | None:
    """Make the guide of a run, or None if it has none.

    Raises:
        ConfigError: The task has no hand-written policy, or its actions move joints.
    """
    count = config.training.guided
    if not count and not config.agent.imitates:
        return None
    assert isinstance(config.environment, RobotEnvironmentConfig)  # a run's configuration refuses others
    script = script_of(config.environment, layout, robot_spec(config.environment.robot))
    return Guide(script, layout.size, count)
