"""Bounded building blocks of rewards, over rows; compiled formulas call the same functions with numbers."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel
from td3robot.state import Array

Value = TypeVar("Value", float, Array)


@kernel
def nearness(distance: Value, scale: float) -> Value:
    """Compute ``exp(-(distance / scale)^2)`` (m,), in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    near: Value = np.exp(-((distance / scale) ** 2))
    return near


@kernel
def ramp(value: Value, full: float) -> Value:
    """Compute ``clip(value / full, 0, 1)`` (m,)."""
    share: Value = np.minimum(np.maximum(value / full, 0.0), 1.0)
    return share


@kernel
def progress(before: Value, after: Value, full: float) -> Value:
    """Compute ``clip((before - after) / full, -1, 1)`` (m,) for distances before and after one period.

    A potential difference (Ng, Harada and Russell 1999): over any path it sums to what was gained, so going back and
    forth earns nothing, yet each action is rewarded at once.
    """
    share: Value = np.minimum(np.maximum((before - after) / full, -1.0), 1.0)
    return share


@formula
def change_of(action: NDArray[np.float32], previous: NDArray[np.float32]) -> float:
    """Compute the mean squared change of an action (k,) over 4, in [0, 1]; 1 is full reversal."""
    total = 0.0
    for index in range(len(action)):
        change = float(action[index]) - float(previous[index])
        total += change * change / (4.0 * len(action))
    return total


@kernel
def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> Array:
    """Compute the changes (m,) of actions (m, k); see :func:`change_of`."""
    found = np.empty(len(action))
    for row in range(len(action)):
        found[row] = change_of(action[row], previous[row])
    return found
