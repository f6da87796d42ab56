"""A physical arm or stand-in as it reports itself, opened for reading only."""

from td3robot.build import robot_spec
from td3robot.config import RobotEnvironmentConfig
from td3robot.robots.cells import CellConfig
from td3robot.view.source import Snapshot, Source, Workcell

# How often the arm is read [s].
PERIOD_S = 0.05


class LiveArm(Source):
    """What a cell's controller reports.

    Args:
        cell: How to reach the arm. It is opened passive: no program starts on the controller, and nothing moves.

    Raises:
        RobotError: It cannot be reached.
    """

    kind = "the arm as it reports itself; opened for reading only"

    def __init__(self, cell: CellConfig, title: str) -> None:
        self.title = title
        self._workspace = RobotEnvironmentConfig(robot=cell.robot).guard.workspace
        self._robot = cell.driver(robot_spec(cell.robot), passive=True)
        try:
            self._robot.connect()
        except BaseException:
            self._robot.close()
            raise

    @property
    def workcell(self) -> Workcell:
        """The arm, with its own kinematics if the controller reports them."""
        return Workcell(self._robot.spec, (), self._workspace)

    def advance(self) -> Snapshot:
        """Read the arm.

        Raises:
            RobotError: It no longer reports, or has latched a fault.
        """
        status = self._robot.status()
        caption = (f"Read-only; the state is {1e3 * status.state_age_s:.0f} ms old",)
        return Snapshot(self._robot.read(), caption=caption, lasts_s=PERIOD_S)

    def close(self) -> None:
        """Release the arm."""
        self._robot.close()
