"""Stops an arm whose tool meets too large a force. Plain Python: this runs in the worker's loop. No safety function."""

from math import hypot

from td3robot.robots.driver.link import StoppedError
from td3robot.robots.driver.shared_memory import WorkerState

# A force has to last for this long: estimates are noisy, and jump with the arm's acceleration [s].
LASTING_S = 0.05


class ContactLimit:
    """Watches the force at the tool, as the controller estimates it.

    Args:
        limit_n: The guard's limit [N].
    """

    def __init__(self, limit_n: float) -> None:
        self._limit = limit_n
        self._since: float | None = None

    def check(self, state: WorkerState) -> None:
        """Check the force of a state; without one, nothing is checked.

        Raises:
            StoppedError: It has been above the limit for longer than a moment.
        """
        force = hypot(*state.force[:3])
        if force <= self._limit:
            self._since = None
            return
        if self._since is None or state.controller_time < self._since:
            self._since = state.controller_time
        lasted = state.controller_time - self._since
        if lasted >= LASTING_S:
            self._since = None
            raise StoppedError(
                f"the tool has met {force:.0f} N for {1e3 * lasted:.0f} ms, more than guard.max_contact_force_n "
                f"{self._limit:g} N: free the tool, and check the payload set at the controller"
            )
