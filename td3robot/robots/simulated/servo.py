"""A second-order servo, which may overshoot."""

import numpy as np

from td3robot.state import Array


class SecondOrderServo:
    """Follow a target that moves in straight lines, like a damped mass on a spring.

    ``a = w^2 (target - q) - 2 z w v`` with ``w = 2 z / lag``, so that it trails a ramp by the lag; solved exactly over
    each period.

    Args:
        lag_s: How far in time it trails a target that moves steadily.
        damping: The damping ratio z; below 1 it overshoots.
        period_s: Time between two targets.
    """

    def __init__(self, lag_s: float, damping: float, period_s: float) -> None:
        from scipy.linalg import expm  # takes half a second and 20 MB; undisturbed arms need none of it

        w = 2.0 * damping / lag_s
        self._period = period_s
        change = np.array([[0, 1, 0, 0], [-(w**2), -2 * damping * w, w**2, 0], [0, 0, 0, 1], [0, 0, 0, 0]], float)
        self._step: Array = expm(change * period_s)

    def place(self, q: Array) -> None:
        """Place the servo at rest at q (n,) [rad]."""
        self._state = np.stack([q, np.zeros_like(q), q, np.zeros_like(q)])

    def follow(self, target: Array) -> Array:
        """Return the joint angles (n,) [rad] after one period, in which the target moved to ``target`` (n,) [rad]."""
        self._state[3] = (target - self._state[2]) / self._period
        self._state = self._step @ self._state
        self._state[2] = target
        q: Array = self._state[0].copy()
        return q
