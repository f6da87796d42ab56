"""Bounded pieces that rewards are made of."""

from math import exp, log1p

import numpy as np
from numpy.typing import NDArray


def nearness(distance: float, scale: float) -> float:
    """Compute ``exp(-(distance / scale)^2)``, in (0, 1]: 1 at the goal, 0.37 at ``scale``."""
    return exp(-((distance / scale) ** 2))


def log_shortfall(distance: float, fine: float, far: float) -> float:
    """Compute ``-log(1 + distance / fine) / log(1 + far / fine)``: 0 at the goal, -1 at ``far``, never below.

    Halving what is left is worth about the same at every range, so that the last centimetre counts as much as
    the first half metre.
    """
    return -min(log1p(distance / fine) / log1p(far / fine), 1.0)


def roughness(action: NDArray[np.float32], previous: NDArray[np.float32]) -> float:
    """Compute the mean squared change of the action over 4, in [0, 1]; 1 is full reversal of every component."""
    change = action - previous
    return float(change @ change) / (4.0 * len(action))
