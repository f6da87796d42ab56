"""Exploration: uniformly random actions first, then Gaussian noise around the policy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.config import AgentConfig


class GaussianExploration:
    """Draw random actions in [-1, 1], with its own generator.

    Args:
        noise: Standard deviation of the noise around the policy.
        random_share: Initial share of uniformly random actions.
        random_share_steps: Environment steps over which that share falls linearly to 0; 0 keeps it constant.
        random_action_steps: How many steps in a row a random action is kept, on average.
        greedy_share: Share of the rows of actions, the first ones, that are left unchanged.
        rng: The generator.
    """

    def __init__(
        self,
        noise: float,
        random_share: float,
        random_share_steps: int,
        random_action_steps: int,
        greedy_share: float,
        rng: np.random.Generator,
    ) -> None:
        self.noise, self.rng = noise, rng
        self._greedy_share = greedy_share
        self._random_share, self._random_share_steps = random_share, random_share_steps
        self._action_steps = random_action_steps
        # For each row, the last random action, and how many more steps it is kept.
        self._kept, self._left = np.zeros((0, 0), np.float32), np.zeros(0, np.int64)

    @classmethod
    def of(cls, config: AgentConfig, rng: np.random.Generator) -> "GaussianExploration":
        """Return the exploration that an agent's configuration asks for."""
        return cls(
            config.exploration_noise,
            config.random_share,
            config.random_share_steps,
            config.random_action_steps,
            config.greedy_share,
            rng,
        )

    def uniform(self, count: int, action_size: int) -> NDArray[np.float32]:
        """Draw (count, action_size) actions uniformly."""
        return self.rng.uniform(-1.0, 1.0, (count, action_size)).astype(np.float32)

    def perturb(self, actions: NDArray[np.float32], step: int) -> NDArray[np.float32]:
        """Return actions with Gaussian noise, clipped to the action range, and with a share replaced by random actions.

        The share of uniformly random actions follows Hindsight Experience Replay (Andrychowicz et al. 2017, Appendix
        A): a policy at the edge of the action range also tries the other side. Each is kept for some steps (Dabney,
        Ostrovski and Barreto, "Temporally-Extended epsilon-Greedy Exploration", 2021), drawn uniformly from 1 to twice
        the average less one: random actions that change at each step hardly move an arm.
        """
        noise = self.rng.normal(0.0, self.noise, actions.shape)
        noisy = np.clip(actions + noise, -1.0, 1.0).astype(np.float32)
        if (share := self.random_share(step)) > 0.0:
            self._draw(share, actions.shape)
            random = self._left > 0
            noisy[random] = self._kept[random]
            self._left[random] -= 1
        greedy = round(self._greedy_share * len(actions))
        noisy[:greedy] = actions[:greedy]
        return noisy

    def random_share(self, step: int) -> float:
        """Return the share of uniformly random actions at an environment step."""
        if self._random_share_steps == 0:
            return self._random_share
        return self._random_share * max(0.0, 1.0 - step / self._random_share_steps)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random actions being repeated, for :meth:`load_state`."""
        return {"kept": self._kept.copy(), "left": self._left.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what :meth:`state` returned; the generator is restored by its owner."""
        self._kept, self._left = state["kept"].copy(), state["left"].copy()

    def _draw(self, share: float, shape: tuple[int, ...]) -> None:
        """Begin new random actions, often enough to take up a share of all steps."""
        if self._kept.shape != shape:
            self._kept, self._left = np.zeros(shape, np.float32), np.zeros(shape[0], np.int64)
        begins = (self._left == 0) & (self.rng.random(shape[0]) < share / (share + self._action_steps * (1.0 - share)))
        count = int(begins.sum())
        self._left[begins] = self.rng.integers(1, 2 * self._action_steps, count)
        self._kept[begins] = self.uniform(count, shape[1])
