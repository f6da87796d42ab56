"""A robot that is only watched: its states are the arm's, and its commands are not sent."""

from time import monotonic, sleep
from typing import ClassVar

from td3robot.robots.interface import Robot
from td3robot.robots.physical import PhysicalRobot
from td3robot.state import Array, JointCommand, RobotState


class ShadowRobot(Robot):
    """Read an arm that was opened for reading only, and drop every command.

    Attributes:
        watched: The arm.
        missed_ticks: Control periods that were over before ``advance`` was called.
    """

    teleports: ClassVar[bool] = False

    def __init__(self, watched: PhysicalRobot) -> None:
        super().__init__(watched.spec)
        self.watched, self.missed_ticks = watched, 0
        self._due: float | None = None

    def connect(self) -> None:
        """Open the arm for reading."""
        self.watched.connect()
        self.spec = self.watched.spec

    def read(self) -> RobotState:
        """Return the arm's state."""
        return self.watched.read()

    def now(self) -> float:
        """Return this computer's monotonic time [s]."""
        return self.watched.now()

    @property
    def fault(self) -> str | None:
        """The arm's latched fault, or None."""
        return self.watched.fault

    def _send(self, command: JointCommand) -> None:
        """Drop the command."""

    def advance(self) -> None:
        """Wait for the next tick of the control clock."""
        now, period = monotonic(), self.spec.period_s
        due = (now if self._due is None else self._due) + period
        if now > due:
            self.missed_ticks += 1
            due = now
        self._due = due
        sleep(due - now)

    def move_to(self, q: Array) -> None:
        """Do nothing: a shadow does not move the arm."""

    def stop(self) -> None:
        """Do nothing: nothing was started."""
        self._due = None

    def close(self) -> None:
        """Release the arm."""
        self.watched.close()
