"""What a trainer needs of a learning algorithm, and the algorithm that a configuration names."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.config import AgentConfig
from td3robot.config.run import AGENTS
from td3robot.errors import ConfigError, choose
from td3robot.learning.normalizer import RunningNormalizer
from td3robot.learning.replay import Batch

Groups = dict[str, dict[str, Tensor]]


class Agent(ABC):
    """An off-policy learner. A module of ``learning`` that defines one names it ``AGENT``.

    The group ``actor`` of :meth:`tensors` (``actor_average`` where there is one) is what plays: the tensors of a
    :class:`~td3robot.learning.networks.Actor`, which a policy evaluates without torch. An agent with a stochastic
    policy keeps there what gives the mean, and the rest in another group.

    Args:
        observation_size: Numbers in an observation.
        action_size: Numbers in an action; actions lie in [-1, 1].
        config: Hyperparameters, of the class ``Config``.
        seed: Seeds the initial weights and the noise that updates draw.

    Attributes:
        Config: The hyperparameters that a configuration may set; a subclass adds the agent's own.
        compiled: Module of the learner that does this agent's updates compiled, where there is one.
        trained: Groups that an optimizer moves: what a checkpoint for play holds, and what another run starts from.
        updates: How many updates were done.
        generator: Draws the noise of updates.
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig
    compiled: ClassVar[str | None] = None
    trained: ClassVar[tuple[str, ...]]

    def __init__(self, observation_size: int, action_size: int, config: AgentConfig, seed: int) -> None:
        self.observation_size, self.action_size, self.config = observation_size, action_size, config
        self.device = resolve_device(config.device)
        self.normalizer = RunningNormalizer(observation_size, config.normalize_observations, self.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.updates = 0

    @abstractmethod
    def select_action(self, observation: NDArray[np.floating], play: bool = False) -> NDArray[np.float32]:
        """Compute actions (batch, action_size) for observations (batch, observation_size).

        Args:
            observation: As the environment gives them, not normalised.
            play: Whether to act as in play, by ``actor_average`` where there is one, or as exploration starts from.
        """

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Do one update, count it in ``updates``, and return scalars by name, still on the device.

        Those of an update that moves the actor have an ``actor_loss``.
        """

    @abstractmethod
    def tensors(self) -> Groups:
        """Return every learned tensor, one group for each network and optimizer."""

    @abstractmethod
    def load_tensors(self, groups: Groups) -> None:
        """Restore what :meth:`tensors` returned, from any device.

        Raises:
            CheckpointError: A group has other names or shapes than this agent; nothing was loaded.
        """

    def play_tensors(self) -> Groups:
        """Return what a checkpoint for play holds: the ``trained`` networks, ``actor`` being the one that plays."""
        groups = self.tensors()
        return {name: groups[name] for name in self.trained} | {"actor": groups.get("actor_average", groups["actor"])}

    def start_from(self, networks: Mapping[str, dict[str, Tensor]]) -> None:
        """Load another agent's ``trained`` networks; targets and averages start as copies, optimizers afresh.

        Raises:
            CheckpointError: A network has other names or shapes than this agent's.
        """
        groups = self.tensors()
        for name, tensors in networks.items():
            copies = {f"{name}_target", f"{name}_average"} & groups.keys()
            groups |= dict.fromkeys({name, *copies}, tensors)
        self.load_tensors(groups)


def make_agent(observation_size: int, action_size: int, config: AgentConfig, seed: int) -> Agent:
    """Make the agent that ``agent.kind`` names.

    Raises:
        ConfigError: There is no such agent, or no such device.
    """
    if config.kind not in AGENTS:
        raise ConfigError(f"agent.kind: {choose('kind', config.kind, AGENTS)}")
    agent: Agent = import_module(AGENTS[config.kind]).AGENT(observation_size, action_size, config, seed)
    return agent


def resolve_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device.

    Raises:
        ConfigError: CUDA is asked for and not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("agent.device is 'cuda', but PyTorch sees no CUDA device; use 'auto' or 'cpu'")
    return torch.device(name)
