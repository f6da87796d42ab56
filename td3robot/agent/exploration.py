"""Exploration: uniformly random actions first, then Gaussian noise around the policy."""

import numpy as np
from numpy.typing import NDArray


class GaussianExploration:
    """Draw random actions in [-1, 1], from a generator of its own."""

    def __init__(self, noise: float, random_share: float, rng: np.random.Generator) -> None:
        self.noise, self.random_share = noise, random_share
        self.rng = rng

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""
        return self.rng.uniform(-1.0, 1.0, (count, action_size)).astype(np.float32)

    def perturb(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add noise of standard deviation ``noise``, clipped to the action range; replace a share by random actions.

        The share of uniformly random actions is as in Hindsight Experience Replay (Andrychowicz et al. 2017, Appendix
        A): a policy at the edge of the action range tries the other side, too.
        """
        noise = self.rng.normal(0.0, self.noise, actions.shape)
        noisy = np.clip(actions + noise, -1.0, 1.0).astype(np.float32)
        if self.random_share > 0.0:
            random = self.rng.random(len(actions)) < self.random_share
            noisy[random] = self.uniform(int(random.sum()), actions.shape[1])
        return noisy
