"""Adam and Polyak averaging over flat arrays, compiled."""

from typing import NamedTuple

import numpy as np

from td3robot.learning.compiled.compiler import fold, jit
from td3robot.learning.compiled.layout import Flat

# torch.optim.Adam's defaults.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
BLOCK = 4096  # numbers at a time: the weights, moments and targets of a block stay in the cache


class Memory(NamedTuple):
    """Everything that an update changes: flat arrays with the same layout of actor and critics, actor first.

    ``weights``, ``targets``, ``gradient``, Adam's ``first`` and ``second`` moments are (weights,); the actor's
    ``average`` is (weights of the actor,), or empty.
    """

    weights: Flat
    targets: Flat
    average: Flat
    gradient: Flat
    first: Flat
    second: Flat


@fold
def adam(weights: Flat, gradient: Flat, first: Flat, second: Flat, rate: float, count: int) -> None:
    """Move weights (weights,) by one step, the ``count``-th, counting from 1, at a learning rate.

    Kingma and Ba, "Adam", 2015, Algorithm 1, with the operations grouped as torch groups them; ``first`` and ``second``
    are the running averages of the gradient and of its square.
    """
    size = np.float32(rate / (1.0 - BETA1**count))
    root = np.float32(np.sqrt(1.0 - BETA2**count))
    beta1, beta2, epsilon = np.float32(1.0 - BETA1), np.float32(BETA2), np.float32(EPSILON)
    rest = np.float32(1.0 - BETA2)
    for i in range(weights.size):
        g = gradient[i]
        first[i] += beta1 * (g - first[i])
        second[i] = beta2 * second[i] + rest * g * g
        weights[i] -= size * first[i] / (np.sqrt(second[i]) / root + epsilon)


@fold
def follow(averages: Flat, weights: Flat, share: np.float32) -> None:
    """Move averages (weights,) by a share of the way towards the weights (Polyak averaging)."""
    for i in range(weights.size):
        averages[i] += share * (weights[i] - averages[i])


@jit
def step(
    memory: Memory, start: int, stop: int, rate: float, count: int, tau: np.float32, average_tau: np.float32
) -> None:
    """Do Adam's step for the weights from start to stop, and let targets and average follow by their shares, if any."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        weights = memory.weights[begin:end]
        first, second = memory.first[begin:end], memory.second[begin:end]
        adam(weights, memory.gradient[begin:end], first, second, rate, count)
        if tau > 0.0:
            follow(memory.targets[begin:end], weights, tau)
        if average_tau > 0.0:
            follow(memory.average[begin:end], weights, average_tau)
