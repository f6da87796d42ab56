"""Exploration: uniformly random actions first, then Gaussian noise around the policy."""

import numpy as np
from numpy.typing import NDArray


class GaussianExploration:
    """Draw random actions in [-1, 1], from a generator of its own."""

    def __init__(self, noise: float, rng: np.random.Generator) -> None:
        self.noise = noise
        self.rng = rng

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""
        return self.rng.uniform(-1.0, 1.0, (count, action_size)).astype(np.float32)

    def perturb(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add noise of standard deviation ``noise``, clipped to the action range."""
        noise = self.rng.normal(0.0, self.noise, actions.shape)
        return np.clip(actions + noise, -1.0, 1.0).astype(np.float32)
