"""Learners, which do an agent's updates: the reference, or faster code with the same results up to rounding."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.config import TrainingConfig
from td3robot.config.run import AGENTS
from td3robot.errors import ConfigError
from td3robot.learning.agent import Agent
from td3robot.learning.replay import ReplayBuffer

Metrics = dict[str, Tensor]
NEEDED = ("numba", "scipy", "threadpoolctl")
# The learners beside the reference: the agent's attribute with its module, the type of its device, and that in words.
FAST = {"compiled": ("compiled", "cpu", "the CPU"), "cuda_graph": ("recorded", "cuda", "a CUDA device")}


class LearnerUnavailableError(ConfigError):
    """The learner asked for is not available here."""


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


def make_learner(agent: Agent, training: TrainingConfig, before: str | None, report: Callable[[str], None]) -> Learner:
    """Return the learner that ``training.learner`` asks for.

    Args:
        agent: The agent that learns.
        training: Has the choice, and the number of threads for the compiled learner's products.
        before: The learner that a resumed run was saved with; ``auto`` if saved by a version with only the reference.
        report: Called when a learner is compiled, is not available (with the reason), or resumes inexactly.

    Raises:
        LearnerUnavailableError: A new run asks for a learner that is not available.
    """
    learner = _chosen(agent, training, before is not None, report)
    if before is not None and learner.name != (before := "reference" if before == "auto" else before):
        report(
            f"the {learner.name} learner continues what the {before} learner began: the same updates, but rounded "
            "differently, so this resume is not exact"
        )
    return learner


def import_early(kind: str, training: TrainingConfig, device: torch.device) -> None:
    """Import what :func:`make_learner` may need for a kind of agent, while waiting for something else."""
    module = import_module(AGENTS[kind]).AGENT.compiled
    if device.type == "cpu" and training.learner != "reference" and module is not None and not _missing():
        import_module(module)


def _chosen(agent: Agent, training: TrainingConfig, resumed: bool, report: Callable[[str], None]) -> Learner:
    choice: str = training.learner
    if choice == "auto":
        choice = "reference" if resumed else _fastest(agent)
    if choice == "reference":
        return ReferenceLearner(agent)
    try:
        if choice == "cuda_graph":
            return _recorded(agent)
        return _compiled(agent, max(1, training.torch_threads), report)
    except LearnerUnavailableError as error:
        if training.learner != "auto" and not resumed:
            raise
        report(f"{error}; the reference does the updates, which is slower")
        return ReferenceLearner(agent)


def _fastest(agent: Agent) -> str:
    """Return the name of the fastest learner for an agent on its device."""
    fast = (name for name, (kind, device, _) in FAST.items() if device == agent.device.type and _own(agent, kind))
    return next(fast, "reference")


def _own(agent: Agent, kind: str) -> str | None:
    """Return the module of this agent's own learner of a kind: a base class's would be another algorithm's."""
    module: str | None = vars(type(agent)).get(kind)
    return module


def _module(agent: Agent, name: str) -> str:
    """Return the module of a fast learner, or refuse an agent or a device that has none."""
    kind, device, where = FAST[name]
    module = _own(agent, kind)
    if module is None or agent.device.type != device:
        raise LearnerUnavailableError(
            f"training.learner is '{name}', which there is for TD3 on {where} only, not for "
            f"{type(agent).__name__} on {agent.device}; use 'auto' or 'reference'"
        )
    return module


def _compiled(agent: Agent, threads: int, report: Callable[[str], None]) -> Learner:
    module = _module(agent, "compiled")
    if missing := _missing():
        raise LearnerUnavailableError(
            f"the compiled learner needs {', '.join(missing)}, which is not installed: pip install {' '.join(missing)}"
        )
    learner: Learner = import_module(module).LEARNER(agent, threads, report)
    return learner


def _recorded(agent: Agent) -> Learner:
    learner: Learner = import_module(_module(agent, "cuda_graph")).LEARNER(agent)
    return learner


def _missing() -> list[str]:
    return [name for name in NEEDED if find_spec(name) is None]
