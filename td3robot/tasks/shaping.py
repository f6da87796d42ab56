"""Bounded building blocks of rewards, over rows."""

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import kernel
from td3robot.state import Array


@kernel
def nearness(distance: Array, scale: float) -> Array:
    """Compute ``exp(-(distance / scale)^2)`` (m,), in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    return np.exp(-((distance / scale) ** 2))


@kernel
def ramp(value: Array, full: float) -> Array:
    """Compute ``clip(value / full, 0, 1)`` (m,)."""
    return np.minimum(np.maximum(value / full, 0.0), 1.0)


@kernel
def progress(before: Array, after: Array, full: float) -> Array:
    """Compute ``clip((before - after) / full, -1, 1)`` (m,) for distances before and after one period.

    A potential difference (Ng, Harada and Russell 1999): over any path it sums to what was gained, so going back and
    forth earns nothing, yet each action is rewarded at once.
    """
    return np.minimum(np.maximum((before - after) / full, -1.0), 1.0)


@kernel
def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> Array:
    """Compute the mean squared changes (m,) of actions (m, k) over 4, in [0, 1]; 1 is full reversal."""
    count, size = action.shape
    found = np.zeros(count)
    for row in range(count):
        for index in range(size):
            change = float(action[row, index]) - float(previous[row, index])
            found[row] += change * change / (4.0 * size)
    return found
