"""TD3: Fujimoto, van Hoof, Meger, "Addressing Function Approximation Error in Actor-Critic Methods", 2018.

Names and order follow Algorithm 1 of the paper.
"""

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from td3robot.errors import CheckpointError
from td3robot.learning.agent import Agent, Groups
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.learner import Learner, LearnerUnavailableError
from td3robot.learning.networks import Actor, Critic, adam
from td3robot.learning.replay import Batch

TRAINED = TD3Config.trained
NETWORKS = (*TRAINED, "actor_target", "Q1_target", "Q2_target")
AVERAGE = "actor_average"
OPTIMIZERS = TD3Config.optimizers
ADAM = ("step", "exp_avg", "exp_avg_sq")  # what it keeps of each weight
TRAINED_BY = dict(zip(OPTIMIZERS, TRAINED, strict=True))


class TD3(Agent):
    """Actor, two separate critics, a target for each, and their optimizers; arguments as in :class:`Agent`."""

    config: TD3Config

    def __init__(
        self, observation_size: int, action_size: int, config: TD3Config, seed: int, privileged_size: int = 0
    ) -> None:
        super().__init__(observation_size, action_size, config, seed, privileged_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = config.hidden, config.layer_norm
            self.actor = Actor(observation_size, action_size, *layers).to(self.device)
            self.Q1 = Critic(self.input_size, action_size, *layers).to(self.device)
            self.Q2 = Critic(self.input_size, action_size, *layers).to(self.device)
        self.actor_target = deepcopy(self.actor)
        self.Q1_target = deepcopy(self.Q1)
        self.Q2_target = deepcopy(self.Q2)
        # The policy for play. Single iterates of the actor vary a good deal in performance; their average is steadier
        # (Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992).
        self.actor_average = deepcopy(self.actor) if config.average_tau < 1.0 else self.actor
        self.averages = self.actor_average is not self.actor
        for target in (self.actor_target, self.Q1_target, self.Q2_target):
            target.requires_grad_(False)

        self.actor_optimizer = adam(self.actor.parameters(), config.learning_rate)
        self.Q1_optimizer = adam(self.Q1.parameters(), config.learning_rate)
        self.Q2_optimizer = adam(self.Q2.parameters(), config.learning_rate)
        # Pairs for Polyak averaging, all three networks in one call.
        self._actor: list[Tensor] = list(self.actor.parameters())
        self._average: list[Tensor] = list(self.actor_average.parameters())
        self._live: list[Tensor] = [*self._actor, *self.Q1.parameters(), *self.Q2.parameters()]
        self._targets: list[Tensor] = [
            *self.actor_target.parameters(), *self.Q1_target.parameters(), *self.Q2_target.parameters(),
        ]  # fmt: skip

    @classmethod
    def fast_learner(cls, device: str) -> type[Learner]:
        """Return the compiled learner for the CPU, or the recorded one for a GPU."""
        if device == "cuda":
            from td3robot.learning.cuda_graph import CudaGraphLearner

            return CudaGraphLearner
        try:
            from td3robot.learning.compiled.learner import CompiledLearner
        except ModuleNotFoundError as error:
            raise LearnerUnavailableError(
                f"the compiled learner needs {error.name}, which is not installed: pip install {error.name}"
            ) from None
        return CompiledLearner

    @torch.no_grad()
    def select_action(self, observation: NDArray[np.floating], play: bool = False) -> NDArray[np.float32]:
        """Compute pi(s) without noise for observations (batch, observation_size); for play, by the averaged actor."""
        states = torch.as_tensor(observation, dtype=torch.float32, device=self.device)
        actor = self.actor_average if play else self.actor
        actions: NDArray[np.float32] = actor(self.normalizer(states)).cpu().numpy()
        return actions

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Do one critic update and, every ``policy_freq``-th time, an actor and target update.

        Returns:
            Scalars by name, still on the device: ``critic_loss``, ``Q1_mean``, ``target_Q_mean``, and
            ``actor_loss`` when the actor was updated.
        """
        noise = torch.randn(batch.action.shape, generator=self.generator).to(self.device)
        scaled = batch._replace(
            observation=self.normalizer(batch.observation), next_observation=self.normalizer(batch.next_observation)
        )
        return self.learn(scaled, noise, self.begin_update())

    def begin_update(self) -> bool:
        """Count an update, set its learning rate, and return whether it is one of the actor and the targets, too."""
        self.updates += 1
        rate = self.config.learning_rate * self.learning_rate_share
        for name in OPTIMIZERS:
            group = getattr(self, name).param_groups[0]
            if isinstance(group["lr"], Tensor):  # on the device, where a CUDA graph reads it
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        return self.updates % self.config.policy_freq == 0

    def learn(self, batch: Batch, noise: Tensor, with_actor: bool) -> dict[str, Tensor]:
        """Do one update's arithmetic, on tensors alone, so that a CUDA graph can record it.

        Args:
            batch: Transitions with normalised observations.
            noise: (batch, action) drawn from the standard normal distribution.
            with_actor: Whether to update actor and targets, too.
        """
        next_action = self.target_action(batch, noise)
        with torch.no_grad():
            target_Q1 = self.Q1_target(batch.next_observation, next_action)
            target_Q2 = self.Q2_target(batch.next_observation, next_action)
        target_Q = self.td_target(batch, target_Q1, target_Q2)

        Q1 = self.Q1(batch.observation, batch.action)
        Q2 = self.Q2(batch.observation, batch.action)
        Q1_loss = self.learn_critic(self.Q1_optimizer, Q1, target_Q)
        Q2_loss = self.learn_critic(self.Q2_optimizer, Q2, target_Q)
        metrics = {"critic_loss": Q1_loss + Q2_loss, "Q1_mean": Q1.detach().mean(), "target_Q_mean": target_Q.mean()}
        if with_actor:
            metrics["actor_loss"] = self.learn_actor(batch)
            self.update_targets()
        return metrics

    @torch.no_grad()
    def target_action(self, batch: Batch, noise: Tensor) -> Tensor:
        """Compute the next action (batch, action): the target actor's, with clipped noise (target policy smoothing)."""
        config = self.config
        noise = (noise * config.policy_noise).clamp_(-config.noise_clip, config.noise_clip)
        action: Tensor = (self.actor_target(batch.next_observation) + noise).clamp_(-1.0, 1.0)
        return action

    @torch.no_grad()
    def td_target(self, batch: Batch, target_Q1: Tensor, target_Q2: Tensor) -> Tensor:
        """Compute what the critics learn: clipped double Q-learning. Time limits are truncations: they bootstrap."""
        target: Tensor = batch.reward + batch.discount * (1.0 - batch.terminated) * torch.min(target_Q1, target_Q2)
        return target

    @staticmethod
    def learn_critic(optimizer: torch.optim.Adam, Q: Tensor, target_Q: Tensor) -> Tensor:
        """Update an optimizer's critic from its values of a batch, and return its loss."""
        loss = mse_loss(Q, target_Q)
        _descend(optimizer, loss)
        return loss.detach()

    def learn_actor(self, batch: Batch) -> Tensor:
        """Update the actor by the deterministic policy gradient, through Q1 alone, and return its loss."""
        action = self.actor(batch.observation)
        Q1 = self.Q1(batch.observation, action)
        loss: Tensor = -Q1.mean()
        if self.config.imitation:
            loss = loss + self.imitation_loss(batch, action, Q1.detach())
        _descend(self.actor_optimizer, loss)
        return loss.detach()

    def imitation_loss(self, batch: Batch, action: Tensor, Q1: Tensor) -> Tensor:
        """Compute what draws the actor to a guide's actions, where Q1 thinks more of these than of the actor's own.

        The guide says what it would do in every state that was visited, whoever acted there: Ross et al., "A Reduction
        of Imitation Learning and Structured Prediction to No-Regret Online Learning", 2011.

        The filter is from Nair et al., "Overcoming Exploration in Reinforcement Learning with Demonstrations", 2018,
        section IV; the scale, which makes the weight independent of the rewards', from Fujimoto and Gu, "A Minimalist
        Approach to Offline Reinforcement Learning", 2021, equation 5.

        Args:
            batch: Transitions, ``guide_action`` among them.
            action: (batch, action) the actor's.
            Q1: (batch, 1) of these.
        """
        with torch.no_grad():
            counts = self.Q1(batch.observation, batch.guide_action) > Q1
        away = (action - batch.guide_action).square().sum(dim=1, keepdim=True)
        loss: Tensor = self.config.imitation * Q1.abs().mean() * (counts * away).mean()
        return loss

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move the targets, and the actor's average, by a step towards the networks they follow."""
        torch._foreach_lerp_(self._targets, self._live, self.config.tau)
        if self.averages:
            torch._foreach_lerp_(self._average, self._actor, self.config.average_tau)

    def networks(self) -> dict[str, nn.Module]:
        """Return the six networks by the paper's names, and the actor's average if there is one."""
        names = (*NETWORKS, AVERAGE) if self.averages else NETWORKS
        return {name: getattr(self, name) for name in names}

    def tensors(self) -> Groups:
        """Return all learned tensors, one group per network and optimizer."""
        groups = {name: dict(network.state_dict()) for name, network in self.networks().items()}
        for name in OPTIMIZERS:
            groups[name] = self._optimizer_tensors(name)
        return groups

    def load_tensors(self, groups: Groups) -> None:
        """Restore what :meth:`tensors` returned, from any device.

        Raises:
            CheckpointError: A group has other names or shapes than this agent; nothing was loaded.
        """
        networks = self.networks()
        wanted = {
            name: {key: tuple(value.shape) for key, value in network.state_dict().items()}
            for name, network in networks.items()
        }
        for name in OPTIMIZERS:
            shapes = wanted[TRAINED_BY[name]] if groups[name] else {}  # without a step yet, it has nothing
            wanted[name] = {
                f"{key}.{part}": () if part == "step" else shape for key, shape in shapes.items() for part in ADAM
            }
        for name, shapes in wanted.items():
            _require_shapes(name, groups[name], shapes)
        for name, network in networks.items():
            network.load_state_dict(groups[name])
        for name in OPTIMIZERS:
            optimizer: torch.optim.Adam = getattr(self, name)
            optimizer.state.clear()
            for key, parameter in getattr(self, TRAINED_BY[name]).named_parameters() if groups[name] else ():
                parts = {part: groups[name][f"{key}.{part}"] for part in ADAM}
                optimizer.state[parameter] = {part: value.to(self.device, copy=True) for part, value in parts.items()}

    def _optimizer_tensors(self, name: str) -> dict[str, Tensor]:
        optimizer: torch.optim.Adam = getattr(self, name)
        flat = {}
        for parameter_name, parameter in getattr(self, TRAINED_BY[name]).named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                flat[f"{parameter_name}.{key}"] = value
        return flat


def _descend(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    """Update an optimizer's network; the others that its loss depends on get no gradient."""
    parameters: list[Tensor] = optimizer.param_groups[0]["params"]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


def _require_shapes(name: str, given: dict[str, Tensor], wanted: dict[str, tuple[int, ...]]) -> None:
    found = {key: tuple(value.shape) for key, value in given.items()}
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise CheckpointError(
                f"{name} does not fit: {key} is {found.get(key)} in the checkpoint and {wanted.get(key)} here; "
                "use the configuration that the checkpoint was made with"
            )
