"""Observations and scores of many environments at once, as arrays; the tasks themselves are the reference."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array


class Worlds(NamedTuple):
    """What :class:`td3robot.state.World` says, of m environments.

    Attributes:
        q: (m, n) measured joint angles [rad].
        drivers: (m, 2) gripper drivers.
        closed: (m,) closed fractions that follow from them.
        position, rotation, velocity: Tools, from the measured joint angles: (m, 3), (m, 3, 3), (m, 3).
        commanded_position, commanded_rotation: Tools, from the commanded ones.
        commanded_velocity, commanded_turn_rate: (m, 3) [m/s], (m,) [rad/s].
        commanded_q, commanded_dq, commanded_jacobian: (m, n) [rad], (m, n) [rad/s], (m, 6, n).
        commanded_gripper, intent, closing_rate, stalled_s: (m,).
        held: (m,) bool.
        item, item_rotation, item_age_s: The object (m, 3), (m, 3, 3), and the time since it was last seen (m,).
    """

    q: Array
    drivers: Array
    closed: Array
    position: Array
    rotation: Array
    velocity: Array
    commanded_position: Array
    commanded_rotation: Array
    commanded_velocity: Array
    commanded_turn_rate: Array
    commanded_q: Array
    commanded_dq: Array
    commanded_jacobian: Array
    commanded_gripper: Array
    intent: Array
    closing_rate: Array
    stalled_s: Array
    held: NDArray[np.bool_]
    item: Array
    item_rotation: Array
    item_age_s: Array


class Scores(NamedTuple):
    """What :class:`Score` says, of m environments.

    Attributes:
        terms: Weighted reward terms (m,) by name.
        achieved: (m,) bool.
        distance_m: (m,).
    """

    terms: Mapping[str, Any]
    achieved: NDArray[np.bool_]
    distance_m: Array


def nearness(distance: Array, scale: float) -> Array:
    """Compute ``exp(-(distance / scale)^2)``."""
    found: Array = np.exp(-((distance / scale) ** 2))
    return found


def ramp(value: Array, full: float) -> Array:
    """Compute ``clip(value / full, 0, 1)``."""
    found: Array = np.minimum(np.maximum(value / full, 0.0), 1.0)
    return found


def progress(before: Array, after: Array, full: float) -> Array:
    """Compute ``clip((before - after) / full, -1, 1)``."""
    found: Array = np.minimum(np.maximum((before - after) / full, -1.0), 1.0)
    return found
