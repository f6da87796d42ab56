"""The interface between a trainer and a learning algorithm, and the choice of algorithm by a configuration."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from td3robot.config import AgentConfig
from td3robot.errors import ConfigError
from td3robot.learning.exploration import Exploration
from td3robot.learning.networks import RunningNormalizer
from td3robot.learning.replay import Batch
from td3robot.policy.observation_scaling import NORMALIZER, PRIVILEGED, Moments, columns

if TYPE_CHECKING:
    from td3robot.learning.learner import Learner

Groups = dict[str, dict[str, Tensor]]


class Agent(ABC):
    """An off-policy learner; the ``agent_class`` of its configuration names it.

    The group ``actor`` of :meth:`tensors` (``actor_average`` if there is one) is used for play: the tensors of a
    :class:`~td3robot.learning.networks.Actor`, which a policy evaluates without torch. An agent with a stochastic
    policy keeps the layers of its mean there, and the rest in another group.

    Args:
        observation_size: Size of an observation.
        action_size: Size of an action; actions lie in [-1, 1].
        config: Hyperparameters.
        seed: Seeds the initial weights and the noise of updates.
        privileged_size: How many numbers follow the observation that only the critics see; given only to agents whose
            configuration ``is_asymmetric``.

    Attributes:
        input_size: Size of an observation in training: with what only the critics see.
        updates: How many updates were done.
        generator: Draws the noise of updates.
        learning_rate_share: Share of the configured learning rates at which the next updates learn.
    """

    config: AgentConfig

    def __init__(
        self, observation_size: int, action_size: int, config: AgentConfig, seed: int, privileged_size: int = 0
    ) -> None:
        self.observation_size, self.action_size, self.config = observation_size, action_size, config
        self.privileged_size, self.input_size = privileged_size, observation_size + privileged_size
        self.device = resolve_device(config.device)
        self.normalizer = RunningNormalizer(self.input_size, config.normalize_observations, self.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.updates = 0
        self.learning_rate_share = 1.0

    @classmethod
    def fast_learner(cls, device: str) -> "type[Learner] | None":
        """Return the learner that does these updates faster on a type of device, if there is one.

        It is imported here, and nowhere else. A run uses it only after it was seen to do the same updates.

        Raises:
            LearnerUnavailableError: It needs something that is not installed.
        """
        return None

    @abstractmethod
    def select_action(self, observation: NDArray[np.floating], play: bool = False) -> NDArray[np.float32]:
        """Compute actions (batch, action_size) for observations (batch, observation_size).

        Args:
            observation: As returned by the environment, not normalised; (batch, input_size) in training.
            play: Whether to act as in play, by ``actor_average`` if there is one, or as the starting point of
                exploration.
        """

    def explore(self, observation: NDArray[np.floating], exploration: Exploration) -> NDArray[np.float32]:
        """Compute actions that explore, as :meth:`select_action` does those that don't."""
        return exploration.perturb(self.select_action(observation))

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Do one update, count it in ``updates``, and return scalars by name, still on the device.

        An update of the actor adds an ``actor_loss``.
        """

    def normalizers(self) -> dict[str, Moments]:
        """Return the normaliser's state as groups of a checkpoint: what only critics see is apart from the policy's."""
        state, size = self.normalizer.state(), self.observation_size
        groups = {NORMALIZER: columns(state, slice(size))}
        return groups | ({PRIVILEGED: columns(state, slice(size, None))} if self.privileged_size else {})

    @abstractmethod
    def tensors(self) -> Groups:
        """Return all learned tensors, one group per network and optimizer."""

    @abstractmethod
    def load_tensors(self, groups: Groups) -> None:
        """Restore what :meth:`tensors` returned, from any device.

        Raises:
            CheckpointError: A group has other names or shapes than this agent; nothing was loaded.
        """

    def play_tensors(self) -> Groups:
        """Return the tensors of a checkpoint for play: the trained networks, with the actor used for play."""
        groups = self.tensors()
        actor = groups.get("actor_average", groups["actor"])
        return {name: groups[name] for name in self.config.trained} | {"actor": actor}

    def start_from(self, networks: Mapping[str, dict[str, Tensor]]) -> None:
        """Load another agent's networks that are ``trained``; targets and averages start as copies, optimizers afresh.

        Raises:
            CheckpointError: A network has other names or shapes than this agent's.
        """
        groups = self.tensors()
        for name, tensors in networks.items():
            copies = {f"{name}_target", f"{name}_average"} & groups.keys()
            groups |= dict.fromkeys({name, *copies}, tensors)
        self.load_tensors(groups)


def make_agent(
    observation_size: int, action_size: int, config: AgentConfig, seed: int, privileged_size: int = 0
) -> Agent:
    """Return the agent of a configuration.

    Raises:
        ConfigError: There is no such device.
    """
    more = {"privileged_size": privileged_size} if config.is_asymmetric else {}
    agent: Agent = config.agent_class()(observation_size, action_size, config, seed, **more)
    return agent


def resolve_device(name: str) -> torch.device:
    """Return the device for ``auto``, ``cpu`` or ``cuda``.

    Raises:
        ConfigError: CUDA is requested but not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("agent.device is 'cuda', but PyTorch sees no CUDA device; use 'auto' or 'cpu'")
    return torch.device(name)
