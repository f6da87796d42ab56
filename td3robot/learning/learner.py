"""Learners, which do an agent's updates: the reference, or compiled code with the same results up to rounding."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from td3robot.config import TrainingConfig
from td3robot.config.run import AGENTS
from td3robot.errors import ConfigError
from td3robot.learning.agent import Agent
from td3robot.learning.replay import ReplayBuffer

Metrics = dict[str, Tensor]
NEEDED = ("numba", "scipy", "threadpoolctl")


class LearnerUnavailableError(ConfigError):
    """The compiled learner is not available here."""


class Learner(ABC):
    """Update an agent in place from a replay buffer.

    Attributes:
        name: Its name in ``training.learner``.
        threads: How many threads its matrix products use.
    """

    name: ClassVar[str]
    threads: int

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
        self._agent, self.threads = agent, torch.get_num_threads()

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates one by one."""
        agent, found = self._agent, []
        for _ in range(count):
            metrics = agent.update(replay.sample(agent.config.batch_size, rng, agent.device))
            if "actor_loss" in metrics:
                found.append(metrics)
        return found


def make_learner(agent: Agent, training: TrainingConfig, before: str | None, report: Callable[[str], None]) -> Learner:
    """Return the learner that ``training.learner`` asks for.

    Args:
        agent: The agent that learns.
        training: Has the choice, and the number of threads for the compiled learner's products.
        before: The learner that a resumed run was saved with; ``auto`` if saved by a version with only the reference.
        report: Called when the compiled learner is compiled, is not available (with the reason), or resumes inexactly.

    Raises:
        LearnerUnavailableError: A new run asks for ``compiled``, but it is not available.
    """
    learner = _chosen(agent, training, before is not None, report)
    if before is not None and learner.name != (before := "reference" if before == "auto" else before):
        report(
            f"the {learner.name} learner continues what the {before} learner began: the same updates, but rounded "
            "differently, so this resume is not exact"
        )
    return learner


def import_early(kind: str, training: TrainingConfig) -> None:
    """Import what :func:`make_learner` may need for a kind of agent, while waiting for something else."""
    module = import_module(AGENTS[kind]).AGENT.compiled
    if training.learner != "reference" and module is not None and all(find_spec(name) for name in NEEDED):
        import_module(module)


def _chosen(agent: Agent, training: TrainingConfig, resumed: bool, report: Callable[[str], None]) -> Learner:
    choice = training.learner
    if choice == "reference" or (choice == "auto" and (resumed or _compilable(agent) is None)):
        return ReferenceLearner(agent)
    try:
        return _compiled(agent, max(1, training.torch_threads), report)
    except LearnerUnavailableError as error:
        if choice == "compiled" and not resumed:
            raise
        report(f"{error}; the reference does the updates, which is slower")
        return ReferenceLearner(agent)


def _compilable(agent: Agent) -> str | None:
    """Return the module of this agent's own compiled learner: a base class's would be another algorithm's."""
    module: str | None = vars(type(agent)).get("compiled")
    return module if agent.device.type == "cpu" else None


def _compiled(agent: Agent, threads: int, report: Callable[[str], None]) -> Learner:
    module = _compilable(agent)
    if module is None:
        raise LearnerUnavailableError(
            f"training.learner is 'compiled', which there is for TD3 on the CPU only, not for "
            f"{type(agent).__name__} on {agent.device}; use 'auto' or 'reference'"
        )
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise LearnerUnavailableError(
            f"the compiled learner needs {', '.join(missing)}, which is not installed: pip install {' '.join(missing)}"
        )
    learner: Learner = import_module(module).LEARNER(agent, threads, report)
    return learner
