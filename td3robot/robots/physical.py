"""What deployment needs from every physical robot, whoever made it: checks, status, control, recovery.

A driver is one class that implements :class:`PhysicalRobot`, and one cell type that makes it
(:mod:`td3robot.robots.cells`). Nothing above knows the vendor.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from td3robot.robots.findings import Check
from td3robot.robots.interface import Robot, RobotSpec
from td3robot.state import Array, Pose


@dataclass(frozen=True, slots=True)
class Status:
    """What every driver reports besides a :class:`~td3robot.state.RobotState`; a driver may add its own fields.

    Attributes:
        stamp: When the latest state was received, on this computer's monotonic clock [s].
        controller_time: Time of the latest state, on the controller's clock [s].
        state_age_s: Time since the latest state was received.
        missed_ticks: Control periods that were over before ``advance`` was called, since ``connect``.
        fault: The latched reason why nothing is sent any more, or None.
    """

    stamp: float
    controller_time: float
    state_age_s: float
    missed_ticks: int
    fault: str | None


class PhysicalRobot(Robot):
    """An arm that keeps its own time, and that people stand next to. A stand-in is driven by the same driver.

    It is opened for reading (``passive``) or for control. Reading starts no program on the controller and moves
    nothing, not even the gripper; :meth:`take_control` goes from reading to control.

    Faults latch: after the first, ``read``, ``send``, ``advance`` and ``take_control`` raise its reason until the
    operator calls :meth:`recover`; nothing else ever clears an error of the robot. ``stop`` and ``close`` are always
    legal.

    Args:
        spec: The robot that it has to be.
        passive: Open for reading only.

    Attributes:
        facts: Plain values that the controller reports about itself, known once connected. ``serial_number`` names
            the robot in the ledger, and is the only key that everything needs; people read the others in records.
        console: Where people configure the controller, in words: "the pendant".
    """

    teleports: ClassVar[bool] = False
    console: ClassVar[str] = "the pendant"

    def __init__(self, spec: RobotSpec, passive: bool) -> None:
        super().__init__(spec)
        self.passive = passive
        self.facts: dict[str, Any] = {}

    @property
    @abstractmethod
    def fault(self) -> str | None:
        """The latched reason why nothing is sent any more, or None. Readable from any thread, without waiting."""

    @property
    @abstractmethod
    def state_period_s(self) -> float:
        """Nominal time between two measured states."""

    @property
    @abstractmethod
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""

    @abstractmethod
    def status(self) -> Status:
        """Return the latest status; a fault is reported in it, not raised.

        Raises:
            RobotError: The robot is not connected.
        """

    @abstractmethod
    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles (n,) [rad], and the tool pose that the controller itself computes for them.

        The pose is that of the tool centre point set at the controller, in the base frame, in the convention of
        ``spec``: z out of the tool, x along the pads' closing direction.

        Raises:
            RobotError: The robot is not connected.
        """

    @abstractmethod
    def take_control(self) -> None:
        """Get ready to send commands: connect, or go from reading to control. The arm does not move.

        Raises:
            RobotError: A fault is latched, or the controller refuses control.
        """

    @abstractmethod
    def activate_gripper(self) -> None:
        """Activate the gripper, which may close and open its fingers; only while the robot is not connected.

        Raises:
            RobotError: It is in use, or did not become ready.
        """

    @abstractmethod
    def recover(self, activate_gripper: bool = False) -> None:
        """Recover the robot from a fault at the operator's explicit word, and take control.

        The arm does not move. With ``activate_gripper``, the fingers may move and drop what they hold.

        Raises:
            RobotError: The cause is still there, or needs hands at the controller; the fault stays.
        """

    @abstractmethod
    def check_controller(self, check: Check) -> bool:
        """Add findings made before connecting: identity, modes, safety state, response times.

        All checks are made, whatever they find.

        Returns:
            Whether connecting makes sense.
        """

    @abstractmethod
    def check_settings(self, check: Check) -> None:
        """Add findings that only this driver can make once connected: settings, payload, calibration of the gripper.

        What applies to every robot is checked elsewhere: contract, stream of states, posture, tool pose, objects.
        """
