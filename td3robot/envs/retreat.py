"""Leaving what does not go on: the gripper opens, the tool rises, the camera sees again, and the policy tries again."""

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.actions import ActionKind
from td3robot.state import Array
from td3robot.tasks.interface import TaskState

# Nothing goes on if the way left did not get shorter by this much [m] for this long [s].
PROGRESS_M, STUCK_S = 0.003, 3.0
# The tool rises for this long at full speed [s]: far enough for a camera to see what the hand hid.
RISE_S = 1.0
# Fingers that are closed further than this, as a fraction, open before the tool rises: they may be around something.
OPEN = 0.3


class Retreat:
    """Notice in which rows nothing goes on, and let their tools rise; see :meth:`Task.way_left`.

    Args:
        rising: Actions that move the tool, ``tcp_delta``.
        count: Number of rows.
        period_s: The control period.
        pace: Speed of the arm, as a share of training's: everything takes longer.
        opens: Whether the task's gripper opens first; one that stays closed rises as it is.

    Attributes:
        rises: (m,) whether a row retreats.
    """

    def __init__(self, rising: ActionKind, count: int, period_s: float, pace: float, opens: bool) -> None:
        self._rising, self._step_s, self._opens = rising, period_s * pace, opens
        self._best, self._still_s, self._left_s = np.full(count, np.inf), np.zeros(count), np.zeros(count)
        self._up = np.zeros(rising.layout.size, np.float32)
        self._up[rising.layout.slices["tcp_delta"].start + 2] = 1.0
        self.rises = np.zeros(count, np.bool_)

    def reset(self, row: int) -> None:
        """Begin a row's episode."""
        self._best[row], self._still_s[row], self._left_s[row], self.rises[row] = np.inf, 0.0, 0.0, False

    def look(self, left: Array, rows: NDArray[np.intp]) -> None:
        """Note the ways left (k,) of some rows [m]: 0 where there is none, infinite where the attempt has failed."""
        for index, row in enumerate(rows.tolist()):
            if self.rises[row]:
                self._left_s[row] -= self._step_s
                if self._left_s[row] <= 0.0:
                    self.reset(row)
                continue
            goes_on = left[index] <= 0.0 or left[index] < self._best[row] - PROGRESS_M
            if goes_on:
                self._best[row] = left[index]
            self._still_s[row] = 0.0 if goes_on else self._still_s[row] + self._step_s
            if self._still_s[row] >= STUCK_S or left[index] == np.inf:
                self.rises[row], self._left_s[row] = True, RISE_S

    def desired(self, seen: TaskState, q: Array, velocity: Array) -> Array:
        """Return the postures (m, n) [rad] that lift free hands, from commanded ones (m, n) and their velocities."""
        is_free = (seen.closed < OPEN) | (not self._opens)
        up = np.where(is_free[:, None], self._up, np.float32(0.0))
        nothing = np.zeros(len(q))
        return self._rising.desired(up, q, velocity, nothing, nothing)
