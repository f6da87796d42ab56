"""A guide: in a share of the environments, the task's hand-written policy acts, so that success is seen early."""

import numpy as np
from numpy.typing import NDArray

from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.layout import Layout
from td3robot.robots.interface import robot_spec
from td3robot.tasks.scripted import Script, script_of

# Standard deviation of the Gaussian noise on the hand-written actions.
NOISE = 0.1


class Guide:
    """Replaces the actions of the last environments by those of a hand-written policy, with noise.

    Args:
        script: The hand-written policy.
        size: Numbers of an observation that it sees; what follows is for the critics.
        count: In how many environments it acts.
    """

    def __init__(self, script: Script, size: int, count: int) -> None:
        self._script, self._size, self._count = script, size, count

    def replace(
        self, actions: NDArray[np.float32], observations: NDArray[np.float32], rng: np.random.Generator
    ) -> None:
        """Replace the last rows of actions (n, action), given observations (n, observation)."""
        guided = np.array([self._script.act(row[: self._size]) for row in observations[-self._count :]])
        noisy = guided + rng.normal(0.0, NOISE, guided.shape)
        actions[-self._count :] = np.clip(noisy, -1.0, 1.0)


def make_guide(config: RunConfig, layout: Layout) -> Guide | None:
    """Make the guide of a run, or None if no environment has one.

    Raises:
        ConfigError: The task has no hand-written policy, or its actions move joints.
    """
    count = config.training.guided
    if not count:
        return None
    assert isinstance(config.environment, RobotEnvironmentConfig)  # a run's configuration refuses others
    script = script_of(config.environment, layout, robot_spec(config.environment.robot))
    return Guide(script, layout.size, count)
