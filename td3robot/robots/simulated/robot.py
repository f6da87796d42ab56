"""What simulated robots add to a robot: variations from the model, and placed objects."""

from abc import abstractmethod

from td3robot.robots.interface import Robot
from td3robot.robots.objects import Objects
from td3robot.robots.simulated.variation import Variation
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.state import Array


class SimulatedRobot(Robot):
    """An arm in a simulation.

    Attributes:
        kinematics: The robot's own kinematics for its tool pose; None leaves that to the guard's kinematics.
        period_share: Duration of the next control periods, as a share of the nominal one.
    """

    kinematics: ToolboxKinematics | None = None
    period_share: float = 1.0

    @abstractmethod
    def vary(self, variation: Variation) -> None:
        """Change the cell's physics until the next change."""

    @abstractmethod
    def tool_position(self) -> Array:
        """Return the tool centre point's position (3,) [m]."""

    def objects(self) -> Objects | None:
        """Return the objects of the scene, or None if the simulation has no contacts."""
        return None
