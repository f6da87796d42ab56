"""A servo of second order, which may overshoot."""

import numpy as np
from scipy.linalg import expm

from td3robot.state import Array


class SecondOrderServo:
    """Follows a target that moves in straight lines, as a damped mass on a spring does.

    ``a = w^2 (target - q) - 2 z w v`` with ``w = 2 z / lag``, so that it trails a ramp by the lag; solved exactly over
    each period.

    Args:
        lag_s: By which it trails a target that moves steadily.
        damping: The ratio z; below 1 it overshoots.
        period_s: Between two targets.
    """

    def __init__(self, lag_s: float, damping: float, period_s: float) -> None:
        w = 2.0 * damping / lag_s
        self._period = period_s
        change = np.array([[0, 1, 0, 0], [-(w**2), -2 * damping * w, w**2, 0], [0, 0, 0, 1], [0, 0, 0, 0]], float)
        self._step: Array = expm(change * period_s)

    def place(self, q: Array) -> None:
        """Be at rest at q (n,) [rad]."""
        self._state = np.stack([q, np.zeros_like(q), q, np.zeros_like(q)])

    def follow(self, target: Array) -> Array:
        """Return where the joints (n,) [rad] are when the target (n,) [rad] gets to where it is sent."""
        self._state[3] = (target - self._state[2]) / self._period
        self._state = self._step @ self._state
        self._state[2] = target
        q: Array = self._state[0].copy()
        return q
