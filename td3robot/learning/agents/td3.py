"""TD3's hyperparameters. The algorithm is in ``td3robot/learning/td3.py``, imported only where it learns."""

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from td3robot.config import AgentConfig
from td3robot.config.section import Fraction, NonNegative, UnitInterval
from td3robot.learning.exploration import GaussianExploration
from td3robot.registry import AGENTS

if TYPE_CHECKING:
    from td3robot.learning.td3 import TD3


class TD3Config(AgentConfig):
    """TD3's hyperparameters; the defaults are those of the paper (Fujimoto et al. 2018, Appendix C).

    Attributes:
        tau: Polyak averaging: share of a network that its target takes over at each target update.
        policy_noise, noise_clip: Target policy smoothing: standard deviation of the noise on the target action, and
            the bound at which it is clipped.
        policy_freq: Critic updates per update of actor and targets.
        average_tau: Share of the actor that its running average takes over at each actor update. The average is what
            is evaluated, saved for play and deployed; with 1, it is the actor itself.
        exploration_noise: Standard deviation of the Gaussian exploration noise on actions.
        greedy_share: Share of the environments that act without exploration. Without noise, a policy can repeat itself
            forever where noise would free it; these environments let training meet that case and learn it away.
        asymmetric_critic: Whether the critics see the true state of the simulation beside the observation: without
            noise and delay, with what was drawn for the episode. The policy sees the observation alone.
        imitation: Weight of imitating the task's hand-written policy, where Q1 thinks more of its action than of the
            policy's: the loss of a squared difference of 1, as a share of the mean of Q1.
    """

    kind: str = "td3"
    tau: Fraction = 0.005
    policy_noise: NonNegative = 0.2
    noise_clip: NonNegative = 0.5
    policy_freq: Annotated[int, Field(gt=0, le=1_000_000)] = 2
    average_tau: Fraction = 1.0
    exploration_noise: NonNegative = 0.1
    greedy_share: UnitInterval = 0.0
    asymmetric_critic: bool = False
    imitation: NonNegative = 0.0
    trained: ClassVar[tuple[str, ...]] = ("actor", "Q1", "Q2")
    optimizers: ClassVar[tuple[str, ...]] = ("actor_optimizer", "Q1_optimizer", "Q2_optimizer")

    @property
    def is_asymmetric(self) -> bool:
        """Whether the critics see the true state."""
        return self.asymmetric_critic

    @property
    def imitates(self) -> bool:
        """Whether the policy imitates the guide."""
        return self.imitation > 0.0

    @property
    def period(self) -> int:
        """Updates after which their kinds repeat: the actor and the targets move at each ``policy_freq``-th."""
        return self.policy_freq

    def networks(self, observation_size: int, action_size: int, privileged_size: int = 0) -> dict[str, list[int]]:
        """Return the widths of actor, critics, their targets, and the actor's average if there is one."""
        actor = [observation_size, *self.hidden, action_size]
        critic = [observation_size + privileged_size + action_size, *self.hidden, 1]
        names = {"actor": actor, "Q1": critic, "Q2": critic}
        targets = {f"{name}_target": widths for name, widths in names.items()}
        return names | targets | ({"actor_average": actor} if self.average_tau < 1.0 else {})

    def agent_class(self) -> "type[TD3]":
        """Return the agent's class."""
        from td3robot.learning.td3 import TD3

        return TD3

    def make_exploration(self, rng: np.random.Generator) -> GaussianExploration:
        """Return Gaussian noise."""
        return GaussianExploration(self.exploration_noise, self.greedy_share, rng)


AGENTS.register("td3", TD3Config)
