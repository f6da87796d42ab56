"""Exploration: uniformly random actions first, then Gaussian noise around the policy."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Exploration(Protocol):
    """Draw actions in [-1, 1] that differ from the policy's.

    Attributes:
        rng: The generator, which is saved with a run.
    """

    rng: np.random.Generator

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""

    def perturb(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return other actions in place of the policy's (count, action_size)."""


class GaussianExploration:
    """Add Gaussian noise to the policy's actions.

    Args:
        noise: Standard deviation of the noise.
        greedy_share: Share of the rows of actions, the first ones, that are left unchanged.
        rng: The generator.
    """

    def __init__(self, noise: float, greedy_share: float, rng: np.random.Generator) -> None:
        self.noise, self.greedy_share, self.rng = noise, greedy_share, rng

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""
        return self.rng.uniform(-1.0, 1.0, (count, action_size)).astype(np.float32)

    def perturb(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return actions with noise, clipped to the action range."""
        noise = self.rng.normal(0.0, self.noise, actions.shape)
        noisy = np.clip(actions + noise, -1.0, 1.0).astype(np.float32)
        greedy = round(self.greedy_share * len(actions))
        noisy[:greedy] = actions[:greedy]
        return noisy
