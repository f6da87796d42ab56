"""What an agent is made of: perceptrons for actor and critic, the scaling before them, and their optimizer."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.optim import Optimizer

from td3robot.policy.observation_scaling import Moments, ObservationScaling


def mlp(sizes: Sequence[int], layer_norm: bool) -> nn.Sequential:
    """Return a stack of linear layers of the given sizes with ReLU between them.

    Args:
        sizes: Width of the input, of each hidden layer, and of the output.
        layer_norm: Whether each hidden layer is normalised before its ReLU.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers.append(nn.Linear(inputs, outputs))
        if layer_norm:
            layers.append(nn.LayerNorm(outputs))
        layers.append(nn.ReLU())
    layers.append(nn.Linear(sizes[-2], sizes[-1]))
    return nn.Sequential(*layers)


class Actor(nn.Module):
    """Map a normalised observation (batch, observation) to an action (batch, action) in [-1, 1].

    What only critics see may follow the observation; the actor leaves it out.
    """

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        self._observation_size = observation_size
        self.net = mlp([observation_size, *hidden, action_size], layer_norm)

    def forward(self, observation: Tensor) -> Tensor:
        """Compute pi(s)."""
        return torch.tanh(self.net(observation[:, : self._observation_size]))


class Critic(nn.Module):
    """Map observation and action to one action value (batch, 1)."""

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        self.net = mlp([observation_size + action_size, *hidden, 1], layer_norm)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """Compute Q(s, a)."""
        value: Tensor = self.net(torch.cat([observation, action], dim=1))
        return value


class RunningNormalizer:
    """Scale each observation component to zero mean and unit variance over all observations so far.

    Mean and variance are merged batch by batch in float64 (Chan, Golub and LeVeque 1983). A disabled
    normaliser leaves observations unchanged and is saved like any other, so that play needs no special case.

    Attributes:
        scaling: The current scaling.
    """

    def __init__(self, size: int, enabled: bool, device: torch.device) -> None:
        self._device = device
        self._moments: Moments = {
            "enabled": np.array([float(enabled)]),
            "count": np.zeros(1),
            "mean": np.zeros(size),
            "variance": np.ones(size),
        }
        self.enabled = enabled
        self._publish()

    def update(self, observations: ArrayLike) -> None:
        """Merge a batch of observations (batch, size)."""
        if not self.enabled:
            return
        batch = np.asarray(observations, dtype=np.float64)
        moments = self._moments
        seen, mean, variance = moments["count"][0], moments["mean"], moments["variance"]
        total = seen + len(batch)
        delta = batch.mean(axis=0) - mean
        squares = variance * seen + batch.var(axis=0) * len(batch) + delta**2 * (seen * len(batch) / total)
        self._moments = moments | {
            "count": np.array([total]),
            "mean": mean + delta * (len(batch) / total),
            "variance": squares / total,
        }
        self._publish()

    def __call__(self, observation: Tensor) -> Tensor:
        """Scale observations (batch, size)."""
        if not self.enabled:
            return observation
        return ((observation - self._shift) * self._scale).clamp_(-self._clip, self._clip)

    def state(self) -> Moments:
        """Return mean, variance, count and whether it is enabled, for a checkpoint."""
        return self._moments

    def load_state(self, moments: Moments) -> None:
        """Restore what :meth:`state` returned."""
        self._moments = {name: value.copy() for name, value in moments.items()}
        self.enabled = bool(moments["enabled"][0])
        self._publish()

    def _publish(self) -> None:
        self.scaling = scaling = ObservationScaling.from_moments(self._moments)
        self._shift = torch.from_numpy(scaling.shift).to(self._device)
        self._scale = torch.from_numpy(scaling.scale).to(self._device)
        self._clip = float(scaling.clip)


def adam(parameters: Iterator[nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    """Return fused Adam over some parameters.

    PyTorch imports its compiler with the first optimizer, only to exempt ``add_param_group`` from compilation: 1.2 s
    of CPU time and 67 MB (torch 2.13). If the method is already marked as exempt, it does not. A PyTorch that does this
    differently just imports its compiler.
    """
    method = getattr(Optimizer.add_param_group, "__wrapped__", None)
    if method is not None and not hasattr(method, "__dynamo_disable"):
        method.__dynamo_disable = method
    return torch.optim.Adam(parameters, learning_rate, fused=True)
