"""What was measured of many arms."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from td3robot.state import Array, RobotState

Rows = NDArray[np.intp]


class History:
    """Measured states of m environments, of which the gripper's go back as far as fingers rest.

    Attributes:
        q, dq, drivers: (m, n) [rad], (m, n) [rad/s], (m, 2): the newest.
        closed, stamps: (1 + rest, m) closed fractions and times [s], oldest first.
    """

    def __init__(self, count: int, joints: int, rest: int) -> None:
        self.q, self.dq = np.zeros((2, count, joints))
        self.drivers = np.zeros((count, 2))
        self.closed, self.stamps = np.zeros((2, 1 + rest, count))

    def begin(self, row: int, state: RobotState, closed: float) -> None:
        """Begin with an episode's first state."""
        self.closed[:, row], self.stamps[:, row] = closed, state.stamp
        self.q[row], self.dq[row], self.drivers[row] = state.q, state.dq, state.driver_q

    def add(
        self, rows: Rows, q: Array, dq: Array, drivers: Array, stamps: Array, closed: Callable[[Array], Array]
    ) -> None:
        """Add the newest states of some rows."""
        self.q[rows], self.dq[rows], self.drivers[rows] = q, dq, drivers
        for kept, new in ((self.closed, closed(drivers)), (self.stamps, stamps)):
            kept[:-1, rows] = kept[1:, rows]
            kept[-1, rows] = new

    def follow(self, other: "History", rows: Rows) -> None:
        """Add another history's newest states."""
        self.q[rows], self.dq[rows], self.drivers[rows] = other.q[rows], other.dq[rows], other.drivers[rows]
        for kept, new in ((self.closed, other.closed), (self.stamps, other.stamps)):
            kept[:-1, rows] = kept[1:, rows]
            kept[-1, rows] = new[-1, rows]

    def closing_rate(self, rows: Rows) -> Array:
        """Return how fast the closed fractions (m,) of some rows grow [1/s]."""
        closed = self.closed[-1, rows] - self.closed[0, rows]
        passed = self.stamps[-1, rows] - self.stamps[0, rows]
        rate: Array = np.where(passed > 0.0, closed / np.where(passed > 0.0, passed, 1.0), 0.0)
        return rate

    def correct(self, row: int, state: RobotState, closed: float) -> None:
        """Replace the newest state of a row."""
        self.q[row], self.dq[row], self.drivers[row] = state.q, state.dq, state.driver_q
        self.closed[-1, row], self.stamps[-1, row] = closed, state.stamp
