"""What every simulated robot can do besides being one: differ from its model, and have objects placed."""

from abc import abstractmethod

from td3robot.robots.interface import Robot
from td3robot.robots.objects import Objects
from td3robot.robots.simulated.variation import Variation
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.state import Array


class SimulatedRobot(Robot):
    """An arm in a simulation.

    Attributes:
        kinematics: Where its tool is, if it computes that by itself; None leaves it to the guard's kinematics.
        period_share: How long the next control periods take, as a share of what they should.
    """

    kinematics: ToolboxKinematics | None = None
    period_share: float = 1.0

    @abstractmethod
    def vary(self, variation: Variation) -> None:
        """Change the cell's physics; it differs from the model until changed again."""

    @abstractmethod
    def tool_position(self) -> Array:
        """Give where the tool centre point is (3,) [m]."""

    def objects(self) -> Objects | None:
        """Return the objects of the scene, or None where the simulation has no contacts."""
        return None
