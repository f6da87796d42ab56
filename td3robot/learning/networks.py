"""The multilayer perceptrons of TD3: a deterministic actor, and an action-value function."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


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
    """Map a normalised observation (batch, observation) to an action (batch, action) in [-1, 1]."""

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        self.net = mlp([observation_size, *hidden, action_size], layer_norm)

    def forward(self, observation: Tensor) -> Tensor:
        """Compute pi(s)."""
        return torch.tanh(self.net(observation))


class Critic(nn.Module):
    """Map observation and action to one action value (batch, 1)."""

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        self.net = mlp([observation_size + action_size, *hidden, 1], layer_norm)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """Compute Q(s, a)."""
        value: Tensor = self.net(torch.cat([observation, action], dim=1))
        return value
