"""Learners, which do an agent's updates: the reference, or faster code with the same results up to rounding."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.errors import ConfigError
from td3robot.learning.agent import Agent
from td3robot.learning.replay import ReplayBuffer

Metrics = dict[str, Tensor]


class LearnerUnavailableError(ConfigError):
    """The learner asked for is not available here."""


class Learner(ABC):
    """Update an agent in place from a replay buffer.

    Args:
        agent: The agent that learns.
        threads: Threads of the matrix products.
        report: Called with what the user should know.

    Attributes:
        name: Its name in ``training.learner``.
        threads: How many threads its matrix products use.
    """

    name: ClassVar[str]
    threads: int

    def __init__(self, agent: Agent, threads: int, report: Callable[[str], None] = print) -> None:
        self._agent, self.threads = agent, threads

    @abstractmethod
    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do ``count`` updates, and return the metrics of those that updated the actor, scalars by name.

        Args:
            replay: The buffer to sample from.
            rng: Draws the transitions.
            count: How many updates.
        """


class ReferenceLearner(Learner):
    """Call :meth:`Agent.update` for each batch."""

    name = "reference"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, torch.get_num_threads())

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates one by one."""
        agent, found = self._agent, []
        for _ in range(count):
            metrics = agent.update(replay.sample(agent.config.batch_size, rng, agent.device))
            if "actor_loss" in metrics:
                found.append(metrics)
        return found


def draw(agent: Agent, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], Tensor]:
    """Draw what the reference would draw for some updates, in the same order.

    Returns:
        The transitions' indices (count, batch), and normally distributed noise (count, batch, action).
    """
    batch = agent.config.batch_size
    noise = torch.empty(count, batch, agent.action_size)
    for each in noise:
        torch.randn(each.shape, generator=agent.generator, out=each)
    return np.stack([replay.draw(batch, rng) for _ in range(count)]), noise
