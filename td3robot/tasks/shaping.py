"""Bounded building blocks of rewards, over rows."""

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array


def nearness(distance: Array, scale: float) -> Array:
    """Compute ``exp(-(distance / scale)^2)``, in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    found: Array = np.exp(-((distance / scale) ** 2))
    return found


def ramp(value: Array, full: float) -> Array:
    """Compute ``clip(value / full, 0, 1)``."""
    found: Array = np.minimum(np.maximum(value / full, 0.0), 1.0)
    return found


def progress(before: Array, after: Array, full: float) -> Array:
    """Compute ``clip((before - after) / full, -1, 1)`` for a distance before and after one period.

    A potential difference (Ng, Harada and Russell 1999): over any path it sums to what was gained, so going back and
    forth earns nothing, yet each action is rewarded at once.
    """
    found: Array = np.minimum(np.maximum((before - after) / full, -1.0), 1.0)
    return found


def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> Array:
    """Compute the mean squared changes (m,) of actions (m, k) over 4, in [0, 1]; 1 is full reversal."""
    change = action - previous
    found: Array = (change * change).sum(axis=-1).astype(np.float64) / (4.0 * action.shape[-1])
    return found
