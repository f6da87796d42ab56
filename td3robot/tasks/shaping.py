"""Bounded building blocks of rewards, over numbers or arrays."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array

Value = TypeVar("Value", float, Array)


def nearness(distance: Value, scale: float) -> Value:
    """Compute ``exp(-(distance / scale)^2)``, in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    return np.exp(-((distance / scale) ** 2))  # type: ignore[return-value]


def ramp(value: Value, full: float) -> Value:
    """Compute ``clip(value / full, 0, 1)``."""
    return np.minimum(np.maximum(value / full, 0.0), 1.0)  # type: ignore[return-value]


def progress(before: Value, after: Value, full: float) -> Value:
    """Compute ``clip((before - after) / full, -1, 1)`` for a distance before and after one period.

    A potential difference (Ng, Harada and Russell 1999): over any path it sums to what was gained, so going back and
    forth earns nothing, yet each action is rewarded at once.
    """
    return np.minimum(np.maximum((before - after) / full, -1.0), 1.0)  # type: ignore[return-value]


def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> Array:
    """Compute the mean squared changes (m,) of actions (m, k) over 4, in [0, 1]; 1 is full reversal of each component."""
    change = action - previous
    found: Array = (change * change).sum(axis=-1).astype(np.float64) / (4.0 * action.shape[-1])
    return found
