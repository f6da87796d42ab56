"""Bounded building blocks of rewards."""

from math import exp

import numpy as np
from numpy.typing import NDArray


def nearness(distance: float, scale: float) -> float:
    """Compute ``exp(-(distance / scale)^2)``, in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    return exp(-((distance / scale) ** 2))


def ramp(value: float, full: float) -> float:
    """Compute ``clip(value / full, 0, 1)``."""
    return min(max(value / full, 0.0), 1.0)


def progress(before: float, after: float, full: float) -> float:
    """Compute ``clip((before - after) / full, -1, 1)`` for a distance before and after one period.

    A potential difference (Ng, Harada and Russell 1999): over any path it sums to what was gained, so going back and
    forth earns nothing, yet each action is rewarded at once.
    """
    return min(max((before - after) / full, -1.0), 1.0)


def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> float:
    """Compute the mean squared change of the action over 4, in [0, 1]; 1 is full reversal of every component."""
    change = action - previous
    return float(change @ change) / (4.0 * len(action))
