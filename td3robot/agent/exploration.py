"""Exploration: uniformly random actions first, then Gaussian noise around the policy."""

import numpy as np
from numpy.typing import NDArray


class GaussianExploration:
    """Draw random actions in [-1, 1], from a generator of its own.

    Args:
        noise: Standard deviation of the noise around the policy.
        random_share: Share of uniformly random actions at the beginning.
        random_share_steps: Environment steps over which that share falls to 0, linearly; 0 keeps it.
        greedy_share: Share of the rows of actions, the first ones, that are left as they are.
        rng: Drawn from.
    """

    def __init__(
        self,
        noise: float,
        random_share: float,
        random_share_steps: int,
        greedy_share: float,
        rng: np.random.Generator,
    ) -> None:
        self.noise, self.rng = noise, rng
        self._greedy_share = greedy_share
        self._random_share, self._random_share_steps = random_share, random_share_steps

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""
        return self.rng.uniform(-1.0, 1.0, (count, action_size)).astype(np.float32)

    def perturb(self, actions: NDArray[np.float32], step: int) -> NDArray[np.float32]:
        """Add noise of standard deviation ``noise``, clipped to the action range; replace a share by random actions.

        The share of uniformly random actions is as in Hindsight Experience Replay (Andrychowicz et al. 2017, Appendix
        A): a policy at the edge of the action range tries the other side, too.
        """
        noise = self.rng.normal(0.0, self.noise, actions.shape)
        noisy = np.clip(actions + noise, -1.0, 1.0).astype(np.float32)
        if (share := self.random_share(step)) > 0.0:
            random = self.rng.random(len(actions)) < share
            noisy[random] = self.uniform(int(random.sum()), actions.shape[1])
        greedy = round(self._greedy_share * len(actions))
        noisy[:greedy] = actions[:greedy]
        return noisy

    def random_share(self, step: int) -> float:
        """Give the share of uniformly random actions at an environment step."""
        if self._random_share_steps == 0:
            return self._random_share
        return self._random_share * max(0.0, 1.0 - step / self._random_share_steps)
